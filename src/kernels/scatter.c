/* Writing rows or elements to places that an index names, deterministically.
 *
 * out starts as x, or as zeros; then the sources are applied in order of their position, so that the result
 * does not depend on threads. No two tiles write the same element: a tile owns either some of the outer
 * dimension, or a range of columns (wide rows: balanced however skewed the index is), or every T-th block of
 * rows, and then reads the whole index and applies what falls to it. Each tile also initialises what it owns, but for
 * blocks of rows, which a phase before does in long pieces.
 *
 * An index outside 0 .. V-1 is left out and reported in the status word, which the executor looks at after
 * the step. */
#include <string.h>

#include "kernels/private.h"

enum { TILES = 8, WIDE = 512 };
typedef enum { BY_OUTER, BY_COLUMNS, BY_ROWS } Split;

typedef struct {
    WfDtype dtype;
    bool full, has_x;
    int op;
    int64_t call;                      /* 1 + the caller's id, for the status word */
    int64_t outer, v, inner, r, width; /* width: inner size of the index and what is written (full) */
    int64_t index_stride[3], src_stride[3];
    Split split;
    int64_t tiles, block; /* block: rows that go together, BY_ROWS */
} Scatter;

static void plan(const WfLibDesc *d, Scatter *s)
{
    memset(s, 0, sizeof *s);
    const WfOperand *index = &d->operand[1], *src = &d->operand[2], *out = &d->operand[3];
    s->full = !strcmp(d->kind, "scatter_full");
    s->dtype = out->dtype;
    s->has_x = wf_has(d, 0);
    s->op = (int)d->param[0];
    s->call = 1 + d->param[1];
    s->outer = out->shape[0], s->v = out->shape[1], s->inner = out->shape[2];
    s->r = index->shape[1];
    s->width = s->full ? index->shape[2] : s->inner;
    for (int i = 0; i < 3; i++) {
        s->index_stride[i] = i < index->rank && index->shape[i] != 1 ? index->stride[i] : 0;
        s->src_stride[i] = src->stride[i];
    }
    s->split = s->outer >= TILES ? BY_OUTER : s->inner >= WIDE || s->full ? BY_COLUMNS : BY_ROWS;
    int64_t items = s->split == BY_OUTER ? s->outer : s->split == BY_COLUMNS ? s->inner / 16 : s->v;
    s->tiles = items < 1 ? 1 : items < TILES ? items : TILES;
    if ((s->r + s->v) * s->inner * s->outer < 1 << 14)
        s->tiles = 1;
    s->block = s->inner < 16 ? 16 : 1;
}

static bool accepts(const WfLibDesc *d, char *why, size_t size)
{
    bool full = !strcmp(d->kind, "scatter_full");
    if (d->n != 5)
        return wf_refuse(why, size, "%s takes 5 operands", d->kind);
    WfDtype t = d->operand[3].dtype;
    if (t != WF_F32 && t != WF_F64 && t != WF_I64 && t != WF_I32)
        return wf_refuse(why, size, "out is neither f32, f64, i64 nor i32");
    if (!wf_want(d, 3, "out", t, 3, why, size) || !wf_want(d, 2, "src", t, 3, why, size) ||
        !wf_want(d, 1, "index", WF_I64, full ? 3 : 2, why, size) ||
        !wf_want(d, 4, "status", WF_I64, 1, why, size))
        return false;
    const WfOperand *x = &d->operand[0], *index = &d->operand[1], *src = &d->operand[2],
                    *out = &d->operand[3];
    int op = (int)d->param[0];
    if (op < WF_SCATTER_SET || op > WF_SCATTER_MIN)
        return wf_refuse(why, size, "operation %d is unknown", op);
    if (!wf_has(d, 0) && op != WF_SCATTER_SET && op != WF_SCATTER_ADD)
        return wf_refuse(why, size, "x is missing, which this operation starts from");
    if (!wf_dense(out) || (wf_has(d, 0) && !wf_dense(x)))
        return wf_refuse(why, size, "x and out must be dense");
    if (wf_has(d, 0) &&
        (!wf_want(d, 0, "x", t, 3, why, size) || memcmp(x->shape, out->shape, 3 * sizeof(int64_t))))
        return wf_refuse(why, size, "x is not like out");
    if (index->shape[0] != out->shape[0] && (full || index->shape[0] != 1))
        return wf_refuse(why, size, "the outer size of index does not fit out");
    int64_t width = full ? index->shape[2] : out->shape[2];
    if (src->shape[0] < out->shape[0] || src->shape[1] < index->shape[1] || src->shape[2] < width ||
        width > out->shape[2])
        return wf_refuse(why, size, "src is smaller than index, or index larger than out");
    if (!full && out->shape[2] > 1 && src->stride[2] != 1 && src->stride[2] != 0)
        return wf_refuse(why, size, "the last stride of src is not 1: copy it");
    return true;
}

