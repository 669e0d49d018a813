/* The joint graph: loss, then the gradient of every trainable parameter, as nodes behind the forward pass. The loss is
 * the model's own first output, or one of PyTorch's losses applied to it. Evaluation takes the loss and stops there. */
#include "grad/private.h"
#include "ops/ops.h"

#include <string.h>

static WfVal user_output(WfGraph *g, const char *name)
{
    for (int i = 0; i < g->outputs.n; i++)
        if (g->outputs.at[i].role == WF_OUT_USER && !strcmp(g->outputs.at[i].name, name))
            return g->outputs.at[i].val;
    return 0;
}

/* The graph's input of that name, made if the model has none: the loss target comes with the data. */
static WfVal target(WfGraph *g, const char *name, WfDtype t, int rank, const WfDim *shape)
{
    for (int i = 0; i < g->inputs.n; i++)
        if (g->inputs.at[i].role == WF_IN_USER && !strcmp(g->inputs.at[i].name, name))
            return g->inputs.at[i].val;
    return wf_add_input(g, WF_IN_USER, name, t, rank, shape);
}

/* The one tensor of `file`, a constant of that name in the dtype of x: a number per class, or one of a shape that
 * broadcasts to x's. 0 without a file. */
static WfVal weights_from(WfGraph *g, const char *file, const char *name, WfVal x, bool by_class)
{
    if (!file)
        return 0;
    WfTensors *t = wf_safetensors_open(g->ctx, g->arena, file);
    WfDim shape[WF_MAX_RANK];
    const WfTensor *w = t->at;
    if (t->n != 1 || (w->dtype != WF_F32 && w->dtype != WF_F64) || (by_class ? w->rank != 1 : w->rank > wf_rank_of(g, x)))
        wf_fail(g->ctx, WF_E_LOSS_WEIGHTS, "%s: one f32 or f64 tensor with %s is expected", file,
                by_class ? "a weight per class" : "weights that broadcast to the predictions");
    for (int i = 0; i < w->rank; i++)
        shape[i] = w->shape[i];
    WfVal v = wf_add_input(g, WF_IN_CONST, name, w->dtype, w->rank, shape);
    WfInput *in = &g->inputs.at[g->inputs.n - 1];
    in->data = w->data;
    for (int64_t i = w->rank - 1, stride = 1; i >= 0; stride *= w->shape[i--])
        in->strides[i] = stride;
    v = wf_cast(g, v, wf_dtype_of(g, x));
    return by_class ? v : wf_expand_like(g, v, x);
}

/* Classes are dimension 1 of the predictions, as in PyTorch. Tokens are what [N, T, C] has there instead: a size that the data choose,
 * or that of the tokens that come in, while another is last. */
static void check_classes(WfGraph *g, const char *target, WfVal x)
{
    const WfValue *v = wf_value(g, x);
    const char *tokens = NULL;
    if (v->rank < 3 || v->shape[v->rank - 1] == v->shape[1])
        return;
    for (int i = 0; i < g->inputs.n && !tokens; i++) {
        const WfInput *in = &g->inputs.at[i];
        const WfValue *u = wf_value(g, in->val);
        if (in->role == WF_IN_USER && u->rank >= 2 && u->shape[1] == v->shape[1] && !wf_dtype_is_float(u->dtype) && strcmp(in->name, target))
            tokens = in->name;
    }
    if (!tokens && wf_elit(g->exprs, v->shape[1], NULL))
        return;
    const WfNode *n = wf_producer(g, x);
    wf_fail_at(g->ctx, WF_E_CLASSES, n ? wf_node_place(g, n) : NULL,
               "Return .transpose(1, 2) of [N, T, C]; or compute the loss in forward, over .flatten(0, 1).",
               "this loss takes scores [N, C, ...], the classes in dimension 1; forward gives %s, whose dimension 1 %s%s", wf_shape_text(g, x),
               tokens ? "is the length of input " : "is chosen by the data", tokens ? tokens : "");
}

