/* Special functions and arithmetic that is seldom needed. The gamma functions are computed in double, whatever the
 * operand: the argument is raised by 8 where it is small, then Stirling's series follows (Abramowitz and Stegun, 6.1.40,
 * 6.3.18, 6.4.12); arguments up to 0 are reflected. Their gradients are those of the series. */
#include "ops/ops_private.h"

#include <math.h>

#define DECOMPOSE(name) static int name(WfGraph *g, const WfNode *n, WfVal *out)
#define DONE(v) do { out[0] = (v); return 1; } while (0)

static const int two[2] = {0, 1};

static WfVal is(WfGraph *g, const char *how, WfVal x, double v)
{
    return wf_binary(g, how, x, wf_like(g, x, v));
}
static WfVal both(WfGraph *g, WfVal a, WfVal b) { return wf_binary(g, "prim.and", a, b); }
static WfVal either(WfGraph *g, WfVal a, WfVal b) { return wf_binary(g, "prim.or", a, b); }
static WfVal no(WfGraph *g, WfVal a) { return wf_unary(g, "prim.not", a); }
static WfVal inverse(WfGraph *g, WfVal x) { return wf_unary(g, "prim.reciprocal", x); }
static WfVal logarithm(WfGraph *g, WfVal x) { return wf_unary(g, "prim.log", x); }

static WfVal as_float(WfGraph *g, const WfNode *n, int arg) { return wf_operand(g, n, arg, wf_promote_float(g, n, &arg, 1)); }
static void pair(WfGraph *g, const WfNode *n, bool to_float, WfVal *x, WfVal *y)
{
    WfDtype t = to_float ? wf_promote_float(g, n, two, 2) : wf_promote(g, n, two, 2);
    *x = wf_operand(g, n, 0, t);
    *y = wf_operand(g, n, 1, t);
}

/* ---- the gamma function ---- */

typedef struct {
    WfVal x, y, small, sum; /* x > 0; y is x, or x + 8 where it is small; sum of f(x + i) over those 8, elsewhere 0 */
    WfVal low, r;           /* x was at most 0; its distance to the nearest integer there, elsewhere 1/2 */
    WfVal pole;             /* x is 0 or a negative integer */
    WfDtype t;
} Gamma;

/* The operand of a gamma function; `rule`, the term that the recurrence adds for each step. */
static Gamma raised(WfGraph *g, const WfNode *n, int arg, WfVal (*rule)(WfGraph *, WfVal))
{
    WfVal given = as_float(g, n, arg), x = wf_cast(g, given, WF_F64);
    Gamma a = {.t = wf_dtype_of(g, given), .low = is(g, "prim.le", x, 0)};
    WfVal off = wf_sub(g, x, wf_unary(g, "prim.round", x));
    a.r = wf_where(g, a.low, off, wf_like(g, x, 0.5));
    a.pole = both(g, a.low, is(g, "prim.eq", off, 0));
    a.x = wf_where(g, a.low, wf_sub(g, wf_like(g, x, 1), x), x);
    a.small = is(g, "prim.lt", a.x, 8);
    WfVal base = wf_where(g, a.small, a.x, wf_like(g, x, 8)), sum = rule(g, base);
    for (int i = 1; i < 8; i++)
        sum = wf_add(g, sum, rule(g, wf_adds(g, base, i)));
    a.sum = wf_where(g, a.small, sum, wf_like(g, x, 0));
    a.y = wf_where(g, a.small, wf_adds(g, a.x, 8), a.x);
    return a;
}

/* z times c[0] + c[1] z^2 + c[2] z^4 ... */
static WfVal odd_series(WfGraph *g, WfVal z, const double *c, int n)
{
    WfVal zz = wf_mul(g, z, z), s = wf_like(g, z, c[n - 1]);
    for (int i = n - 2; i >= 0; i--)
        s = wf_adds(g, wf_mul(g, s, zz), c[i]);
    return wf_mul(g, s, z);
}
static WfVal sine(WfGraph *g, WfVal r) { return wf_unary(g, "prim.sin", wf_muls(g, r, M_PI)); }
static WfVal inverse_square(WfGraph *g, WfVal x) { return inverse(g, wf_mul(g, x, x)); }

