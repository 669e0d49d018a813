/* The compiler's table of contents: one row per pass, in order. Below it, the driver. */
#include "pipeline.h"

#include "emit/emit.h"
#include "fuse/fuse.h"
#include "grad/grad.h"
#include "kernels/kernels.h"
#include "ops/ops.h"
#include "plan/plan.h"
#include "simplify/simplify.h"
#include "weave/weave.h"

#include <string.h>

static bool training(const WfPassEnv *env)
{
    return !env->eval && !env->half;
}
static bool halved(const WfPassEnv *env)
{
    return env->half != WF_WHOLE;
}
static bool accumulated(const WfPassEnv *env)
{
    return training(env) && env->options &&
           (env->options->accumulate > 1 || wf_options_any_micro(env->options) ||
            env->options->deterministic == WF_DETERMINISTIC_ELASTIC);
}
static bool updating(const WfPassEnv *env)
{
    return training(env) && !env->micro;
}
static bool replicated(const WfPassEnv *env)
{
    /* elastic: one rank does what each of several would do */
    return updating(env) && env->options &&
           (env->options->nproc > 1 || env->options->deterministic == WF_DETERMINISTIC_ELASTIC);
}
static bool overlapped(const WfPassEnv *env)
{
    return !env->eval && (!env->options || env->options->overlap);
}
static bool evaluating(const WfPassEnv *env)
{
    return env->eval;
}

const WfPass wf_pipeline[] = {
    {"simplify/evaluation", wf_simplify_evaluation, WF_ATEN, WF_ATEN,
     "flags of dropout and batch norm flipped", evaluating},
    {"simplify/functionalize", wf_simplify_functionalize, WF_ATEN, WF_FUNC, "mutation becomes values", NULL},
    {"simplify/decompose", wf_simplify_decompose, WF_FUNC, WF_OP, "ops that own a VJP only", NULL},
    {"simplify/lookup", wf_simplify_lookup, WF_OP, WF_OP, "products of looked-up rows taken once per row of the table", NULL},
    {"grad/joint", wf_grad_joint, WF_OP, WF_JOINT, "loss and backward pass as nodes", NULL},
    {"grad/accumulate", wf_grad_accumulate, WF_JOINT, WF_JOINT, "gradients added up over the micro-batches of a step",
     accumulated},
    {"weave/replicate", wf_weave_replicate, WF_JOINT, WF_JOINT, "gradients reduced over the ranks, buffers agreed",
     replicated},
    {"grad/step", wf_grad_step, WF_JOINT, WF_JOINT, "clipping and update as nodes", updating},
    {"simplify/prim", wf_simplify_prim, WF_JOINT, WF_PRIM, "composites replaced by primitives", NULL},
    {"grad/halves", wf_grad_halves, WF_PRIM, WF_PRIM, "forward or backward alone, and what passes between them", halved},
    {"grad/remat", wf_grad_remat, WF_PRIM, WF_PRIM, "activations computed again where that saves memory",
     training},
    {"fuse/split", wf_fuse_split, WF_PRIM, WF_PRIM, "long reductions cut into tiles", NULL},
    {"weave/layout", wf_weave_layout, WF_PRIM, WF_PRIM, "memory orders, operand copies", NULL},
    {"fuse/group", wf_fuse_group, WF_PRIM, WF_LOOP, "primitives grouped into loop nests", NULL},
    {"weave/bucket", wf_weave_bucket, WF_LOOP, WF_LOOP, "collectives merged into start and wait over buckets", NULL},
    {"weave/overlap", wf_weave_overlap, WF_LOOP, WF_LOOP, "waits moved to the first reader", overlapped},
    {0}};

