/* Batch and instance normalisation. In training the statistics come from nn.normalize (aten_norm.c); the
 * running ones are then new values: each op that changes its running statistics has a functional form that
 * returns them after its ordinary results (0 where an argument was None). The running variance is the
 * unbiased one, momentum is the weight of the new value (ATen/native/Normalization.cpp). */
#include "ops/ops_private.h"

#include <string.h>

#define DECOMPOSE WfGraph *g, const WfNode *n, WfVal *out
#define T(i)      wf_tensor(n, i)
#define E(g)      ((g)->exprs)

typedef struct {
    WfVal y, mean, rstd, new_mean, new_var;
} Normed; /* mean and rstd: of the batch, [C] */

/* A vector over channels, as [1, C, 1..] to broadcast over x. */
static WfVal channels(WfGraph *g, const WfNode *n, WfVal v, WfVal x)
{
    WfDim shape[WF_MAX_RANK], c = wf_size_of(g, x, 1);
    int r = wf_rank_of(g, x);
    if (!v)
        return 0;
    if (wf_numel(g, v) != c)
        wf_fail_node(g, n, WF_E_SHAPES, "%s is not one number for each channel of %s", wf_shape_text(g, v),
                     wf_shape_text(g, x));
    for (int i = 0; i < r; i++)
        shape[i] = i == 1 ? c : 1;
    return wf_reshape(g, v, r, shape);
}

/* (1 - momentum) old + momentum new; no gradient flows into running statistics. */
static WfVal blend(WfGraph *g, WfVal old, WfVal fresh, double momentum)
{
    WfVal f = wf_muls(g, wf_cast(g, wf_detach(g, fresh), wf_dtype_of(g, old)), momentum);
    return wf_add(g, wf_muls(g, old, 1 - momentum), f);
}

/* var times count / (count - 1) */
static WfVal unbiased(WfGraph *g, WfVal var, WfDim count)
{
    int64_t lit;
    if (wf_elit(E(g), count, &lit))
        return wf_muls(g, var, (double)lit / (double)(lit - 1));
    WfDtype t = wf_dtype_of(g, var);
    WfVal k = wf_div(g, wf_dim_scalar(g, t, count), wf_dim_scalar(g, t, wf_esub(E(g), count, 1)));
    return wf_mul(g, var, k);
}

static WfVal by_running(WfGraph *g, const WfNode *n, WfVal x, WfVal w, WfVal b, WfVal mean, WfVal var,
                        double eps)
{
    WfVal xx = wf_wide(g, x);
    WfDtype t = wf_dtype_of(g, xx);
    WfVal scale = wf_unary(g, "prim.rsqrt", wf_adds(g, wf_cast(g, var, t), eps));
    if (w)
        scale = wf_mul(g, scale, wf_cast(g, w, t));
    WfVal y = wf_mul(g, wf_sub(g, xx, channels(g, n, wf_cast(g, mean, t), x)), channels(g, n, scale, x));
    if (b)
        y = wf_add(g, y, channels(g, n, wf_cast(g, b, t), x));
    return wf_cast(g, y, wf_dtype_of(g, x));
}

/* Normalisation by the statistics of all ranks' batches: their sums travel, and the gradients of those sums travel back
 * (torch.nn.SyncBatchNorm; the variance from centred values, in two passes). v: y, mean, biased variance, count. */
static void over_ranks(WfGraph *g, WfVal x, WfVal w, WfVal b, uint32_t dims, double eps, WfVal *v)
{
    WfVal xx = wf_wide(g, x);
    WfDtype t = wf_dtype_of(g, xx);
    WfVal count = wf_emit(g, "dist.all_reduce", "vss", wf_dim_scalar(g, t, wf_count(g, xx, dims)), "sum", "dp");
    WfVal sum = wf_emit(g, "dist.all_reduce", "vss", wf_sum(g, xx, dims, true), "sum", "dp");
    v[1] = wf_div(g, sum, count);
    WfVal off = wf_sub(g, xx, v[1]);
    WfVal squares = wf_emit(g, "dist.all_reduce", "vss", wf_sum(g, wf_mul(g, off, off), dims, true), "sum", "dp");
    v[2] = wf_div(g, squares, count);
    v[3] = count;
    WfVal y = wf_mul(g, off, wf_unary(g, "prim.rsqrt", wf_adds(g, v[2], eps)));
    y = w ? wf_mul(g, y, wf_cast(g, w, t)) : y;
    y = b ? wf_add(g, y, wf_cast(g, b, t)) : y;
    v[0] = wf_cast(g, y, wf_dtype_of(g, x));
}

