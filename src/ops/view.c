/* View primitives: index maps. Each row says how a result's index leads to an operand's index; fusion composes these
 * maps into the addresses of loads, so that no view costs a copy unless a library kernel wants its operand dense. */
#include "ops/ops_private.h"

#include <string.h>

#define E(g) ((g)->exprs)

/* What reshape and expand to argument 1 fold to: the operand if it has that shape, one such view in place of two, a
 * constant of the new shape; 0: nothing. `again` makes the view. */
static WfVal to_shape_fold(WfGraph *g, const WfNode *n, WfVal (*again)(WfGraph *, WfVal, int, const WfDim *))
{
    WfVal x = wf_tensor(n, 0);
    const WfValue *v = wf_value(g, x);
    const WfArg *s = &n->args[1];
    if (v->rank == s->n && !memcmp(v->shape, s->ints, (size_t)s->n * sizeof(WfDim)))
        return x;
    const WfNode *p = wf_producer(g, x);
    if (p && p->op == n->op)
        return again(g, wf_tensor(p, 0), s->n, s->ints);
    double c;
    if (wf_constant(g, x, &c))
        return wf_full(g, v->dtype, s->n, s->ints, c);
    return 0;
}

/* ---- reshape(x, shape): same elements in row-major order ---- */

static void reshape_infer(WfGraph *g, const WfNode *n)
{
    const WfArg *s = &n->args[1];
    WfDim want = 1, have = wf_numel(g, wf_tensor(n, 0));
    for (int i = 0; i < s->n; i++)
        want = wf_emul(E(g), want, s->ints[i]);
    if (want != have)
        wf_fail_node(g, n, WF_E_SHAPES, "%s does not have the element count of the new shape",
                     wf_shape_text(g, wf_tensor(n, 0)));
    wf_set_result(g, n, 0, wf_dtype_of(g, wf_tensor(n, 0)), s->n, s->ints);
}

/* Walks both shapes and closes a group wherever the products agree, so that indices are only mixed inside groups. */
static void reshape_index(WfGraph *g, const WfNode *n, WfIndex *ix)
{
    WfExprs *e = E(g);
    const WfValue *x = wf_value(g, wf_tensor(n, 0)), *y = wf_value(g, n->out);
    WfDim in[WF_MAX_RANK];
    int i = 0, o = 0;
    while (i < x->rank || o < y->rank) {
        int i0 = i, o0 = o;
        WfDim pi = i < x->rank ? x->shape[i++] : 1, po = o < y->rank ? y->shape[o++] : 1;
        while (pi != po) {
            int64_t a, b;
            bool lit = wf_elit(e, pi, &a) && wf_elit(e, po, &b);
            bool more_in = lit ? a < b : wf_eprove_lt(e, pi, po) || o >= y->rank;
            if (more_in && i < x->rank)
                pi = wf_emul(e, pi, x->shape[i++]);
            else if (o < y->rank)
                po = wf_emul(e, po, y->shape[o++]);
            else if (i < x->rank)
                pi = wf_emul(e, pi, x->shape[i++]);
            else
                break;
        }
        if (i - i0 == 1 && o - o0 == 1) {
            in[i0] = ix->at[o0];
            continue;
        }
        WfDim flat = 0;
        for (int k = o0; k < o; k++)
            flat = wf_eadd(e, wf_emul(e, flat, y->shape[k]), ix->at[k]);
        for (int k = i - 1; k > i0; k--) {
            WfDim size = x->shape[k] ? x->shape[k] : 1; /* nothing is read of an empty operand */
            in[k] = wf_emod(e, flat, size);
            flat = wf_efloordiv(e, flat, size);
        }
        if (i > i0)
            in[i0] = flat;
    }
    memcpy(ix->at, in, sizeof in);
}

static WfVal reshape_fold(WfGraph *g, const WfNode *n) { return to_shape_fold(g, n, wf_reshape); }

static void reshape_vjp(WfGraph *g, const WfNode *n, const WfVal *dy, WfVal *dx)
{
    const WfValue *x = wf_value(g, wf_tensor(n, 0));
    dx[0] = wf_reshape(g, dy[0], x->rank, x->shape);
}

/* ---- expand(x, shape): NumPy broadcasting ---- */

