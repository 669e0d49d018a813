/* Buckets. Collectives of one kind, group and dtype are merged, so that the latency of a message is paid for many
 * tensors; the plan lets their producers write side by side, so that merging copies nothing. Which neighbours (in the
 * order in which they are ready) share a bucket is chosen by dynamic programming over the time at which the last bucket
 * has arrived: with r_j the time at which tensor j is ready, alpha what a bucket takes beyond its bytes while others are
 * under way (their latencies hide each other's) and beta the link's seconds per byte,
 *
 *     finish(j) = min over i < j of  max(finish(i), r_j) + alpha + beta bytes(i+1 .. j)
 *
 * which is exact for one link that carries one bucket after the other. Of the cuts that reach the earliest arrival of the
 * last bucket, the one with the fewest buckets is taken: every message costs its ranks work. The sums themselves do not
 * depend on it. */
#include "weave/schedule.h"

#include <string.h>

typedef struct {
    WfNodeId id;
    int ready;               /* position behind which it can start, ... */
    int deadline;            /* ... and in front of which it must have */
    double at;               /* seconds after the step's start */
    double bytes, seconds;   /* what it adds to its bucket and to that one's travel */
    int bucket;
} Member;

typedef struct {
    const WfGraph *g;
    WfGraph *to;
    WfVal *map;
    const WfOptions *o;
    WfLink link;
    int *position;           /* by node, in the new order */
    double *clock;           /* by node: when it is done */
    int *head, *next, positions; /* the nodes of each position */
    Member *at;
    int n, n_buckets;
} Buckets;

static bool is_collective(const WfNode *n) { return n->op->start; }

/* May they travel in one piece? What gathers or scatters goes alone: its blocks would lie between those of others. */
static bool alike(const WfGraph *g, const WfNode *a, const WfNode *b)
{
    bool same = a == b || (a->op == b->op && wf_op_find(a->op->start)->travel->in_place &&
                           wf_value(g, a->out)->dtype == wf_value(g, b->out)->dtype);
    for (int i = 1; same && i < a->schema->n_params; i++)
        same = a->args[i].kind == WF_ARG_STRING ? !strcmp(a->args[i].s, b->args[i].s)
               : a->args[i].kind == WF_ARG_INT  ? a->args[i].i == b->args[i].i
                                                : a == b;
    return same;
}

/* The position behind which all that n reads is there. */
static int ready(const Buckets *b, const WfNode *n)
{
    WfVal in[WF_MAX_RESULTS];
    int k = wf_operands(n, in, WF_MAX_RESULTS), last = -1;
    for (int i = 0; i < k; i++) {
        WfNodeId p = in[i] ? wf_value(b->g, wf_behind_views(b->g, in[i]))->node : 0;
        int at = p ? b->position[p] : -1;
        last = at > last ? at : last;
    }
    return last;
}

/* Is a node wanted by collectives alone (the product that is a weight's gradient, the copy of a gradient into its bucket)?
 * It then belongs right behind what it reads, wherever it stands in the text: the backward pass as it comes out of fusion
 * may compute all weights' gradients at its end. But what reads a collective itself stays where it is: when that arrives
 * depends on the cuts. */
static bool *find_feeders(const WfGraph *g)
{
    bool *feeds = WF_NEWN(g->arena, bool, (size_t)g->nodes.n + 1);
    WfVal in[WF_MAX_RESULTS];
    memset(feeds, 1, (size_t)g->nodes.n);
    for (int i = 0; i < g->outputs.n; i++)
        if (g->outputs.at[i].val)
            feeds[wf_value(g, wf_behind_views(g, g->outputs.at[i].val))->node] = false;
    for (int i = 1; i < g->nodes.n; i++) {
        const WfNode *n = wf_node(g, (WfNodeId)i);
        int k = is_collective(n) || n->op->family == WF_VIEW ? 0 : wf_operands(n, in, WF_MAX_RESULTS);
        for (int j = 0; j < k; j++)
            if (in[j])
                feeds[wf_value(g, wf_behind_views(g, in[j]))->node] = false;
        for (int j = 0; j < k; j++) {
            const WfNode *p = in[j] ? wf_producer(g, wf_behind_views(g, in[j])) : NULL;
            feeds[i] &= !p || p->op->family != WF_COLLECTIVE;
        }
        if (n->op->family != WF_LOOPNEST && n->op->family != WF_LIBRARY)
            feeds[i] = false;
    }
    return feeds;
}

