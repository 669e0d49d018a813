/* What runs along one dimension: running extrema and log-sums, differences, histograms. A running operation
 * that is no sum is made in log2(N) steps, each joining every element with the one 1, 2, 4.. places before it
 * (Hillis and Steele, Data parallel algorithms, 1986), so the dimension must be static. */
#include "ops/ops_private.h"

#include <math.h>
#include <string.h>

#define DECOMPOSE(name) static int name(WfGraph *g, const WfNode *n, WfVal *out)
#define X               wf_tensor(n, 0)

static int64_t length(WfGraph *g, const WfNode *n, WfVal x, int d)
{
    int64_t size;
    if (!wf_elit(g->exprs, wf_size_of(g, x, d), &size))
        wf_fail_node(g, n, WF_E_OP_FORM, "the size of dimension %d must be static", d);
    return size;
}

/* x moved `by` places along d; what comes in is `fill`. */
static WfVal delayed(WfGraph *g, WfVal x, int d, int64_t size, int64_t by, double fill)
{
    return wf_pad_dim(g, wf_slice(g, x, d, 0, size - by, 1), d, by, 0, fill);
}

/* cummax, cummin: values and positions. The last of equal ones counts; a NaN stays. The gradient goes to the
 * positions, from which the values are read. `keeps`: the comparison by which a later element replaces an
 * earlier one. */
static int running_extremum(WfGraph *g, const WfNode *n, WfVal *out, const char *keeps)
{
    WfVal x = X;
    int r = wf_rank_of(g, x);
    if (!r) {
        out[0] = x;
        out[1] = wf_scalar(g, WF_I64, 0);
        return 2;
    }
    int d = wf_dim_index(g, n, wf_int(n, 1), r);
    int64_t size = length(g, n, x, d);
    WfVal place = wf_iota(g, WF_I64, r, wf_value(g, x)->shape, d), best = place, v = wf_detach(g, x);
    for (int64_t by = 1; by < size; by *= 2) {
        WfVal before = delayed(g, v, d, size, by, 0), its = delayed(g, best, d, size, by, 0);
        WfVal stays = wf_binary(g, keeps, v, before);
        if (wf_dtype_is_float(wf_dtype_of(g, x)))
            stays = wf_binary(g, "prim.or", stays, wf_unary(g, "prim.isnan", v));
        stays =
            wf_binary(g, "prim.or", stays, wf_binary(g, "prim.lt", place, wf_scalar(g, WF_I64, (double)by)));
        v = wf_where(g, stays, v, before);
        best = wf_where(g, stays, best, its);
    }
    out[0] = wf_gather(g, x, d, best);
    out[1] = best;
    return 2;
}
DECOMPOSE(cummax)
{
    return running_extremum(g, n, out, "prim.ge");
}
DECOMPOSE(cummin)
{
    return running_extremum(g, n, out, "prim.le");
}

/* log of the running sum of exp; the larger of two operands is taken out of their sum */
DECOMPOSE(logcumsumexp)
{
    WfVal v = X;
    int r = wf_rank_of(g, v);
    int d = r ? wf_dim_index(g, n, wf_int(n, 1), r) : 0;
    int64_t size = r ? length(g, n, v, d) : 1;
    WfVal none = wf_like(g, v, -INFINITY), one = wf_like(g, v, 1), zero = wf_like(g, v, 0);
    for (int64_t by = 1; by < size; by *= 2) {
        WfVal before = delayed(g, v, d, size, by, -INFINITY);
        WfVal m = wf_detach(g, wf_binary(g, "prim.max", v, before));
        m = wf_where(g, wf_binary(g, "prim.eq", wf_unary(g, "prim.abs", m), wf_like(g, v, INFINITY)), zero,
                     m);
        WfVal s = wf_add(g, wf_unary(g, "prim.exp", wf_sub(g, v, m)),
                         wf_unary(g, "prim.exp", wf_sub(g, before, m)));
        WfVal empty = wf_binary(g, "prim.eq", s, zero);
        s = wf_where(g, empty, one, s); /* no infinite derivative of what is not taken */
        v = wf_where(g, empty, none, wf_add(g, m, wf_unary(g, "prim.log", s)));
    }
    out[0] = v;
    return 1;
}