/* mean and var may be 0: then the batch's statistics are taken, whatever `training` says. */
static Normed batch(WfGraph *g, const WfNode *n, WfVal mean, WfVal var, bool training, double momentum,
                    double eps)
{
    WfVal x = T(0), w = T(1), b = T(2), v[4] = {0};
    Normed r = {.new_mean = mean, .new_var = var};
    if (wf_rank_of(g, x) < 2)
        wf_fail_node(g, n, WF_E_SHAPES, "input %s has no channels", wf_shape_text(g, x));
    if (!training && mean && var) {
        WfVal none = wf_full(g, wf_dtype_of(g, wf_wide(g, x)), 1, (WfDim[]){0}, 0);
        r.y = by_running(g, n, x, w, b, mean, var, eps);
        r.mean = r.rstd = none;
        return r;
    }
    uint32_t dims = WF_ALL_DIMS(wf_rank_of(g, x)) & ~2u;
    WfDim c = wf_size_of(g, x, 1);
    if (g->agree)
        over_ranks(g, x, channels(g, n, w, x), channels(g, n, b, x), dims, eps, v);
    else
        wf_normalize(g, x, channels(g, n, w, x), channels(g, n, b, x), dims, eps, v);
    r.y = v[0];
    r.mean = wf_reshape(g, v[1], 1, &c);
    WfVal biased = wf_reshape(g, v[2], 1, &c);
    r.rstd = wf_detach(g, wf_unary(g, "prim.rsqrt", wf_adds(g, biased, eps)));
    if (training && mean)
        r.new_mean = blend(g, mean, r.mean, momentum);
    if (training && var && v[3])
        r.new_var = blend(g, var, wf_mul(g, biased, wf_div(g, v[3], wf_adds(g, v[3], -1))), momentum);
    else if (training && var)
        r.new_var = blend(g, var, unbiased(g, biased, wf_count(g, x, dims)), momentum);
    return r;
}

static int batch_norm(DECOMPOSE)
{
    Normed r = batch(g, n, T(3), T(4), wf_bool(n, 5), wf_float(g, n, 6), wf_float(g, n, 7));
    out[0] = r.y;
    out[1] = r.new_mean;
    out[2] = r.new_var;
    return n->schema->n_ret;
}

static int native(WfVal *out, Normed r)
{
    memcpy(out, (WfVal[]){r.y, r.mean, r.rstd, r.new_mean, r.new_var}, 5 * sizeof *out);
    return 5;
}

static int legit_functional(DECOMPOSE)
{
    return native(out, batch(g, n, T(3), T(4), wf_bool(n, 5), wf_float(g, n, 6), wf_float(g, n, 7)));
}

static int no_stats(DECOMPOSE)
{
    native(out, batch(g, n, 0, 0, true, wf_float(g, n, 4), wf_float(g, n, 5)));
    return 3;
}

static int no_training(DECOMPOSE)
{
    native(out, batch(g, n, T(3), T(4), false, wf_float(g, n, 5), wf_float(g, n, 6)));
    out[3] = wf_full(g, WF_U8, 1, (WfDim[]){0}, 0); /* the library's reserve, of _batch_norm_no_update */
    return n->schema->n_ret;
}

static int with_update(DECOMPOSE)
{
    Normed r = batch(g, n, T(3), T(4), true, wf_float(g, n, 5), wf_float(g, n, 6));
    WfVal reserve = wf_full(g, WF_U8, 1, (WfDim[]){0}, 0);
    memcpy(out, (WfVal[]){r.y, r.mean, r.rstd, reserve, r.new_mean, r.new_var}, 6 * sizeof *out);
    return 6;
}

