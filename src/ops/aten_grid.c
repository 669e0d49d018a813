/* Sampling at given places: x[N, C, s..] at grid[N, o.., s], coordinates from -1 to 1, last dimension first.
 * Each place reads its 2^s neighbours (or the nearest one) with a gather along the flattened spatial
 * dimensions; weights are pointwise in the grid, so its gradient comes by itself. Padding modes as in
 * ATen/native/GridSamplerUtils.h: 0 zeros, 1 border, 2 reflection. Interpolation: 0 linear, 1 nearest, 2 cubic (in two
 * dimensions; there the padding moves each of the 16 neighbours, not the place). */
#include "ops/ops_private.h"

#include <string.h>

#define E(g)          ((g)->exprs)
#define DECOMPOSE     WfGraph *g, const WfNode *n, WfVal *out
#define T(i)          wf_tensor(n, i)
#define BIN(op, a, b) wf_binary(g, "prim." op, a, b)

/* lo where x <= lo, hi where x >= hi, without gradient there */
static WfVal clip(WfGraph *g, WfVal x, WfVal hi)
{
    WfVal zero = wf_like(g, x, 0);
    return wf_where(g, BIN("le", x, zero), zero, wf_where(g, BIN("ge", x, hi), hi, x));
}

/* Folds x back into lo .. lo + span, as between two mirrors. */
static WfVal reflect(WfGraph *g, WfVal x, double lo, WfVal span)
{
    WfVal a = wf_unary(g, "prim.abs", wf_adds(g, x, -lo)), q = wf_unary(g, "prim.floor", wf_div(g, a, span));
    WfVal rest = wf_sub(g, a, wf_mul(g, wf_detach(g, q), span)), two = wf_like(g, x, 2);
    WfVal odd = BIN("ne", wf_binary(g, "prim.fmod", q, two), wf_like(g, x, 0));
    return wf_adds(g, wf_where(g, odd, wf_sub(g, span, rest), rest), lo);
}

/* A coordinate as position in elements along a dimension of the given size. */
static WfVal position(WfGraph *g, WfVal c, WfDim size, bool align)
{
    WfDtype t = wf_dtype_of(g, c);
    WfVal x = wf_muls(g, wf_adds(g, c, 1), 0.5);
    return align ? wf_mul(g, x, wf_dim_scalar(g, t, wf_esub(E(g), size, 1)))
                 : wf_adds(g, wf_mul(g, x, wf_dim_scalar(g, t, size)), -0.5);
}

/* A position after padding. */
static WfVal padded(WfGraph *g, WfVal x, WfDim size, int64_t padding, bool align)
{
    WfDtype t = wf_dtype_of(g, x);
    int64_t lit;
    WfVal n = wf_dim_scalar(g, t, size), last = wf_dim_scalar(g, t, wf_esub(E(g), size, 1));
    bool one = wf_elit(E(g), size, &lit) && lit == 1;
    if (padding == 2)
        x = align ? (one ? wf_muls(g, x, 0) : reflect(g, x, 0, last)) : reflect(g, x, -0.5, n);
    return padding ? clip(g, x, last) : x;
}

typedef struct {
    int s;
    WfVal x;                /* [N, C, all] */
    WfDim size[3], rows[3]; /* rows: N, C, places */
} Source;

/* x at integer positions (as floats), zero outside; at[k]: [N, places]. */
static WfVal read_at(WfGraph *g, const Source *s, const WfVal *at)
{
    WfVal flat = wf_scalar(g, WF_I64, 0), inside = 0;
    for (int k = 0; k < s->s; k++) {
        WfVal i = wf_cast(g, wf_detach(g, at[k]), WF_I64), zero = wf_scalar(g, WF_I64, 0);
        WfVal last = wf_dim_scalar(g, WF_I64, wf_esub(E(g), s->size[k], 1));
        WfVal ok = BIN("and", BIN("ge", i, zero), BIN("le", i, last));
        inside = inside ? BIN("and", inside, ok) : ok;
        i = BIN("min", BIN("max", i, zero), last);
        flat = wf_add(g, wf_mul(g, flat, wf_dim_scalar(g, WF_I64, s->size[k])), i);
    }
    WfVal index = wf_expand(g, wf_unsqueeze(g, flat, 1), 3, s->rows);
    WfVal v = wf_gather(g, s->x, 2, index);
    return wf_where(g, wf_unsqueeze(g, inside, 1), v, wf_like(g, v, 0));
}

