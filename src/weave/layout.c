/* Layout. Convolutions read and write channels last, attention keeps heads beside features; a pointwise value takes
 * over the order of what it is made from, so that walking it walks memory. Where a library kernel cannot take an
 * operand as it lies (asked of the kernels room with the very strides), a copy is put before it. */
#include "weave/weave.h"

#include "kernels/kernels.h"

#include <string.h>

typedef struct {
    WfGraph *from, *to;
    WfVal *map;
    WfMap *copies; /* (value, order) -> its copy */
    int isa;       /* level that the kernels will run at; 0: the machine's */
} Layout;

static void set_order(WfGraph *g, WfVal v, const int8_t *order)
{
    WfValue *x = wf_value(g, v);
    bool plain = true;
    for (int i = 0; i < x->rank; i++)
        plain &= order[i] == i;
    x->ordered = !plain;
    memcpy(x->order, order, (size_t)x->rank);
}

static int order_of(WfGraph *g, WfVal v, int8_t *order);

/* The order in which a view's result walks its first operand's memory: for each of the operand's dimensions, slowest
 * first, the result's dimensions that it depends on. A broadcast only suggests: its new dimensions come outermost. */
static int through_view(WfGraph *g, const WfNode *n, int8_t *order)
{
    WfExprs *e = g->exprs;
    WfVal in[WF_MAX_RESULTS];
    const WfValue *y = wf_value(g, n->out);
    int8_t inner[WF_MAX_RANK], moved[WF_MAX_RANK];
    WfDim var[WF_MAX_RANK];
    WfIndex ix = {0};
    uint32_t used = 0;
    int k = 0, r = 0, sure;
    wf_operands(n, in, WF_MAX_RESULTS);
    if (!(sure = order_of(g, in[0], inner)))
        return 0;
    for (int i = 0; i < y->rank; i++) {
        var[i] = wf_sym_bounded(e, wf_arena_printf(g->arena, "w%d_%llx", i, (unsigned long long)y->shape[i]), y->shape[i]);
        ix.at[i] = y->shape[i] == 1 ? 0 : var[i];
    }
    n->op->index(g, n, &ix);
    for (int d = 0; d < wf_value(g, in[0])->rank; d++)
        for (int i = 0; i < y->rank; i++)
            if (!(used >> i & 1) && y->shape[i] != 1 && wf_edepends(e, ix.at[inner[d]], var[i])) {
                used |= 1u << i;
                moved[k++] = (int8_t)i;
            }
    bool rising = true;
    for (int i = 0; i < k; i++)
        rising &= !i || moved[i - 1] < moved[i];
    for (int i = 0; i < y->rank; i++) {
        bool wide = !(used >> i & 1) && y->shape[i] != 1;
        sure = wide ? 1 : sure;
        if (rising || !(used >> i & 1))
            order[r++] = (int8_t)i;
    }
    if (!rising)
        memcpy(order + r, moved, (size_t)k);
    return sure;
}

/* Memory order of a value, its own or what views make of one, and how sure it is (WfValue.sure). */
static int order_of(WfGraph *g, WfVal v, int8_t *order)
{
    const WfValue *x = wf_value(g, v);
    const WfNode *n = wf_producer(g, v);
    bool fixed = !n || n->op->family == WF_LIBRARY || n->op->family == WF_COLLECTIVE; /* row-major unless it says otherwise */
    for (int i = 0; i < x->rank; i++)
        order[i] = x->ordered ? x->order[i] : (int8_t)i;
    if (x->ordered || x->sure || fixed)
        return x->sure && !fixed ? x->sure : 2;
    return n->op->family == WF_VIEW ? through_view(g, n, order) : 0;
}

static void take_order(WfGraph *g, WfVal v, const int8_t *order, int sure)
{
    set_order(g, v, order);
    wf_value(g, v)->sure = (uint8_t)sure;
}

/* A pointwise value lies like the first operand that is sure, else like the first that suggests something. */
static void inherit(WfGraph *g, const WfNode *n)
{
    WfVal in[WF_MAX_RESULTS];
    int k = wf_operands(n, in, WF_MAX_RESULTS);
    int8_t order[WF_MAX_RANK];
    for (int want = 2; want > 0; want--)
        for (int j = 0; j < k; j++)
            if (in[j] && wf_value(g, in[j])->rank == wf_value(g, n->out)->rank && order_of(g, in[j], order) == want) {
                take_order(g, n->out, order, want);
                return;
            }
}

