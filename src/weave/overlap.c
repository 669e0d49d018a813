/* Overlap. A bucket's start stands where its last tensor is there; its wait sinks to just before the first node that
 * reads what it brings, and views sink with it. Between the two the communication thread works while the step computes.
 * Behind the last start nodes stand in the order in which what they read arrives: norms and updates of the first buckets
 * are computed while the last one travels.
 * Memory does not grow by it: a bucket's memory is taken from its first gradient to its last reader either way. */
#include "weave/schedule.h"

#include <string.h>

static bool is_start(const WfNode *n) { return n && n->op->travel; }

static bool is_wait(const WfNode *n) { return n->op->family == WF_COLLECTIVE && !n->op->start && !n->op->travel; }

static bool sinks(const WfNode *n) { return n->op->family == WF_VIEW || is_wait(n); }

/* order[1..]: all nodes by place, those behind the last start by the last start that they depend on; place: the inverse. */
static void by_arrival(const WfGraph *g, WfNodeId *order, int *place)
{
    int n = g->nodes.n, last = 0, starts = 0, at = 1;
    int *arrives = WF_NEWN(g->arena, int, (size_t)n + 1); /* by node: the number of that start; 0: of none */
    WfVal in[WF_MAX_RESULTS];
    for (int i = 1; i < n; i++)
        last = is_start(wf_node(g, (WfNodeId)i)) ? i : last;
    for (int i = 1; i < n; i++) {
        const WfNode *nd = wf_node(g, (WfNodeId)i);
        int k = wf_operands(nd, in, WF_MAX_RESULTS);
        for (int j = 0; j < k; j++) {
            WfNodeId p = in[j] ? wf_value(g, in[j])->node : 0;
            arrives[i] = arrives[p] > arrives[i] ? arrives[p] : arrives[i];
        }
        arrives[i] = is_start(nd) ? ++starts : arrives[i];
    }
    for (int i = 1; i <= last; i++)
        order[at++] = (WfNodeId)i;
    for (int of = 0; of <= starts; of++)
        for (int i = last + 1; i < n; i++)
            if (arrives[i] == of)
                order[at++] = (WfNodeId)i;
    for (int i = 1; i < n; i++)
        place[order[i]] = i;
}

WfGraph *wf_weave_overlap(WfPassEnv *env, WfGraph *g)
{
    (void)env;
    int n = g->nodes.n;
    WfNodeId *order = WF_NEWN(g->arena, WfNodeId, (size_t)n + 1);
    int *place = WF_NEWN(g->arena, int, (size_t)n + 1);
    int *target = WF_NEWN(g->arena, int, (size_t)n + 1); /* by place: that of the node that it stands in front of */
    WfVal *map = WF_NEWN(g->arena, WfVal, (size_t)g->values.n), in[WF_MAX_RESULTS];
    wf_weave_check(g);
    by_arrival(g, order, place);
    for (int i = 0; i < n; i++)
        target[i] = n;
    for (int i = n - 1; i > 0; i--) {
        const WfNode *nd = wf_node(g, order[i]);
        int k = wf_operands(nd, in, WF_MAX_RESULTS), at = sinks(nd) ? target[i] : i;
        for (int j = 0; j < k; j++) {
            int p = in[j] ? place[wf_value(g, in[j])->node] : 0;
            target[p] = p && at < target[p] ? at : target[p];
        }
    }
    WfGraph *to = wf_graph_like(g, WF_LOOP);
    to->expand = false;
    wf_copy_inputs(g, to, map);
    int *head = WF_NEWN(g->arena, int, (size_t)n + 2), *next = WF_NEWN(g->arena, int, (size_t)n + 2);
    for (int i = n - 1; i > 0; i--)
        if (sinks(wf_node(g, order[i]))) {
            next[i] = head[target[i]];
            head[target[i]] = i;
        }
    for (int at = 1; at <= n; at++) {
        for (int i = head[at]; i; i = next[i])
            wf_weave_copy_raw(g, wf_node(g, order[i]), to, map);
        if (at < n && !sinks(wf_node(g, order[at])))
            wf_weave_copy_raw(g, wf_node(g, order[at]), to, map);
    }
    wf_copy_outputs(g, to, map);
    wf_weave_check(to);
    return to;
}

/* ---- the rules of pairs ---- */

/* The value in memory that v shows is `what`, for reading by n (NULL: an output). */
static void refuse(WfGraph *g, const WfNode *n, WfVal v, const char *output, const char *what) WF_NORETURN;
static void refuse(WfGraph *g, const WfNode *n, WfVal v, const char *output, const char *what)
{
    if (n)
        wf_fail_node(g, n, WF_E_TRAVEL, "it reads %%%s, which %s", wf_value_name(g, v), what);
    wf_fail(g->ctx, WF_E_TRAVEL, "output \"%s\" is %%%s, which %s", output, wf_value_name(g, v), what);
}

/* May v be read, given what has been started before? taken[v]: its memory travels, or holds the result. */
static void check_read(WfGraph *g, const WfNode *n, WfVal v, const char *output, const bool *taken)
{
    WfVal m = v ? wf_behind_views(g, v) : 0;
    if (m && is_start(wf_producer(g, m)))
        refuse(g, n, v, output, "is in flight: a dist.wait must come first");
    if (m && taken[m])
        refuse(g, n, v, output, "has been sent, and whose memory the collective took over: read its result");
}

static void check_wait(WfGraph *g, const WfNode *n, const WfVal *in, int k, int *waits)
{
    const WfNode *s = k ? wf_producer(g, in[0]) : NULL;
    bool whole = is_start(s) && k == s->n_out;
    for (int j = 0; j < k && whole; j++)
        whole = in[j] == s->out + (WfVal)j;
    if (!whole)
        wf_fail_node(g, n, WF_E_TRAVEL, "it must wait for all results of one start, in their order");
    if (waits[wf_value(g, in[0])->node]++)
        wf_fail_node(g, n, WF_E_TRAVEL, "what it waits for has been waited for before");
}

void wf_weave_check(WfGraph *g)
{
    int *waits = WF_NEWN(g->arena, int, (size_t)g->nodes.n + 1);
    bool *taken = WF_NEWN(g->arena, bool, (size_t)g->values.n + 1);
    WfVal in[WF_MAX_RESULTS];
    for (int i = 1; i < g->nodes.n; i++) {
        const WfNode *n = wf_node(g, (WfNodeId)i);
        int k = wf_operands(n, in, WF_MAX_RESULTS);
        if (is_wait(n)) {
            check_wait(g, n, in, k, waits);
            continue;
        }
        for (int j = 0; j < k && (n->op->family != WF_VIEW || k > 1); j++)
            check_read(g, n, in[j], NULL, taken);
        for (int j = 0; j < k && is_start(n) && n->op->travel->in_place; j++) {
            check_read(g, n, in[j], NULL, taken); /* twice in one start */
            taken[wf_behind_views(g, in[j])] = true;
        }
    }
    for (int i = 1; i < g->nodes.n; i++)
        if (is_start(wf_node(g, (WfNodeId)i)) && !waits[i])
            wf_fail_node(g, wf_node(g, (WfNodeId)i), WF_E_TRAVEL, "it is started, but nothing waits for it");
    for (int i = 0; i < g->outputs.n; i++)
        if (g->outputs.at[i].val)
            check_read(g, NULL, g->outputs.at[i].val, g->outputs.at[i].name, taken);
}
