/* ATen's arithmetic, comparisons and elementary functions: type promotion, broadcasting, then one primitive or a few.
 * In-place variants are in inplace.c. */
#include "ops/ops_private.h"

#include <math.h>
#include <string.h>

#define DECOMPOSE(name) static int name(WfGraph *g, const WfNode *n, WfVal *out)
#define DONE(v) do { out[0] = (v); return 1; } while (0)

static const int two[2] = {0, 1};

static WfVal as_float(WfGraph *g, const WfNode *n, int arg)
{
    return wf_operand(g, n, arg, wf_promote_float(g, n, &arg, 1));
}

/* ---- one operand ---- */

static int float_unary(WfGraph *g, const WfNode *n, WfVal *out, const char *prim)
{
    DONE(wf_unary(g, prim, as_float(g, n, 0)));
}

static int any_unary(WfGraph *g, const WfNode *n, WfVal *out, const char *prim)
{
    DONE(wf_unary(g, prim, wf_tensor(n, 0)));
}

#define FLOAT1(name) DECOMPOSE(name##_op) { return float_unary(g, n, out, "prim." #name); }
#define ANY1(name) DECOMPOSE(name##_op) { return any_unary(g, n, out, "prim." #name); }
FLOAT1(exp) FLOAT1(expm1) FLOAT1(log) FLOAT1(log1p) FLOAT1(sin) FLOAT1(cos) FLOAT1(tanh) FLOAT1(asin) FLOAT1(acos)
FLOAT1(atan) FLOAT1(erf) FLOAT1(sqrt) FLOAT1(rsqrt) FLOAT1(reciprocal) FLOAT1(sigmoid)
ANY1(neg) ANY1(abs) ANY1(sign) ANY1(floor) ANY1(ceil) ANY1(trunc)