static void inherit_reduced(WfGraph *g, const WfNode *n)
{
    int8_t order[WF_MAX_RANK], kept[WF_MAX_RANK], number[WF_MAX_RANK];
    uint32_t mask = 0;
    int rank = wf_value(g, wf_tensor(n, 0))->rank, r = 0, sure = order_of(g, wf_tensor(n, 0), order);
    if (!sure)
        return;
    for (int i = 0; i < n->args[1].n; i++)
        mask |= 1u << n->args[1].ints[i];
    for (int i = 0; i < rank; i++)
        number[i] = (int8_t)(mask >> i & 1 ? -1 : r++);
    r = 0;
    for (int i = 0; i < rank; i++)
        if (number[order[i]] >= 0)
            kept[r++] = number[order[i]];
    take_order(g, n->out, kept, 2); /* it has memory of its own now */
}

/* ---- library operands ---- */

/* Symbols get a middling value: acceptance depends on strides, not on how many rows there are. */
static int64_t sample(WfGraph *g, WfDim d)
{
    int n = wf_esym_count(g->exprs);
    int64_t *values = WF_NEWN(g->arena, int64_t, (size_t)n + 1), out = 1;
    for (int i = 0; i < n; i++) {
        int64_t lo, hi;
        wf_esym_range(g->exprs, i, &lo, &hi);
        values[i] = hi < 24 ? hi : lo > 24 ? lo : 24;
    }
    return wf_eeval(g->exprs, d, values, &out) ? out : 1;
}

/* Does the kernel take these operands? `old` names them in the graph before layout, which gives the dtypes. */
static bool accepts(Layout *l, const WfLibraryCall *c, const WfVal *old, const WfStrided *at, char *why, size_t size)
{
    WfLibDesc d = {.kind = c->kind, .n = c->n};
    memcpy(d.param, c->param, sizeof c->param);
    memcpy(d.fparam, c->fparam, sizeof c->fparam);
    d.param[WF_LIB_ISA] = l->isa; /* a question at another level would fix oneDNN to that one for the whole process */
    for (int k = 0; k < c->n; k++) {
        if (!old[k])
            continue;
        WfOperand *o = &d.operand[k];
        o->dtype = old[k] == WF_STATUS ? WF_I64 : wf_value(l->from, old[k])->dtype;
        o->rank = at[k].rank;
        for (int i = 0; i < o->rank; i++) {
            o->shape[i] = sample(l->to, at[k].shape[i]);
            o->stride[i] = sample(l->to, at[k].stride[i]);
        }
    }
    return wf_lib_accepts(&d, why, size);
}

static bool own_memory(WfGraph *g, WfVal v) /* computed by a kernel of ours whose layout nobody has fixed yet */
{
    const WfNode *n = wf_producer(g, v);
    return n && wf_value(g, v)->sure < 2 && !wf_value(g, v)->ordered &&
           (n->op->family == WF_POINTWISE || n->op->family == WF_GATHER || n->op->family == WF_SOURCE);
}

/* v in memory of its own, in the order that the kernel wants. Calls that want one order share the copy. */
static WfVal copy_of(Layout *l, const WfLibraryCall *c, int k, WfVal v)
{
    WfGraph *g = l->to;
    struct { WfVal v; int8_t order[WF_MAX_RANK]; } key;
    int64_t y;
    memset(&key, 0, sizeof key);
    key.v = v;
    for (int i = 0; i < wf_value(g, v)->rank; i++)
        key.order[i] = c->at[k].ordered && !c->at[k].rank ? c->at[k].order[i] : (int8_t)i;
    if (wf_map_get_bytes(l->copies, &key, sizeof key, &y))
        return (WfVal)y;
    y = wf_emit(g, "prim.copy", "v", v);
    set_order(g, (WfVal)y, key.order);
    wf_map_put_bytes(l->copies, &key, sizeof key, y);
    return (WfVal)y;
}

