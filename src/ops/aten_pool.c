/* Pooling. Windows are views (prim.window adds a dimension that runs over the window), so a pool is one
 * reduction that reads its input in place. Max pooling is kept as nn.max_pool with the place of each window's
 * first maximum (a number within the window, one byte where that suffices): its backward asks of every input
 * element which windows chose it, and scatters nothing. Adaptive pooling divides evenly by a reshape where it
 * can, else multiplies with a matrix of averaging weights, made from indices. Window arithmetic as in
 * ATen/native/Pool.h. */
#include "ops/ops_private.h"

#include <math.h>
#include <string.h>

#define E(g)      ((g)->exprs)
#define DECOMPOSE WfGraph *g, const WfNode *n, WfVal *out
#define T(i)      wf_tensor(n, i)

/* The window in each of s spatial dimensions; `hi` is the padding at the end that makes the wanted number
 * fit. */
typedef struct {
    int s;
    WfDim k[3], stride[3], pad[3], dil[3], hi[3], count[3];
} Window;

static void per_dim(const WfArg *a, int s, const WfDim *fallback, WfDim *v)
{
    for (int i = 0; i < s; i++)
        v[i] = a && a->n ? a->ints[a->n > i ? i : 0] : fallback[i];
}

static Window window_of(WfGraph *g, const WfNode *n, int s, const WfArg *dil, bool ceil)
{
    static const WfDim one[3] = {1, 1, 1};
    WfExprs *e = E(g);
    Window w = {.s = s};
    int r = wf_rank_of(g, T(0));
    if (r != s + 1 && r != s + 2)
        wf_fail_node(g, n, WF_E_SHAPES, "%s has not %d spatial dimensions", wf_shape_text(g, T(0)), s);
    per_dim(&n->args[1], s, one, w.k);
    per_dim(&n->args[2], s, w.k, w.stride);
    per_dim(&n->args[3], s, (WfDim[3]){0}, w.pad);
    per_dim(dil, s, one, w.dil);
    for (int i = 0; i < s; i++) {
        WfDim in = wf_size_of(g, T(0), r - s + i);
        WfDim span = wf_eadd(e, wf_emul(e, w.dil[i], wf_esub(e, w.k[i], 1)), 1);
        WfDim room = wf_esub(e, wf_eadd(e, in, wf_emul(e, w.pad[i], 2)), span);
        w.hi[i] = w.pad[i];
        w.count[i] = wf_eadd(e, wf_efloordiv(e, room, w.stride[i]), 1);
        if (ceil) { /* a last window may hang over, if it starts inside the input or its left padding */
            WfDim more = wf_eadd(e, room, wf_esub(e, w.stride[i], 1));
            WfDim count = wf_eadd(e, wf_efloordiv(e, more, w.stride[i]), 1);
            WfDim start = wf_emul(e, wf_esub(e, count, 1), w.stride[i]), limit = wf_eadd(e, in, w.pad[i]);
            int64_t a, b;
            if (!wf_elit(e, start, &a) || !wf_elit(e, limit, &b))
                wf_fail_node(g, n, WF_E_OP_FORM, "ceil_mode needs a static size");
            if (a >= b)
                count = wf_esub(e, count, 1);
            WfDim need = wf_eadd(e, wf_emul(e, wf_esub(e, count, 1), w.stride[i]), span);
            w.hi[i] = wf_emax(e, wf_esub(e, need, limit), 0);
            w.count[i] = count;
        }
    }
    return w;
}

/* x[.., s..] as [.., counts.., windows..], the padding filled. */
static WfVal windows(WfGraph *g, const Window *w, WfVal x, double fill)
{
    int r = wf_rank_of(g, x);
    for (int i = 0; i < w->s; i++)
        x = wf_pad_dim(g, x, r - w->s + i, w->pad[i], w->hi[i], fill);
    for (int i = 0; i < w->s; i++)
        x = wf_emit(g, "prim.window", "vdiii", x, r - w->s + i, w->k[i], w->stride[i], w->dil[i]);
    return x;
}

static uint32_t window_dims(int r, int s)
{
    return WF_ALL_DIMS(r + s) & ~WF_ALL_DIMS(r);
}

/* ---- nn.max_pool(x, k, stride, pad, hi, dil) -> y, place ---- */

