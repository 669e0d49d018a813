/* Settings files: read or refused; what was read prints as a file that reads back to the same. */
#include <string.h>

#include "seeds.h"

typedef struct {
    WfCtx *ctx;
    WfOptions o;
    WfStrings words;
    const char *text;
    size_t size;
    char *printed;
} Case;

static void read_it(void *p)
{
    Case *c = p;
    WfStr out = {.arena = c->ctx->arena};
    wf_options_init(c->ctx, c->ctx->arena, &c->o);
    wf_options_read(c->ctx, &c->o, c->text, c->size, "input", &c->words);
    wf_options_print(c->ctx, &c->o, ~0u, &c->words, &out);
    c->printed = out.at;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    WfCtx *ctx = wf_ctx_new();
    Case first = {.ctx = ctx, .text = (const char *)data, .size = size};
    if (wf_guard(ctx, read_it, &first) == WEFT_OK && first.words.n < 2) {
        Case again = {.ctx = ctx, .text = first.printed, .size = strlen(first.printed)};
        if (wf_guard(ctx, read_it, &again) != WEFT_OK || strcmp(first.printed, again.printed)) {
            fprintf(stderr, "%s\n%s\n%s\n", first.printed, again.printed ? again.printed : "refused:", ctx->diag.message ? ctx->diag.message : "");
            abort();
        }
    }
    wf_ctx_free(ctx);
    return 0;
}

static const char *const texts[] = {
    "model: model.pt2\nloss: cross_entropy\nlr: 3e-4\nbetas: [0.9, 0.999]\ndata:\n  - x=images.npy\n  - y=labels.npy\nshuffle: false\n",
    "optimizer: sgd\nmomentum: 0.9\nclip-norm: none\nthreads: auto\nmicro-batch: 16\nparam-group: [\"*.bias:weight-decay=0\"]\nout: run/\n",
    "seed: 0x1f\nmin-lr: .5\ntarget: \"quoted \\u00e9\"\nignore-index: -100\nisa: v3,v4\nsteps:\n",
};

void fuzz_seeds(void (*add)(const void *data, size_t size))
{
    seeds_from_texts(texts, WF_LEN(texts), add);
}
