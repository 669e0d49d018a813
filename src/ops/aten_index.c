/* ATen's indexing: index lists are linearised into one index over the flattened indexed dimensions, so that one gather
 * or scatter does the work; Python's negative indices are wrapped here. */
#include "ops/ops_private.h"

#include <string.h>

#define DECOMPOSE(name) static int name(WfGraph *g, const WfNode *n, WfVal *out)
#define DONE(v) do { out[0] = (v); return 1; } while (0)

static WfVal wrapped(WfGraph *g, WfVal i, WfDim size)
{
    i = wf_cast(g, i, WF_I64);
    WfVal neg = wf_binary(g, "prim.lt", i, wf_scalar(g, WF_I64, 0));
    return wf_where(g, neg, wf_add(g, i, wf_dim_scalar(g, WF_I64, size)), i);
}

/* How aten.index addresses x: dims permuted so that the indexed ones come first, flattened; the linear index. */
typedef struct {
    WfVal flat;              /* x as [indexed.., rest] with the indexed dims merged: [P, rest...] */
    WfVal index;             /* i64, any rank */
    int perm[WF_MAX_RANK], n_indexed, rank;
    WfDim sizes[WF_MAX_RANK];/* of x in permuted order */
    int at;                  /* where the index dims stand in the result */
} Plan;

static void plan_index(WfGraph *g, const WfNode *n, WfVal x, int arg, Plan *p)
{
    const WfArg *a = &n->args[arg];
    WfExprs *e = g->exprs;
    WfVal idx[WF_MAX_RANK] = {0};
    int rank = wf_rank_of(g, x), k = 0, first = -1, last = -1;
    bool gap = false;
    if (a->n > rank)
        wf_fail_node(g, n, WF_E_SHAPES, "%d indices for %d dimensions", a->n, rank);
    for (int d = 0; d < a->n; d++) {
        if (!a->vals[d])
            continue;
        if (wf_dtype_of(g, a->vals[d]) == WF_BOOL || wf_dtype_of(g, a->vals[d]) == WF_U8)
            wf_fail_node(g, n, WF_E_DATA_DEPENDENT, "indexing by a mask gives a result whose size depends on the data; "
                                                     "use torch.where");
        first = first < 0 ? d : first;
        gap |= last >= 0 && d != last + 1;
        last = d;
        p->perm[k] = d;
        idx[k++] = a->vals[d];
    }
    p->n_indexed = k;
    p->rank = rank;
    p->at = gap || first < 0 ? 0 : first;
    for (int d = 0, j = k; d < rank; d++) {
        bool indexed = false;
        for (int i = 0; i < k; i++)
            indexed |= p->perm[i] == d;
        if (!indexed)
            p->perm[j++] = d;
    }
    for (int d = 0; d < rank; d++)
        p->sizes[d] = wf_size_of(g, x, p->perm[d]);
    WfDim merged = 1, shape[WF_MAX_RANK];
    WfVal lin = 0;
    for (int i = 0; i < k; i++) {
        WfVal w = wrapped(g, idx[i], p->sizes[i]);
        if (k > 1) /* each index must be in range by itself, not only their combination */
            w = wf_emit(g, "prim.check", "viii", w, (WfDim)0, p->sizes[i], wf_econst(e, INT64_MIN + 1));
        lin = lin ? wf_add(g, wf_mul(g, lin, wf_dim_scalar(g, WF_I64, p->sizes[i])), w) : w;
        merged = wf_emul(e, merged, p->sizes[i]);
    }
    p->index = lin;
    shape[0] = merged;
    for (int d = k; d < rank; d++)
        shape[1 + d - k] = p->sizes[d];
    p->flat = wf_reshape(g, wf_permute(g, x, p->perm), 1 + rank - k, shape);
}