static WfVal lgamma_of(WfGraph *g, const WfNode *n, int arg)
{
    static const double c[] = {1. / 12, -1. / 360, 1. / 1260, -1. / 1680, 1. / 1188, -691. / 360360, 1. / 156};
    Gamma a = raised(g, n, arg, logarithm);
    WfVal v = wf_mul(g, wf_adds(g, a.y, -0.5), logarithm(g, a.y));
    v = wf_add(g, wf_adds(g, wf_sub(g, v, a.y), 0.91893853320467274178), odd_series(g, inverse(g, a.y), c, 7));
    v = wf_sub(g, v, a.sum);
    WfVal s = wf_where(g, a.pole, wf_like(g, a.r, 1), wf_unary(g, "prim.abs", sine(g, a.r)));
    WfVal mirrored = wf_sub(g, wf_adds(g, wf_neg(g, logarithm(g, s)), 1.14472988584940017414), v);
    v = wf_where(g, a.low, mirrored, v);
    return wf_cast(g, wf_where(g, a.pole, wf_like(g, v, INFINITY), v), a.t);
}
DECOMPOSE(lgamma_op) { DONE(lgamma_of(g, n, 0)); }

static WfVal digamma_of(WfGraph *g, const WfNode *n, int arg)
{
    static const double c[] = {-1. / 12, 1. / 120, -1. / 252, 1. / 240, -1. / 132, 691. / 32760, -1. / 12};
    Gamma a = raised(g, n, arg, inverse);
    WfVal z = inverse(g, a.y), v = wf_sub(g, logarithm(g, a.y), wf_muls(g, z, 0.5));
    v = wf_sub(g, wf_add(g, v, wf_mul(g, z, odd_series(g, z, c, 7))), a.sum);
    WfVal angle = wf_muls(g, wf_where(g, a.pole, wf_like(g, a.r, 0.5), a.r), M_PI);
    WfVal cot = wf_div(g, wf_unary(g, "prim.cos", angle), wf_unary(g, "prim.sin", angle));
    v = wf_where(g, a.low, wf_sub(g, v, wf_muls(g, cot, M_PI)), v);
    WfVal x = wf_cast(g, as_float(g, n, arg), WF_F64);
    WfVal end = wf_where(g, is(g, "prim.eq", x, 0), wf_neg(g, wf_unary(g, "prim.reciprocal", x)), wf_like(g, v, NAN));
    return wf_cast(g, wf_where(g, a.pole, wf_detach(g, end), v), a.t);
}
DECOMPOSE(mvlgamma_op) /* p (p - 1) / 4 log(pi) + sum of lgamma(x - i / 2) */
{
    int64_t p = wf_lit(g, n, 1);
    WfVal x = as_float(g, n, 0), v = 0;
    if (p < 1 || p > 256)
        wf_fail_node(g, n, WF_E_SHAPES, "p is %lld, expected 1 to 256", (long long)p);
    for (int64_t i = 0; i < p; i++) {
        WfVal one = wf_emit(g, "aten.lgamma", "v", wf_adds(g, x, -0.5 * (double)i));
        v = v ? wf_add(g, v, one) : one;
    }
    DONE(wf_adds(g, v, (double)(p * (p - 1)) / 4 * 1.14472988584940017414));
}
DECOMPOSE(digamma_op) { DONE(digamma_of(g, n, 0)); }
DECOMPOSE(polygamma_op) /* n, x */
{
    static const double c[] = {1. / 6, -1. / 30, 1. / 42, -1. / 30, 5. / 66, -691. / 2730, 7. / 6};
    int64_t order = wf_lit(g, n, 0);
    if (order == 0)
        DONE(digamma_of(g, n, 1));
    if (order != 1)
        wf_fail_node(g, n, WF_E_OP_FORM, "polygamma of order %lld: only 0 and 1 are supported", (long long)order);
    Gamma a = raised(g, n, 1, inverse_square);
    WfVal z = inverse(g, a.y), zz = wf_mul(g, z, z), v = wf_add(g, z, wf_muls(g, zz, 0.5));
    v = wf_add(g, wf_add(g, v, wf_mul(g, zz, odd_series(g, z, c, 7))), a.sum);
    WfVal s = wf_muls(g, sine(g, wf_where(g, a.pole, wf_like(g, a.r, 0.5), a.r)), 1 / M_PI);
    v = wf_where(g, a.low, wf_sub(g, inverse_square(g, s), v), v);
    DONE(wf_cast(g, wf_where(g, a.pole, wf_like(g, v, INFINITY), v), a.t));
}

/* ---- the normal distribution, entropy ---- */

