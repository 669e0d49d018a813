/* ATen's reductions, running reductions and sorting. */
#include "ops/ops_private.h"

#include <math.h>
#include <string.h>

#define DECOMPOSE(name) static int name(WfGraph *g, const WfNode *n, WfVal *out)
#define DONE(v) do { out[0] = (v); return 1; } while (0)

static WfVal self_as(WfGraph *g, const WfNode *n, bool widen)
{
    WfVal x = wf_tensor(n, 0);
    const WfArg *a = wf_arg(n, "dtype");
    WfDtype t = wf_dtype_of(g, x);
    if (a && a->kind == WF_ARG_DTYPE)
        return wf_cast(g, x, a->dtype);
    return widen && !wf_dtype_is_float(t) ? wf_cast(g, x, WF_I64) : x; /* sums of integers are int64 */
}

static bool keep_arg(const WfNode *n)
{
    const WfArg *a = wf_arg(n, "keepdim");
    return a && a->kind == WF_ARG_BOOL && a->b;
}

static uint32_t mask(WfGraph *g, const WfNode *n, int arg)
{
    int rank = wf_rank_of(g, wf_tensor(n, 0));
    return arg < 0 ? WF_ALL_DIMS(rank) : wf_dims_mask(g, n, arg, rank);
}

DECOMPOSE(sum_all_op) { DONE(wf_sum(g, self_as(g, n, true), mask(g, n, -1), false)); }
DECOMPOSE(sum_op) { DONE(wf_sum(g, self_as(g, n, true), mask(g, n, 1), keep_arg(n))); }
DECOMPOSE(mean_all_op) { DONE(wf_mean(g, self_as(g, n, false), mask(g, n, -1), false)); }
DECOMPOSE(mean_op) { DONE(wf_mean(g, self_as(g, n, false), mask(g, n, 1), keep_arg(n))); }
DECOMPOSE(prod_all_op) { DONE(wf_reduce(g, "prim.prod", self_as(g, n, true), mask(g, n, -1), false)); }
DECOMPOSE(prod_op) { DONE(wf_reduce(g, "prim.prod", self_as(g, n, true), mask(g, n, 1), keep_arg(n))); }
DECOMPOSE(amax_op) { DONE(wf_reduce(g, "prim.amax", wf_tensor(n, 0), mask(g, n, 1), keep_arg(n))); }
DECOMPOSE(amin_op) { DONE(wf_reduce(g, "prim.amin", wf_tensor(n, 0), mask(g, n, 1), keep_arg(n))); }
DECOMPOSE(max_all_op) { DONE(wf_reduce(g, "prim.amax", wf_tensor(n, 0), mask(g, n, -1), false)); }
DECOMPOSE(min_all_op) { DONE(wf_reduce(g, "prim.amin", wf_tensor(n, 0), mask(g, n, -1), false)); }

/* Both extremes; PyTorch divides the gradient of either among equals. */
DECOMPOSE(aminmax_op)
{
    WfVal x = wf_tensor(n, 0);
    uint32_t dims = mask(g, n, wf_has(n, 1) ? 1 : -1);
    out[0] = wf_reduce(g, "prim.amin", x, dims, keep_arg(n));
    out[1] = wf_reduce(g, "prim.amax", x, dims, keep_arg(n));
    return 2;
}
/* The elements that are no NaN, and with `count` how many. */
static WfVal sum_of_numbers(WfGraph *g, const WfNode *n, WfVal *count)
{
    WfVal x = self_as(g, n, true);
    if (wf_dtype_is_float(wf_dtype_of(g, x)))
        x = wf_where(g, wf_unary(g, "prim.isnan", x), wf_like(g, x, 0), x);
    if (count) {
        WfVal number = wf_unary(g, "prim.not", wf_unary(g, "prim.isnan", self_as(g, n, true)));
        *count = wf_sum(g, wf_cast(g, number, wf_dtype_of(g, x)), mask(g, n, 1), keep_arg(n));
    }
    return wf_sum(g, x, mask(g, n, 1), keep_arg(n));
}
DECOMPOSE(nansum_op) { DONE(sum_of_numbers(g, n, NULL)); }
DECOMPOSE(nanmean_op)
{
    WfVal count, sum = sum_of_numbers(g, n, &count);
    DONE(wf_div(g, sum, count));
}