static WfVal class_loss(WfGraph *g, const WfOptions *o, WfVal x, const char *name, int reduction)
{
    const WfValue *v = wf_value(g, x);
    WfDim shape[WF_MAX_RANK], ignore = wf_econst(g->exprs, o->ignore_index);
    int r = 0;
    if (v->rank < 1)
        wf_fail(g->ctx, WF_E_NO_LOSS, "--loss needs an output with classes; the model's is %s", wf_shape_text(g, x));
    check_classes(g, name, x);
    for (int i = 0; i < v->rank; i++) /* labels [N, d..] for [N, C, d..] */
        if (i != (v->rank > 1 ? 1 : 0))
            shape[r++] = v->shape[i];
    WfVal y = o->soft_target ? target(g, name, v->dtype, v->rank, v->shape) : target(g, name, WF_I64, r, shape);
    WfVal w = weights_from(g, o->loss_weights, "loss.weight", x, true);
    if (o->loss == WF_LOSS_NLL)
        return wf_emit(g, "aten.nll_loss_nd", "vvvdi", x, y, w, reduction, ignore);
    return wf_emit(g, "aten.cross_entropy_loss", "vvvdif", x, y, w, reduction, ignore, o->label_smoothing);
}

static WfVal option_loss(WfGraph *g, const WfOptions *o, WfVal x)
{
    const WfValue *v = wf_value(g, x);
    const char *name = o->target ? o->target : "y";
    int reduction = o->reduction == WF_REDUCE_SUM ? 2 : 1;
    if (o->loss == WF_LOSS_CROSS_ENTROPY || o->loss == WF_LOSS_NLL)
        return class_loss(g, o, x, name, reduction);
    WfVal y = target(g, name, v->dtype, v->rank, v->shape), w = weights_from(g, o->loss_weights, "loss.weight", x, false);
    switch (o->loss) {
    case WF_LOSS_MSE: return wf_emit(g, "aten.mse_loss", "vvd", x, y, reduction);
    case WF_LOSS_L1: return wf_emit(g, "aten.l1_loss", "vvd", x, y, reduction);
    case WF_LOSS_SMOOTH_L1: return wf_emit(g, "aten.smooth_l1_loss", "vvdf", x, y, reduction, o->beta);
    case WF_LOSS_HUBER: return wf_emit(g, "aten.huber_loss", "vvdf", x, y, reduction, o->delta);
    case WF_LOSS_BCE: return wf_emit(g, "aten.binary_cross_entropy", "vvvd", x, y, w, reduction);
    case WF_LOSS_BCE_WITH_LOGITS:
        return wf_emit(g, "aten.binary_cross_entropy_with_logits", "vvvvd", x, y, w,
                       weights_from(g, o->pos_weight, "loss.pos_weight", x, false), reduction);
    default: break;
    }
    if (o->reduction == WF_REDUCE_BATCHMEAN) {
        WfVal s = wf_emit(g, "aten.kl_div", "vvdb", x, y, 2, o->log_target);
        return wf_div(g, s, wf_dim_scalar(g, v->dtype, v->rank ? v->shape[0] : 1));
    }
    return wf_emit(g, "aten.kl_div", "vvdb", x, y, reduction, o->log_target);
}

static void check_loss(WfGraph *g, WfVal loss, bool own)
{
    if (!loss || !wf_dtype_is_float(wf_dtype_of(g, loss)) || wf_numel(g, loss) != 1)
        wf_fail_at(g->ctx, WF_E_NO_LOSS, loss && wf_producer(g, loss) ? wf_node_place(g, wf_producer(g, loss)) : NULL,
                   own ? "Return the loss as the first output of forward, or name one with --loss cross_entropy."
                       : NULL,
                   "the model's first output is %s, not a scalar loss", loss ? wf_shape_text(g, loss) : "missing");
}