static Window max_window(WfGraph *g, const WfNode *n)
{
    WfExprs *e = E(g);
    Window w = {.s = n->args[1].n};
    int r = wf_rank_of(g, T(0));
    WfDim *to[5] = {w.k, w.stride, w.pad, w.hi, w.dil};
    for (int a = 0; a < 5; a++)
        memcpy(to[a], n->args[1 + a].ints, (size_t)w.s * sizeof(WfDim));
    for (int i = 0; i < w.s; i++) {
        WfDim span = wf_eadd(e, wf_emul(e, w.dil[i], wf_esub(e, w.k[i], 1)), 1);
        WfDim room = wf_eadd(e, wf_size_of(g, T(0), r - w.s + i), wf_eadd(e, w.pad[i], w.hi[i]));
        w.count[i] = wf_eadd(e, wf_efloordiv(e, wf_esub(e, room, span), w.stride[i]), 1);
    }
    return w;
}

static WfDtype place_dtype(WfGraph *g, const Window *w)
{
    int64_t all = 1, k;
    for (int i = 0; i < w->s; i++)
        all = wf_elit(E(g), w->k[i], &k) && k < 4096 ? all * k : INT32_MAX;
    return all <= 256 ? WF_U8 : WF_I32;
}

static void max_pool_infer(WfGraph *g, const WfNode *n)
{
    Window w = max_window(g, n);
    const WfValue *x = wf_value(g, T(0));
    WfDim shape[WF_MAX_RANK];
    memcpy(shape, x->shape, sizeof shape);
    memcpy(shape + x->rank - w.s, w.count, (size_t)w.s * sizeof(WfDim));
    wf_set_result(g, n, 0, x->dtype, x->rank, shape);
    wf_set_result(g, n, 1, place_dtype(g, &w), x->rank, shape);
}

static int max_pool_rows(DECOMPOSE)
{
    Window w = max_window(g, n);
    int r = wf_rank_of(g, T(0));
    WfVal v = windows(g, &w, T(0), -INFINITY);
    out[0] = wf_reduce(g, "prim.amax", v, window_dims(r, w.s), false);
    out[1] = wf_cast(g, wf_reduce(g, "prim.argmax", v, window_dims(r, w.s), false), place_dtype(g, &w));
    return 2;
}

static void max_pool_vjp(WfGraph *g, const WfNode *n, const WfVal *dy, WfVal *dx)
{
    WfExprs *e = E(g);
    Window w = max_window(g, n);
    const WfValue *x = wf_value(g, T(0)), *y = wf_value(g, n->out);
    int r = x->rank;
    WfDim full[WF_MAX_RANK], lead[WF_MAX_RANK];
    if (!dy[0])
        return;
    for (int i = 0; i < r + w.s; i++) {
        full[i] = i < r ? y->shape[i] : w.k[i - r];
        lead[i] = i < r ? y->shape[i] : 1;
    }
    WfVal at = wf_scalar(g, WF_I32, 0);
    for (int i = 0; i < w.s; i++) /* the place of each element within its window */
        at = wf_add(g, wf_mul(g, at, wf_dim_scalar(g, WF_I32, w.k[i])),
                    wf_iota(g, WF_I32, r + w.s, full, r + i));
    WfVal place = wf_reshape(g, wf_cast(g, n->out + 1, WF_I32), r + w.s, lead),
          d = wf_reshape(g, dy[0], r + w.s, lead);
    d = wf_where(g, wf_binary(g, "prim.eq", at, place), d, wf_like(g, d, 0));
    for (int i = w.s - 1; i >= 0; i--) { /* windows back to positions, then the padding off */
        int dim = r - w.s + i;
        WfDim size = wf_eadd(e, x->shape[dim], wf_eadd(e, w.pad[i], w.hi[i]));
        d = wf_emit(g, "prim.fold", "vdiii", d, dim, size, w.stride[i], w.dil[i]);
    }
    for (int i = 0; i < w.s; i++)
        d = wf_pad_dim(g, d, r - w.s + i, wf_esub(e, 0, w.pad[i]), wf_esub(e, 0, w.hi[i]), 0);
    dx[0] = d;
}

/* ---- max pooling ---- */

static Window max_pool(WfGraph *g, const WfNode *n, int s, WfVal *v)
{
    Window w = window_of(g, n, s, &n->args[4], wf_bool(n, 5));
    WfVal r[WF_MAX_RESULTS];
    wf_emit_multi(g, r, "nn.max_pool", "vIIIII", T(0), w.k, s, w.stride, s, w.pad, s, w.hi, s, w.dil, s);
    memcpy(v, r, 2 * sizeof *v);
    return w;
}

static int spatial(const WfNode *n)
{
    return n->schema->params[1].fixed;
}

