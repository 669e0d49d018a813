/* Losses over classes. The class of a row is never used as an address: a row's loss is the sum over all
 * classes of where(class == label, ..., 0), which fuses into one loop over the row, and a label outside the
 * classes is reported by prim.check. Rows with the ignored label give 0 and do not count in the mean, which
 * divides by the sum of the labels' weights (ATen/native/LossNLL.cpp).
 *
 * nn.cross_entropy is the fused form: its backward reads the logits and one number a row (the log of the sum
 * of exponentials), so the [rows, classes] matrix of log-probabilities is never stored. With q_c what class c
 * weighs in its row, (1 - s) w_label [c = label] + s w_c / C, the loss is sum_c q_c (lse - x_c) and its
 * gradient (sum q) softmax(x)_c - q_c. */
#include "ops/ops_private.h"

#include <string.h>

#define DECOMPOSE WfGraph *g, const WfNode *n, WfVal *out
#define T(i)      wf_tensor(n, i)

/* What rows of classes have in common: x[N, C, d..] or x[C], label without the class dimension. */
typedef struct {
    WfVal x, weight; /* weight: [1, C, 1..] or 0 */
    WfVal valid;     /* bool, with a class dimension of size 1 */
    WfVal hit;       /* bool, of x's shape: the label's place in valid rows */
    int dim;
    WfDim classes;
} Rows;

static Rows rows_of(WfGraph *g, const WfNode *n, WfVal x, WfVal label, WfVal weight, WfDim ignore)
{
    Rows r = {.x = x, .dim = wf_rank_of(g, x) > 1};
    const WfValue *v = wf_value(g, x);
    WfDim shape[WF_MAX_RANK], lead[WF_MAX_RANK];
    int rank = v->rank;
    if (!rank || wf_rank_of(g, label) != rank - 1 || !wf_dtype_is_int(wf_dtype_of(g, label)))
        wf_fail_node(g, n, WF_E_SHAPES, "class labels %s do not fit %s", wf_shape_text(g, label),
                     wf_shape_text(g, x));
    memcpy(shape, v->shape, sizeof shape);
    r.classes = shape[r.dim];
    for (int i = 0; i < rank; i++)
        lead[i] = i == r.dim ? r.classes : 1;
    if (weight && (wf_numel(g, weight) != r.classes || wf_rank_of(g, weight) != 1))
        wf_fail_node(g, n, WF_E_SHAPES, "weight %s is not one number for each class of %s",
                     wf_shape_text(g, weight), wf_shape_text(g, x));
    if (weight)
        r.weight = wf_reshape(g, weight, rank, lead);
    WfVal t = wf_cast(g, label, WF_I64);
    t = wf_emit(g, "prim.check", "viii", t, (WfDim)0, r.classes, ignore);
    t = wf_unsqueeze(g, t, r.dim);
    r.valid = wf_binary(g, "prim.ne", t, wf_dim_scalar(g, WF_I64, ignore));
    WfVal same = wf_binary(g, "prim.eq", wf_iota(g, WF_I32, rank, shape, r.dim), wf_cast(g, t, WF_I32));
    r.hit = wf_binary(g, "prim.and", same, r.valid);
    return r;
}

static WfVal over_classes(WfGraph *g, const Rows *r, WfVal v, bool keep)
{
    return wf_sum(g, v, 1u << r->dim, keep);
}

/* The weight of each row's label; 0 in ignored rows. */
static WfVal label_weight(WfGraph *g, const Rows *r, bool keep)
{
    WfDtype t = wf_dtype_of(g, r->x);
    if (!r->weight) {
        WfVal v = wf_cast(g, r->valid, t);
        return keep ? v : wf_squeeze(g, v, r->dim);
    }
    return over_classes(g, r, wf_where(g, r->hit, r->weight, wf_like(g, r->x, 0)), keep);
}

/* reduction 0: rows, 1: weighted mean, 2: sum */
static WfVal finish(WfGraph *g, WfVal rows, WfVal weights, int64_t reduction)
{
    uint32_t all = WF_ALL_DIMS(wf_rank_of(g, rows));
    if (reduction == 0)
        return rows;
    WfVal sum = wf_sum(g, rows, all, false);
    return reduction == 2 ? sum : wf_div(g, sum, wf_sum(g, weights, all, false));
}

/* ---- negative log likelihood ---- */

static WfVal nll_rows(WfGraph *g, const Rows *r)
{
    WfVal v = wf_neg(g, r->x), zero = wf_like(g, r->x, 0);
    return over_classes(g, r, wf_where(g, r->hit, r->weight ? wf_mul(g, v, r->weight) : v, zero), false);
}

