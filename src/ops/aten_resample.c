/* Resampling. Interpolation is linear and separable, so each dimension is a product with a matrix [out, in]
 * of weights that are computed from indices and never stored; its gradient is the transposed product. Nearest
 * neighbours are a reshape where the factor is whole, else rows read by a computed index. Sampling at given
 * places (grid_sampler) reads the neighbours of each place with gather. Source positions as in
 * ATen/native/UpSample.h and GridSamplerUtils.h. */
#include "ops/ops_private.h"

#include <math.h>
#include <string.h>

#define E(g)          ((g)->exprs)
#define DECOMPOSE     WfGraph *g, const WfNode *n, WfVal *out
#define T(i)          wf_tensor(n, i)
#define BIN(op, a, b) wf_binary(g, "prim." op, a, b)

/* ---- sizes and scales ---- */

typedef struct {
    int s;
    WfDim in[3], out[3];
    double scale[3];
    bool align; /* scale 0: from the sizes */
} Resize;

/* .vec: input, output_size?, [align_corners], scale_factors?; otherwise self, output_size, [align_corners],
 * scales.. */
static Resize resize_of(WfGraph *g, const WfNode *n, int s, bool has_align)
{
    Resize r = {.s = s, .align = has_align && wf_bool(n, 2)};
    const WfArg *size = &n->args[1], *factors = &n->args[2 + has_align];
    bool vec = !strcmp(n->schema->params[n->schema->n_params - 1].name, "scale_factors");
    int rank = wf_rank_of(g, T(0));
    if (rank != s + 2)
        wf_fail_node(g, n, WF_E_SHAPES, "%s has not %d spatial dimensions", wf_shape_text(g, T(0)), s);
    for (int i = 0; i < s; i++) {
        int64_t lit;
        r.in[i] = wf_size_of(g, T(0), 2 + i);
        if (vec && factors->kind == WF_ARG_FLOATS && factors->n)
            r.scale[i] = factors->floats[factors->n > i ? i : 0];
        else if (!vec && factors[i].kind != WF_ARG_NONE)
            r.scale[i] = wf_float(g, n, 2 + has_align + i);
        if (size->kind == WF_ARG_INTS && size->n) {
            r.out[i] = size->ints[size->n > i ? i : 0];
        } else if (wf_elit(E(g), r.in[i], &lit)) {
            r.out[i] = (WfDim)floor((double)lit * r.scale[i]);
        } else if (r.scale[i] == floor(r.scale[i])) {
            r.out[i] = wf_emul(E(g), r.in[i], (WfDim)r.scale[i]);
        } else {
            wf_fail_node(g, n, WF_E_OP_FORM, "a broken factor needs a static size");
        }
    }
    return r;
}

static WfVal number(WfGraph *g, WfDtype t, WfDim d)
{
    return wf_dim_scalar(g, t, d);
}

/* Input elements for one output element, as a value of rank 0. */
static WfVal step_of(WfGraph *g, const Resize *r, int i, WfDtype t)
{
    if (r->align) {
        int64_t out;
        if (wf_elit(E(g), r->out[i], &out) && out < 2)
            return wf_scalar(g, t, 0);
        return wf_div(g, number(g, t, wf_esub(E(g), r->in[i], 1)), number(g, t, wf_esub(E(g), r->out[i], 1)));
    }
    if (r->scale[i] > 0)
        return wf_scalar(g, t, 1 / r->scale[i]);
    return wf_div(g, number(g, t, r->in[i]), number(g, t, r->out[i]));
}

/* [out, 1]: the source position of each output element. */
static WfVal position(WfGraph *g, const Resize *r, int i, WfDtype t)
{
    WfVal o = wf_iota(g, t, 2, (WfDim[]){r->out[i], 1}, 0), step = step_of(g, r, i, t);
    if (r->align)
        return wf_mul(g, o, step);
    return wf_adds(g, wf_mul(g, wf_adds(g, o, 0.5), step), -0.5);
}

static WfVal columns(WfGraph *g, WfDim in, WfDtype t)
{
    return wf_iota(g, t, 2, (WfDim[]){1, in}, 1);
}

static WfVal clamp(WfGraph *g, WfVal x, WfVal lo, WfVal hi)
{
    return BIN("min", BIN("max", x, lo), hi);
}

/* weight where the column is `at`, else 0: one tap of each row */
static WfVal tap(WfGraph *g, WfVal column, WfVal at, WfVal weight)
{
    return wf_where(g, BIN("eq", column, at), weight, wf_like(g, weight, 0));
}

/* ---- weight matrices ---- */

static WfVal linear_weights(WfGraph *g, const Resize *r, int i, WfDtype t)
{
    WfVal zero = wf_scalar(g, t, 0), last = number(g, t, wf_esub(E(g), r->in[i], 1)),
          col = columns(g, r->in[i], t);
    WfVal src = BIN("max", position(g, r, i, t), zero),
          low = BIN("min", wf_unary(g, "prim.floor", src), last);
    WfVal high = BIN("min", wf_adds(g, low, 1), last), part = wf_sub(g, src, low);
    return wf_add(g, tap(g, col, low, wf_sub(g, wf_scalar(g, t, 1), part)), tap(g, col, high, part));
}

