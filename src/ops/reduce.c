/* Reductions over named dimensions, which the result does not have (ops/build.c puts size-1 dimensions back). Sums run
 * over 16 logical lanes and then across them, in the order the kernel plan fixes. */
#include "ops/ops_private.h"

#include <math.h>

static uint32_t mask_of(const WfNode *n)
{
    uint32_t m = 0;
    for (int i = 0; i < n->args[1].n; i++)
        m |= 1u << n->args[1].ints[i];
    return m;
}

static void reduce_shape(WfGraph *g, const WfNode *n, WfDtype t)
{
    const WfValue *x = wf_value(g, wf_tensor(n, 0));
    for (int i = 0; i < n->args[1].n; i++) /* graph text may say anything */
        if (n->args[1].ints[i] < 0 || n->args[1].ints[i] >= x->rank)
            wf_fail_node(g, n, WF_E_SHAPES, "there is no such dimension");
    uint32_t m = mask_of(n);
    WfDim shape[WF_MAX_RANK];
    int r = 0;
    for (int i = 0; i < x->rank; i++)
        if (!(m >> i & 1))
            shape[r++] = x->shape[i];
    wf_set_result(g, n, 0, t, r, shape);
}

static void reduce_infer(WfGraph *g, const WfNode *n) { reduce_shape(g, n, wf_dtype_of(g, wf_tensor(n, 0))); }
static void arg_infer(WfGraph *g, const WfNode *n) { reduce_shape(g, n, WF_I64); }

static WfVal sum_fold(WfGraph *g, const WfNode *n)
{
    (void)g;
    return n->args[1].n ? 0 : wf_tensor(n, 0);
}

static WfVal back(WfGraph *g, const WfNode *n, WfVal v) /* broadcasts a reduced value over the operand's shape */
{
    WfVal x = wf_tensor(n, 0);
    return wf_expand_like(g, wf_keep_dims(g, v, x, mask_of(n)), x);
}

static void sum_vjp(WfGraph *g, const WfNode *n, const WfVal *dy, WfVal *dx) { dx[0] = back(g, n, dy[0]); }

/* Ties share equally, as amax and amin do. */
static void extremum_vjp(WfGraph *g, const WfNode *n, const WfVal *dy, WfVal *dx)
{
    WfVal x = wf_tensor(n, 0), hit = wf_binary(g, "prim.eq", x, back(g, n, n->out));
    WfVal share = wf_cast(g, hit, wf_dtype_of(g, x));
    WfVal count = wf_sum(g, share, mask_of(n), false);
    dx[0] = wf_mul(g, share, back(g, n, wf_div(g, dy[0], count)));
}

/* Product of the others: y / x, but exact where elements are zero. */
static void prod_vjp(WfGraph *g, const WfNode *n, const WfVal *dy, WfVal *dx)
{
    WfVal x = wf_tensor(n, 0), zero = wf_like(g, x, 0), one = wf_like(g, x, 1);
    WfVal is0 = wf_binary(g, "prim.eq", x, zero);
    WfVal count = wf_sum(g, wf_cast(g, is0, wf_dtype_of(g, x)), mask_of(n), false);
    WfVal rest = wf_reduce(g, "prim.prod", wf_where(g, is0, one, x), mask_of(n), false); /* without the zeros */
    WfVal none = back(g, n, wf_binary(g, "prim.eq", count, zero)), single = back(g, n, wf_binary(g, "prim.eq", count, one));
    WfVal of_zero = wf_where(g, single, back(g, n, rest), zero);
    WfVal of_other = wf_where(g, none, wf_div(g, back(g, n, rest), x), zero);
    dx[0] = wf_mul(g, back(g, n, dy[0]), wf_where(g, is0, of_zero, of_other));
}

static void none_vjp(WfGraph *g, const WfNode *n, const WfVal *dy, WfVal *dx) { (void)g, (void)n, (void)dy, (void)dx; }

static double add(double a, double x) { return a + x; }
static double mul(double a, double x) { return a * x; }
static double max(double a, double x) { return isnan(a) || isnan(x) ? NAN : a > x ? a : x; }
static double min(double a, double x) { return isnan(a) || isnan(x) ? NAN : a < x ? a : x; }

#define REDUCE(name) .schema = "prim." #name "(Tensor x, int[] dims) -> Tensor", .family = WF_REDUCE

/* C text: %0 the accumulator, %1 the element. */
static const WfOp ops[] = {
    {REDUCE(sum), .infer = reduce_infer, .vjp = sum_vjp, .fold = sum_fold, .c_float = "(%0 + %1)",
     .c_int = "(%0 + %1)", .reduce = add, .init = 0},
    {REDUCE(prod), .infer = reduce_infer, .vjp = prod_vjp, .fold = sum_fold, .c_float = "(%0 * %1)",
     .c_int = "(%0 * %1)", .reduce = mul, .init = 1},
    {REDUCE(amax), .infer = reduce_infer, .vjp = extremum_vjp, .fold = sum_fold, .c_float = "max_%t(%0, %1)",
     .c_int = "max_%t(%0, %1)", .c_bool = "(%0 | %1)", .reduce = max, .init = -INFINITY},
    {REDUCE(amin), .infer = reduce_infer, .vjp = extremum_vjp, .fold = sum_fold, .c_float = "min_%t(%0, %1)",
     .c_int = "min_%t(%0, %1)", .c_bool = "(%0 & %1)", .reduce = min, .init = INFINITY},
    /* Index of the first extremum along one dimension; NaN counts as the extremum. */
    {REDUCE(argmax), .infer = arg_infer, .vjp = none_vjp, .reduce = max, .init = -INFINITY, .c_float = ">",
     .c_int = ">",
     .eval = wf_argmax_eval},
    {REDUCE(argmin), .infer = arg_infer, .vjp = none_vjp, .reduce = min, .init = INFINITY, .c_float = "<",
     .c_int = "<",
     .eval = wf_argmin_eval},
    {0}};

void wf_ops_reduce(void) { wf_register(ops); }
