/* safetensors: whatever opens must hand out tensors whose bytes lie in the input (or in a copy) and fit their shape. */
#include <stdlib.h>

#include "seeds.h"

typedef struct { WfCtx *ctx; const uint8_t *data; size_t size; } Job;

static void parse_it(void *arg)
{
    Job *j = arg;
    WfArena *a = wf_arena_scratch(j->ctx);
    WfTensors *t = wf_safetensors_parse(j->ctx, a, j->data, j->size, "input");
    unsigned sum = 0;
    for (int i = 0; i < t->n; i++) {
        size_t bytes = wf_dtype_size(t->at[i].dtype);
        for (int d = 0; d < t->at[i].rank; d++)
            bytes *= (size_t)t->at[i].shape[d];
        if (bytes != t->at[i].bytes || wf_tensors_find(t, t->at[i].name) != &t->at[i])
            abort();
        for (size_t k = 0; k < bytes; k++)
            sum += ((const uint8_t *)t->at[i].data)[k];
    }
    wf_hash64(&sum, sizeof(sum), 0); /* so that the reads stay */
    wf_arena_free(a);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    WfCtx *ctx = wf_ctx_new();
    wf_guard(ctx, parse_it, &(Job){ ctx, data, size });
    wf_ctx_free(ctx);
    return 0;
}

static bool write_seed(WfCtx *ctx, int i, const char *path)
{
    static const float w[6] = { 1, 2, 3, 4, 5, 6 };
    static const uint8_t b[3] = { 1, 0, 1 };
    WfTensor t[] = { { "fc.weight", WF_F32, 2, { 2, 3 }, w, 24 }, { "mask", WF_BOOL, 1, { 3 }, b, 3 },
                     { "empty", WF_I64, 2, { 0, 5 }, NULL, 0 } };
    if (i > 3)
        return false;
    wf_safetensors_write(ctx, path, t, i);
    return true;
}

void fuzz_seeds(void (*add)(const void *data, size_t size))
{
    seeds_from_files(write_seed, add);
}
