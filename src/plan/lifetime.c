/* Calls, buffers, lifetimes. Nests and library calls become calls in the order of order.c. A new value of a
 * parameter, buffer or optimiser state is written straight into its place when nothing reads the old value
 * afterwards and the kernel may write in place; otherwise a copy follows. Everything else gets a place in the
 * slab for as long as it is needed; a kernel's result takes over the memory of an operand that dies there,
 * where the kernel allows it. */
#include "plan/private.h"
#include "weave/weave.h"

#include <stdlib.h>
#include <string.h>

static char *dup(Plan *p, const char *s)
{
    return s ? wf_arena_strdup(p->a, s) : NULL;
}

/* ---- symbols and inputs of the executable ---- */

/* Does size d, some multiple of symbol id plus a constant, tell the symbol's value? */
static bool tells(WfExprs *e, WfDim d, int id, WfExeSymbol *s)
{
    WfDim factor, plus;
    return wf_edepends(e, d, wf_esym_at(e, id)) && wf_elinear(e, d, wf_esym_at(e, id), &factor, &plus) &&
           wf_elit(e, factor, &s->factor) && wf_elit(e, plus, &s->plus) && s->factor > 0;
}

/* In the order of the arguments: the batch comes first. */
static bool before(const WfExeSymbol *a, const WfExeSymbol *b)
{
    return a->input < b->input || (a->input == b->input && a->dim < b->dim);
}

void wf_plan_symbols(WfPassEnv *env, const WfGraph *g, WfExe *x)
{
    WfExprs *e = g->exprs;
    WF_VEC(WfExeSymbol) v = {0};
    for (int id = 0; id < wf_esym_count(e) && !x->symbols; id++) {
        WfExeSymbol s = {.name = wf_esym_name(e, id)}, best = s;
        bool used = false;
        for (int i = 0; i < g->inputs.n; i++) {
            const WfValue *val = wf_value(g, g->inputs.at[i].val);
            for (int d = 0; g->inputs.at[i].role == WF_IN_USER && d < val->rank; d++) {
                used |= wf_edepends(e, val->shape[d], wf_esym_at(e, id));
                if (!tells(e, val->shape[d], id, &s) || (best.factor && best.factor <= s.factor))
                    continue;
                s.input = i;
                s.dim = d;
                best = s;
            }
        }
        if (used && !best.factor)
            wf_fail(env->ctx, WF_E_OP_FORM,
                    "no argument's size tells the value of %s, which others depend on", s.name);
        if (!used)
            continue;
        wf_esym_range(e, id, &best.lo, &best.hi);
        best.hint = wf_esym_hint(e, id);
        WF_PUSH(env->arena, &v, best);
        for (int k = v.n - 1; k > 0 && before(&v.at[k], &v.at[k - 1]); k--) {
            v.at[k] = v.at[k - 1];
            v.at[k - 1] = best;
        }
    }
    if (x->symbols)
        return;
    x->symbols = v.at;
    x->n_symbols = v.n;
}

int wf_plan_add_buf(Plan *p, WfExeBuf b)
{
    b.device = p->x->core >= 0;
    WF_PUSH(p->a, &p->bufs, b);
    return p->bufs.n - 1;
}

WfExeBuf wf_plan_describe(Plan *p, WfVal v)
{
    const WfValue *val = wf_value(p->g, v);
    WfExeBuf b = {.dtype = val->dtype,
                  .rank = val->rank,
                  .first = -1,
                  .last = -1,
                  .same_as = -1,
                  .inside = -1,
                  .input = -1};
    memcpy(b.shape, val->shape, sizeof b.shape);
    wf_memory_strides(p->g, v, b.stride);
    b.bytes = wf_emul(p->g->exprs, wf_numel(p->g, v), (WfDim)wf_dtype_size(val->dtype));
    b.name = dup(p, val->name);
    return b;
}

/* A parameter, a state and an argument of forward may share a name. */
static int input_index(const WfExe *x, const WfInput *in)
{
    for (int i = 0; i < x->n_inputs; i++)
        if (x->inputs[i].role == (WfExeRole)in->role && !strcmp(x->inputs[i].name, in->name))
            return i;
    return -1;
}