static void expand_infer(WfGraph *g, const WfNode *n)
{
    const WfValue *x = wf_value(g, wf_tensor(n, 0));
    const WfArg *s = &n->args[1];
    for (int i = 0; i < x->rank; i++) {
        int o = s->n - x->rank + i;
        if (o < 0 || (x->shape[i] != 1 && x->shape[i] != s->ints[o]))
            wf_fail_node(g, n, WF_E_SHAPES, "%s does not broadcast to the new shape",
                         wf_shape_text(g, wf_tensor(n, 0)));
    }
    wf_set_result(g, n, 0, x->dtype, s->n, s->ints);
}

static void expand_index(WfGraph *g, const WfNode *n, WfIndex *ix)
{
    const WfValue *x = wf_value(g, wf_tensor(n, 0)), *y = wf_value(g, n->out);
    WfDim in[WF_MAX_RANK];
    for (int i = 0; i < x->rank; i++) {
        int o = y->rank - x->rank + i;
        in[i] = x->shape[i] == 1 ? 0 : ix->at[o];
    }
    memcpy(ix->at, in, sizeof in);
}

static WfVal expand_fold(WfGraph *g, const WfNode *n) { return to_shape_fold(g, n, wf_expand); }

static void expand_vjp(WfGraph *g, const WfNode *n, const WfVal *dy, WfVal *dx)
{
    const WfValue *x = wf_value(g, wf_tensor(n, 0));
    dx[0] = wf_sum_to(g, dy[0], x->rank, x->shape);
}

/* ---- permute(x, dims) ---- */

static void permute_infer(WfGraph *g, const WfNode *n)
{
    const WfValue *x = wf_value(g, wf_tensor(n, 0));
    const WfArg *p = &n->args[1];
    WfDim shape[WF_MAX_RANK];
    uint32_t seen = 0;
    for (int i = 0; i < p->n; i++) {
        if (p->n != x->rank || p->ints[i] < 0 || p->ints[i] >= x->rank || seen >> p->ints[i] & 1)
            wf_fail_node(g, n, WF_E_SHAPES, "dims are not a permutation");
        seen |= 1u << p->ints[i];
        shape[i] = x->shape[p->ints[i]];
    }
    wf_set_result(g, n, 0, x->dtype, p->n, shape);
}

static void permute_index(WfGraph *g, const WfNode *n, WfIndex *ix)
{
    (void)g;
    WfDim in[WF_MAX_RANK];
    for (int i = 0; i < n->args[1].n; i++)
        in[n->args[1].ints[i]] = ix->at[i];
    memcpy(ix->at, in, sizeof in);
}

static WfVal permute_fold(WfGraph *g, const WfNode *n)
{
    WfVal x = wf_tensor(n, 0);
    const WfArg *p = &n->args[1];
    const WfNode *q = wf_producer(g, x);
    double c;
    bool same = true;
    for (int i = 0; i < p->n; i++)
        same &= p->ints[i] == i;
    if (same)
        return x;
    if (q && q->op == n->op) {
        int both[WF_MAX_RANK];
        for (int i = 0; i < p->n; i++)
            both[i] = (int)q->args[1].ints[p->ints[i]];
        return wf_permute(g, wf_tensor(q, 0), both);
    }
    if (wf_constant(g, x, &c)) {
        WfDim shape[WF_MAX_RANK];
        for (int i = 0; i < p->n; i++)
            shape[i] = wf_value(g, x)->shape[p->ints[i]];
        return wf_full(g, wf_dtype_of(g, x), p->n, shape, c);
    }
    return 0;
}

static void permute_vjp(WfGraph *g, const WfNode *n, const WfVal *dy, WfVal *dx)
{
    int inverse[WF_MAX_RANK];
    for (int i = 0; i < n->args[1].n; i++)
        inverse[n->args[1].ints[i]] = i;
    dx[0] = wf_permute(g, dy[0], inverse);
}

/* ---- slice(x, dim, start, end, step): 0 <= start <= end <= size, step >= 1 ---- */