/* The nodes of each position, in the order of the text. */
static void list_positions(Buckets *b)
{
    int n = b->g->nodes.n;
    b->positions = 2 * n + 4;
    b->head = WF_NEWN(b->g->arena, int, (size_t)b->positions);
    b->next = WF_NEWN(b->g->arena, int, (size_t)n + 1);
    for (int i = n - 1; i > 0; i--)
        if (!is_collective(wf_node(b->g, (WfNodeId)i))) {
            b->next[i] = b->head[b->position[i]];
            b->head[b->position[i]] = i;
        }
}

/* Does the nest at the next whole position read the product at `at`? The two then run tile by tile. */
static bool followed(const Buckets *b, const WfNodeId *standing, int at)
{
    WfVal in[WF_MAX_RESULTS];
    const WfNode *p = at > 0 && standing[at / 2] ? wf_node(b->g, standing[at / 2]) : NULL;
    const WfNode *next = p && standing[at / 2 + 1] ? wf_node(b->g, standing[at / 2 + 1]) : NULL;
    bool pair = p && next && p->op->family == WF_LIBRARY && next->op->family == WF_LOOPNEST;
    int k = pair ? wf_operands(next, in, WF_MAX_RESULTS) : 0;
    for (int i = 0; i < k; i++)
        if (in[i] && wf_value(b->g, wf_behind_views(b->g, in[i]))->node == standing[at / 2])
            return true;
    return false;
}

/* A view of what is no collective's result stands where that stands. */
static bool is_free_view(const Buckets *b, const WfNode *n)
{
    WfVal in[WF_MAX_RESULTS];
    int k = n->op->family == WF_VIEW ? wf_operands(n, in, WF_MAX_RESULTS) : 0;
    for (int i = 0; i < k; i++) {
        const WfNode *p = in[i] ? wf_producer(b->g, wf_behind_views(b->g, in[i])) : NULL;
        if (p && p->op->family == WF_COLLECTIVE)
            return false;
    }
    return k > 0;
}

/* Positions of all nodes but collectives: as they stand, except that feeders move up. Two numbers a node leave room for
 * feeders behind each. */
static void place(Buckets *b, const bool *feeds)
{
    int n = b->g->nodes.n, at = 1;
    WfNodeId *standing = WF_NEWN(b->g->arena, WfNodeId, (size_t)n + 3); /* by half a position */
    for (int i = 1; i < n; i++)
        if (!is_collective(wf_node(b->g, (WfNodeId)i)) && !feeds[i] && !is_free_view(b, wf_node(b->g, (WfNodeId)i)))
            standing[at++] = (WfNodeId)i;
    at = 1;
    for (int i = 1; i < n; i++) {
        const WfNode *nd = wf_node(b->g, (WfNodeId)i);
        b->position[i] = -1;
        if (is_collective(nd))
            continue;
        if (is_free_view(b, nd)) {
            int p = ready(b, nd);
            b->position[i] = p < 0 ? 0 : p;
            continue;
        }
        b->position[i] = feeds[i] ? ready(b, nd) : 2 * at++;
        if (feeds[i] && b->position[i] % 2 == 0 && followed(b, standing, b->position[i]))
            b->position[i] += 2;
        if (feeds[i])
            b->position[i] += b->position[i] < 0 || b->position[i] % 2 == 0;
    }
    list_positions(b);
    double t = 0;
    const int64_t *usual = wf_weave_usual((WfGraph *)b->g);
    for (int p = 0; p < b->positions; p++)
        for (int i = b->head[p]; i; i = b->next[i]) {
            t += wf_weave_seconds((WfGraph *)b->g, &b->o->machine, wf_node(b->g, (WfNodeId)i), usual);
            b->clock[i] = t;
        }
}

/* The position of the first node that reads the result of a collective. */
static int first_reader(const Buckets *b, WfVal v)
{
    WfVal in[WF_MAX_RESULTS];
    int first = 2 * b->g->nodes.n + 2;
    for (int i = 1; i < b->g->nodes.n; i++) {
        const WfNode *n = wf_node(b->g, (WfNodeId)i);
        int k = b->position[i] >= 0 && b->position[i] < first ? wf_operands(n, in, WF_MAX_RESULTS) : 0;
        for (int j = 0; j < k; j++)
            if (in[j] == v)
                first = b->position[i];
    }
    return first;
}

