/* JSON through jansson, with failures raised and the value released by the context. Duplicate keys are
 * refused: two readers that pick different ones would disagree about a file. */
#include <jansson.h>

#include "base/inner.h"

static void free_json(void *p)
{
    json_decref(p);
}

/* A value takes fifty bytes and more, so a text of commas would take much more memory than the file: counted before. */
static void check_values(WfCtx *ctx, const char *text, size_t n, const char *what)
{
    enum { MOST = 5000000 };
    size_t values = 0;
    for (size_t i = 0; i < n; i++)
        values += text[i] == ',' || text[i] == '[' || text[i] == '{';
    if (values > MOST)
        wf_fail(ctx, WF_E_JSON, "%s: its JSON has %zu values; %d is the most that Weft reads", what, values, MOST);
}

WfJson *wf_json_load(WfCtx *ctx, const char *text, size_t n, const char *what, WfDefer **defer)
{
    json_error_t err;
    check_values(ctx, text, n, what);
    json_t *j = json_loadb(n ? text : "", n, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &err);
    if (!j && json_error_code(&err) == json_error_out_of_memory)
        wf_fail(ctx, WF_E_MEMORY, "out of memory");
    if (!j) {
        char place[64];
        snprintf(place, sizeof(place), "line %d, column %d", err.line, err.column);
        wf_fail_at(ctx, WF_E_JSON, place, NULL, "%s: not valid JSON: %s", what, err.text);
    }
    *defer = wf_defer(ctx, free_json, j);
    return j;
}

WfJson *wf_json_parse(WfCtx *ctx, const char *text, size_t n, const char *what)
{
    WfDefer *d;
    return wf_json_load(ctx, text, n, what, &d);
}