DECOMPOSE(diff)
{
    WfVal x = X, parts[3];
    int r = wf_rank_of(g, x), k = 0;
    if (!r)
        wf_fail_node(g, n, WF_E_SHAPES, "the operand has no dimension");
    int d = wf_dim_index(g, n, wf_int(n, 2), r);
    int64_t times = wf_lit(g, n, 1), size;
    if (!times) { /* not even joined */
        out[0] = x;
        return 1;
    }
    if (wf_has(n, 3))
        parts[k++] = wf_cast(g, wf_tensor(n, 3), wf_dtype_of(g, x));
    parts[k++] = x;
    if (wf_has(n, 4))
        parts[k++] = wf_cast(g, wf_tensor(n, 4), wf_dtype_of(g, x));
    x = wf_cat(g, parts, k, d);
    bool truth = wf_dtype_of(g, x) == WF_BOOL;
    for (int64_t i = 0; i < times; i++) {
        WfDim all = wf_size_of(g, x, d), less = wf_esub(g->exprs, all, 1);
        if (wf_elit(g->exprs, all, &size) && size < 2)
            less = 0, all = 0;
        WfVal before = wf_slice(g, x, d, 0, less, 1), after = wf_slice(g, x, d, all ? 1 : 0, all, 1);
        x = truth ? wf_binary(g, "prim.xor", after, before) : wf_sub(g, after, before);
    }
    out[0] = x;
    return 1;
}

/* Counts of equal bins from lo to hi, the last one closed; equal bounds stand for those of the data
 * (PyTorch's histogramdd_linear: position (x - lo) bins / (hi - lo), rounded down). */
DECOMPOSE(histc)
{
    WfVal x = wf_detach(g, X);
    WfDtype t = wf_dtype_of(g, x);
    WfDim count = wf_numel(g, x), bins = wf_int(n, 1), both[2] = {count, bins};
    double a = wf_float(g, n, 2), b = wf_float(g, n, 3);
    WfVal lo = wf_scalar(g, t, a), hi = wf_scalar(g, t, b);
    x = wf_reshape(g, x, 1, &count);
    if (a == b) {
        if (count != 0 && a == 0) {
            lo = wf_reduce(g, "prim.amin", x, 1, false);
            hi = wf_reduce(g, "prim.amax", x, 1, false);
        }
        WfVal same = wf_binary(g, "prim.eq", lo, hi), one = wf_like(g, lo, 1), zero = wf_like(g, lo, 0);
        WfVal apart = wf_where(g, same, one, zero);
        lo = wf_sub(g, lo, apart);
        hi = wf_add(g, hi, apart);
    }
    WfVal place = wf_div(g, wf_mul(g, wf_sub(g, x, lo), wf_dim_scalar(g, t, bins)), wf_sub(g, hi, lo));
    WfVal last = wf_dim_scalar(g, t, wf_esub(g->exprs, bins, 1));
    place = wf_binary(g, "prim.min", wf_unary(g, "prim.floor", place), last);
    WfVal inside = wf_binary(g, "prim.and", wf_binary(g, "prim.ge", x, lo), wf_binary(g, "prim.le", x, hi));
    WfVal hit =
        wf_binary(g, "prim.eq", wf_unsqueeze(g, place, 1), wf_cast(g, wf_iota(g, WF_I64, 2, both, 1), t));
    hit = wf_binary(g, "prim.and", hit, wf_unsqueeze(g, inside, 1));
    out[0] = wf_sum(g, wf_cast(g, hit, t), 1, false);
    return 1;
}

static const WfOp ops[] = {
    ROW("cummax(Tensor self, int dim) -> (Tensor values, Tensor indices)", cummax),
    ROW("cummin(Tensor self, int dim) -> (Tensor values, Tensor indices)", cummin),
    ROW("logcumsumexp(Tensor self, int dim) -> Tensor", logcumsumexp),
    ROW("diff(Tensor self, int n=1, int dim=-1, Tensor? prepend=None, Tensor? append=None) -> Tensor", diff),
    ROW("histc(Tensor self, int bins=100, Scalar min=0, Scalar max=0) -> Tensor", histc),
    {0}};

void wf_ops_aten_scan(void)
{
    wf_register(ops);
}