DECOMPOSE(ndtr_op) /* erfc(-x / sqrt(2)) / 2 */
{
    WfVal x = as_float(g, n, 0), e = wf_unary(g, "prim.erf", wf_muls(g, x, M_SQRT1_2));
    DONE(wf_muls(g, wf_adds(g, e, 1), 0.5));
}
DECOMPOSE(entr_op) /* -x log x; 0 at 0, -inf below */
{
    WfVal x = as_float(g, n, 0), more = is(g, "prim.gt", x, 0);
    WfVal s = wf_where(g, more, x, wf_like(g, x, 1)), v = wf_neg(g, wf_mul(g, s, logarithm(g, s)));
    v = wf_where(g, is(g, "prim.lt", x, 0), wf_like(g, x, -INFINITY), v);
    DONE(wf_where(g, wf_unary(g, "prim.isnan", x), x, v));
}
DECOMPOSE(xlog1py_op) /* x log(1 + y), 0 where x is 0 (unless y is NaN) */
{
    WfVal x, y;
    pair(g, n, true, &x, &y);
    WfVal none = both(g, is(g, "prim.eq", x, 0), is(g, "prim.le", y, -1));
    DONE(wf_mul(g, x, wf_unary(g, "prim.log1p", wf_where(g, none, wf_like(g, y, 0), y))));
}

/* ---- signs ---- */

static WfVal negative(WfGraph *g, WfVal x) /* the sign bit, also of -0 */
{
    WfVal less = is(g, "prim.lt", x, 0);
    if (!wf_dtype_is_float(wf_dtype_of(g, x)))
        return less;
    return either(g, less, both(g, is(g, "prim.eq", x, 0), is(g, "prim.lt", inverse(g, x), 0)));
}
DECOMPOSE(signbit_op)
{
    WfVal x = wf_tensor(n, 0);
    const WfValue *v = wf_value(g, x);
    DONE(v->dtype == WF_BOOL ? wf_full(g, WF_BOOL, v->rank, v->shape, 0) : negative(g, x));
}
DECOMPOSE(copysign_op) /* y has the gradient of its sign: zero, which is not none */
{
    WfVal x, y;
    pair(g, n, true, &x, &y);
    WfVal one = wf_where(g, negative(g, y), wf_like(g, y, -1), wf_like(g, y, 1));
    WfVal s = wf_where(g, is(g, "prim.ne", wf_unary(g, "prim.abs", wf_unary(g, "prim.sign", y)), 1), one,
                       wf_unary(g, "prim.sign", y));
    DONE(wf_mul(g, wf_unary(g, "prim.abs", x), s));
}
DECOMPOSE(heaviside_op)
{
    WfVal x = wf_tensor(n, 0), y = wf_operand(g, n, 1, wf_dtype_of(g, x));
    WfVal step = wf_where(g, is(g, "prim.lt", x, 0), wf_like(g, x, 0), wf_like(g, x, 1));
    DONE(wf_detach(g, wf_where(g, is(g, "prim.eq", x, 0), y, step)));
}
static int infinite(WfGraph *g, const WfNode *n, WfVal *out, double which)
{
    WfVal x = wf_tensor(n, 0);
    const WfValue *v = wf_value(g, x);
    DONE(wf_dtype_is_float(v->dtype) ? is(g, "prim.eq", x, which) : wf_full(g, WF_BOOL, v->rank, v->shape, 0));
}
DECOMPOSE(isposinf_op) { return infinite(g, n, out, INFINITY); }
DECOMPOSE(isneginf_op) { return infinite(g, n, out, -INFINITY); }

/* ---- two operands ---- */

/* A NaN gives way to the other operand; ties share the gradient. */
static int numbers_extremum(WfGraph *g, const WfNode *n, WfVal *out, const char *prim)
{
    WfVal x, y;
    pair(g, n, false, &x, &y);
    if (!wf_dtype_is_float(wf_dtype_of(g, x)))
        DONE(wf_binary(g, prim, x, y));
    WfVal a = wf_where(g, wf_unary(g, "prim.isnan", x), y, x), b = wf_where(g, wf_unary(g, "prim.isnan", y), x, y);
    DONE(wf_binary(g, prim, a, b));
}
DECOMPOSE(fmax_op) { return numbers_extremum(g, n, out, "prim.max"); }
DECOMPOSE(fmin_op) { return numbers_extremum(g, n, out, "prim.min"); }

