/* Rewriting a loop-level graph in another order: there, the order of nodes is the order of time. */
#include "weave/schedule.h"

#include <string.h>

void wf_weave_copy_raw(const WfGraph *from, const WfNode *n, WfGraph *to, WfVal *map)
{
    WfArg args[64];
    for (int i = 0; i < n->schema->n_params; i++) {
        args[i] = n->args[i];
        if (args[i].kind == WF_ARG_TENSOR)
            args[i].val = map[args[i].val];
        if (args[i].kind == WF_ARG_TENSORS) {
            args[i].vals = WF_NEWN(to->arena, WfVal, (size_t)args[i].n + 1);
            for (int j = 0; j < args[i].n; j++)
                args[i].vals[j] = map[n->args[i].vals[j]];
        }
    }
    to->source = n->source;
    WfNode *fresh = wf_append_raw(to, n->op, args, n->n_out);
    for (int i = 0; i < n->n_out; i++) {
        const WfValue *x = wf_value(from, n->out + (WfVal)i);
        WfVal v = fresh->out + (WfVal)i;
        wf_set_result(to, fresh, i, x->dtype, x->rank, x->shape);
        wf_value(to, v)->ordered = x->ordered;
        memcpy(wf_value(to, v)->order, x->order, sizeof x->order);
        if (x->name)
            wf_name_value(to, v, x->name);
        map[n->out + (WfVal)i] = v;
    }
}

