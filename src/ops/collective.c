/* Collectives. `dist.all_reduce` and `dist.broadcast` say what is meant, one tensor each; weave/bucket turns them into
 * pairs: a start hands tensors that lie side by side to the communication thread and gives them back "in flight", a wait
 * makes them readable. Groups are named; "dp" is all ranks of a data-parallel training. With one rank every collective
 * is the identity, which is also how the oracle evaluates them. */
#include "ops/ops_private.h"

#include <string.h>

static void same_infer(WfGraph *g, const WfNode *n)
{
    const WfValue *x = wf_value(g, wf_tensor(n, 0));
    wf_set_result(g, n, 0, x->dtype, x->rank, x->shape);
}

static void reduce_infer(WfGraph *g, const WfNode *n)
{
    const char *op = n->args[1].s;
    WfDtype t = wf_dtype_of(g, wf_tensor(n, 0));
    if (strcmp(op, "sum") && strcmp(op, "mean") && strcmp(op, "min") && strcmp(op, "max"))
        wf_fail_node(g, n, WEFT_ERR_UNSUPPORTED, "op is \"%s\"; sum, mean, min and max are known", op);
    if (!strcmp(op, "mean") && !wf_dtype_is_float(t))
        wf_fail_node(g, n, WEFT_ERR_UNSUPPORTED, "the mean of %s is not defined", wf_dtype_name(t));
    same_infer(g, n);
}

/* Tensors of one collective are one piece of memory: one dtype. */
static void list_infer(WfGraph *g, const WfNode *n)
{
    const WfArg *a = &n->args[0];
    for (int i = 0; i < a->n && i < n->n_out; i++) {
        const WfValue *x = wf_value(g, a->vals[i]);
        if (x->dtype != wf_dtype_of(g, a->vals[0]))
            wf_fail_node(g, n, WEFT_ERR_FILE, "tensors of one collective are %s and %s",
                         wf_dtype_name(wf_dtype_of(g, a->vals[0])), wf_dtype_name(x->dtype));
        wf_set_result(g, n, i, x->dtype, x->rank, x->shape);
    }
}

/* Sums and means are linear and the same on every rank: so are their adjoints. */
static void reduce_vjp(WfGraph *g, const WfNode *n, const WfVal *dy, WfVal *dx)
{
    const char *op = n->args[1].s;
    if (!wf_wants(g, 0) || !dy[0])
        return;
    if (strcmp(op, "sum") && strcmp(op, "mean"))
        wf_fail_node(g, n, WEFT_ERR_UNSUPPORTED, "the gradient of an all_reduce by %s is not defined", op);
    dx[0] = wf_emit(g, "dist.all_reduce", "vss", dy[0], op, n->args[2].s);
}

static void identity_eval(WfOracle *o, const WfNode *n)
{
    WfVal in[WF_MAX_RESULTS];
    int k = wf_operands(n, in, WF_MAX_RESULTS);
    for (int i = 0; i < k && i < n->n_out; i++)
        memcpy(wf_oracle_new(o, n->out + (WfVal)i), o->val[in[i]],
               (size_t)wf_oracle_numel(o, in[i]) * sizeof(double));
}

/* torch.distributed._functional_collectives in an exported program. Its groups are numbers that the exporting process
 * gave; the first, 0, is the world. */
static int functional_all_reduce(WfGraph *g, const WfNode *n, WfVal *out)
{
    const char *op = n->args[1].s, *group = n->args[2].s;
    out[0] = wf_emit(g, "dist.all_reduce", "vss", wf_tensor(n, 0), !strcmp(op, "avg") ? "mean" : op,
                     !strcmp(group, "0") ? "dp" : group);
    return 1;
}

static int functional_wait(WfGraph *g, const WfNode *n, WfVal *out)
{
    (void)g;
    out[0] = wf_tensor(n, 0);
    return 1;
}

#define COLLECTIVE .family = WF_COLLECTIVE, .eval = identity_eval
static const WfOp ops[] = {
    {.schema = "dist.all_reduce(Tensor self, str op=\"sum\", str group=\"dp\") -> Tensor", COLLECTIVE,
     .infer = reduce_infer, .vjp = reduce_vjp},
    {.schema = "dist.broadcast(Tensor self, int root=0, str group=\"dp\") -> Tensor", COLLECTIVE, .infer = same_infer},
    {.schema = "_c10d_functional.all_reduce(Tensor input, str reduce_op, str group_name) -> Tensor",
     .family = WF_COMPOSITE, .decompose = functional_all_reduce},
    {.schema = "_c10d_functional.wait_tensor(Tensor tensor) -> Tensor", .family = WF_COMPOSITE, .decompose = functional_wait},
    {.schema = "dist.all_reduce_start(Tensor[] self, str op=\"sum\", str group=\"dp\") -> Tensor[]", COLLECTIVE,
     .infer = list_infer},
    {.schema = "dist.broadcast_start(Tensor[] self, int root=0, str group=\"dp\") -> Tensor[]", COLLECTIVE,
     .infer = list_infer},
    {.schema = "dist.wait(Tensor[] self) -> Tensor[]", COLLECTIVE, .infer = list_infer},
    {0}};

void wf_ops_collective(void) { wf_register(ops); }
