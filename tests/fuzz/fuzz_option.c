/* Options from text: each line is `name=value`, set as the command line does, then checked, printed and set again. A
 * failure must be a raised usage error; printed text must set the same value. */
#include <stdlib.h>
#include <string.h>

#include "base/base.h"

typedef struct {
    WfCtx *ctx;
    WfOptions o;
    char *name, *value;
} Case;

static void init(void *p)
{
    Case *c = p;
    wf_options_init(c->ctx, c->ctx->arena, &c->o);
}

static void set(void *p)
{
    Case *c = p;
    wf_options_set(c->ctx, &c->o, c->name, c->value);
}

static void check(void *p)
{
    Case *c = p;
    wf_options_check(c->ctx, &c->o);
}

static void again(void *p)
{
    Case *c = p;
    WfOptions second;
    wf_options_init(c->ctx, c->ctx->arena, &second);
    wf_options_set(c->ctx, &second, "optimizer", "sgd"); /* must not matter: all values are set below */
    for (const WfOptionRow *r = wf_option_table; r->name; r++) {
        if (r->kind == WF_OPTION_STRINGS || r->kind == WF_OPTION_GROUPS)
            continue; /* printed for people, joined by spaces */
        WfStr first = {.arena = c->ctx->arena}, text = {.arena = c->ctx->arena};
        wf_option_text(&c->o, r, &first);
        wf_options_set(c->ctx, &second, r->name, first.n ? first.at : "");
        wf_option_text(&second, r, &text);
        if (first.n != text.n || (first.n && memcmp(first.at, text.at, first.n)))
            abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);
    Case c = {.ctx = wf_ctx_new()};
    if (!text || !c.ctx)
        abort();
    memcpy(text, data, size);
    text[size] = 0;
    if (wf_guard(c.ctx, init, &c) != WEFT_OK)
        abort();
    char *save = NULL;
    for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        char *equals = strchr(line, '=');
        if (!equals)
            continue;
        *equals = 0;
        c.name = line;
        c.value = equals + 1;
        weft_status status = wf_guard(c.ctx, set, &c);
        if (status != WEFT_OK && status != WEFT_ERR_USAGE)
            abort();
    }
    weft_status status = wf_guard(c.ctx, check, &c);
    if ((status != WEFT_OK && status != WEFT_ERR_USAGE) || wf_guard(c.ctx, again, &c) != WEFT_OK)
        abort();
    wf_ctx_free(c.ctx);
    free(text);
    return 0;
}
