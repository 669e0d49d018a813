/* Normalisation. All of it goes through one kept composite, nn.normalize: mean and variance over some
 * dimensions, (x - mean) / sqrt(var + eps), then a weight and a bias that broadcast. Its VJP needs x, mean
 * and variance only: with g = dy w and h the normalised x, dx = (g - mean(g) - h mean(g h)) / sqrt(var +
 * eps). Statistics of 16-bit values are taken in f32. Mean and variance as results carry no gradient, as in
 * PyTorch. Vector norms, whose derivative at zero needs care, are here too. */
#include "ops/ops_private.h"

#include <math.h>
#include <string.h>

#define DECOMPOSE WfGraph *g, const WfNode *n, WfVal *out
#define T(i)      wf_tensor(n, i)
#define E(g)      ((g)->exprs)

WfVal wf_wide(WfGraph *g, WfVal x)
{
    WfDtype t = wf_dtype_of(g, x);
    return t == WF_BF16 || t == WF_F16 ? wf_cast(g, x, WF_F32) : x;
}

/* ---- nn.normalize(x, weight?, bias?, dims, eps) -> y, mean, var; the statistics keep the dimensions with
 * size 1 ---- */

static uint32_t mask(const WfNode *n)
{
    uint32_t m = 0;
    for (int i = 0; i < n->args[3].n; i++)
        m |= 1u << n->args[3].ints[i];
    return m;
}

static void normalize_infer(WfGraph *g, const WfNode *n)
{
    const WfValue *x = wf_value(g, T(0));
    WfDim shape[WF_MAX_RANK];
    WfDtype t = x->dtype == WF_BF16 || x->dtype == WF_F16 ? WF_F32 : x->dtype;
    uint32_t m = mask(n);
    for (int i = 0; i < x->rank; i++)
        shape[i] = m >> i & 1 ? 1 : x->shape[i];
    wf_set_result(g, n, 0, x->dtype, x->rank, x->shape);
    wf_set_result(g, n, 1, t, x->rank, shape);
    wf_set_result(g, n, 2, t, x->rank, shape);
}

static WfVal inverse_deviation(WfGraph *g, WfVal var, double eps)
{
    return wf_unary(g, "prim.rsqrt", wf_adds(g, var, eps));
}

static int normalize(DECOMPOSE)
{
    WfVal x = wf_wide(g, T(0));
    WfDtype t = wf_dtype_of(g, x);
    uint32_t m = mask(n);
    WfVal mean = wf_mean(g, x, m, true), centred = wf_sub(g, x, mean);
    WfVal var = wf_mean(g, wf_mul(g, centred, centred), m, true);
    WfVal y = wf_mul(g, centred, inverse_deviation(g, var, wf_float(g, n, 4)));
    if (T(1))
        y = wf_mul(g, y, wf_cast(g, T(1), t));
    if (T(2))
        y = wf_add(g, y, wf_cast(g, T(2), t));
    out[0] = wf_cast(g, y, wf_dtype_of(g, T(0)));
    out[1] = wf_detach(g, mean);
    out[2] = wf_detach(g, var);
    return 3;
}

static void normalize_vjp(WfGraph *g, const WfNode *n, const WfVal *dys, WfVal *dx)
{
    if (!dys[0])
        return;
    WfVal x = wf_wide(g, T(0)), dy = wf_wide(g, dys[0]), w = T(1), b = T(2), mean = n->out + 1;
    WfDtype t = wf_dtype_of(g, x);
    uint32_t m = mask(n);
    WfVal r = inverse_deviation(g, n->out + 2, wf_float(g, n, 4)), h = wf_mul(g, wf_sub(g, x, mean), r);
    int slot = 1;
    if (wf_wants(g, 0)) {
        WfVal d = w ? wf_mul(g, dy, wf_cast(g, w, t)) : dy;
        WfVal slope = wf_mul(g, h, wf_mean(g, wf_mul(g, d, h), m, true));
        WfVal v = wf_mul(g, wf_sub(g, wf_sub(g, d, wf_mean(g, d, m, true)), slope), r);
        dx[0] = wf_cast(g, v, wf_dtype_of(g, T(0)));
    }
    if (w) {
        const WfValue *v = wf_value(g, w);
        if (wf_wants(g, slot))
            dx[slot] = wf_cast(g, wf_sum_to(g, wf_mul(g, dy, h), v->rank, v->shape), wf_dtype_of(g, w));
        slot++;
    }
    if (b && wf_wants(g, slot)) {
        const WfValue *v = wf_value(g, b);
        dx[slot] = wf_cast(g, wf_sum_to(g, dy, v->rank, v->shape), wf_dtype_of(g, b));
    }
}

