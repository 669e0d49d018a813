/* Signature: SHA-256 of the canonical form, in which values are numbered in topological order and nothing has
 * a name. For agreement between ranks, cache keys and diffs. */
#include "ir/ir_private.h"

#include <string.h>

static void add_int(WfSha *h, int64_t v)
{
    wf_sha_add(h, &v, sizeof v);
}

static void add_dim(const WfGraph *g, WfSha *h, WfDim d)
{
    WfStr s = {.arena = g->arena};
    wf_eprint(g->exprs, d, &s);
    wf_sha_add(h, s.at, s.n + 1);
}

static void add_value(const WfGraph *g, WfSha *h, WfVal v)
{
    const WfValue *x = wf_value(g, v);
    add_int(h, x->dtype);
    add_int(h, x->rank);
    for (int i = 0; i < x->rank; i++)
        add_dim(g, h, x->shape[i]);
}

/* Number of every value: inputs first, then results in order of their nodes. Ids will not do, since a pass
 * may add inputs after nodes. */
static int64_t *numbers(const WfGraph *g)
{
    int64_t *number = WF_NEWN(g->arena, int64_t, (size_t)g->values.n), n = 0;
    for (int i = 0; i < g->inputs.n; i++)
        number[g->inputs.at[i].val] = ++n;
    for (int i = 1; i < g->nodes.n; i++)
        for (int r = 0; r < wf_node(g, (WfNodeId)i)->n_out; r++)
            number[wf_node(g, (WfNodeId)i)->out + (WfVal)r] = ++n;
    return number;
}

static void add_graph(const WfGraph *g, WfSha *h)
{
    const int64_t *number = numbers(g);
    add_int(h, g->inputs.n);
    for (int i = 0; i < g->inputs.n; i++) {
        add_int(h, g->inputs.at[i].role);
        add_int(h, g->inputs.at[i].trainable);
        add_value(g, h, g->inputs.at[i].val);
    }
    for (int i = 1; i < g->nodes.n; i++) {
        const WfNode *n = wf_node(g, (WfNodeId)i);
        wf_sha_add(h, n->schema->name, strlen(n->schema->name) + 1);
        add_int(h, n->no_grad);
        for (int p = 0; p < n->schema->n_params; p++) {
            const WfArg *a = &n->args[p];
            add_int(h, a->kind);
            add_int(h, a->n);
            switch (a->kind) {
            case WF_ARG_TENSOR:
                add_int(h, number[a->val]);
                break;
            case WF_ARG_TENSORS:
                for (int k = 0; k < a->n; k++)
                    add_int(h, number[a->vals[k]]);
                break;
            case WF_ARG_INT:
                add_dim(g, h, a->i);
                break;
            case WF_ARG_INTS:
                for (int k = 0; k < a->n; k++)
                    add_dim(g, h, a->ints[k]);
                break;
            case WF_ARG_FLOAT:
                wf_sha_add(h, &a->f, sizeof a->f);
                break;
            case WF_ARG_FLOATS:
                wf_sha_add(h, a->floats, (size_t)a->n * sizeof *a->floats);
                break;
            case WF_ARG_BOOL:
                add_int(h, a->b);
                break;
            case WF_ARG_BOOLS:
                wf_sha_add(h, a->bools, (size_t)a->n * sizeof *a->bools);
                break;
            case WF_ARG_STRING:
                wf_sha_add(h, a->s, strlen(a->s) + 1);
                break;
            case WF_ARG_DTYPE:
                add_int(h, a->dtype);
                break;
            case WF_ARG_GRAPH:
                add_graph(a->graph, h);
                break;
            case WF_ARG_NONE:
                break;
            }
        }
        for (int r = 0; r < n->n_out; r++)
            add_value(g, h, n->out + (WfVal)r);
    }
    for (int i = 0; i < g->outputs.n; i++) {
        add_int(h, g->outputs.at[i].role);
        add_int(h, number[g->outputs.at[i].val]);
        add_int(h, g->outputs.at[i].input);
    }
}

void wf_signature(const WfGraph *g, char hex[65])
{
    WfSha *h = wf_sha_new(g->ctx, g->arena);
    add_graph(g, h);
    wf_sha_hex(h, hex);
}
