/* Pointwise primitives: one row each with shape rule (by family), C text, oracle evaluation and VJP. Operands have one
 * shape and, but for `where` and `cast`, one dtype; broadcasting and promotion happen before (ops/build.c).
 * In C text %0.. are operands and %t is the suffix of the vector class: f (16 floats), d (16 doubles),
 * i (16 int32), l (16 int64). Truth values are 16 int32 of 0 or -1. */
#include "ops/ops_private.h"

#include <math.h>

#define G WfGraph *g
#define N const WfNode *n
#define ARGS G, N, const WfVal *dy, WfVal *dx
#define X0 wf_tensor(n, 0)
#define X1 wf_tensor(n, 1)
#define Y n->out

/* ---- VJPs; formulas are the textbook derivatives ---- */
static void neg_vjp(ARGS) { dx[0] = wf_neg(g, dy[0]); (void)n; }
static void abs_vjp(ARGS) { dx[0] = wf_mul(g, dy[0], wf_unary(g, "prim.sign", X0)); }
static void exp_vjp(ARGS) { dx[0] = wf_mul(g, dy[0], Y); }
static void expm1_vjp(ARGS) { dx[0] = wf_mul(g, dy[0], wf_adds(g, Y, 1)); }
static void log_vjp(ARGS) { dx[0] = wf_div(g, dy[0], X0); }
static void log1p_vjp(ARGS) { dx[0] = wf_div(g, dy[0], wf_adds(g, X0, 1)); }
static void sin_vjp(ARGS) { dx[0] = wf_mul(g, dy[0], wf_unary(g, "prim.cos", X0)); }
static void cos_vjp(ARGS) { dx[0] = wf_neg(g, wf_mul(g, dy[0], wf_unary(g, "prim.sin", X0))); }
static WfVal one_minus_square(G, WfVal v) { return wf_sub(g, wf_like(g, v, 1), wf_mul(g, v, v)); }
static void tanh_vjp(ARGS) { dx[0] = wf_mul(g, dy[0], one_minus_square(g, Y)); }
static void atan_vjp(ARGS) { dx[0] = wf_div(g, dy[0], wf_adds(g, wf_mul(g, X0, X0), 1)); }
static void asin_vjp(ARGS) { dx[0] = wf_mul(g, dy[0], wf_unary(g, "prim.rsqrt", one_minus_square(g, X0))); }
static void acos_vjp(ARGS)
{
    dx[0] = wf_neg(g, wf_mul(g, dy[0], wf_unary(g, "prim.rsqrt", one_minus_square(g, X0))));
}
/* d erf = 2/sqrt(pi) exp(-x^2) */
static void erf_vjp(ARGS)
{
    WfVal e = wf_unary(g, "prim.exp", wf_neg(g, wf_mul(g, X0, X0)));
    dx[0] = wf_mul(g, dy[0], wf_muls(g, e, 1.1283791670955126));
}
static void sigmoid_vjp(ARGS)
{
    dx[0] = wf_mul(g, dy[0], wf_mul(g, Y, wf_sub(g, wf_like(g, Y, 1), Y)));
}
static void sqrt_vjp(ARGS) { dx[0] = wf_div(g, dy[0], wf_muls(g, Y, 2)); }
static void rsqrt_vjp(ARGS) { dx[0] = wf_mul(g, dy[0], wf_muls(g, wf_mul(g, Y, wf_mul(g, Y, Y)), -0.5)); }
static void reciprocal_vjp(ARGS) { dx[0] = wf_neg(g, wf_mul(g, dy[0], wf_mul(g, Y, Y))); }
static void add_vjp(ARGS) { dx[0] = dx[1] = dy[0]; (void)n, (void)g; }
static void sub_vjp(ARGS) { dx[0] = dy[0]; dx[1] = wf_wants(g, 1) ? wf_neg(g, dy[0]) : 0; (void)n; }
static void mul_vjp(ARGS)
{
    if (wf_wants(g, 0))
        dx[0] = wf_mul(g, dy[0], X1);
    if (wf_wants(g, 1))
        dx[1] = wf_mul(g, dy[0], X0);
}
static void div_vjp(ARGS)
{
    if (wf_wants(g, 0))
        dx[0] = wf_div(g, dy[0], X1);
    if (wf_wants(g, 1))
        dx[1] = wf_neg(g, wf_mul(g, dy[0], wf_div(g, wf_div(g, X0, X1), X1)));
}
/* d x^y = y x^(y-1) dx + x^y log(x) dy; 0 where y is 0 (dx), where x is 0 and y >= 0 (dy), as PyTorch. */
static void pow_vjp(ARGS)
{
    WfVal x = X0, y = X1, zero = wf_like(g, x, 0);
    if (wf_wants(g, 0)) {
        WfVal d = wf_mul(g, dy[0], wf_mul(g, y, wf_binary(g, "prim.pow", x, wf_adds(g, y, -1))));
        dx[0] = wf_where(g, wf_binary(g, "prim.eq", y, zero), zero, d);
    }
    if (wf_wants(g, 1)) {
        WfVal d = wf_mul(g, dy[0], wf_mul(g, Y, wf_unary(g, "prim.log", x)));
        WfVal flat = wf_binary(g, "prim.and", wf_binary(g, "prim.eq", x, zero), wf_binary(g, "prim.ge", y, zero));
        dx[1] = wf_where(g, flat, zero, d);
    }
}
static void atan2_vjp(ARGS)
{
    WfVal y = X0, x = X1, r = wf_div(g, dy[0], wf_add(g, wf_mul(g, x, x), wf_mul(g, y, y)));
    dx[0] = wf_mul(g, r, x);
    dx[1] = wf_neg(g, wf_mul(g, r, y));
}
/* Ties share the gradient equally, as torch.maximum does. */
static void extremum_vjp(ARGS, const char *wins)
{
    WfVal half = wf_muls(g, dy[0], 0.5), zero = wf_like(g, dy[0], 0), tie = wf_binary(g, "prim.eq", X0, X1);
    WfVal first = wf_binary(g, wins, X0, X1);
    if (wf_wants(g, 0))
        dx[0] = wf_where(g, tie, half, wf_where(g, first, dy[0], zero));
    if (wf_wants(g, 1))
        dx[1] = wf_where(g, tie, half, wf_where(g, first, zero, dy[0]));
}
static void max_vjp(ARGS) { extremum_vjp(g, n, dy, dx, "prim.gt"); }
static void min_vjp(ARGS) { extremum_vjp(g, n, dy, dx, "prim.lt"); }
/* x - trunc(x/y) y: the quotient is constant almost everywhere. */
static void fmod_vjp(ARGS)
{
    dx[0] = dy[0];
    if (wf_wants(g, 1))
        dx[1] = wf_neg(g, wf_mul(g, dy[0], wf_unary(g, "prim.trunc", wf_div(g, X0, X1))));
}
static void where_vjp(ARGS)
{
    WfVal zero = wf_like(g, dy[0], 0);
    if (wf_wants(g, 1))
        dx[1] = wf_where(g, X0, dy[0], zero);
    if (wf_wants(g, 2))
        dx[2] = wf_where(g, X0, zero, dy[0]);
}
static void cast_vjp(ARGS)
{
    if (wf_dtype_is_float(wf_dtype_of(g, Y)) && wf_dtype_is_float(wf_dtype_of(g, X0)))
        dx[0] = wf_cast(g, dy[0], wf_dtype_of(g, X0));
}
static void copy_vjp(ARGS) { dx[0] = dy[0]; (void)n, (void)g; }
static void no_vjp(ARGS) { (void)g, (void)n, (void)dy, (void)dx; }
/* Steps: the gradient is zero, which is not the same as none: weight decay and momentum go on. */
static void zero_vjp(ARGS) { dx[0] = wf_zeros_like(g, X0); (void)dy; }