static WfVal truth(WfGraph *g, WfVal x)
{
    return wf_dtype_of(g, x) == WF_BOOL ? x : wf_binary(g, "prim.ne", x, wf_like(g, x, 0));
}
static int logical(WfGraph *g, const WfNode *n, WfVal *out, const char *prim, int arg)
{
    WfVal x = wf_tensor(n, 0);
    bool byte = wf_dtype_of(g, x) == WF_U8;
    WfVal r = wf_reduce(g, prim, truth(g, x), mask(g, n, arg), arg >= 0 && keep_arg(n));
    DONE(byte ? wf_cast(g, r, WF_U8) : r);
}
DECOMPOSE(any_all_op) { return logical(g, n, out, "prim.amax", -1); }
DECOMPOSE(any_op) { return logical(g, n, out, "prim.amax", 1); }
DECOMPOSE(all_all_op) { return logical(g, n, out, "prim.amin", -1); }
DECOMPOSE(all_op) { return logical(g, n, out, "prim.amin", 1); }

/* ---- positions ---- */

static int position(WfGraph *g, const WfNode *n, WfVal *out, const char *prim)
{
    WfVal x = wf_tensor(n, 0);
    int rank = wf_rank_of(g, x);
    if (!wf_has(n, 1)) { /* over all elements, flattened */
        WfDim count = wf_numel(g, x);
        WfVal r = wf_reduce(g, prim, wf_reshape(g, x, 1, &count), 1, false);
        WfDim ones[WF_MAX_RANK] = {1, 1, 1, 1, 1, 1, 1, 1};
        DONE(keep_arg(n) ? wf_reshape(g, r, rank, ones) : r);
    }
    if (!rank)
        DONE(wf_scalar(g, WF_I64, 0));
    int d = wf_dim_index(g, n, wf_int(n, 1), rank);
    DONE(wf_reduce(g, prim, x, 1u << d, keep_arg(n)));
}
DECOMPOSE(argmax_op) { return position(g, n, out, "prim.argmax"); }
DECOMPOSE(argmin_op) { return position(g, n, out, "prim.argmin"); }

/* max.dim: the value at the first extremum; its gradient goes there alone, so it is read by gather. */
static int extremum_dim(WfGraph *g, const WfNode *n, WfVal *out, const char *prim)
{
    WfVal x = wf_tensor(n, 0);
    int rank = wf_rank_of(g, x);
    if (!rank) {
        out[0] = x;
        out[1] = wf_scalar(g, WF_I64, 0);
        return 2;
    }
    int d = wf_dim_index(g, n, wf_int(n, 1), rank);
    WfVal i = wf_reduce(g, prim, x, 1u << d, true), v = wf_gather(g, x, d, i);
    bool keep = keep_arg(n);
    out[0] = keep ? v : wf_squeeze(g, v, d);
    out[1] = keep ? i : wf_squeeze(g, i, d);
    return 2;
}
DECOMPOSE(max_dim_op) { return extremum_dim(g, n, out, "prim.argmax"); }
DECOMPOSE(min_dim_op) { return extremum_dim(g, n, out, "prim.argmin"); }

/* ---- moments ---- */