/* Each sample's channels by themselves; the running statistics take the mean over samples. */
static int instance_norm(DECOMPOSE)
{
    WfVal x = T(0), mean = T(3), var = T(4), v[3];
    double momentum = wf_float(g, n, 6), eps = wf_float(g, n, 7);
    int r = wf_rank_of(g, x);
    out[1] = mean;
    out[2] = var;
    if (r < 3)
        wf_fail_node(g, n, WF_E_SHAPES, "input %s has no spatial dimensions", wf_shape_text(g, x));
    if (!wf_bool(n, 5)) {
        out[0] = by_running(g, n, x, T(1), T(2), mean, var, eps);
        return n->schema->n_ret;
    }
    uint32_t dims = WF_ALL_DIMS(r) & ~3u;
    WfDim nc[2] = {wf_size_of(g, x, 0), wf_size_of(g, x, 1)};
    wf_normalize(g, x, channels(g, n, T(1), x), channels(g, n, T(2), x), dims, eps, v);
    out[0] = v[0];
    if (mean)
        out[1] = blend(g, mean, wf_mean(g, wf_reshape(g, v[1], 2, nc), 1, false), momentum);
    if (var) {
        WfVal u = unbiased(g, wf_reshape(g, v[2], 2, nc), wf_count(g, x, dims));
        out[2] = blend(g, var, wf_mean(g, u, 1, false), momentum);
    }
    return n->schema->n_ret;
}

#define NAME(text, fn)                                          \
    {                                                           \
        .schema = text, .family = WF_COMPOSITE, .decompose = fn \
    }
#define XWB        "Tensor input, Tensor? weight, Tensor? bias"
#define STATS      XWB ", Tensor? running_mean, Tensor? running_var"
#define BOTH_STATS XWB ", Tensor running_mean, Tensor running_var"
#define MUTATED    XWB ", Tensor(a!) running_mean, Tensor(b!) running_var"
#define RATES      "float momentum, float eps"
#define INSTANCE   STATS ", bool use_input_stats, " RATES ", bool cudnn_enabled"
#define RUNNING    0x18 /* arguments 3 and 4 */

static const WfOp ops[] = {
    {.schema = "aten.batch_norm(" STATS ", bool training, " RATES ", bool cudnn_enabled) -> Tensor",
     .family = WF_COMPOSITE,
     .decompose = batch_norm,
     .mutated_args = RUNNING,
     .functional = "nn.batch_norm"},
    NAME("nn.batch_norm(" STATS ", bool training, " RATES
         ", bool cudnn_enabled) -> (Tensor, Tensor running_mean_out, "
         "Tensor running_var_out)",
         batch_norm),
    {.schema = "aten.instance_norm(" INSTANCE ") -> Tensor",
     .family = WF_COMPOSITE,
     .decompose = instance_norm,
     .mutated_args = RUNNING,
     .functional = "nn.instance_norm"},
    NAME("nn.instance_norm(" INSTANCE ") -> (Tensor, Tensor running_mean_out, Tensor running_var_out)",
         instance_norm),
    {.schema = "aten.native_batch_norm(" STATS ", bool training, " RATES ") -> (Tensor, Tensor, Tensor)",
     .family = WF_COMPOSITE,
     .mutated_args = RUNNING,
     .functional = "nn.native_batch_norm"},
    NAME("nn.native_batch_norm(" STATS ", bool training, " RATES ") -> (Tensor, Tensor, Tensor, Tensor "
         "running_mean_out, Tensor running_var_out)",
         legit_functional),
    {.schema =
         "aten._native_batch_norm_legit(" MUTATED ", bool training, " RATES ") -> (Tensor, Tensor, Tensor)",
     .family = WF_COMPOSITE,
     .functional = "aten._native_batch_norm_legit_functional"},
    NAME("aten._native_batch_norm_legit.no_stats(" XWB ", bool training, " RATES
         ") -> (Tensor, Tensor, Tensor)",
         no_stats),
    NAME("aten._native_batch_norm_legit_functional(" BOTH_STATS ", bool training, " RATES
         ") -> (Tensor, Tensor, "
         "Tensor, Tensor running_mean_out, Tensor running_var_out)",
         legit_functional),
    NAME("aten._native_batch_norm_legit_no_training(" BOTH_STATS ", " RATES ") -> (Tensor, Tensor, Tensor)",
         no_training),
    {.schema = "aten._batch_norm_with_update(" MUTATED ", " RATES ") -> (Tensor, Tensor, Tensor, Tensor)",
     .family = WF_COMPOSITE,
     .functional = "aten._batch_norm_with_update_functional"},
    NAME("aten._batch_norm_with_update_functional(" BOTH_STATS ", " RATES
         ") -> (Tensor, Tensor, Tensor, Tensor, "
         "Tensor running_mean_out, Tensor running_var_out)",
         with_update),
    NAME("aten._batch_norm_no_update(" STATS ", " RATES ") -> (Tensor, Tensor, Tensor, Tensor)", no_training),
    {0}};

void wf_ops_aten_batch_norm(void)
{
    wf_register(ops);
}
