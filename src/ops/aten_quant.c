/* Fake quantisation: values rounded to the steps of a quantised type, in floating point. The gradient passes
 * straight through where the rounded value lies within the type's range. */
#include "ops/ops_private.h"

#define DECOMPOSE(name) static int name(WfGraph *g, const WfNode *n, WfVal *out)

/* (clamp(round(x / scale) + zero, lo, hi) - zero) scale, with 1 / scale rounded first, as PyTorch does; and
 * whether the value lay within the bounds. */
static int quantised(WfGraph *g, const WfNode *n, WfVal scale, WfVal zero, int range, WfVal *out)
{
    WfVal x = wf_tensor(n, 0), lo = wf_like(g, x, (double)wf_lit(g, n, range));
    WfVal hi = wf_like(g, x, (double)wf_lit(g, n, range + 1)), d = wf_detach(g, x);
    scale = wf_detach(g, scale);
    WfVal q = wf_unary(g, "prim.round", wf_mul(g, d, wf_unary(g, "prim.reciprocal", scale)));
    q = wf_add(g, q, zero);
    WfVal in = wf_binary(g, "prim.and", wf_binary(g, "prim.ge", q, lo), wf_binary(g, "prim.le", q, hi));
    q = wf_binary(g, "prim.min", wf_binary(g, "prim.max", q, lo), hi);
    /* x - x is zero, but carries the gradient */
    WfVal through = wf_where(g, in, wf_sub(g, x, d), wf_like(g, x, 0));
    out[0] = wf_add(g, wf_mul(g, wf_sub(g, q, zero), scale), through);
    out[1] = in;
    return n->schema->n_ret;
}

static WfVal one_number(WfGraph *g, const WfNode *n, int i) /* a number, or a tensor of one element */
{
    WfVal v = wf_operand(g, n, i, wf_dtype_of(g, wf_tensor(n, 0)));
    return wf_rank_of(g, v) ? wf_reshape(g, v, 0, NULL) : v;
}

DECOMPOSE(per_tensor)
{
    return quantised(g, n, one_number(g, n, 1), one_number(g, n, 2), 3, out);
}
DECOMPOSE(per_tensor_switched)
{
    WfVal x = wf_tensor(n, 0), on = wf_reshape(g, wf_tensor(n, 3), 0, NULL);
    quantised(g, n, one_number(g, n, 1), one_number(g, n, 2), 4, out);
    on = wf_binary(g, "prim.ne", on, wf_like(g, on, 0));
    out[0] = wf_where(g, on, out[0], x);
    out[1] = wf_binary(g, "prim.or", out[1], wf_expand_like(g, wf_unary(g, "prim.not", on), x));
    return 2;
}
DECOMPOSE(per_channel)
{
    WfVal x = wf_tensor(n, 0), v[2];
    int r = wf_rank_of(g, x), d = wf_dim_index(g, n, wf_int(n, 3), r);
    WfDim shape[WF_MAX_RANK];
    for (int i = 0; i < r; i++)
        shape[i] = i == d ? wf_size_of(g, x, d) : 1;
    for (int i = 0; i < 2; i++)
        v[i] = wf_reshape(g, wf_cast(g, wf_tensor(n, 1 + i), wf_dtype_of(g, x)), r, shape);
    return quantised(g, n, v[0], v[1], 4, out);
}

#define RANGE   "int quant_min, int quant_max"
#define MASKED  ") -> (Tensor output, Tensor mask)"
#define TENSORS "Tensor self, Tensor scale, Tensor zero_point, "
#define NUMBERS "Tensor self, float scale, int zero_point, "

static const WfOp ops[] = {
    ROW("fake_quantize_per_tensor_affine(" NUMBERS RANGE ") -> Tensor", per_tensor),
    ROW("fake_quantize_per_tensor_affine.tensor_qparams(" TENSORS RANGE ") -> Tensor", per_tensor),
    ROW("fake_quantize_per_tensor_affine_cachemask(" NUMBERS RANGE MASKED, per_tensor),
    ROW("_fake_quantize_per_tensor_affine_cachemask_tensor_qparams(" TENSORS
        "Tensor fake_quant_enabled, " RANGE MASKED,
        per_tensor_switched),
    ROW("fake_quantize_per_channel_affine(" TENSORS "int axis, " RANGE ") -> Tensor", per_channel),
    ROW("fake_quantize_per_channel_affine_cachemask(" TENSORS "int axis, " RANGE MASKED, per_channel),
    {0}};

void wf_ops_aten_quant(void)
{
    wf_register(ops);
}