DECOMPOSE(logaddexp2_op) /* m + log2(2^(x - m) + 2^(y - m)); equal infinities give themselves */
{
    WfVal x, y;
    pair(g, n, true, &x, &y);
    WfVal m = wf_detach(g, wf_binary(g, "prim.max", x, y)), inf = is(g, "prim.eq", wf_unary(g, "prim.abs", m), INFINITY);
    WfVal s = wf_where(g, inf, wf_like(g, m, 0), m);
    WfVal a = wf_unary(g, "prim.exp", wf_muls(g, wf_sub(g, x, s), M_LN2));
    WfVal b = wf_unary(g, "prim.exp", wf_muls(g, wf_sub(g, y, s), M_LN2));
    DONE(wf_add(g, s, wf_muls(g, logarithm(g, wf_add(g, a, b)), M_LOG2E)));
}
DECOMPOSE(ldexp_op) /* x 2^y */
{
    WfVal x, y;
    pair(g, n, true, &x, &y);
    DONE(wf_mul(g, x, wf_binary(g, "prim.pow", wf_like(g, y, 2), y)));
}
DECOMPOSE(float_power_op) /* in double */
{
    WfVal x = wf_operand(g, n, 0, WF_F64);
    if (n->args[1].kind == WF_ARG_TENSOR)
        DONE(wf_emit(g, "aten.pow.Tensor_Tensor", "vv", x, wf_operand(g, n, 1, WF_F64)));
    DONE(wf_emit(g, "aten.pow.Tensor_Scalar", "va", x, &n->args[1]));
}
DECOMPOSE(isclose_op) /* |x - y| <= atol + rtol |y|, or equal, or both NaN where these count as equal */
{
    WfVal x, y;
    pair(g, n, false, &x, &y);
    WfVal same = wf_binary(g, "prim.eq", x, y);
    if (!wf_dtype_is_float(wf_dtype_of(g, x))) {
        x = wf_cast(g, x, WF_F64);
        y = wf_cast(g, y, WF_F64);
    } else if (wf_bool(n, 4)) {
        same = either(g, same, both(g, wf_unary(g, "prim.isnan", x), wf_unary(g, "prim.isnan", y)));
    }
    WfVal room = wf_adds(g, wf_unary(g, "prim.abs", wf_muls(g, y, wf_float(g, n, 2))), wf_float(g, n, 3));
    WfVal apart = wf_unary(g, "prim.abs", wf_sub(g, x, y));
    WfVal near = both(g, wf_binary(g, "prim.le", apart, room), no(g, is(g, "prim.eq", apart, INFINITY)));
    DONE(either(g, same, near));
}

#define UNARY(name) ROW(#name "(Tensor self) -> Tensor", name##_op)
#define BINARY(name) ROW(#name "(Tensor self, Tensor other) -> Tensor", name##_op)

static const WfOp ops[] = {
    UNARY(lgamma), ROW("mvlgamma(Tensor self, int p) -> Tensor", mvlgamma_op),
    ROW("special_multigammaln(Tensor self, int p) -> Tensor", mvlgamma_op), UNARY(digamma), ROW("polygamma(int n, Tensor self) -> Tensor", polygamma_op),
    ROW("special_polygamma(int n, Tensor self) -> Tensor", polygamma_op),
    ROW("special_ndtr(Tensor self) -> Tensor", ndtr_op), ROW("special_entr(Tensor self) -> Tensor", entr_op),
    ROW("special_xlog1py(Tensor self, Tensor other) -> Tensor", xlog1py_op),
    ROW("special_xlog1py.other_scalar(Tensor self, Scalar other) -> Tensor", xlog1py_op),
    ROW("special_xlog1py.self_scalar(Scalar self, Tensor other) -> Tensor", xlog1py_op),
    UNARY(signbit), UNARY(isposinf), UNARY(isneginf),
    ROW("copysign.Tensor(Tensor self, Tensor other) -> Tensor", copysign_op),
    ROW("copysign.Scalar(Tensor self, Scalar other) -> Tensor", copysign_op),
    ROW("heaviside(Tensor self, Tensor values) -> Tensor", heaviside_op), BINARY(fmax), BINARY(fmin),
    BINARY(logaddexp2), ROW("ldexp.Tensor(Tensor self, Tensor other) -> Tensor", ldexp_op),
    ROW("float_power.Tensor_Tensor(Tensor self, Tensor exponent) -> Tensor", float_power_op),
    ROW("float_power.Tensor_Scalar(Tensor self, Scalar exponent) -> Tensor", float_power_op),
    ROW("float_power.Scalar(Scalar self, Tensor exponent) -> Tensor", float_power_op),
    ROW("isclose(Tensor self, Tensor other, float rtol=1e-05, float atol=1e-08, bool equal_nan=False) -> Tensor", isclose_op),
    {0}};

void wf_ops_aten_special(void) { wf_register(ops); }
