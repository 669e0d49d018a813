/* Mutation becomes values. Every tensor name of the export is an alias (alias.c): reading a name gives its
 * value, writing computes the new value of the view with the operator's functional twin and makes it what the
 * alias shows. Storages of graph inputs that were written become outputs that update them.
 *
 * Regions of no_grad are inlined with their nodes marked, and what they return is detached. A write that
 * PyTorch does not record (under no_grad, or through detach()) leaves the gradient's way through the tensor
 * as it was: prim.graft. Results are compared with the shapes that the export claims, so that a damaged file
 * or a wrong rule is named here. */
#include "simplify/alias.h"

#include <string.h>

enum { MAX_DEPTH = 32 };

/* ---- emitting ---- */

static int param_named(const WfSchema *c, const char *name)
{
    for (int i = 0; i < c->n_params; i++)
        if (!strcmp(c->params[i].name, name))
            return i;
    return -1;
}

/* The parameter of `from` that stands for to's i-th: of the same name, or at the same place when both names
 * are strange to the other (dropout_ calls `self` what dropout calls `input`). -1 if there is none. */
static int param_like(const WfSchema *from, const WfSchema *to, int i)
{
    int at = param_named(from, to->params[i].name);
    if (at < 0 && i < from->n_params && param_named(to, from->params[i].name) < 0)
        at = i;
    return at;
}

/* The node's operator, or another one with parameters of the same names, over the values of now. */
static int emit(Fn *f, Frame *fr, const WfNode *n, const WfOp *op, WfArg *args, WfVal *out)
{
    const WfSchema *c = wf_schema_of(op);
    memset(args, 0, (size_t)c->n_params * sizeof *args);
    for (int i = 0; i < c->n_params; i++) {
        int at = op == n->op ? i : param_like(n->schema, c, i);
        if (at < 0)
            continue;
        args[i] = n->args[at];
        if (args[i].kind == WF_ARG_TENSOR) {
            args[i].val = wf_alias_value(f, fr, n, args[i].val);
        } else if (args[i].kind == WF_ARG_TENSORS) {
            WfVal *list = WF_NEWN(f->to->arena, WfVal, (size_t)args[i].n + 1);
            for (int j = 0; j < args[i].n; j++)
                list[j] = wf_alias_value(f, fr, n, n->args[at].vals[j]);
            args[i].vals = list;
        }
    }
    int n_out = 0;
    wf_emit_args(f->to, op, args, out, &n_out);
    return n_out;
}

static void define(Fn *f, Frame *fr, const WfNode *n, int i, Alias a)
{
    WfVal from = n->out + (WfVal)i, v = a.val;
    const WfValue *x = wf_value(fr->g, from);
    fr->at[from] = a;
    if (!x->dtype || !v)
        return;
    wf_check_claim(fr->g, n, i, f->to, v);
    if (x->name && wf_value(f->to, v)->node && !wf_value(f->to, v)->name)
        wf_name_value(f->to, v, x->name);
}

/* ---- views ---- */

/* Ops whose result may share memory with the first operand although their schema does not say so. */
static bool may_alias(const WfOp *op)
{
    static const char *const names[] = {"aten.dropout",   "aten.feature_dropout", "aten.alpha_dropout",
                                        "aten.type_as",   "aten.atleast_1d",      "aten.atleast_2d",
                                        "aten.atleast_3d"};
    const WfSchema *c = wf_schema_of(op);
    for (size_t i = 0; i < WF_LEN(names); i++)
        if (!strcmp(c->name, names[i]))
            return true;
    return c->view && op->decompose && c->n_params && c->params[0].type == WF_T_TENSOR;
}

static bool view_step(const WfNode *p)
{
    static const char *const names[] = {"prim.reshape", "prim.permute", "prim.slice",
                                        "prim.expand",  "prim.detach",  "prim.window"};
    for (size_t i = 0; i < WF_LEN(names); i++)
        if (!strcmp(p->schema->name, names[i]))
            return true;
    return false;
}