static void dump(WfPassEnv *env, const WfGraph *g, const WfPass *p)
{
    WfStr s = {.arena = env->arena};
    char *file = wf_arena_strdup(env->arena, p->name);
    *strchr(file, '/') = '-';
    wf_print(g, &s);
    wf_mkdirs(env->ctx, env->options->dump_dir);
    wf_write_file(env->ctx,
                  wf_arena_printf(env->arena, "%s/%s%02d-%s.ir", env->options->dump_dir,
                                  env->eval                        ? "eval-"
                                  : env->micro                     ? "micro-"
                                  : env->half == WF_HALF_FORWARD   ? "forward-"
                                  : env->half == WF_HALF_BACKWARD  ? "backward-"
                                                                   : "", (int)(p - wf_pipeline), file),
                  s.at, s.n);
}

static WfGraph *run_pass(WfPassEnv *env, WfGraph *g, const WfPass *p)
{
    double t = wf_now();
    wf_progress(env->ctx, p->name, 0, 0);
    g = p->run(env, g);
    wf_verify(g, p->name);
    wf_log(env->ctx, WF_LOG_DEBUG, "%-24s %4d nodes  %.1f ms", p->name, g->nodes.n - 1, (wf_now() - t) * 1e3);
    if (env->options && env->options->dump_dir)
        dump(env, g, p);
    return g;
}

/* The row of that name; raises WEFT_ERR_USAGE with the nearest name. */
static const WfPass *find_pass(WfPassEnv *env, const char *name)
{
    const char *names[32];
    int n = 0;
    for (const WfPass *p = wf_pipeline; p->name; p++) {
        if (!strcmp(p->name, name))
            return p;
        names[n++] = p->name;
    }
    WfStr all = {.arena = env->arena};
    const char *near = wf_nearest(name, names, n);
    for (int i = 0; i < n && !near; i++)
        wf_str_printf(&all, "%s%s", i ? ", " : "The passes are ", names[i]);
    wf_fail_at(env->ctx, WF_E_PASS, NULL,
               near ? wf_arena_printf(env->arena, "Did you mean %s?", near) : all.at, "no pass is called %s",
               name);
}

static WfGraph *run_passes(WfPassEnv *env, WfGraph *g, const char *until)
{
    const WfPass *last = until && *until ? find_pass(env, until) : NULL;
    if (last && last->when && !last->when(env))
        wf_fail(env->ctx, WF_E_PASS, "%s is no pass of the %s form with these options%s", until,
                env->eval ? "evaluation" : env->micro ? "micro-batch" : "training",
                env->eval ? "; leave --eval out" : env->micro ? "; leave --micro out" : last->when == evaluating ? "; add --eval" : "");
    for (const WfPass *p = wf_pipeline; p->name; p++) {
        if ((!p->when || p->when(env)) && p->to >= g->level)
            g = run_pass(env, g, p);
        if (p == last)
            return g;
    }
    return g;
}

static WfHalf shown_half(const WfOptions *o)
{
    return o->halves == WF_HALVES_NONE ? WF_WHOLE : o->halves == WF_HALVES_BACKWARD ? WF_HALF_BACKWARD : WF_HALF_FORWARD;
}

WfGraph *wf_run_pass(WfCtx *ctx, WfArena *a, WfGraph *g, const WfOptions *o, const char *name)
{
    WfPassEnv env = {.ctx = ctx, .arena = a, .options = o, .eval = o->eval, .micro = o->micro, .half = shown_half(o)};
    wf_ops_init();
    const WfPass *p = find_pass(&env, name);
    if (g->level != p->from)
        wf_fail(ctx, WF_E_LEVEL, "%s takes a graph of level %s, but this one is of level %s", name,
                wf_level_name(p->from), wf_level_name(g->level));
    return run_pass(&env, g, p);
}

WfGraph *wf_compile_until(WfCtx *ctx, WfArena *a, WfGraph *g, const WfOptions *o, const char *after,
                          bool eval)
{
    WfPassEnv env = {.ctx = ctx, .arena = a, .options = o, .eval = eval, .micro = !eval && o->micro, .half = shown_half(o)};
    if (env.micro && o->accumulate < 2 && !wf_options_any_micro(o))
        wf_fail(ctx, WF_E_PASS, "--micro: a step has micro-batches with --accumulate 2 or more");
    wf_ops_init();
    return after && *after ? run_passes(&env, g, after) : g;
}

