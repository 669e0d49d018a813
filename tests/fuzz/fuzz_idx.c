/* IDX, plain and gzip-compressed: the data must have the size that its shape says. */
#include <stdlib.h>
#include <zlib.h>

#include "seeds.h"

typedef struct { WfCtx *ctx; const uint8_t *data; size_t size; } Job;

static void parse_it(void *arg)
{
    Job *j = arg;
    WfArena *a = wf_arena_scratch(j->ctx);
    WfTensor *t = wf_idx_parse(j->ctx, a, j->data, j->size, "input");
    size_t bytes = wf_dtype_size(t->dtype);
    for (int d = 0; d < t->rank; d++)
        bytes *= (size_t)t->shape[d];
    if (bytes != t->bytes)
        abort();
    wf_hash64(t->data, t->bytes, 0); /* reads every byte */
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
    static const uint8_t bytes[] = { 0, 0, 8, 3, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3, 1, 2, 3, 4, 5, 6 };
    static const uint8_t shorts[] = { 0, 0, 0x0b, 1, 0, 0, 0, 2, 1, 2, 3, 4 };
    if (i < 2)
        wf_write_file(ctx, path, i ? shorts : bytes, i ? sizeof(shorts) : sizeof(bytes));
    if (i == 2) {
        gzFile g = gzopen(path, "wb");
        if (!g || gzwrite(g, bytes, sizeof(bytes)) <= 0 || gzclose(g) != Z_OK)
            return false;
    }
    return i < 3;
}

void fuzz_seeds(void (*add)(const void *data, size_t size))
{
    seeds_from_files(write_seed, add);
}