static void slice_infer(WfGraph *g, const WfNode *n)
{
    WfExprs *e = E(g);
    const WfValue *x = wf_value(g, wf_tensor(n, 0));
    WfDim shape[WF_MAX_RANK];
    int64_t dim = wf_lit(g, n, 1), step = wf_lit(g, n, 4), start, end, size;
    if (dim < 0 || dim >= x->rank || step < 1)
        wf_fail_node(g, n, WF_E_SHAPES, "bad dimension or step");
    if (wf_elit(e, wf_int(n, 2), &start) && wf_elit(e, wf_int(n, 3), &end) &&
        (start < 0 || end < start || (wf_elit(e, x->shape[dim], &size) && end > size)))
        wf_fail_node(g, n, WF_E_SHAPES, "slice %lld:%lld is outside %s", (long long)start, (long long)end,
                     wf_shape_text(g, wf_tensor(n, 0)));
    memcpy(shape, x->shape, sizeof shape);
    WfDim len = wf_esub(e, wf_int(n, 3), wf_int(n, 2));
    shape[dim] = wf_efloordiv(e, wf_eadd(e, len, step - 1), step);
    wf_set_result(g, n, 0, x->dtype, x->rank, shape);
}

static void slice_index(WfGraph *g, const WfNode *n, WfIndex *ix)
{
    int dim = (int)n->args[1].i;
    ix->at[dim] = wf_eadd(E(g), wf_int(n, 2), wf_emul(E(g), ix->at[dim], wf_int(n, 4)));
}

static WfVal slice_fold(WfGraph *g, const WfNode *n)
{
    WfVal x = wf_tensor(n, 0);
    const WfValue *v = wf_value(g, x);
    int64_t dim = wf_lit(g, n, 1);
    double c;
    if (dim >= 0 && dim < v->rank && wf_int(n, 2) == 0 && wf_int(n, 3) == v->shape[dim] && wf_int(n, 4) == 1)
        return x;
    if (dim >= 0 && dim < v->rank && wf_constant(g, x, &c)) {
        WfDim shape[WF_MAX_RANK];
        memcpy(shape, v->shape, sizeof shape);
        WfDim len = wf_esub(E(g), wf_int(n, 3), wf_int(n, 2));
        shape[dim] = wf_efloordiv(E(g), wf_eadd(E(g), len, wf_lit(g, n, 4) - 1), wf_lit(g, n, 4));
        return wf_full(g, v->dtype, v->rank, shape, c);
    }
    return 0;
}

static void slice_vjp(WfGraph *g, const WfNode *n, const WfVal *dy, WfVal *dx)
{
    WfExprs *e = E(g);
    const WfValue *x = wf_value(g, wf_tensor(n, 0));
    int dim = (int)n->args[1].i;
    int64_t step = wf_lit(g, n, 4);
    WfVal d = dy[0];
    WfDim start = wf_int(n, 2), end = wf_int(n, 3), size = x->shape[dim];
    if (step > 1) { /* spread the elements: one every `step` */
        int rank = wf_rank_of(g, d);
        d = wf_emit(g, "prim.unwindow", "vdidd", wf_unsqueeze(g, d, rank), dim, wf_esub(e, end, start), (int)step, 1);
        d = wf_squeeze(g, d, rank);
    }
    dx[0] = wf_pad_dim(g, d, dim, start, wf_esub(e, size, end), 0);
}

/* ---- pad(x, lo, hi, fill): negative amounts crop ---- */

static void pad_infer(WfGraph *g, const WfNode *n)
{
    const WfValue *x = wf_value(g, wf_tensor(n, 0));
    WfDim shape[WF_MAX_RANK];
    if (n->args[1].n != x->rank || n->args[2].n != x->rank)
        wf_fail_node(g, n, WF_E_SHAPES, "a pad amount is needed for every dimension");
    for (int i = 0; i < x->rank; i++)
        shape[i] = wf_eadd(E(g), x->shape[i], wf_eadd(E(g), n->args[1].ints[i], n->args[2].ints[i]));
    wf_set_result(g, n, 0, x->dtype, x->rank, shape);
}

static void guard(WfIndex *ix, WfDim v, WfDim lo, WfDim hi)
{
    ix->guard[ix->n_guards].value = v;
    ix->guard[ix->n_guards].lo = lo;
    ix->guard[ix->n_guards++].hi = hi;
}

static void pad_index(WfGraph *g, const WfNode *n, WfIndex *ix)
{
    const WfValue *x = wf_value(g, wf_tensor(n, 0));
    for (int i = 0; i < x->rank; i++) {
        WfDim lo = n->args[1].ints[i], hi = n->args[2].ints[i];
        if (lo == 0 && hi == 0)
            continue;
        ix->at[i] = wf_esub(E(g), ix->at[i], lo);
        guard(ix, ix->at[i], 0, x->shape[i]);
    }
    ix->fill = wf_float(g, n, 3);
}

