/* Losses between tensors of one shape: an expression for each element, then none, mean or sum over all of
 * them (reduction 0, 1, 2). Formulas and the sides that ties fall to are PyTorch's (ATen/native/Loss.cpp). */
#include "ops/ops_private.h"

#define DECOMPOSE WfGraph *g, const WfNode *n, WfVal *out
#define T(i)      wf_tensor(n, i)

static int finish(WfGraph *g, WfVal v, int64_t reduction, WfVal *out)
{
    uint32_t all = WF_ALL_DIMS(wf_rank_of(g, v));
    out[0] = reduction == 0 ? v : reduction == 2 ? wf_sum(g, v, all, false) : wf_mean(g, v, all, false);
    return 1;
}

/* Arguments 0 and 1 in their common dtype and shape. */
static void both(WfGraph *g, const WfNode *n, WfVal *a, WfVal *b)
{
    WfDtype t = wf_promote(g, n, (int[]){0, 1}, 2);
    WfDim shape[WF_MAX_RANK];
    int r;
    const WfValue *x = wf_value(g, T(0)), *y = wf_value(g, T(1));
    wf_broadcast_shape(g, n, x->rank, x->shape, y->rank, y->shape, &r, shape);
    *a = wf_expand(g, wf_cast(g, T(0), t), r, shape);
    *b = wf_expand(g, wf_cast(g, T(1), t), r, shape);
}

/* max(x, 0), without gradient at 0 (clamp_min) */
static WfVal clamp0(WfGraph *g, WfVal x)
{
    WfVal zero = wf_like(g, x, 0);
    return wf_where(g, wf_binary(g, "prim.le", x, zero), zero, x);
}

static WfVal square(WfGraph *g, WfVal x)
{
    return wf_mul(g, x, x);
}

static int mse_loss(DECOMPOSE)
{
    WfVal a, b;
    both(g, n, &a, &b);
    return finish(g, square(g, wf_sub(g, a, b)), wf_lit(g, n, 2), out);
}

static WfVal distance(WfGraph *g, const WfNode *n)
{
    WfVal a, b;
    both(g, n, &a, &b);
    return wf_unary(g, "prim.abs", wf_sub(g, a, b));
}

static int l1_loss(DECOMPOSE)
{
    return finish(g, distance(g, n), wf_lit(g, n, 2), out);
}

static int smooth_l1_loss(DECOMPOSE)
{
    double beta = wf_float(g, n, 3);
    WfVal d = distance(g, n);
    if (beta != 0) {
        WfVal near = wf_muls(g, square(g, d), 0.5 / beta), far = wf_adds(g, d, -0.5 * beta);
        d = wf_where(g, wf_binary(g, "prim.lt", d, wf_like(g, d, beta)), near, far);
    }
    return finish(g, d, wf_lit(g, n, 2), out);
}

static int huber_loss(DECOMPOSE)
{
    double delta = wf_float(g, n, 3);
    WfVal d = distance(g, n), near = wf_muls(g, square(g, d), 0.5);
    WfVal far = wf_muls(g, wf_adds(g, d, -0.5 * delta), delta);
    d = wf_where(g, wf_binary(g, "prim.le", d, wf_like(g, d, delta)), near, far);
    return finish(g, d, wf_lit(g, n, 2), out);
}

/* ---- nn.bce(x, t): -(t log x + (1 - t) log(1 - x)), each logarithm at least -100 ---- */

static WfVal floored(WfGraph *g, WfVal x)
{
    return wf_binary(g, "prim.max", x, wf_like(g, x, -100));
}

static void bce_logs(WfGraph *g, const WfNode *n, WfVal *yes, WfVal *no)
{
    *yes = floored(g, wf_unary(g, "prim.log", T(0)));
    *no = floored(g, wf_unary(g, "prim.log1p", wf_neg(g, T(0))));
}