/* Expands the op over inputs of the operands' shapes, down to primitives. Returns the number of results. */
static int expand(Fn *f, const WfOp *op, const WfArg *given, WfGraph **scratch, WfVal *out)
{
    WfGraph *g = wf_graph_like(f->to, WF_PRIM);
    const WfSchema *c = wf_schema_of(op);
    WfArg args[64];
    int n_out = 0;
    memcpy(args, given, (size_t)c->n_params * sizeof *args);
    for (int i = 0; i < c->n_params; i++)
        if (args[i].kind == WF_ARG_TENSOR) {
            const WfValue *v = wf_value(f->to, args[i].val);
            args[i].val = wf_add_input(g, WF_IN_USER, "x", v->dtype, v->rank, v->shape);
        }
    wf_emit_args(g, op, args, out, &n_out);
    *scratch = g;
    return n_out;
}

/* The chain from the scratch graph's first input to v behind the steps of `base`; false when there is none.
 */
static bool trace(Fn *f, WfGraph *scratch, WfVal v, const Alias *base, Alias *out)
{
    int n = 0;
    WfVal at = v;
    for (const WfNode *p; (p = wf_producer(scratch, at)); n++) {
        if (!view_step(p))
            return false;
        at = wf_tensor(p, 0);
    }
    if (wf_value(scratch, at)->index != 0)
        return false;
    Step *steps = WF_NEWN(f->to->arena, Step, (size_t)(base->n_steps + n) + 1);
    if (base->n_steps)
        memcpy(steps, base->steps, (size_t)base->n_steps * sizeof *steps);
    at = v;
    for (int i = base->n_steps + n - 1; i >= base->n_steps; i--) {
        const WfNode *p = wf_producer(scratch, at);
        steps[i] = (Step){p->op, p->args};
        at = wf_tensor(p, 0);
    }
    *out = *base;
    out->tensor = ++f->tensors;
    out->steps = steps;
    out->n_steps = base->n_steps + n;
    return true;
}

/* reshape and the like copy what they cannot view. Whether they did is read from the export's strides: from a
 * contiguous tensor they never copy. */
static bool copied(Frame *fr, const WfNode *n, int steps)
{
    static const char *const names[] = {"aten.reshape", "aten.flatten.using_ints", "aten.reshape_as",
                                        "aten.ravel"};
    const WfArg *copy = wf_arg(n, "copy");
    if (copy && copy->kind == WF_ARG_BOOL && copy->b)
        return true;
    bool dense = wf_value(fr->g, wf_tensor(n, 0))->contiguous;
    if (is(n->op, "aten.contiguous"))
        return !dense || !wf_value(fr->g, n->out)->contiguous;
    for (size_t i = 0; i < WF_LEN(names); i++)
        if (is(n->op, names[i]))
            return !dense && steps;
    return false;
}

/* as_strided reads the memory, whatever shows it: places count from the start of the operand, or, where an offset is given, from
 * that of the storage. */
static void check_strided(Fn *f, Frame *fr, const WfNode *n, const Alias *base)
{
    if (!wf_value(fr->g, wf_tensor(n, 0))->contiguous)
        wf_fail_node(fr->g, n, WF_E_SHARED_MEMORY, "the tensor below is not contiguous");
    if (base->storage && wf_arg(n, "storage_offset")->kind != WF_ARG_NONE &&
        wf_numel(f->to, f->storages.at[base->storage].now) != wf_numel(fr->g, wf_tensor(n, 0)))
        wf_fail_node(fr->g, n, WF_E_SHARED_MEMORY, "the offset counts from the start of a memory of which the tensor below is a part");
}

/* One more step, the op itself: it shows what is written below, and is not written through. */
static Alias step_of(Fn *f, const Alias *base, const WfOp *op, const WfArg *args)
{
    size_t bytes = (size_t)wf_schema_of(op)->n_params * sizeof *args;
    Alias a = *base;
    Step *steps = WF_NEWN(f->to->arena, Step, (size_t)base->n_steps + 1);
    WfArg *own = wf_arena_alloc(f->to->arena, bytes);
    if (base->n_steps)
        memcpy(steps, base->steps, (size_t)base->n_steps * sizeof *steps);
    memcpy(own, args, bytes);
    steps[a.n_steps++] = (Step){op, own};
    a.tensor = ++f->tensors;
    a.steps = steps;
    return a;
}

