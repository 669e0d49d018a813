/* Primitives whose addresses come from data. gather reads, scatter writes; out-of-range indices are reported at run
 * time with the node and the value, and never touch foreign memory. */
#include "ops/ops_private.h"

#include <string.h>

static void gather_infer(WfGraph *g, const WfNode *n)
{
    const WfValue *x = wf_value(g, wf_tensor(n, 0)), *i = wf_value(g, wf_tensor(n, 2));
    if (!wf_dtype_is_int(i->dtype) || i->rank != x->rank)
        wf_fail_node(g, n, WF_E_SHAPES, "index %s does not fit %s", wf_shape_text(g, wf_tensor(n, 2)),
                     wf_shape_text(g, wf_tensor(n, 0)));
    wf_set_result(g, n, 0, x->dtype, i->rank, i->shape);
}

static WfVal gather_fold(WfGraph *g, const WfNode *n)
{
    double c;
    const WfValue *i = wf_value(g, wf_tensor(n, 2));
    return wf_constant(g, wf_tensor(n, 0), &c) ? wf_full(g, wf_dtype_of(g, wf_tensor(n, 0)), i->rank, i->shape, c) : 0;
}

/* [outer, n, inner] of v's shape around dim. */
static void outer_inner(WfGraph *g, WfVal v, int dim, WfDim *s)
{
    const WfValue *x = wf_value(g, v);
    s[0] = s[2] = 1;
    for (int i = 0; i < x->rank; i++)
        if (i != dim)
            s[i < dim ? 0 : 2] = wf_emul(g->exprs, s[i < dim ? 0 : 2], x->shape[i]);
    s[1] = x->shape[dim];
}

WfVal wf_scatter(WfGraph *g, WfVal x, int dim, WfVal index, WfVal src, const char *mode)
{
    const WfValue *v = wf_value(g, x);
    WfDim sx[3], si[3], shape[WF_MAX_RANK];
    int rank = v->rank;
    memcpy(shape, v->shape, sizeof shape);
    outer_inner(g, x, dim, sx);
    outer_inner(g, index, dim, si);
    WfVal y = wf_emit(g, "prim.scatter", "vvvs", wf_reshape(g, x, 3, sx), wf_reshape(g, index, 3, si),
                      wf_reshape(g, src, 3, si), mode);
    return wf_reshape(g, y, rank, shape);
}

static void gather_vjp(WfGraph *g, const WfNode *n, const WfVal *dy, WfVal *dx)
{
    WfVal x = wf_tensor(n, 0), index = wf_tensor(n, 2);
    const WfValue *v = wf_value(g, x), *i = wf_value(g, index);
    int dim = (int)n->args[1].i;
    WfDim three[3], rows[3];
    outer_inner(g, x, dim, three);
    outer_inner(g, index, dim, rows);
    const WfNode *p = wf_producer(g, index);
    if (p && !strcmp(p->schema->name, "prim.expand") && wf_numel(g, wf_tensor(p, 0)) == i->shape[dim]) {
        /* one index a row (an embedding): whole rows are added */
        WfVal zeros = wf_full(g, v->dtype, 3, three, 0);
        WfVal at = wf_cast(g, wf_reshape(g, wf_tensor(p, 0), 1, rows + 1), WF_I64); /* embeddings also take i32 */
        WfVal d = wf_emit(g, "prim.scatter_rows", "vvvs", zeros, at, wf_reshape(g, dy[0], 3, rows), "add");
        dx[0] = wf_reshape(g, d, v->rank, v->shape);
        return;
    }
    bool whole = true; /* scatter's other dimensions must be complete: pad an index that covers only a corner */
    for (int d = 0; d < v->rank; d++)
        whole &= d == (int)n->args[1].i || i->shape[d] == v->shape[d];
    if (!whole)
        wf_fail_node(g, n, WF_E_NO_GRADIENT, "gathering from a corner of a dimension has no gradient yet");
    dx[0] = wf_scatter(g, wf_full(g, v->dtype, v->rank, v->shape, 0), dim, index, dy[0], "add");
}