static void gather(Buckets *b)
{
    for (int i = 1; i < b->g->nodes.n; i++) {
        const WfNode *n = wf_node(b->g, (WfNodeId)i);
        int64_t size;
        if (!is_collective(n))
            continue;
        Member *m = &b->at[b->n++];
        m->id = (WfNodeId)i;
        m->ready = ready(b, n);
        m->deadline = first_reader(b, n->out);
        WfNodeId p = wf_value(b->g, wf_behind_views(b->g, wf_tensor(n, 0)))->node;
        m->at = p ? b->clock[p] : 0;
        m->bytes = (double)wf_dtype_size(wf_value(b->g, n->out)->dtype);
        m->bytes *= wf_elit(b->g->exprs, wf_numel((WfGraph *)b->g, n->out), &size) ? (double)size : 1;
        m->seconds = wf_weave_travel((WfGraph *)b->g, &b->link, n) - b->link.latency;
    }
    for (int i = 1; i < b->n; i++) /* by readiness; equal ones as they stand */
        for (int k = i; k > 0 && b->at[k].ready < b->at[k - 1].ready; k--) {
            Member t = b->at[k];
            b->at[k] = b->at[k - 1];
            b->at[k - 1] = t;
        }
}

/* May the i-th of a list, ready before all that follow it, wait for the j-th? */
static bool can_wait(const Buckets *b, const int *list, int i, int j)
{
    return b->at[list[j]].ready < b->at[list[i]].deadline;
}

/* cut[j]: where the bucket that ends with the j-th of `list` begins. */
static void best_cuts(const Buckets *b, const int *list, int n, int *cut)
{
    double *finish = WF_NEWN(b->g->arena, double, (size_t)n + 1);
    WfLink k = b->link;
    for (int j = 0; j < n; j++) {
        double travel = k.next, best = -1;
        for (int i = j; i >= 0 && can_wait(b, list, i, j); i--) {
            double before = i ? finish[i - 1] : 0, r = b->at[list[j]].at;
            travel += b->at[list[i]].seconds;
            double t = (before > r ? before : r) + travel;
            if (best < 0 || t < best)
                best = t, cut[j] = i;
        }
        finish[j] = best;
    }
    /* From the end: the largest bucket that still arrives in time, when what lies before it arrives as early as it can. */
    double limit = n ? finish[n - 1] * (1 + 1e-6) : 0;
    for (int j = n - 1; j >= 0; j = cut[j] - 1) {
        double travel = k.next, cost = 0;
        for (int i = j; i >= 0 && can_wait(b, list, i, j); i--) {
            double before = i ? finish[i - 1] : 0, r = b->at[list[j]].at;
            travel += b->at[list[i]].seconds;
            if ((before > r ? before : r) + travel <= limit)
                cut[j] = i, cost = travel;
        }
        limit -= cost;
    }
}

static void fixed_cuts(const Buckets *b, const int *list, int n, int *cut)
{
    double bytes = 0, most = b->o->bucket_mb * 1048576;
    for (int j = 0, from = 0; j < n; j++) {
        bool wait = true;
        for (int i = from; i < j; i++)
            wait &= can_wait(b, list, i, j);
        if (j > from && (!wait || bytes + b->at[list[j]].bytes > most))
            from = j, bytes = 0;
        bytes += b->at[list[j]].bytes;
        cut[j] = from;
    }
}

static void assign(Buckets *b)
{
    int *list = WF_NEWN(b->g->arena, int, (size_t)b->n + 1), *cut = WF_NEWN(b->g->arena, int, (size_t)b->n + 1);
    for (int i = 0; i < b->n; i++)
        b->at[i].bucket = -1;
    for (int i = 0; i < b->n; i++) {
        int n = 0;
        if (b->at[i].bucket >= 0)
            continue;
        for (int k = i; k < b->n && n < WF_MAX_RESULTS; k++)
            if (b->at[k].bucket < 0 && alike(b->g, wf_node(b->g, b->at[i].id), wf_node(b->g, b->at[k].id)))
                list[n++] = k;
        if (b->o->bucket_mb >= 0)
            fixed_cuts(b, list, n, cut);
        else
            best_cuts(b, list, n, cut);
        for (int j = n - 1; j >= 0; j = cut[j] - 1) {
            for (int k = cut[j]; k <= j; k++)
                b->at[list[k]].bucket = b->n_buckets;
            b->n_buckets++;
        }
    }
}