DECOMPOSE(index_op)
{
    WfVal x = wf_tensor(n, 0);
    Plan p;
    plan_index(g, n, x, 1, &p);
    if (!p.n_indexed)
        DONE(x);
    WfVal y = wf_take_rows(g, p.flat, 0, p.index); /* [index dims, rest] */
    int ir = wf_rank_of(g, p.index), r = wf_rank_of(g, y), perm[WF_MAX_RANK];
    for (int d = 0; d < r; d++) /* adjacent indices: the index dims stand where they were */
        perm[d] = d < p.at ? ir + d : d < p.at + ir ? d - p.at : d;
    DONE(wf_permute(g, y, perm));
}

/* Back from the flattened form. */
static WfVal restore(WfGraph *g, const Plan *p, WfVal flat)
{
    int inverse[WF_MAX_RANK];
    for (int d = 0; d < p->rank; d++)
        inverse[p->perm[d]] = d;
    return wf_permute(g, wf_reshape(g, flat, p->rank, p->sizes), inverse);
}

/* [rows of index, rest] of src broadcast to the index result's shape */
static WfVal put(WfGraph *g, const WfNode *n, WfVal x, WfVal values, bool accumulate)
{
    Plan p;
    plan_index(g, n, x, 1, &p);
    int ir = wf_rank_of(g, p.index), rest = p.rank - p.n_indexed, perm[WF_MAX_RANK];
    WfDim want[WF_MAX_RANK], rows = wf_numel(g, p.index), three[3] = {1, p.flat ? wf_size_of(g, p.flat, 0) : 1, 1};
    for (int d = 0; d < ir + rest; d++) /* the result's shape, index dims at p.at */
        want[d] = d < p.at ? p.sizes[p.n_indexed + d] : d < p.at + ir ? wf_size_of(g, p.index, d - p.at)
                                                                      : p.sizes[p.n_indexed + d - ir];
    values = wf_expand(g, wf_cast(g, values, wf_dtype_of(g, x)), ir + rest, want);
    for (int d = 0; d < ir + rest; d++)
        perm[d] = d < ir ? p.at + d : d - ir < p.at ? d - ir : d;
    values = wf_permute(g, values, perm);
    for (int d = 0; d < rest; d++)
        three[2] = wf_emul(g->exprs, three[2], p.sizes[p.n_indexed + d]);
    WfDim src[3] = {1, rows, three[2]};
    WfVal y = wf_emit(g, "prim.scatter_rows", "vvvs", wf_reshape(g, p.flat, 3, three), wf_reshape(g, p.index, 1, &rows),
                      wf_reshape(g, values, 3, src), accumulate ? "add" : "set");
    const WfValue *f = wf_value(g, p.flat);
    return restore(g, &p, wf_reshape(g, y, f->rank, f->shape));
}
/* A single mask writes without a data-dependent size if all that it names get the same: x[.., mask, ..] = v, where v has no
 * dimension for them, or one of size 1. Returns v as x broadcasts it and the mask likewise, or 0. */
static WfVal under_mask(WfGraph *g, const WfNode *n, WfVal x, WfVal v, WfVal *mask)
{
    const WfArg *a = &n->args[1];
    int lead = 0, r = wf_rank_of(g, x), rv = wf_rank_of(g, v);
    while (lead < a->n && !a->vals[lead])
        lead++;
    if (lead + 1 != a->n || wf_dtype_of(g, a->vals[lead]) != WF_BOOL)
        return 0;
    WfVal m = a->vals[lead];
    int rm = wf_rank_of(g, m), rest = r - lead - rm;
    if (rest < 0 || rm < 1)
        wf_fail_node(g, n, WF_E_SHAPES, "a mask %s does not fit %s", wf_shape_text(g, m), wf_shape_text(g, x));
    if (rv > rest) { /* v[lead.., 1, rest..] */
        if (rv > lead + 1 + rest || wf_size_of(g, v, rv - rest - 1) != 1)
            return 0;
        for (int i = 1; i < rm; i++)
            v = wf_unsqueeze(g, v, rv - rest - 1);
    }
    for (int i = 0; i < rest; i++)
        m = wf_unsqueeze(g, m, wf_rank_of(g, m));
    *mask = m;
    return wf_cast(g, v, wf_dtype_of(g, x));
}
DECOMPOSE(index_put_op)
{
    WfVal x = wf_tensor(n, 0), v = wf_tensor(n, 2), mask;
    bool acc = wf_bool(n, 3);
    WfVal w = under_mask(g, n, x, v, &mask);
    if (w)
        DONE(wf_where(g, mask, acc ? wf_add(g, x, w) : w, x));
    DONE(put(g, n, x, v, acc));
}