/* scatter(x[outer, n, inner], index[outer, R, inner], src[outer, R, inner], mode): x with x[o, index[o, r, i], i]
 * (set, add, mul, max, min) src[o, r, i], in the order of the rows r. */
static void scatter_infer(WfGraph *g, const WfNode *n)
{
    const WfValue *x = wf_value(g, wf_tensor(n, 0)), *i = wf_value(g, wf_tensor(n, 1));
    if (!wf_same_shape(g, wf_tensor(n, 1), wf_tensor(n, 2)) || x->rank != 3 || i->rank != 3 ||
        wf_dtype_of(g, wf_tensor(n, 2)) != x->dtype || i->shape[0] != x->shape[0] || i->shape[2] != x->shape[2])
        wf_fail_node(g, n, WF_E_SHAPES, "index %s and source %s do not fit %s", wf_shape_text(g, wf_tensor(n, 1)),
                     wf_shape_text(g, wf_tensor(n, 2)), wf_shape_text(g, wf_tensor(n, 0)));
    wf_set_result(g, n, 0, x->dtype, x->rank, x->shape);
}

/* scatter_rows: the same with one index a row, index[R]. */
static void rows_infer(WfGraph *g, const WfNode *n)
{
    const WfValue *x = wf_value(g, wf_tensor(n, 0)), *i = wf_value(g, wf_tensor(n, 1)), *s = wf_value(g, wf_tensor(n, 2));
    if (x->rank != 3 || i->rank != 1 || s->rank != 3 || s->shape[1] != i->shape[0] || s->shape[0] != x->shape[0] ||
        s->shape[2] != x->shape[2] || s->dtype != x->dtype)
        wf_fail_node(g, n, WF_E_SHAPES, "index %s and source %s do not fit %s", wf_shape_text(g, wf_tensor(n, 1)),
                     wf_shape_text(g, wf_tensor(n, 2)), wf_shape_text(g, wf_tensor(n, 0)));
    wf_set_result(g, n, 0, x->dtype, x->rank, x->shape);
}

static WfVal pick(WfGraph *g, WfVal x, const WfNode *n) /* x at the written places */
{
    WfVal index = wf_tensor(n, 1);
    return wf_rank_of(g, index) == 1 ? wf_take_rows(g, x, 1, index) : wf_gather(g, x, 1, index);
}

static WfVal again(WfGraph *g, const WfNode *n, WfVal x, WfVal src, const char *mode)
{
    return wf_emit(g, n->schema->name, "vvvs", x, wf_tensor(n, 1), src, mode);
}

/* The product of the others is out / own, where own is not 0. A zero of x, and the only zero among the sources of its
 * place, get the product without it; sources that are zero in one place together get none: torch.scatter_reduce's rule
 * (FunctionsManual.cpp, scatter_reduce_backward). */
static void product_vjp(WfGraph *g, const WfNode *n, const WfVal *dy, WfVal *dx)
{
    WfVal x = wf_tensor(n, 0), src = wf_tensor(n, 2), zero = wf_like(g, src, 0), one = wf_like(g, src, 1);
    if (wf_wants(g, 0)) {
        WfVal none = wf_binary(g, "prim.eq", x, wf_like(g, x, 0)), mended = wf_where(g, none, wf_like(g, x, 1), x);
        dx[0] = wf_div(g, wf_mul(g, dy[0], again(g, n, mended, src, "mul")), mended);
    }
    if (!wf_wants(g, 2))
        return;
    WfVal is_zero = wf_binary(g, "prim.eq", src, zero);
    WfVal zeros = again(g, n, wf_zeros_like(g, x), wf_cast(g, is_zero, wf_dtype_of(g, x)), "add");
    WfVal only = wf_binary(g, "prim.and", is_zero, wf_binary(g, "prim.eq", pick(g, zeros, n), one));
    WfVal others = again(g, n, x, wf_where(g, only, one, src), "mul");
    WfVal plain = wf_div(g, pick(g, wf_mul(g, dy[0], n->out), n), wf_where(g, is_zero, one, src));
    dx[2] = wf_where(g, only, pick(g, wf_mul(g, dy[0], others), n), plain);
}

