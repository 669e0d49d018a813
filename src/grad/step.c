/* The optimiser as nodes: clipping, then PyTorch's exact update formulas per parameter (torch/optim: single-tensor
 * forms; operations in the same order, scalars computed in double outside and read in the parameter's precision). A parameter that no
 * gradient reaches is left alone: no decay, no state. */
#include "grad/grad.h"

#include "exe/exe.h"
#include "ops/ops.h"

#include <fnmatch.h>
#include <string.h>

typedef struct {
    WfGraph *g;
    const WfOptions *o;
    WfHyper *groups;
    int n_groups;
    int param; /* the input that is being updated */
} Step;

/* ---- groups and run-time scalars ---- */

static int group_of(Step *s, const char *param)
{
    WfHyper h = wf_options_hyper(s->o, param);
    for (int i = 0; i < s->n_groups; i++)
        if (!memcmp(&s->groups[i], &h, sizeof h))
            return i;
    s->groups[s->n_groups] = h;
    return s->n_groups++;
}

/* The run-time scalar in the precision of `like`: f64 for f64, f32 for all others, converted where it is used. */
static WfVal scalar_as(Step *s, int group, const char *what, WfVal like)
{
    WfDtype t = wf_dtype_of(s->g, like);
    bool wide = t == WF_F64;
    char *name = wf_arena_printf(s->g->arena, "group%d.%s%s", group, wide ? "f64." : "", what);
    for (int i = 0; i < s->g->inputs.n; i++)
        if (s->g->inputs.at[i].role == WF_IN_SCALAR && !strcmp(s->g->inputs.at[i].name, name))
            return wf_cast(s->g, s->g->inputs.at[i].val, t);
    WfVal v = wf_add_input(s->g, WF_IN_SCALAR, name, wide ? WF_F64 : WF_F32, 0, NULL);
    s->g->inputs.at[s->g->inputs.n - 1].of = wf_arena_printf(s->g->arena, "%d", group);
    return wf_cast(s->g, v, t);
}

static WfVal state(Step *s, const char *param, const char *what, WfVal like, double fill)
{
    const WfValue *v = wf_value(s->g, like);
    char *name = wf_arena_printf(s->g->arena, "%s.%s", param, what);
    WfVal x = wf_add_input(s->g, WF_IN_STATE, name, v->dtype, v->rank, v->shape);
    WfInput *in = &s->g->inputs.at[s->g->inputs.n - 1];
    in->of = wf_arena_strdup(s->g->arena, param);
    in->fill = fill;
    return x;
}

static void update(Step *s, WfVal input, WfVal value)
{
    int i = (int)(wf_input_of(s->g, input) - s->g->inputs.at);
    wf_add_output(s->g, WF_OUT_UPDATE, s->g->inputs.at[i].name, value, i);
}

static void update_param(Step *s, WfVal value)
{
    wf_add_output(s->g, WF_OUT_UPDATE, s->g->inputs.at[s->param].name, value, s->param);
}

/* What the optimiser finds in a parameter: its start value, or what forward wrote into it (a weight clamped under
 * no_grad). That update is taken out: one remains, the optimiser's. */
static WfVal found(WfGraph *g, int input)
{
    WfVal v = g->inputs.at[input].val;
    int n = 0;
    for (int i = 0; i < g->outputs.n; i++) {
        if (g->outputs.at[i].role == WF_OUT_UPDATE && g->outputs.at[i].input == input)
            v = g->outputs.at[i].val;
        else
            g->outputs.at[n++] = g->outputs.at[i];
    }
    g->outputs.n = n;
    return v;
}

/* ---- formulas; p the parameter's value, d gradient, k group ---- */

#define FORMULA Step *s, const char *name, WfVal p, WfVal d, int k, const WfHyper *h

static WfVal decayed(Step *s, WfVal p, WfVal d, int k, const WfHyper *h) /* d + weight_decay p */
{
    return h->weight_decay == 0 ? d : wf_add(s->g, d, wf_mul(s->g, p, scalar_as(s, k, "weight_decay", p)));
}