/* ---- oracle ---- */
#define F1(name, e) static double name##_f(const double *v) { double x = v[0]; return e; }
#define F2(name, e) static double name##_f(const double *v) { double x = v[0], y = v[1]; return e; }
#define I1(name, e) static int64_t name##_i(const int64_t *v) { int64_t x = v[0]; return e; }
#define I2(name, e) static int64_t name##_i(const int64_t *v) { int64_t x = v[0], y = v[1]; return e; }
F1(neg, -x) F1(abs, fabs(x)) F1(exp, exp(x)) F1(expm1, expm1(x)) F1(log, log(x)) F1(log1p, log1p(x)) F1(sin, sin(x))
F1(cos, cos(x)) F1(tanh, tanh(x)) F1(atan, atan(x)) F1(asin, asin(x)) F1(acos, acos(x)) F1(erf, erf(x))
F1(sigmoid, 1 / (1 + exp(-x))) F1(sqrt, sqrt(x)) F1(rsqrt, 1 / sqrt(x)) F1(reciprocal, 1 / x) F1(floor, floor(x))
F1(ceil, ceil(x)) F1(round, nearbyint(x)) F1(trunc, trunc(x)) F1(sign, (x > 0) - (x < 0)) F1(isnan, isnan(x))
F1(same, x)
F2(add, x + y) F2(sub, x - y) F2(mul, x *y) F2(div, x / y) F2(pow, pow(x, y)) F2(atan2, atan2(x, y))
F2(max, isnan(x) || isnan(y) ? NAN : x > y ? x : y) F2(min, isnan(x) || isnan(y) ? NAN : x < y ? x : y)
F2(fmod, fmod(x, y)) F2(eq, x == y) F2(ne, x != y) F2(lt, x < y) F2(le, x <= y) F2(gt, x > y) F2(ge, x >= y)
static double where_f(const double *v) { return v[0] != 0 ? v[1] : v[2]; }
I1(neg, (int64_t)(0 - (uint64_t)x)) I1(abs, x < 0 ? (int64_t)(0 - (uint64_t)x) : x) I1(sign, (x > 0) - (x < 0))
I1(not, !x) I1(bitnot, ~x) I1(same, x)
I2(add, (int64_t)((uint64_t)x + (uint64_t)y)) I2(sub, (int64_t)((uint64_t)x - (uint64_t)y))
I2(mul, (int64_t)((uint64_t)x * (uint64_t)y)) I2(max, x > y ? x : y) I2(min, x < y ? x : y)
I2(div, y == 0 ? 0 : y == -1 ? (int64_t)(0 - (uint64_t)x) : x / y) I2(fmod, y == 0 || y == -1 ? 0 : x % y)
I2(eq, x == y) I2(ne, x != y) I2(lt, x < y) I2(le, x <= y) I2(gt, x > y) I2(ge, x >= y) I2(and, x &y) I2(or, x | y)
I2(xor, x ^ y) I2(shl, y < 0 || y > 63 ? 0 : (int64_t)((uint64_t)x << y))
I2(shr, y < 0 || y > 63 ? (x < 0 ? -1 : 0) : x >> y)
static int64_t where_i(const int64_t *v) { return v[0] ? v[1] : v[2]; }