static void scatter_vjp(WfGraph *g, const WfNode *n, const WfVal *dy, WfVal *dx)
{
    WfVal x = wf_tensor(n, 0), src = wf_tensor(n, 2);
    const char *mode = n->args[3].s;
    if (!strcmp(mode, "add")) {
        dx[0] = dy[0];
        dx[2] = pick(g, dy[0], n);
    } else if (!strcmp(mode, "set")) {
        dx[0] = again(g, n, dy[0], wf_zeros_like(g, src), "set");
        dx[2] = pick(g, dy[0], n);
    } else if (!strcmp(mode, "max") || !strcmp(mode, "min")) {
        /* Everyone who equals the winner shares its gradient equally, x included (torch.scatter_reduce). */
        WfDtype t = wf_dtype_of(g, x);
        WfVal hit = wf_cast(g, wf_binary(g, "prim.eq", src, pick(g, n->out, n)), t);
        WfVal self = wf_cast(g, wf_binary(g, "prim.eq", x, n->out), t);
        WfVal share = wf_div(g, dy[0], again(g, n, self, hit, "add"));
        dx[0] = wf_mul(g, self, share);
        dx[2] = wf_mul(g, hit, pick(g, share, n));
    } else {
        product_vjp(g, n, dy, dx);
    }
}

static void scatter_call(WfGraph *g, const WfNode *n, WfLibraryCall *c)
{
    static const char *const modes[] = {"set", "add", "mul", "max", "min"};
    double zero = 1;
    bool rows = wf_rank_of(g, wf_tensor(n, 1)) == 1;
    c->kind = rows ? "scatter" : "scatter_full";
    /* adding to zeros or overwriting them needs no operand; the kernel clears */
    bool clear = wf_constant(g, wf_tensor(n, 0), &zero) && zero == 0 &&
                 (!strcmp(n->args[3].s, "add") || !strcmp(n->args[3].s, "set"));
    WfVal v[5] = {clear ? 0 : wf_tensor(n, 0), wf_tensor(n, 1), wf_tensor(n, 2), n->out, WF_STATUS};
    for (int i = 0; i < 5; i++) {
        c->at[i].v = v[i];
        c->at[i].dense = true;
    }
    c->n = 5;
    if (rows) {
        c->at[1].rank = 2;
        c->at[1].shape[0] = 1;
        c->at[1].shape[1] = wf_size_of(g, v[1], 0);
    }
    for (int i = 0; i < 5; i++)
        if (!strcmp(modes[i], n->args[3].s))
            c->param[0] = i;
}

static const WfOp ops[] = {
    {.schema = "prim.gather(Tensor x, int dim, Tensor index) -> Tensor", .family = WF_GATHER, .infer = gather_infer,
     .fold = gather_fold, .vjp = gather_vjp,
     .eval = wf_gather_eval},
    {.schema = "prim.scatter(Tensor x, Tensor index, Tensor src, str mode) -> Tensor", .family = WF_LIBRARY,
     .infer = scatter_infer, .vjp = scatter_vjp, .describe = scatter_call,
     .eval = wf_scatter_eval},
    {.schema = "prim.scatter_rows(Tensor x, Tensor index, Tensor src, str mode) -> Tensor", .family = WF_LIBRARY,
     .infer = rows_infer, .vjp = scatter_vjp, .describe = scatter_call,
     .eval = wf_scatter_eval},
    {0}};

void wf_ops_index(void) { wf_register(ops); }
