/* Warnings that belong to a compiled step, and what they are about. */
#include "grad/private.h"

#include "exe/exe.h"

#include <string.h>

const WfNode *wf_grad_mixed(WfGraph *g)
{
    for (int i = 1; i < g->nodes.n; i++) {
        const WfNode *n = wf_node(g, (WfNodeId)i);
        if (strcmp(n->schema->name, "nn.normalize"))
            continue;
        const WfArg *dims = wf_arg(n, "dims");
        for (int k = 0; k < dims->n; k++)
            if (dims->ints[k] == 0)
                return n;
    }
    return NULL;
}

void wf_grad_warn(WfPassEnv *env, WfGraph *g, const char *what, const WfNode *n)
{
    WfExe *x = env->out;
    char *text = wf_arena_printf(x ? x->arena : g->arena, "%s: %s", what, wf_node_place(g, n));
    if (x)
        wf_exe_warn(x, text);
    else
        wf_log(g->ctx, WF_LOG_WARN, "%s", text);
}