/* ---- shape and folding rules that the family does not give ---- */
static void where_infer(G, N)
{
    const WfValue *c = wf_value(g, X0), *a = wf_value(g, X1);
    if (c->dtype != WF_BOOL || !wf_same_shape(g, X0, X1) || !wf_same_shape(g, X1, wf_tensor(n, 2)))
        wf_fail_node(g, n, WF_E_BUG, "operands do not fit");
    wf_set_result(g, n, 0, a->dtype, a->rank, a->shape);
}
static void cast_infer(G, N)
{
    const WfValue *x = wf_value(g, X0);
    wf_set_result(g, n, 0, n->args[1].dtype, x->rank, x->shape);
}
static WfVal cast_fold(G, N)
{
    if (wf_dtype_of(g, X0) == n->args[1].dtype)
        return X0;
    double v;
    if (wf_constant(g, X0, &v)) {
        const WfValue *x = wf_value(g, X0);
        char tmp[8];
        wf_store_f64(n->args[1].dtype, tmp, v);
        return wf_full(g, n->args[1].dtype, x->rank, x->shape, wf_load_f64(n->args[1].dtype, tmp));
    }
    return 0;
}
static WfVal detach_fold(G, N)
{
    const WfNode *p = wf_producer(g, X0);
    return p && p->op == n->op ? X0 : 0;
}
static bool is_number(G, WfVal v, double want)
{
    double c;
    return wf_constant(g, v, &c) && c == want;
}
static WfVal number_fold(G, N)
{
    double v[3];
    int k = wf_operand_count(n);
    for (int i = 0; i < k; i++)
        if (!wf_constant(g, wf_tensor(n, i), &v[i]))
            return 0;
    const WfValue *x = wf_value(g, X0);
    WfDtype t = n->op->result ? n->op->result : x->dtype;
    if (wf_dtype_is_float(x->dtype) && n->op->eval_f) {
        double r = n->op->eval_f(v);
        return wf_full(g, t, x->rank, x->shape, x->dtype == WF_F64 ? r : (float)r);
    }
    return 0;
}
static WfVal add_fold(G, N)
{
    return is_number(g, X1, 0) ? X0 : is_number(g, X0, 0) ? X1 : number_fold(g, n);
}
static WfVal sub_fold(G, N) { return is_number(g, X1, 0) ? X0 : number_fold(g, n); }
static WfVal mul_fold(G, N)
{
    return is_number(g, X1, 1) ? X0 : is_number(g, X0, 1) ? X1 : number_fold(g, n);
}
static WfVal div_fold(G, N) { return is_number(g, X1, 1) ? X0 : number_fold(g, n); }
static WfVal neg_fold(G, N)
{
    const WfNode *p = wf_producer(g, X0);
    return p && p->op == n->op ? wf_tensor(p, 0) : number_fold(g, n);
}