static int nll_loss(DECOMPOSE)
{
    Rows r = rows_of(g, n, T(0), T(1), T(2), wf_int(n, 4));
    out[0] = finish(g, nll_rows(g, &r), label_weight(g, &r, false), wf_lit(g, n, 3));
    return 1;
}

static int nll_loss_forward(DECOMPOSE)
{
    Rows r = rows_of(g, n, T(0), T(1), T(2), wf_int(n, 4));
    int64_t reduction = wf_lit(g, n, 3);
    WfVal weights = label_weight(g, &r, false);
    out[0] = finish(g, nll_rows(g, &r), weights, reduction);
    out[1] = reduction ? wf_sum(g, weights, WF_ALL_DIMS(wf_rank_of(g, weights)), false) : wf_like(g, T(0), 0);
    return 2;
}

/* ---- nn.cross_entropy(x, label, weight?, ignore, smoothing) -> loss, lse, label_weight; all by row ---- */

static Rows ce_rows(WfGraph *g, const WfNode *n)
{
    return rows_of(g, n, T(0), T(1), T(2), wf_int(n, 3));
}

static void ce_infer(WfGraph *g, const WfNode *n)
{
    const WfValue *x = wf_value(g, T(0));
    WfDim shape[WF_MAX_RANK];
    int rank = 0;
    for (int i = 0; i < x->rank; i++)
        if (i != (x->rank > 1))
            shape[rank++] = x->shape[i];
    for (int i = 0; i < 3; i++)
        wf_set_result(g, n, i, x->dtype, rank, shape);
}

static int ce_decompose(DECOMPOSE)
{
    Rows r = ce_rows(g, n);
    uint32_t m = 1u << r.dim;
    double s = wf_float(g, n, 4);
    WfVal x = T(0), zero = wf_like(g, x, 0), top = wf_detach(g, wf_reduce(g, "prim.amax", x, m, true));
    WfVal sum = wf_sum(g, wf_unary(g, "prim.exp", wf_sub(g, x, top)), m, true);
    WfVal lse = wf_add(g, wf_unary(g, "prim.log", sum), top), minus = wf_sub(g, lse, x);
    if (r.weight)
        minus = wf_mul(g, minus, r.weight);
    WfVal loss = over_classes(g, &r, wf_where(g, r.hit, minus, zero), false);
    if (s != 0) {
        WfVal share = wf_div(g, wf_like(g, x, s), wf_dim_scalar(g, wf_dtype_of(g, x), r.classes));
        WfVal all = wf_mul(g, over_classes(g, &r, minus, true), share);
        WfVal spread = wf_squeeze(g, wf_where(g, r.valid, all, zero), r.dim);
        loss = wf_add(g, wf_muls(g, loss, 1 - s), spread);
    }
    out[0] = loss;
    out[1] = wf_squeeze(g, lse, r.dim);
    out[2] = label_weight(g, &r, false);
    return 3;
}

static void ce_vjp(WfGraph *g, const WfNode *n, const WfVal *dy, WfVal *dx)
{
    if (dy[1] || dy[2])
        wf_fail_node(g, n, WF_E_BUG, "only the loss has a gradient");
    Rows r = ce_rows(g, n);
    double s = wf_float(g, n, 4);
    WfVal x = T(0), zero = wf_like(g, x, 0), wl = wf_unsqueeze(g, n->out + 2, r.dim);
    WfVal p = wf_unary(g, "prim.exp", wf_sub(g, x, wf_unsqueeze(g, n->out + 1, r.dim)));
    WfVal q = wf_where(g, r.hit, wf_muls(g, wl, 1 - s), zero), total = wl;
    if (s != 0) {
        WfVal share = wf_div(g, wf_like(g, x, s), wf_dim_scalar(g, wf_dtype_of(g, x), r.classes));
        WfVal each = r.weight ? wf_mul(g, r.weight, share) : share;
        WfVal sum = r.weight ? over_classes(g, &r, each, true) : wf_like(g, x, s);
        q = wf_add(g, q, wf_where(g, r.valid, each, zero));
        total = wf_add(g, wf_muls(g, wl, 1 - s), wf_where(g, r.valid, sum, zero));
    }
    if (wf_wants(g, 0))
        dx[0] = wf_mul(g, wf_unsqueeze(g, dy[0], r.dim), wf_sub(g, wf_mul(g, p, total), q));
    if (T(2) && wf_wants(g, 2))
        wf_fail_node(g, n, WF_E_NO_GRADIENT, "the class weights of a loss have no gradient");
}

