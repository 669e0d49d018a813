/* What must hold of a graph at its level. A broken rule is a bug of a pass: the message names the pass and the node. */
#include "ir/ir_private.h"

#include <string.h>

static void broken(const WfGraph *g, const char *after, const WfNode *n, const char *what)
{
    wf_fail_at(g->ctx, WF_E_BUG, n ? wf_node_place((WfGraph *)g, n) : NULL,
               "This is a bug of Weft; please report it with the output of --dump-dir.", "after %s: %s", after, what);
}

void wf_verify(const WfGraph *g, const char *after)
{
    WfVal in[WF_MAX_RESULTS];
    for (int i = 1; i < g->nodes.n; i++) {
        const WfNode *n = wf_node(g, (WfNodeId)i);
        int k = wf_operands(n, in, WF_MAX_RESULTS);
        for (int j = 0; j < k; j++) {
            if (in[j] >= (WfVal)g->values.n)
                broken(g, after, n, "an operand does not exist");
            if (in[j] && wf_value(g, in[j])->node >= (WfNodeId)i)
                broken(g, after, n, "an operand is defined later");
        }
        if (g->level != WF_LOOP && g->level != WF_PLANNED && n->op->family != WF_LOOPNEST && !wf_admits(g->level, n->op))
            broken(g, after, n, "this op may not stand at this level");
        if (g->level > WF_ATEN)
            for (int r = 0; r < n->n_out; r++)
                if (!wf_value(g, n->out + (WfVal)r)->dtype && n->schema->ret[0].type == WF_T_TENSOR)
                    broken(g, after, n, "a result has no dtype");
        for (int p = 0; p < n->schema->n_params; p++)
            if (n->args[p].kind == WF_ARG_GRAPH)
                wf_verify(n->args[p].graph, after);
    }
    for (int i = 0; i < g->outputs.n; i++)
        if (g->outputs.at[i].val >= (WfVal)g->values.n)
            broken(g, after, NULL, "an output does not exist");
}