DECOMPOSE(round_op)
{
    WfVal x = wf_tensor(n, 0);
    int64_t digits = n->schema->n_params > 1 ? wf_lit(g, n, 1) : 0;
    if (!digits)
        DONE(wf_unary(g, "prim.round", x));
    double s = pow(10, (double)digits);
    DONE(wf_muls(g, wf_unary(g, "prim.round", wf_muls(g, x, s)), 1 / s));
}
DECOMPOSE(tan_op)
{
    WfVal x = as_float(g, n, 0);
    DONE(wf_div(g, wf_unary(g, "prim.sin", x), wf_unary(g, "prim.cos", x)));
}
DECOMPOSE(sinh_op) /* through expm1 of |x|, so that small values keep their digits: (m + m / (m + 1)) / 2 */
{
    WfVal x = as_float(g, n, 0), m = wf_unary(g, "prim.expm1", wf_unary(g, "prim.abs", x));
    WfVal y = wf_muls(g, wf_add(g, m, wf_div(g, m, wf_adds(g, m, 1))), 0.5);
    DONE(wf_where(g, wf_binary(g, "prim.lt", x, wf_like(g, x, 0)), wf_neg(g, y), y));
}
DECOMPOSE(cosh_op)
{
    WfVal x = as_float(g, n, 0);
    DONE(wf_muls(g, wf_add(g, wf_unary(g, "prim.exp", x), wf_unary(g, "prim.exp", wf_neg(g, x))), 0.5));
}
DECOMPOSE(log2_op) { DONE(wf_muls(g, wf_unary(g, "prim.log", as_float(g, n, 0)), 1.4426950408889634)); }
DECOMPOSE(log10_op) { DONE(wf_muls(g, wf_unary(g, "prim.log", as_float(g, n, 0)), 0.43429448190325182)); }
DECOMPOSE(exp2_op) { DONE(wf_unary(g, "prim.exp", wf_muls(g, as_float(g, n, 0), 0.69314718055994531))); }
DECOMPOSE(erfc_op)
{
    WfVal e = wf_unary(g, "prim.erf", as_float(g, n, 0));
    DONE(wf_sub(g, wf_like(g, e, 1), e));
}
DECOMPOSE(square_op) { DONE(wf_mul(g, wf_tensor(n, 0), wf_tensor(n, 0))); }
DECOMPOSE(positive_op) { (void)g; DONE(wf_tensor(n, 0)); }
DECOMPOSE(frac_op)
{
    WfVal x = wf_tensor(n, 0);
    DONE(wf_sub(g, x, wf_unary(g, "prim.trunc", x)));
}
DECOMPOSE(logit_op) /* eps None: log(x / (1 - x)); else x is clamped to [eps, 1 - eps] */
{
    WfVal x = as_float(g, n, 0);
    if (wf_has(n, 1)) {
        double eps = wf_float(g, n, 1);
        WfVal lo = wf_like(g, x, eps), hi = wf_like(g, x, 1 - eps), under = wf_binary(g, "prim.lt", x, lo);
        x = wf_where(g, under, lo, wf_where(g, wf_binary(g, "prim.gt", x, hi), hi, x));
    }
    DONE(wf_unary(g, "prim.log", wf_div(g, x, wf_sub(g, wf_like(g, x, 1), x))));
}
DECOMPOSE(isnan_op)
{
    WfVal x = wf_tensor(n, 0);
    if (wf_dtype_is_float(wf_dtype_of(g, x)))
        DONE(wf_unary(g, "prim.isnan", x));
    const WfValue *v = wf_value(g, x);
    DONE(wf_full(g, WF_BOOL, v->rank, v->shape, 0));
}
static WfVal is_inf(WfGraph *g, WfVal x)
{
    return wf_binary(g, "prim.eq", wf_unary(g, "prim.abs", x), wf_like(g, x, INFINITY));
}
DECOMPOSE(isinf_op)
{
    WfVal x = wf_tensor(n, 0);
    const WfValue *v = wf_value(g, x);
    DONE(wf_dtype_is_float(v->dtype) ? is_inf(g, x) : wf_full(g, WF_BOOL, v->rank, v->shape, 0));
}
DECOMPOSE(isfinite_op)
{
    WfVal x = wf_tensor(n, 0);
    const WfValue *v = wf_value(g, x);
    if (!wf_dtype_is_float(v->dtype))
        DONE(wf_full(g, WF_BOOL, v->rank, v->shape, 1));
    DONE(wf_unary(g, "prim.not", wf_binary(g, "prim.or", is_inf(g, x), wf_unary(g, "prim.isnan", x))));
}
static WfVal truth(WfGraph *g, WfVal x)
{
    return wf_dtype_of(g, x) == WF_BOOL ? x : wf_binary(g, "prim.ne", x, wf_like(g, x, 0));
}
DECOMPOSE(logical_not_op) { DONE(wf_unary(g, "prim.not", truth(g, wf_tensor(n, 0)))); }
DECOMPOSE(bitwise_not_op)
{
    WfVal x = wf_tensor(n, 0);
    DONE(wf_unary(g, wf_dtype_of(g, x) == WF_BOOL ? "prim.not" : "prim.bitnot", x));
}
DECOMPOSE(nan_to_num_op)
{
    WfVal x = wf_tensor(n, 0);
    bool d = wf_dtype_of(g, x) == WF_F64;
    double most = d ? 1.7976931348623157e308 : 3.4028234663852886e38;
    WfVal nan = wf_like(g, x, wf_has(n, 1) ? wf_float(g, n, 1) : 0);
    WfVal pos = wf_like(g, x, wf_has(n, 2) ? wf_float(g, n, 2) : most);
    WfVal neg = wf_like(g, x, wf_has(n, 3) ? wf_float(g, n, 3) : -most);
    if (!wf_dtype_is_float(wf_dtype_of(g, x)))
        DONE(x);
    WfVal y = wf_where(g, wf_binary(g, "prim.eq", x, wf_like(g, x, INFINITY)), pos, x);
    y = wf_where(g, wf_binary(g, "prim.eq", x, wf_like(g, x, -INFINITY)), neg, y);
    DONE(wf_where(g, wf_unary(g, "prim.isnan", x), nan, y));
}

/* ---- two operands ---- */

static WfVal combine(WfGraph *g, const WfNode *n, const char *prim, bool to_float)
{
    WfDtype t = to_float ? wf_promote_float(g, n, two, 2) : wf_promote(g, n, two, 2);
    return wf_binary(g, prim, wf_operand(g, n, 0, t), wf_operand(g, n, 1, t));
}

static bool has_alpha(const WfNode *n)
{
    return n->schema->n_params > 2 && !strcmp(n->schema->params[2].name, "alpha") &&
           !(n->args[2].kind == WF_ARG_INT && n->args[2].i == 1);
}

static WfVal plus(WfGraph *g, const WfNode *n, bool minus, bool reversed)
{
    WfDtype t = wf_promote(g, n, two, 2);
    WfVal x = wf_operand(g, n, reversed, t), y = wf_operand(g, n, !reversed, t);
    if (t == WF_BOOL)
        return wf_binary(g, "prim.or", x, y);
    if (has_alpha(n))
        y = wf_mul(g, y, wf_operand(g, n, 2, t));
    return minus ? wf_sub(g, x, y) : wf_add(g, x, y);
}
DECOMPOSE(add_op) { DONE(plus(g, n, false, false)); }
DECOMPOSE(sub_op) { DONE(plus(g, n, true, false)); }
DECOMPOSE(rsub_op) { DONE(plus(g, n, true, true)); }
DECOMPOSE(mul_op) { DONE(combine(g, n, wf_promote(g, n, two, 2) == WF_BOOL ? "prim.and" : "prim.mul", false)); }
DECOMPOSE(div_op) { DONE(combine(g, n, "prim.div", true)); }

