/* Which values are stored: library operands and results, reductions, outputs, and pointwise values that
 * several kernels would have to compute again at a real cost: counted from stored values on, in one walk. */
#include "fuse/group.h"

#include <string.h>

#define REPEAT_COST  32  /* operations that are cheaper to repeat than to store and load */
#define REPEAT_READS 2   /* loads beyond the one of a stored value, over all further users */
#define MAX_COST     400 /* above this a value is stored even for one user: code size */
#define JOIN_PARTS   8   /* a join of more parts is stored: every reader would ask for each of them, ... */
#define JOIN_READERS 2   /* ... and one of three or more, when more than so many would */
#define MAX_PADS     10  /* bounds to be checked around one load: emit's limit, less a reader's own */

static bool through(const WfNode *n)
{
    return n && n->op->family == WF_VIEW;
}

int wf_fuse_call_inputs(WfGraph *g, const WfNode *n, WfVal *in)
{
    WfLibraryCall c = {0};
    int k = 0;
    if (n->op->family == WF_COLLECTIVE)
        return wf_operands(n, in, WF_MAX_RESULTS);
    n->op->describe(g, n, &c);
    for (int i = 0; i < c.n; i++)
        if (c.at[i].v && c.at[i].v != WF_STATUS &&
            (c.at[i].v < n->out || c.at[i].v >= n->out + (WfVal)n->n_out))
            in[k++] = c.at[i].v;
    return k;
}

/* Marks the value behind single-operand views as stored: the library reads it in place. */
static void store_operand(Fuse *f, WfVal v)
{
    f->stored[wf_behind_views(f->g, v)] = true;
}

static int own_cost(const WfNode *n)
{
    const char *c = n->op->c_float ? n->op->c_float : n->op->c_int ? n->op->c_int : "";
    if (n->op->family == WF_GATHER)
        return 3;
    if (n->op->family == WF_SOURCE)
        return strcmp(n->schema->name, "prim.rand") ? 0 : 40; /* ten rounds of two wide products */
    if (n->op->family != WF_POINTWISE)
        return 0;
    if (!strncmp(c, "exp_", 4) || !strncmp(c, "log", 3) || !strncmp(c, "tanh", 4) ||
        !strncmp(c, "sigmoid", 7))
        return 6;
    if (!strncmp(c, "erf", 3) || !strncmp(c, "sin", 3) || !strncmp(c, "cos", 3) || !strncmp(c, "pow", 3) ||
        strstr(c, "div_") || strstr(c, "rem_") || strstr(c, "atan") || strstr(c, "asin") || strstr(c, "acos"))
        return 10;
    return strcmp(c, "%0") ? 1 : 0;
}

bool wf_fuse_rounds(const WfNode *n)
{
    return !strcmp(n->schema->name, "prim.rounded");
}

bool wf_fuse_recomputed(const Fuse *f, WfVal v, int depth)
{
    const WfNode *n = node_of(f, v);
    WfVal in[WF_MAX_RESULTS];
    if (!n || depth > 24 || (n->op->family != WF_POINTWISE && !through(n)))
        return false;
    if (!strcmp(n->schema->name, "prim.recompute"))
        return true;
    int k = wf_operands(n, in, WF_MAX_RESULTS);
    for (int i = 0; i < k; i++)
        if (in[i] && !f->stored[in[i]] && wf_fuse_recomputed(f, in[i], depth + 1))
            return true;
    return false;
}

/* A view that makes many reads of one element: computing behind it again and again must be cheap. */
static int repeats(Fuse *f, const WfNode *n)
{
    int64_t from, to;
    if (!through(n) || wf_operand_count(n) != 1)
        return 1;
    if (!wf_elit(f->e, wf_numel(f->g, wf_tensor(n, 0)), &from) || !wf_elit(f->e, wf_numel(f->g, n->out), &to))
        return 4;
    return from && to > from ? (int)(to / from > 64 ? 64 : to / from) : 1;
}

/* 1 when reading a costs about as much memory traffic as reading b: not for rows, biases and numbers. */
static int comparable(Fuse *f, WfVal a, WfVal b)
{
    int64_t x, y;
    if (!wf_elit(f->e, wf_numel(f->g, a), &x) || !wf_elit(f->e, wf_numel(f->g, b), &y))
        return wf_rank_of(f->g, a) >= wf_rank_of(f->g, b);
    return x >= y / 8;
}