/* torch.lerp(a, b, w) for the weight that the scalar holds; which form depends on its size. */
static WfVal lerp(Step *s, WfVal a, WfVal b, int k, const char *w, const char *one_minus, double weight)
{
    WfGraph *g = s->g;
    WfVal diff = wf_sub(g, b, a);
    if (weight < 0.5)
        return wf_add(g, a, wf_mul(g, diff, scalar_as(s, k, w, a)));
    return wf_sub(g, b, wf_mul(g, diff, scalar_as(s, k, one_minus, a)));
}

/* v decay + (1 - decay) d d */
static WfVal squares(Step *s, WfVal v, WfVal d, int k, const char *decay, const char *rest)
{
    WfGraph *g = s->g;
    WfVal first = wf_mul(g, v, scalar_as(s, k, decay, v));
    return wf_add(g, first, wf_mul(g, wf_mul(g, d, scalar_as(s, k, rest, v)), d));
}

static void sgd(FORMULA)
{
    WfGraph *g = s->g;
    d = decayed(s, p, d, k, h);
    if (h->momentum != 0) {
        WfVal buf = state(s, name, "momentum_buffer", p, 0), m = scalar_as(s, k, "momentum", p);
        WfVal damped = h->dampening == 0 ? d : wf_mul(g, d, scalar_as(s, k, "undamped", p));
        WfVal fresh = wf_add(g, wf_mul(g, buf, m), damped);
        update(s, buf, fresh);
        d = h->nesterov ? wf_add(g, d, wf_mul(g, fresh, m)) : fresh;
    }
    update_param(s, wf_add(g, p, wf_mul(g, d, scalar_as(s, k, "minus_lr", p))));
}

static void adam_with(FORMULA, bool decoupled)
{
    WfGraph *g = s->g;
    WfVal q = p;
    if (decoupled)
        q = h->weight_decay == 0 ? p : wf_mul(g, p, scalar_as(s, k, "decay", p));
    else
        d = decayed(s, p, d, k, h);
    WfVal m = state(s, name, "exp_avg", p, 0), v = state(s, name, "exp_avg_sq", p, 0);
    WfVal m1 = lerp(s, m, d, k, "one_minus_beta1", "beta1", 1 - h->beta1);
    WfVal v1 = squares(s, v, d, k, "beta2", "one_minus_beta2"), root = v1;
    update(s, m, m1);
    update(s, v, v1);
    if (h->amsgrad) {
        WfVal most = state(s, name, "max_exp_avg_sq", p, 0);
        root = wf_binary(g, "prim.max", most, v1);
        update(s, most, root);
    }
    WfVal denom = wf_div(g, wf_unary(g, "prim.sqrt", root), scalar_as(s, k, "adam_root", p));
    denom = wf_add(g, denom, scalar_as(s, k, "eps", p));
    update_param(s, wf_add(g, q, wf_div(g, wf_mul(g, m1, scalar_as(s, k, "adam_step", p)), denom)));
}

static void adam(FORMULA) { adam_with(s, name, p, d, k, h, false); }
static void adamw(FORMULA) { adam_with(s, name, p, d, k, h, true); }

static void rmsprop(FORMULA)
{
    WfGraph *g = s->g;
    d = decayed(s, p, d, k, h);
    WfVal v = state(s, name, "square_avg", p, 0), v1 = squares(s, v, d, k, "alpha", "one_minus_alpha"), avg = v1;
    update(s, v, v1);
    if (h->centered) {
        WfVal a = state(s, name, "grad_avg", p, 0);
        WfVal a1 = lerp(s, a, d, k, "one_minus_alpha", "alpha", 1 - h->alpha);
        update(s, a, a1);
        avg = wf_sub(g, v1, wf_mul(g, a1, a1));
    }
    avg = wf_add(g, wf_unary(g, "prim.sqrt", avg), scalar_as(s, k, "eps", p));
    WfVal minus = scalar_as(s, k, "minus_lr", p);
    if (h->momentum > 0) {
        WfVal buf = state(s, name, "momentum_buffer", p, 0);
        WfVal b1 = wf_add(g, wf_mul(g, buf, scalar_as(s, k, "momentum", p)), wf_div(g, d, avg));
        update(s, buf, b1);
        update_param(s, wf_add(g, p, wf_mul(g, b1, minus)));
        return;
    }
    update_param(s, wf_add(g, p, wf_div(g, wf_mul(g, d, minus), avg)));
}

