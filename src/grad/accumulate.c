/* Gradient accumulation as nodes. With --accumulate K a step is K micro-batches, which differ in what follows their
 * backward pass: each adds its gradients, in order, to one buffer per parameter, and the last goes on from the sum as a
 * step without accumulation goes on from its gradient. So there is one reduction over the ranks, one norm and one update
 * a step, whatever K. The loss of a step, the mean over its micro-batches, is gathered in the same way.
 *
 * As in torch.optim with set_to_none, nothing is ever cleared: the first micro-batch of a step does not read what the
 * buffers hold. That saves a pass over them, and whatever an unfinished step has left there is harmless. grad/joint has
 * divided the gradients by K where they begin, as (loss / K).backward() does; where it gives shares and weights instead (outputs
 * loss_sum and loss_count), these are gathered, and grad/step divides.
 *
 * With --deterministic=elastic they are added in a balanced tree instead, which is the lower part of one tree over all
 * micro-batches of all ranks: comm adds the upper part. K is 2^L, and there is a buffer for each of L levels. Micro-batch i
 * ends as many pairs as i has ones at its end: level l holds the sum of 2^l micro-batches that waits for its partner.
 * A gradient is rounded as memory would round it before it is divided by K, which is exact, and added: it is the one that
 * a rank with a single micro-batch stores. */
#include "grad/private.h"

#include "ops/ops.h"

#include <string.h>

enum { MAX_LEVELS = 16 };

typedef struct {
    const WfGraph *from;
    WfGraph *to;
    WfVal first;             /* is this the step's first micro-batch? */
    int *input;              /* by output of `from`: the (first) input of `to` that gathers it; -1 none */
    WfVal *sum;              /* by output of `from` */
    bool weighted;           /* outputs loss_sum and loss_count are gathered, and nothing is divided by K */
    bool elastic;
    int levels;              /* elastic */
    WfVal store[MAX_LEVELS]; /* is this the micro-batch that leaves a sum at that level? */
    WfVal (*kept)[MAX_LEVELS]; /* by output of `from`: new values of the levels */
} Accumulate;

/* The input that gathers values like v. */
static int add_buffer(Accumulate *a, WfVal v, const char *name, const char *of)
{
    const WfValue *x = wf_value(a->from, v);
    wf_add_input(a->to, WF_IN_ACCUM, name, x->dtype, x->rank, x->shape);
    a->to->inputs.at[a->to->inputs.n - 1].of = of ? wf_arena_strdup(a->to->arena, of) : NULL;
    return a->to->inputs.n - 1;
}

/* What output o gathers into, "" for what is not gathered. */
static const char *gathered(const Accumulate *a, const WfOutput *o)
{
    if (o->role == WF_OUT_GRAD)
        return wf_arena_printf(a->from->arena, "%s.grad", o->name);
    if (a->weighted)
        return o->role == WF_OUT_METRIC && !strncmp(o->name, "loss_", 5) ? o->name : "";
    return o->role == WF_OUT_LOSS ? "mean_loss" : "";
}

static void add_buffers(Accumulate *a)
{
    const WfGraph *g = a->from;
    if (!a->elastic)
        a->first = wf_add_input(a->to, WF_IN_SCALAR, "accumulate.first", WF_BOOL, 0, NULL);
    for (int l = 0; l < a->levels; l++)
        a->store[l] = wf_add_input(a->to, WF_IN_SCALAR, wf_arena_printf(a->to->arena, "accumulate.level%d", l), WF_BOOL, 0, NULL);
    for (int i = 0; i < g->outputs.n; i++) {
        const WfOutput *o = &g->outputs.at[i];
        const char *name = gathered(a, o), *of = o->role == WF_OUT_GRAD ? o->name : NULL;
        a->input[i] = -1;
        if (!*name)
            continue;
        for (int l = 0; l < a->levels; l++) {
            int at = add_buffer(a, o->val, wf_arena_printf(g->arena, "%s.level%d", name, l), of);
            a->input[i] = l == 0 ? at : a->input[i];
        }
        if (!a->elastic)
            a->input[i] = add_buffer(a, o->val, name, of);
    }
}

/* Adds d to the sums that wait for it, level by level; what no level is to keep is the sum of the whole step. */
static WfVal climb(Accumulate *a, int output, WfVal d)
{
    WfGraph *to = a->to;
    for (int l = 0; l < a->levels; l++) {
        WfVal old = to->inputs.at[a->input[output] + l].val;
        a->kept[output][l] = wf_where(to, a->store[l], d, old);
        d = wf_add(to, old, d);
    }
    return d;
}

/* Gathers those of g's outputs that are results [v, v + n): right behind their node, so that they need not live long. */
static void gather(Accumulate *a, const WfVal *map, WfVal v, int n, double share)
{
    WfGraph *to = a->to;
    for (int i = 0; i < a->from->outputs.n; i++) {
        const WfOutput *o = &a->from->outputs.at[i];
        if (!*gathered(a, o) || o->val < v || o->val >= v + (WfVal)n)
            continue;
        WfVal d = map[o->val];
        if (a->elastic) {
            d = wf_unary(to, "prim.rounded", d);
            a->sum[i] = climb(a, i, a->weighted ? d : wf_muls(to, d, share));
            continue;
        }
        if (o->role == WF_OUT_LOSS)
            d = wf_mul(to, d, wf_like(to, d, share));
        WfVal old = to->inputs.at[a->input[i]].val;
        a->sum[i] = wf_where(to, a->first, d, wf_add(to, old, d));
    }
}