static int dim_of(WfGraph *g, const WfNode *n) { return wf_dim_index(g, n, wf_int(n, 1), wf_rank_of(g, wf_tensor(n, 0))); }

/* torch.gather reads x only where index reaches: x is cut to the index's size elsewhere. */
static WfVal cut_to(WfGraph *g, WfVal x, int dim, WfVal index)
{
    for (int d = 0; d < wf_rank_of(g, x); d++)
        if (d != dim && wf_size_of(g, x, d) != wf_size_of(g, index, d))
            x = wf_slice(g, x, d, 0, wf_size_of(g, index, d), 1);
    return x;
}
static WfVal at_least_1d(WfGraph *g, WfVal x) { return wf_rank_of(g, x) ? x : wf_unsqueeze(g, x, 0); }

DECOMPOSE(gather_op)
{
    WfVal x = at_least_1d(g, wf_tensor(n, 0)), i = at_least_1d(g, wf_tensor(n, 2));
    int d = wf_dim_index(g, n, wf_int(n, 1), wf_rank_of(g, x)), scalar = wf_rank_of(g, wf_tensor(n, 2)) == 0;
    WfVal y = wf_gather(g, cut_to(g, x, d, i), d, wrapped(g, i, wf_size_of(g, x, d)));
    DONE(scalar ? wf_squeeze(g, y, 0) : y);
}
DECOMPOSE(take_along_dim_op)
{
    WfVal x = wf_tensor(n, 0), i = wf_tensor(n, 1);
    if (!wf_has(n, 2)) {
        WfDim a = wf_numel(g, x), b = wf_numel(g, i);
        DONE(wf_gather(g, wf_reshape(g, x, 1, &a), 0, wrapped(g, wf_reshape(g, i, 1, &b), a)));
    }
    int r = wf_rank_of(g, x), d = wf_dim_index(g, n, wf_int(n, 2), r);
    WfDim xs[WF_MAX_RANK], is[WF_MAX_RANK];
    for (int k = 0; k < r; k++) {
        WfDim a = wf_size_of(g, x, k), b = wf_size_of(g, i, k), m = a == 1 ? b : a;
        xs[k] = k == d ? a : m;
        is[k] = k == d ? b : m;
    }
    WfDim size = xs[d];
    x = wf_expand(g, x, r, xs);
    DONE(wf_gather(g, x, d, wrapped(g, wf_expand(g, i, r, is), size)));
}
DECOMPOSE(index_select_op)
{
    WfVal x = wf_tensor(n, 0), i = at_least_1d(g, wf_tensor(n, 2));
    if (!wf_rank_of(g, x))
        DONE(x);
    int d = dim_of(g, n);
    DONE(wf_take_rows(g, x, d, wrapped(g, i, wf_size_of(g, x, d))));
}

/* ---- scatter: index may cover only a corner of x's other dims; then the corner is cut out and put back ---- */