static void sizes(const WfLibDesc *d, size_t *workspace, size_t *scratch)
{
    (void)d;
    *workspace = *scratch = 0;
}

static void report(const Scatter *s, int64_t *status, int64_t value)
{
    int64_t none = 0;
    if (__atomic_compare_exchange_n(&status[0], &none, s->call, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
        __atomic_store_n(&status[1], value, __ATOMIC_RELEASE);
}

static bool owns_row(const Scatter *s, int64_t row, int64_t tile)
{
    return s->split != BY_ROWS || row / s->block % s->tiles == tile;
}

/* What a tile owns: outer o0..o1, columns c0..c1 (and the rows that owns_row says); what it initialises of it: rows v0..v1. */
typedef struct {
    int64_t tile, o0, o1, v0, v1, c0, c1;
} Part;

static void initialise(const Scatter *s, const Part *p, size_t size, const char *x, char *out)
{
    if (x == out)
        return;
    /* Whole rows follow each other in memory. */
    int64_t piece = p->c1 - p->c0 == s->inner ? p->v1 - p->v0 : 1;
    size_t bytes = (size_t)(piece * (p->c1 - p->c0)) * size;
    for (int64_t o = p->o0; o < p->o1; o++)
        for (int64_t v = p->v0; v < p->v1; v += piece) {
            size_t at = (size_t)((o * s->v + v) * s->inner + p->c0) * size;
            if (x)
                memcpy(out + at, x + at, bytes);
            else
                memset(out + at, 0, bytes);
        }
}

/* Integers add and multiply as unsigned numbers: overflow wraps, as in PyTorch. min and max keep NaN. */
#define PICK_MAX(a, b) ((a) > (b) || (a) != (a) ? (a) : (b))
#define PICK_MIN(a, b) ((a) < (b) || (a) != (a) ? (a) : (b))
#define EACH(expr)                  \
    for (int64_t j = 0; j < n; j++) \
    to[j] = (expr)
#define APPLY(T, U, name)                                                                                    \
    static inline void apply_##name(int op, int64_t n, T *restrict to, const T *restrict from, int64_t step) \
    {                                                                                                        \
        if (op == WF_SCATTER_ADD && step == 1)                                                               \
            EACH((T)((U)to[j] + (U)from[j]));                                                                \
        else if (op == WF_SCATTER_ADD)                                                                       \
            EACH((T)((U)to[j] + (U)from[j * step]));                                                         \
        else if (op == WF_SCATTER_SET)                                                                       \
            EACH(from[j * step]);                                                                            \
        else if (op == WF_SCATTER_MUL)                                                                       \
            EACH((T)((U)to[j] * (U)from[j * step]));                                                         \
        else if (op == WF_SCATTER_MAX)                                                                       \
            EACH(PICK_MAX(to[j], from[j * step]));                                                           \
        else                                                                                                 \
            EACH(PICK_MIN(to[j], from[j * step]));                                                           \
    }                                                                                                        \
    static void rows_##name(const Scatter *s, const Part *p, const int64_t *index, const T *src, T *out,     \
                            int64_t *status)                                                                 \
    {                                                                                                        \
        for (int64_t o = p->o0; o < p->o1; o++)                                                              \
            for (int64_t r = 0; r < s->r; r++) {                                                             \
                int64_t v = index[o * s->index_stride[0] + r * s->index_stride[1]];                          \
                if (v < 0 || v >= s->v)                                                                      \
                    report(s, status, v);                                                                    \
                else if (owns_row(s, v, p->tile))                                                            \
                    apply_##name(s->op, p->c1 - p->c0, out + (o * s->v + v) * s->inner + p->c0,              \
                                 src + o * s->src_stride[0] + r * s->src_stride[1] +                         \
                                     p->c0 * s->src_stride[2],                                               \
                                 s->src_stride[2]);                                                          \
            }                                                                                                \
    }                                                                                                        \
    static void full_##name(const Scatter *s, const Part *p, const int64_t *index, const T *src, T *out,     \
                            int64_t *status)                                                                 \
    {                                                                                                        \
        int64_t c1 = p->c1 < s->width ? p->c1 : s->width;                                                    \
        for (int64_t o = p->o0; o < p->o1; o++)                                                              \
            for (int64_t r = 0; r < s->r; r++)                                                               \
                for (int64_t c = p->c0; c < c1; c++) {                                                       \
                    int64_t v =                                                                              \
                        index[o * s->index_stride[0] + r * s->index_stride[1] + c * s->index_stride[2]];     \
                    if (v < 0 || v >= s->v)                                                                  \
                        report(s, status, v);                                                                \
                    else                                                                                     \
                        apply_##name(                                                                        \
                            s->op, 1, out + (o * s->v + v) * s->inner + c,                                   \
                            src + o * s->src_stride[0] + r * s->src_stride[1] + c * s->src_stride[2], 0);    \
                }                                                                                            \
    }