static void plan_inputs(Plan *p)
{
    WfGraph *g = p->g;
    WfExe *x = p->x;
    if (!x->inputs) { /* the step program has them all, as the forward half has */
        x->inputs = WF_NEWN(p->a, WfExeInput, (size_t)g->inputs.n + 1);
        x->n_inputs = g->inputs.n;
        for (int i = 0; i < g->inputs.n; i++) {
            const WfInput *in = &g->inputs.at[i];
            const WfValue *v = wf_value(g, in->val);
            WfExeInput *e = &x->inputs[i];
            *e = (WfExeInput){.role = (WfExeRole)in->role,
                              .name = dup(p, in->name),
                              .dtype = v->dtype,
                              .rank = v->rank,
                              .trainable = in->trainable,
                              .persistent = in->persistent,
                              .fill = in->fill,
                              .of = dup(p, in->of),
                              .n_aliases = in->n_aliases,
                              .aliases = in->aliases};
            memcpy(e->shape, v->shape, sizeof e->shape);
        }
    }
    for (int i = 0, kept = 0; i < g->inputs.n; i++) {
        bool saved = g->inputs.at[i].role == WF_IN_SAVED;
        int at = saved ? kept++ : input_index(x, &g->inputs.at[i]);
        if (at < 0)
            wf_fail(g->ctx, WF_E_BUG, "input %s is not in the step program", g->inputs.at[i].name);
        WfExeBuf b = wf_plan_describe(p, g->inputs.at[i].val);
        b.place = saved ? WF_PLACE_FRAME : WF_PLACE_INPUT;
        b.input = at;
        p->buf_of[g->inputs.at[i].val] = wf_plan_add_buf(p, b);
    }
}

/* ---- updates in place ---- */

static void find_updates(Plan *p, const WfNodeId *order, int n)
{
    WfGraph *g = p->g;
    int *last_read = WF_NEWN(p->a, int, (size_t)g->values.n);
    WfVal *in = WF_NEWN(p->a, WfVal, WF_MAX_RESULTS * 8);
    memset(last_read, -1, (size_t)g->values.n * sizeof *last_read);
    for (int c = 0; c < n; c++) {
        int k = wf_plan_reads(p, wf_node(g, order[c]), in);
        for (int j = 0; j < k; j++)
            last_read[in[j]] = c;
    }
    for (int i = 0; i < g->outputs.n; i++) {
        const WfOutput *o = &g->outputs.at[i];
        const WfNode *nd = o->val ? wf_producer(g, o->val) : NULL;
        if (o->role != WF_OUT_UPDATE || !nd || nd->op->family == WF_COLLECTIVE || p->update_of[o->val] >= 0 ||
            wf_value(g, o->val)->ordered)
            continue;
        int c = p->call_of[wf_value(g, o->val)->node];
        WfVal old = g->inputs.at[o->input].val;
        bool keep = false; /* is the value also wanted as something else at the end? */
        for (int j = 0; j < g->outputs.n; j++)
            keep |= j != i && (g->outputs.at[j].val == old || (g->outputs.at[j].val == o->val && wf_plan_commits(g, o)));
        if ((c < p->p->commit && !p->early && wf_plan_commits(g, o)) || last_read[old] > c || keep)
            continue;
        bool reads_old = last_read[old] == c;
        if (reads_old) {
            if (nd->op->family != WF_LOOPNEST)
                continue;
            const WfKernelInfo *k = p->kernel[wf_value(g, o->val)->node];
            int n_in = nd->args[0].n, out = (int)(o->val - nd->out);
            bool may = false;
            for (int j = 0; j < n_in; j++)
                may |= nd->args[0].vals[j] == old && k->inplace[out * n_in + j];
            if (!may)
                continue;
        }
        p->update_of[o->val] = o->input;
    }
}

/* ---- what leaves a half ---- */

/* Outputs of a half are written where the caller wants them, what it keeps into the frame. */
static void find_given(Plan *p)
{
    WfGraph *g = p->g;
    int kept = 0;
    for (int i = 0; i < g->outputs.n; i++) {
        const WfOutput *o = &g->outputs.at[i];
        const WfValue *v = wf_value(g, o->val);
        if (o->role == WF_OUT_UPDATE)
            continue;
        if (p->given_of[o->val] >= 0 || !v->node || wf_producer(g, o->val)->op->family == WF_VIEW)
            wf_fail(g->ctx, WF_E_BUG, "output %s has no memory of its own", o->name);
        p->given_of[o->val] = i;
        if (o->role != WF_OUT_SAVED)
            continue;
        WfExeSaved *s = &p->x->saved[kept++];
        s->bytes = wf_emul(g->exprs, wf_numel(g, o->val), (WfDim)wf_dtype_size(v->dtype));
        s->ordered = v->ordered;
        memcpy(s->order, v->order, sizeof s->order);
    }
}

/* ---- calls ---- */

