/* Overlap. A bucket's start stands where its last tensor is there; its wait sinks to just before the first node that
 * reads what it brings, and views sink with it. Between the two the communication thread works while the step computes.
 * Memory does not grow by it: a bucket's memory is taken from its first gradient to its last reader either way. */
#include "weave/schedule.h"

#include <string.h>

static bool is(const WfNode *n, const char *name) { return !strcmp(n->schema->name, name); }

static bool sinks(const WfNode *n) { return n->op->family == WF_VIEW || is(n, "dist.wait"); }

WfGraph *wf_weave_overlap(WfPassEnv *env, WfGraph *g)
{
    (void)env;
    int n = g->nodes.n;
    int *target = WF_NEWN(g->arena, int, (size_t)n + 1); /* by node: the node that it stands in front of */
    WfVal *map = WF_NEWN(g->arena, WfVal, (size_t)g->values.n), in[WF_MAX_RESULTS];
    wf_weave_check(g);
    for (int i = 0; i < n; i++)
        target[i] = n;
    for (int i = n - 1; i > 0; i--) {
        const WfNode *nd = wf_node(g, (WfNodeId)i);
        int k = wf_operands(nd, in, WF_MAX_RESULTS), at = sinks(nd) ? target[i] : i;
        for (int j = 0; j < k; j++) {
            WfNodeId p = in[j] ? wf_value(g, in[j])->node : 0;
            target[p] = p && at < target[p] ? at : target[p];
        }
    }
    WfGraph *to = wf_graph_like(g, WF_LOOP);
    to->expand = false;
    wf_copy_inputs(g, to, map);
    int *head = WF_NEWN(g->arena, int, (size_t)n + 2), *next = WF_NEWN(g->arena, int, (size_t)n + 2);
    for (int i = n - 1; i > 0; i--)
        if (sinks(wf_node(g, (WfNodeId)i))) {
            next[i] = head[target[i]];
            head[target[i]] = i;
        }
    for (int at = 1; at <= n; at++) {
        for (int i = head[at]; i; i = next[i])
            wf_weave_copy_raw(g, wf_node(g, (WfNodeId)i), to, map);
        if (at < n && !sinks(wf_node(g, (WfNodeId)at)))
            wf_weave_copy_raw(g, wf_node(g, (WfNodeId)at), to, map);
    }
    wf_copy_outputs(g, to, map);
    wf_weave_check(to);
    return to;
}

/* ---- the rules of pairs ---- */

static bool is_start(const WfNode *n)
{
    return n && n->op->family == WF_COLLECTIVE && n->args[0].kind == WF_ARG_TENSORS && !is(n, "dist.wait");
}

void wf_weave_check(WfGraph *g)
{
    int *waits = WF_NEWN(g->arena, int, (size_t)g->nodes.n + 1);
    WfVal in[WF_MAX_RESULTS];
    for (int i = 1; i < g->nodes.n; i++) {
        const WfNode *n = wf_node(g, (WfNodeId)i);
        int k = wf_operands(n, in, WF_MAX_RESULTS);
        if (is(n, "dist.wait")) {
            const WfNode *s = k ? wf_producer(g, in[0]) : NULL;
            bool whole = is_start(s) && k == s->n_out;
            for (int j = 0; j < k && whole; j++)
                whole = in[j] == s->out + (WfVal)j;
            if (!whole)
                wf_fail_node(g, n, WEFT_ERR_USAGE, "it must wait for all results of one start, in their order");
            if (waits[wf_value(g, in[0])->node]++)
                wf_fail_node(g, n, WEFT_ERR_USAGE, "what it waits for has been waited for before");
            continue;
        }
        for (int j = 0; j < k; j++) {
            const WfNode *p = in[j] ? wf_producer(g, wf_behind_views(g, in[j])) : NULL;
            if (is_start(p))
                wf_fail_node(g, n, WEFT_ERR_USAGE, "it reads %%%s, which is in flight: a dist.wait must come first",
                             wf_value_name(g, in[j]));
        }
    }
    for (int i = 1; i < g->nodes.n; i++)
        if (is_start(wf_node(g, (WfNodeId)i)) && !waits[i])
            wf_fail_node(g, wf_node(g, (WfNodeId)i), WEFT_ERR_USAGE, "it is started, but nothing waits for it");
    for (int i = 0; i < g->outputs.n; i++)
        if (g->outputs.at[i].val && is_start(wf_producer(g, wf_behind_views(g, g->outputs.at[i].val))))
            wf_fail(g->ctx, WEFT_ERR_USAGE, "output \"%s\" is in flight: a dist.wait must come first", g->outputs.at[i].name);
}
