/* Convolutions. All become prim.conv, whose padding is the same on both sides; a transposed convolution is
 * the data gradient of an ordinary one. Inputs without a batch dimension get one. */
#include "ops/ops_private.h"

#include <string.h>

#define E(g)      ((g)->exprs)
#define DECOMPOSE WfGraph *g, const WfNode *n, WfVal *out
#define T(i)      wf_tensor(n, i)

static WfVal with_bias(WfGraph *g, WfVal y, WfVal b)
{
    WfDim shape[WF_MAX_RANK];
    if (!b)
        return y;
    for (int i = 0; i < wf_rank_of(g, y); i++)
        shape[i] = i == 1 ? wf_numel(g, b) : 1;
    return wf_add(g, y, wf_reshape(g, b, wf_rank_of(g, y), shape));
}

static int spatial_rank(WfGraph *g, const WfNode *n, WfVal w)
{
    int s = wf_rank_of(g, w) - 2, r = wf_rank_of(g, T(0));
    if (s < 1 || s > 3 || (r != s + 1 && r != s + 2))
        wf_fail_node(g, n, WF_E_SHAPES, "input %s and weight %s do not fit", wf_shape_text(g, T(0)),
                     wf_shape_text(g, w));
    return s;
}

/* One number may stand for all spatial dimensions. */
static void per_dim(const WfArg *a, int s, WfDim *v)
{
    for (int i = 0; i < s; i++)
        v[i] = a->n > i ? a->ints[i] : a->ints[0];
}

static int plain(WfGraph *g, const WfNode *n, WfVal x, const WfDim *stride, const WfDim *pad,
                 const WfDim *dil, WfDim groups, WfVal *out)
{
    int s = spatial_rank(g, n, T(1));
    bool single = wf_rank_of(g, x) == s + 1;
    if (single)
        x = wf_unsqueeze(g, x, 0);
    if (wf_size_of(g, x, 1) != wf_emul(E(g), wf_size_of(g, T(1), 1), groups))
        wf_fail_node(g, n, WF_E_SHAPES, "weight is %s, but the input %s has other channels",
                     wf_shape_text(g, T(1)), wf_shape_text(g, T(0)));
    WfVal y = wf_emit(g, "prim.conv", "vvIIIi", x, T(1), stride, s, pad, s, dil, s, groups);
    y = with_bias(g, y, T(2));
    out[0] = single ? wf_squeeze(g, y, 0) : y;
    return 1;
}

static int conv(DECOMPOSE)
{
    int s = spatial_rank(g, n, T(1));
    WfDim stride[3], pad[3], dil[3];
    per_dim(&n->args[3], s, stride);
    per_dim(&n->args[4], s, pad);
    per_dim(&n->args[5], s, dil);
    return plain(g, n, T(0), stride, pad, dil, wf_int(n, 6), out);
}

/* 'valid': none. 'same': so that stride 1 keeps the size; an odd rest goes to the end. */
static int conv_padding(DECOMPOSE)
{
    WfExprs *e = E(g);
    int s = spatial_rank(g, n, T(1));
    WfVal x = T(0);
    WfDim stride[3], pad[3] = {0}, dil[3];
    per_dim(&n->args[3], s, stride);
    per_dim(&n->args[5], s, dil);
    for (int i = 0; i < s && !strcmp(n->args[4].s, "same"); i++) {
        WfDim total = wf_emul(e, dil[i], wf_esub(e, wf_size_of(g, T(1), 2 + i), 1));
        pad[i] = wf_efloordiv(e, total, 2);
        WfDim rest = wf_esub(e, total, wf_emul(e, pad[i], 2));
        x = wf_pad_dim(g, x, wf_rank_of(g, x) - s + i, 0, rest, 0);
    }
    return plain(g, n, x, stride, pad, dil, wf_int(n, 6), out);
}

