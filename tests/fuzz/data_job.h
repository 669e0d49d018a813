/* What the targets of the data room share: the input is a file (or the recipe beside one) that --data names; it opens or is
 * refused, and what opens is read, every sample once. */
#ifndef WEFT_DATA_JOB_H
#define WEFT_DATA_JOB_H

#include <string.h>

#include "data/data.h"
#include "seeds.h"

typedef struct {
    WfCtx *ctx;
    const char *source;   /* [NAME=]FILE */
    const char *recipe;   /* NULL: none */
    const WfDataInput *inputs;
    int n;
} DataJob;

static void data_open(void *arg)
{
    enum { SAMPLES = 64, BYTES = 1 << 20 };
    DataJob *j = arg;
    WfArena *a = wf_arena_scratch(j->ctx);
    WfOptions o;
    wf_options_init(j->ctx, a, &o);
    WF_PUSH(a, &o.data, wf_arena_strdup(a, j->source));
    o.recipe = j->recipe ? wf_arena_strdup(a, j->recipe) : NULL;
    WfDataset *d = wf_dataset_open(j->ctx, a, &o, WF_DATA_TRAIN, j->inputs, j->n);
    for (int c = 0; c < d->n; c++) {
        size_t bytes = (size_t)d->columns[c].sample_elements * wf_dtype_size(d->columns[c].input->dtype);
        uint8_t *out = wf_arena_alloc(a, bytes < BYTES ? bytes : 0);
        WfDataFault fault = {0};
        for (int64_t i = 0; i < d->samples && i < SAMPLES && bytes < BYTES; i++)
            wf_dataset_read(d, c, 1, &i, 1, out, &fault);
    }
    wf_arena_free(a);
}

/* The file `name` of this process, in a folder that goes when it ends. */
static char data_folder[64];

static void data_end(void)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", data_folder);
    if (system(command))
        fprintf(stderr, "%s is left over\n", data_folder);
}

static inline const char *data_file(const char *name, const void *p, size_t n)
{
    static char path[4][128];
    static int turn;
    char *at = path[turn++ % 4];
    if (!*data_folder) {
        strcpy(data_folder, access("/dev/shm", W_OK) ? "/tmp/weft-fuzz-XXXXXX" : "/dev/shm/weft-fuzz-XXXXXX"); /* memory, where there is some */
        if (!mkdtemp(data_folder))
            exit(2);
        atexit(data_end);
    }
    snprintf(at, sizeof path[0], "%s/%s", data_folder, name);
    FILE *f = fopen(at, "wb");
    if (!f || (n && fwrite(p, 1, n, f) != n) || fclose(f))
        exit(2);
    return at;
}

static inline void data_run(const char *source, const char *recipe, const WfDataInput *inputs, int n)
{
    WfCtx *ctx = wf_ctx_new();
    wf_guard(ctx, data_open, &(DataJob){ctx, source, recipe, inputs, n});
    wf_ctx_free(ctx);
}

/* A file of tests/unit/data as a seed. */
static inline void data_seed(void (*add)(const void *data, size_t size), const char *name)
{
    static uint8_t all[1 << 16];
    char path[512];
    snprintf(path, sizeof path, "%s/tests/unit/data/%s", WEFT_SOURCE_DIR, name);
    FILE *f = fopen(path, "rb");
    if (!f) {
        fprintf(stderr, "no seed: %s\n", path);
        exit(2);
    }
    add(all, fread(all, 1, sizeof all, f));
    fclose(f);
}

#endif