static int max_pool_only(DECOMPOSE)
{
    max_pool(g, n, spatial(n), out);
    return 1;
}

/* The place in the window as the flat position in the input's spatial dimensions. */
static int max_pool_with_indices(DECOMPOSE)
{
    int s = spatial(n), r = wf_rank_of(g, T(0));
    Window w = max_pool(g, n, s, out);
    WfVal rest = wf_cast(g, out[1], WF_I64), at[3], flat = wf_scalar(g, WF_I64, 0);
    const WfValue *y = wf_value(g, out[0]);
    for (int i = s - 1; i >= 0; i--) {
        WfVal k = wf_dim_scalar(g, WF_I64, w.k[i]);
        WfVal start =
            wf_mul(g, wf_iota(g, WF_I64, r, y->shape, r - s + i), wf_dim_scalar(g, WF_I64, w.stride[i]));
        WfVal step = wf_mul(g, wf_binary(g, "prim.fmod", rest, k), wf_dim_scalar(g, WF_I64, w.dil[i]));
        at[i] = wf_sub(g, wf_add(g, start, step), wf_dim_scalar(g, WF_I64, w.pad[i]));
        rest = wf_div(g, rest, k);
    }
    for (int i = 0; i < s; i++)
        flat = wf_add(g, wf_mul(g, flat, wf_dim_scalar(g, WF_I64, wf_size_of(g, T(0), r - s + i))), at[i]);
    out[1] = flat;
    return 2;
}

/* ---- average pooling ---- */

/* Elements of each window along spatial dimension i: those inside, or inside the padded input. */
static WfVal window_count(WfGraph *g, const Window *w, int i, WfDim in, bool padded)
{
    WfDtype t = WF_I64;
    WfVal start = wf_mul(g, wf_iota(g, t, 1, &w->count[i], 0), wf_dim_scalar(g, t, w->stride[i]));
    start = wf_sub(g, start, wf_dim_scalar(g, t, w->pad[i]));
    WfVal end = wf_add(g, start, wf_dim_scalar(g, t, w->k[i]));
    end = wf_binary(g, "prim.min", end, wf_dim_scalar(g, t, padded ? wf_eadd(E(g), in, w->pad[i]) : in));
    return wf_sub(g, end, padded ? start : wf_binary(g, "prim.max", start, wf_scalar(g, t, 0)));
}

static int avg_pool(DECOMPOSE)
{
    int s = spatial(n), r = wf_rank_of(g, T(0));
    bool ceil = wf_bool(n, 4), padded = wf_bool(n, 5);
    Window w = window_of(g, n, s, NULL, ceil);
    WfVal sum = wf_sum(g, windows(g, &w, T(0), 0), window_dims(r, s), false), count = 0;
    WfDtype t = wf_dtype_of(g, sum);
    bool pads = false;
    for (int i = 0; i < s; i++)
        pads |= w.pad[i] != 0;
    if (n->schema->n_params > 6 && wf_has(n, 6)) {
        count = wf_dim_scalar(g, t, wf_int(n, 6));
    } else if (ceil || (pads && !padded)) {
        for (int i = 0; i < s; i++) {
            WfDim shape[3] = {1, 1, 1};
            WfVal c = wf_cast(g, window_count(g, &w, i, wf_size_of(g, T(0), r - s + i), padded), t);
            shape[i] = w.count[i];
            c = wf_reshape(g, c, s, shape);
            count = count ? wf_mul(g, count, c) : c;
        }
    } else {
        WfDim all = 1;
        for (int i = 0; i < s; i++)
            all = wf_emul(E(g), all, w.k[i]);
        count = wf_dim_scalar(g, t, all);
    }
    out[0] = wf_div(g, sum, count);
    return 1;
}

/* ---- adaptive pooling: window o covers floor(o in / out) .. ceil((o + 1) in / out) ---- */

/* [out, in] of whether the window holds the element, and (len) its length [out, 1]. */
static WfVal adaptive_cover(WfGraph *g, WfDim in, WfDim size, WfVal *len)
{
    WfDtype t = WF_I64;
    WfVal o = wf_iota(g, t, 2, (WfDim[]){size, 1}, 0), i = wf_iota(g, t, 2, (WfDim[]){1, in}, 1);
    WfVal n_in = wf_dim_scalar(g, t, in), n_out = wf_dim_scalar(g, t, size);
    WfVal start = wf_div(g, wf_mul(g, o, n_in), n_out);
    WfVal end = wf_mul(g, wf_adds(g, o, 1), n_in);
    end = wf_div(g, wf_adds(g, wf_add(g, end, n_out), -1), n_out);
    *len = wf_sub(g, end, start);
    return wf_binary(g, "prim.and", wf_binary(g, "prim.ge", i, start), wf_binary(g, "prim.lt", i, end));
}

