/* ZIP archives: whatever opens must hand out entries that lie in the file. */
#include <stdlib.h>
#include <zlib.h>

#include "seeds.h"

typedef struct { WfCtx *ctx; const uint8_t *data; size_t size; bool crc; } Job;

static void open_it(void *arg)
{
    Job *j = arg;
    WfArena *a = wf_arena_scratch(j->ctx);
    WfFile f = { j->data, j->size, "input" };
    WfZip *z = wf_zip_open(j->ctx, a, &f, j->crc);
    for (int i = 0; i < z->n; i++) {
        const WfZipEntry *e = &z->at[i];
        if (wf_zip_find(z, e->name) != e || e->at < j->data || e->size > j->size - (size_t)(e->at - j->data))
            abort();
        if (e->size)
            crc32_z(0, e->at, e->size); /* reads every byte */
    }
    wf_arena_free(a);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    WfCtx *ctx = wf_ctx_new();
    wf_guard(ctx, open_it, &(Job){ ctx, data, size, false });
    wf_guard(ctx, open_it, &(Job){ ctx, data, size, true });
    wf_ctx_free(ctx);
    return 0;
}

static bool write_seed(WfCtx *ctx, int i, const char *path)
{
    WfZipEntry e[] = { { "model/data.json", (const uint8_t *)"{\"a\": 1}", 8 },
                       { "model/weights/0", (const uint8_t *)"0123456789abcdef", 16 },
                       { "version", (const uint8_t *)"3\n", 2 } };
    if (i > 3)
        return false;
    wf_zip_write(ctx, path, e, i);
    return true;
}

void fuzz_seeds(void (*add)(const void *data, size_t size))
{
    seeds_from_files(write_seed, add);
}
