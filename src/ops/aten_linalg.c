/* Linear algebra over small static matrices: substitution, row by row. */
#include "ops/ops_private.h"

#include <string.h>

enum { MOST_ROWS = 64 }; /* each row is a few nodes */

/* Adds leading dimensions up to those that both operands broadcast to. */
static WfVal batched(WfGraph *g, const WfNode *n, WfVal v, WfVal other)
{
    const WfValue *x = wf_value(g, v), *y = wf_value(g, other);
    WfDim shape[WF_MAX_RANK], own[2];
    int r;
    memcpy(own, x->shape + x->rank - 2, sizeof own);
    wf_broadcast_shape(g, n, x->rank - 2, x->shape, y->rank - 2, y->shape, &r, shape);
    memcpy(shape + r, own, sizeof own);
    return wf_expand(g, v, r + 2, shape);
}

static WfVal row(WfGraph *g, WfVal x, int64_t i, int64_t count)
{
    return wf_slice(g, x, wf_rank_of(g, x) - 2, i, i + count, 1);
}

static WfVal columns(WfGraph *g, WfVal x, int64_t i, int64_t count)
{
    return wf_slice(g, x, wf_rank_of(g, x) - 1, i, i + count, 1);
}

/* X with A X = B, A triangular: x_i = (b_i - sum over the known x_j of a_ij x_j) / a_ii. */
static WfVal substitute(WfGraph *g, WfVal a, WfVal b, int64_t size, bool upper, bool unit)
{
    int r = wf_rank_of(g, a);
    WfVal known = 0;
    for (int64_t step = 0; step < size; step++) {
        int64_t i = upper ? size - 1 - step : step;
        WfVal own = row(g, a, i, 1), x = row(g, b, i, 1);
        if (known)
            x = wf_sub(g, x, wf_matmul(g, columns(g, own, upper ? i + 1 : 0, step), known));
        if (!unit)
            x = wf_div(g, x, columns(g, own, i, 1));
        WfVal both[2] = {upper ? x : known, upper ? known : x};
        known = known ? wf_cat(g, both, 2, r - 2) : x;
    }
    return known;
}

static int solve_triangular(WfGraph *g, const WfNode *n, WfVal *out)
{
    WfVal a = wf_tensor(n, 0), b = wf_tensor(n, 1);
    int ra = wf_rank_of(g, a), rb = wf_rank_of(g, b);
    bool upper = wf_bool(n, 2), left = wf_bool(n, 3), unit = wf_bool(n, 4);
    int64_t size;
    if (ra < 2 || rb < 2 || !wf_elit(g->exprs, wf_size_of(g, a, -1), &size) || size > MOST_ROWS || size < 1)
        wf_fail_node(g, n, WF_E_OP_FORM,
                     "the matrix %s must have 1 to %d rows, known at compile time", wf_shape_text(g, a),
                     MOST_ROWS);
    if (!left) { /* X A = B is A' X' = B' */
        a = wf_transpose(g, a, ra - 2, ra - 1);
        b = wf_transpose(g, b, rb - 2, rb - 1);
    }
    if (!wf_dims_equal(g, wf_size_of(g, b, -2), wf_size_of(g, a, -1)))
        wf_fail_node(g, n, WF_E_SHAPES, "%s and %s do not fit", wf_shape_text(g, a), wf_shape_text(g, b));
    WfVal wide = batched(g, n, a, b);
    b = batched(g, n, b, a);
    WfVal x = substitute(g, wide, b, size, left ? upper : !upper, unit);
    int r = wf_rank_of(g, x);
    out[0] = left ? x : wf_transpose(g, x, r - 2, r - 1);
    return 1;
}

static const WfOp ops[] = {
    {.schema = "aten.linalg_solve_triangular(Tensor self, Tensor B, *, bool upper, bool left=True, bool "
               "unitriangular=False) -> Tensor",
     .family = WF_COMPOSITE,
     .decompose = solve_triangular},
    {0}};

void wf_ops_aten_linalg(void)
{
    wf_register(ops);
}
