/* The evaluation form. Each op's row says how its arguments change (dropout and batch norm switch off training); the
 * loss that the first output comes from says which of its operands holds the predictions. */
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

WfGraph *wf_simplify_evaluation(WfPassEnv *env, WfGraph *g)
{
    const WfOptions *o = env->options;
    WfGraph *to = wf_graph_like(g, WF_ATEN);
    WfVal *map = WF_NEWN(g->arena, WfVal, (size_t)g->values.n);
    wf_copy_inputs(g, to, map);
    for (int i = 1; i < g->nodes.n; i++) { /* in-place ops have no users: every node is copied as it stands */
        const WfNode *n = wf_node(g, (WfNodeId)i);
        WfArg *args = WF_NEWN(g->arena, WfArg, (size_t)n->schema->n_params + 1);
        memcpy(args, n->args, (size_t)n->schema->n_params * sizeof *args);
        for (int p = 0; p < n->schema->n_params; p++) {
            if (args[p].kind == WF_ARG_TENSOR)
                args[p].val = map[args[p].val];
            if (args[p].kind != WF_ARG_TENSORS)
                continue;
            args[p].vals = WF_NEWN(g->arena, WfVal, (size_t)args[p].n + 1);
            for (int k = 0; k < args[p].n; k++)
                args[p].vals[k] = map[n->args[p].vals[k]];
        }
        if (n->op->evaluation)
            n->op->evaluation(to, args);
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
    wf_copy_outputs(g, to, map);
    WfVal predictions = 0;
    if (o && o->predictions >= 0) {
        predictions = named_output(to, wf_arena_printf(g->arena, "%lld", (long long)o->predictions));
        if (!predictions)
            wf_fail(g->ctx, WEFT_ERR_USAGE, "--predictions %lld: the model has no such output", (long long)o->predictions);
    } else if (!o || o->loss == WF_LOSS_NONE) {
        const WfNode *loss = loss_above(to, named_output(to, "0"), 0);
        predictions = loss ? wf_tensor(loss, loss->op->predictions - 1) : named_output(to, "0");
    }
    if (predictions)
        wf_add_output(to, WF_OUT_USER, "predictions", predictions, 0);
    return to;
}