/* y, mean, var of nn.normalize over the dimensions of the mask. */
void wf_normalize(WfGraph *g, WfVal x, WfVal w, WfVal b, uint32_t dims, double eps, WfVal *out)
{
    WfDim d[WF_MAX_RANK];
    int n = 0;
    for (int i = 0; i < wf_rank_of(g, x); i++)
        if (dims >> i & 1)
            d[n++] = i;
    WfVal r[WF_MAX_RESULTS];
    wf_emit_multi(g, r, "nn.normalize", "vvvIf", x, w, b, d, n, eps);
    memcpy(out, r, 3 * sizeof *out);
}

/* ---- layer, group and root-mean-square norm ---- */

static uint32_t last_dims(WfGraph *g, const WfNode *n, WfVal x, const WfArg *shape)
{
    int r = wf_rank_of(g, x), k = shape->n;
    bool fits = k <= r;
    for (int i = 0; fits && i < k; i++)
        fits = wf_dims_equal(g, shape->ints[i], wf_size_of(g, x, r - k + i));
    if (!fits)
        wf_fail_node(g, n, WF_E_SHAPES, "the normalised shape does not end %s", wf_shape_text(g, x));
    return WF_ALL_DIMS(r) & ~WF_ALL_DIMS(r - k);
}

static int native_layer_norm(DECOMPOSE)
{
    double eps = wf_float(g, n, 4);
    WfVal v[3];
    wf_normalize(g, T(0), T(2), T(3), last_dims(g, n, T(0), &n->args[1]), eps, v);
    out[0] = v[0];
    out[1] = v[1];
    out[2] = wf_detach(g, inverse_deviation(g, v[2], eps));
    return 3;
}

static int layer_norm(DECOMPOSE)
{
    WfVal v[3];
    wf_normalize(g, T(0), T(2), T(3), last_dims(g, n, T(0), &n->args[1]), wf_float(g, n, 4), v);
    out[0] = v[0];
    return 1;
}

/* Channels in groups: x as [N, groups, C / groups, rest]. */
static void grouped(WfGraph *g, const WfNode *n, WfVal w, WfVal b, int64_t groups, double eps, WfVal *v)
{
    WfExprs *e = E(g);
    const WfValue *x = wf_value(g, T(0));
    WfDim shape[WF_MAX_RANK], rest = 1;
    int rank = x->rank;
    memcpy(shape, x->shape, sizeof shape);
    for (int i = 2; i < rank; i++)
        rest = wf_emul(e, rest, shape[i]);
    WfDim each = rank > 1 ? wf_efloordiv(e, shape[1], groups) : 0;
    if (rank < 2 || groups < 1 || wf_emul(e, each, groups) != shape[1])
        wf_fail_node(g, n, WF_E_SHAPES, "the channels of %s do not divide into %lld groups",
                     wf_shape_text(g, T(0)), (long long)groups);
    WfDim parts[4] = {shape[0], groups, each, rest}, param[4] = {1, groups, each, 1};
    wf_normalize(g, wf_reshape(g, T(0), 4, parts), w ? wf_reshape(g, w, 4, param) : 0,
                 b ? wf_reshape(g, b, 4, param) : 0, 12, eps, v);
    v[0] = wf_reshape(g, v[0], rank, shape);
    v[1] = wf_reshape(g, v[1], 2, parts);
    v[2] = wf_reshape(g, v[2], 2, parts);
}

static int group_norm(DECOMPOSE)
{
    WfVal v[3];
    grouped(g, n, T(2), T(3), wf_lit(g, n, 1), wf_float(g, n, 4), v);
    out[0] = v[0];
    return 1;
}

/* Here, unlike in the other norms, PyTorch lets gradients into mean and deviation: they are taken anew from
 * x. At the primitive level they are the same nodes as in nn.normalize. */
static int native_group_norm(DECOMPOSE)
{
    double eps = wf_float(g, n, 7);
    int64_t groups = wf_lit(g, n, 6);
    grouped(g, n, T(1), T(2), groups, eps, out);
    WfExprs *e = E(g);
    const WfValue *x = wf_value(g, T(0));
    WfDim rest = 1, each = wf_efloordiv(e, x->shape[1], groups);
    for (int i = 2; i < x->rank; i++)
        rest = wf_emul(e, rest, x->shape[i]);
    WfDim parts[4] = {x->shape[0], groups, each, rest};
    WfVal v = wf_wide(g, wf_reshape(g, T(0), 4, parts)), mean = wf_mean(g, v, 12, true),
          c = wf_sub(g, v, mean);
    WfVal var = wf_mean(g, wf_mul(g, c, c), 12, true);
    out[1] = wf_reshape(g, mean, 2, parts);
    out[2] = wf_reshape(g, inverse_deviation(g, var, eps), 2, parts);
    return 3;
}