APPLY(float, float, f32)
APPLY(double, double, f64)
APPLY(int64_t, uint64_t, i64)
APPLY(int32_t, uint32_t, i32)

static void run(const WfLib *lib, int phase, int64_t tile, void *const *operand, void *workspace,
                void *scratch, int thread)
{
    const Scatter *s = lib->self;
    (void)workspace, (void)scratch, (void)thread;
    Part p = {tile, 0, s->outer, 0, s->v, 0, s->inner};
    if (s->split == BY_OUTER)
        p.o0 = s->outer * tile / s->tiles, p.o1 = s->outer * (tile + 1) / s->tiles;
    else if (s->split == BY_COLUMNS) /* whole cache lines, so that two threads do not share one */
        p.c0 = s->inner * tile / s->tiles / 16 * 16,
        p.c1 = tile + 1 == s->tiles ? s->inner : s->inner * (tile + 1) / s->tiles / 16 * 16;
    else if (phase == 0)
        p.v0 = s->v * tile / s->tiles, p.v1 = s->v * (tile + 1) / s->tiles;
    if (phase == 0)
        initialise(s, &p, wf_dtype_size(s->dtype), s->has_x ? operand[0] : NULL, operand[3]);
    if (phase + 1 < lib->n_phases)
        return;
    const int64_t *index = operand[1];
    if (s->dtype == WF_F32)
        (s->full ? full_f32 : rows_f32)(s, &p, index, operand[2], operand[3], operand[4]);
    else if (s->dtype == WF_F64)
        (s->full ? full_f64 : rows_f64)(s, &p, index, operand[2], operand[3], operand[4]);
    else if (s->dtype == WF_I64)
        (s->full ? full_i64 : rows_i64)(s, &p, index, operand[2], operand[3], operand[4]);
    else
        (s->full ? full_i32 : rows_i32)(s, &p, index, operand[2], operand[3], operand[4]);
}

static void create(WfCtx *ctx, WfArena *arena, const WfLibDesc *d, int threads, WfLib *lib)
{
    (void)ctx, (void)threads;
    Scatter *s = WF_NEW(arena, Scatter);
    plan(d, s);
    lib->self = s;
    lib->run = run;
    lib->n_phases = s->split == BY_ROWS && s->tiles > 1 ? 2 : 1;
    lib->tiles[0] = lib->tiles[1] = s->tiles;
}

const WfKind wf_kind_scatter = {"scatter", accepts, sizes, create};
const WfKind wf_kind_scatter_full = {"scatter_full", accepts, sizes, create};