#define UNARY(name) .schema = "prim." #name "(Tensor x) -> Tensor", .family = WF_POINTWISE
#define BINARY(name) .schema = "prim." #name "(Tensor x, Tensor y) -> Tensor", .family = WF_POINTWISE
#define COMPARE(name, sign)                                                                                           \
    {BINARY(name), .result = WF_BOOL, .vjp = no_vjp, .c_float = "(%0 " sign " %1)", .c_int = "(%0 " sign " %1)",    \
     .c_bool = "(-%0 " sign " -%1)", .eval_f = name##_f, .eval_i = name##_i}

static const WfOp ops[] = {
    {UNARY(neg), .vjp = neg_vjp, .fold = neg_fold, .c_float = "(-%0)", .c_int = "(-%0)", .eval_f = neg_f,
     .eval_i = neg_i},
    {UNARY(abs), .vjp = abs_vjp, .c_float = "abs_%t(%0)", .c_int = "abs_%t(%0)", .eval_f = abs_f, .eval_i = abs_i},
    {UNARY(exp), .vjp = exp_vjp, .fold = number_fold, .c_float = "exp_%t(%0)", .eval_f = exp_f},
    {UNARY(expm1), .vjp = expm1_vjp, .c_float = "expm1_%t(%0)", .eval_f = expm1_f},
    {UNARY(log), .vjp = log_vjp, .fold = number_fold, .c_float = "log_%t(%0)", .eval_f = log_f},
    {UNARY(log1p), .vjp = log1p_vjp, .c_float = "log1p_%t(%0)", .eval_f = log1p_f},
    {UNARY(sin), .vjp = sin_vjp, .c_float = "sin_%t(%0)", .eval_f = sin_f},
    {UNARY(cos), .vjp = cos_vjp, .c_float = "cos_%t(%0)", .eval_f = cos_f},
    {UNARY(tanh), .vjp = tanh_vjp, .c_float = "tanh_%t(%0)", .eval_f = tanh_f},
    {UNARY(atan), .vjp = atan_vjp, .c_float = "atan_%t(%0)", .eval_f = atan_f},
    {UNARY(asin), .vjp = asin_vjp, .c_float = "asin_%t(%0)", .eval_f = asin_f},
    {UNARY(acos), .vjp = acos_vjp, .c_float = "acos_%t(%0)", .eval_f = acos_f},
    {UNARY(erf), .vjp = erf_vjp, .c_float = "erf_%t(%0)", .eval_f = erf_f},
    {UNARY(sigmoid), .vjp = sigmoid_vjp, .c_float = "sigmoid_%t(%0)", .eval_f = sigmoid_f},
    {UNARY(sqrt), .vjp = sqrt_vjp, .fold = number_fold, .c_float = "sqrt_%t(%0)", .eval_f = sqrt_f},
    {UNARY(rsqrt), .vjp = rsqrt_vjp, .fold = number_fold, .c_float = "(1 / sqrt_%t(%0))", .eval_f = rsqrt_f},
    {UNARY(reciprocal), .vjp = reciprocal_vjp, .fold = number_fold, .c_float = "(1 / %0)", .eval_f = reciprocal_f},
    {UNARY(floor), .vjp = zero_vjp, .fold = number_fold, .c_float = "floor_%t(%0)", .c_int = "%0", .eval_f = floor_f,
     .eval_i = same_i},
    {UNARY(ceil), .vjp = zero_vjp, .c_float = "ceil_%t(%0)", .c_int = "%0", .eval_f = ceil_f, .eval_i = same_i},
    {UNARY(round), .vjp = zero_vjp, .c_float = "round_%t(%0)", .c_int = "%0", .eval_f = round_f, .eval_i = same_i},
    {UNARY(trunc), .vjp = zero_vjp, .c_float = "trunc_%t(%0)", .c_int = "%0", .eval_f = trunc_f, .eval_i = same_i},
    {UNARY(sign), .vjp = zero_vjp, .c_float = "sign_%t(%0)", .c_int = "sign_%t(%0)", .eval_f = sign_f,
     .eval_i = sign_i},
    {UNARY(isnan), .result = WF_BOOL, .vjp = no_vjp, .c_float = "(%0 != %0)", .eval_f = isnan_f},
    {UNARY(not), .vjp = no_vjp, .c_bool = "(~%0)", .eval_i = not_i},
    {UNARY(bitnot), .vjp = no_vjp, .c_int = "(~%0)", .eval_i = bitnot_i},
    {BINARY(add), .vjp = add_vjp, .fold = add_fold, .c_float = "(%0 + %1)", .c_int = "(%0 + %1)", .eval_f = add_f,
     .eval_i = add_i},
    {BINARY(sub), .vjp = sub_vjp, .fold = sub_fold, .c_float = "(%0 - %1)", .c_int = "(%0 - %1)", .eval_f = sub_f,
     .eval_i = sub_i},
    {BINARY(mul), .vjp = mul_vjp, .fold = mul_fold, .c_float = "(%0 * %1)", .c_int = "(%0 * %1)", .eval_f = mul_f,
     .eval_i = mul_i},
    {BINARY(div), .vjp = div_vjp, .fold = div_fold, .c_float = "(%0 / %1)", .c_int = "div_%t(%0, %1)",
     .eval_f = div_f, .eval_i = div_i},
    {BINARY(fmod), .vjp = fmod_vjp, .c_float = "fmod_%t(%0, %1)", .c_int = "rem_%t(%0, %1)", .eval_f = fmod_f,
     .eval_i = fmod_i},
    {BINARY(pow), .vjp = pow_vjp, .c_float = "pow_%t(%0, %1)", .eval_f = pow_f},
    {BINARY(atan2), .vjp = atan2_vjp, .c_float = "atan2_%t(%0, %1)", .eval_f = atan2_f},
    {BINARY(max), .vjp = max_vjp, .c_float = "max_%t(%0, %1)", .c_int = "max_%t(%0, %1)", .c_bool = "(%0 | %1)",
     .eval_f = max_f, .eval_i = max_i},
    {BINARY(min), .vjp = min_vjp, .c_float = "min_%t(%0, %1)", .c_int = "min_%t(%0, %1)", .c_bool = "(%0 & %1)",
     .eval_f = min_f, .eval_i = min_i},
    COMPARE(eq, "=="), COMPARE(ne, "!="), COMPARE(lt, "<"), COMPARE(le, "<="), COMPARE(gt, ">"), COMPARE(ge, ">="),
    {BINARY(and), .vjp = no_vjp, .c_int = "(%0 & %1)", .c_bool = "(%0 & %1)", .eval_i = and_i},
    {BINARY(or), .vjp = no_vjp, .c_int = "(%0 | %1)", .c_bool = "(%0 | %1)", .eval_i = or_i},
    {BINARY(xor), .vjp = no_vjp, .c_int = "(%0 ^ %1)", .c_bool = "(%0 ^ %1)", .eval_i = xor_i},
    {BINARY(shl), .vjp = no_vjp, .c_int = "shl_%t(%0, %1)", .eval_i = shl_i},
    {BINARY(shr), .vjp = no_vjp, .c_int = "shr_%t(%0, %1)", .eval_i = shr_i},
    {.schema = "prim.where(Tensor cond, Tensor x, Tensor y) -> Tensor", .family = WF_POINTWISE, .infer = where_infer,
     .vjp = where_vjp, .c_float = "sel_%t(%0, %1, %2)", .c_int = "sel_%t(%0, %1, %2)", .c_bool = "sel_i(%0, %1, %2)",
     .eval_f = where_f, .eval_i = where_i},
    /* Conversions are the emitter's: it knows the two classes. */
    {.schema = "prim.cast(Tensor x, ScalarType to) -> Tensor", .family = WF_POINTWISE, .infer = cast_infer,
     .vjp = cast_vjp, .fold = cast_fold, .c_float = "%0", .c_int = "%0", .c_bool = "%0", .eval_f = same_f,
     .eval_i = same_i},
    /* x itself; a value outside lo <= x < hi that is not `ignore` is reported at run time with the node's line. */
    {.schema = "prim.check(Tensor x, int lo, int hi, int ignore) -> Tensor", .family = WF_POINTWISE, .vjp = no_vjp,
     .c_int = "%0", .eval_i = same_i},
    /* x in memory of its own: the layout pass puts it before a library call that cannot take x as it lies. Two copies
     * are not one: their orders may differ. */
    {UNARY(copy), .pure_random = true, .vjp = copy_vjp, .c_float = "%0", .c_int = "%0", .c_bool = "%0", .eval_f = same_f,
     .eval_i = same_i},
    /* x itself, under another name: what is made from it is not shared with what was made from x before. */
    /* x, stored by a kernel that ends with it: see fuse/group */
    {UNARY(rounded), .pure_random = true, .c_float = "%0", .eval_f = same_f},
    {UNARY(recompute), .vjp = copy_vjp, .c_float = "%0", .c_int = "%0", .c_bool = "%0", .eval_f = same_f,
     .eval_i = same_i},
    {UNARY(detach), .vjp = no_vjp, .fold = detach_fold, .c_float = "%0", .c_int = "%0", .c_bool = "%0",
     .eval_f = same_f, .eval_i = same_i},
    {0}};

void wf_ops_pointwise(void) { wf_register(ops); }
