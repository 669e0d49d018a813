/* Two halves. A host that differentiates by itself (PyTorch's autograd) calls forward, and later backward. The joint graph is the
 * same; only its seeds are inputs, the cotangents of the outputs. What depends on a cotangent is backward's. It reads values of
 * the forward pass: inputs, which the caller hands in again, and others, which forward must keep or backward compute once
 * more. What is pointwise, a view or a gather may be repeated; matrix products, convolutions and reductions may not. Among all
 * such choices the one that keeps the fewest bytes is a minimum cut between what must be computed in forward and what
 * backward reads, every value being as wide as its memory (Edmonds and Karp; a few hundred augmenting paths). Of several
 * minimum cuts it is the one nearest to backward, which repeats least. */
#include "grad/private.h"
#include "ops/ops.h"

#include "exe/exe.h"

#include <string.h>

/* ---- the joint graph ---- */

void wf_grad_ends(WfGraph *g)
{
    size_t n_in = (size_t)g->inputs.n + 1, n_out = (size_t)g->outputs.n + 1;
    WfVal *wrt = WF_NEWN(g->arena, WfVal, n_in), *grad = WF_NEWN(g->arena, WfVal, n_in);
    WfVal *of = WF_NEWN(g->arena, WfVal, n_out), *cotangent = WF_NEWN(g->arena, WfVal, n_out);
    int *input = WF_NEWN(g->arena, int, n_in), n = 0, m = 0;
    for (int i = 0; i < g->inputs.n; i++)
        if (g->inputs.at[i].trainable && wf_dtype_is_float(wf_dtype_of(g, g->inputs.at[i].val))) {
            input[n] = i;
            wrt[n++] = g->inputs.at[i].val;
        }
    bool *need = wf_grad_needed(g, wrt, n);
    for (int i = 0; i < g->outputs.n; i++) {
        const WfOutput *o = &g->outputs.at[i];
        if (o->role != WF_OUT_USER || !o->val || !need[o->val])
            continue;
        const WfValue *v = wf_value(g, o->val);
        WfDim shape[WF_MAX_RANK];
        memcpy(shape, v->shape, sizeof shape);
        of[m] = o->val;
        cotangent[m++] = wf_add_input(g, WF_IN_COTANGENT, o->name, v->dtype, v->rank, shape);
    }
    wf_grad_backward_many(g, of, cotangent, m, wrt, n, grad);
    for (int i = 0; i < n; i++)
        if (grad[i])
            wf_add_output(g, WF_OUT_GRAD, g->inputs.at[input[i]].name, grad[i], input[i]);
}

/* ---- what each half needs ---- */

typedef struct { int to, back; int64_t room; int next; } Edge; /* back: the edge of the other direction */

typedef struct {
    WfGraph *g;
    bool *forward;           /* by value: outputs of forward need its node */
    bool *backward;          /* by value: depends on a cotangent */
    bool *written;           /* by value: an input that forward changes */
    int64_t *usual;          /* by symbol */
    WF_VEC(Edge) edges;
    int *first;              /* by vertex: 2 v is where v comes in, 2 v + 1 where it goes out */
    bool *seen;              /* by value: part of the network */
} Cut;

enum { SOURCE = 0, SINK = 1 }; /* value 0 is none */

static bool repeatable(const Cut *c, WfVal v)
{
    const WfNode *n = wf_producer(c->g, v);
    if (!n)
        return !c->written[v];
    return !c->forward[v] || n->op->family == WF_POINTWISE || n->op->family == WF_VIEW || n->op->family == WF_SOURCE ||
           n->op->family == WF_GATHER;
}

static int64_t bytes_of(Cut *c, WfVal v)
{
    int64_t n;
    return wf_eeval(c->g->exprs, wf_numel(c->g, v), c->usual, &n) ? n * (int64_t)wf_dtype_size(wf_dtype_of(c->g, v)) + 1 : 1;
}