/* Counts the bounds to be checked; an operand behind too many (a mask written slice by slice) is stored. */
static void count_pads(Fuse *f, const WfNode *n, const WfVal *in, int k)
{
    int own = 0, most = 0;
    if (through(n)) {
        WfIndex ix = {0};
        n->op->index(f->g, n, &ix);
        own = ix.n_guards;
    }
    for (int j = 0; j < k; j++) {
        if (f->pads[in[j]] && own + f->pads[in[j]] > MAX_PADS) {
            f->stored[in[j]] = true;
            f->pads[in[j]] = f->cost[in[j]] = 0;
        }
        most = f->pads[in[j]] > most ? f->pads[in[j]] : most;
    }
    f->pads[n->out] = own + most;
}

void wf_fuse_decide_stores(Fuse *f)
{
    WfGraph *g = f->g;
    WfVal in[WF_MAX_RESULTS];
    for (int i = 0; i < g->inputs.n; i++)
        f->stored[g->inputs.at[i].val] = true;
    for (int i = 0; i < g->outputs.n; i++)
        if (g->outputs.at[i].val)
            f->stored[g->outputs.at[i].val] = true;
    for (int i = 1; i < g->nodes.n; i++) {
        const WfNode *n = wf_node(g, (WfNodeId)i);
        if (!f->live[i])
            continue;
        if (n->op->family == WF_REDUCE || calls(n))
            for (int k = 0; k < n->n_out; k++)
                f->stored[n->out + (WfVal)k] = true;
        if (calls(n)) {
            int k = wf_fuse_call_inputs(g, n, in);
            for (int j = 0; j < k; j++)
                store_operand(f, in[j]);
        }
    }
    for (int i = 1; i < g->nodes.n; i++) {
        const WfNode *n = wf_node(g, (WfNodeId)i);
        if (!f->live[i] || n->op->family == WF_REDUCE || calls(n))
            continue;
        int k = wf_operands(n, in, WF_MAX_RESULTS), cost = own_cost(n), times = repeats(f, n);
        count_pads(f, n, in, k);
        WfLeaves *reads = &f->reads[n->out];
        for (int j = 0; j < k; j++) {
            const WfLeaves self = {1, {in[j]}}, *below = f->stored[in[j]] ? &self : &f->reads[in[j]];
            for (int q = 0; q < below->n; q++) /* what is small beside this result costs nothing */
                if (comparable(f, below->at[q], n->out))
                    wf_leaves_add(reads, below->at[q]);
            if (!f->stored[in[j]]) {
                if (times > 1 && f->cost[in[j]] > 0 && f->cost[in[j]] * times > REPEAT_COST &&
                    node_of(f, in[j])->op->family != WF_SOURCE) {
                    store_operand(f, in[j]);
                    if (f->stored[in[j]])
                        continue;
                }
                cost += f->cost[in[j]];
            }
        }
        f->cost[n->out] = cost > 100000 ? 100000 : cost;
        int more = f->uses[n->out] - 1;
        /* a reduction's result that is only wanted narrower is stored narrow */
        const WfNode *from = n->op->family == WF_POINTWISE && k == 1 ? node_of(f, in[0]) : NULL;
        if (from && from->op->family == WF_REDUCE && f->uses[in[0]] == 1 &&
            wf_dtype_size(wf_dtype_of(f->g, n->out)) < wf_dtype_size(wf_dtype_of(f->g, in[0])))
            f->stored[n->out] = true;
        bool computes = n->op->family == WF_POINTWISE || n->op->family == WF_GATHER;
        if (computes && (cost > MAX_COST || reads->n == WF_LEAVES ||
                         cost * (more > 2 ? 2 : more) > REPEAT_COST || (reads->n - 1) * more > REPEAT_READS))
            f->stored[n->out] = true;
        bool join = through(n) && k > 2;
        f->stored[n->out] |= wf_fuse_rounds(n) || (join && (k > JOIN_PARTS || f->uses[n->out] > JOIN_READERS));
        if (f->stored[n->out])
            f->cost[n->out] = f->pads[n->out] = 0;
    }
}