/* Targets that are probabilities: -sum_c w_c (t_c (1 - s) + s / C) log p_c; the mean is over rows. */
static WfVal soft_targets(WfGraph *g, const WfNode *n, int64_t reduction, double s)
{
    WfVal x = T(0), t = wf_cast(g, T(1), wf_dtype_of(g, x));
    int rank = wf_rank_of(g, x), dim = rank > 1;
    WfDim classes = wf_size_of(g, x, dim), lead[WF_MAX_RANK];
    for (int i = 0; i < rank; i++)
        lead[i] = i == dim ? classes : 1;
    WfVal count = wf_dim_scalar(g, wf_dtype_of(g, x), classes);
    if (s != 0)
        t = wf_add(g, wf_muls(g, t, 1 - s), wf_div(g, wf_like(g, x, s), count));
    WfVal v = wf_mul(g, wf_neg(g, wf_emit(g, "aten._log_softmax", "vdb", x, dim, 0)), t);
    if (T(2))
        v = wf_mul(g, v, wf_reshape(g, T(2), rank, lead));
    WfVal rows = wf_sum(g, v, 1u << dim, false);
    uint32_t all = WF_ALL_DIMS(rank - 1);
    return reduction == 0   ? rows
           : reduction == 2 ? wf_sum(g, rows, all, false)
                            : wf_mean(g, rows, all, false);
}

static int cross_entropy(DECOMPOSE)
{
    int64_t reduction = wf_lit(g, n, 3);
    double s = wf_float(g, n, 5);
    if (wf_same_shape(g, T(0), T(1)) && wf_dtype_is_float(wf_dtype_of(g, T(1)))) {
        out[0] = soft_targets(g, n, reduction, s);
        return 1;
    }
    WfVal r[WF_MAX_RESULTS];
    WfVal x = wf_wide(g, T(0)), w = T(2) ? wf_cast(g, T(2), wf_dtype_of(g, x)) : 0;
    wf_emit_multi(g, r, "nn.cross_entropy", "vvvif", x, T(1), w, wf_int(n, 4), s);
    out[0] = wf_cast(g, finish(g, r[0], wf_detach(g, r[2]), reduction), wf_dtype_of(g, T(0)));
    return 1;
}

/* ---- margins ---- */

/* sum over c != label of w_label max(0, margin - x_label + x_c)^p / C */
static int multi_margin(DECOMPOSE)
{
    double p = wf_float(g, n, 2), margin = wf_float(g, n, 3);
    int64_t reduction = wf_lit(g, n, 5);
    WfVal x = T(0), label = T(1);
    if (wf_rank_of(g, x) == 0)
        x = wf_unsqueeze(g, x, 0);
    if (wf_rank_of(g, x) == 2 && wf_rank_of(g, label) == 0)
        label = wf_unsqueeze(g, label, 0);
    if (wf_rank_of(g, x) == 1 && wf_rank_of(g, label) == 1)
        label = wf_squeeze(g, label, 0);
    Rows r = rows_of(g, n, x, label, T(4), wf_econst(g->exprs, -(1ll << 40)));
    WfVal zero = wf_like(g, x, 0), own = over_classes(g, &r, wf_where(g, r.hit, x, zero), true);
    WfVal z = wf_sub(g, wf_adds(g, x, margin), own);
    z = wf_where(g, wf_binary(g, "prim.gt", z, zero), z, zero);
    if (p == 2)
        z = wf_mul(g, z, z);
    z = wf_where(g, r.hit, zero, z);
    WfVal rows = over_classes(g, &r, z, true);
    if (r.weight)
        rows = wf_mul(g, rows, label_weight(g, &r, true));
    rows = wf_squeeze(g, wf_div(g, rows, wf_dim_scalar(g, wf_dtype_of(g, x), r.classes)), r.dim);
    uint32_t all = WF_ALL_DIMS(wf_rank_of(g, rows));
    out[0] = reduction == 0   ? rows
             : reduction == 2 ? wf_sum(g, rows, all, false)
                              : wf_mean(g, rows, all, false);
    return 1;
}

/* Labels of a row up to the first negative one; sum over labels j and other classes i of max(0, 1 - x_j +
 * x_i) / C. */