static WfVal scattered(WfGraph *g, WfVal x, int d, WfVal i, WfVal src, const char *mode)
{
    int r = wf_rank_of(g, x);
    WfVal corner = cut_to(g, x, d, i);
    for (int k = 0; k < r; k++)
        if (wf_size_of(g, src, k) != wf_size_of(g, i, k))
            src = wf_slice(g, src, k, 0, wf_size_of(g, i, k), 1);
    WfVal y = wf_scatter(g, corner, d, wrapped(g, i, wf_size_of(g, x, d)), wf_cast(g, src, wf_dtype_of(g, x)), mode);
    for (int k = 0; k < r; k++) { /* put the corner back, one dimension after the other */
        if (k == d || wf_size_of(g, x, k) == wf_size_of(g, i, k))
            continue;
        WfVal whole = x;
        for (int q = k + 1; q < r; q++)
            if (q != d && wf_size_of(g, y, q) != wf_size_of(g, whole, q))
                whole = wf_slice(g, whole, q, 0, wf_size_of(g, y, q), 1);
        y = wf_slice_scatter(g, whole, y, k, 0, wf_size_of(g, y, k), 1);
    }
    return y;
}
static int scatter_any(WfGraph *g, const WfNode *n, WfVal *out, const char *mode)
{
    WfVal x = at_least_1d(g, wf_tensor(n, 0)), i = at_least_1d(g, wf_tensor(n, 2)), src;
    const WfValue *iv = wf_value(g, i);
    if (n->args[3].kind == WF_ARG_TENSOR && wf_rank_of(g, n->args[3].val) == iv->rank)
        src = n->args[3].val;
    else if (n->args[3].kind == WF_ARG_TENSOR)
        src = at_least_1d(g, n->args[3].val);
    else
        src = wf_expand_like(g, wf_operand(g, n, 3, wf_dtype_of(g, x)), i);
    WfVal y = scattered(g, x, wf_dim_index(g, n, wf_int(n, 1), wf_rank_of(g, x)), i, src, mode);
    DONE(wf_rank_of(g, wf_tensor(n, 0)) ? y : wf_squeeze(g, y, 0));
}
DECOMPOSE(scatter_op) { return scatter_any(g, n, out, "set"); }
DECOMPOSE(scatter_add_op) { return scatter_any(g, n, out, "add"); }

/* scatter_reduce; without include_self the written places start at the neutral element (mean: divides by the count). */
DECOMPOSE(scatter_reduce_op)
{
    WfVal x = at_least_1d(g, wf_tensor(n, 0)), i = at_least_1d(g, wf_tensor(n, 2)), src = at_least_1d(g, wf_tensor(n, 3));
    int d = wf_dim_index(g, n, wf_int(n, 1), wf_rank_of(g, x));
    const char *how = n->args[4].s;
    bool self = wf_bool(n, 5), mean = !strcmp(how, "mean");
    WfDtype t = wf_dtype_of(g, x);
    const char *mode = !strcmp(how, "sum") || mean ? "add" : !strcmp(how, "prod") ? "mul" : !strcmp(how, "amax") ? "max" : "min";
    double neutral = !strcmp(mode, "add") ? 0 : !strcmp(mode, "mul") ? 1 : !strcmp(mode, "max") ? -1.0 / 0.0 : 1.0 / 0.0;
    WfVal start = x;
    if (!self) {
        WfVal fill = wf_expand_like(g, wf_scalar(g, t, neutral), i);
        start = scattered(g, x, d, i, fill, "set");
    }
    WfVal y = scattered(g, start, d, i, src, mode);
    if (mean) {
        WfVal ones = wf_expand_like(g, wf_scalar(g, t, 1), i), base = wf_expand_like(g, wf_scalar(g, t, self ? 1 : 0), x);
        WfVal count = scattered(g, base, d, i, ones, "add");
        count = wf_binary(g, "prim.max", count, wf_like(g, count, 1));
        y = wf_div(g, y, count);
    }
    DONE(wf_rank_of(g, wf_tensor(n, 0)) ? y : wf_squeeze(g, y, 0));
}