static WfVal floor_divide(WfGraph *g, WfVal x, WfVal y)
{
    if (wf_dtype_is_float(wf_dtype_of(g, x))) {
        /* as PyTorch: (x - fmod(x, y)) / y, one less when the remainder's sign differs, then the nearest integer */
        WfVal m = wf_binary(g, "prim.fmod", x, y), zero = wf_like(g, x, 0);
        WfVal d = wf_div(g, wf_sub(g, x, m), y);
        WfVal off = wf_binary(g, "prim.and", wf_binary(g, "prim.ne", m, zero),
                              wf_binary(g, "prim.ne", wf_binary(g, "prim.lt", y, zero), wf_binary(g, "prim.lt", m, zero)));
        d = wf_where(g, off, wf_adds(g, d, -1), d);
        WfVal f = wf_unary(g, "prim.floor", d);
        f = wf_where(g, wf_binary(g, "prim.gt", wf_sub(g, d, f), wf_like(g, d, 0.5)), wf_adds(g, f, 1), f);
        return wf_where(g, wf_binary(g, "prim.eq", y, zero), wf_div(g, x, y), f);
    }
    WfVal q = wf_div(g, x, y), r = wf_sub(g, x, wf_mul(g, q, y)), zero = wf_like(g, x, 0);
    WfVal off = wf_binary(g, "prim.and", wf_binary(g, "prim.ne", r, zero),
                          wf_binary(g, "prim.ne", wf_binary(g, "prim.lt", r, zero), wf_binary(g, "prim.lt", y, zero)));
    return wf_where(g, off, wf_sub(g, q, wf_like(g, q, 1)), q);
}
DECOMPOSE(floor_divide_op)
{
    WfDtype t = wf_promote(g, n, two, 2);
    DONE(floor_divide(g, wf_operand(g, n, 0, t), wf_operand(g, n, 1, t)));
}
DECOMPOSE(div_mode_op)
{
    const char *mode = n->args[2].kind == WF_ARG_STRING ? n->args[2].s : NULL;
    if (!mode)
        return div_op(g, n, out);
    if (!strcmp(mode, "floor"))
        return floor_divide_op(g, n, out);
    WfVal q = combine(g, n, "prim.div", false);
    DONE(wf_dtype_is_float(wf_dtype_of(g, q)) ? wf_unary(g, "prim.trunc", q) : q);
}
DECOMPOSE(fmod_op) { DONE(combine(g, n, "prim.fmod", false)); }
DECOMPOSE(remainder_op) /* the sign of the divisor */
{
    WfDtype t = wf_promote(g, n, two, 2);
    WfVal x = wf_operand(g, n, 0, t), y = wf_operand(g, n, 1, t), m = wf_binary(g, "prim.fmod", x, y);
    WfVal zero = wf_like(g, m, 0);
    WfVal off = wf_binary(g, "prim.and", wf_binary(g, "prim.ne", m, zero),
                          wf_binary(g, "prim.ne", wf_binary(g, "prim.lt", m, zero), wf_binary(g, "prim.lt", y, zero)));
    DONE(wf_where(g, off, wf_add(g, m, y), m));
}
DECOMPOSE(maximum_op) { DONE(combine(g, n, "prim.max", false)); }
DECOMPOSE(minimum_op) { DONE(combine(g, n, "prim.min", false)); }
DECOMPOSE(atan2_op) { DONE(combine(g, n, "prim.atan2", true)); }