static void common(Plan *p, const WfNode *n, WfExeCall *c)
{
    c->seconds = wf_weave_seconds(p->g, &p->options->machine, n, p->usual);
    if (p->batch >= 0) { /* a line through two sizes of the batch */
        int64_t v = p->usual[p->batch];
        p->usual[p->batch] = 2 * v;
        c->growth = (wf_weave_seconds(p->g, &p->options->machine, n, p->usual) - c->seconds) / (double)v;
        p->usual[p->batch] = v;
        c->seconds -= c->growth * (double)v;
        c->seconds = c->seconds > 0 ? c->seconds : 0;
    }
    c->workspace = -1;
    c->device = p->x->core >= 0;
    c->name = wf_arena_printf(p->a, "%%%s", wf_value_name(p->g, n->out));
    const WfSource *s = &p->g->sources.at[n->source];
    if (n->source && s->file)
        c->where = wf_arena_printf(p->a, "%s:%d  %s", s->file, s->line, s->code ? s->code : "");
    if (n->source && s->module)
        c->module = dup(p, s->module);
}

static void kernel_call(Plan *p, WfNodeId id, WfExeCall *c)
{
    const WfNode *n = wf_node(p->g, id);
    const WfKernelInfo *k = p->kernel[id];
    c->kind = WF_CALL_KERNEL;
    c->symbol = k->name;
    c->tiles = k->tiles;
    c->elements = k->elements;
    c->checks = k->checks;
    c->n_checks = k->n_checks;
    c->n = n->args[0].n + n->n_out;
    c->operand = WF_NEWN(p->a, WfExeOperand, (size_t)c->n + 1);
    for (int i = 0; i < n->args[0].n; i++)
        c->operand[i].buf = p->buf_of[n->args[0].vals[i]];
    for (int i = 0; i < n->n_out; i++)
        c->operand[n->args[0].n + i].buf = p->buf_of[n->out + (WfVal)i];
}

static void library_call(Plan *p, WfNodeId id, WfExeCall *c)
{
    const WfNode *n = wf_node(p->g, id);
    WfLibraryCall l = {0};
    n->op->describe(p->g, n, &l);
    c->kind = WF_CALL_LIB;
    c->symbol = dup(p, l.kind);
    c->n = l.n;
    c->operand = WF_NEWN(p->a, WfExeOperand, (size_t)c->n + 1);
    c->elements = 1;
    memcpy(c->param, l.param, sizeof c->param);
    memcpy(c->fparam, l.fparam, sizeof c->fparam);
    c->n_checks = 1;
    WfExeCheck *check = WF_NEW(p->a, WfExeCheck);
    check->where = wf_node_place(p->g, n);
    c->checks = check;
    for (int k = 0; k < l.n; k++) {
        WfExeOperand *o = &c->operand[k];
        o->buf = -1;
        if (!l.at[k].v)
            continue;
        WfStrided s;
        if (!wf_call_operand(p->g, &l, k, NULL, &s))
            wf_fail_node(p->g, n, WF_E_BUG, "operand %d is not laid out as its kernel wants", k);
        o->buf = l.at[k].v == WF_STATUS ? -2 : p->buf_of[s.base];
        o->offset = s.offset;
        o->rank = s.rank;
        memcpy(o->shape, s.shape, sizeof o->shape);
        memcpy(o->stride, s.stride, sizeof o->stride);
        if (l.at[k].v != WF_STATUS) {
            WfDim m = 1;
            for (int i = 0; i < s.rank; i++)
                m = wf_emul(p->g->exprs, m, s.shape[i]);
            c->elements = wf_eadd(p->g->exprs, c->elements, m);
        }
    }
    WfExeBuf w = {.place = WF_PLACE_SLAB,
                  .dtype = WF_U8,
                  .first = -1,
                  .last = -1,
                  .same_as = -1,
                  .inside = -1,
                  .input = -1};
    w.name = "workspace";
    c->workspace = wf_plan_add_buf(p, w);
}

static void copy_call(Plan *p, WfVal from, int to_buf, WfExeCall *c)
{
    c->kind = WF_CALL_COPY;
    c->n = 2;
    c->operand = WF_NEWN(p->a, WfExeOperand, 2);
    c->operand[0].buf = p->buf_of[from];
    c->operand[1].buf = to_buf;
    c->elements = wf_numel(p->g, from);
    c->workspace = -1;
    c->device = p->x->core >= 0;
    c->name = "copy";
}

static int input_buf(Plan *p, int graph_input)
{
    return p->buf_of[p->g->inputs.at[graph_input].val];
}