static WfVal pad_fold(WfGraph *g, const WfNode *n)
{
    for (int i = 0; i < n->args[1].n; i++)
        if (n->args[1].ints[i] != 0 || n->args[2].ints[i] != 0)
            return 0;
    (void)g;
    return wf_tensor(n, 0);
}

static void pad_vjp(WfGraph *g, const WfNode *n, const WfVal *dy, WfVal *dx)
{
    WfDim lo[WF_MAX_RANK], hi[WF_MAX_RANK];
    for (int i = 0; i < n->args[1].n; i++) {
        lo[i] = wf_esub(E(g), 0, n->args[1].ints[i]);
        hi[i] = wf_esub(E(g), 0, n->args[2].ints[i]);
    }
    dx[0] = wf_pad(g, dy[0], lo, hi, 0);
}

/* ---- cat(tensors, dim) ---- */

static void cat_infer(WfGraph *g, const WfNode *n)
{
    const WfArg *t = &n->args[0];
    int dim = (int)n->args[1].i;
    const WfValue *x = wf_value(g, t->vals[0]);
    WfDim shape[WF_MAX_RANK];
    memcpy(shape, x->shape, sizeof shape);
    for (int k = 1; k < t->n; k++) {
        const WfValue *v = wf_value(g, t->vals[k]);
        for (int i = 0; i < x->rank; i++)
            if (v->rank != x->rank || v->dtype != x->dtype || (i != dim && v->shape[i] != x->shape[i]))
                wf_fail_node(g, n, WF_E_SHAPES, "%s and %s do not fit together", wf_shape_text(g, t->vals[0]),
                             wf_shape_text(g, t->vals[k]));
        shape[dim] = wf_eadd(E(g), shape[dim], v->shape[dim]);
    }
    wf_set_result(g, n, 0, x->dtype, x->rank, shape);
}

static void cat_index(WfGraph *g, const WfNode *n, WfIndex *ix)
{
    int dim = (int)n->args[1].i;
    WfDim at = 0;
    for (int k = 0; k < ix->operand; k++)
        at = wf_eadd(E(g), at, wf_value(g, n->args[0].vals[k])->shape[dim]);
    WfDim size = wf_value(g, n->args[0].vals[ix->operand])->shape[dim];
    ix->at[dim] = wf_esub(E(g), ix->at[dim], at);
    guard(ix, ix->at[dim], 0, size);
}

static WfVal cat_fold(WfGraph *g, const WfNode *n)
{
    (void)g;
    return n->args[0].n == 1 ? n->args[0].vals[0] : 0;
}

static void cat_vjp(WfGraph *g, const WfNode *n, const WfVal *dy, WfVal *dx)
{
    int dim = (int)n->args[1].i;
    WfDim at = 0;
    for (int k = 0; k < n->args[0].n; k++) {
        WfDim end = wf_eadd(E(g), at, wf_value(g, n->args[0].vals[k])->shape[dim]);
        if (wf_wants(g, k))
            dx[k] = wf_slice(g, dy[0], dim, at, end, 1);
        at = end;
    }
}

/* ---- flip(x, dims) ---- */

static void same_infer(WfGraph *g, const WfNode *n)
{
    const WfValue *x = wf_value(g, wf_tensor(n, 0));
    wf_set_result(g, n, 0, x->dtype, x->rank, x->shape);
}

static void flip_index(WfGraph *g, const WfNode *n, WfIndex *ix)
{
    const WfValue *x = wf_value(g, wf_tensor(n, 0));
    for (int i = 0; i < n->args[1].n; i++) {
        int d = (int)n->args[1].ints[i];
        ix->at[d] = wf_esub(E(g), wf_esub(E(g), x->shape[d], 1), ix->at[d]);
    }
}

static void flip_vjp(WfGraph *g, const WfNode *n, const WfVal *dy, WfVal *dx)
{
    dx[0] = wf_emit(g, "prim.flip", "vI", dy[0], n->args[1].ints, n->args[1].n);
}

/* ---- window(x, dim, size, stride, dilation): a new last dimension holds the window's elements ---- */