static WfVal multilabel(WfGraph *g, const WfNode *n, int64_t reduction, WfVal *is_target)
{
    WfVal x = T(0), t = wf_cast(g, T(1), WF_I64), zero = wf_like(g, x, 0), none = wf_scalar(g, WF_I64, 0);
    WfDtype dt = wf_dtype_of(g, x);
    bool single = wf_rank_of(g, x) < 2;
    if (!wf_same_shape(g, x, t) || wf_rank_of(g, x) > 2)
        wf_fail_node(g, n, WF_E_SHAPES, "labels %s do not fit %s", wf_shape_text(g, t),
                     wf_shape_text(g, x));
    while (wf_rank_of(g, x) < 2) {
        x = wf_unsqueeze(g, x, 0);
        t = wf_unsqueeze(g, t, 0);
    }
    WfDim rows = wf_size_of(g, x, 0), c = wf_size_of(g, x, 1);
    WfVal ended = wf_emit(g, "prim.cumsum", "vd", wf_cast(g, wf_binary(g, "prim.lt", t, none), WF_I64), 1);
    WfVal live = wf_binary(g, "prim.eq", ended, none);
    t = wf_where(g, live, t, none);
    t = wf_emit(g, "prim.check", "viii", t, (WfDim)0, c, (WfDim)0);
    /* [rows, label j, class i] */
    WfVal at = wf_iota(g, WF_I64, 3, (WfDim[]){rows, c, c}, 2), tj = wf_unsqueeze(g, t, 2);
    WfVal lj = wf_unsqueeze(g, live, 2), xi = wf_unsqueeze(g, x, 1);
    WfVal hit = wf_binary(g, "prim.and", wf_binary(g, "prim.eq", at, tj), lj);
    WfVal labelled = wf_binary(g, "prim.gt", wf_sum(g, wf_cast(g, hit, dt), 2, false), zero); /* [rows, i] */
    WfVal own = wf_sum(g, wf_where(g, hit, xi, zero), 4, true);
    WfVal z = wf_add(g, wf_adds(g, wf_neg(g, own), 1), xi);
    WfVal other = wf_unary(g, "prim.not", wf_unsqueeze(g, labelled, 1));
    WfVal counts =
        wf_binary(g, "prim.and", wf_binary(g, "prim.and", lj, other), wf_binary(g, "prim.gt", z, zero));
    WfVal loss = wf_div(g, wf_sum(g, wf_where(g, counts, z, zero), 6, false), wf_dim_scalar(g, dt, c));
    *is_target = wf_reshape(g, wf_cast(g, labelled, dt), wf_rank_of(g, T(0)), wf_value(g, T(0))->shape);
    if (single)
        loss = wf_reshape(g, loss, 0, NULL);
    uint32_t all = WF_ALL_DIMS(wf_rank_of(g, loss));
    return reduction == 0   ? loss
           : reduction == 2 ? wf_sum(g, loss, all, false)
                            : wf_mean(g, loss, all, false);
}

static int multilabel_margin(DECOMPOSE)
{
    WfVal is_target;
    out[0] = multilabel(g, n, wf_lit(g, n, 2), &is_target);
    return 1;
}

static int multilabel_margin_forward(DECOMPOSE)
{
    out[0] = multilabel(g, n, wf_lit(g, n, 2), &out[1]);
    return 2;
}

#define NAME(text, fn)                                                                    \
    {                                                                                     \
        .schema = "aten." text, .family = WF_COMPOSITE, .decompose = fn, .predictions = 1 \
    }
#define CLASSES "Tensor self, Tensor target, Tensor? weight=None, int reduction=1, SymInt ignore_index=-100"

static const WfOp ops[] = {
    {.schema = "nn.cross_entropy(Tensor x, Tensor label, Tensor? weight, int ignore, float smoothing) -> "
               "(Tensor loss, "
               "Tensor lse, Tensor label_weight)",
     .family = WF_COMPOSITE,
     .infer = ce_infer,
     .decompose = ce_decompose,
     .vjp = ce_vjp},
    NAME("cross_entropy_loss(" CLASSES ", float label_smoothing=0.) -> Tensor", cross_entropy),
    NAME("nll_loss_nd(" CLASSES ") -> Tensor", nll_loss),
    NAME("nll_loss(" CLASSES ") -> Tensor", nll_loss),
    NAME("nll_loss2d(" CLASSES ") -> Tensor", nll_loss),
    NAME("nll_loss_forward(Tensor self, Tensor target, Tensor? weight, int reduction, SymInt ignore_index) "
         "-> (Tensor "
         "output, Tensor total_weight)",
         nll_loss_forward),
    NAME("nll_loss2d_forward(Tensor self, Tensor target, Tensor? weight, int reduction, SymInt ignore_index) "
         "-> "
         "(Tensor output, Tensor total_weight)",
         nll_loss_forward),
    NAME(
        "multi_margin_loss(Tensor self, Tensor target, Scalar p=1, Scalar margin=1, Tensor? weight=None, int "
        "reduction=1) -> Tensor",
        multi_margin),
    NAME("multilabel_margin_loss(Tensor self, Tensor target, int reduction=1) -> Tensor", multilabel_margin),
    NAME(
        "multilabel_margin_loss_forward(Tensor self, Tensor target, int reduction) -> (Tensor output, Tensor "
        "is_target)",
        multilabel_margin_forward),
    {0}};

void wf_ops_aten_nll(void)
{
    wf_register(ops);
}