static int fused_rms_norm(DECOMPOSE)
{
    WfVal x = wf_wide(g, T(0)), w = T(2);
    WfDtype t = wf_dtype_of(g, x);
    double eps = wf_has(n, 3) ? wf_float(g, n, 3) : t == WF_F64 ? 0x1p-52 : 0x1p-23;
    WfVal ms = wf_mean(g, wf_mul(g, x, x), last_dims(g, n, x, &n->args[1]), true);
    WfVal r = inverse_deviation(g, ms, eps), y = wf_mul(g, x, r);
    if (w)
        y = wf_mul(g, y, wf_cast(g, w, t));
    out[0] = wf_cast(g, y, wf_dtype_of(g, T(0)));
    out[1] = r;
    return 2;
}

static int rms_norm(DECOMPOSE)
{
    fused_rms_norm(g, n, out);
    return 1;
}

/* ---- vector norms ---- */

static WfDtype norm_dtype(WfGraph *g, const WfNode *n)
{
    WfDtype t = n->args[4].kind == WF_ARG_DTYPE ? n->args[4].dtype : wf_dtype_of(g, T(0));
    return wf_dtype_is_float(t) ? t : WF_F32;
}

static void vector_norm_infer(WfGraph *g, const WfNode *n)
{
    const WfValue *x = wf_value(g, T(0));
    uint32_t m = wf_dims_mask(g, n, 2, x->rank);
    WfDim shape[WF_MAX_RANK];
    int r = 0;
    for (int i = 0; i < x->rank; i++)
        if (!(m >> i & 1))
            shape[r++] = x->shape[i];
        else if (wf_bool(n, 3))
            shape[r++] = 1;
    wf_set_result(g, n, 0, norm_dtype(g, n), r, shape);
}

static WfVal power(WfGraph *g, WfVal x, double p)
{
    return p == 2     ? wf_mul(g, x, x)
           : p == 1   ? x
           : p == 0.5 ? wf_unary(g, "prim.sqrt", x)
                      : wf_binary(g, "prim.pow", x, wf_like(g, x, p));
}

static int vector_norm(DECOMPOSE)
{
    WfVal x = wf_cast(g, T(0), norm_dtype(g, n)), a = wf_unary(g, "prim.abs", x), zero = wf_like(g, x, 0), y;
    double p = wf_float(g, n, 1);
    uint32_t m = wf_dims_mask(g, n, 2, wf_rank_of(g, x));
    bool keep = wf_bool(n, 3);
    if (isinf(p))
        y = wf_reduce(g, p > 0 ? "prim.amax" : "prim.amin", a, m, keep);
    else if (p == 0)
        y = wf_sum(g, wf_cast(g, wf_binary(g, "prim.ne", x, zero), wf_dtype_of(g, x)), m, keep);
    else
        y = power(g, wf_sum(g, p == 2 ? wf_mul(g, x, x) : power(g, a, p), m, keep), 1 / p);
    out[0] = y;
    return 1;
}

/* ATen/native's norm_backward: where the norm is zero the gradient is zero; the maximum's is shared by its
 * ties. */
static void vector_norm_vjp(WfGraph *g, const WfNode *n, const WfVal *dys, WfVal *dx)
{
    WfDtype t = norm_dtype(g, n);
    WfVal x = wf_cast(g, T(0), t), zero = wf_like(g, x, 0), d, y = n->out, dy = dys[0];
    double p = wf_float(g, n, 1);
    uint32_t m = wf_dims_mask(g, n, 2, wf_rank_of(g, x));
    if (!wf_bool(n, 3)) {
        y = wf_keep_dims(g, y, x, m);
        dy = wf_keep_dims(g, dy, x, m);
    }
    if (p == 0)
        return;
    WfVal flat = wf_binary(g, "prim.eq", y, zero), sign = wf_unary(g, "prim.sign", x),
          a = wf_unary(g, "prim.abs", x);
    if (isinf(p)) {
        WfVal hit = wf_cast(g, wf_binary(g, "prim.eq", a, y), t);
        d = wf_mul(g, wf_mul(g, sign, hit), wf_div(g, dy, wf_sum(g, hit, m, true)));
    } else if (p == 1) {
        d = wf_mul(g, sign, dy);
    } else if (p == 2) {
        d = wf_mul(g, x, wf_where(g, flat, zero, wf_div(g, dy, y)));
    } else {
        WfVal part = wf_where(g, wf_binary(g, "prim.eq", x, zero), zero, power(g, a, p - 1));
        WfVal scale = wf_where(g, flat, zero, wf_mul(g, dy, power(g, y, 1 - p)));
        d = wf_mul(g, wf_mul(g, sign, part), scale);
    }
    dx[0] = wf_cast(g, d, wf_dtype_of(g, T(0)));
}