/* Keys' cubic convolution kernel (1981) for distances up to 1 and up to 2. */
static WfVal cubic_near(WfGraph *g, WfVal x, double a)
{
    WfVal v = wf_adds(g, wf_muls(g, x, a + 2), -(a + 3));
    return wf_adds(g, wf_mul(g, wf_mul(g, v, x), x), 1);
}

static WfVal cubic_far(WfGraph *g, WfVal x, double a)
{
    WfVal v = wf_adds(g, wf_muls(g, x, a), -5 * a);
    v = wf_adds(g, wf_mul(g, v, x), 8 * a);
    return wf_adds(g, wf_mul(g, v, x), -4 * a);
}

void wf_cubic_weights(WfGraph *g, WfVal part, WfVal w[4])
{
    const double a = -0.75;
    WfVal rest = wf_sub(g, wf_like(g, part, 1), part);
    w[0] = cubic_far(g, wf_adds(g, part, 1), a);
    w[1] = cubic_near(g, part, a);
    w[2] = cubic_near(g, rest, a);
    w[3] = cubic_far(g, wf_adds(g, rest, 1), a);
}

static WfVal cubic_weights(WfGraph *g, const Resize *r, int i, WfDtype t)
{
    WfVal zero = wf_scalar(g, t, 0),
          last = number(g, t, wf_esub(E(g), r->in[i], 1));
    WfVal src = position(g, r, i, t), low = wf_unary(g, "prim.floor", src), part = wf_sub(g, src, low),
          sum = 0;
    WfVal col = columns(g, r->in[i], t), w[4];
    wf_cubic_weights(g, part, w);
    for (int k = 0; k < 4; k++) { /* taps beyond the edge fall on it */
        WfVal v = tap(g, col, clamp(g, wf_adds(g, low, k - 1), zero, last), w[k]);
        sum = sum ? wf_add(g, sum, v) : v;
    }
    return sum;
}

/* Antialiased: the kernel widens when shrinking; weights of a row add up to one. */
static WfVal wide_weights(WfGraph *g, const Resize *r, int i, WfDtype t, bool cubic)
{
    WfVal one = wf_scalar(g, t, 1), zero = wf_scalar(g, t, 0), step = step_of(g, r, i, t),
          size = number(g, t, r->in[i]);
    WfVal stretch = BIN("max", step, one), support = wf_muls(g, stretch, cubic ? 2 : 1);
    WfVal o = wf_iota(g, t, 2, (WfDim[]){r->out[i], 1}, 0), centre = wf_mul(g, wf_adds(g, o, 0.5), step);
    WfVal first = wf_unary(g, "prim.trunc", wf_adds(g, wf_sub(g, centre, support), 0.5));
    WfVal end = wf_unary(g, "prim.trunc", wf_adds(g, wf_add(g, centre, support), 0.5));
    first = BIN("max", first, zero);
    end = BIN("min", end, size);
    WfVal col = columns(g, r->in[i], t), d = wf_sub(g, wf_adds(g, col, 0.5), centre), w;
    d = wf_unary(g, "prim.abs", wf_div(g, d, stretch));
    if (cubic) {
        WfVal far = wf_where(g, BIN("lt", d, wf_scalar(g, t, 2)), cubic_far(g, d, -0.5), zero);
        w = wf_where(g, BIN("lt", d, one), cubic_near(g, d, -0.5), far);
    } else {
        w = BIN("max", wf_sub(g, one, d), zero);
    }
    w = wf_where(g, BIN("and", BIN("ge", col, first), BIN("lt", col, end)), w, zero);
    return wf_div(g, w, wf_sum(g, w, 2, true));
}

typedef enum { LINEAR, CUBIC, WIDE_LINEAR, WIDE_CUBIC } Kind;

static int interpolate(WfGraph *g, const WfNode *n, int s, Kind kind, WfVal *out)
{
    Resize r = resize_of(g, n, s, true);
    WfVal x = wf_wide(g, T(0));
    WfDtype t = wf_dtype_of(g, x);
    for (int i = s - 1; i >= 0; i--) {
        if (r.in[i] == r.out[i] && (r.align || r.scale[i] == 0 || r.scale[i] == 1))
            continue;
        WfVal w = kind == LINEAR  ? linear_weights(g, &r, i, t)
                  : kind == CUBIC ? cubic_weights(g, &r, i, t)
                                  : wide_weights(g, &r, i, t, kind == WIDE_CUBIC);
        x = wf_resample(g, x, 2 + i, wf_detach(g, w));
    }
    out[0] = wf_cast(g, x, wf_dtype_of(g, T(0)));
    return 1;
}