static WfVal linear(WfGraph *g, const Source *s, const WfVal *pos)
{
    WfVal low[3], part[3], sum = 0;
    for (int k = 0; k < s->s; k++) {
        low[k] = wf_detach(g, wf_unary(g, "prim.floor", pos[k]));
        part[k] = wf_sub(g, pos[k], low[k]);
    }
    for (int corner = 0; corner < 1 << s->s; corner++) {
        WfVal at[3], w = 0;
        for (int k = 0; k < s->s; k++) {
            bool up = corner >> k & 1;
            WfVal f = up ? part[k] : wf_sub(g, wf_like(g, part[k], 1), part[k]);
            at[k] = up ? wf_adds(g, low[k], 1) : low[k];
            w = w ? wf_mul(g, w, f) : f;
        }
        WfVal v = wf_mul(g, read_at(g, s, at), wf_unsqueeze(g, w, 1));
        sum = sum ? wf_add(g, sum, v) : v;
    }
    return sum;
}

/* Two dimensions; the taps lie one before to two behind the place. */
static WfVal cubic(WfGraph *g, const Source *s, const WfVal *pos, int64_t padding, bool align)
{
    WfVal at[2][4], w[2][4], sum = 0;
    for (int k = 0; k < 2; k++) {
        WfVal low = wf_detach(g, wf_unary(g, "prim.floor", pos[k]));
        wf_cubic_weights(g, wf_sub(g, pos[k], low), w[k]);
        for (int i = 0; i < 4; i++)
            at[k][i] = padded(g, wf_adds(g, low, i - 1), s->size[k], padding, align);
    }
    for (int i = 0; i < 16; i++) {
        WfVal v = read_at(g, s, (WfVal[]){at[0][i / 4], at[1][i % 4]});
        v = wf_mul(g, v, wf_unsqueeze(g, wf_mul(g, w[0][i / 4], w[1][i % 4]), 1));
        sum = sum ? wf_add(g, sum, v) : v;
    }
    return sum;
}

static int grid_sampler(DECOMPOSE)
{
    WfVal x = T(0), grid = T(1), pos[3];
    int64_t mode = wf_lit(g, n, 2), padding = wf_lit(g, n, 3);
    int r = wf_rank_of(g, x), s = r - 2;
    bool align = wf_bool(n, 4);
    if (s < 2 || s > 3 || wf_rank_of(g, grid) != r || wf_size_of(g, grid, -1) != s)
        wf_fail_node(g, n, WF_E_SHAPES, "input %s and grid %s do not fit", wf_shape_text(g, x),
                     wf_shape_text(g, grid));
    if (mode == 2 && s != 2)
        wf_fail_node(g, n, WF_E_SHAPES, "bicubic sampling is for images, %s is none", wf_shape_text(g, x));
    WfDim shape[WF_MAX_RANK] = {wf_size_of(g, x, 0), wf_size_of(g, x, 1)}, all = 1, places = 1;
    Source src = {.s = s};
    for (int k = 0; k < s; k++) {
        src.size[k] = wf_size_of(g, x, 2 + k);
        all = wf_emul(E(g), all, src.size[k]);
        shape[2 + k] = wf_size_of(g, grid, 1 + k);
        places = wf_emul(E(g), places, shape[2 + k]);
    }
    memcpy(src.rows, (WfDim[]){shape[0], shape[1], places}, sizeof src.rows);
    src.x = wf_reshape(g, x, 3, (WfDim[]){shape[0], shape[1], all});
    for (int k = 0; k < s; k++) { /* the grid's last coordinate is the input's first spatial dimension */
        WfVal c = wf_slice(g, grid, r - 1, s - 1 - k, s - k, 1);
        pos[k] = position(g, wf_reshape(g, c, 2, (WfDim[]){shape[0], places}), src.size[k], align);
        if (mode != 2)
            pos[k] = padded(g, pos[k], src.size[k], padding, align);
        if (mode == 1)
            pos[k] = wf_unary(g, "prim.round", pos[k]);
    }
    WfVal y = mode == 0   ? linear(g, &src, pos)
              : mode == 1 ? read_at(g, &src, pos)
                          : cubic(g, &src, pos, padding, align);
    out[0] = wf_reshape(g, y, r, shape);
    return 1;
}