/* ---- kernels ---- */

typedef struct {
    WfKernelSource *at;
    int n, cap;
    WfMap *by_text; /* equal nests compile once */
} Kernels;

static WfKernelInfo *one_kernel(WfCtx *ctx, WfArena *a, WfGraph *g, const WfNode *n, const int *symbols,
                                int n_symbols, Kernels *k)
{
    WfKernelText *t = wf_emit_nest(g, n, symbols, n_symbols);
    WfKernelInfo *info = WF_NEW(a, WfKernelInfo);
    info->tiles = t->tiles;
    info->elements = t->elements;
    info->inplace = t->inplace;
    info->by_tile = t->by_tile;
    info->n_checks = t->n_checks;
    WfExeCheck *checks = WF_NEWN(a, WfExeCheck, (size_t)t->n_checks + 1);
    for (int i = 0; i < t->n_checks; i++)
        checks[i] = wf_plan_check(g, n, wf_node(n->args[1].graph, t->checks[i]));
    info->checks = checks;
    int64_t at;
    if (!wf_map_get(k->by_text, t->text, &at)) {
        char hex[65];
        WfSha *h = wf_sha_new(ctx, a);
        wf_sha_add(h, t->text, strlen(t->text));
        wf_sha_hex(h, hex);
        if (k->n == k->cap)
            k->at = wf_vec_grow(a, k->at, &k->cap, sizeof *k->at);
        WfKernelSource *s = &k->at[at = k->n++];
        s->name = wf_arena_printf(a, "wf_%.16s", hex);
        s->prelude = t->prelude;
        WfStr body_text = {.arena = a};
        const char *mark = strstr(t->text, "KERNEL");
        wf_str_putn(&body_text, t->text, (size_t)(mark - t->text));
        wf_str_puts(&body_text, s->name);
        wf_str_puts(&body_text, mark + 6);
        s->text = body_text.at;
        wf_map_put(k->by_text, t->text, at);
    }
    info->name = k->at[at].name;
    return info;
}

static int symbol_ids(const WfExe *x, int *out, int max) /* in the executable's order */
{
    WfDim sym;
    int n = 0;
    for (int i = 0; i < x->n_symbols && n < max; i++)
        if (wf_sym_find(x->exprs, x->symbols[i].name, &sym))
            out[n++] = wf_esym_id(x->exprs, sym);
    return n;
}

static void one_program(WfPassEnv *env, WfGraph *g, WfExe *x, WfProgramKind kind, Kernels *k)
{
    wf_plan_symbols(env, g, x);
    int symbols[64], n_symbols = symbol_ids(x, symbols, 64);
    WfKernelInfo **info = WF_NEWN(env->arena, WfKernelInfo *, (size_t)g->nodes.n);
    for (int i = 1; i < g->nodes.n; i++)
        if (wf_node(g, (WfNodeId)i)->op->family == WF_LOOPNEST)
            info[i] = one_kernel(env->ctx, env->arena, g, wf_node(g, (WfNodeId)i), symbols, n_symbols, k);
    wf_plan_program(env, g, info, x, kind);
}

/* Constants that the compiler made (or read with the options) and the model does not have: they travel with
 * the executable. */
static void own_constants(WfExe *x, const WfGraph *model, const WfGraph *step)
{
    WfTensors *w = WF_NEW(x->arena, WfTensors);
    w->at = WF_NEWN(x->arena, WfTensor, (size_t)step->inputs.n + 1);
    w->by_name = wf_map_new(x->arena);
    for (int i = 0; i < step->inputs.n; i++) {
        const WfInput *in = &step->inputs.at[i];
        const WfValue *v = wf_value(step, in->val);
        bool known = in->role != WF_IN_CONST || !in->data;
        for (int k = 0; k < model->inputs.n && !known; k++)
            known = model->inputs.at[k].role == WF_IN_CONST && !strcmp(model->inputs.at[k].name, in->name);
        if (known)
            continue;
        WfTensor *t = &w->at[w->n];
        *t = (WfTensor){.name = in->name,
                        .dtype = v->dtype,
                        .rank = v->rank,
                        .data = in->data,
                        .bytes = wf_dtype_size(v->dtype)};
        for (int d = 0; d < v->rank; d++) {
            t->shape[d] = v->shape[d];
            t->bytes *= (size_t)v->shape[d];
        }
        wf_map_put(w->by_name, t->name, w->n++);
    }
    if (w->n)
        x->weights = w;
}

