/* YAML text: parsed or refused, always released. */
#include <string.h>

#include "seeds.h"

typedef struct { WfCtx *ctx; const char *text; size_t size; } Job;

static void parse_it(void *arg)
{
    Job *j = arg;
    wf_yaml_parse(j->ctx, j->text, j->size, "input");
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
        "loss: cross_entropy\nlr: 3e-4\nbetas: [0.9, 0.999]\ndata:\n  - x=images.npy\n  - y=labels.npy\nshuffle: false\n",
        "%YAML 1.2\n---\na: {b: [1, 0x1f, .5, ~, \"q\\u00e9\\n\"], 'c d': }\n? e\n: - - 1\n    - 2\n...\n",
        "text: |2-\n    kept\n   lines\nfolded: >+\n  one\n  two\n\n# comment\n",
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