static void plan_calls(Plan *p, const WfNodeId *order, int n)
{
    WfGraph *g = p->g;
    for (int c = 0; c < n; c++) {
        const WfNode *nd = wf_node(g, order[c]);
        for (int k = 0; k < nd->n_out && nd->op->family != WF_COLLECTIVE; k++) {
            WfVal v = nd->out + (WfVal)k;
            if (p->update_of[v] >= 0) {
                p->buf_of[v] = input_buf(p, p->update_of[v]);
                continue;
            }
            WfExeBuf b = wf_plan_describe(p, v);
            b.place = WF_PLACE_SLAB;
            if (p->given_of[v] >= 0) {
                const WfOutput *o = &g->outputs.at[p->given_of[v]];
                b.place = o->role == WF_OUT_SAVED ? WF_PLACE_FRAME : WF_PLACE_GIVEN;
                b.input = o->role == WF_OUT_SAVED ? (int)strtol(o->name, NULL, 10) : p->given_of[v];
            }
            p->buf_of[v] = wf_plan_add_buf(p, b);
        }
        WfExeCall call = {0};
        common(p, nd, &call);
        if (nd->op->family == WF_LOOPNEST)
            kernel_call(p, order[c], &call);
        else if (nd->op->family == WF_COLLECTIVE)
            wf_plan_collective(p, order[c], &call);
        else
            library_call(p, order[c], &call);
        call.follows = p->follows[c];
        WF_PUSH(p->a, &p->calls, call);
    }
    for (int i = 0; i < g->outputs.n; i++) { /* new state that could not be written into its place */
        const WfOutput *o = &g->outputs.at[i];
        if (o->role != WF_OUT_UPDATE || !o->val || p->buf_of[o->val] == input_buf(p, o->input))
            continue;
        if (wf_value(g, o->val)->ordered)
            wf_fail(g->ctx, WF_E_BUG, "the new value of %s has another memory order", o->name);
        WfExeCall call = {0};
        wf_log(g->ctx, WF_LOG_DEBUG, "the new value of %s is copied into its place", o->name);
        copy_call(p, o->val, input_buf(p, o->input), &call);
        WF_PUSH(p->a, &p->calls, call);
    }
    if (p->early)
        p->p->commit = p->calls.n;
}

/* ---- lifetimes ---- */

static void together(WfExeBuf *b, int follower)
{
    b->first = b->first > follower - 1 ? follower - 1 : b->first;
    b->last = b->last < follower ? follower : b->last;
}

static void lifetimes(Plan *p)
{
    for (int c = 0; c < p->calls.n; c++) {
        const WfExeCall *k = &p->calls.at[c];
        for (int i = 0; i < k->n; i++) {
            if (k->operand[i].buf < 0)
                continue;
            WfExeBuf *b = &p->bufs.at[k->operand[i].buf];
            b->first = b->first < 0 ? c : b->first;
            b->last = c;
        }
        if (k->workspace >= 0)
            p->bufs.at[k->workspace].first = p->bufs.at[k->workspace].last = c;
    }
    for (int c = 1; c < p->calls.n; c++) { /* a follower runs between the tiles of the call before it */
        const WfExeCall *pair = &p->calls.at[c - 1];
        for (int q = 0; p->calls.at[c].follows && q < 2; q++) {
            for (int i = 0; i < pair[q].n; i++)
                if (pair[q].operand[i].buf >= 0)
                    together(&p->bufs.at[pair[q].operand[i].buf], c);
            if (pair[q].workspace >= 0)
                together(&p->bufs.at[pair[q].workspace], c);
        }
    }
    for (int i = 0; i < p->p->n_outputs; i++) /* outputs are read when the program is over */
        if (p->p->outputs[i].buf >= 0)
            p->bufs.at[p->p->outputs[i].buf].last = p->calls.n;
    for (int i = 0; i < p->bufs.n;
         i++) { /* a bucket lives from its first tensor's birth to its last one's death */
        const WfExeBuf *b = &p->bufs.at[i];
        WfExeBuf *in = b->inside >= 0 ? &p->bufs.at[b->inside] : NULL;
        if (!in || b->first < 0)
            continue;
        in->first = in->first < 0 || b->first < in->first ? b->first : in->first;
        in->last = b->last > in->last ? b->last : in->last;
    }
}

/* Does the call that c follows read that buffer? Then only its own rows are done with when c runs. */
static bool leader_reads(const Plan *p, int c, int buf)
{
    const WfExeCall *before = &p->calls.at[c - 1];
    for (int i = 0; i + 1 < before->n; i++)
        if (before->operand[i].buf == buf)
            return true;
    return before->workspace == buf;
}