static int norm(DECOMPOSE)
{
    double p = wf_has(n, 1) ? wf_float(g, n, 1) : 2;
    bool dims = n->schema->n_params > 3;
    out[0] = wf_emit(g, "aten.linalg_vector_norm", dims ? "vfab" : "vf", T(0), p, &n->args[2],
                     dims ? (int)wf_bool(n, 3) : 0);
    return 1;
}

/* Norm over every dimension but one (-1: over all), kept as size 1. */
static WfVal norm_except(WfGraph *g, WfVal v, int64_t dim, double p)
{
    WfDim dims[WF_MAX_RANK];
    int r = wf_rank_of(g, v), k = 0;
    for (int i = 0; i < r; i++)
        if (i != dim)
            dims[k++] = i;
    if (!k)
        return wf_unary(g, "prim.abs", v);
    return wf_emit(g, "aten.linalg_vector_norm", "vfIb", v, p, dims, k, 1);
}

static int weight_norm(DECOMPOSE)
{
    out[1] = norm_except(g, T(0), wf_lit(g, n, 2), 2);
    out[0] = wf_mul(g, T(0), wf_div(g, T(1), out[1]));
    return n->schema->n_ret;
}

/* Slices along dim whose p-norm is above the limit are scaled down to it. */
static int renorm(DECOMPOSE)
{
    double limit = wf_float(g, n, 3);
    WfVal x = T(0);
    WfVal norm = norm_except(g, x, wf_dim_index(g, n, wf_int(n, 2), wf_rank_of(g, x)), wf_float(g, n, 1));
    WfVal scale = wf_div(g, wf_like(g, x, limit), wf_adds(g, norm, 1e-7));
    WfVal high = wf_binary(g, "prim.gt", norm, wf_like(g, x, limit));
    out[0] = wf_mul(g, x, wf_where(g, high, scale, wf_like(g, x, 1)));
    return 1;
}

#define NAME(text, fn)                                                  \
    {                                                                   \
        .schema = "aten." text, .family = WF_COMPOSITE, .decompose = fn \
    }
#define PARAMS "Tensor? weight=None, Tensor? bias=None, float eps=1.0000000000000001e-05"

static const WfOp ops[] = {
    {.schema = "nn.normalize(Tensor x, Tensor? weight, Tensor? bias, int[] dims, float eps) -> (Tensor y, "
               "Tensor mean, "
               "Tensor var)",
     .family = WF_COMPOSITE,
     .infer = normalize_infer,
     .decompose = normalize,
     .vjp = normalize_vjp},
    NAME("layer_norm(Tensor input, SymInt[] normalized_shape, " PARAMS ", bool cudnn_enable=True) -> Tensor",
         layer_norm),
    NAME("native_layer_norm(Tensor input, SymInt[] normalized_shape, Tensor? weight, Tensor? bias, float "
         "eps) -> "
         "(Tensor, Tensor, Tensor)",
         native_layer_norm),
    NAME("group_norm(Tensor input, int num_groups, " PARAMS ", bool cudnn_enabled=True) -> Tensor",
         group_norm),
    NAME("native_group_norm(Tensor input, Tensor? weight, Tensor? bias, SymInt N, SymInt C, SymInt HxW, int "
         "group, "
         "float eps) -> (Tensor, Tensor, Tensor)",
         native_group_norm),
    NAME("rms_norm(Tensor input, SymInt[] normalized_shape, Tensor? weight=None, float? eps=None) -> Tensor",
         rms_norm),
    NAME("_fused_rms_norm(Tensor input, int[] normalized_shape, Tensor? weight, float? eps) -> (Tensor, "
         "Tensor)",
         fused_rms_norm),
    {.schema = "aten.linalg_vector_norm(Tensor self, Scalar ord=2, int[1]? dim=None, bool keepdim=False, *, "
               "ScalarType? "
               "dtype=None) -> Tensor",
     .family = WF_COMPOSITE,
     .infer = vector_norm_infer,
     .decompose = vector_norm,
     .vjp = vector_norm_vjp},
    NAME("norm.Scalar(Tensor self, Scalar p=2) -> Tensor", norm),
    NAME("norm.ScalarOpt_dim(Tensor self, Scalar? p, int[1] dim, bool keepdim=False) -> Tensor", norm),
    NAME("_weight_norm(Tensor v, Tensor g, int dim=0) -> Tensor", weight_norm),
    NAME("_weight_norm_interface(Tensor v, Tensor g, int dim=0) -> (Tensor, Tensor)", weight_norm),
    NAME("renorm(Tensor self, Scalar p, int dim, Scalar maxnorm) -> Tensor", renorm),
    {0}};

void wf_ops_aten_norm(void)
{
    wf_register(ops);
}