/* A start or wait over n tensors, with the results of the collectives `members`. */
static WfVal append_list(Buckets *b, const WfOp *op, WfVal *vals, const WfNode *const *members, int n)
{
    WfArg args[8] = {{.kind = WF_ARG_TENSORS, .n = n, .vals = vals}};
    for (int i = 1; i < wf_schema_of(op)->n_params; i++)
        args[i] = members[0]->args[i];
    WfNode *fresh = wf_append_raw(b->to, op, args, n);
    for (int i = 0; i < n; i++) {
        const WfValue *x = wf_value(b->g, members[i]->out);
        WfVal v = fresh->out + (WfVal)i;
        wf_set_result(b->to, fresh, i, x->dtype, x->rank, x->shape);
        wf_value(b->to, v)->ordered = x->ordered;
        memcpy(wf_value(b->to, v)->order, x->order, sizeof x->order);
        if (x->name)
            wf_name_value(b->to, v, op->travel ? wf_arena_printf(b->to->arena, "%s.sent", x->name) : x->name);
    }
    return fresh->out;
}

/* Start and wait of one bucket. */
static void write_pair(Buckets *b, int bucket)
{
    WfVal *vals = WF_NEWN(b->to->arena, WfVal, (size_t)b->n + 1), *flying = WF_NEWN(b->to->arena, WfVal, (size_t)b->n + 1);
    const WfNode **members = WF_NEWN(b->to->arena, const WfNode *, (size_t)b->n + 1);
    int n = 0;
    for (int i = 0; i < b->n; i++)
        if (b->at[i].bucket == bucket) {
            members[n] = wf_node(b->g, b->at[i].id);
            vals[n] = b->map[wf_tensor(members[n], 0)];
            n++;
        }
    b->to->source = members[0]->source;
    WfVal s = append_list(b, wf_op_find(members[0]->op->start), vals, members, n);
    for (int i = 0; i < n; i++)
        flying[i] = s + (WfVal)i;
    WfVal w = append_list(b, wf_op_find("dist.wait"), flying, members, n);
    for (int i = 0; i < n; i++)
        b->map[members[i]->out] = w + (WfVal)i;
}

WfGraph *wf_weave_bucket(WfPassEnv *env, WfGraph *g)
{
    size_t n = (size_t)g->nodes.n + 1;
    Buckets b = {.g = g, .o = env->options, .to = wf_graph_like(g, WF_LOOP)};
    b.to->expand = false;
    b.link = b.o->machine.link[b.o->link];
    b.map = WF_NEWN(g->arena, WfVal, (size_t)g->values.n);
    b.position = WF_NEWN(g->arena, int, n);
    b.clock = WF_NEWN(g->arena, double, n);
    b.at = WF_NEWN(g->arena, Member, n);
    wf_weave_groups(env, g);
    place(&b, find_feeders(g));
    gather(&b);
    if (!b.n)
        return g;
    assign(&b);
    int *last = WF_NEWN(g->arena, int, (size_t)b.n_buckets + 1);
    for (int i = 0; i < b.n_buckets; i++)
        last[i] = -1;
    for (int i = 0; i < b.n; i++)
        last[b.at[i].bucket] = b.at[i].ready > last[b.at[i].bucket] ? b.at[i].ready : last[b.at[i].bucket];
    wf_copy_inputs(g, b.to, b.map);
    /* One position after the other: nodes that stand there, as in the text, then the buckets that are complete. */
    for (int at = -1; at < b.positions; at++) {
        for (int i = at < 0 ? 0 : b.head[at]; i; i = b.next[i])
            wf_weave_copy_raw(g, wf_node(g, (WfNodeId)i), b.to, b.map);
        for (int k = 0; k < b.n_buckets; k++)
            if (last[k] == at)
                write_pair(&b, k);
    }
    wf_copy_outputs(g, b.to, b.map);
    wf_weave_check(b.to);
    return b.to;
}