/* index[R] names whole slices along dim. */
static WfVal rows_into(WfGraph *g, const WfNode *n, WfVal src, const char *mode)
{
    WfVal x = at_least_1d(g, wf_tensor(n, 0)), i = at_least_1d(g, wf_tensor(n, 2));
    int r = wf_rank_of(g, x), d = wf_dim_index(g, n, wf_int(n, 1), r);
    WfDim sx[3] = {1, wf_size_of(g, x, d), 1}, rows = wf_numel(g, i), shape[WF_MAX_RANK];
    src = at_least_1d(g, wf_cast(g, src, wf_dtype_of(g, x)));
    for (int k = 0; k < r; k++) {
        shape[k] = wf_size_of(g, x, k);
        if (k != d)
            sx[k < d ? 0 : 2] = wf_emul(g->exprs, sx[k < d ? 0 : 2], shape[k]);
    }
    WfDim ss[3] = {sx[0], rows, sx[2]};
    WfVal y = wf_emit(g, "prim.scatter_rows", "vvvs", wf_reshape(g, x, 3, sx), wf_reshape(g, wrapped(g, i, sx[1]), 1, &rows),
                      wf_reshape(g, src, 3, ss), mode);
    y = wf_reshape(g, y, r, shape);
    return wf_rank_of(g, wf_tensor(n, 0)) ? y : wf_squeeze(g, y, 0);
}
DECOMPOSE(index_add_op)
{
    WfVal src = wf_tensor(n, 3);
    if (!(n->args[4].kind == WF_ARG_INT && n->args[4].i == 1))
        src = wf_mul(g, src, wf_operand(g, n, 4, wf_dtype_of(g, src)));
    DONE(rows_into(g, n, src, "add"));
}
DECOMPOSE(index_copy_op) { DONE(rows_into(g, n, wf_tensor(n, 3), "set")); }
DECOMPOSE(index_fill_op)
{
    WfVal x = wf_tensor(n, 0), i = at_least_1d(g, wf_tensor(n, 2));
    int d = dim_of(g, n);
    WfDim shape[WF_MAX_RANK];
    for (int k = 0; k < wf_rank_of(g, x); k++)
        shape[k] = k == d ? wf_numel(g, i) : wf_size_of(g, x, k);
    DONE(rows_into(g, n, wf_expand(g, wf_operand(g, n, 3, wf_dtype_of(g, x)), wf_rank_of(g, x), shape), "set"));
}
DECOMPOSE(masked_scatter_op) /* the k-th true place takes source[k]: k by a running count */
{
    WfVal x = wf_tensor(n, 0), m = wf_tensor(n, 1), s = wf_tensor(n, 2);
    WfDim both[WF_MAX_RANK];
    int r;
    wf_broadcast_shape(g, n, wf_rank_of(g, x), wf_value(g, x)->shape, wf_rank_of(g, m), wf_value(g, m)->shape, &r, both);
    x = wf_expand(g, x, r, both);
    m = wf_expand(g, m, r, both);
    WfDim count = wf_numel(g, x), sn = wf_numel(g, s);
    const WfValue *v = wf_value(g, x);
    int rank = v->rank;
    WfDim shape[WF_MAX_RANK];
    memcpy(shape, v->shape, sizeof shape);
    WfVal flat = wf_cast(g, wf_reshape(g, m, 1, &count), WF_I64);
    WfVal k = wf_sub(g, wf_emit(g, "prim.cumsum", "vd", flat, 0), flat);
    WfVal top = wf_dim_scalar(g, WF_I64, wf_esub(g->exprs, sn, 1));
    k = wf_binary(g, "prim.min", k, wf_expand_like(g, top, k));
    WfVal picked = wf_reshape(g, wf_gather(g, wf_reshape(g, s, 1, &sn), 0, k), rank, shape);
    DONE(wf_where(g, m, wf_cast(g, picked, wf_dtype_of(g, x)), x));
}

DECOMPOSE(take_op) /* of the flattened tensor */
{
    WfVal x = wf_tensor(n, 0);
    WfDim count = wf_numel(g, x);
    DONE(wf_take_rows(g, wf_reshape(g, x, 1, &count), 0, wrapped(g, wf_tensor(n, 1), count)));
}