static WfVal int_power(WfGraph *g, WfVal x, int64_t k)
{
    WfVal r = 0;
    for (; k; k >>= 1) {
        if (k & 1)
            r = r ? wf_mul(g, r, x) : x;
        if (k > 1)
            x = wf_mul(g, x, x);
    }
    return r;
}
DECOMPOSE(pow_op)
{
    WfDtype t = wf_promote(g, n, two, 2);
    const WfArg *e = &n->args[1];
    if (e->kind == WF_ARG_INT || e->kind == WF_ARG_FLOAT) {
        double p = wf_float(g, n, 1);
        WfVal x = wf_operand(g, n, 0, t);
        if (p == 0) {
            const WfValue *v = wf_value(g, x);
            DONE(wf_full(g, t, v->rank, v->shape, 1));
        }
        if (p == floor(p) && p > 0 && (p <= 4 || !wf_dtype_is_float(t)))
            DONE(int_power(g, x, (int64_t)p));
        if (p == 0.5)
            DONE(wf_unary(g, "prim.sqrt", x));
        if (p == -0.5)
            DONE(wf_unary(g, "prim.rsqrt", x));
        if (p == -1)
            DONE(wf_unary(g, "prim.reciprocal", x));
        if (p == -2)
            DONE(wf_unary(g, "prim.reciprocal", wf_mul(g, x, x)));
    }
    if (!wf_dtype_is_float(t)) { /* integers: through double, exact up to 2^53 */
        WfVal y = wf_binary(g, "prim.pow", wf_operand(g, n, 0, WF_F64), wf_operand(g, n, 1, WF_F64));
        DONE(wf_cast(g, y, t));
    }
    DONE(wf_binary(g, "prim.pow", wf_operand(g, n, 0, t), wf_operand(g, n, 1, t)));
}

#define COMPARE(name) DECOMPOSE(name##_op) { DONE(combine(g, n, "prim." #name, false)); }
COMPARE(eq) COMPARE(ne) COMPARE(lt) COMPARE(le) COMPARE(gt) COMPARE(ge)

