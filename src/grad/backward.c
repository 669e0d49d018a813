/* Reverse mode over the graph's own nodes, last to first. A value takes part if a wanted value leads to it; its
 * cotangents are summed as they arrive. VJPs build ordinary nodes, so the backward pass is shared, folded and fused
 * like any other part of the graph. */
#include "grad/private.h"
#include "ops/ops.h"

#include <string.h>

bool *wf_grad_needed(WfGraph *g, const WfVal *wrt, int n)
{
    bool *need = WF_NEWN(g->arena, bool, (size_t)g->values.n);
    WfVal in[WF_MAX_RESULTS];
    for (int i = 0; i < n; i++)
        need[wrt[i]] = true;
    for (int i = 1; i < g->nodes.n; i++) {
        const WfNode *nd = wf_node(g, (WfNodeId)i);
        bool any = false;
        if (nd->no_grad || !strcmp(nd->schema->name, "prim.detach"))
            continue;
        int k = wf_operands(nd, in, WF_MAX_RESULTS);
        for (int j = 0; j < k; j++)
            any |= in[j] && need[in[j]];
        for (int r = 0; any && r < nd->n_out; r++)
            need[nd->out + (WfVal)r] = wf_dtype_is_float(wf_dtype_of(g, nd->out + (WfVal)r));
    }
    return need;
}

static void accumulate(WfGraph *g, WfVal *cot, WfVal v, WfVal d)
{
    if (!wf_same_shape(g, v, d) || wf_dtype_of(g, v) != wf_dtype_of(g, d))
        wf_fail(g->ctx, WF_E_BUG, "the gradient of %s %s came out as %s", wf_value_name(g, v),
                wf_shape_text(g, v), wf_shape_text(g, d));
    cot[v] = cot[v] ? wf_add(g, cot[v], d) : d;
}

static void one_node(WfGraph *g, WfNodeId id, const bool *need, WfVal *cot)
{
    WfNode n = *wf_node(g, id); /* the table may grow while the VJP builds */
    WfVal in[WF_MAX_RESULTS], dy[WF_MAX_RESULTS] = {0}, dx[WF_MAX_RESULTS] = {0};
    bool wants[WF_MAX_RESULTS], any = false, wanted = false;
    for (int r = 0; r < n.n_out; r++) {
        dy[r] = cot[n.out + (WfVal)r];
        any |= dy[r] != 0;
    }
    int k = wf_operands(&n, in, WF_MAX_RESULTS);
    for (int j = 0; j < k; j++)
        wanted |= wants[j] = in[j] && need[in[j]];
    if (!any || !wanted || n.no_grad || !strcmp(n.schema->name, "prim.detach"))
        return;
    if (!n.op->vjp)
        wf_fail_node(g, &n, WF_E_NO_GRADIENT, "this op has no gradient");
    g->source = n.source;
    g->wants = wants;
    n.op->vjp(g, &n, dy, dx);
    g->wants = NULL;
    for (int j = 0; j < k; j++)
        if (dx[j] && wants[j])
            accumulate(g, cot, in[j], dx[j]);
    g->source = 0;
}

void wf_grad_backward_many(WfGraph *g, const WfVal *of, const WfVal *cotangent, int n_of, const WfVal *wrt, int n,
                           WfVal *grad)
{
    int forward = g->nodes.n;
    bool *need = wf_grad_needed(g, wrt, n);
    WfVal *cot = WF_NEWN(g->arena, WfVal, (size_t)g->values.n); /* forward values only: VJPs make the others */
    for (int i = 0; i < n_of; i++)
        if (cotangent[i] && need[of[i]])
            accumulate(g, cot, of[i], cotangent[i]);
    for (int i = forward - 1; i > 0; i--)
        one_node(g, (WfNodeId)i, need, cot);
    for (int i = 0; i < n; i++)
        grad[i] = cot[wrt[i]];
}

void wf_grad_backward(WfGraph *g, WfVal of, WfVal seed, const WfVal *wrt, int n, WfVal *grad)
{
    if (!seed)
        seed = wf_expand_like(g, wf_like(g, of, 1), of);
    wf_grad_backward_many(g, &of, &seed, 1, wrt, n, grad);
}