/* What keeping v costs: nothing for what is there anyway; a view that shows most of something is kept as that. */
static int64_t width(Cut *c, WfVal v)
{
    const WfNode *n = wf_producer(c->g, v);
    if (!n)
        return c->written[v] ? bytes_of(c, v) : INT64_MAX;
    if (n->op->family == WF_VIEW && wf_operand_count(n) == 1 && 2 * bytes_of(c, v) > bytes_of(c, wf_behind_views(c->g, v)))
        return INT64_MAX;
    return bytes_of(c, v);
}

static void edge(Cut *c, int from, int to, int64_t room)
{
    int at = c->edges.n;
    Edge there = {to, at + 1, room, c->first[from]}, back = {from, at, 0, c->first[to]};
    WF_PUSH(c->g->arena, &c->edges, there);
    c->first[from] = at;
    WF_PUSH(c->g->arena, &c->edges, back);
    c->first[to] = at + 1;
}

/* v and, through what may be repeated, all that it is made of. Inputs are no part of it: backward has them. */
static void add(Cut *c, WfVal root)
{
    WF_VEC(WfVal) todo = {0};
    WfVal in[WF_MAX_RESULTS];
    WF_PUSH(c->g->arena, &todo, root);
    while (todo.n) {
        WfVal v = todo.at[--todo.n];
        const WfNode *n = wf_producer(c->g, v);
        if (c->seen[v] || (!n && !c->written[v]))
            continue;
        c->seen[v] = true;
        edge(c, 2 * (int)v, 2 * (int)v + 1, width(c, v));
        if (!repeatable(c, v)) {
            edge(c, SOURCE, 2 * (int)v, INT64_MAX);
            continue;
        }
        int k = wf_operands(n, in, WF_MAX_RESULTS);
        for (int j = 0; j < k; j++)
            if (in[j] && (wf_producer(c->g, in[j]) || c->written[in[j]])) {
                edge(c, 2 * (int)in[j] + 1, 2 * (int)v, INT64_MAX);
                WF_PUSH(c->g->arena, &todo, in[j]);
            }
    }
}

/* Sends what fits along one shortest path; false: none is left. */
static bool augment(Cut *c, int *by, int *queue, int vertices)
{
    int head = 0, tail = 0;
    for (int i = 0; i < vertices; i++)
        by[i] = -1;
    by[SOURCE] = -2;
    queue[tail++] = SOURCE;
    while (head < tail && by[SINK] == -1)
        for (int u = queue[head++], e = c->first[u]; e >= 0; e = c->edges.at[e].next)
            if (c->edges.at[e].room > 0 && by[c->edges.at[e].to] == -1) {
                by[c->edges.at[e].to] = e;
                queue[tail++] = c->edges.at[e].to;
            }
    if (by[SINK] == -1)
        return false;
    int64_t most = INT64_MAX;
    for (int v = SINK; v != SOURCE; v = c->edges.at[c->edges.at[by[v]].back].to)
        most = c->edges.at[by[v]].room < most ? c->edges.at[by[v]].room : most;
    for (int v = SINK; v != SOURCE; v = c->edges.at[c->edges.at[by[v]].back].to) {
        Edge *there = &c->edges.at[by[v]], *back = &c->edges.at[there->back];
        there->room -= there->room == INT64_MAX ? 0 : most;
        back->room += back->room == INT64_MAX ? 0 : most;
    }
    return true;
}

/* Marks the values to keep. */
static bool *cut(Cut *c)
{
    WfGraph *g = c->g;
    int vertices = 2 * g->values.n, head = 0, tail = 0;
    bool *kept = WF_NEWN(g->arena, bool, (size_t)g->values.n), *after = WF_NEWN(g->arena, bool, (size_t)vertices);
    int *by = WF_NEWN(g->arena, int, (size_t)vertices), *queue = WF_NEWN(g->arena, int, (size_t)vertices);
    while (augment(c, by, queue, vertices))
        wf_check_cancel(g->ctx);
    queue[tail++] = SINK; /* what still leads to the sink lies behind the cut */
    after[SINK] = true;
    while (head < tail)
        for (int u = queue[head++], e = c->first[u]; e >= 0; e = c->edges.at[e].next) {
            const Edge *in = &c->edges.at[c->edges.at[e].back]; /* the edge that comes into u */
            if (in->room > 0 && !after[c->edges.at[e].to]) {
                after[c->edges.at[e].to] = true;
                queue[tail++] = c->edges.at[e].to;
            }
        }
    for (WfVal v = 1; v < (WfVal)g->values.n; v++)
        kept[v] = c->seen[v] && !after[2 * v] && after[2 * v + 1];
    return kept;
}

