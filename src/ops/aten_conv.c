/* Convolutions. All become prim.conv, whose padding is the same on both sides; a transposed convolution is
 * the data gradient of an ordinary one. Inputs without a batch dimension get one. The library's convolutions
 * know no float64: that is a product of the weight with the windows of the input, or, transposed, a sum over
 * the windows that a product fills. */
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
        wf_fail_node(g, n, WEFT_ERR_FILE, "input %s and weight %s do not fit", wf_shape_text(g, T(0)),
                     wf_shape_text(g, w));
    return s;
}

/* One number may stand for all spatial dimensions. */
static void per_dim(const WfArg *a, int s, WfDim *v)
{
    for (int i = 0; i < s; i++)
        v[i] = a->n > i ? a->ints[i] : a->ints[0];
}

/* w[O, C/groups, k..] as [N, groups, O/groups, C/groups k..] */
static WfVal weight_rows(WfGraph *g, WfVal w, WfDim batch, WfDim groups)
{
    WfDim out = wf_efloordiv(E(g), wf_size_of(g, w, 0), groups), k = 1;
    for (int i = 1; i < wf_rank_of(g, w); i++)
        k = wf_emul(E(g), k, wf_size_of(g, w, i));
    return wf_expand(g, wf_reshape(g, w, 4, (WfDim[]){1, groups, out, k}), 4,
                     (WfDim[]){batch, groups, out, k});
}

static WfDim product(WfGraph *g, const WfDim *v, int n)
{
    WfDim all = 1;
    for (int i = 0; i < n; i++)
        all = wf_emul(E(g), all, v[i]);
    return all;
}

/* x[N, C, in..] and w[O, C/groups, k..] to [N, O, out..] */
static WfVal by_windows(WfGraph *g, WfVal x, WfVal w, int s, const WfDim *stride, const WfDim *pad,
                        const WfDim *dil, WfDim groups)
{
    WfDim batch = wf_size_of(g, x, 0), o = wf_size_of(g, w, 0), shape[WF_MAX_RANK] = {batch, o};
    WfDim kernel = product(g, wf_value(g, w)->shape + 1, s + 1);
    int dims[WF_MAX_RANK] = {0, 1};
    for (int i = 0; i < s; i++)
        x = wf_pad_dim(g, x, 2 + i, pad[i], pad[i], 0);
    for (int i = 0; i < s; i++) {
        x = wf_emit(g, "prim.window", "vdiii", x, 2 + i, wf_size_of(g, w, 2 + i), stride[i], dil[i]);
        dims[2 + i] = 2 + s + i;
        dims[2 + s + i] = 2 + i;
    }
    for (int i = 0; i < s; i++)
        shape[2 + i] = wf_size_of(g, x, 2 + i);
    WfDim places = product(g, shape + 2, s);
    x = wf_permute(g, x, dims); /* [N, C, k.., out..] */
    x = wf_reshape(g, x, 4, (WfDim[]){batch, groups, kernel, places});
    return wf_reshape(g, wf_matmul(g, weight_rows(g, w, batch, groups), x), s + 2, shape);
}

/* dy[N, O, out..] and w[O, C/groups, k..] to `shape`, [N, C, in..] */
static WfVal onto_windows(WfGraph *g, WfVal dy, WfVal w, const WfDim *shape, int s, const WfDim *stride,
                          const WfDim *pad, const WfDim *dil, WfDim groups)
{
    WfDim batch = wf_size_of(g, dy, 0), full[WF_MAX_RANK] = {batch, shape[1]}, lo[WF_MAX_RANK] = {0};
    WfDim rows = wf_efloordiv(E(g), wf_size_of(g, w, 0), groups);
    int dims[WF_MAX_RANK] = {0, 1};
    for (int i = 0; i < s; i++) {
        full[2 + i] = wf_size_of(g, w, 2 + i);
        full[2 + s + i] = wf_size_of(g, dy, 2 + i);
        dims[2 + i] = 2 + s + i;
        dims[2 + s + i] = 2 + i;
        lo[2 + i] = wf_esub(E(g), 0, pad[i]);
    }
    WfDim places = product(g, full + 2 + s, s);
    dy = wf_reshape(g, dy, 4, (WfDim[]){batch, groups, rows, places});
    WfVal y = wf_matmul(g, wf_transpose(g, weight_rows(g, w, batch, groups), 2, 3), dy);
    y = wf_permute(g, wf_reshape(g, y, 2 + 2 * s, full), dims); /* [N, C, out.., k..] */
    for (int i = s - 1; i >= 0; i--) {
        WfDim padded = wf_eadd(E(g), shape[2 + i], wf_emul(E(g), 2, pad[i]));
        y = wf_emit(g, "prim.fold", "vdiii", y, 2 + i, padded, stride[i], dil[i]);
    }
    return wf_pad(g, y, lo, lo, 0);
}

static int plain(WfGraph *g, const WfNode *n, WfVal x, const WfDim *stride, const WfDim *pad,
                 const WfDim *dil, WfDim groups, WfVal *out)
{
    int s = spatial_rank(g, n, T(1));
    bool single = wf_rank_of(g, x) == s + 1;
    if (single)
        x = wf_unsqueeze(g, x, 0);
    if (wf_size_of(g, x, 1) != wf_emul(E(g), wf_size_of(g, T(1), 1), groups))
        wf_fail_node(g, n, WEFT_ERR_FILE, "weight is %s, but the input %s has other channels",
                     wf_shape_text(g, T(1)), wf_shape_text(g, T(0)));
    WfVal y = wf_dtype_of(g, x) == WF_F64
                  ? by_windows(g, x, T(1), s, stride, pad, dil, groups)
                  : wf_emit(g, "prim.conv", "vvIIIi", x, T(1), stride, s, pad, s, dil, s, groups);
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
        wf_fail_node(g, n, WEFT_ERR_FILE, "weight is %s, but the input %s has other channels",
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
    WfVal y = wf_dtype_of(g, x) == WF_F64 ? onto_windows(g, x, w, shape, s, stride, pad, dil, groups)
                                          : wf_emit(g, "prim.conv_bwd_data", "vvIIIIi", x, w, shape, s + 2,
                                                    stride, s, pad, s, dil, s, groups);
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
