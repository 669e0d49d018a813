/* The order of calls. Nests and library calls of the loop graph run in the graph's order, except that
 * whatever only computes new state goes behind the commit point (or, with --update=early, as soon as it may).
 * A nest that reads a matrix product row by row *follows* it: the executor runs it on the rows of a tile
 * while they are in the cache, so the two calls share one moment of time. */
#include "plan/private.h"

#include <string.h>

int wf_plan_reads(Plan *p, const WfNode *n, WfVal *out)
{
    if (n->op->family == WF_LIBRARY) {
        WfLibraryCall c = {0};
        int k = 0;
        n->op->describe(p->g, n, &c);
        for (int i = 0; i < c.n; i++)
            if (c.at[i].v && c.at[i].v != WF_STATUS &&
                (c.at[i].v < n->out || c.at[i].v >= n->out + (WfVal)n->n_out))
                out[k++] = wf_behind_views(p->g, c.at[i].v);
        return k;
    }
    int k = wf_operands(n, out, WF_MAX_RESULTS);
    for (int i = 0; i < k; i++)
        out[i] = wf_behind_views(p->g, out[i]);
    return k;
}

static bool is_call(const WfNode *n)
{
    return n->op->family == WF_LOOPNEST || n->op->family == WF_LIBRARY || n->op->family == WF_COLLECTIVE;
}

bool wf_plan_commits(const WfGraph *g, const WfOutput *o)
{
    return o->role == WF_OUT_UPDATE && g->inputs.at[o->input].role != WF_IN_ACCUM;
}

static void find_late(Plan *p)
{
    WfGraph *g = p->g;
    bool *needed = WF_NEWN(p->a, bool, (size_t)g->values.n); /* by something before the commit point */
    WfVal *in = WF_NEWN(p->a, WfVal, WF_MAX_RESULTS * 8);
    for (int i = 0; i < g->outputs.n; i++)
        if (!wf_plan_commits(g, &g->outputs.at[i]))
            needed[g->outputs.at[i].val] = true;
    for (int i = g->nodes.n - 1; i > 0; i--) {
        const WfNode *n = wf_node(g, (WfNodeId)i);
        if (!is_call(n))
            continue;
        bool late = n->op->family != WF_COLLECTIVE; /* feeds only late calls or state; what travels starts early */
        for (int k = 0; k < n->n_out; k++)
            late &= !needed[n->out + (WfVal)k];
        p->late[i] = late;
        if (!late) {
            int c = wf_plan_reads(p, n, in);
            for (int k = 0; k < c; k++)
                needed[in[k]] = true;
        }
    }
}

/* Nests with small results (norms of gradients) may run as soon as inputs are there: lifetimes end. */
static bool shrinks(Plan *p, const WfNode *n)
{
    int64_t size;
    for (int r = 0; r < n->n_out; r++)
        if (!wf_elit(p->g->exprs, wf_numel(p->g, n->out + (WfVal)r), &size) || size > 65536)
            return false;
    return n->op->family == WF_LOOPNEST;
}

/* --update=early: an update follows as soon as its gradient is there and nobody reads the old value later. */
static void advance_updates(Plan *p, WfNodeId *order, int n)
{
    WfGraph *g = p->g;
    WfVal *in = WF_NEWN(p->a, WfVal, WF_MAX_RESULTS * 8);
    int *ready = WF_NEWN(p->a, int, (size_t)n + 1); /* by position: the call it may follow */
    int *made = WF_NEWN(p->a, int, (size_t)g->values.n), *read = WF_NEWN(p->a, int, (size_t)g->values.n);
    for (int c = 0; c < n; c++) {
        const WfNode *nd = wf_node(g, order[c]);
        int k = wf_plan_reads(p, nd, in), at = 0;
        bool late = p->late[order[c]];
        for (int j = 0; j < k; j++)
            at = made[in[j]] > at ? made[in[j]] : at;
        for (int i = 0; late && i < g->outputs.n;
             i++) { /* the old value of what it writes must have been read */
            const WfOutput *o = &g->outputs.at[i];
            WfVal was = o->role == WF_OUT_UPDATE ? g->inputs.at[o->input].val : 0;
            if (was && o->val >= nd->out && o->val < nd->out + (WfVal)nd->n_out)
                at = read[was] > at ? read[was] : at;
        }
        ready[c] = late || shrinks(p, nd) ? at : c;
        for (int j = 0; j < k; j++)
            read[in[j]] = ready[c] > read[in[j]] ? ready[c] : read[in[j]];
        for (int r = 0; r < nd->n_out; r++)
            made[nd->out + (WfVal)r] = ready[c];
    }
    WfNodeId *sorted = WF_NEWN(p->a, WfNodeId, (size_t)n + 1);
    int m = 0;
    for (int at = 0; at < n; at++) /* stable: the call itself, then the updates that may follow it */
        for (int late = 0; late < 2; late++)
            for (int c = 0; c < n; c++)
                if (ready[c] == at && (p->late[order[c]] || ready[c] != c) == late)
                    sorted[m++] = order[c];
    memcpy(order, sorted, (size_t)m * sizeof *order);
}