static void window_infer(WfGraph *g, const WfNode *n)
{
    WfExprs *e = E(g);
    const WfValue *x = wf_value(g, wf_tensor(n, 0));
    int64_t dim = wf_lit(g, n, 1), size = wf_lit(g, n, 2), stride = wf_lit(g, n, 3), dil = wf_lit(g, n, 4);
    WfDim shape[WF_MAX_RANK + 1];
    memcpy(shape, x->shape, sizeof x->shape);
    WfDim span = wf_esub(e, x->shape[dim], dil * (size - 1) + 1);
    shape[dim] = wf_eadd(e, wf_efloordiv(e, span, stride), 1);
    int64_t out;
    if (size < 1 || stride < 1 || dil < 1 || (wf_elit(e, shape[dim], &out) && out < 1))
        wf_fail_node(g, n, WF_E_SHAPES, "a window of %lld does not fit into %s", (long long)size,
                     wf_shape_text(g, wf_tensor(n, 0)));
    shape[x->rank] = size;
    wf_set_result(g, n, 0, x->dtype, x->rank + 1, shape);
}

static void window_index(WfGraph *g, const WfNode *n, WfIndex *ix)
{
    WfExprs *e = E(g);
    int dim = (int)n->args[1].i, last = wf_value(g, n->out)->rank - 1;
    ix->at[dim] = wf_eadd(e, wf_emul(e, ix->at[dim], wf_int(n, 3)), wf_emul(e, ix->at[last], wf_int(n, 4)));
}

static void window_vjp(WfGraph *g, const WfNode *n, const WfVal *dy, WfVal *dx)
{
    dx[0] = wf_emit(g, "prim.fold", "viiii", dy[0], wf_int(n, 1),
                    wf_value(g, wf_tensor(n, 0))->shape[n->args[1].i], wf_int(n, 3), wf_int(n, 4));
}

/* ---- unwindow(y, dim, n, stride, dilation): the positions that windows read; [i, k] is y[(i - k dil) / stride, k],
 * zero where that is no element ---- */

static void unwindow_infer(WfGraph *g, const WfNode *n)
{
    const WfValue *y = wf_value(g, wf_tensor(n, 0));
    WfDim shape[WF_MAX_RANK];
    memcpy(shape, y->shape, sizeof shape);
    shape[n->args[1].i] = wf_int(n, 2);
    wf_set_result(g, n, 0, y->dtype, y->rank, shape);
}

static void unwindow_index(WfGraph *g, const WfNode *n, WfIndex *ix)
{
    WfExprs *e = E(g);
    const WfValue *y = wf_value(g, wf_tensor(n, 0));
    int dim = (int)n->args[1].i, last = y->rank - 1;
    WfDim t = wf_esub(e, ix->at[dim], wf_emul(e, ix->at[last], wf_int(n, 4))), stride = wf_int(n, 3);
    if (stride != 1)
        guard(ix, wf_emod(e, t, stride), 0, 1);
    ix->at[dim] = wf_efloordiv(e, t, stride);
    guard(ix, ix->at[dim], 0, y->shape[dim]);
    ix->fill = 0;
}

/* dy at [j stride + k dil, k], zero outside: for each k a slice of dy shifted by k dil. */
static void unwindow_vjp(WfGraph *g, const WfNode *n, const WfVal *dy, WfVal *dx)
{
    WfExprs *e = E(g);
    const WfValue *y = wf_value(g, wf_tensor(n, 0));
    int dim = (int)n->args[1].i, last = y->rank - 1;
    int64_t stride = wf_lit(g, n, 3), dil = wf_lit(g, n, 4), k;
    WfDim span = wf_eadd(e, wf_emul(e, wf_esub(e, y->shape[dim], 1), stride), 1), size = wf_int(n, 2);
    WfVal part[WF_MAX_RESULTS];
    if (!wf_elit(e, y->shape[last], &k) || k > WF_MAX_RESULTS)
        wf_fail_node(g, n, WF_E_OP_FORM, "the window must be static and at most %d", WF_MAX_RESULTS);
    for (int64_t i = 0; i < k; i++) {
        WfVal d = wf_slice(g, dy[0], last, i, i + 1, 1);
        d = wf_pad_dim(g, d, dim, wf_econst(e, -i * dil), wf_esub(e, wf_eadd(e, span, i * dil), size), 0);
        part[i] = wf_slice(g, d, dim, 0, span, stride);
    }
    dx[0] = wf_cat(g, part, (int)k, last);
}

/* ---- fold: the sum of unwindow over the window; VJP of window ---- */

static void fold_infer(WfGraph *g, const WfNode *n)
{
    const WfValue *y = wf_value(g, wf_tensor(n, 0));
    WfDim shape[WF_MAX_RANK];
    memcpy(shape, y->shape, sizeof shape);
    shape[n->args[1].i] = wf_int(n, 2);
    wf_set_result(g, n, 0, y->dtype, y->rank - 1, shape);
}

