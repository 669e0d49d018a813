/* Aliases. A tensor name is a storage and the chain of view primitives that leads from the storage's whole
 * content to what the name shows. Reading replays the chain when the storage has changed since; writing
 * inverts it (a slice becomes a slice_scatter, a reshape its reverse) to give the storage's content. */
#include "simplify/alias.h"

Alias wf_alias_fresh(Fn *f, WfVal v, int input)
{
    Storage s = {.now = v, .input = input};
    WF_PUSH(f->to->arena, &f->storages, s);
    return (Alias){.storage = f->storages.n - 1, .tensor = ++f->tensors, .val = v};
}

static WfVal take_step(Fn *f, const Step *s, WfVal v)
{
    WfArg args[64];
    WfVal out[WF_MAX_RESULTS];
    memcpy(args, s->args, (size_t)wf_schema_of(s->op)->n_params * sizeof *args);
    args[0] = (WfArg){.kind = WF_ARG_TENSOR, .val = v};
    bool no_grad = f->to->no_grad; /* a view of something trainable is trainable, wherever it is replayed */
    f->to->no_grad = false;
    wf_emit_args(f->to, s->op, args, out, NULL);
    f->to->no_grad = no_grad;
    return out[0];
}

WfVal wf_alias_read(Fn *f, Alias *a)
{
    const Storage *s = &f->storages.at[a->storage];
    if (!a->storage)
        return 0;
    if (a->version != s->version) {
        a->val = s->now;
        for (int i = 0; i < a->n_steps; i++)
            a->val = take_step(f, &a->steps[i], a->val);
        a->version = f->storages.at[a->storage].version;
    }
    return a->val;
}

WfVal wf_alias_value(Fn *f, Frame *fr, const WfNode *n, WfVal v)
{
    WfVal r = v ? wf_alias_read(f, &fr->at[v]) : 0;
    if (v && !r)
        wf_fail_node(fr->g, n, WF_E_SHAPES, "an operand has no value");
    return r;
}

static bool needs_gradient(Fn *f, WfVal v)
{
    static const bool no = false;
    WfVal in[WF_MAX_RESULTS];
    for (WfVal i = (WfVal)f->needs.n; i <= v; i++) {
        const WfNode *p = i ? wf_producer(f->to, i) : NULL;
        WF_PUSH(f->to->arena, &f->needs, no);
        bool yes = i && !p && wf_input_of(f->to, i)->trainable;
        if (p && !p->no_grad && !is(p->op, "prim.detach")) {
            int k = wf_operands(p, in, WF_MAX_RESULTS);
            for (int j = 0; j < k && j < WF_MAX_RESULTS; j++)
                yes |= f->needs.at[in[j]];
        }
        f->needs.at[i] = yes && wf_dtype_is_float(wf_dtype_of(f->to, i));
    }
    return f->needs.at[v];
}

/* The input of a view step whose result is `part`, otherwise as `whole`. */
static WfVal invert(Fn *f, Frame *fr, const WfNode *n, const Step *s, WfVal whole, WfVal part)
{
    WfGraph *g = f->to;
    const WfValue *x = wf_value(g, whole);
    if (is(s->op, "prim.detach"))
        return part;
    if (is(s->op, "prim.reshape") || (is(s->op, "prim.expand") && wf_numel(g, whole) == wf_numel(g, part)))
        return wf_reshape(g, part, x->rank, x->shape);
    if (is(s->op, "prim.permute")) {
        int back[WF_MAX_RANK] = {0};
        for (int i = 0; i < s->args[1].n; i++)
            back[s->args[1].ints[i]] = i;
        return wf_permute(g, part, back);
    }
    if (is(s->op, "prim.slice"))
        return wf_slice_scatter(g, whole, part, (int)s->args[1].i, s->args[2].i, s->args[3].i, s->args[4].i);
    if (is(s->op, "prim.expand"))
        wf_fail_node(fr->g, n, WF_E_SHARED_MEMORY,
                     "writes into an expanded tensor, whose elements share memory");
    wf_fail_node(fr->g, n, WF_E_SHARED_MEMORY,
                 "writes through a view of a kind (%s) that cannot be written through",
                 wf_schema_of(s->op)->name);
}

void wf_alias_assign(Fn *f, Frame *fr, const WfNode *n, Alias *a, WfVal value)
{
    WfGraph *g = f->to;
    WfVal old = f->storages.at[a->storage].now;
    WfVal *before = WF_NEWN(g->arena, WfVal, (size_t)a->n_steps + 1);
    bool silent = g->no_grad;
    before[0] = old;
    for (int i = 0; i < a->n_steps; i++) {
        silent |= is(a->steps[i].op, "prim.detach");
        before[i + 1] = i + 1 < a->n_steps ? take_step(f, &a->steps[i], before[i]) : 0;
    }
    WfVal whole = value;
    for (int i = a->n_steps - 1; i >= 0; i--)
        whole = invert(f, fr, n, &a->steps[i], before[i], whole);
    bool graft = silent && whole != old && needs_gradient(f, old);
    if (graft) {
        bool no_grad = g->no_grad;
        g->no_grad = false;
        whole = wf_emit(g, "prim.graft", "vv", old, whole);
        g->no_grad = no_grad;
    }
    Storage *s = &f->storages.at[a->storage];
    s->now = whole;
    s->version++;
    s->written = true;
    a->val = a->n_steps ? value : whole;
    a->version = graft && a->n_steps ? -1 : s->version;
}
