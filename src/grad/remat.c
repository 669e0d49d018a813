/* Recomputation. A pointwise value of the forward pass that the backward pass only wants as a library operand (the input
 * of a weight gradient: a norm's or an activation's result) would be stored all the way between. If everything that it
 * is made of is kept for the backward pass anyway, it is computed again there: a pass over memory for the bytes of one
 * activation. Done only where it adds up, so that small models keep every bit of speed. */
#include "grad/grad.h"
#include "ops/ops.h"

#include <string.h>

#define WORTHWHILE (64 << 20)  /* bytes that recomputing must save in all */
#define SMALL (1 << 18)        /* a leaf of fewer bytes may live longer for it */
#define MAX_CHAIN 48           /* nodes that are repeated for one value */

typedef struct {
    WfGraph *g, *to;
    WfVal *map;
    bool *kept;              /* stored, and read by the backward pass in any case */
    bool *again;             /* values to recompute for library calls, ... */
    bool *cheap;             /* ... and for other readers, whose kernels take the repetition in */
    WfVal *clone;
    int *uses;
    WfLeaves **reads;        /* by value: stored values of about its size that it is computed from; NULL: not yet */
    WfNodeId boundary;       /* the node of the loss: what follows is backward */
    int chain;
} Remat;

static bool computes(const WfNode *n)
{
    return n && (n->op->family == WF_POINTWISE || n->op->family == WF_VIEW || n->op->family == WF_SOURCE);
}

static int64_t bytes_of(WfGraph *g, WfVal v)
{
    int64_t n;
    return wf_elit(g->exprs, wf_numel(g, v), &n) ? n * (int64_t)wf_dtype_size(wf_dtype_of(g, v)) : 0;
}

static bool is_leaf(Remat *r, WfVal v);

/* The stored values of comparable size that v is computed from (fuse/group stores by the same measure). */
static const WfLeaves *reads(Remat *r, WfVal v)
{
    const WfNode *n = wf_producer(r->g, v);
    WfVal in[WF_MAX_RESULTS];
    if (r->reads[v])
        return r->reads[v];
    WfLeaves *s = WF_NEW(r->g->arena, WfLeaves);
    int k = computes(n) ? wf_operands(n, in, WF_MAX_RESULTS) : 0;
    for (int i = 0; i < k; i++) {
        if (!in[i])
            continue;
        const WfLeaves self = {1, {in[i]}}, *below = is_leaf(r, in[i]) ? &self : reads(r, in[i]);
        for (int q = 0; q < below->n; q++)
            if (bytes_of(r->g, below->at[q]) >= bytes_of(r->g, v) / 8)
                wf_leaves_add(s, below->at[q]);
    }
    return r->reads[v] = s;
}

/* Where repeating ends: what is no pointwise computation, or will be stored because many read it and it is made of
 * several stored values. */
static bool is_leaf(Remat *r, WfVal v)
{
    const WfNode *n = wf_producer(r->g, v);
    return !computes(n) || (n->op->family == WF_POINTWISE && r->uses[v] > 2 && reads(r, v)->n > 1);
}

/* Marks what a value of the backward pass reads in memory: the leaves below its pointwise part. */
static void keep_leaves(Remat *r, WfVal v, bool *seen)
{
    const WfNode *n = wf_producer(r->g, v);
    WfVal in[WF_MAX_RESULTS];
    if (seen[v])
        return;
    seen[v] = true;
    if (is_leaf(r, v)) {
        r->kept[v] = true;
        return;
    }
    int k = wf_operands(n, in, WF_MAX_RESULTS);
    for (int i = 0; i < k; i++)
        if (in[i])
            keep_leaves(r, in[i], seen);
}

/* Can v be computed again from kept or small values within the limit? */
static bool repeatable(Remat *r, WfVal v, bool root)
{
    const WfNode *n = wf_producer(r->g, v);
    WfVal in[WF_MAX_RESULTS];
    if (!root && is_leaf(r, v))
        return r->kept[v] || bytes_of(r->g, v) <= SMALL;
    if ((!root && r->again[v]) || ++r->chain > MAX_CHAIN)
        return false;
    int k = wf_operands(n, in, WF_MAX_RESULTS);
    for (int i = 0; i < k; i++)
        if (in[i] && !repeatable(r, in[i], false))
            return false;
    return true;
}

/* Does a view read elements of its operand several times (windows, broadcasts)? Its operand is then stored. */
static bool multiplies(WfGraph *g, const WfNode *n)
{
    return n->op->family == WF_VIEW && bytes_of(g, n->out) > bytes_of(g, wf_operand_count(n) == 1 ? wf_tensor(n, 0) : n->out);
}