/* Marks what value v of g is made from, through the bodies of nests: a nest that holds both the predictions
 * and the loss must not make the predictions depend on the labels. */
static void mark_sources(const WfGraph *g, bool *need)
{
    for (int i = g->nodes.n - 1; i > 0; i--) {
        const WfNode *n = wf_node(g, (WfNodeId)i);
        WfVal in[WF_MAX_RESULTS];
        bool any = false, nest = n->op->family == WF_LOOPNEST;
        for (int r = 0; r < n->n_out; r++)
            any |= need[n->out + (WfVal)r];
        if (!any)
            continue;
        int k = wf_operands(n, in, WF_MAX_RESULTS);
        bool *inner = NULL;
        if (nest) {
            const WfGraph *body = n->args[1].graph;
            inner = WF_NEWN(g->arena, bool, (size_t)body->values.n);
            for (int r = 0; r < n->n_out; r++)
                inner[body->outputs.at[r].val] |= need[n->out + (WfVal)r];
            mark_sources(body, inner);
        }
        for (int j = 0; j < k; j++)
            need[in[j]] |= !nest || inner[n->args[1].graph->inputs.at[j].val];
    }
}

static void mark_predicting(WfExe *x, const WfGraph *g)
{
    bool *need = WF_NEWN(g->arena, bool, (size_t)g->values.n), named = false;
    for (int i = g->outputs.n - 1; i >= 0; i--) {
        const WfOutput *o = &g->outputs.at[i];
        named |= o->role == WF_OUT_USER && o->val && !strcmp(o->name, "predictions");
        if (named)
            need[o->val] = true;
        if (named)
            break;
    }
    for (int i = 0; i < g->outputs.n && !named; i++)
        need[g->outputs.at[i].val] = true;
    mark_sources(g, need);
    for (int i = 0; i < g->inputs.n; i++)
        for (int k = 0; k < x->n_inputs; k++)
            if (g->inputs.at[i].role == WF_IN_USER && x->inputs[k].role == WF_XIN_USER &&
                !strcmp(x->inputs[k].name, g->inputs.at[i].name))
                x->inputs[k].predicts = need[g->inputs.at[i].val];
}

/* Such an export trains, but not as its author means. */
static void check_form(WfExe *x, WfGraph *g)
{
    const WfNode *n = wf_simplify_evaluates(g);
    if (n)
        wf_exe_warn(x, wf_arena_printf(x->arena, "the model was exported in evaluation mode: it trains without dropout, and with the statistics "
                                       "that its batch norms have. Export it again by torch.export.export(model.train(), inputs). The "
                                       "first such node: %s", wf_node_place(g, n)));
}

/* torch.export makes one input of several whose examples are one tensor; data for the others then change nothing, without a word. */
static void check_inputs(WfExe *x, WfGraph *g)
{
    for (int i = 0; i < g->inputs.n; i++)
        if (g->inputs.at[i].role == WF_IN_USER && !wf_is_used(g, g->inputs.at[i].val))
            wf_exe_warn(x, wf_arena_printf(x->arena, "the model reads no value of its input %s, so its data change nothing. torch.export merges inputs whose "
                                           "examples are one tensor: give each input an example of its own", g->inputs.at[i].name));
}