static void bce_infer(WfGraph *g, const WfNode *n)
{
    const WfValue *x = wf_value(g, T(0));
    if (!wf_same_shape(g, T(0), T(1)))
        wf_fail_node(g, n, WF_E_SHAPES, "%s and target %s differ", wf_shape_text(g, T(0)),
                     wf_shape_text(g, T(1)));
    wf_set_result(g, n, 0, x->dtype, x->rank, x->shape);
}

static int bce(DECOMPOSE)
{
    WfVal yes, no, t = T(1);
    bce_logs(g, n, &yes, &no);
    out[0] = wf_sub(g, wf_mul(g, wf_adds(g, t, -1), no), wf_mul(g, t, yes));
    return 1;
}

/* (x - t) / max(x (1 - x), 1e-12): finite where the logarithms are cut off. PyTorch's bound is a float32 constant in
 * float64, too. */
static void bce_vjp(WfGraph *g, const WfNode *n, const WfVal *dy, WfVal *dx)
{
    WfVal x = T(0), t = T(1);
    if (wf_wants(g, 0)) {
        WfVal spread = wf_mul(g, x, wf_sub(g, wf_like(g, x, 1), x));
        spread = wf_binary(g, "prim.max", spread, wf_like(g, x, 1e-12f));
        dx[0] = wf_mul(g, dy[0], wf_div(g, wf_sub(g, x, t), spread));
    }
    if (wf_wants(g, 1)) {
        WfVal yes, no;
        bce_logs(g, n, &yes, &no);
        dx[1] = wf_mul(g, dy[0], wf_sub(g, no, yes));
    }
}

static WfVal weighted(WfGraph *g, const WfNode *n, WfVal v, int arg)
{
    return T(arg) ? wf_mul(g, v, wf_cast(g, T(arg), wf_dtype_of(g, v))) : v;
}

static int binary_cross_entropy(DECOMPOSE)
{
    WfVal a, b;
    both(g, n, &a, &b);
    return finish(g, weighted(g, n, wf_emit(g, "nn.bce", "vv", a, b), 2), wf_lit(g, n, 3), out);
}

/* (1 - t) x + (1 + (pos_weight - 1) t) log(1 + exp(-x)) */
static int binary_cross_entropy_with_logits(DECOMPOSE)
{
    WfVal x, t, w = 0;
    both(g, n, &x, &t);
    WfVal soft = wf_softplus(g, wf_neg(g, x));
    if (T(3))
        w = wf_adds(g, wf_mul(g, wf_adds(g, wf_cast(g, T(3), wf_dtype_of(g, x)), -1), t), 1);
    WfVal v = wf_add(g, wf_mul(g, wf_sub(g, wf_like(g, x, 1), t), x), w ? wf_mul(g, w, soft) : soft);
    return finish(g, weighted(g, n, v, 2), wf_lit(g, n, 4), out);
}

static int kl_div(DECOMPOSE)
{
    WfVal x, t, v;
    both(g, n, &x, &t);
    if (wf_bool(n, 3)) {
        v = wf_mul(g, wf_unary(g, "prim.exp", t), wf_sub(g, t, x));
    } else { /* t log t is 0 at 0 */
        WfVal zero = wf_like(g, t, 0), none = wf_binary(g, "prim.eq", t, zero);
        WfVal log = wf_unary(g, "prim.log", wf_where(g, none, wf_like(g, t, 1), t));
        v = wf_sub(g, wf_where(g, none, zero, wf_mul(g, t, log)), wf_mul(g, t, x));
    }
    return finish(g, v, wf_lit(g, n, 2), out);
}

static int soft_margin_loss(DECOMPOSE)
{
    WfVal x, t;
    both(g, n, &x, &t);
    return finish(g, wf_softplus(g, wf_neg(g, wf_mul(g, t, x))), wf_lit(g, n, 2), out);
}

