/* Activations. Most are a handful of pointwise primitives, and their gradients are those of the primitives:
 * they are written so that no branch which is not taken can produce an infinity (whose product with a zero
 * cotangent would be a NaN), and so that ties fall as in PyTorch (ATen/native/Activation.cpp). In-place forms
 * only carry their schema. */
#include "ops/ops_private.h"

#include <math.h>
#include <string.h>

#define DECOMPOSE WfGraph *g, const WfNode *n, WfVal *out
#define X         wf_tensor(n, 0)

static WfVal compare(WfGraph *g, const char *prim, WfVal x, double v)
{
    return wf_binary(g, prim, x, wf_like(g, x, v));
}

static int give(WfVal *out, WfVal v)
{
    out[0] = v;
    return 1;
}

static void like_infer(WfGraph *g, const WfNode *n)
{
    const WfValue *x = wf_value(g, X);
    wf_set_result(g, n, 0, x->dtype, x->rank, x->shape);
}

/* relu keeps a VJP of its own, which reads the result: the pre-activation then dies early. */
static int relu(DECOMPOSE)
{
    return give(out, wf_where(g, compare(g, "prim.le", X, 0), wf_like(g, X, 0), X));
}

static void relu_vjp(WfGraph *g, const WfNode *n, const WfVal *dy, WfVal *dx)
{
    dx[0] = wf_where(g, compare(g, "prim.le", n->out, 0), wf_like(g, dy[0], 0), dy[0]);
}

/* lo where x <= lo, hi where x >= hi: the gradient at the corners is zero. */
static WfVal clamp(WfGraph *g, WfVal x, double lo, double hi)
{
    WfVal up = wf_where(g, compare(g, "prim.ge", x, hi), wf_like(g, x, hi), x);
    return wf_where(g, compare(g, "prim.le", x, lo), wf_like(g, x, lo), up);
}

static int relu6(DECOMPOSE)
{
    return give(out, clamp(g, X, 0, 6));
}
static int hardtanh(DECOMPOSE)
{
    return give(out, clamp(g, X, wf_float(g, n, 1), wf_float(g, n, 2)));
}

static WfVal hard_gate(WfGraph *g, WfVal x)
{
    return wf_muls(g, clamp(g, wf_adds(g, x, 3), 0, 6), 1.0 / 6);
}

static int hardsigmoid(DECOMPOSE)
{
    return give(out, hard_gate(g, X));
}
static int hardswish(DECOMPOSE)
{
    return give(out, wf_mul(g, X, hard_gate(g, X)));
}

static WfVal leaky(WfGraph *g, WfVal x, WfVal slope)
{
    return wf_where(g, compare(g, "prim.gt", x, 0), x, wf_mul(g, x, slope));
}

static int leaky_relu(DECOMPOSE)
{
    return give(out, leaky(g, X, wf_like(g, X, wf_float(g, n, 1))));
}

/* scale x, below zero alpha scale (exp(input_scale x) - 1) */
static WfVal exponential_unit(WfGraph *g, WfVal x, double alpha, double scale, double input_scale)
{
    WfVal above = compare(g, "prim.gt", x, 0), below = wf_where(g, above, wf_like(g, x, 0), x);
    WfVal e = wf_muls(g, wf_unary(g, "prim.expm1", wf_muls(g, below, input_scale)), alpha * scale);
    return wf_where(g, above, wf_muls(g, x, scale), e);
}

static int elu(DECOMPOSE)
{
    return give(out, exponential_unit(g, X, wf_float(g, n, 1), wf_float(g, n, 2), wf_float(g, n, 3)));
}

static int selu(DECOMPOSE)
{
    return give(
        out, exponential_unit(g, X, 1.6732632423543772848170429916717, 1.0507009873554804934193349852946, 1));
}

static int celu(DECOMPOSE)
{
    double alpha = wf_float(g, n, 1);
    return give(out, exponential_unit(g, X, alpha, 1, 1 / alpha));
}

/* x Phi(x), or its approximation by tanh (Hendrycks and Gimpel, 2016), written with (1 + tanh(u)) / 2 =
 * sigmoid(2u), which costs one exp and keeps its relative accuracy where tanh comes near -1. */