/* x[.., size of dim, ..] times weights[out, in] along dim. */
WfVal wf_resample(WfGraph *g, WfVal x, int dim, WfVal weights)
{
    int r = wf_rank_of(g, x), last = r - 1;
    if (dim == last)
        return wf_matmul_any(g, NULL, x, wf_transpose(g, weights, 0, 1));
    if (dim == last - 1)
        return wf_matmul_any(g, NULL, weights, x);
    WfVal y = wf_matmul_any(g, NULL, wf_transpose(g, x, dim, last), wf_transpose(g, weights, 0, 1));
    return wf_transpose(g, y, dim, last);
}

static WfVal adaptive_avg(WfGraph *g, WfVal x, int dim, WfDim size)
{
    WfExprs *e = E(g);
    WfDim in = wf_size_of(g, x, dim), each, shape[WF_MAX_RANK + 1];
    int r = wf_rank_of(g, x);
    if (size == in)
        return x;
    if (size == 1)
        return wf_mean(g, x, 1u << dim, true);
    each = wf_efloordiv(e, in, size);
    if (wf_emul(e, each, size) == in && r < WF_MAX_RANK) {
        for (int i = 0, k = 0; i < r; i++) {
            shape[k++] = i == dim ? size : wf_size_of(g, x, i);
            if (i == dim)
                shape[k++] = each;
        }
        return wf_mean(g, wf_reshape(g, x, r + 1, shape), 2u << dim, false);
    }
    WfVal len, cover = adaptive_cover(g, in, size, &len), one = wf_like(g, x, 1);
    WfVal share = wf_div(g, one, wf_cast(g, len, wf_dtype_of(g, x)));
    return wf_resample(g, x, dim, wf_where(g, cover, share, wf_like(g, x, 0)));
}

static int adaptive_avg_pool(DECOMPOSE)
{
    int s = spatial(n), r = wf_rank_of(g, T(0));
    WfVal x = T(0);
    bool all = r > s;
    for (int i = 0; i < s; i++)
        all &= n->args[1].ints[n->args[1].n > 1 ? i : 0] == 1;
    if (r <= s)
        wf_fail_node(g, n, WF_E_SHAPES, "%s has not %d spatial dimensions", wf_shape_text(g, x), s);
    if (all) { /* one mean over everything */
        out[0] = wf_mean(g, x, WF_ALL_DIMS(r) & ~WF_ALL_DIMS(r - s), true);
        return 1;
    }
    for (int i = 0; i < s; i++)
        x = adaptive_avg(g, x, r - s + i, n->args[1].ints[n->args[1].n > 1 ? i : 0]);
    out[0] = x;
    return 1;
}

/* Uneven windows: every output looks at the whole input, masked; the flat place of its maximum is then read,
 * so that the gradient goes to the first maximum only. */
static void uneven_max(WfGraph *g, const WfNode *n, int s, const WfDim *sizes, WfVal *out)
{
    WfVal x = T(0), len, lead;
    int r = wf_rank_of(g, x), front = r - s;
    WfDim wide[WF_MAX_RANK], in[2] = {1, 1}, all = 1, shape[WF_MAX_RANK], flat[WF_MAX_RANK];
    if (r + s > WF_MAX_RANK)
        wf_fail_node(g, n, WF_E_OP_FORM, "too many dimensions");
    for (int i = 0; i < r + s; i++)
        wide[i] = i < front ? wf_size_of(g, x, i) : i < r ? 1 : wf_size_of(g, x, i - s);
    lead = wf_reshape(g, x, r + s, wide);
    for (int i = 0; i < s; i++) {
        WfDim at[WF_MAX_RANK];
        in[0] = wf_size_of(g, x, front + i);
        all = wf_emul(E(g), all, in[0]);
        for (int k = 0; k < 2 * s; k++)
            at[k] = k == i ? sizes[i] : k == s + i ? in[0] : 1;
        WfVal cover = wf_reshape(g, adaptive_cover(g, in[0], sizes[i], &len), 2 * s, at);
        lead = wf_where(g, cover, lead, wf_like(g, x, -INFINITY));
    }
    out[1] = wf_reduce(g, "prim.argmax", lead, window_dims(r, s), false);
    memcpy(shape, wf_value(g, out[1])->shape, sizeof shape);
    memcpy(flat, shape, sizeof shape);
    flat[front] = 1;
    for (int i = 0; i < s; i++)
        flat[front] = wf_emul(E(g), flat[front], sizes[i]);
    WfVal index = wf_reshape(g, out[1], front + 1, flat);
    flat[front] = all;
    out[0] = wf_reshape(g, wf_gather(g, wf_reshape(g, x, front + 1, flat), front, index), r, shape);
}