static void do_view(Fn *f, Frame *fr, const WfNode *n)
{
    WfArg args[64];
    WfVal out[WF_MAX_RESULTS], seen[WF_MAX_RESULTS];
    WfGraph *scratch;
    bool strided = is(n->op, "aten.as_strided");
    if (strided)
        check_strided(f, fr, n, &fr->at[wf_tensor(n, 0)]);
    int n_out = emit(f, fr, n, n->op, args, out), k = expand(f, n->op, args, &scratch, seen);
    Alias *base = &fr->at[wf_tensor(n, 0)];
    for (int i = 0; i < n->n_out; i++) {
        Alias a;
        if (i >= n_out || i >= k)
            wf_fail_node(fr->g, n, WF_E_SHAPES, "the export claims %d results, but there are %d", n->n_out,
                         n_out);
        bool traced = trace(f, scratch, seen[i], base, &a);
        if (!traced && strided)
            a = step_of(f, base, n->op, args);
        if (strided || (traced && !copied(fr, n, a.n_steps - base->n_steps))) {
            a.val = out[i];
            a.version = f->storages.at[a.storage].version;
        } else {
            a = wf_alias_fresh(f, out[i], -1);
        }
        define(f, fr, n, i, a);
    }
}

/* ---- writes ---- */

static const WfOp *twin_of(Frame *fr, const WfNode *n)
{
    const WfOp *op = wf_functional_twin(n->op);
    if (!op)
        wf_fail_node(fr->g, n, WF_E_OP_FORM, "this in-place operator has no functional form yet");
    return op;
}

/* transpose_, squeeze_, detach_, ...: the name shows another view of the same storage from now on. */
static void do_meta(Fn *f, Frame *fr, const WfNode *n, const WfOp *twin)
{
    WfArg args[64];
    WfVal out[WF_MAX_RESULTS], seen[WF_MAX_RESULTS];
    WfGraph *scratch;
    Alias *base = &fr->at[wf_tensor(n, 0)], a;
    emit(f, fr, n, twin, args, out);
    expand(f, twin, args, &scratch, seen);
    if (!trace(f, scratch, seen[0], base, &a))
        wf_fail_node(fr->g, n, WF_E_OP_FORM, "this view cannot be made in place");
    a.val = out[0];
    a.version = f->storages.at[a.storage].version;
    a.tensor = base->tensor;
    *base = a;
    define(f, fr, n, 0, a);
}

static void write_back(Fn *f, Frame *fr, const WfNode *n, WfVal target, WfVal value)
{
    Alias *a = &fr->at[target];
    WfVal old = wf_alias_value(f, fr, n, target);
    value = wf_cast(f->to, value, wf_dtype_of(f->to, old));
    if (!wf_same_shape(f->to, old, value))
        wf_fail_node(fr->g, n, WF_E_SHAPES, "the result %s does not fit into %s",
                     wf_shape_text(f->to, value), wf_shape_text(f->to, old));
    wf_alias_assign(f, fr, n, a, value);
}

/* Results that are not themselves operands come first, then the new values of `mutated`, in argument order.
 */
static void do_write(Fn *f, Frame *fr, const WfNode *n, const WfOp *twin, uint64_t mutated)
{
    const WfSchema *c = n->schema;
    WfArg args[64];
    WfVal out[WF_MAX_RESULTS];
    int n_out = emit(f, fr, n, twin, args, out), next = 0;
    for (int i = 0; i < n->n_out; i++)
        if (!c->ret[i].mutates)
            next++;
    int extra = next;
    for (int p = 0; p < c->n_params; p++) {
        if (!(mutated >> p & 1))
            continue;
        if (extra >= n_out)
            wf_fail_node(fr->g, n, WF_E_BUG, "%s does not return the new value of '%s'",
                         wf_schema_of(twin)->name, c->params[p].name);
        if (wf_tensor(n, p))
            write_back(f, fr, n, wf_tensor(n, p), out[extra]);
        extra++;
    }
    next = 0;
    for (int i = 0; i < n->n_out; i++) {
        if (!c->ret[i].mutates) {
            define(f, fr, n, i, wf_alias_fresh(f, out[next++], -1));
            continue;
        }
        for (int p = 0; p < c->n_params; p++)
            if (c->params[p].mutates && c->params[p].alias == c->ret[i].alias && wf_tensor(n, p)) {
                wf_alias_read(f, &fr->at[wf_tensor(n, p)]);
                define(f, fr, n, i, fr->at[wf_tensor(n, p)]);
                break;
            }
    }
}