static int linear1d(DECOMPOSE)
{
    return interpolate(g, n, 1, LINEAR, out);
}
static int bilinear2d(DECOMPOSE)
{
    return interpolate(g, n, 2, LINEAR, out);
}
static int trilinear3d(DECOMPOSE)
{
    return interpolate(g, n, 3, LINEAR, out);
}
static int bicubic2d(DECOMPOSE)
{
    return interpolate(g, n, 2, CUBIC, out);
}
static int bilinear2d_aa(DECOMPOSE)
{
    return interpolate(g, n, 2, WIDE_LINEAR, out);
}
static int bicubic2d_aa(DECOMPOSE)
{
    return interpolate(g, n, 2, WIDE_CUBIC, out);
}

/* ---- nearest ---- */

static WfVal nearest_dim(WfGraph *g, WfVal x, const Resize *r, int i, double shift)
{
    WfExprs *e = E(g);
    int dim = 2 + i, rank = wf_rank_of(g, x);
    WfDim times = wf_efloordiv(e, r->out[i], r->in[i]), shape[WF_MAX_RANK + 1];
    int64_t whole;
    bool by_size = r->scale[i] == 0 || (wf_elit(e, times, &whole) && r->scale[i] == (double)whole);
    if (r->out[i] == r->in[i] && by_size)
        return x;
    if (wf_emul(e, times, r->in[i]) == r->out[i] && by_size &&
        rank < WF_MAX_RANK) { /* each element several times */
        for (int d = 0, k = 0; d < rank; d++) {
            shape[k++] = wf_size_of(g, x, d);
            if (d == dim)
                shape[k++] = times;
        }
        WfVal v = wf_expand(g, wf_unsqueeze(g, x, dim + 1), rank + 1, shape);
        shape[dim] = r->out[i];
        memmove(shape + dim + 1, shape + dim + 2, (size_t)(rank - dim - 1) * sizeof *shape);
        return wf_reshape(g, v, rank, shape);
    }
    WfVal o = wf_adds(g, wf_iota(g, WF_F32, 1, &r->out[i], 0), shift);
    WfVal at = wf_cast(g, wf_unary(g, "prim.floor", wf_mul(g, o, step_of(g, r, i, WF_F32))), WF_I64);
    at = BIN("min", at, number(g, WF_I64, wf_esub(e, r->in[i], 1)));
    return wf_take_rows(g, x, dim, at);
}

static int nearest(WfGraph *g, const WfNode *n, int s, double shift, WfVal *out)
{
    Resize r = resize_of(g, n, s, false);
    out[0] = T(0);
    for (int i = 0; i < s; i++)
        out[0] = nearest_dim(g, out[0], &r, i, shift);
    return 1;
}

static int nearest1d(DECOMPOSE)
{
    return nearest(g, n, 1, 0, out);
}
static int nearest2d(DECOMPOSE)
{
    return nearest(g, n, 2, 0, out);
}
static int nearest3d(DECOMPOSE)
{
    return nearest(g, n, 3, 0, out);
}
static int exact1d(DECOMPOSE)
{
    return nearest(g, n, 1, 0.5, out);
}
static int exact2d(DECOMPOSE)
{
    return nearest(g, n, 2, 0.5, out);
}
static int exact3d(DECOMPOSE)
{
    return nearest(g, n, 3, 0.5, out);
}

#define NAME(text, fn)                                                  \
    {                                                                   \
        .schema = "aten." text, .family = WF_COMPOSITE, .decompose = fn \
    }
#define VEC(name, align, fn) \
    NAME(name ".vec(Tensor input, SymInt[]? output_size, " align "float[]? scale_factors) -> Tensor", fn)
#define SIZED(name, d, align, scales, fn) \
    NAME(name "(Tensor self, SymInt[" #d "] output_size, " align scales, fn)
#define S1                               "float? scales=None) -> Tensor"
#define S2                               "float? scales_h=None, float? scales_w=None) -> Tensor"
#define S3                               "float? scales_d=None, float? scales_h=None, float? scales_w=None) -> Tensor"
#define ALIGN                            "bool align_corners, "
#define BOTH(name, d, align, scales, fn) VEC(name, align, fn), SIZED(name, d, align, scales, fn)

static const WfOp ops[] = {BOTH("upsample_nearest1d", 1, "", S1, nearest1d),
                           BOTH("upsample_nearest2d", 2, "", S2, nearest2d),
                           BOTH("upsample_nearest3d", 3, "", S3, nearest3d),
                           BOTH("_upsample_nearest_exact1d", 1, "", S1, exact1d),
                           BOTH("_upsample_nearest_exact2d", 2, "", S2, exact2d),
                           BOTH("_upsample_nearest_exact3d", 3, "", S3, exact3d),
                           BOTH("upsample_linear1d", 1, ALIGN, S1, linear1d),
                           BOTH("upsample_bilinear2d", 2, ALIGN, S2, bilinear2d),
                           BOTH("upsample_trilinear3d", 3, ALIGN, S3, trilinear3d),
                           BOTH("upsample_bicubic2d", 2, ALIGN, S2, bicubic2d),
                           BOTH("_upsample_bilinear2d_aa", 2, ALIGN, S2, bilinear2d_aa),
                           BOTH("_upsample_bicubic2d_aa", 2, ALIGN, S2, bicubic2d_aa),
                           {0}};

void wf_ops_aten_resample(void)
{
    wf_register(ops);
}