/* The sum of an unwindow over its last dimension: what another fold came to. */
static WfVal folded(WfGraph *g, WfVal y)
{
    const WfNode *p = wf_producer(g, y), *u = p ? wf_producer(g, wf_tensor(p, 0)) : NULL;
    int rank = u ? wf_rank_of(g, u->out) : 0;
    return p && !strcmp(p->schema->name, "prim.sum") && p->args[1].n == 1 && p->args[1].ints[0] == rank - 1 && u &&
                   !strcmp(u->schema->name, "prim.unwindow") && rank < WF_MAX_RANK
               ? u->out : 0;
}

static int fold_decompose(WfGraph *g, const WfNode *n, WfVal *out)
{
    int last = wf_rank_of(g, wf_tensor(n, 0)) - 1;
    WfVal inner = folded(g, wf_tensor(n, 0));
    if (inner) { /* two dimensions are summed in one reduction: [.., k, k'] becomes [.., k', k] */
        WfVal t = wf_transpose(g, inner, last, last + 1);
        t = wf_emit(g, "prim.unwindow", "viiii", t, wf_int(n, 1), wf_int(n, 2), wf_int(n, 3), wf_int(n, 4));
        out[0] = wf_sum(g, t, 3u << last, false);
        return 1;
    }
    WfVal u = wf_emit(g, "prim.unwindow", "viiii", wf_tensor(n, 0), wf_int(n, 1), wf_int(n, 2), wf_int(n, 3),
                      wf_int(n, 4));
    out[0] = wf_sum(g, u, 1u << last, false);
    return 1;
}

static void fold_vjp(WfGraph *g, const WfNode *n, const WfVal *dy, WfVal *dx)
{
    const WfValue *y = wf_value(g, wf_tensor(n, 0));
    dx[0] = wf_emit(g, "prim.window", "viiii", dy[0], wf_int(n, 1), y->shape[y->rank - 1], wf_int(n, 3),
                    wf_int(n, 4));
}

static const WfOp ops[] = {
    {.schema = "prim.reshape(Tensor x, int[] shape) -> Tensor", .family = WF_VIEW, .infer = reshape_infer,
     .index = reshape_index, .fold = reshape_fold, .vjp = reshape_vjp},
    {.schema = "prim.expand(Tensor x, int[] shape) -> Tensor", .family = WF_VIEW, .infer = expand_infer,
     .index = expand_index, .fold = expand_fold, .vjp = expand_vjp},
    {.schema = "prim.permute(Tensor x, int[] dims) -> Tensor", .family = WF_VIEW, .infer = permute_infer,
     .index = permute_index, .fold = permute_fold, .vjp = permute_vjp},
    {.schema = "prim.slice(Tensor x, int dim, int start, int end, int step=1) -> Tensor", .family = WF_VIEW,
     .infer = slice_infer, .index = slice_index, .fold = slice_fold, .vjp = slice_vjp},
    {.schema = "prim.pad(Tensor x, int[] lo, int[] hi, float fill=0.0) -> Tensor", .family = WF_VIEW,
     .infer = pad_infer, .index = pad_index, .fold = pad_fold, .vjp = pad_vjp},
    {.schema = "prim.cat(Tensor[] tensors, int dim) -> Tensor", .family = WF_VIEW, .infer = cat_infer,
     .index = cat_index, .fold = cat_fold, .vjp = cat_vjp},
    {.schema = "prim.flip(Tensor x, int[] dims) -> Tensor", .family = WF_VIEW, .infer = same_infer,
     .index = flip_index, .vjp = flip_vjp},
    {.schema = "prim.window(Tensor x, int dim, int size, int stride, int dilation) -> Tensor", .family = WF_VIEW,
     .infer = window_infer, .index = window_index, .vjp = window_vjp},
    {.schema = "prim.unwindow(Tensor y, int dim, int n, int stride, int dilation) -> Tensor", .family = WF_VIEW,
     .infer = unwindow_infer, .index = unwindow_index, .vjp = unwindow_vjp},
    {.schema = "prim.fold(Tensor y, int dim, int n, int stride, int dilation) -> Tensor", .family = WF_COMPOSITE,
     .infer = fold_infer, .decompose = fold_decompose, .vjp = fold_vjp},
    {0}};

void wf_ops_view(void) { wf_register(ops); }