/* theta[N, s, s + 1] times (x, y, .., 1) at every place of size[N, C, s..]. */
static int affine_grid_generator(DECOMPOSE)
{
    WfVal theta = T(0), sum = 0;
    WfDtype t = wf_dtype_of(g, theta);
    int s = n->args[1].n - 2;
    WfDim shape[WF_MAX_RANK];
    if (s < 2 || s > 3 || wf_rank_of(g, theta) != 3 || wf_size_of(g, theta, 1) != s ||
        wf_size_of(g, theta, 2) != s + 1)
        wf_fail_node(g, n, WF_E_SHAPES, "theta is %s", wf_shape_text(g, theta));
    shape[0] = n->args[1].ints[0];
    for (int k = 0; k < s; k++)
        shape[1 + k] = n->args[1].ints[2 + k];
    shape[1 + s] = s;
    for (int k = 0; k <= s; k++) {
        WfDim wide[WF_MAX_RANK] = {shape[0], 1, 1, 1, 1};
        wide[1 + s] = s;
        WfVal v = wf_reshape(g, wf_slice(g, theta, 2, k, k + 1, 1), s + 2, wide);
        if (k < s) { /* coordinate k runs along spatial dimension s - 1 - k, from -1 to 1 */
            WfDim size = shape[s - k], line[WF_MAX_RANK] = {1, 1, 1, 1, 1};
            int64_t lit;
            line[s - k] = size;
            WfVal last = wf_dim_scalar(g, t, wf_esub(E(g), size, 1)), i = wf_iota(g, t, 1, &size, 0);
            WfVal c = wf_adds(g, wf_div(g, wf_muls(g, i, 2), last), -1);
            if (!wf_bool(n, 2))
                c = wf_mul(g, c, wf_div(g, last, wf_dim_scalar(g, t, size)));
            if (wf_elit(E(g), size, &lit) && lit < 2)
                c = wf_full(g, t, 1, &size, 0);
            v = wf_mul(g, v, wf_reshape(g, c, s + 2, line));
        }
        sum = sum ? wf_add(g, sum, v) : v;
    }
    out[0] = wf_expand(g, sum, s + 2, shape);
    return 1;
}

#define SAMPLER(name)                                                                                        \
    {                                                                                                        \
        .schema = "aten." name "(Tensor input, Tensor grid, int interpolation_mode, int padding_mode, bool " \
                  "align_corners) -> Tensor",                                                                \
        .family = WF_COMPOSITE, .decompose = grid_sampler                                                    \
    }

static const WfOp ops[] = {
    SAMPLER("grid_sampler"),
    SAMPLER("grid_sampler_2d"),
    SAMPLER("grid_sampler_3d"),
    {.schema = "aten.affine_grid_generator(Tensor theta, SymInt[] size, bool align_corners) -> Tensor",
     .family = WF_COMPOSITE,
     .decompose = affine_grid_generator},
    {0}};

void wf_ops_aten_grid(void)
{
    wf_register(ops);
}
