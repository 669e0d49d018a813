/* JSON text: parsed or refused, always released. */
#include <string.h>

#include "seeds.h"

typedef struct { WfCtx *ctx; const char *text; size_t size; } Job;

static void parse_it(void *arg)
{
    Job *j = arg;
    wf_json_parse(j->ctx, j->text, j->size, "input");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    WfCtx *ctx = wf_ctx_new();
    wf_guard(ctx, parse_it, &(Job){ ctx, (const char *)data, size });
    wf_ctx_free(ctx);
    return 0;
}

static bool write_seed(WfCtx *ctx, int i, const char *path)
{
    static const char *const texts[] = {
        "{\"name\": \"aten.linear\", \"inputs\": [{\"arg\": {\"as_tensor\": \"x\"}}], \"k\": -1.5e3, \"t\": true}",
        "[1, 2, [3, [4, [5, []]]], {\"a\": {}}, \"\\u00e9\\n\", null]",
        "\"text\"",
    };
    if (i >= (int)WF_LEN(texts))
        return false;
    wf_write_file(ctx, path, texts[i], strlen(texts[i]));
    return true;
}

void fuzz_seeds(void (*add)(const void *data, size_t size))
{
    seeds_from_files(write_seed, add);
}