DECOMPOSE(put_op) /* into the flattened tensor */
{
    WfVal x = wf_tensor(n, 0), i = wf_tensor(n, 1), src = wf_cast(g, wf_tensor(n, 2), wf_dtype_of(g, x));
    WfDim all = wf_numel(g, x), count = wf_numel(g, i);
    i = wrapped(g, wf_reshape(g, i, 1, &count), all);
    WfVal y = wf_scatter(g, wf_reshape(g, x, 1, &all), 0, i, wf_reshape(g, src, 1, &count), wf_bool(n, 3) ? "add" : "set");
    const WfValue *v = wf_value(g, x);
    DONE(wf_reshape(g, y, v->rank, v->shape));
}
DECOMPOSE(scatter_by_op) { return scatter_any(g, n, out, *n->args[4].s == 'm' ? "mul" : "add"); }
DECOMPOSE(index_reduce_op) /* the index is that of every column */
{
    WfVal x = wf_tensor(n, 0), i = at_least_1d(g, wf_tensor(n, 2)), src = at_least_1d(g, wf_tensor(n, 3));
    int d = wf_rank_of(g, x) ? dim_of(g, n) : 0;
    for (int k = 0; k < wf_rank_of(g, src); k++)
        if (k != d)
            i = wf_unsqueeze(g, i, k);
    const char *how = n->args[4].s;
    DONE(wf_emit(g, "aten.scatter_reduce.two", "vdvvsb", x, d, wf_expand_like(g, i, src), src, how, (int)wf_bool(n, 5)));
}

/* The place of each repeated element: how many of the running counts it has passed. */
static WfVal repeats(WfGraph *g, const WfNode *n, WfVal times, WfDim count)
{
    const WfArg *size = wf_arg(n, "output_size");
    if (!size || size->kind != WF_ARG_INT)
        wf_fail_node(g, n, WF_E_DATA_DEPENDENT, "the number of repeats must be given, as in repeat_interleave(x, repeats, output_size=10): "
                                                 "without it the result's shape depends on the data");
    times = wf_expand(g, wf_cast(g, times, WF_I64), 1, &count);
    WfVal ends = wf_unsqueeze(g, wf_emit(g, "prim.cumsum", "vd", times, 0), 0);
    WfVal passed = wf_binary(g, "prim.le", ends, wf_iota(g, WF_I64, 2, (WfDim[]){size->i, 1}, 0));
    return wf_sum(g, wf_cast(g, passed, WF_I64), 2, false);
}
DECOMPOSE(repeat_index_op) { DONE(repeats(g, n, wf_tensor(n, 0), wf_numel(g, wf_tensor(n, 0)))); }
DECOMPOSE(repeat_interleave_op)
{
    WfVal x = wf_tensor(n, 0);
    WfDim all = wf_numel(g, x);
    if (!wf_has(n, 2))
        x = wf_reshape(g, x, 1, &all);
    int d = wf_has(n, 2) ? wf_dim_index(g, n, wf_int(n, 2), wf_rank_of(g, x)) : 0;
    DONE(wf_take_rows(g, x, d, repeats(g, n, wf_tensor(n, 1), wf_size_of(g, x, d))));
}

/* The maxima go back to where they were; the other places are 0. */
static int unpool(WfGraph *g, const WfNode *n, WfVal *out, int dims)
{
    WfVal x = wf_tensor(n, 0), i = wf_tensor(n, 1);
    const WfValue *v = wf_value(g, x);
    int lead = v->rank - dims;
    WfDim flat[WF_MAX_RANK], shape[WF_MAX_RANK], from = 1, to = 1;
    if (lead < 1 || n->args[2].n != dims || !wf_same_shape(g, x, i))
        wf_fail_node(g, n, WF_E_SHAPES, "%s and %s do not fit", wf_shape_text(g, x), wf_shape_text(g, i));
    for (int k = 0; k < v->rank; k++) {
        shape[k] = k < lead ? v->shape[k] : n->args[2].ints[k - lead];
        flat[k] = v->shape[k];
        if (k >= lead) {
            from = wf_emul(g->exprs, from, v->shape[k]);
            to = wf_emul(g->exprs, to, shape[k]);
        }
    }
    int rank = v->rank;
    flat[lead] = from;
    x = wf_reshape(g, x, lead + 1, flat);
    i = wf_reshape(g, i, lead + 1, flat);
    flat[lead] = to;
    WfVal y = wf_scatter(g, wf_full(g, wf_dtype_of(g, x), lead + 1, flat, 0), lead, i, x, "set");
    DONE(wf_reshape(g, y, rank, shape));
}
DECOMPOSE(max_unpool2d_op) { return unpool(g, n, out, 2); }
DECOMPOSE(max_unpool3d_op) { return unpool(g, n, out, 3); }