/* x where the target is 1, max(0, margin - x) where it is -1, both elsewhere */
static int hinge_embedding_loss(DECOMPOSE)
{
    WfVal x, t;
    both(g, n, &x, &t);
    WfVal zero = wf_like(g, x, 0), away = clamp0(g, wf_adds(g, wf_neg(g, x), wf_float(g, n, 2)));
    WfVal a = wf_where(g, wf_binary(g, "prim.ne", t, wf_like(g, t, 1)), away, zero);
    WfVal b = wf_where(g, wf_binary(g, "prim.ne", t, wf_like(g, t, -1)), x, zero);
    return finish(g, wf_add(g, a, b), wf_lit(g, n, 3), out);
}

static int margin_ranking_loss(DECOMPOSE)
{
    WfVal a, b;
    both(g, n, &a, &b);
    WfVal d = wf_mul(g, wf_neg(g, wf_cast(g, T(2), wf_dtype_of(g, a))), wf_sub(g, a, b));
    return finish(g, clamp0(g, wf_adds(g, d, wf_float(g, n, 3))), wf_lit(g, n, 4), out);
}

static int poisson_nll_loss(DECOMPOSE)
{
    WfVal x, t, v;
    both(g, n, &x, &t);
    if (wf_bool(n, 2))
        v = wf_sub(g, wf_unary(g, "prim.exp", x), wf_mul(g, t, x));
    else
        v = wf_sub(g, x, wf_mul(g, t, wf_unary(g, "prim.log", wf_adds(g, x, wf_float(g, n, 4)))));
    if (wf_bool(n, 3)) { /* Stirling's approximation of log t! where t > 1 */
        WfVal big = wf_binary(g, "prim.gt", t, wf_like(g, t, 1)), s = wf_where(g, big, t, wf_like(g, t, 1));
        WfVal half = wf_muls(g, wf_unary(g, "prim.log", wf_muls(g, s, 6.283185307179586)), 0.5);
        WfVal stirling = wf_add(g, wf_sub(g, wf_mul(g, s, wf_unary(g, "prim.log", s)), s), half);
        v = wf_add(g, v, wf_where(g, big, stirling, wf_like(g, t, 0)));
    }
    return finish(g, v, wf_lit(g, n, 5), out);
}

/* ---- angles and distances between vectors ---- */

static WfVal vector_norm(WfGraph *g, WfVal x, double p, int dim, bool keep)
{
    return wf_emit(g, "aten.linalg_vector_norm", "vfdb", x, p, dim, (int)keep);
}

/* The norm, at least eps; the gradient passes as if it were not cut off. */
static WfVal clamped_norm(WfGraph *g, WfVal x, int dim, double eps)
{
    WfVal v = vector_norm(g, x, 2, dim, true), c = wf_detach(g, v);
    return wf_add(g, v, wf_sub(g, wf_binary(g, "prim.max", c, wf_like(g, c, eps)), c));
}

static int cosine_similarity(DECOMPOSE)
{
    WfVal a, b;
    both(g, n, &a, &b);
    int r = wf_rank_of(g, a), dim = wf_dim_index(g, n, wf_int(n, 2), r);
    double eps = wf_float(g, n, 3);
    WfVal p =
        wf_mul(g, wf_div(g, a, clamped_norm(g, a, dim, eps)), wf_div(g, b, clamped_norm(g, b, dim, eps)));
    out[0] = wf_sum(g, p, r ? 1u << dim : 0, false);
    return 1;
}

static int cosine_embedding_loss(DECOMPOSE)
{
    WfVal a, b, t = T(2);
    both(g, n, &a, &b);
    uint32_t m = 1u << wf_rank_of(g, t);
    WfVal aa = wf_adds(g, wf_sum(g, square(g, a), m, false), 1e-12);
    WfVal bb = wf_adds(g, wf_sum(g, square(g, b), m, false), 1e-12);
    WfVal dots = wf_sum(g, wf_mul(g, a, b), m, false), zero = wf_like(g, a, 0);
    WfVal cosine = wf_div(g, dots, wf_unary(g, "prim.sqrt", wf_mul(g, aa, bb)));
    WfVal near = wf_sub(g, wf_like(g, a, 1), cosine), far = clamp0(g, wf_adds(g, cosine, -wf_float(g, n, 3)));
    WfVal one = wf_binary(g, "prim.eq", t, wf_like(g, t, 1)),
          minus = wf_binary(g, "prim.eq", t, wf_like(g, t, -1));
    return finish(g, wf_add(g, wf_where(g, one, near, zero), wf_where(g, minus, far, zero)), wf_lit(g, n, 4),
                  out);
}