static void library(Layout *l, const WfNode *n)
{
    WfGraph *to = l->to;
    WfLibraryCall c = {0};
    n->op->describe(l->from, n, &c);
    WfStrided at[WF_CALL_OPERANDS];
    bool output[WF_CALL_OPERANDS] = {false}, view[WF_CALL_OPERANDS] = {false}, reordered[WF_CALL_OPERANDS] = {false};
    WfVal saved[WF_CALL_OPERANDS], old[WF_CALL_OPERANDS];
    for (int k = 0; k < c.n; k++) {
        WfVal v = old[k] = c.at[k].v;
        if (!v || v == WF_STATUS)
            continue;
        output[k] = v >= n->out && v < n->out + (WfVal)n->n_out;
        if (output[k]) { /* not built yet: dense in its order */
            const WfValue *x = wf_value(l->from, v);
            WfDim dense = 1;
            at[k].rank = c.at[k].rank ? c.at[k].rank : x->rank;
            memcpy(at[k].shape, c.at[k].rank ? c.at[k].shape : x->shape, sizeof at[k].shape);
            for (int i = at[k].rank - 1; i >= 0; i--) {
                int d = c.at[k].ordered && !c.at[k].rank ? c.at[k].order[i] : i;
                at[k].stride[d] = dense;
                dense = wf_emul(to->exprs, dense, at[k].shape[d]);
            }
            continue;
        }
        c.at[k].v = l->map[v];
        if (c.at[k].ordered && own_memory(to, c.at[k].v))
            set_order(to, c.at[k].v, c.at[k].order);
        view[k] = wf_producer(to, c.at[k].v) && wf_producer(to, c.at[k].v)->op->family == WF_VIEW;
        reordered[k] = !view[k] && wf_value(to, c.at[k].v)->ordered;
        if (!wf_call_operand(to, &c, k, NULL, &at[k])) {
            c.at[k].v = copy_of(l, &c, k, c.at[k].v);
            view[k] = reordered[k] = false;
            wf_call_operand(to, &c, k, NULL, &at[k]);
        }
    }
    for (int k = 0; k < c.n; k++)
        if (old[k] == WF_STATUS)
            wf_call_operand(to, &c, k, NULL, &at[k]);
    char why[256] = "";
    /* Copy one operand after the other: views first, then what lies in an order of its own. */
    for (int j = 0; !accepts(l, &c, old, at, why, sizeof why); j++) {
        while (j < 2 * c.n && !(j < c.n ? view[j] : reordered[j - c.n]))
            j++;
        if (j >= 2 * c.n)
            wf_fail_node(l->from, n, WF_E_OP_FORM, "no kernel takes it: %s", why);
        int k = j % c.n;
        c.at[k].v = copy_of(l, &c, k, c.at[k].v);
        wf_call_operand(to, &c, k, NULL, &at[k]);
    }
    for (int k = 0; k < c.n; k++) /* accepted as it lies: no later call may turn it */
        if (old[k] && old[k] != WF_STATUS && !output[k] && at[k].base)
            wf_value(to, at[k].base)->sure = 2;
    /* The node reads the copies; afterwards the originals stand again. */
    for (int k = 0; k < c.n; k++)
        if (old[k] && old[k] != WF_STATUS && !output[k])
            saved[k] = l->map[old[k]];
    for (int k = 0; k < c.n; k++)
        if (old[k] && old[k] != WF_STATUS && !output[k])
            l->map[old[k]] = c.at[k].v;
    wf_copy_node(l->from, n, to, l->map);
    for (int k = 0; k < c.n; k++)
        if (old[k] && old[k] != WF_STATUS && !output[k])
            l->map[old[k]] = saved[k];
    for (int k = 0; k < c.n; k++)
        if (output[k] && c.at[k].ordered && !c.at[k].rank)
            set_order(to, l->map[old[k]], c.at[k].order);
}

static bool is_output(const WfGraph *g, WfVal v)
{
    for (int i = 0; i < g->outputs.n; i++)
        if (g->outputs.at[i].val == v)
            return true;
    return false;
}