/* Results that take over a dying operand's memory. */
static void take_over(Plan *p, const WfNodeId *order, int n)
{
    bool *taken = WF_NEWN(p->a, bool, (size_t)p->bufs.n + 1);
    for (int c = 0; c < n; c++) {
        const WfNode *nd = wf_node(p->g, order[c]);
        if (nd->op->family != WF_LOOPNEST)
            continue;
        const WfKernelInfo *k = p->kernel[order[c]];
        int n_in = nd->args[0].n;
        for (int o = 0; o < nd->n_out; o++)
            for (int j = 0; j < n_in; j++) {
                int ib = p->buf_of[nd->args[0].vals[j]], ob = p->buf_of[nd->out + (WfVal)o];
                WfExeBuf *in = &p->bufs.at[ib], *out = &p->bufs.at[ob];
                if (!k->inplace[o * n_in + j] || in->place != WF_PLACE_SLAB || out->place != WF_PLACE_SLAB ||
                    (p->follows[c] && leader_reads(p, c, ib)) || in->last != c || in->bytes != out->bytes ||
                    taken[ib] || out->same_as >= 0)
                    continue;
                out->same_as = ib;
                taken[ib] = true;
            }
    }
}

static void plan_outputs(Plan *p)
{
    WfGraph *g = p->g;
    p->p->outputs = WF_NEWN(p->a, WfExeOutput, (size_t)g->outputs.n + 1);
    for (int i = 0; i < g->outputs.n; i++) {
        const WfOutput *o = &g->outputs.at[i];
        WfExeOutput *e = &p->p->outputs[p->p->n_outputs++];
        *e = (WfExeOutput){.role = (WfExeOutRole)o->role, .name = dup(p, o->name), .input = o->input};
        e->buf = o->val ? p->buf_of[o->val] : -1;
        if (o->role == WF_OUT_UPDATE || o->role == WF_OUT_GRAD)
            e->input = input_index(p->x, &g->inputs.at[o->input]);
    }
}

void wf_plan_program(WfPassEnv *env, WfGraph *g, WfKernelInfo *const *kernel, WfExe *x, WfProgramKind kind)
{
    Plan p = {.options = env->options, .g = g, .x = x, .a = x->arena, .kernel = kernel, .p = &x->program[kind]};
    p.early = env->options->update == WF_UPDATE_EARLY && kind == WF_PROG_STEP;
    size_t nv = (size_t)g->values.n, nn = (size_t)g->nodes.n;
    p.buf_of = WF_NEWN(p.a, int, nv);
    p.update_of = WF_NEWN(p.a, int, nv);
    p.call_of = WF_NEWN(p.a, int, nn);
    p.late = WF_NEWN(p.a, bool, nn);
    memset(p.buf_of, -1, nv * sizeof(int));
    memset(p.update_of, -1, nv * sizeof(int));
    p.given_of = WF_NEWN(p.a, int, nv);
    memset(p.given_of, -1, nv * sizeof(int));
    memset(p.call_of, -1, nn * sizeof(int));
    wf_plan_symbols(env, g, x);
    plan_inputs(&p);
    WfDim batch;
    p.usual = wf_weave_usual(g);
    p.batch = x->n_symbols && wf_sym_find(g->exprs, x->symbols[0].name, &batch) ? wf_esym_id(g->exprs, batch) : -1;
    WfNodeId *order = WF_NEWN(p.a, WfNodeId, nn);
    int n = wf_plan_order(&p, order);
    find_updates(&p, order, n);
    if (kind == WF_PROG_FORWARD || kind == WF_PROG_BACKWARD)
        find_given(&p);
    plan_calls(&p, order, n);
    plan_outputs(&p);
    p.p->calls = p.calls.at;
    p.p->n_calls = p.calls.n;
    p.p->bufs = p.bufs.at;
    p.p->n_bufs = p.bufs.n;
    lifetimes(&p);
    take_over(&p, order, n);
    int call;
    const char *wrong = wf_exe_check_pairs(p.p, &call);
    if (wrong)
        wf_fail_at(g->ctx, WF_E_BUG, p.p->calls[call].where, NULL, "%s: %s", p.p->calls[call].name, wrong);
    for (int i = 0; i < p.p->n_bufs; i++)
        if (p.p->bufs[i].place == WF_PLACE_INPUT)
            x->inputs[p.p->bufs[i].input].used |= p.p->bufs[i].first >= 0;
}