static void classify(Cut *c)
{
    WfGraph *g = c->g;
    WfVal in[WF_MAX_RESULTS];
    for (int i = 0; i < g->inputs.n; i++)
        c->backward[g->inputs.at[i].val] = g->inputs.at[i].role == WF_IN_COTANGENT;
    for (int i = 1; i < g->nodes.n; i++) {
        const WfNode *n = wf_node(g, (WfNodeId)i);
        int k = wf_operands(n, in, WF_MAX_RESULTS);
        bool any = false;
        for (int j = 0; j < k; j++)
            any |= c->backward[in[j]];
        for (int r = 0; r < n->n_out; r++)
            c->backward[n->out + (WfVal)r] = any;
    }
    for (int i = 0; i < g->outputs.n; i++) {
        const WfOutput *o = &g->outputs.at[i];
        c->forward[o->val] |= o->role != WF_OUT_GRAD;
        if (o->role == WF_OUT_UPDATE)
            c->written[g->inputs.at[o->input].val] = true;
    }
    for (int i = g->nodes.n - 1; i > 0; i--) {
        const WfNode *n = wf_node(g, (WfNodeId)i);
        bool any = false;
        for (int r = 0; r < n->n_out; r++)
            any |= c->forward[n->out + (WfVal)r];
        int k = any ? wf_operands(n, in, WF_MAX_RESULTS) : 0;
        for (int j = 0; j < k; j++)
            c->forward[in[j]] = true;
        for (int r = 0; any && r < n->n_out; r++) /* what it saves for backward is there as well */
            c->forward[n->out + (WfVal)r] = true;
    }
}

static bool *choose(Cut *c)
{
    WfGraph *g = c->g;
    size_t n = (size_t)g->values.n;
    WfVal in[WF_MAX_RESULTS];
    c->forward = WF_NEWN(g->arena, bool, n);
    c->backward = WF_NEWN(g->arena, bool, n);
    c->written = WF_NEWN(g->arena, bool, n);
    c->seen = WF_NEWN(g->arena, bool, n);
    c->first = WF_NEWN(g->arena, int, 2 * n);
    c->usual = WF_NEWN(g->arena, int64_t, (size_t)wf_esym_count(g->exprs) + 1);
    for (size_t i = 0; i < 2 * n; i++)
        c->first[i] = -1;
    for (int i = 0; i < wf_esym_count(g->exprs); i++) {
        int64_t lo, hi, hint = wf_esym_hint(g->exprs, i);
        wf_esym_range(g->exprs, i, &lo, &hi);
        c->usual[i] = hint ? hint : hi < 24 ? hi : lo > 24 ? lo : 24;
    }
    classify(c);
    bool *live = wf_live_nodes(g);
    for (int i = 1; i < g->nodes.n; i++) {
        const WfNode *nd = wf_node(g, (WfNodeId)i);
        int k = live[i] && c->backward[nd->out] ? wf_operands(nd, in, WF_MAX_RESULTS) : 0;
        for (int j = 0; j < k; j++)
            if (in[j] && !c->backward[in[j]] && (wf_producer(g, in[j]) || c->written[in[j]])) {
                edge(c, 2 * (int)in[j] + 1, SINK, INT64_MAX);
                add(c, in[j]);
            }
    }
    for (int i = 0; i < g->outputs.n; i++) { /* a gradient that no cotangent reaches is computed in backward all the same */
        WfVal v = g->outputs.at[i].role == WF_OUT_GRAD ? g->outputs.at[i].val : 0;
        if (v && !c->backward[v] && wf_producer(g, v)) {
            edge(c, 2 * (int)v + 1, SINK, INT64_MAX);
            add(c, v);
        }
    }
    return cut(c);
}

/* ---- the halves ---- */

