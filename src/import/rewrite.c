/* An export with other weights. Contents of storages have one size whatever their values, so the archive is copied, and the
 * bytes of the storages are exchanged in it. */
#include "import/private.h"

#include <string.h>

/* Puts the dense value at its places in the copy of its storage. */
static void scatter(const Weight *w, const WfTensor *t, uint8_t *raw)
{
    size_t size = wf_dtype_size(w->dtype);
    int64_t n = (int64_t)(t->bytes / size), at[WF_MAX_RANK] = {0};
    for (int64_t k = 0; k < n; k++) {
        int64_t to = w->offset;
        for (int d = 0; d < w->rank; d++)
            to += at[d] * w->strides[d];
        memcpy(raw + to * (int64_t)size, (const uint8_t *)t->data + k * (int64_t)size, size);
        for (int d = w->rank - 1; d >= 0 && ++at[d] == w->sizes[d]; d--)
            at[d] = 0;
    }
}

static void rewrite(Imp *m, const WfFile *f, const WfTensors *values, const char *out)
{
    WF_VEC(WfZipEntry) changed = {0};
    WfMap *by_file = wf_map_new(m->a);
    for (int i = 0; i < m->weights.n; i++) {
        const Weight *w = &m->weights.at[i];
        const WfTensor *t = wf_tensors_find(values, w->fqn);
        const WfZipEntry *e = imp_entry(m, "data/%s", w->file);
        int64_t k;
        if (!t || !t->bytes || !e)
            continue;
        WF_ASSERT(m->ctx, t->dtype == w->dtype && t->rank == w->rank && !memcmp(t->shape, w->sizes, (size_t)w->rank * sizeof *t->shape));
        if (!wf_map_get(by_file, w->file, &k)) { /* several tensors may lie in one storage */
            uint8_t *copy = wf_arena_alloc(m->a, e->size);
            memcpy(copy, e->at, e->size);
            wf_map_put(by_file, w->file, k = changed.n);
            WF_PUSH(m->a, &changed, ((WfZipEntry){.name = e->name, .at = copy, .size = e->size}));
        }
        scatter(w, t, (uint8_t *)changed.at[k].at);
    }
    wf_zip_replace(m->ctx, out, f, changed.at, changed.n);
}

void wf_pt2_rewrite(WfCtx *ctx, const char *path, const WfTensors *values, const char *out)
{
    WfArena *a = wf_arena_scratch(ctx);
    WfFile *f = wf_file_map(ctx, a, path);
    Imp *m = WF_NEW(a, Imp);
    *m = (Imp){.ctx = ctx, .a = a, .path = f->path};
    imp_open(m, f);
    imp_weights(m);
    rewrite(m, f, values, out);
    wf_arena_free(a);
}