WfGraph *wf_grad_joint(WfPassEnv *env, WfGraph *g)
{
    const WfOptions *o = env->options;
    WfGraph *to = wf_graph_like(g, WF_JOINT);
    WfVal *map = WF_NEWN(g->arena, WfVal, (size_t)g->values.n);
    bool own = !o || o->loss == WF_LOSS_NONE;
    wf_graph_copy(g, to, map);
    if (env->half) {
        wf_grad_ends(to);
        return to;
    }
    if (env->eval && o && o->forward_only && !o->eval) { /* weft eval wants the loss, too */
        WfVal p = user_output(to, "predictions");
        to->outputs.n = 0;
        wf_add_output(to, WF_OUT_USER, "predictions", p ? p : user_output(to, "0"), 0);
        return to;
    }
    if (env->eval) { /* evaluation changes no state, also where the model's counters would */
        int n = 0;
        for (int i = 0; i < to->outputs.n; i++)
            if (to->outputs.at[i].role != WF_OUT_UPDATE)
                to->outputs.at[n++] = to->outputs.at[i];
        to->outputs.n = n;
    }
    int64_t leaf = o && o->predictions >= 0 && !own ? o->predictions : 0;
    WfVal x = user_output(to, wf_arena_printf(g->arena, "%lld", (long long)leaf));
    if (!own && !x)
        wf_fail_at(g->ctx, WF_E_NO_LOSS, NULL, "`weft info MODEL` lists the outputs.", "--loss has no tensor to be of: the model has no output %lld",
                   (long long)leaf);
    WfVal loss = own ? x : option_loss(to, o, x);
    if (own && env->eval && (!loss || wf_numel(to, loss) != 1))
        return to; /* a model without a loss can still be evaluated */
    check_loss(to, loss, own);
    if (wf_rank_of(to, loss))
        loss = wf_reshape(to, loss, 0, NULL);
    WfLossShare l = wf_grad_loss(env, to, loss);
    for (int i = 0; i < to->outputs.n && own && l.loss != loss; i++) /* the model's own output of it is the same loss */
        if (to->outputs.at[i].role == WF_OUT_USER && to->outputs.at[i].val == x)
            to->outputs.at[i].val = wf_reshape(to, l.loss, wf_rank_of(to, x), wf_value(to, x)->shape);
    wf_add_output(to, WF_OUT_LOSS, "loss", l.loss, 0);
    if (l.weight) {
        wf_add_output(to, WF_OUT_METRIC, "loss_sum", l.sum, 0);
        wf_add_output(to, WF_OUT_METRIC, "loss_count", l.weight, 0);
    }
    if (env->eval) {
        if (!own)
            wf_add_output(to, WF_OUT_USER, "predictions", x, 0);
        return to;
    }
    WfVal *wrt = WF_NEWN(g->arena, WfVal, (size_t)to->inputs.n + 1), *grad = WF_NEWN(g->arena, WfVal, (size_t)to->inputs.n + 1);
    int *input = WF_NEWN(g->arena, int, (size_t)to->inputs.n + 1), n = 0;
    for (int i = 0; i < to->inputs.n; i++)
        if (to->inputs.at[i].role == WF_IN_PARAM && to->inputs.at[i].trainable) {
            input[n] = i;
            wrt[n++] = to->inputs.at[i].val;
        }
    bool here = o && o->accumulate > 1 && o->deterministic != WF_DETERMINISTIC_ELASTIC && !l.weight;
    WfVal seed = here ? wf_like(to, loss, 1 / (double)o->accumulate) : 0; /* as (loss / K).backward() */
    wf_grad_backward(to, l.sum, seed, wrt, n, grad);
    bool any = false;
    for (int i = 0; i < n; i++) {
        any |= grad[i] != 0;
        if (grad[i])
            wf_add_output(to, WF_OUT_GRAD, to->inputs.at[input[i]].name, grad[i], input[i]);
    }
    if (!any)
        wf_fail_at(g->ctx, WF_E_NOTHING_LEARNS, NULL, "Check requires_grad and detach in the model.",
                   "no trainable parameter gets a gradient from the loss");
    const WfNode *statistics = o && o->last_batch == WF_LAST_PAD ? wf_grad_mixed(to) : NULL;
    if (statistics && !env->micro)
        wf_grad_warn(env, to, "--last-batch=pad: statistics are those of all rows, also of padding", statistics);
    wf_grad_guard_buffers(to, l.any);
    return to;
}