/* Chooses the values; returns the bytes saved. */
static int64_t choose(Remat *r, const bool *live)
{
    WfGraph *g = r->g;
    WfVal in[WF_MAX_RESULTS];
    bool *wanted = WF_NEWN(g->arena, bool, (size_t)g->values.n), *seen = WF_NEWN(g->arena, bool, (size_t)g->values.n);
    bool *forward = WF_NEWN(g->arena, bool, (size_t)g->values.n);
    bool *read = WF_NEWN(g->arena, bool, (size_t)g->values.n); /* by the backward pass, not as a library operand */
    int64_t saved = 0;
    for (WfNodeId i = 1; i < (WfNodeId)g->nodes.n; i++) {
        const WfNode *n = wf_node(g, i);
        int k = live[i] ? wf_operands(n, in, WF_MAX_RESULTS) : 0;
        for (int j = 0; j < k; j++) {
            WfVal v = in[j] ? wf_behind_views(g, in[j]) : 0;
            const WfNode *p = v ? wf_producer(g, v) : NULL;
            bool crosses = i > r->boundary && v && wf_value(g, v)->node < r->boundary;
            if (i <= r->boundary && (n->op->family == WF_LIBRARY || multiplies(g, n)))
                forward[v] = true;
            if (crosses && n->op->family != WF_LIBRARY && n->op->family != WF_VIEW && v == in[j] && p &&
                p->op->family == WF_POINTWISE)
                read[v] = true;
            if (crosses && n->op->family == WF_LIBRARY && p && p->op->family == WF_POINTWISE)
                wanted[v] = true;
            else if (i > r->boundary && in[j] && wf_value(g, in[j])->node < r->boundary)
                keep_leaves(r, in[j], seen);
        }
    }
    for (int i = 0; i < g->outputs.n; i++)
        wanted[g->outputs.at[i].val] = false;
    for (WfVal v = 1; v < (WfVal)g->values.n; v++) {
        r->chain = 0;
        r->cheap[v] = read[v] && forward[v] && !is_leaf(r, v) && bytes_of(g, v) > SMALL && repeatable(r, v, true);
        r->chain = 0;
        if (wanted[v] && forward[v] && bytes_of(g, v) > SMALL && repeatable(r, v, true)) {
            r->again[v] = true;
            saved += bytes_of(g, v);
        }
    }
    return saved;
}

/* v once more, from its leaves; a leaf is read through prim.recompute, which keeps the copy apart from the original. */
static WfVal repeat(Remat *r, WfVal v, bool root)
{
    const WfNode *n = wf_producer(r->g, v);
    WfVal in[WF_MAX_RESULTS], saved[WF_MAX_RESULTS];
    if (r->clone[v])
        return r->clone[v];
    if (!root && is_leaf(r, v))
        return r->clone[v] = wf_emit(r->to, "prim.recompute", "v", r->map[v]);
    int k = wf_operands(n, in, WF_MAX_RESULTS);
    for (int i = 0; i < k; i++)
        if (in[i])
            repeat(r, in[i], false);
    for (int i = 0; i < k; i++) {
        saved[i] = r->map[in[i]];
        r->map[in[i]] = in[i] ? r->clone[in[i]] : 0;
    }
    WfVal original = r->map[v];
    wf_copy_node(r->g, n, r->to, r->map);
    r->clone[v] = r->map[v];
    r->map[v] = original;
    for (int i = k - 1; i >= 0; i--)
        r->map[in[i]] = saved[i];
    return r->clone[v];
}

static bool repeated(const Remat *r, const WfNode *n, WfVal v)
{
    if (!v || n->op->family == WF_VIEW)
        return false;
    return n->op->family == WF_LIBRARY ? r->again[wf_behind_views(r->g, v)] : r->cheap[v];
}

/* A backward node reads the repeated value; a library call through the views that stand between. */
static void copy_with_repeats(Remat *r, const WfNode *n)
{
    WfVal in[WF_MAX_RESULTS], saved[WF_MAX_RESULTS];
    int k = wf_operands(n, in, WF_MAX_RESULTS);
    for (int i = 0; i < k; i++) {
        saved[i] = in[i] ? r->map[in[i]] : 0;
        if (repeated(r, n, in[i])) {
            repeat(r, wf_behind_views(r->g, in[i]), true);
            repeat(r, in[i], true);
        }
    }
    for (int i = 0; i < k; i++)
        if (repeated(r, n, in[i]))
            r->map[in[i]] = r->clone[in[i]];
    wf_copy_node(r->g, n, r->to, r->map);
    for (int i = k - 1; i >= 0; i--)
        if (in[i])
            r->map[in[i]] = saved[i];
}

WfGraph *wf_grad_remat(WfPassEnv *env, WfGraph *g)
{
    size_t n = (size_t)g->values.n;
    Remat r = {.g = g};
    WfVal loss = 0;
    for (int i = 0; i < g->outputs.n; i++)
        if (g->outputs.at[i].role == WF_OUT_LOSS)
            loss = g->outputs.at[i].val;
    if (env->eval || !loss || !wf_producer(g, loss))
        return g;
    r.boundary = wf_value(g, loss)->node;
    r.kept = WF_NEWN(g->arena, bool, n);
    r.again = WF_NEWN(g->arena, bool, n);
    r.cheap = WF_NEWN(g->arena, bool, n);
    r.uses = wf_use_counts(g);
    r.reads = WF_NEWN(g->arena, WfLeaves *, n);
    bool *live = wf_live_nodes(g);
    if (choose(&r, live) < WORTHWHILE)
        memset(r.again, 0, n);
    r.to = wf_graph_like(g, WF_PRIM);
    r.map = WF_NEWN(g->arena, WfVal, n);
    r.clone = WF_NEWN(g->arena, WfVal, n);
    wf_copy_inputs(g, r.to, r.map);
    for (WfNodeId i = 1; i < (WfNodeId)g->nodes.n; i++) {
        const WfNode *nd = wf_node(g, i);
        if (!live[i])
            continue;
        if (i > r.boundary)
            copy_with_repeats(&r, nd);
        else
            wf_copy_node(g, nd, r.to, r.map);
    }
    wf_copy_outputs(g, r.to, r.map);
    return r.to;
}