/* ---- what a split of the batch changes ---- */

/* The node of a loss that is a sum and no mean; NULL: none is. */
static const WfNode *summed_loss(const WfGraph *g)
{
    for (int i = 0; i < g->outputs.n; i++) {
        const WfOutput *o = &g->outputs.at[i];
        const WfNode *n = o->role == WF_OUT_LOSS ? wf_producer(g, o->val) : NULL;
        while (n && n->op->family == WF_VIEW)
            n = wf_producer(g, wf_tensor(n, 0));
        if (n && !strcmp(n->schema->name, "prim.sum"))
            return n;
    }
    return NULL;
}

/* Warns of what makes K micro-batches something else than one batch of K times the size. */
static void warn(WfPassEnv *env, WfGraph *g)
{
    const WfNode *sum = summed_loss(g), *mixed = wf_grad_mixed(g), *speaks = NULL;
    bool elastic = env->options->deterministic == WF_DETERMINISTIC_ELASTIC;
    for (int i = 1; i < g->nodes.n && !speaks; i++)
        speaks = wf_node(g, (WfNodeId)i)->op->start ? wf_node(g, (WfNodeId)i) : NULL;
    if (speaks && elastic)
        wf_fail_node(g, speaks, WF_E_ELASTIC,
                     "the model speaks between its ranks, so that bits depend on their number: --deterministic=elastic cannot "
                     "hold");
    if (mixed && elastic)
        wf_fail_node(g, mixed, WF_E_ELASTIC,
                     "its statistics are those of each rank's and each micro-batch's samples, so that bits depend on the number "
                     "of ranks: --deterministic=elastic cannot hold");
    if (mixed)
        wf_grad_warn(env, g, "--accumulate: statistics are those of each micro-batch, so the gradient is not the whole batch's",
                     mixed);
    if (sum)
        wf_grad_warn(env, g, "--accumulate: the loss is a sum, and its gradient the mean over the micro-batches", sum);
}

WfGraph *wf_grad_accumulate(WfPassEnv *env, WfGraph *g)
{
    WfGraph *to = wf_graph_like(g, WF_JOINT);
    WfVal *map = WF_NEWN(g->arena, WfVal, (size_t)g->values.n);
    Accumulate a = {.from = g, .to = to};
    bool *live = wf_live_nodes(g);
    double share = 1 / (double)env->options->accumulate;
    for (int i = 0; i < g->outputs.n; i++)
        a.weighted |= g->outputs.at[i].role == WF_OUT_METRIC && !strcmp(g->outputs.at[i].name, "loss_count");
    a.input = WF_NEWN(g->arena, int, (size_t)g->outputs.n + 1);
    a.sum = WF_NEWN(g->arena, WfVal, (size_t)g->outputs.n + 1);
    a.kept = wf_arena_alloc(g->arena, ((size_t)g->outputs.n + 1) * sizeof *a.kept);
    a.elastic = env->options->deterministic == WF_DETERMINISTIC_ELASTIC;
    for (int64_t k = env->options->accumulate; a.elastic && k > 1; k /= 2)
        a.levels++;
    wf_copy_inputs(g, to, map);
    add_buffers(&a);
    for (int i = 0; i < g->inputs.n; i++)
        gather(&a, map, g->inputs.at[i].val, 1, share);
    for (int i = 1; i < g->nodes.n; i++) {
        const WfNode *n = wf_node(g, (WfNodeId)i);
        if (!live[i])
            continue;
        wf_copy_node(g, n, to, map);
        gather(&a, map, n->out, n->n_out, share);
    }
    for (int i = 0; i < g->outputs.n; i++) {
        const WfOutput *o = &g->outputs.at[i];
        bool gradient = o->role == WF_OUT_GRAD, replaced = gradient || (o->role == WF_OUT_METRIC && *gathered(&a, o));
        if (!replaced || !env->micro)
            wf_add_output(to, o->role, o->name, replaced ? a.sum[i] : map[o->val], o->input);
        if (o->role == WF_OUT_LOSS && !a.weighted && !env->micro)
            wf_add_output(to, WF_OUT_METRIC, "mean_loss", a.sum[i], 0);
        for (int l = 0; l < a.levels && a.kept[i][l] && env->micro; l++)
            wf_add_output(to, WF_OUT_UPDATE, to->inputs.at[a.input[i] + l].name, a.kept[i][l], a.input[i] + l);
        if (a.elastic)
            continue;
        /* One rank goes on in the buffers themselves; several need the sum in memory that travels. */
        if (a.input[i] >= 0 && (env->micro || (gradient && env->options->nproc == 1)))
            wf_add_output(to, WF_OUT_UPDATE, to->inputs.at[a.input[i]].name, a.sum[i], a.input[i]);
    }
    if (!env->micro)
        warn(env, g);
    return to;
}