/* Sum of squared deviations over count - correction. */
static WfVal variance(WfGraph *g, WfVal x, uint32_t dims, double correction, bool keep, WfVal *mean)
{
    WfVal m = wf_mean(g, x, dims, true), d = wf_sub(g, x, m);
    WfVal s = wf_sum(g, wf_mul(g, d, d), dims, keep);
    WfVal count = wf_dim_scalar(g, wf_dtype_of(g, x), wf_count(g, x, dims));
    WfVal rest = wf_binary(g, "prim.max", wf_adds(g, count, -correction), wf_like(g, count, 0));
    if (mean)
        *mean = keep ? m : wf_reshape(g, m, wf_rank_of(g, s), wf_value(g, s)->shape);
    return wf_div(g, s, rest);
}
static double correction(WfGraph *g, const WfNode *n)
{
    const WfArg *a = wf_arg(n, "correction"), *u = wf_arg(n, "unbiased");
    if (u)
        return u->kind == WF_ARG_BOOL && !u->b ? 0 : 1;
    if (!a || a->kind == WF_ARG_NONE)
        return 1;
    (void)g;
    return a->kind == WF_ARG_FLOAT ? a->f : (double)a->i;
}
static int dims_arg(const WfNode *n) { return n->schema->n_params > 1 && !strcmp(n->schema->params[1].name, "dim") ? 1 : -1; }
static WfVal var_of(WfGraph *g, const WfNode *n, WfVal *mean)
{
    return variance(g, wf_tensor(n, 0), mask(g, n, dims_arg(n)), correction(g, n), keep_arg(n), mean);
}
DECOMPOSE(var_op) { DONE(var_of(g, n, NULL)); }
DECOMPOSE(std_op) { DONE(wf_unary(g, "prim.sqrt", var_of(g, n, NULL))); }
DECOMPOSE(var_mean_op) { out[0] = var_of(g, n, &out[1]); return 2; }
DECOMPOSE(std_mean_op) { out[0] = wf_unary(g, "prim.sqrt", var_of(g, n, &out[1])); return 2; }

DECOMPOSE(logsumexp_op) /* m + log sum exp(x - m), m the maximum where finite */
{
    WfVal x = wf_operand(g, n, 0, wf_promote_float(g, n, (const int[]){0}, 1));
    uint32_t dims = mask(g, n, 1);
    WfVal m = wf_detach(g, wf_reduce(g, "prim.amax", x, dims, true));
    WfVal inf = wf_binary(g, "prim.eq", wf_unary(g, "prim.abs", m), wf_like(g, m, INFINITY));
    m = wf_where(g, inf, wf_like(g, m, 0), m);
    WfVal s = wf_unary(g, "prim.log", wf_sum(g, wf_unary(g, "prim.exp", wf_sub(g, x, m)), dims, keep_arg(n)));
    DONE(wf_add(g, s, keep_arg(n) ? m : wf_reshape(g, m, wf_rank_of(g, s), wf_value(g, s)->shape)));
}

/* ---- running reductions, sorting ---- */

static int running(WfGraph *g, const WfNode *n, WfVal *out, const char *prim)
{
    WfVal x = self_as(g, n, true);
    int rank = wf_rank_of(g, x);
    WfDtype t = wf_dtype_of(g, x); /* the kernels know three types; narrower ones are computed in those */
    WfVal v = wf_dtype_is_float(t) ? wf_wide(g, x) : wf_cast(g, x, WF_I64);
    DONE(rank ? wf_cast(g, wf_emit(g, prim, "vd", v, wf_dim_index(g, n, wf_int(n, 1), rank)), t) : x);
}
DECOMPOSE(cumsum_op) { return running(g, n, out, "prim.cumsum"); }
DECOMPOSE(cumprod_op) { return running(g, n, out, "prim.cumprod"); }