/* Copies the nodes of g that `wanted` needs, not going behind what map has already. */
static void copy_needed(WfGraph *g, WfGraph *to, WfVal *map, bool *wanted)
{
    WfVal in[WF_MAX_RESULTS];
    bool *need = WF_NEWN(g->arena, bool, (size_t)g->nodes.n);
    for (int i = g->nodes.n - 1; i > 0; i--) {
        const WfNode *n = wf_node(g, (WfNodeId)i);
        for (int r = 0; r < n->n_out; r++)
            need[i] |= wanted[n->out + (WfVal)r] && !map[n->out + (WfVal)r];
        int k = need[i] ? wf_operands(n, in, WF_MAX_RESULTS) : 0;
        for (int j = 0; j < k; j++)
            wanted[in[j]] = true;
    }
    for (int i = 1; i < g->nodes.n; i++) {
        const WfNode *n = wf_node(g, (WfNodeId)i);
        WfVal had[WF_MAX_RESULTS];
        if (!need[i])
            continue;
        for (int r = 0; r < n->n_out; r++)
            had[r] = map[n->out + (WfVal)r];
        wf_copy_node(g, n, to, map);
        for (int r = 0; r < n->n_out; r++) /* of several results one may be kept, and the node repeated for another */
            map[n->out + (WfVal)r] = had[r] ? had[r] : map[n->out + (WfVal)r];
    }
}

/* Whatever leaves a half has memory of its own: inputs, and what leaves it twice, are copied. */
static WfVal apart(WfGraph *to, WfVal v, bool *taken)
{
    const WfNode *n = wf_producer(to, v);
    if (n && n->op->family != WF_VIEW && !taken[v]) {
        taken[v] = true;
        return v;
    }
    return wf_emit(to, "prim.copy", "v", v);
}

WfGraph *wf_grad_halves(WfPassEnv *env, WfGraph *g)
{
    Cut c = {.g = g};
    bool *kept = choose(&c), front = env->half == WF_HALF_FORWARD;
    WfExe *x = env->out;
    WfGraph *to = wf_graph_like(g, WF_PRIM);
    WfVal *map = WF_NEWN(g->arena, WfVal, (size_t)g->values.n);
    bool *wanted = WF_NEWN(g->arena, bool, (size_t)g->values.n);
    int n = 0;
    wf_copy_inputs(g, to, map);
    for (WfVal v = 1; v < (WfVal)g->values.n && !front; v++) { /* under the number that forward gave it */
        const WfValue *from = wf_value(g, v);
        if (!kept[v])
            continue;
        map[v] = wf_add_input(to, WF_IN_SAVED, wf_arena_printf(g->arena, "%d", n), from->dtype, from->rank, from->shape);
        if (x && x->saved[n].ordered) {
            wf_value(to, map[v])->ordered = true;
            memcpy(wf_value(to, map[v])->order, x->saved[n].order, sizeof x->saved[n].order);
        }
        n++;
    }
    for (int i = 0; i < g->outputs.n; i++)
        wanted[g->outputs.at[i].val] |= (g->outputs.at[i].role != WF_OUT_GRAD) == front;
    for (WfVal v = 1; v < (WfVal)g->values.n && front; v++)
        wanted[v] |= kept[v];
    wanted[0] = false;
    copy_needed(g, to, map, wanted);
    bool *taken = WF_NEWN(g->arena, bool, (size_t)to->values.n);
    int extra = 0;
    for (WfVal v = 1; v < (WfVal)g->values.n && front; v++)
        if (kept[v])
            wf_add_output(to, WF_OUT_SAVED, wf_arena_printf(g->arena, "%d", extra++), apart(to, map[v], taken), 0);
    for (int i = 0; i < g->outputs.n; i++) {
        const WfOutput *o = &g->outputs.at[i];
        if ((o->role != WF_OUT_GRAD) == front && o->val)
            wf_add_output(to, o->role, o->name, o->role == WF_OUT_UPDATE ? map[o->val] : apart(to, map[o->val], taken), o->input);
    }
    if (x && front) {
        x->n_saved = extra;
        x->saved = WF_NEWN(x->arena, WfExeSaved, (size_t)extra + 1);
    }
    return to;
}
