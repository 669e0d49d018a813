/* Operators that hold sub-graphs. Their arguments have no names in an export; the importer fills these
 * parameters by position and collects the operands in the last one. functionalize inlines the regions; what
 * it cannot inline is an error there. Also `graft`, which gives a tensor new data but keeps its place in the
 * gradient. */
#include "ops/ops_private.h"

static int graft_decompose(WfGraph *g, const WfNode *n, WfVal *out)
{
    (void)g;
    out[0] = wf_tensor(n, 1);
    return 1;
}

static void graft_infer(WfGraph *g, const WfNode *n)
{
    const WfValue *x = wf_value(g, wf_tensor(n, 0));
    if (!wf_same_shape(g, wf_tensor(n, 0), wf_tensor(n, 1)) || wf_dtype_of(g, wf_tensor(n, 1)) != x->dtype)
        wf_fail_node(g, n, WF_E_BUG, "operands do not fit");
    wf_set_result(g, n, 0, x->dtype, x->rank, x->shape);
}

static void graft_vjp(WfGraph *g, const WfNode *n, const WfVal *dy, WfVal *dx)
{
    (void)g, (void)n;
    dx[0] = dy[0];
}

static const WfOp ops[] = {
    {.schema =
         "higher_order.wrap_with_set_grad_enabled(bool enabled, Graph body, Tensor[] operands) -> Tensor[]",
     .family = WF_HOP},
    {.schema = "higher_order.wrap_with_autocast(str device_type, ScalarType? dtype, bool enabled, bool? "
               "cache_enabled, "
               "Graph body, Tensor[] operands) -> Tensor[]",
     .family = WF_HOP},
    {.schema =
         "higher_order.cond(Tensor pred, Graph true_body, Graph false_body, Tensor[] operands) -> Tensor[]",
     .family = WF_HOP},
    {.schema =
         "higher_order.while_loop(Graph cond, Graph body, Tensor[] carried, Tensor[] extra) -> Tensor[]",
     .family = WF_HOP},
    {.schema = "higher_order.scan(Graph body, Tensor[] init, Tensor[] xs, Tensor[] extra) -> Tensor[]",
     .family = WF_HOP},
    {.schema = "higher_order.map_impl(Graph body, Tensor[] xs, Tensor[] extra) -> Tensor[]",
     .family = WF_HOP},
    /* `value`, whose gradient goes to x as if x had this value: what an in-place write under no_grad does. */
    {.schema = "prim.graft(Tensor x, Tensor value) -> Tensor",
     .family = WF_COMPOSITE,
     .infer = graft_infer,
     .decompose = graft_decompose,
     .vjp = graft_vjp},
    {0}};

void wf_ops_control(void)
{
    wf_register(ops);
}