/* A collective in place works in memory that its producer wrote for it alone; its result lies like its operand. One that
 * cuts or joins along the first dimension wants it outermost. What cannot be had so gets a copy: also inputs and views of
 * something, and what another collective brings, so that there is a moment at which that must have come. */
static void collective(Layout *l, const WfNode *n, const int *uses)
{
    WfVal old = wf_tensor(n, 0), v = l->map[old], saved = v;
    const WfNode *p = wf_producer(l->to, v);
    bool in_place = wf_op_find(n->op->start)->travel->in_place;
    int8_t order[WF_MAX_RANK];
    order_of(l->to, v, order);
    for (int i = 0; !in_place && i < wf_value(l->to, v)->rank; i++)
        order[i] = (int8_t)i;
    if (!p || p->op->family == WF_VIEW || p->op->family == WF_COLLECTIVE || p->op->family == WF_SOURCE ||
        (in_place ? uses[old] > 1 : wf_value(l->to, v)->ordered || is_output(l->from, old))) {
        v = wf_emit(l->to, "prim.copy", "v", v);
        set_order(l->to, v, order);
    }
    wf_value(l->to, v)->sure = 2;
    l->map[old] = v;
    wf_copy_node(l->from, n, l->to, l->map);
    l->map[old] = saved;
    WfValue *y = wf_value(l->to, l->map[n->out]);
    y->ordered = wf_value(l->to, v)->ordered;
    memcpy(y->order, wf_value(l->to, v)->order, sizeof y->order);
    y->sure = 2;
}

/* Is the output a view of a state, or that state, which the step updates? It shows the state as it was. */
static bool overwritten(WfGraph *g, const WfOutput *o)
{
    WfVal v = o->val, in[WF_MAX_RESULTS];
    for (const WfNode *n = wf_producer(g, v); n && n->op->family == WF_VIEW; n = wf_producer(g, v)) {
        if (wf_operands(n, in, WF_MAX_RESULTS) != 1)
            return false; /* joined: has memory of its own */
        v = in[0];
    }
    for (int i = 0; i < g->outputs.n; i++) {
        const WfOutput *u = &g->outputs.at[i];
        if (u->role == WF_OUT_UPDATE && u != o && u->val != v && g->inputs.at[u->input].val == v)
            return true;
    }
    return false;
}

WfGraph *wf_weave_layout(WfPassEnv *env, WfGraph *g)
{
    Layout l = {.from = g, .to = wf_graph_like(g, WF_PRIM), .map = WF_NEWN(g->arena, WfVal, (size_t)g->values.n),
                .isa = env->options && env->options->isa == WF_ISA_V3 ? WF_ISA_LEVEL_V3 : 0};
    l.copies = wf_map_new(g->arena);
    bool *live = wf_live_nodes(g);
    int *uses = wf_use_counts(g);
    wf_copy_inputs(g, l.to, l.map);
    for (int i = 1; i < g->nodes.n; i++) {
        const WfNode *n = wf_node(g, (WfNodeId)i);
        if (!live[i])
            continue;
        if (n->op->family == WF_LIBRARY) {
            library(&l, n);
            continue;
        }
        if (n->op->family == WF_COLLECTIVE) {
            collective(&l, n, uses);
            continue;
        }
        int before = l.to->nodes.n;
        wf_copy_node(g, n, l.to, l.map);
        if (l.to->nodes.n == before)
            continue;
        const WfNode *fresh = wf_node(l.to, (WfNodeId)(l.to->nodes.n - 1));
        if (n->op->family == WF_POINTWISE || n->op->family == WF_GATHER)
            inherit(l.to, fresh);
        else if (n->op->family == WF_REDUCE)
            inherit_reduced(l.to, fresh);
    }
    wf_copy_outputs(g, l.to, l.map);
    for (int i = 0; i < l.to->outputs.n; i++) { /* what leaves the step is row-major, and lies where no update writes */
        WfOutput *o = &l.to->outputs.at[i];
        if (o->val && o->role != WF_OUT_SAVED && (wf_value(l.to, o->val)->ordered || overwritten(l.to, o)))
            o->val = copy_of(&l, &(WfLibraryCall){0}, 0, o->val);
    }
    return l.to;
}