#define LOGICAL(name, prim)                                                                                           \
    DECOMPOSE(logical_##name##_op) { DONE(wf_binary(g, prim, truth(g, wf_tensor(n, 0)), truth(g, wf_tensor(n, 1)))); }
LOGICAL(and, "prim.and") LOGICAL(or, "prim.or") LOGICAL(xor, "prim.xor")
DECOMPOSE(and_op) { DONE(combine(g, n, "prim.and", false)); }
DECOMPOSE(or_op) { DONE(combine(g, n, "prim.or", false)); }
DECOMPOSE(xor_op) { DONE(combine(g, n, "prim.xor", false)); }
DECOMPOSE(shl_op) { DONE(combine(g, n, "prim.shl", false)); }
DECOMPOSE(shr_op) { DONE(combine(g, n, "prim.shr", false)); }

DECOMPOSE(logaddexp_op) /* max + log1p(exp(-|x - y|)); equal infinities give themselves */
{
    WfDtype t = wf_promote_float(g, n, two, 2);
    WfVal x = wf_operand(g, n, 0, t), y = wf_operand(g, n, 1, t), m = wf_detach(g, wf_binary(g, "prim.max", x, y));
    WfVal inf = is_inf(g, m), s = wf_where(g, inf, wf_like(g, m, 0), m);
    WfVal e = wf_add(g, wf_unary(g, "prim.exp", wf_sub(g, x, s)), wf_unary(g, "prim.exp", wf_sub(g, y, s)));
    DONE(wf_add(g, s, wf_unary(g, "prim.log", e)));
}

static WfVal polynomial(WfGraph *g, WfVal x, const double *c, int n)
{
    WfVal y = wf_like(g, x, c[0]);
    for (int i = 1; i < n; i++)
        y = wf_adds(g, wf_mul(g, y, x), c[i]);
    return y;
}
/* M. Giles, Approximating the erfinv function (GPU Computing Gems 2, 2010), single precision; in double two Newton
 * steps follow. Its derivative is sqrt(pi) / 2 exp(y^2): x - x is zero, but carries it. */
DECOMPOSE(erfinv_op)
{
    static const double centre[] = {2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087,
                                    -0.00125372503, -0.00417768164, 0.246640727, 1.50140941};
    static const double tail[] = {-0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773,
                                  -0.0076224613, 0.00943887047, 1.00167406, 2.83297682};
    WfDtype t = wf_promote_float(g, n, two, 1);
    WfVal in = wf_operand(g, n, 0, t), x = wf_detach(g, in), one = wf_like(g, x, 1);
    WfVal w = wf_neg(g, wf_unary(g, "prim.log", wf_mul(g, wf_sub(g, one, x), wf_add(g, one, x))));
    WfVal near = polynomial(g, wf_adds(g, w, -2.5), centre, 9);
    WfVal far = polynomial(g, wf_adds(g, wf_unary(g, "prim.sqrt", w), -3), tail, 9);
    WfVal y = wf_mul(g, wf_where(g, wf_binary(g, "prim.lt", w, wf_like(g, w, 5)), near, far), x), slope = 0;
    for (int i = t == WF_F64 ? 0 : 2; i < 3; i++) {
        slope = wf_muls(g, wf_unary(g, "prim.exp", wf_mul(g, y, y)), 0.88622692545275801);
        if (i < 2)
            y = wf_sub(g, y, wf_mul(g, wf_sub(g, wf_unary(g, "prim.erf", y), x), slope));
    }
    WfVal ends = wf_binary(g, "prim.eq", wf_unary(g, "prim.abs", x), one);
    y = wf_add(g, wf_detach(g, y), wf_mul(g, wf_sub(g, in, x), wf_detach(g, slope)));
    DONE(wf_where(g, ends, wf_muls(g, x, INFINITY), y));
}

DECOMPOSE(asinh_op) /* sign(x) log1p(a + a^2 / (1 + sqrt(a^2 + 1))), a = |x|; log(2 a) where squares overflow */
{
    WfVal x = as_float(g, n, 0), a = wf_unary(g, "prim.abs", x), big = wf_binary(g, "prim.gt", a, wf_like(g, a, 1e9));
    WfVal c = wf_where(g, big, wf_like(g, a, 1), a), cc = wf_mul(g, c, c);
    WfVal low = wf_add(g, c, wf_div(g, cc, wf_adds(g, wf_unary(g, "prim.sqrt", wf_adds(g, cc, 1)), 1)));
    WfVal high = wf_adds(g, wf_unary(g, "prim.log", wf_where(g, big, a, wf_like(g, a, 1))), 0.69314718055994531);
    WfVal y = wf_where(g, big, high, wf_unary(g, "prim.log1p", low)), zero = wf_binary(g, "prim.eq", x, wf_like(g, x, 0));
    y = wf_where(g, wf_binary(g, "prim.lt", x, wf_like(g, x, 0)), wf_neg(g, y), y);
    DONE(wf_where(g, zero, x, y)); /* so that the slope at 0 is 1 */
}
DECOMPOSE(acosh_op)
{
    WfVal x = as_float(g, n, 0), t = wf_adds(g, x, -1);
    WfVal root = wf_unary(g, "prim.sqrt", wf_mul(g, t, wf_adds(g, x, 1)));
    DONE(wf_unary(g, "prim.log1p", wf_add(g, t, root)));
}
DECOMPOSE(atanh_op) /* log1p(2 x / (1 - x)) / 2 */
{
    WfVal x = as_float(g, n, 0), one = wf_like(g, x, 1);
    DONE(wf_muls(g, wf_unary(g, "prim.log1p", wf_div(g, wf_muls(g, x, 2), wf_sub(g, one, x))), 0.5));
}
DECOMPOSE(sinc_op)
{
    WfVal x = as_float(g, n, 0), one = wf_like(g, x, 1), zero = wf_binary(g, "prim.eq", x, wf_like(g, x, 0));
    WfVal z = wf_where(g, zero, one, wf_muls(g, x, 3.14159265358979324));
    DONE(wf_where(g, zero, one, wf_div(g, wf_unary(g, "prim.sin", z), z)));
}
DECOMPOSE(deg2rad_op) { DONE(wf_muls(g, as_float(g, n, 0), 0.017453292519943296)); }
DECOMPOSE(rad2deg_op) { DONE(wf_muls(g, as_float(g, n, 0), 57.295779513082321)); }
DECOMPOSE(hypot_op) /* scaled by the larger one, so that no square overflows */
{
    WfDtype t = wf_promote_float(g, n, two, 2);
    WfVal x = wf_operand(g, n, 0, t), y = wf_operand(g, n, 1, t);
    WfVal m = wf_detach(g, wf_binary(g, "prim.max", wf_unary(g, "prim.abs", x), wf_unary(g, "prim.abs", y)));
    WfVal odd = wf_binary(g, "prim.or", wf_binary(g, "prim.eq", m, wf_like(g, m, 0)),
                          wf_binary(g, "prim.eq", m, wf_like(g, m, INFINITY)));
    m = wf_where(g, odd, wf_like(g, m, 1), m);
    x = wf_div(g, x, m);
    y = wf_div(g, y, m);
    DONE(wf_mul(g, wf_unary(g, "prim.sqrt", wf_add(g, wf_mul(g, x, x), wf_mul(g, y, y))), m));
}
DECOMPOSE(xlogy_op) /* x log y, 0 where x is 0 (unless y is NaN) */
{
    WfDtype t = wf_promote_float(g, n, two, 2);
    WfVal x = wf_operand(g, n, 0, t), y = wf_operand(g, n, 1, t), zero = wf_scalar(g, t, 0);
    WfVal none = wf_binary(g, "prim.and", wf_binary(g, "prim.eq", x, zero), wf_binary(g, "prim.le", y, zero));
    DONE(wf_mul(g, x, wf_unary(g, "prim.log", wf_where(g, none, wf_scalar(g, t, 1), y))));
}

/* ---- three and more ---- */

DECOMPOSE(where_op)
{
    static const int args[2] = {1, 2};
    WfDtype t = wf_promote(g, n, args, 2);
    DONE(wf_where(g, truth(g, wf_tensor(n, 0)), wf_operand(g, n, 1, t), wf_operand(g, n, 2, t)));
}
DECOMPOSE(masked_fill_op)
{
    WfVal x = wf_tensor(n, 0);
    DONE(wf_where(g, truth(g, wf_tensor(n, 1)), wf_operand(g, n, 2, wf_dtype_of(g, x)), x));
}
static WfVal clamp_to(WfGraph *g, const WfNode *n, int lo, int hi)
{
    int args[3] = {0}, k = 1;
    if (lo >= 0 && wf_has(n, lo))
        args[k++] = lo;
    if (hi >= 0 && wf_has(n, hi))
        args[k++] = hi;
    WfDtype t = wf_promote(g, n, args, k);
    WfVal x = wf_operand(g, n, 0, t);
    /* between numbers the gradient passes where lo < x < hi; a tie with a tensor shares it (PyTorch 2.15) */
    for (int i = 1; i < k; i++) {
        WfVal b = wf_operand(g, n, args[i], t);
        bool low = args[i] == lo;
        if (wf_tensor(n, args[i]))
            x = wf_binary(g, low ? "prim.max" : "prim.min", x, b);
        else
            x = wf_where(g, wf_binary(g, low ? "prim.le" : "prim.ge", x, b), b, x);
    }
    return x;
}
DECOMPOSE(clamp_op) { DONE(clamp_to(g, n, 1, 2)); }
DECOMPOSE(clamp_min_op) { DONE(clamp_to(g, n, 1, -1)); }
DECOMPOSE(clamp_max_op) { DONE(clamp_to(g, n, -1, 1)); }
DECOMPOSE(lerp_op) /* x + w (y - x), or y - (y - x)(1 - w) for |w| >= 1/2, as PyTorch */
{
    WfVal x = wf_tensor(n, 0), y = wf_tensor(n, 1), w = wf_operand(g, n, 2, wf_dtype_of(g, x)), d = wf_sub(g, y, x);
    WfVal a = wf_add(g, x, wf_mul(g, w, d)), b = wf_sub(g, y, wf_mul(g, d, wf_sub(g, wf_like(g, w, 1), w)));
    DONE(wf_where(g, wf_binary(g, "prim.lt", wf_unary(g, "prim.abs", w), wf_like(g, w, 0.5)), a, b));
}
static WfVal add_scaled(WfGraph *g, const WfNode *n, const char *prim)
{
    static const int args[3] = {0, 1, 2};
    WfDtype t = wf_promote(g, n, args, 3);
    WfVal p = wf_binary(g, prim, wf_operand(g, n, 1, t), wf_operand(g, n, 2, t));
    return wf_add(g, wf_operand(g, n, 0, t), wf_mul(g, p, wf_operand(g, n, 3, t)));
}
DECOMPOSE(addcmul_op) { DONE(add_scaled(g, n, "prim.mul")); }
DECOMPOSE(addcdiv_op) { DONE(add_scaled(g, n, "prim.div")); }

/* ---- conversions ---- */

DECOMPOSE(to_dtype_op) { DONE(n->args[1].kind == WF_ARG_DTYPE ? wf_cast(g, wf_tensor(n, 0), n->args[1].dtype) : wf_tensor(n, 0)); }
DECOMPOSE(to_device_op) { DONE(n->args[2].kind == WF_ARG_DTYPE ? wf_cast(g, wf_tensor(n, 0), n->args[2].dtype) : wf_tensor(n, 0)); }
DECOMPOSE(type_as_op) { DONE(wf_cast(g, wf_tensor(n, 0), wf_dtype_of(g, wf_tensor(n, 1)))); }

#define UNARY(name) ROW(#name "(Tensor self) -> Tensor", name##_op)
#define BINARY_T(name, ov) ROW(#name "." ov "(Tensor self, Tensor other) -> Tensor", name##_op)
#define BINARY_S(name) ROW(#name ".Scalar(Tensor self, Scalar other) -> Tensor", name##_op)
#define PAIR(name)                                                                                                    \
    BINARY_T(name, "Tensor"), BINARY_S(name)
#define ALPHA "*, Scalar alpha=1) -> Tensor"

static const WfOp ops[] = {
    UNARY(exp), UNARY(expm1), UNARY(log), UNARY(log1p), UNARY(log2), UNARY(log10), UNARY(exp2), UNARY(sin), UNARY(cos),
    UNARY(tan), UNARY(sinh), UNARY(cosh), UNARY(tanh), UNARY(asin), UNARY(acos), UNARY(atan), UNARY(erf), UNARY(erfc),
    UNARY(sqrt), UNARY(rsqrt), UNARY(reciprocal), UNARY(sigmoid), UNARY(neg), UNARY(abs), UNARY(sign), UNARY(floor),
    UNARY(ceil), UNARY(trunc), UNARY(round), UNARY(square), UNARY(frac), UNARY(logical_not), UNARY(bitwise_not),
    ROW("round.decimals(Tensor self, *, int decimals) -> Tensor", round_op), ROW("positive(Tensor self) -> Tensor", positive_op),
    ROW("logit(Tensor self, float? eps=None) -> Tensor", logit_op), ROW("isnan(Tensor self) -> Tensor", isnan_op),
    ROW("isinf(Tensor self) -> Tensor", isinf_op), ROW("isfinite(Tensor self) -> Tensor", isfinite_op),
    ROW("nan_to_num(Tensor self, float? nan=None, float? posinf=None, float? neginf=None) -> Tensor", nan_to_num_op),
    ROW("add.Tensor(Tensor self, Tensor other, " ALPHA, add_op), ROW("add.Scalar(Tensor self, Scalar other, Scalar alpha=1) -> Tensor", add_op),
    ROW("sub.Tensor(Tensor self, Tensor other, " ALPHA, sub_op), ROW("sub.Scalar(Tensor self, Scalar other, Scalar alpha=1) -> Tensor", sub_op),
    ROW("rsub.Tensor(Tensor self, Tensor other, " ALPHA, rsub_op), ROW("rsub.Scalar(Tensor self, Scalar other, Scalar alpha=1) -> Tensor", rsub_op),
    PAIR(mul), PAIR(div),
    ROW("div.Tensor_mode(Tensor self, Tensor other, *, str? rounding_mode) -> Tensor", div_mode_op),
    ROW("div.Scalar_mode(Tensor self, Scalar other, *, str? rounding_mode) -> Tensor", div_mode_op),
    ROW("floor_divide(Tensor self, Tensor other) -> Tensor", floor_divide_op),
    ROW("floor_divide.Scalar(Tensor self, Scalar other) -> Tensor", floor_divide_op), PAIR(fmod), PAIR(remainder),
    ROW("maximum(Tensor self, Tensor other) -> Tensor", maximum_op), ROW("minimum(Tensor self, Tensor other) -> Tensor", minimum_op),
    ROW("max.other(Tensor self, Tensor other) -> Tensor", maximum_op), ROW("min.other(Tensor self, Tensor other) -> Tensor", minimum_op),
    ROW("atan2(Tensor self, Tensor other) -> Tensor", atan2_op),
    ROW("pow.Tensor_Scalar(Tensor self, Scalar exponent) -> Tensor", pow_op), ROW("pow.Tensor_Tensor(Tensor self, Tensor exponent) -> Tensor", pow_op),
    ROW("pow.Scalar(Scalar self, Tensor exponent) -> Tensor", pow_op),
    PAIR(eq), PAIR(ne), PAIR(lt), PAIR(le), PAIR(gt), PAIR(ge),
    ROW("logical_and(Tensor self, Tensor other) -> Tensor", logical_and_op), ROW("logical_or(Tensor self, Tensor other) -> Tensor", logical_or_op),
    ROW("logical_xor(Tensor self, Tensor other) -> Tensor", logical_xor_op),
    ROW("bitwise_and.Tensor(Tensor self, Tensor other) -> Tensor", and_op), ROW("bitwise_and.Scalar(Tensor self, Scalar other) -> Tensor", and_op),
    ROW("bitwise_or.Tensor(Tensor self, Tensor other) -> Tensor", or_op), ROW("bitwise_or.Scalar(Tensor self, Scalar other) -> Tensor", or_op),
    ROW("bitwise_xor.Tensor(Tensor self, Tensor other) -> Tensor", xor_op), ROW("bitwise_xor.Scalar(Tensor self, Scalar other) -> Tensor", xor_op),
    ROW("__and__.Tensor(Tensor self, Tensor other) -> Tensor", and_op), ROW("__or__.Tensor(Tensor self, Tensor other) -> Tensor", or_op),
    ROW("__xor__.Tensor(Tensor self, Tensor other) -> Tensor", xor_op), ROW("__and__.Scalar(Tensor self, Scalar other) -> Tensor", and_op),
    ROW("__or__.Scalar(Tensor self, Scalar other) -> Tensor", or_op), ROW("__lshift__.Scalar(Tensor self, Scalar other) -> Tensor", shl_op),
    ROW("__rshift__.Scalar(Tensor self, Scalar other) -> Tensor", shr_op),
    ROW("bitwise_left_shift.Tensor(Tensor self, Tensor other) -> Tensor", shl_op),
    ROW("bitwise_right_shift.Tensor(Tensor self, Tensor other) -> Tensor", shr_op),
    ROW("logaddexp(Tensor self, Tensor other) -> Tensor", logaddexp_op), ROW("erfinv(Tensor self) -> Tensor", erfinv_op),
    ROW("asinh(Tensor self) -> Tensor", asinh_op),
    ROW("acosh(Tensor self) -> Tensor", acosh_op), ROW("atanh(Tensor self) -> Tensor", atanh_op),
    ROW("sinc(Tensor self) -> Tensor", sinc_op), ROW("deg2rad(Tensor self) -> Tensor", deg2rad_op),
    ROW("rad2deg(Tensor self) -> Tensor", rad2deg_op), ROW("hypot(Tensor self, Tensor other) -> Tensor", hypot_op),
    ROW("xlogy.Tensor(Tensor self, Tensor other) -> Tensor", xlogy_op),
    ROW("xlogy.Scalar_Self(Scalar self, Tensor other) -> Tensor", xlogy_op),
    ROW("xlogy.Scalar_Other(Tensor self, Scalar other) -> Tensor", xlogy_op),
    ROW("remainder.Scalar_Tensor(Scalar self, Tensor other) -> Tensor", remainder_op),
    ROW("where.self(Tensor condition, Tensor self, Tensor other) -> Tensor", where_op),
    ROW("where.ScalarSelf(Tensor condition, Scalar self, Tensor other) -> Tensor", where_op),
    ROW("where.ScalarOther(Tensor condition, Tensor self, Scalar other) -> Tensor", where_op),
    ROW("where.Scalar(Tensor condition, Scalar self, Scalar other) -> Tensor", where_op),
    ROW("masked_fill.Scalar(Tensor self, Tensor mask, Scalar value) -> Tensor", masked_fill_op),
    ROW("masked_fill.Tensor(Tensor self, Tensor mask, Tensor value) -> Tensor", masked_fill_op),
    ROW("clamp(Tensor self, Scalar? min=None, Scalar? max=None) -> Tensor", clamp_op),
    ROW("clamp.Tensor(Tensor self, Tensor? min=None, Tensor? max=None) -> Tensor", clamp_op),
    ROW("clip(Tensor self, Scalar? min=None, Scalar? max=None) -> Tensor", clamp_op),
    ROW("clamp_min(Tensor self, Scalar min) -> Tensor", clamp_min_op), ROW("clamp_max(Tensor self, Scalar max) -> Tensor", clamp_max_op),
    ROW("clamp_min.Tensor(Tensor self, Tensor min) -> Tensor", clamp_min_op), ROW("clamp_max.Tensor(Tensor self, Tensor max) -> Tensor", clamp_max_op),
    ROW("lerp.Scalar(Tensor self, Tensor end, Scalar weight) -> Tensor", lerp_op), ROW("lerp.Tensor(Tensor self, Tensor end, Tensor weight) -> Tensor", lerp_op),
    ROW("addcmul(Tensor self, Tensor tensor1, Tensor tensor2, *, Scalar value=1) -> Tensor", addcmul_op),
    ROW("addcdiv(Tensor self, Tensor tensor1, Tensor tensor2, *, Scalar value=1) -> Tensor", addcdiv_op),
    ROW("to.dtype(Tensor self, ScalarType dtype, bool non_blocking=False, bool copy=False, MemoryFormat? memory_format=None) -> Tensor", to_dtype_op),
    ROW("to.dtype_layout(Tensor self, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None, bool non_blocking=False, bool copy=False, MemoryFormat? memory_format=None) -> Tensor", to_dtype_op),
    ROW("to.device(Tensor self, Device device, ScalarType dtype, bool non_blocking=False, bool copy=False, MemoryFormat? memory_format=None) -> Tensor", to_device_op),
    ROW("to.other(Tensor self, Tensor other, bool non_blocking=False, bool copy=False, MemoryFormat? memory_format=None) -> Tensor", type_as_op),
    ROW("_to_copy(Tensor self, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None, bool non_blocking=False, MemoryFormat? memory_format=None) -> Tensor", to_dtype_op),
    {0}};

void wf_ops_aten_pointwise(void) { wf_register(ops); }
