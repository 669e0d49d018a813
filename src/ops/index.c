/* Primitives whose addresses come from data. gather reads, scatter writes; out-of-range indices are reported at run
 * time with the node and the value, and never touch foreign memory. */
#include "ops/ops_private.h"

#include <string.h>

static void gather_infer(WfGraph *g, const WfNode *n)
{
    const WfValue *x = wf_value(g, wf_tensor(n, 0)), *i = wf_value(g, wf_tensor(n, 2));
    if (!wf_dtype_is_int(i->dtype) || i->rank != x->rank)
        wf_fail_node(g, n, WEFT_ERR_FILE, "index %s does not fit %s", wf_shape_text(g, wf_tensor(n, 2)),
                     wf_shape_text(g, wf_tensor(n, 0)));
    wf_set_result(g, n, 0, x->dtype, i->rank, i->shape);
}

static WfVal gather_fold(WfGraph *g, const WfNode *n)
{
    double c;
    const WfValue *i = wf_value(g, wf_tensor(n, 2));
    return wf_constant(g, wf_tensor(n, 0), &c) ? wf_full(g, wf_dtype_of(g, wf_tensor(n, 0)), i->rank, i->shape, c) : 0;
}

static void gather_vjp(WfGraph *g, const WfNode *n, const WfVal *dy, WfVal *dx)
{
    WfVal x = wf_tensor(n, 0), index = wf_tensor(n, 2);
    const WfValue *v = wf_value(g, x), *i = wf_value(g, index);
    WfVal zeros = wf_full(g, v->dtype, v->rank, v->shape, 0);
    bool whole = true; /* scatter's other dimensions must be complete: pad an index that covers only a corner */
    for (int d = 0; d < v->rank; d++)
        whole &= d == (int)n->args[1].i || i->shape[d] == v->shape[d];
    if (!whole)
        wf_fail_node(g, n, WEFT_ERR_UNSUPPORTED, "gathering from a corner of a dimension has no gradient yet");
    dx[0] = wf_emit(g, "prim.scatter", "vivvs", zeros, wf_int(n, 1), index, dy[0], "add");
}

/* scatter(x, dim, index, src, mode): x with x[.., index[..], ..] (set, add, mul, max, min) src[..], in the order of the
 * rows. index and src have one shape, equal to x's but for dim. */
static void scatter_infer(WfGraph *g, const WfNode *n)
{
    const WfValue *x = wf_value(g, wf_tensor(n, 0)), *i = wf_value(g, wf_tensor(n, 2));
    if (!wf_same_shape(g, wf_tensor(n, 2), wf_tensor(n, 3)) || i->rank != x->rank ||
        wf_dtype_of(g, wf_tensor(n, 3)) != x->dtype)
        wf_fail_node(g, n, WEFT_ERR_FILE, "index %s and source %s do not fit %s", wf_shape_text(g, wf_tensor(n, 2)),
                     wf_shape_text(g, wf_tensor(n, 3)), wf_shape_text(g, wf_tensor(n, 0)));
    wf_set_result(g, n, 0, x->dtype, x->rank, x->shape);
}

static void scatter_vjp(WfGraph *g, const WfNode *n, const WfVal *dy, WfVal *dx)
{
    WfVal x = wf_tensor(n, 0), index = wf_tensor(n, 2), src = wf_tensor(n, 3);
    WfDim dim = wf_int(n, 1);
    const char *mode = n->args[4].s;
    WfVal picked = wf_emit(g, "prim.gather", "viv", dy[0], dim, index);
    if (!strcmp(mode, "add")) {
        dx[0] = dy[0];
        dx[2] = picked;
    } else if (!strcmp(mode, "set")) {
        const WfValue *s = wf_value(g, src);
        WfVal zeros = wf_full(g, s->dtype, s->rank, s->shape, 0);
        dx[0] = wf_emit(g, "prim.scatter", "vivvs", dy[0], dim, index, zeros, "set");
        dx[2] = picked;
    } else if (!strcmp(mode, "max") || !strcmp(mode, "min")) {
        /* Everyone who equals the winner shares its gradient equally, x included (torch.scatter_reduce). */
        WfVal y_at = wf_emit(g, "prim.gather", "viv", n->out, dim, index);
        WfDtype t = wf_dtype_of(g, x);
        WfVal hit = wf_cast(g, wf_binary(g, "prim.eq", src, y_at), t);
        WfVal self = wf_cast(g, wf_binary(g, "prim.eq", x, n->out), t);
        WfVal count = wf_emit(g, "prim.scatter", "vivvs", self, dim, index, hit, "add");
        WfVal share = wf_div(g, dy[0], count);
        dx[0] = wf_mul(g, self, share);
        dx[2] = wf_mul(g, hit, wf_emit(g, "prim.gather", "viv", share, dim, index));
    } else {
        wf_fail_node(g, n, WEFT_ERR_UNSUPPORTED, "scatter with '%s' has no gradient", mode);
    }
}

static const WfOp ops[] = {
    {.schema = "prim.gather(Tensor x, int dim, Tensor index) -> Tensor", .family = WF_GATHER, .infer = gather_infer,
     .fold = gather_fold, .vjp = gather_vjp},
    {.schema = "prim.scatter(Tensor x, int dim, Tensor index, Tensor src, str mode) -> Tensor", .family = WF_LIBRARY,
     .infer = scatter_infer, .vjp = scatter_vjp, .library = "scatter"},
    {0}};

void wf_ops_index(void) { wf_register(ops); }