/* Sorts along any dimension: the primitive wants the last one. */
static void sorted(WfGraph *g, WfVal x, int d, bool descending, WfVal *v)
{
    int last = wf_rank_of(g, x) - 1;
    wf_emit_multi(g, v, "prim.sort", "vb", wf_transpose(g, x, d, last), (int)descending);
    v[0] = wf_transpose(g, v[0], d, last);
    v[1] = wf_transpose(g, v[1], d, last);
}
static int sort_any(WfGraph *g, const WfNode *n, WfVal *out, int dim_arg, int desc_arg)
{
    WfVal x = wf_tensor(n, 0);
    int rank = wf_rank_of(g, x);
    if (!rank) {
        out[0] = x;
        out[1] = wf_scalar(g, WF_I64, 0);
        return 2;
    }
    sorted(g, x, wf_dim_index(g, n, wf_int(n, dim_arg), rank), wf_bool(n, desc_arg), out);
    return 2;
}
DECOMPOSE(sort_op) { return sort_any(g, n, out, 1, 2); }
DECOMPOSE(sort_stable_op) { return sort_any(g, n, out, 2, 3); }
DECOMPOSE(argsort_op)
{
    WfVal v[2];
    sort_any(g, n, v, 1, 2);
    DONE(v[1]);
}
DECOMPOSE(argsort_stable_op)
{
    WfVal v[2];
    sort_any(g, n, v, 2, 3);
    DONE(v[1]);
}
DECOMPOSE(topk_op)
{
    WfVal x = wf_tensor(n, 0);
    int rank = wf_rank_of(g, x);
    if (!rank) {
        out[0] = x;
        out[1] = wf_scalar(g, WF_I64, 0);
        return 2;
    }
    int d = wf_dim_index(g, n, wf_int(n, 2), rank);
    sorted(g, x, d, wf_bool(n, 3), out);
    for (int k = 0; k < 2; k++)
        out[k] = wf_slice(g, out[k], d, 0, wf_int(n, 1), 1);
    return 2;
}
DECOMPOSE(median_op) /* the lower of the two middle values; NaN if any is */
{
    WfVal v[2], x = wf_tensor(n, 0);
    WfDim count = wf_numel(g, x);
    WfDim mid = wf_efloordiv(g->exprs, wf_esub(g->exprs, count, 1), 2);
    sorted(g, wf_reshape(g, x, 1, &count), 0, false, v);
    WfVal m = wf_squeeze(g, wf_slice(g, v[0], 0, mid, wf_eadd(g->exprs, mid, 1), 1), 0);
    WfVal last = wf_squeeze(g, wf_slice(g, v[0], 0, wf_esub(g->exprs, count, 1), count, 1), 0);
    if (!wf_dtype_is_float(wf_dtype_of(g, x)))
        DONE(m);
    DONE(wf_where(g, wf_unary(g, "prim.isnan", last), last, m));
}
/* Element `at` of dimension d of v, the dimension kept or not. */
static WfVal element(WfGraph *g, WfVal v, int d, WfDim at, bool keep)
{
    v = wf_slice(g, v, d, at, wf_eadd(g->exprs, at, 1), 1);
    return keep ? v : wf_squeeze(g, v, d);
}
/* The element that sorting brings to place `at`, and where it was; NaN comes last, and first in a median. */
static int ranked(WfGraph *g, const WfNode *n, WfVal *out, int dim_arg, WfDim at, bool nan_first)
{
    WfVal v[2], x = wf_tensor(n, 0);
    int d = wf_dim_index(g, n, wf_int(n, dim_arg), wf_rank_of(g, x));
    WfDim last = wf_esub(g->exprs, wf_size_of(g, x, d), 1);
    bool keep = keep_arg(n);
    sorted(g, x, d, false, v);
    for (int k = 0; k < 2; k++)
        out[k] = element(g, v[k], d, at, keep);
    if (!nan_first || !wf_dtype_is_float(wf_dtype_of(g, x)))
        return 2;
    WfVal nan = wf_unary(g, "prim.isnan", element(g, v[0], d, last, keep));
    for (int k = 0; k < 2; k++)
        out[k] = wf_where(g, nan, element(g, v[k], d, last, keep), out[k]);
    return 2;
}
static int one_value(WfGraph *g, const WfNode *n, WfVal *out) /* of a tensor without dimensions */
{
    out[0] = wf_tensor(n, 0);
    out[1] = wf_scalar(g, WF_I64, 0);
    return 2;
}
DECOMPOSE(median_dim_op) /* the lower of two middle values */
{
    WfVal x = wf_tensor(n, 0);
    if (!wf_rank_of(g, x))
        return one_value(g, n, out);
    WfDim size = wf_size_of(g, x, wf_dim_index(g, n, wf_int(n, 1), wf_rank_of(g, x)));
    return ranked(g, n, out, 1, wf_efloordiv(g->exprs, wf_esub(g->exprs, size, 1), 2), true);
}
DECOMPOSE(kthvalue_op)
{
    WfDim k = wf_int(n, 1);
    if (!wf_rank_of(g, wf_tensor(n, 0)))
        return one_value(g, n, out);
    return ranked(g, n, out, 2, wf_esub(g->exprs, k, 1), false);
}
/* Between the two elements around place q (size - 1); NaN if any is. */
DECOMPOSE(quantile_op)
{
    WfVal v[2], x = wf_tensor(n, 0);
    double q = wf_float(g, n, 1), low;
    const char *how = n->args[4].s;
    int64_t size;
    bool keep = wf_bool(n, 3), flat = !wf_has(n, 2);
    int rank = wf_rank_of(g, x);
    WfDim count = wf_numel(g, x), ones[WF_MAX_RANK] = {1, 1, 1, 1, 1, 1, 1, 1};
    flat |= !rank;
    if (flat)
        x = wf_reshape(g, x, 1, &count);
    int d = flat ? 0 : wf_dim_index(g, n, wf_int(n, 2), rank);
    if (!(q >= 0 && q <= 1))
        wf_fail_node(g, n, WF_E_SHAPES, "q is %g, expected 0 to 1", q);
    if (!wf_elit(g->exprs, wf_size_of(g, x, d), &size) || size < 1)
        wf_fail_node(g, n, WF_E_OP_FORM, "the size of the dimension must be static and not 0");
    double place = q * (double)(size - 1);
    if (wf_dtype_of(g, x) != WF_F64) /* PyTorch computes it in the input's dtype */
        place = (float)q * (float)(size - 1);
    if (!strcmp(how, "lower") || !strcmp(how, "higher") || !strcmp(how, "nearest"))
        place = *how == 'l' ? floor(place) : *how == 'h' ? ceil(place) : rint(place);
    low = floor(place);
    double part = !strcmp(how, "midpoint") && place > low ? 0.5 : place - low;
    sorted(g, x, d, false, v);
    bool kept = keep && !flat;
    WfVal y = element(g, v[0], d, (WfDim)low, kept), last = element(g, v[0], d, size - 1, kept);
    if (part > 0)
        y = wf_add(g, y, wf_muls(g, wf_sub(g, element(g, v[0], d, (WfDim)low + 1, kept), y), part));
    y = wf_where(g, wf_unary(g, "prim.isnan", last), last, y);
    DONE(keep && flat ? wf_reshape(g, y, rank, ones) : y);
}
/* The least of those that occur most often, at its last place. */
DECOMPOSE(mode_op)
{
    WfVal x = wf_tensor(n, 0);
    int rank = wf_rank_of(g, x);
    if (!rank)
        return one_value(g, n, out);
    int d = wf_dim_index(g, n, wf_int(n, 1), rank);
    if (rank == WF_MAX_RANK)
        wf_fail_node(g, n, WF_E_OP_FORM, "an operand of %d dimensions", rank);
    WfVal fixed = wf_detach(g, x), same = wf_binary(g, "prim.eq", wf_unsqueeze(g, fixed, d), wf_unsqueeze(g, fixed, d + 1));
    WfVal times = wf_sum(g, wf_cast(g, same, WF_I64), 1u << d, false);
    WfVal often = wf_binary(g, "prim.eq", times, wf_reduce(g, "prim.amax", times, 1u << d, true));
    WfVal most = wf_reduce(g, "prim.amax", fixed, 1u << d, true);
    WfVal least = wf_reduce(g, "prim.amin", wf_where(g, often, fixed, most), 1u << d, true);
    WfVal at = wf_where(g, wf_binary(g, "prim.eq", fixed, least), wf_iota(g, WF_I64, rank, wf_value(g, x)->shape, d),
                        wf_scalar(g, WF_I64, 0));
    WfVal i = wf_reduce(g, "prim.amax", at, 1u << d, true), v = wf_gather(g, x, d, i);
    out[0] = keep_arg(n) ? v : wf_squeeze(g, v, d);
    out[1] = keep_arg(n) ? i : wf_squeeze(g, i, d);
    return 2;
}
DECOMPOSE(nanmedian_dim_op) /* the lower of the two middle ones of those that are no NaN */
{
    WfVal v[2], x = wf_tensor(n, 0);
    if (!wf_rank_of(g, x))
        return one_value(g, n, out);
    if (!wf_dtype_is_float(wf_dtype_of(g, x)))
        return median_dim_op(g, n, out);
    int d = wf_dim_index(g, n, wf_int(n, 1), wf_rank_of(g, x));
    WfVal good = wf_unary(g, "prim.not", wf_unary(g, "prim.isnan", x));
    WfVal count = wf_adds(g, wf_sum(g, wf_cast(g, good, WF_I64), 1u << d, true), -1), zero = wf_scalar(g, WF_I64, 0);
    WfVal at = wf_div(g, wf_binary(g, "prim.max", count, wf_expand_like(g, zero, count)), wf_scalar(g, WF_I64, 2));
    sorted(g, x, d, false, v);
    for (int k = 0; k < 2; k++) {
        out[k] = wf_gather(g, v[k], d, at);
        out[k] = keep_arg(n) ? out[k] : wf_squeeze(g, out[k], d);
    }
    return 2;
}
DECOMPOSE(nanmedian_op)
{
    WfVal x = wf_tensor(n, 0), v[2];
    WfDim count = wf_numel(g, x);
    wf_emit_multi(g, v, "aten.nanmedian.dim", "vdb", wf_reshape(g, x, 1, &count), 0, 0);
    DONE(v[0]);
}
DECOMPOSE(msort_op)
{
    WfVal v[2];
    if (!wf_rank_of(g, wf_tensor(n, 0)))
        DONE(wf_tensor(n, 0));
    sorted(g, wf_tensor(n, 0), 0, false, v);
    DONE(v[0]);
}
DECOMPOSE(count_all_op) { DONE(wf_sum(g, wf_cast(g, truth(g, wf_tensor(n, 0)), WF_I64), mask(g, n, wf_has(n, 1) ? 1 : -1), false)); }
DECOMPOSE(count_nonzero_op) { DONE(wf_sum(g, wf_cast(g, truth(g, wf_tensor(n, 0)), WF_I64), mask(g, n, 1), false)); }
DECOMPOSE(trace_op)
{
    WfVal x = wf_tensor(n, 0);
    const WfValue *v = wf_value(g, x);
    WfVal hit = wf_binary(g, "prim.eq", wf_iota(g, WF_I64, 2, v->shape, 0), wf_iota(g, WF_I64, 2, v->shape, 1));
    x = self_as(g, n, true);
    DONE(wf_sum(g, wf_where(g, hit, x, wf_like(g, x, 0)), 3, false));
}

