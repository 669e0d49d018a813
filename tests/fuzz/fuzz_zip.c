/* ZIP archives: whatever opens must hand out entries that lie in the file. */
#include <stdlib.h>
#include <zlib.h>

#include "seeds.h"

typedef struct { WfCtx *ctx; const uint8_t *data; size_t size; unsigned how; } Job;

static void open_it(void *arg)
{
    Job *j = arg;
    WfArena *a = wf_arena_scratch(j->ctx);
    WfFile f = { j->data, j->size, "input" };
    WfZip *z = wf_zip_open(j->ctx, a, &f, j->how);
    for (int i = 0; i < z->n; i++) {
        const WfZipEntry *e = &z->at[i];
        if (wf_zip_find(z, e->name) != e || e->at < j->data || (e->packed ? e->packed : e->size) > j->size - (size_t)(e->at - j->data))
            abort();
        if (e->packed && e->size < 1 << 16)
            wf_zip_read(j->ctx, e, "input", wf_arena_alloc(a, e->size), e->size);
        else if (e->size && !e->packed)
            crc32_z(0, e->at, e->size); /* reads every byte */
    }
    wf_arena_free(a);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    WfCtx *ctx = wf_ctx_new();
    wf_guard(ctx, open_it, &(Job){ ctx, data, size, 0 });
    wf_guard(ctx, open_it, &(Job){ ctx, data, size, WF_ZIP_CHECK });
    wf_guard(ctx, open_it, &(Job){ ctx, data, size, WF_ZIP_CHECK | WF_ZIP_DEFLATED });
    wf_ctx_free(ctx);
    return 0;
}

static bool write_seed(WfCtx *ctx, int i, const char *path)
{
    WfZipEntry e[] = { { .name = "model/data.json", .at = (const uint8_t *)"{\"a\": 1}", .size = 8 },
                       { .name = "model/weights/0", .at = (const uint8_t *)"0123456789abcdef", .size = 16 },
                       { .name = "version", .at = (const uint8_t *)"3\n", .size = 2 } };
    if (i == 4) { /* "aaaa.." deflated, as Python's zipfile writes it */
        static const uint8_t deflated[] = {
            80, 75, 3, 4, 20, 0, 0, 0, 8, 0, 0, 0, 33, 0, 37, 138, 91, 201, 6, 0, 0, 0, 40, 0, 0, 0, 1, 0, 0, 0, 97, 75, 76, 36,
            14, 0, 0, 80, 75, 1, 2, 20, 3, 20, 0, 0, 0, 8, 0, 0, 0, 33, 0, 37, 138, 91, 201, 6, 0, 0, 0, 40, 0, 0, 0, 1, 0, 0, 0,
            0, 0, 0, 0, 0, 0, 0, 0, 128, 1, 0, 0, 0, 0, 97, 80, 75, 5, 6, 0, 0, 0, 0, 1, 0, 1, 0, 47, 0, 0, 0, 37, 0, 0, 0, 0, 0};
        wf_write_file(ctx, path, deflated, sizeof deflated);
        return true;
    }
    if (i > 3)
        return false;
    wf_zip_write(ctx, path, e, i);
    return true;
}

void fuzz_seeds(void (*add)(const void *data, size_t size))
{
    seeds_from_files(write_seed, add);
}
