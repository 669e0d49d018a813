/* What the tests of data and of train share: a context, options, a folder of files, and datasets opened from them. */
#ifndef WEFT_DATA_FIXTURE_H
#define WEFT_DATA_FIXTURE_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <cmocka.h>

#include "folder.h"
#include "data/data.h"

typedef struct {
    WfCtx *ctx;
    WfOptions o;
    char folder[64];
    const char *name, *value;
    const WfDataInput *inputs;
    int n;
    WfDataUse use;
    WfDataset *d;
    const char *path;
    const WfTensor *tensors;
    int n_tensors, column;
    const int64_t *index;
    int64_t count;
    void *out;
} Fixture;

static void do_init(void *p)
{
    Fixture *f = p;
    wf_options_init(f->ctx, f->ctx->arena, &f->o);
}

static void do_open(void *p)
{
    Fixture *f = p;
    f->d = wf_dataset_open(f->ctx, f->ctx->arena, &f->o, f->use, f->inputs, f->n);
}

static void do_write(void *p)
{
    Fixture *f = p;
    wf_safetensors_write(f->ctx, f->path, f->tensors, f->n_tensors);
}

static int setup(void **state)
{
    Fixture *f = calloc(1, sizeof *f);
    f->ctx = wf_ctx_new();
    strcpy(f->folder, "/tmp/weft-test-XXXXXX");
    if (!mkdtemp(f->folder))
        return -1;
    *state = f;
    return wf_guard(f->ctx, do_init, f);
}

static int teardown(void **state)
{
    Fixture *f = *state;
    int rc = remove_all(f->folder);
    wf_ctx_free(f->ctx);
    free(f);
    return rc;
}

static inline void do_gather(void *p)
{
    Fixture *f = p;
    wf_dataset_gather(f->d, f->column, f->index, f->count, f->out);
}

/* A file of tests/unit/data. */
static inline const char *recorded(Fixture *f, const char *name)
{
    return wf_arena_printf(f->ctx->arena, WEFT_SOURCE_DIR "/tests/unit/data/%s", name);
}

static inline char *path_of(Fixture *f, const char *name)
{
    return wf_arena_printf(f->ctx->arena, "%s/%s", f->folder, name);
}

static inline char *write_tensors(Fixture *f, const char *name, const WfTensor *t, int n)
{
    f->path = path_of(f, name);
    f->tensors = t;
    f->n_tensors = n;
    if (wf_guard(f->ctx, do_write, f) != WEFT_OK)
        fail_msg("%s", f->ctx->diag.message);
    return (char *)f->path;
}

static inline char *write_bytes(Fixture *f, const char *name, const void *p, size_t n)
{
    char *path = path_of(f, name);
    FILE *out = fopen(path, "wb");
    assert_non_null(out);
    assert_true(fwrite(p, 1, n, out) == n && !fclose(out));
    return path;
}

static inline void give(Fixture *f, const char *file)
{
    WfStrings *files = f->use == WF_DATA_EVAL ? &f->o.eval_data : &f->o.data;
    WF_PUSH(f->ctx->arena, files, wf_arena_strdup(f->ctx->arena, file));
}

static inline void give_named(Fixture *f, const char *name, const char *file)
{
    give(f, wf_arena_printf(f->ctx->arena, "%s=%s", name, file));
}

static inline void want(Fixture *f, const WfDataInput *inputs, int n)
{
    f->inputs = inputs;
    f->n = n;
    f->o.data.n = f->o.eval_data.n = 0;
}

static inline void opens(Fixture *f)
{
    if (wf_guard(f->ctx, do_open, f) != WEFT_OK)
        fail_msg("%s: %s", f->ctx->diag.place ? f->ctx->diag.place : "", f->ctx->diag.message);
}

static inline void refused_as(Fixture *f, weft_status status, const char *message)
{
    weft_status got = wf_guard(f->ctx, do_open, f);
    if (got != status || !strstr(f->ctx->diag.message, message))
        fail_msg("status %d, \"%s\" instead of %d, \"%s\"", got, got ? f->ctx->diag.message : "", status, message);
    f->o.data.n = f->o.eval_data.n = 0;
}

/* Reading the samples of column 0 fails with that message. */
static inline void unreadable(Fixture *f, weft_status status, const char *message, const int64_t *index, int64_t count, void *out)
{
    f->column = 0;
    f->index = index;
    f->count = count;
    f->out = out;
    weft_status got = wf_guard(f->ctx, do_gather, f);
    if (got != status || !strstr(f->ctx->diag.message, message))
        fail_msg("status %d, \"%s\" instead of %d, \"%s\"", got, got ? f->ctx->diag.message : "", status, message);
}

static inline void refused(Fixture *f, const char *message) { refused_as(f, WEFT_ERR_DATA, message); }

#endif