static int adaptive_max_pool(DECOMPOSE)
{
    int s = spatial(n), r = wf_rank_of(g, T(0));
    WfDim k[3], sizes[3];
    bool even = true;
    if (r <= s)
        wf_fail_node(g, n, WF_E_SHAPES, "%s has not %d spatial dimensions", wf_shape_text(g, T(0)), s);
    for (int i = 0; i < s; i++) {
        WfDim in = wf_size_of(g, T(0), r - s + i);
        sizes[i] = n->args[1].ints[n->args[1].n > 1 ? i : 0];
        k[i] = wf_efloordiv(E(g), in, sizes[i]);
        even &= wf_emul(E(g), k[i], sizes[i]) == in;
    }
    if (even)
        wf_emit_multi(g, out,
                      s == 1   ? "aten.max_pool1d_with_indices"
                      : s == 2 ? "aten.max_pool2d_with_indices"
                               : "aten.max_pool3d_with_indices",
                      "vI", T(0), k, s);
    else
        uneven_max(g, n, s, sizes, out);
    return 2;
}

#define NAME(text, fn)                                                  \
    {                                                                   \
        .schema = "aten." text, .family = WF_COMPOSITE, .decompose = fn \
    }
#define WINDOW(d, zero) \
    "Tensor self, int[" #d "] kernel_size, int[" #d "] stride=[], int[" #d "] padding=" zero
#define MAX_POOL(d, zero, one)                                                             \
    NAME("max_pool" #d "d(" WINDOW(d, zero) ", int[" #d "] dilation=" one                  \
                                            ", bool ceil_mode=False) -> Tensor",           \
         max_pool_only),                                                                   \
        NAME("max_pool" #d "d_with_indices(" WINDOW(d, zero) ", int[" #d "] dilation=" one \
                                                             ", bool ceil_mode=False) -> " \
                                                             "(Tensor, Tensor)",           \
             max_pool_with_indices)
#define COUNTS ", bool ceil_mode=False, bool count_include_pad=True"

static const WfOp ops[] = {
    {.schema = "nn.max_pool(Tensor x, int[] k, int[] stride, int[] pad, int[] hi, int[] dilation) -> (Tensor "
               "y, Tensor "
               "place)",
     .family = WF_COMPOSITE,
     .infer = max_pool_infer,
     .decompose = max_pool_rows,
     .vjp = max_pool_vjp},
    MAX_POOL(1, "[0]", "[1]"),
    MAX_POOL(2, "0", "1"),
    MAX_POOL(3, "0", "1"),
    NAME("avg_pool1d(" WINDOW(1, "[0]") COUNTS ") -> Tensor", avg_pool),
    NAME("avg_pool2d(" WINDOW(2, "0") COUNTS ", int? divisor_override=None) -> Tensor", avg_pool),
    NAME("avg_pool3d(" WINDOW(3, "0") COUNTS ", int? divisor_override=None) -> Tensor", avg_pool),
    NAME("adaptive_avg_pool1d(Tensor self, int[1] output_size) -> Tensor", adaptive_avg_pool),
    NAME("adaptive_avg_pool2d(Tensor self, SymInt[2] output_size) -> Tensor", adaptive_avg_pool),
    NAME("adaptive_avg_pool3d(Tensor self, SymInt[3] output_size) -> Tensor", adaptive_avg_pool),
    NAME("_adaptive_avg_pool2d(Tensor self, SymInt[2] output_size) -> Tensor", adaptive_avg_pool),
    NAME("_adaptive_avg_pool3d(Tensor self, SymInt[3] output_size) -> Tensor", adaptive_avg_pool),
    NAME("adaptive_max_pool1d(Tensor self, int[1] output_size) -> (Tensor, Tensor)", adaptive_max_pool),
    NAME("adaptive_max_pool2d(Tensor self, int[2] output_size) -> (Tensor, Tensor)", adaptive_max_pool),
    NAME("adaptive_max_pool3d(Tensor self, int[3] output_size) -> (Tensor, Tensor)", adaptive_max_pool),
    {0}};

void wf_ops_aten_pool(void)
{
    wf_register(ops);
}
