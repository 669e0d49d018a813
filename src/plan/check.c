/* What a run-time check of an index is about: where it stands, what the index may be, and which input of the model it comes
 * from, so that a message can name the sample. The index is followed up through what leaves single values as they are: views,
 * casts, and the choice that wraps negative ones. */
#include "plan/plan.h"

#include <string.h>

/* A nest that is being looked into, and the graph that it stands in. */
typedef struct Inside { WfGraph *g; const WfNode *nest; const struct Inside *outer; } Inside;

static const char *source(WfGraph *g, WfVal v, const Inside *in);

/* The value v is an input of g. */
static const char *source_of_input(WfGraph *g, WfVal v, const Inside *in)
{
    for (int i = 0; i < g->inputs.n; i++) {
        if (g->inputs.at[i].val != v)
            continue;
        if (in)
            return source(in->g, in->nest->args[0].vals[i], in->outer);
        return g->inputs.at[i].role == WF_IN_USER ? g->inputs.at[i].name : NULL;
    }
    return NULL;
}

static const char *source(WfGraph *g, WfVal v, const Inside *in)
{
    const WfNode *n = wf_producer(g, v);
    if (!n)
        return source_of_input(g, v, in);
    if (n->op->family == WF_LOOPNEST) {
        WfGraph *body = n->args[1].graph;
        return source(body, body->outputs.at[v - n->out].val, &(Inside){g, n, in});
    }
    const char *name = n->schema->name;
    if (n->op->family == WF_VIEW || !strcmp(name, "prim.cast") || !strcmp(name, "prim.check") || !strcmp(name, "prim.detach"))
        return source(g, wf_tensor(n, 0), in);
    if (strcmp(name, "prim.where"))
        return NULL;
    const char *first = source(g, wf_tensor(n, 1), in), *second = source(g, wf_tensor(n, 2), in);
    return !first ? second : !second || !strcmp(first, second) ? first : NULL;
}

WfExeCheck wf_plan_check(WfGraph *g, const WfNode *nest, const WfNode *check)
{
    WfGraph *body = nest->args[1].graph;
    bool gather = check->op->family == WF_GATHER;
    const Inside in = {g, nest, NULL};
    return (WfExeCheck){.where = wf_node_place(body, check),
                        .input = source(body, wf_tensor(check, gather ? 2 : 0), &in),
                        .lo = gather ? 0 : wf_int(check, 1),
                        .hi = gather ? wf_value(body, wf_tensor(check, 0))->shape[wf_int(check, 1)] : wf_int(check, 2)};
}