static void adagrad(FORMULA)
{
    WfGraph *g = s->g;
    d = decayed(s, p, d, k, h);
    WfVal sum = state(s, name, "sum", p, h->initial_accumulator), sum1 = wf_add(g, sum, wf_mul(g, d, d));
    update(s, sum, sum1);
    WfVal std = wf_add(g, wf_unary(g, "prim.sqrt", sum1), scalar_as(s, k, "eps", p));
    update_param(s, wf_add(g, p, wf_div(g, wf_mul(g, d, scalar_as(s, k, "adagrad_step", p)), std)));
}

static const struct { const char *name; void (*f)(FORMULA); } optimisers[] = {
    [WF_OPTIM_SGD] = {"sgd", sgd}, [WF_OPTIM_ADAM] = {"adam", adam}, [WF_OPTIM_ADAMW] = {"adamw", adamw},
    [WF_OPTIM_RMSPROP] = {"rmsprop", rmsprop}, [WF_OPTIM_ADAGRAD] = {"adagrad", adagrad}};

/* ---- clipping ---- */

/* L2 norm over all gradients, in f64 if one of them is, and clip_grad_norm_'s coefficient min(1, max / (norm + 1e-6)). */
static WfVal global_norm(Step *s, const WfOutput *grads, int n)
{
    WfGraph *g = s->g;
    WfVal total = 0;
    WfDtype t = WF_F32;
    for (int i = 0; i < n; i++)
        t = wf_dtype_of(g, grads[i].val) == WF_F64 ? WF_F64 : t;
    for (int i = 0; i < n; i++) {
        WfVal d = wf_cast(g, grads[i].val, t);
        WfVal sq = wf_sum(g, wf_mul(g, d, d), WF_ALL_DIMS(wf_rank_of(g, d)), false);
        total = total ? wf_add(g, total, sq) : sq;
    }
    return wf_unary(g, "prim.sqrt", total);
}

/* Where grad/joint gave shares and weights of a loss, gradients and loss are sums by now: over what counted in all of
 * the step, once. Nothing counted: zeros. */
static void normalise(WfGraph *g)
{
    WfVal sum = 0, count = 0;
    for (int i = 0; i < g->outputs.n; i++) {
        const WfOutput *o = &g->outputs.at[i];
        sum = o->role == WF_OUT_METRIC && !strcmp(o->name, "loss_sum") ? o->val : sum;
        count = o->role == WF_OUT_METRIC && !strcmp(o->name, "loss_count") ? o->val : count;
    }
    if (!sum || !count)
        return;
    count = wf_where(g, wf_binary(g, "prim.eq", count, wf_like(g, count, 0)), wf_like(g, count, 1), count);
    for (int i = 0; i < g->outputs.n; i++)
        if (g->outputs.at[i].role == WF_OUT_GRAD)
            g->outputs.at[i].val = wf_div(g, g->outputs.at[i].val, wf_cast(g, count, wf_dtype_of(g, g->outputs.at[i].val)));
    wf_add_output(g, WF_OUT_METRIC, "mean_loss", wf_div(g, sum, count), 0);
}

static WfVal clipped(Step *s, WfVal d, WfVal coef)
{
    WfGraph *g = s->g;
    if (coef)
        d = wf_mul(g, d, wf_cast(g, coef, wf_dtype_of(g, d)));
    if (s->o->clip_value > 0) {
        d = wf_binary(g, "prim.max", d, wf_like(g, d, -s->o->clip_value));
        d = wf_binary(g, "prim.min", d, wf_like(g, d, s->o->clip_value));
    }
    return d;
}

/* A group's lr as a multiple of the general one. Where that is 0, a group with a rate of its own keeps it (-1). */
static double lr_scale(const WfOptions *o, const WfHyper *h)
{
    return o->hyper.lr != 0 ? h->lr / o->hyper.lr : h->lr == 0 ? 1 : -1;
}