static int gelu(DECOMPOSE)
{
    WfVal x = X;
    if (!strcmp(n->args[1].s, "tanh")) {
        WfVal cube = wf_mul(g, x, wf_mul(g, x, x));
        WfVal u = wf_muls(g, wf_add(g, x, wf_muls(g, cube, 0.044715)), 2 * 0.79788456080286536);
        return give(out, wf_mul(g, x, wf_unary(g, "prim.sigmoid", u)));
    }
    WfVal t = wf_unary(g, "prim.erf", wf_muls(g, x, 0.70710678118654752));
    return give(out, wf_mul(g, wf_muls(g, x, 0.5), wf_adds(g, t, 1)));
}

static int silu(DECOMPOSE)
{
    return give(out, wf_mul(g, X, wf_unary(g, "prim.sigmoid", X)));
}

/* log(1 + exp(-|x|)) */
static WfVal log1p_exp_neg_abs(WfGraph *g, WfVal x)
{
    return wf_unary(g, "prim.log1p", wf_unary(g, "prim.exp", wf_neg(g, wf_unary(g, "prim.abs", x))));
}

/* log(1 + exp(x)) without overflow; its derivative by primitives is the sigmoid everywhere, 1/2 at zero
 * included. */
WfVal wf_softplus(WfGraph *g, WfVal x)
{
    return wf_add(g, wf_binary(g, "prim.max", x, wf_like(g, x, 0)), log1p_exp_neg_abs(g, x));
}

WfVal wf_log_sigmoid(WfGraph *g, WfVal x)
{
    return wf_sub(g, wf_binary(g, "prim.min", x, wf_like(g, x, 0)), log1p_exp_neg_abs(g, x));
}

static int mish(DECOMPOSE)
{
    return give(out, wf_mul(g, X, wf_unary(g, "prim.tanh", wf_softplus(g, X))));
}

static int softplus(DECOMPOSE)
{
    double beta = wf_float(g, n, 1), threshold = wf_float(g, n, 2);
    WfVal bx = wf_muls(g, X, beta), y = wf_muls(g, wf_softplus(g, bx), 1 / beta);
    return give(out, wf_where(g, compare(g, "prim.gt", bx, threshold), X, y));
}

static int log_sigmoid(DECOMPOSE)
{
    return give(out, wf_log_sigmoid(g, X));
}

static int log_sigmoid_forward(DECOMPOSE)
{
    out[0] = wf_log_sigmoid(g, X);
    out[1] =
        wf_full(g, wf_dtype_of(g, X), 1, (WfDim[]){0}, 0); /* the CPU's scratch buffer; nothing reads it */
    return 2;
}

static int softshrink(DECOMPOSE)
{
    double l = wf_float(g, n, 1);
    WfVal inner = wf_where(g, compare(g, "prim.lt", X, -l), wf_adds(g, X, l), wf_muls(g, X, 0));
    return give(out, wf_where(g, compare(g, "prim.gt", X, l), wf_adds(g, X, -l), inner));
}

static int hardshrink(DECOMPOSE)
{
    double l = wf_float(g, n, 1);
    WfVal inside = wf_binary(g, "prim.and", compare(g, "prim.ge", X, -l), compare(g, "prim.le", X, l));
    return give(out, wf_where(g, inside, wf_like(g, X, 0), X));
}

static int threshold(DECOMPOSE)
{
    WfVal low = compare(g, "prim.le", X, wf_float(g, n, 1));
    return give(out, wf_where(g, low, wf_like(g, X, wf_float(g, n, 2)), X));
}

static int glu(DECOMPOSE)
{
    int dim = wf_dim_index(g, n, wf_int(n, 1), wf_rank_of(g, X));
    WfDim size = wf_size_of(g, X, dim), half = wf_efloordiv(g->exprs, size, 2);
    if (wf_emul(g->exprs, half, 2) != size)
        wf_fail_node(g, n, WF_E_SHAPES, "the dimension to be halved is odd in %s", wf_shape_text(g, X));
    WfVal a = wf_slice(g, X, dim, 0, half, 1), b = wf_slice(g, X, dim, half, size, 1);
    return give(out, wf_mul(g, a, wf_unary(g, "prim.sigmoid", b)));
}

/* One slope, or one for each channel (dim 1; dim 0 of a vector). */
static int prelu(DECOMPOSE)
{
    WfVal w = wf_tensor(n, 1);
    int rank = wf_rank_of(g, X);
    WfDim shape[WF_MAX_RANK], count = wf_numel(g, w);
    for (int i = 0; i < rank; i++)
        shape[i] = i == 1 || rank == 1 ? count : 1;
    return give(out, leaky(g, X, wf_reshape(g, w, count == 1 ? 0 : rank, shape)));
}