static WfVal apart(WfGraph *g, WfVal a, WfVal b, double p, double eps, bool keep)
{
    WfVal d = wf_adds(g, wf_sub(g, a, b), eps);
    return vector_norm(g, d, p, wf_rank_of(g, d) - 1, keep);
}

static int pairwise_distance(DECOMPOSE)
{
    WfVal a, b;
    both(g, n, &a, &b);
    out[0] = apart(g, a, b, wf_float(g, n, 2), wf_float(g, n, 3), wf_bool(n, 4));
    return 1;
}

static int triplet_margin_loss(DECOMPOSE)
{
    double p = wf_float(g, n, 4), eps = wf_float(g, n, 5);
    WfVal near = apart(g, T(0), T(1), p, eps, false), far = apart(g, T(0), T(2), p, eps, false);
    if (wf_bool(n, 6))
        far = wf_binary(g, "prim.min", far, apart(g, T(1), T(2), p, eps, false));
    WfVal v = clamp0(g, wf_adds(g, wf_sub(g, near, far), wf_float(g, n, 3)));
    return finish(g, v, wf_lit(g, n, 7), out);
}

#define NAME(name, args)                                                                          \
    {                                                                                             \
        .schema = "aten." #name "(" args ") -> Tensor", .family = WF_COMPOSITE, .decompose = name \
    }
/* a loss whose first operand holds the predictions */
#define LOSS(name, args)                                                                                            \
    {                                                                                                               \
        .schema = "aten." #name "(" args ") -> Tensor", .family = WF_COMPOSITE, .decompose = name, .predictions = 1 \
    }
#define PAIR "Tensor self, Tensor target"

static const WfOp ops[] = {
    LOSS(mse_loss, PAIR ", int reduction=1"),
    LOSS(l1_loss, PAIR ", int reduction=1"),
    LOSS(smooth_l1_loss, PAIR ", int reduction=1, float beta=1."),
    LOSS(huber_loss, PAIR ", int reduction=1, float delta=1."),
    {.schema = "nn.bce(Tensor x, Tensor target) -> Tensor",
     .family = WF_COMPOSITE,
     .infer = bce_infer,
     .decompose = bce,
     .vjp = bce_vjp},
    LOSS(binary_cross_entropy, PAIR ", Tensor? weight=None, int reduction=1"),
    LOSS(binary_cross_entropy_with_logits,
         PAIR ", Tensor? weight=None, Tensor? pos_weight=None, int reduction=1"),
    LOSS(kl_div, PAIR ", int reduction=1, *, bool log_target=False"),
    LOSS(soft_margin_loss, PAIR ", int reduction=1"),
    LOSS(hinge_embedding_loss, PAIR ", float margin=1., int reduction=1"),
    LOSS(margin_ranking_loss,
         "Tensor input1, Tensor input2, Tensor target, float margin=0., int reduction=1"),
    LOSS(poisson_nll_loss,
         "Tensor input, Tensor target, bool log_input, bool full, float eps, int reduction"),
    NAME(cosine_similarity, "Tensor x1, Tensor x2, int dim=1, float eps=1e-08"),
    LOSS(cosine_embedding_loss,
         "Tensor input1, Tensor input2, Tensor target, float margin=0., int reduction=1"),
    NAME(pairwise_distance,
         "Tensor x1, Tensor x2, float p=2., float eps=9.9999999999999995e-07, bool keepdim=False"),
    LOSS(triplet_margin_loss,
         "Tensor anchor, Tensor positive, Tensor negative, float margin=1., float p=2., float "
         "eps=9.9999999999999995e-07, bool swap=False, int reduction=1"),
    {0}};

void wf_ops_aten_loss(void)
{
    wf_register(ops);
}
