/* The evaluation form. Flags of training are switched off by their names in the schemas (an op's row may say
 * more); the loss that the first output comes from says which of its operands holds the predictions. */
#include "simplify/simplify.h"

#include <string.h>

/* The nearest loss above v, along first operands. */
static const WfNode *loss_above(const WfGraph *g, WfVal v, int depth)
{
    const WfNode *n = v ? wf_producer(g, v) : NULL;
    WfVal in[WF_MAX_RESULTS];
    if (!n || depth > 64)
        return NULL;
    if (n->op->predictions)
        return n;
    int k = wf_operands(n, in, WF_MAX_RESULTS);
    for (int i = 0; i < k; i++) {
        const WfNode *found = in[i] ? loss_above(g, in[i], depth + 1) : NULL;
        if (found)
            return found;
    }
    return NULL;
}

static WfVal named_output(const WfGraph *g, const char *name)
{
    for (int i = 0; i < g->outputs.n; i++)
        if (g->outputs.at[i].role == WF_OUT_USER && !strcmp(g->outputs.at[i].name, name))
            return g->outputs.at[i].val;
    return 0;
}

/* PyTorch's schemas have one name for it: the flag is `train` or `training`, attention's probability
 * `dropout_p`. A norm without running statistics has only those of the batch, in either form. */
static void to_evaluation(WfGraph *to, const WfNode *n, WfArg *args)
{
    const WfSchema *c = n->schema;
    const WfArg *mean = wf_arg(n, "running_mean");
    bool batch_only = wf_arg(n, "momentum") && (!mean || mean->kind != WF_ARG_TENSOR);
    if (n->op->evaluation) {
        n->op->evaluation(to, args);
        return;
    }
    for (int p = 0; p < c->n_params; p++) {
        const char *name = c->params[p].name;
        if (args[p].kind == WF_ARG_BOOL && (!strcmp(name, "train") || !strcmp(name, "training")) &&
            !batch_only)
            args[p].b = false;
        else if (args[p].kind == WF_ARG_FLOAT && !strcmp(name, "dropout_p"))
            args[p].f = 0;
    }
}

/* Does the node do something else in training than in evaluation, and which of the two does it do? */
typedef enum { EITHER, TRAINS, EVALUATES } Form;
static Form form_of(const WfNode *n)
{
    const WfSchema *c = n->schema;
    const WfArg *flag = wf_arg(n, "train"), *p = wf_arg(n, "p"), *mean = wf_arg(n, "running_mean");
    if (!strcmp(c->name, "aten._native_batch_norm_legit_no_training") || !strcmp(c->name, "aten._batch_norm_no_update"))
        return EVALUATES;
    if (!strncmp(c->name, "aten._batch_norm_with_update", strlen("aten._batch_norm_with_update")))
        return TRAINS;
    flag = flag ? flag : wf_arg(n, "training");
    p = p ? p : wf_arg(n, "dropout");
    if (!flag || flag->kind != WF_ARG_BOOL || (p && p->kind == WF_ARG_FLOAT && p->f == 0))
        return EITHER;
    if (wf_arg(n, "momentum") && (!mean || mean->kind != WF_ARG_TENSOR))
        return EITHER;
    return flag->b ? TRAINS : EVALUATES;
}

const WfNode *wf_simplify_evaluates(const WfGraph *g)
{
    const WfNode *first = NULL;
    for (int i = 1; i < g->nodes.n; i++) {
        const WfNode *n = wf_node(g, (WfNodeId)i);
        Form f = form_of(n);
        if (f == TRAINS)
            return NULL;
        first = f == EVALUATES && !first ? n : first;
    }
    return first;
}

static WfGraph *copy(const WfGraph *g);

static void copy_node(const WfGraph *g, const WfNode *n, WfGraph *to, WfVal *map)
{
    WfArg *args = WF_NEWN(g->arena, WfArg, (size_t)n->schema->n_params + 1);
    memcpy(args, n->args, (size_t)n->schema->n_params * sizeof *args);
    for (int p = 0; p < n->schema->n_params; p++) {
        if (args[p].kind == WF_ARG_TENSOR)
            args[p].val = map[args[p].val];
        if (args[p].kind == WF_ARG_GRAPH)
            args[p].graph = copy(args[p].graph);
        if (args[p].kind != WF_ARG_TENSORS)
            continue;
        args[p].vals = WF_NEWN(g->arena, WfVal, (size_t)args[p].n + 1);
        for (int k = 0; k < args[p].n; k++)
            args[p].vals[k] = map[n->args[p].vals[k]];
    }
    to_evaluation(to, n, args);
    to->source = n->source;
    to->no_grad = n->no_grad;
    WfNode *c = wf_append_raw(to, n->op, args, n->n_out);
    for (int r = 0; r < n->n_out; r++) {
        WfValue *from = wf_value(g, n->out + (WfVal)r), *v = wf_value(to, c->out + (WfVal)r);
        WfNodeId node = v->node;
        *v = *from;
        v->node = node;
        v->name = NULL;
        if (from->name)
            wf_name_value(to, c->out + (WfVal)r, from->name);
        map[n->out + (WfVal)r] = c->out + (WfVal)r;
    }
}

/* In-place ops have no users: every node is copied as it stands, sub-graphs too. */
static WfGraph *copy(const WfGraph *g)
{
    WfGraph *to = wf_graph_like(g, WF_ATEN);
    WfVal *map = WF_NEWN(g->arena, WfVal, (size_t)g->values.n);
    wf_copy_inputs(g, to, map);
    for (int i = 1; i < g->nodes.n; i++)
        copy_node(g, wf_node(g, (WfNodeId)i), to, map);
    wf_copy_outputs(g, to, map);
    return to;
}

WfGraph *wf_simplify_evaluation(WfPassEnv *env, WfGraph *g)
{
    const WfOptions *o = env->options;
    WfGraph *to = copy(g);
    WfVal predictions = 0;
    if (o && o->predictions >= 0) {
        predictions = named_output(to, wf_arena_printf(g->arena, "%lld", (long long)o->predictions));
        if (!predictions)
            wf_fail(g->ctx, WF_E_PREDICTIONS, "--predictions %lld: the model has no such output",
                    (long long)o->predictions);
    } else if (!o || o->loss == WF_LOSS_NONE) {
        const WfNode *loss = loss_above(to, named_output(to, "0"), 0);
        predictions = loss ? wf_tensor(loss, loss->op->predictions - 1) : named_output(to, "0");
    }
    if (predictions)
        wf_add_output(to, WF_OUT_USER, "predictions", predictions, 0);
    return to;
}