static int prelu_kernel(DECOMPOSE)
{
    return give(out, leaky(g, X, wf_tensor(n, 1)));
}

/* Slopes below zero: the mean of the range, or in training uniform in it. Returns the noise too. */
static WfVal random_slope(WfGraph *g, WfVal x, double lower, double upper, WfVal *noise)
{
    const WfValue *v = wf_value(g, x);
    WfVal r =
        wf_cast(g, wf_emit(g, "prim.rand", "Ii", v->shape, (int)v->rank, (WfDim)g->streams++), v->dtype);
    WfVal slope = wf_adds(g, wf_muls(g, r, upper - lower), lower);
    *noise = wf_where(g, compare(g, "prim.le", x, 0), slope, wf_like(g, x, 1));
    return wf_mul(g, x, *noise);
}

static int rrelu(DECOMPOSE)
{
    double lower = wf_float(g, n, 1), upper = wf_float(g, n, 2);
    WfVal noise;
    if (wf_bool(n, 3))
        return give(out, random_slope(g, X, lower, upper, &noise));
    return give(out, leaky(g, X, wf_like(g, X, (lower + upper) / 2)));
}

static int rrelu_functional(DECOMPOSE)
{
    double lower = wf_float(g, n, 2), upper = wf_float(g, n, 3);
    out[1] = wf_tensor(n, 1);
    if (wf_bool(n, 4))
        out[0] = random_slope(g, X, lower, upper, &out[1]);
    else
        out[0] = leaky(g, X, wf_like(g, X, (lower + upper) / 2));
    return 2;
}

#define NAME(text, fn)                                                  \
    {                                                                   \
        .schema = "aten." text, .family = WF_COMPOSITE, .decompose = fn \
    }
#define PLAIN(name, args) NAME(#name "(Tensor self" args ") -> Tensor", name)
#define IN_PLACE(name, args)                                                                       \
    {                                                                                              \
        .schema = "aten." #name "_(Tensor(a!) self" args ") -> Tensor(a!)", .family = WF_COMPOSITE \
    }
#define BOTH(name, args) PLAIN(name, args), IN_PLACE(name, args)
#define RRELU \
    "Scalar lower=0.125, Scalar upper=0.33333333333333331, bool training=False, Generator? generator=None"

static const WfOp ops[] = {
    {.schema = "aten.relu(Tensor self) -> Tensor",
     .family = WF_COMPOSITE,
     .infer = like_infer,
     .decompose = relu,
     .vjp = relu_vjp},
    IN_PLACE(relu, ""),
    BOTH(relu6, ""),
    BOTH(hardtanh, ", Scalar min_val=-1, Scalar max_val=1"),
    BOTH(hardsigmoid, ""),
    BOTH(hardswish, ""),
    BOTH(leaky_relu, ", Scalar negative_slope=0.01"),
    BOTH(elu, ", Scalar alpha=1, Scalar scale=1, Scalar input_scale=1"),
    BOTH(selu, ""),
    BOTH(celu, ", Scalar alpha=1."),
    BOTH(gelu, ", *, str approximate=\"none\""),
    BOTH(silu, ""),
    BOTH(mish, ""),
    PLAIN(softplus, ", Scalar beta=1, Scalar threshold=20"),
    PLAIN(log_sigmoid, ""),
    NAME("log_sigmoid_forward(Tensor self) -> (Tensor output, Tensor buffer)", log_sigmoid_forward),
    PLAIN(softshrink, ", Scalar lambd=0.5"),
    PLAIN(hardshrink, ", Scalar lambd=0.5"),
    BOTH(threshold, ", Scalar threshold, Scalar value"),
    PLAIN(glu, ", int dim=-1"),
    PLAIN(prelu, ", Tensor weight"),
    NAME("_prelu_kernel(Tensor self, Tensor weight) -> Tensor", prelu_kernel),
    BOTH(rrelu, ", " RRELU),
    {.schema = "aten.rrelu_with_noise(Tensor self, Tensor(b!) noise, " RRELU ") -> Tensor",
     .family = WF_COMPOSITE,
     .functional = "aten.rrelu_with_noise_functional"},
    NAME("rrelu_with_noise_functional(Tensor self, Tensor noise, " RRELU ") -> (Tensor, Tensor noise_out)",
         rrelu_functional),
    {0}};

void wf_ops_aten_nn(void)
{
    wf_register(ops);
}
