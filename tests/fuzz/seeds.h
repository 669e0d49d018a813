/* Seeds of the targets whose valid inputs are written by the library itself: a file per seed, read back and
 * handed to the driver. */
#ifndef WEFT_FUZZ_SEEDS_H
#define WEFT_FUZZ_SEEDS_H

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "fuzz.h"

typedef struct {
    WfCtx *ctx;
    const char *path;
    bool (*write)(WfCtx *ctx, int i, const char *path); /* the i-th valid file; false when there are no more */
    void (*add)(const void *data, size_t size);
} SeedWriter;

static void write_seeds(void *arg)
{
    SeedWriter *w = arg;
    for (int i = 0; w->write(w->ctx, i, w->path); i++) {
        WfArena *a = wf_arena_scratch(w->ctx);
        WfFile *f = wf_file_map(w->ctx, a, w->path);
        w->add(f->at, f->size);
        wf_arena_free(a);
    }
}

/* Stops the process when the seeds cannot be written: without them the target tests little. */
static inline void seeds_from_files(bool (*write)(WfCtx *, int, const char *), void (*add)(const void *, size_t))
{
    char path[] = "/tmp/weft-fuzz-XXXXXX";
    int fd = mkstemp(path);
    WfCtx *ctx = wf_ctx_new();
    if (fd < 0 || !ctx || wf_guard(ctx, write_seeds, &(SeedWriter){ ctx, path, write, add })) {
        fprintf(stderr, "no seeds: %s\n", ctx && ctx->diag.message ? ctx->diag.message : "no memory or no folder");
        exit(2);
    }
    close(fd);
    unlink(path);
    wf_ctx_free(ctx);
}

/* Seeds that are texts. */
static inline void seeds_from_texts(const char *const *texts, size_t n, void (*add)(const void *, size_t))
{
    for (size_t i = 0; i < n; i++)
        add(texts[i], strlen(texts[i]));
}

#endif
