/* loop.nest: the op of level loop. Its inputs and results are stored values, its body a graph of level prim over them;
 * `loops` is the shape that is walked, `reduced` the loops that are reduced. */
#include "ops/ops_private.h"

static void nest_infer(WfGraph *g, const WfNode *n)
{
    const WfGraph *body = n->args[1].graph;
    for (int i = 0; i < body->outputs.n && i < n->n_out; i++) {
        const WfValue *x = wf_value(body, body->outputs.at[i].val);
        wf_set_result(g, n, i, x->dtype, x->rank, x->shape);
    }
}

static const WfOp ops[] = {
    {.schema = "loop.nest(Tensor[] inputs, Graph body, int[] loops, int[] reduced) -> Tensor[]",
     .family = WF_LOOPNEST, .infer = nest_infer},
    {0}};

void wf_ops_loop(void) { wf_register(ops); }