/* Sizes: (in - 1) stride - 2 padding + dilation (k - 1) + output_padding + 1. */
static int transposed(WfGraph *g, const WfNode *n, const WfArg *strides, const WfArg *pads, const WfArg *dils,
                      const WfArg *extra, WfDim groups, WfVal *out)
{
    WfExprs *e = E(g);
    int s = spatial_rank(g, n, T(1));
    WfVal x = T(0), w = T(1);
    WfDim stride[3], pad[3], dil[3], more[3], shape[WF_MAX_RANK];
    bool single = wf_rank_of(g, x) == s + 1;
    per_dim(strides, s, stride);
    per_dim(pads, s, pad);
    per_dim(dils, s, dil);
    per_dim(extra, s, more);
    if (single)
        x = wf_unsqueeze(g, x, 0);
    if (wf_size_of(g, x, 1) != wf_size_of(g, w, 0))
        wf_fail_node(g, n, WF_E_SHAPES, "weight is %s, but the input %s has other channels",
                     wf_shape_text(g, w), wf_shape_text(g, T(0)));
    /* output_padding >= stride: no forward convolution has these sizes; compute without padding, then cut */
    bool cut = false;
    for (int i = 0; i < s; i++)
        cut |= more[i] != 0 && !wf_eprove_lt(e, more[i], stride[i]);
    shape[0] = wf_size_of(g, x, 0);
    shape[1] = wf_emul(e, wf_size_of(g, w, 1), groups);
    WfDim lo[WF_MAX_RANK] = {0}, hi[WF_MAX_RANK] = {0};
    for (int i = 0; i < s; i++) {
        WfDim span = wf_emul(e, dil[i], wf_esub(e, wf_size_of(g, w, 2 + i), 1));
        WfDim size = wf_emul(e, wf_esub(e, wf_size_of(g, x, 2 + i), 1), stride[i]);
        size = wf_eadd(e, wf_eadd(e, size, span), 1);
        lo[2 + i] = wf_esub(e, 0, pad[i]);
        hi[2 + i] = wf_esub(e, more[i], pad[i]);
        shape[2 + i] = cut ? size : wf_eadd(e, size, wf_eadd(e, lo[2 + i], hi[2 + i]));
        pad[i] = cut ? 0 : pad[i];
    }
    WfVal y =
        wf_emit(g, "prim.conv_bwd_data", "vvIIIIi", x, w, shape, s + 2, stride, s, pad, s, dil, s, groups);
    y = with_bias(g, cut ? wf_pad(g, y, lo, hi, 0) : y, T(2));
    out[0] = single ? wf_squeeze(g, y, 0) : y;
    return 1;
}

static int conv_transpose(DECOMPOSE)
{
    return transposed(g, n, &n->args[3], &n->args[4], &n->args[7], &n->args[5], wf_int(n, 6), out);
}

static int convolution(DECOMPOSE)
{
    int s = spatial_rank(g, n, T(1));
    WfDim stride[3], pad[3], dil[3];
    if (wf_bool(n, 6))
        return transposed(g, n, &n->args[3], &n->args[4], &n->args[5], &n->args[7], wf_int(n, 8), out);
    per_dim(&n->args[3], s, stride);
    per_dim(&n->args[4], s, pad);
    per_dim(&n->args[5], s, dil);
    return plain(g, n, T(0), stride, pad, dil, wf_int(n, 8), out);
}

#define NAME(text, fn)                                                  \
    {                                                                   \
        .schema = "aten." text, .family = WF_COMPOSITE, .decompose = fn \
    }
#define XWB "Tensor input, Tensor weight, Tensor? bias=None"
#define CONV(d, one, zero)                                                                                   \
    NAME("conv" #d "d(" XWB ", SymInt[" #d "] stride=" one ", SymInt[" #d "] padding=" zero ", SymInt[" #d   \
         "] "                                                                                                \
         "dilation=" one ", SymInt groups=1) -> Tensor",                                                     \
         conv),                                                                                              \
        NAME("conv" #d "d.padding(" XWB ", SymInt[" #d "] stride=" one ", str padding=\"valid\", SymInt[" #d \
             "] "                                                                                            \
             "dilation=" one ", SymInt groups=1) -> Tensor",                                                 \
             conv_padding)
#define TRANSPOSED(name, d, one, zero)                                                                    \
    NAME(name "(" XWB ", SymInt[" #d "] stride=" one ", SymInt[" #d "] padding=" zero ", SymInt[" #d "] " \
              "output_padding=" zero ", SymInt groups=1, SymInt[" #d "] dilation=" one ") -> Tensor",     \
         conv_transpose)
#define GENERAL                                                                                         \
    "Tensor input, Tensor weight, Tensor? bias, SymInt[] stride, SymInt[] padding, SymInt[] dilation, " \
    "bool transposed, SymInt[] output_padding, SymInt groups"

static const WfOp ops[] = {
    CONV(1, "[1]", "[0]"),
    CONV(2, "[1, 1]", "[0, 0]"),
    CONV(3, "[1, 1, 1]", "[0, 0, 0]"),
    TRANSPOSED("conv_transpose1d", 1, "[1]", "[0]"),
    TRANSPOSED("conv_transpose2d.input", 2, "[1, 1]", "[0, 0]"),
    TRANSPOSED("conv_transpose3d.input", 3, "[1, 1, 1]", "[0, 0, 0]"),
    NAME("convolution(" GENERAL ") -> Tensor", convolution),
    NAME("_convolution(" GENERAL
         ", bool benchmark, bool deterministic, bool cudnn_enabled, bool allow_tf32) -> Tensor",
         convolution),
    {0}};

void wf_ops_aten_conv(void)
{
    wf_register(ops);
}