static void order_calls(Plan *p, WfNodeId *order, int *n)
{
    for (int late = 0; late < 2; late++) {
        if (late)
            p->p->commit = *n;
        for (int i = 1; i < p->g->nodes.n; i++)
            if (is_call(wf_node(p->g, (WfNodeId)i)) && p->late[i] == late)
                order[(*n)++] = (WfNodeId)i;
    }
    if (p->early) {
        advance_updates(p, order, *n);
        p->p->commit = *n;
    }
}

/* ---- followers ---- */

/* The last matrix product whose dense rows nest nd reads tile by tile; 0: none. */
static WfNodeId leader(Plan *p, WfNodeId id)
{
    const WfNode *nd = wf_node(p->g, id);
    WfNodeId last = 0;
    for (int j = 0; nd->op->family == WF_LOOPNEST && j < nd->args[0].n; j++) {
        const WfNode *n = wf_producer(p->g, nd->args[0].vals[j]);
        WfLibraryCall c = {0};
        WfStrided s;
        if (!p->kernel[id]->by_tile[j] || !n || n->op->family != WF_LIBRARY || n->n_out != 1)
            continue;
        n->op->describe(p->g, n, &c);
        if (strcmp(c.kind, "gemm") || !wf_call_operand(p->g, &c, c.n - 1, NULL, &s) || s.base != n->out ||
            s.offset != 0)
            continue;
        WfNodeId at = wf_value(p->g, n->out)->node;
        last = !last || p->call_of[at] > p->call_of[last] ? at : last;
    }
    return last;
}

/* Nests that may follow a product move right behind it, when all else that they read is there. */
static void find_followers(Plan *p, WfNodeId *order, int n)
{
    WfVal *in = WF_NEWN(p->a, WfVal, WF_MAX_RESULTS * 8);
    p->follows = WF_NEWN(p->a, bool, (size_t)n + 1);
    for (int c = 1; c < n; c++) {
        WfNodeId id = order[c], before = p->late[id] ? 0 : leader(p, id);
        const WfNode *nd = wf_node(p->g, id);
        int at = before ? p->call_of[before] : -1, k = at < 0 ? 0 : wf_plan_reads(p, nd, in);
        bool ready = at >= 0 && !(at + 1 < n && p->follows[at + 1]);
        for (int j = 0; j < k && ready; j++)
            ready = !wf_producer(p->g, in[j]) || p->call_of[wf_value(p->g, in[j])->node] <= at;
        if (!ready)
            continue;
        for (int i = c; i > at + 1; i--) {
            order[i] = order[i - 1];
            p->follows[i] = p->follows[i - 1];
            p->call_of[order[i]] = i;
        }
        order[at + 1] = id;
        p->call_of[id] = at + 1;
        p->follows[at + 1] = true;
    }
}

int wf_plan_order(Plan *p, WfNodeId *order)
{
    int n = 0;
    find_late(p);
    order_calls(p, order, &n);
    for (int c = 0; c < n; c++)
        p->call_of[order[c]] = c;
    find_followers(p, order, n);
    return n;
}