#define DTYPE "*, ScalarType? dtype=None) -> Tensor"
#define VALUES "(Tensor values, Tensor indices)"

static const WfOp ops[] = {
    ROW("sum(Tensor self, " DTYPE, sum_all_op), ROW("sum.dim_IntList(Tensor self, int[1]? dim, bool keepdim=False, " DTYPE, sum_op),
    ROW("mean(Tensor self, " DTYPE, mean_all_op), ROW("mean.dim(Tensor self, int[1]? dim, bool keepdim=False, " DTYPE, mean_op),
    ROW("prod(Tensor self, " DTYPE, prod_all_op), ROW("prod.dim_int(Tensor self, int dim, bool keepdim=False, " DTYPE, prod_op),
    ROW("amax(Tensor self, int[1] dim=[], bool keepdim=False) -> Tensor", amax_op),
    ROW("amin(Tensor self, int[1] dim=[], bool keepdim=False) -> Tensor", amin_op),
    ROW("aminmax(Tensor self, *, int? dim=None, bool keepdim=False) -> (Tensor min, Tensor max)", aminmax_op),
    ROW("nansum(Tensor self, int[1]? dim=None, bool keepdim=False, " DTYPE, nansum_op),
    ROW("nanmean(Tensor self, int[1]? dim=None, bool keepdim=False, " DTYPE, nanmean_op),
    ROW("max(Tensor self) -> Tensor", max_all_op), ROW("min(Tensor self) -> Tensor", min_all_op),
    ROW("max.dim(Tensor self, int dim, bool keepdim=False) -> " VALUES, max_dim_op),
    ROW("min.dim(Tensor self, int dim, bool keepdim=False) -> " VALUES, min_dim_op),
    ROW("any(Tensor self) -> Tensor", any_all_op), ROW("any.dim(Tensor self, int dim, bool keepdim=False) -> Tensor", any_op),
    ROW("any.dims(Tensor self, int[]? dim=None, bool keepdim=False) -> Tensor", any_op), ROW("all(Tensor self) -> Tensor", all_all_op),
    ROW("all.dim(Tensor self, int dim, bool keepdim=False) -> Tensor", all_op),
    ROW("all.dims(Tensor self, int[]? dim=None, bool keepdim=False) -> Tensor", all_op),
    ROW("_is_all_true(Tensor self) -> Tensor", all_all_op), ROW("_is_any_true(Tensor self) -> Tensor", any_all_op),
    ROW("argmax(Tensor self, int? dim=None, bool keepdim=False) -> Tensor", argmax_op),
    ROW("argmin(Tensor self, int? dim=None, bool keepdim=False) -> Tensor", argmin_op),
    ROW("var(Tensor self, bool unbiased=True) -> Tensor", var_op), ROW("std(Tensor self, bool unbiased=True) -> Tensor", std_op),
    ROW("var.dim(Tensor self, int[1]? dim, bool unbiased=True, bool keepdim=False) -> Tensor", var_op),
    ROW("std.dim(Tensor self, int[1]? dim, bool unbiased=True, bool keepdim=False) -> Tensor", std_op),
    ROW("var.correction(Tensor self, int[1]? dim=None, *, Scalar? correction=None, bool keepdim=False) -> Tensor", var_op),
    ROW("std.correction(Tensor self, int[1]? dim=None, *, Scalar? correction=None, bool keepdim=False) -> Tensor", std_op),
    ROW("var_mean.correction(Tensor self, int[1]? dim=None, *, Scalar? correction=None, bool keepdim=False) -> (Tensor, Tensor)", var_mean_op),
    ROW("std_mean.correction(Tensor self, int[1]? dim=None, *, Scalar? correction=None, bool keepdim=False) -> (Tensor, Tensor)", std_mean_op),
    ROW("var_mean(Tensor self, bool unbiased=True) -> (Tensor, Tensor)", var_mean_op),
    ROW("std_mean(Tensor self, bool unbiased=True) -> (Tensor, Tensor)", std_mean_op),
    ROW("var_mean.dim(Tensor self, int[1]? dim, bool unbiased=True, bool keepdim=False) -> (Tensor, Tensor)", var_mean_op),
    ROW("std_mean.dim(Tensor self, int[1]? dim, bool unbiased=True, bool keepdim=False) -> (Tensor, Tensor)", std_mean_op),
    ROW("logsumexp(Tensor self, int[1] dim, bool keepdim=False) -> Tensor", logsumexp_op),
    ROW("cumsum(Tensor self, int dim, " DTYPE, cumsum_op), ROW("cumprod(Tensor self, int dim, " DTYPE, cumprod_op),
    ROW("sort(Tensor self, int dim=-1, bool descending=False) -> " VALUES, sort_op),
    ROW("sort.stable(Tensor self, *, bool? stable, int dim=-1, bool descending=False) -> " VALUES, sort_stable_op),
    ROW("argsort(Tensor self, int dim=-1, bool descending=False) -> Tensor", argsort_op),
    ROW("argsort.stable(Tensor self, *, bool stable, int dim=-1, bool descending=False) -> Tensor", argsort_stable_op),
    ROW("topk(Tensor self, SymInt k, int dim=-1, bool largest=True, bool sorted=True) -> " VALUES, topk_op),
    ROW("median.dim(Tensor self, int dim, bool keepdim=False) -> " VALUES, median_dim_op),
    ROW("kthvalue(Tensor self, SymInt k, int dim=-1, bool keepdim=False) -> " VALUES, kthvalue_op),
    ROW("quantile.scalar(Tensor self, float q, int? dim=None, bool keepdim=False, *, str interpolation='linear') -> Tensor",
        quantile_op),
    ROW("median(Tensor self) -> Tensor", median_op), ROW("count_nonzero.dim_IntList(Tensor self, int[] dim) -> Tensor", count_nonzero_op),
    ROW("count_nonzero(Tensor self, int? dim=None) -> Tensor", count_all_op), ROW("msort(Tensor self) -> Tensor", msort_op),
    ROW("mode(Tensor self, int dim=-1, bool keepdim=False) -> " VALUES, mode_op),
    ROW("nanmedian(Tensor self) -> Tensor", nanmedian_op),
    ROW("nanmedian.dim(Tensor self, int dim, bool keepdim=False) -> " VALUES, nanmedian_dim_op),
    ROW("trace(Tensor self) -> Tensor", trace_op),
    {0}};

void wf_ops_aten_reduce(void) { wf_register(ops); }