static bool evaluating(const WfNode *n)
{
    const WfArg *a = wf_arg(n, "training");
    a = a ? a : wf_arg(n, "train");
    a = a ? a : wf_arg(n, "use_input_stats");
    return a && a->kind == WF_ARG_BOOL && !a->b;
}

/* Is there one of the operands that the operator writes without saying so? An instance norm may have no
 * statistics. */
static bool writes_any(const WfNode *n)
{
    bool any = !n->op->decompose; /* then only the twin can compute it */
    for (int p = 0; p < n->schema->n_params; p++)
        any |= (n->op->mutated_args >> p & 1) && wf_tensor(n, p);
    return any;
}

/* ---- regions ---- */

static void walk(Fn *f, Frame *fr);

/* Is it one of the tensors that the region was given? */
static bool given(const Frame *outer, const WfArg *operands, int tensor)
{
    for (int i = 0; i < operands->n; i++)
        if (outer->at[operands->vals[i]].tensor == tensor)
            return true;
    return false;
}

static void do_region(Fn *f, Frame *fr, const WfNode *n, bool no_grad)
{
    const WfArg *body = wf_arg(n, "body"), *operands = wf_arg(n, "operands");
    if (body->kind != WF_ARG_GRAPH || body->graph->inputs.n != operands->n ||
        body->graph->outputs.n != n->n_out)
        wf_fail_node(fr->g, n, WF_E_SHAPES, "the sub-graph does not fit its operands and results");
    if (++f->depth > MAX_DEPTH)
        wf_fail_node(fr->g, n, WF_E_OP_FORM, "regions lie more than %d deep in one another",
                     MAX_DEPTH);
    WfGraph *g = body->graph;
    Frame inner = {g, WF_NEWN(f->to->arena, Alias, (size_t)g->values.n)};
    for (int i = 0; i < operands->n; i++) {
        wf_alias_value(f, fr, n, operands->vals[i]);
        inner.at[g->inputs.at[i].val] = fr->at[operands->vals[i]];
    }
    bool outer = f->to->no_grad;
    f->to->no_grad = no_grad;
    walk(f, &inner);
    f->to->no_grad = outer;
    f->depth--;
    for (int i = 0; i < n->n_out; i++) {
        WfVal v = g->outputs.at[i].val;
        if (!v)
            continue;
        WfVal now = wf_alias_read(f, &inner.at[v]);
        Alias a = inner.at[v];
        if (no_grad && !given(fr, operands, a.tensor) && wf_dtype_is_float(wf_dtype_of(f->to, now))) {
            WfArg *none = WF_NEWN(f->to->arena, WfArg, 1);
            Step *steps = WF_NEWN(f->to->arena, Step, (size_t)a.n_steps + 1);
            if (a.n_steps)
                memcpy(steps, a.steps, (size_t)a.n_steps * sizeof *steps);
            steps[a.n_steps++] = (Step){wf_op_find("prim.detach"), none};
            a.steps = steps;
            a.val = wf_detach(f->to, now);
        }
        define(f, fr, n, i, a);
    }
}

static void do_higher_order(Fn *f, Frame *fr, const WfNode *n)
{
    if (is(n->op, "higher_order.wrap_with_set_grad_enabled")) {
        do_region(f, fr, n, !wf_bool(n, 0));
    } else if (is(n->op, "higher_order.wrap_with_autocast")) {
        const WfArg *dtype = wf_arg(n, "dtype");
        bool on = wf_arg(n, "enabled")->kind == WF_ARG_BOOL && wf_arg(n, "enabled")->b;
        if (on && !(dtype->kind == WF_ARG_DTYPE && dtype->dtype == WF_F32))
            wf_fail_node(fr->g, n, WF_E_NOT_YET, "mixed precision is not available yet");
        do_region(f, fr, n, f->to->no_grad);
    } else {
        wf_fail_node(fr->g, n, WF_E_NOT_YET, "control flow is not available yet");
    }
}

/* ---- the walk ---- */