/* A pattern without a parameter is a misspelt one: its settings would be lost without a word. */
static void check_patterns(Step *s)
{
    for (int i = 0; i < s->o->groups.n; i++) {
        const char *pattern = s->o->groups.at[i].pattern;
        WfStr names = {.arena = s->g->arena};
        bool found = false;
        for (int k = 0; k < s->g->inputs.n && !found; k++) {
            const WfInput *in = &s->g->inputs.at[k];
            if (in->role != WF_IN_PARAM || !in->trainable)
                continue;
            found = fnmatch(pattern, in->name, 0) == 0;
            if (names.n < 200)
                wf_str_printf(&names, "%s%s", names.n ? ", " : "The trainable parameters are ", in->name);
            else if (names.at[names.n - 1] != '.')
                wf_str_puts(&names, ", ...");
        }
        if (!found)
            wf_fail_at(s->g->ctx, WF_E_PARAM_GROUP, NULL, names.at, "option param-group: %s matches no trainable parameter",
                       pattern);
    }
}

static void publish_groups(Step *s, WfExe *x, const char *optimiser)
{
    x->groups = WF_NEWN(x->arena, WfExeGroup, (size_t)s->n_groups + 1);
    x->n_groups = s->n_groups;
    for (int i = 0; i < s->n_groups; i++) {
        const WfHyper *h = &s->groups[i];
        x->groups[i] = (WfExeGroup){
            .optimizer = optimiser, .lr = h->lr, .betas = {h->beta1, h->beta2}, .eps = h->eps,
            .weight_decay = h->weight_decay, .momentum = h->momentum, .dampening = h->dampening, .alpha = h->alpha,
            .lr_decay = h->lr_decay, .nesterov = h->nesterov, .amsgrad = h->amsgrad, .maximize = h->maximize,
            .centered = h->centered, .lr_scale = lr_scale(s->o, h)};
    }
}

WfGraph *wf_grad_step(WfPassEnv *env, WfGraph *g)
{
    WfGraph *to = wf_graph_like(g, WF_JOINT);
    wf_graph_copy(g, to, NULL);
    normalise(to);
    Step s = {.g = to, .o = env->options};
    check_patterns(&s);
    s.groups = WF_NEWN(g->arena, WfHyper, (size_t)to->inputs.n + 1);
    WfOutput *grads = WF_NEWN(g->arena, WfOutput, (size_t)to->outputs.n + 1);
    int n = 0;
    for (int i = 0; i < to->outputs.n; i++)
        if (to->outputs.at[i].role == WF_OUT_GRAD)
            grads[n++] = to->outputs.at[i];
    WfVal norm = global_norm(&s, grads, n), coef = 0;
    wf_add_output(to, WF_OUT_METRIC, "grad_norm", norm, 0);
    if (s.o->clip_norm > 0 && s.o->update == WF_UPDATE_EARLY)
        wf_fail(g->ctx, WF_E_OPTION_CONFLICT, "--update=early cannot be combined with --clip-norm, which needs all gradients first");
    if (s.o->clip_norm > 0) {
        WfVal c = wf_div(to, wf_like(to, norm, s.o->clip_norm), wf_adds(to, norm, 1e-6));
        coef = wf_binary(to, "prim.min", c, wf_like(to, c, 1));
    }
    for (int i = 0; i < n; i++) {
        const WfInput in = to->inputs.at[grads[i].input];
        int k = group_of(&s, in.name);
        WfVal d = clipped(&s, grads[i].val, coef);
        if (s.groups[k].maximize)
            d = wf_neg(to, d);
        s.param = grads[i].input;
        optimisers[s.o->optimizer].f(&s, in.name, found(to, s.param), d, k, &s.groups[k]);
    }
    if (s.o->update == WF_UPDATE_EARLY) { /* gradients need not outlive their own update */
        int kept = 0;
        for (int i = 0; i < to->outputs.n; i++)
            if (to->outputs.at[i].role != WF_OUT_GRAD)
                to->outputs.at[kept++] = to->outputs.at[i];
        to->outputs.n = kept;
    }
    if (env->out)
        publish_groups(&s, env->out, optimisers[s.o->optimizer].name);
    return to;
}