/* Numbers of 16 bits can be read, but there are no products of them yet. */
static void check_types(WfCtx *ctx, const WfGraph *g)
{
    for (int i = 0; i < g->inputs.n; i++) {
        const WfInput *in = &g->inputs.at[i];
        WfDtype t = wf_value(g, in->val)->dtype;
        if (in->role == WF_IN_PARAM && (t == WF_BF16 || t == WF_F16))
            wf_fail_at(ctx, WF_E_NOT_YET, NULL, "Export it in float32: torch.export.export(model.float().train(), inputs), with inputs of float32.",
                       "parameter %s is %s, and Weft computes in float32 and float64", in->name, wf_dtype_name(t));
    }
}

WfExe *wf_compile(WfCtx *ctx, WfArena *a, WfGraph *g, const WfOptions *o, const char *cache_dir)
{
    wf_ops_init();
    WfExe *x = WF_NEW(a, WfExe);
    x->ctx = ctx;
    x->arena = a;
    x->exprs = g->exprs;
    x->accumulate = o->forward_only || o->halves ? 1 : wf_options_any_micro(o) ? 0 : (int)o->accumulate;
    x->ranks = (int)o->nproc;
    x->core = wf_device_core(ctx, o->device);
    x->rank_groups = WF_NEWN(a, WfRankGroup, (size_t)o->rank_groups.n + 1);
    for (int i = 0; i < o->rank_groups.n; i++)
        x->rank_groups[x->n_rank_groups++] = wf_rank_group(ctx, a, o->rank_groups.at[i], o->nproc);
    WfPassEnv env = {.ctx = ctx, .arena = a, .options = o, .out = x};
    Kernels k = {.by_text = wf_map_new(a)};
    char hex[65];
    wf_signature(g, hex);
    x->signature = wf_arena_strdup(a, hex);
    check_types(ctx, g);
    for (int h = WF_HALF_FORWARD; o->halves && h <= WF_HALF_BACKWARD; h++) {
        env.half = (WfHalf)h;
        one_program(&env, run_passes(&env, g, NULL), x, h == WF_HALF_FORWARD ? WF_PROG_FORWARD : WF_PROG_BACKWARD, &k);
    }
    if (!o->forward_only && !o->halves) {
        check_form(x, g);
        check_inputs(x, g);
        WfGraph *step = run_passes(&env, g, NULL);
        for (int i = 0; i < step->outputs.n; i++)
            x->has_loss |= step->outputs.at[i].role == WF_OUT_LOSS;
        own_constants(x, g, step);
        one_program(&env, step, x, WF_PROG_STEP, &k);
        env.micro = true;
        if (x->accumulate != 1)
            one_program(&env, run_passes(&env, g, NULL), x, WF_PROG_MICRO, &k);
        env.micro = false;
    }
    if (!o->halves) {
        env.eval = true;
        WfGraph *eval = run_passes(&env, g, NULL);
        one_program(&env, eval, x, WF_PROG_EVAL, &k);
        mark_predicting(x, eval);
    }
    WfStr key = {.arena = a};
    wf_options_key(o, &key);
    x->options = key.at ? key.at : "";
    bool no_v4 = o->isa == WF_ISA_V3 || (o->isa == WF_ISA_AUTO && wf_isa_level() < WF_ISA_LEVEL_V4);
    x->isa = no_v4 ? WF_ISA_LEVEL_V3 : o->isa == WF_ISA_AMX ? WF_ISA_LEVEL_AMX : WF_ISA_LEVEL_V4;
    int compiled;
    if (o->isa == WF_ISA_V3_V4 || x->isa < 4)
        wf_compile_kernels(ctx, a, k.at, k.n, 3, cache_dir, &x->object[0], &x->object_size[0], &compiled);
    if (o->isa == WF_ISA_V3_V4 || x->isa >= 4)
        wf_compile_kernels(ctx, a, k.at, k.n, 4, cache_dir, &x->object[1], &x->object_size[1], &compiled);
    wf_log(ctx, WF_LOG_INFO, "%d kernels, %d compiled now", k.n, compiled);
    return x;
}