static const WfOp ops[] = {
    ROW("index.Tensor(Tensor self, Tensor?[] indices) -> Tensor", index_op),
    ROW("_unsafe_index.Tensor(Tensor self, Tensor?[] indices) -> Tensor", index_op),
    ROW("index_put(Tensor self, Tensor?[] indices, Tensor values, bool accumulate=False) -> Tensor", index_put_op),
    ROW("gather(Tensor self, int dim, Tensor index, *, bool sparse_grad=False) -> Tensor", gather_op),
    ROW("take(Tensor self, Tensor index) -> Tensor", take_op),
    ROW("take_along_dim(Tensor self, Tensor indices, int? dim=None) -> Tensor", take_along_dim_op),
    ROW("index_select(Tensor self, int dim, Tensor index) -> Tensor", index_select_op),
    ROW("scatter.src(Tensor self, int dim, Tensor index, Tensor src) -> Tensor", scatter_op),
    ROW("scatter.value(Tensor self, int dim, Tensor index, Scalar value) -> Tensor", scatter_op),
    ROW("scatter_add(Tensor self, int dim, Tensor index, Tensor src) -> Tensor", scatter_add_op),
    ROW("scatter_reduce.two(Tensor self, int dim, Tensor index, Tensor src, str reduce, *, bool include_self=True) -> Tensor", scatter_reduce_op),
    ROW("index_add(Tensor self, int dim, Tensor index, Tensor source, *, Scalar alpha=1) -> Tensor", index_add_op),
    ROW("index_copy(Tensor self, int dim, Tensor index, Tensor source) -> Tensor", index_copy_op),
    ROW("index_fill.int_Scalar(Tensor self, int dim, Tensor index, Scalar value) -> Tensor", index_fill_op),
    ROW("index_fill.int_Tensor(Tensor self, int dim, Tensor index, Tensor value) -> Tensor", index_fill_op),
    ROW("index_reduce(Tensor self, int dim, Tensor index, Tensor source, str reduce, *, bool include_self=True) -> Tensor", index_reduce_op),
    ROW("put(Tensor self, Tensor index, Tensor source, bool accumulate=False) -> Tensor", put_op),
    ROW("scatter.reduce(Tensor self, int dim, Tensor index, Tensor src, *, str reduce) -> Tensor", scatter_by_op),
    ROW("scatter.value_reduce(Tensor self, int dim, Tensor index, Scalar value, *, str reduce) -> Tensor", scatter_by_op),
    ROW("repeat_interleave.Tensor(Tensor repeats, *, SymInt? output_size=None) -> Tensor", repeat_index_op),
    ROW("repeat_interleave.self_Tensor(Tensor self, Tensor repeats, int? dim=None, *, SymInt? output_size=None) -> Tensor", repeat_interleave_op),
    ROW("max_unpool2d(Tensor self, Tensor indices, SymInt[2] output_size) -> Tensor", max_unpool2d_op),
    ROW("max_unpool3d(Tensor self, Tensor indices, SymInt[3] output_size, int[3] stride, int[3] padding) -> Tensor", max_unpool3d_op),
    ROW("masked_scatter(Tensor self, Tensor mask, Tensor source) -> Tensor", masked_scatter_op),
    {0}};

void wf_ops_aten_index(void) { wf_register(ops); }
