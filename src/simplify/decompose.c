/* Lowering to a level is copying into a graph of that level: the builder expands what the level does not
 * admit. Every copied result is compared with what the node promised before. */
#include "simplify/private.h"

#include <string.h>

/* Sizes are equal when their canonical forms are; forms that differ are compared at a few assignments, so
 * that a difference that the rules cannot see through is no error. */
static bool same_size(WfGraph *g, WfDim a, WfDim b)
{
    enum { TRIES = 4 };
    int n = wf_esym_count(g->exprs);
    int64_t x, y;
    if (a == b)
        return true;
    int64_t *values = WF_NEWN(g->arena, int64_t, (size_t)n + 1);
    for (int t = 0; t < TRIES; t++) {
        for (int i = 0; i < n; i++) {
            int64_t lo, hi, want = 2 + t * 5 + i * 3 * t;
            wf_esym_range(g->exprs, i, &lo, &hi);
            values[i] = want < lo ? lo : want > hi ? hi : want;
        }
        if (wf_eeval(g->exprs, a, values, &x) && wf_eeval(g->exprs, b, values, &y) && x != y)
            return false;
    }
    return !(wf_elit(g->exprs, a, &x) && wf_elit(g->exprs, b, &y));
}

void wf_check_claim(WfGraph *from, const WfNode *n, int i, WfGraph *to, WfVal v)
{
    const WfValue *claim = wf_value(from, n->out + (WfVal)i), *is = wf_value(to, v);
    if (!wf_is_used(from, n->out + (WfVal)i))
        return; /* PyTorch leaves results that nobody asked for empty */
    bool ok = claim->dtype == is->dtype && claim->rank == is->rank;
    for (int d = 0; ok && d < claim->rank; d++)
        ok = same_size(to, claim->shape[d], is->shape[d]);
    if (!ok)
        wf_fail_node(from, n, WF_E_SHAPES, "result %d is %s by the operator's rule, but the model says %s",
                     i, wf_shape_text(to, v), wf_shape_text(from, n->out + (WfVal)i));
}

static WfGraph *lower(const WfPassEnv *env, WfGraph *g, WfLevel level)
{
    const WfOptions *o = env->options;
    WfGraph *to = wf_graph_like(g, level);
    to->agree = o && o->nproc > 1 && o->buffers == WF_BUFFERS_SYNC && !env->eval;
    WfVal *map = WF_NEWN(g->arena, WfVal, (size_t)g->values.n);
    bool *live = wf_live_nodes(g);
    wf_copy_inputs(g, to, map);
    for (int i = 1; i < g->nodes.n; i++) {
        const WfNode *n = wf_node(g, (WfNodeId)i);
        if (i % 256 == 0)
            wf_check_cancel(g->ctx);
        if (!live[i])
            continue;
        wf_copy_node(g, n, to, map);
        for (int r = 0; r < n->n_out; r++)
            if (wf_value(g, n->out + (WfVal)r)->dtype && map[n->out + (WfVal)r])
                wf_check_claim(g, n, r, to, map[n->out + (WfVal)r]);
    }
    wf_copy_outputs(g, to, map);
    return to;
}

WfGraph *wf_simplify_decompose(WfPassEnv *env, WfGraph *g)
{
    return lower(env, g, WF_OP);
}

WfGraph *wf_simplify_prim(WfPassEnv *env, WfGraph *g)
{
    return lower(env, g, WF_PRIM);
}