static void one_node(Fn *f, Frame *fr, const WfNode *n)
{
    const WfSchema *c = n->schema;
    uint64_t mutated = 0;
    for (int p = 0; p < c->n_params; p++)
        if (c->params[p].mutates)
            mutated |= UINT64_C(1) << p;
    if (n->op->family == WF_HOP) {
        do_higher_order(f, fr, n);
    } else if (mutated) {
        const WfOp *twin = twin_of(fr, n);
        if (wf_schema_of(twin)->view)
            do_meta(f, fr, n, twin);
        else
            do_write(f, fr, n, twin, mutated);
    } else if (n->op->mutated_args && n->op->functional && !evaluating(n) && writes_any(n)) {
        do_write(f, fr, n, twin_of(fr, n), n->op->mutated_args);
    } else if (may_alias(n->op) && wf_tensor(n, 0)) {
        do_view(f, fr, n);
    } else {
        WfArg args[64];
        WfVal out[WF_MAX_RESULTS];
        int n_out = emit(f, fr, n, n->op, args, out);
        if (n_out < n->n_out)
            wf_fail_node(fr->g, n, WF_E_SHAPES, "the export claims %d results, but there are %d", n->n_out,
                         n_out);
        for (int i = 0; i < n->n_out; i++)
            define(f, fr, n, i, wf_alias_fresh(f, out[i], -1));
    }
}

static void walk(Fn *f, Frame *fr)
{
    for (int i = 1; i < fr->g->nodes.n; i++) {
        if (i % 256 == 0)
            wf_check_cancel(f->env->ctx);
        f->to->source = fr->g->nodes.at[i].source;
        one_node(f, fr, &fr->g->nodes.at[i]);
    }
}

/* ---- inputs and outputs ---- */

/* Bytes of the mapping that an input's start value touches. */
static bool extent(const WfGraph *g, const WfInput *in, uintptr_t *lo, uintptr_t *hi)
{
    const WfValue *v = wf_value(g, in->val);
    int64_t last = 0, size;
    for (int i = 0; i < v->rank; i++) {
        if (!wf_elit(g->exprs, v->shape[i], &size) || !size)
            return false;
        last += (size - 1) * in->strides[i];
    }
    *lo = (uintptr_t)in->data;
    *hi = *lo + (uintptr_t)(last + 1) * wf_dtype_size(v->dtype);
    return in->data != NULL;
}

/* A written input must not share its memory with another one: the other would have to change too. */
static void check_shared(const WfGraph *g, int written)
{
    uintptr_t lo, hi, l, h;
    if (!extent(g, &g->inputs.at[written], &lo, &hi))
        return;
    for (int i = 0; i < g->inputs.n; i++)
        if (i != written && extent(g, &g->inputs.at[i], &l, &h) && l < hi && lo < h)
            wf_fail(g->ctx, WF_E_SHARED_MEMORY,
                    "the model writes to '%s', which shares its memory with '%s'", g->inputs.at[written].name,
                    g->inputs.at[i].name);
}

static void outputs(Fn *f, Frame *fr)
{
    for (int i = 0; i < fr->g->outputs.n; i++) {
        const WfOutput *o = &fr->g->outputs.at[i];
        WfVal v = o->val ? wf_alias_read(f, &fr->at[o->val]) : 0;
        if (v)
            wf_add_output(f->to, o->role, o->name, v, o->input);
    }
    for (int i = 1; i < f->storages.n; i++) {
        const Storage *s = &f->storages.at[i];
        if (!s->written || s->input < 0)
            continue;
        const WfInput *in = &f->to->inputs.at[s->input];
        /* what a step is fed stays the caller's; a host that runs halves has its own tensors in it */
        if ((in->role == WF_IN_USER && !f->env->half) || s->now == in->val)
            continue;
        check_shared(f->to, s->input);
        wf_add_output(f->to, WF_OUT_UPDATE, in->name, s->now, s->input);
    }
}

WfGraph *wf_simplify_functionalize(WfPassEnv *env, WfGraph *g)
{
    Fn *f = WF_NEW(g->arena, Fn);
    f->env = env;
    f->to = wf_graph_like(g, WF_FUNC);
    WF_PUSH(g->arena, &f->storages, (Storage){0});
    Frame fr = {g, WF_NEWN(g->arena, Alias, (size_t)g->values.n)};
    WfVal *map = WF_NEWN(g->arena, WfVal, (size_t)g->values.n);
    wf_copy_inputs(g, f->to, map);
    for (int i = 0; i < g->inputs.n; i++)
        fr.at[g->inputs.at[i].val] = wf_alias_fresh(f, map[g->inputs.at[i].val], i);
    walk(f, &fr);
    f->to->source = 0;
    outputs(f, &fr);
    return f->to;
}
