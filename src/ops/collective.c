/* Collectives. `dist.all_reduce` and its kin say what is meant, one tensor each, over a named group of ranks; "dp" is all
 * ranks of the training. weave/bucket turns them into pairs: a start hands tensors to the communication thread and gives
 * results that are "in flight", a wait makes them readable. Blocks are cut and joined along the first dimension, as in
 * torch.distributed. Adjoints are those of torch.distributed._functional_collectives: of the sum over ranks of what every
 * rank differentiates. With one rank every collective is the identity, which is all that the oracle evaluates. */
#include "ops/ops_private.h"

#include <string.h>

static const char *text(const WfNode *n, const char *name) { return wf_arg(n, name)->s; }

/* The first operand, alone or of a list. */
static WfVal operand(const WfNode *n)
{
    WfVal v[WF_MAX_RESULTS];
    return wf_operands(n, v, WF_MAX_RESULTS) ? v[0] : 0;
}

static bool is_a(const char *op, const char *what) { return !strcmp(op, what); }

/* ---- shapes ---- */

/* Tensors that travel as one are one piece of memory: one dtype. */
static void same_infer(WfGraph *g, const WfNode *n)
{
    WfVal in[WF_MAX_RESULTS];
    int k = wf_operands(n, in, WF_MAX_RESULTS);
    for (int i = 0; i < k && i < n->n_out; i++) {
        const WfValue *x = wf_value(g, in[i]);
        if (x->dtype != wf_dtype_of(g, in[0]))
            wf_fail_node(g, n, WF_E_COLLECTIVE, "tensors of one collective are %s and %s",
                         wf_dtype_name(wf_dtype_of(g, in[0])), wf_dtype_name(x->dtype));
        wf_set_result(g, n, i, x->dtype, x->rank, x->shape);
    }
}

static void check_reduction(WfGraph *g, const WfNode *n)
{
    const char *op = text(n, "op");
    WfDtype t = wf_dtype_of(g, operand(n));
    if (!is_a(op, "sum") && !is_a(op, "mean") && !is_a(op, "min") && !is_a(op, "max"))
        wf_fail_node(g, n, WF_E_OP_FORM, "op is \"%s\"; sum, mean, min and max are known", op);
    if ((is_a(op, "mean") && !wf_dtype_is_float(t)) || (is_a(op, "sum") && t == WF_BOOL))
        wf_fail_node(g, n, WF_E_OP_FORM, "the %s of %s is not defined", op, wf_dtype_name(t));
}

static void reduce_infer(WfGraph *g, const WfNode *n)
{
    check_reduction(g, n);
    same_infer(g, n);
}

/* The one tensor of a collective that gathers or scatters, whose result has `first` rows. */
static void rows_infer(WfGraph *g, const WfNode *n, WfDim first)
{
    const WfValue *x = wf_value(g, operand(n));
    WfDim shape[WF_MAX_RANK];
    memcpy(shape, x->shape, sizeof shape);
    shape[0] = first;
    wf_set_result(g, n, 0, x->dtype, x->rank, shape);
}

static WfDim first_dim(WfGraph *g, const WfNode *n)
{
    const WfArg *a = &n->args[0];
    if (a->kind == WF_ARG_TENSORS && a->n != 1)
        wf_fail_node(g, n, WF_E_COLLECTIVE, "it takes one tensor, not %d", a->n);
    if (!wf_value(g, operand(n))->rank)
        wf_fail_node(g, n, WF_E_COLLECTIVE, "a number has no first dimension to cut or join along");
    return wf_value(g, operand(n))->shape[0];
}

static int64_t group_size(WfGraph *g, const WfNode *n)
{
    int64_t size;
    if (!wf_elit(g->exprs, wf_arg(n, "group_size")->i, &size) || size < 1 || size > INT32_MAX)
        wf_fail_node(g, n, WF_E_COLLECTIVE, "group_size must be a number of ranks, 1 at least");
    return size;
}

static void gather_infer(WfGraph *g, const WfNode *n)
{
    WfDim rows = first_dim(g, n);
    rows_infer(g, n, wf_emul(g->exprs, rows, (WfDim)group_size(g, n)));
}

static void scatter_infer(WfGraph *g, const WfNode *n)
{
    int64_t size = group_size(g, n), rows;
    WfDim first = first_dim(g, n);
    check_reduction(g, n);
    if (wf_elit(g->exprs, first, &rows) && rows % size)
        wf_fail_node(g, n, WF_E_COLLECTIVE, "%lld rows cannot be divided among %lld ranks", (long long)rows, (long long)size);
    rows_infer(g, n, wf_efloordiv(g->exprs, first, (WfDim)size));
}

/* All ranks run one program: rank r gets from every p what p sends to r, the same of all, and the same for all r. */
static void exchange_infer(WfGraph *g, const WfNode *n)
{
    const WfArg *in = wf_arg(n, "input_splits"), *out = wf_arg(n, "output_splits");
    WfDim rows = first_dim(g, n), sent = 0, got = 0;
    if (in->n < 1 || in->n != out->n)
        wf_fail_node(g, n, WF_E_COLLECTIVE, "it has %d input splits and %d output splits; there is one of each for every rank",
                     in->n, out->n);
    for (int i = 0; i < in->n; i++) {
        sent = wf_eadd(g->exprs, sent, in->ints[i]);
        got = wf_eadd(g->exprs, got, out->ints[i]);
        if (!wf_dims_equal(g, in->ints[i], in->ints[0]) || !wf_dims_equal(g, out->ints[i], in->ints[0]))
            wf_fail_node(g, n, WF_E_OP_FORM,
                         "its splits are not all equal: that needs another program for each rank, but all ranks run this one");
    }
    if (!wf_dims_equal(g, sent, rows))
        wf_fail_node(g, n, WF_E_COLLECTIVE, "its input splits do not add up to the rows of its operand, %s",
                     wf_shape_text(g, operand(n)));
    rows_infer(g, n, got);
}

static void root_infer(WfGraph *g, const WfNode *n)
{
    int64_t root;
    if (!wf_elit(g->exprs, wf_arg(n, "root")->i, &root) || root < 0 || root > INT32_MAX)
        wf_fail_node(g, n, WF_E_COLLECTIVE, "root must be a rank of the group, from 0 on");
    if (wf_arg(n, "op"))
        check_reduction(g, n);
    same_infer(g, n);
}

static void wait_infer(WfGraph *g, const WfNode *n)
{
    WfVal in[WF_MAX_RESULTS];
    int k = wf_operands(n, in, WF_MAX_RESULTS);
    if (k != n->n_out)
        wf_fail_node(g, n, WF_E_COLLECTIVE, "it waits for %d tensors, but has %d results", k, n->n_out);
    same_infer(g, n);
}

/* ---- adjoints ---- */

/* min and max: what the result is equal to shares its gradient, on whatever rank it is. */
static WfVal extremum_vjp(WfGraph *g, const WfNode *n, WfVal sum)
{
    WfVal x = wf_tensor(n, 0), y = n->out;
    WfVal nan = wf_binary(g, "prim.and", wf_unary(g, "prim.isnan", x), wf_unary(g, "prim.isnan", y));
    WfVal holds = wf_binary(g, "prim.or", wf_binary(g, "prim.eq", x, y), nan);
    WfVal ties = wf_emit(g, "dist.all_reduce", "vss", wf_cast(g, holds, WF_F32), "sum", text(n, "group"));
    WfVal share = wf_div(g, sum, wf_cast(g, ties, wf_dtype_of(g, sum)));
    return wf_where(g, holds, share, wf_zeros_like(g, share));
}

/* Sums and means are linear and the same on every rank: so are their adjoints. */
static void all_reduce_vjp(WfGraph *g, const WfNode *n, const WfVal *dy, WfVal *dx)
{
    const char *op = text(n, "op");
    bool extremum = is_a(op, "min") || is_a(op, "max");
    if (!wf_wants(g, 0) || !dy[0])
        return;
    dx[0] = wf_emit(g, "dist.all_reduce", "vss", dy[0], extremum ? "sum" : op, text(n, "group"));
    if (extremum)
        dx[0] = extremum_vjp(g, n, dx[0]);
}

static void gather_vjp(WfGraph *g, const WfNode *n, const WfVal *dy, WfVal *dx)
{
    if (wf_wants(g, 0) && dy[0])
        dx[0] = wf_emit(g, "dist.reduce_scatter", "viss", dy[0], (WfDim)group_size(g, n), "sum", text(n, "group"));
}

static WfVal of_sum(WfGraph *g, const WfNode *n, WfVal dx)
{
    const char *op = text(n, "op");
    if (!is_a(op, "sum") && !is_a(op, "mean"))
        wf_fail_node(g, n, WF_E_NO_GRADIENT, "its gradient is defined for sum and mean, not for %s", op);
    return is_a(op, "sum") ? dx : wf_muls(g, dx, 1.0 / (double)group_size(g, n));
}

static void scatter_vjp(WfGraph *g, const WfNode *n, const WfVal *dy, WfVal *dx)
{
    if (wf_wants(g, 0) && dy[0])
        dx[0] = of_sum(g, n, wf_emit(g, "dist.all_gather", "vis", dy[0], (WfDim)group_size(g, n), text(n, "group")));
}

static void exchange_vjp(WfGraph *g, const WfNode *n, const WfVal *dy, WfVal *dx)
{
    const WfArg *in = wf_arg(n, "input_splits"), *out = wf_arg(n, "output_splits");
    if (wf_wants(g, 0) && dy[0])
        dx[0] = wf_emit(g, "dist.all_to_all", "vIIs", dy[0], out->ints, out->n, in->ints, in->n, text(n, "group"));
}

static void broadcast_vjp(WfGraph *g, const WfNode *n, const WfVal *dy, WfVal *dx)
{
    if (wf_wants(g, 0) && dy[0])
        dx[0] = wf_emit(g, "dist.reduce", "viss", dy[0], wf_arg(n, "root")->i, "sum", text(n, "group"));
}

static void reduce_vjp(WfGraph *g, const WfNode *n, const WfVal *dy, WfVal *dx)
{
    if (!wf_wants(g, 0) || !dy[0])
        return;
    if (!is_a(text(n, "op"), "sum"))
        wf_fail_node(g, n, WF_E_NO_GRADIENT, "its gradient is defined for sum, not for %s", text(n, "op"));
    dx[0] = wf_emit(g, "dist.broadcast", "vis", dy[0], wf_arg(n, "root")->i, text(n, "group"));
}

static void barrier_vjp(WfGraph *g, const WfNode *n, const WfVal *dy, WfVal *dx)
{
    (void)n;
    if (wf_wants(g, 0))
        dx[0] = dy[0];
}

static void identity_eval(WfOracle *o, const WfNode *n)
{
    WfVal in[WF_MAX_RESULTS];
    int k = wf_operands(n, in, WF_MAX_RESULTS);
    for (int i = 0; i < k && i < n->n_out; i++) {
        if (wf_oracle_numel(o, in[i]) != wf_oracle_numel(o, n->out + (WfVal)i))
            wf_fail_node(o->g, n, WF_E_ORACLE, "the oracle is one rank, which has no others to hear from");
        memcpy(wf_oracle_new(o, n->out + (WfVal)i), o->val[in[i]],
               (size_t)wf_oracle_numel(o, in[i]) * sizeof(double));
    }
}

/* ---- torch.distributed._functional_collectives in an exported program ---- */

/* Group names are what the exporting process gave; its first, 0, is the world. */
static const char *group_of(const WfNode *n)
{
    const char *s = text(n, "group_name");
    return is_a(s, "0") ? "dp" : s;
}

static const char *op_of(const WfNode *n)
{
    const char *s = text(n, "reduce_op");
    return is_a(s, "avg") ? "mean" : s;
}

static int all_reduce_node(WfGraph *g, const WfNode *n, WfVal *out)
{
    WfVal in[WF_MAX_RESULTS];
    int k = wf_operands(n, in, WF_MAX_RESULTS);
    for (int i = 0; i < k; i++)
        out[i] = wf_emit(g, "dist.all_reduce", "vss", in[i], op_of(n), group_of(n));
    return k;
}

static int gather_node(WfGraph *g, const WfNode *n, WfVal *out)
{
    WfVal in[WF_MAX_RESULTS];
    int k = wf_operands(n, in, WF_MAX_RESULTS);
    for (int i = 0; i < k; i++)
        out[i] = wf_emit(g, "dist.all_gather", "vis", in[i], wf_arg(n, "group_size")->i, group_of(n));
    return k;
}

static int scatter_node(WfGraph *g, const WfNode *n, WfVal *out)
{
    WfVal in[WF_MAX_RESULTS];
    int k = wf_operands(n, in, WF_MAX_RESULTS);
    for (int i = 0; i < k; i++)
        out[i] = wf_emit(g, "dist.reduce_scatter", "viss", in[i], wf_arg(n, "group_size")->i, op_of(n), group_of(n));
    return k;
}

static int exchange_node(WfGraph *g, const WfNode *n, WfVal *out)
{
    const WfArg *to = wf_arg(n, "output_split_sizes"), *from = wf_arg(n, "input_split_sizes");
    out[0] = wf_emit(g, "dist.all_to_all", "vIIs", wf_tensor(n, 0), from->ints, from->n, to->ints, to->n, group_of(n));
    return 1;
}

static int broadcast_node(WfGraph *g, const WfNode *n, WfVal *out)
{
    out[0] = wf_emit(g, "dist.broadcast", "vis", wf_tensor(n, 0), wf_arg(n, "src")->i, group_of(n));
    return 1;
}

/* The waits of pairs are Weft's own to place. */
static int wait_node(WfGraph *g, const WfNode *n, WfVal *out)
{
    (void)g;
    return wf_operands(n, out, WF_MAX_RESULTS);
}

/* ---- rows ---- */

/* A ring moves 2 (n-1)/n of the tensor for an all_reduce, and half of that for what only gathers, scatters or exchanges. */
static const WfTravel all_reduce = {WF_ALL_REDUCE, true, false, 1}, broadcast = {WF_BROADCAST, true, false, 0.5},
                      barrier = {WF_BARRIER, true, false, 0}, reduce = {WF_REDUCE_SCATTER, false, true, 0.5},
                      all_gather = {WF_ALL_GATHER, false, false, 0.5},
                      reduce_scatter = {WF_REDUCE_SCATTER, false, false, 0.5},
                      all_to_all = {WF_ALL_TO_ALL, false, false, 0.5};

#define ALL_REDUCE "str op=\"sum\", str group=\"dp\")"
#define BROADCAST "int root=0, str group=\"dp\")"
#define BARRIER "str group=\"dp\")"
#define REDUCE "int root=0, str op=\"sum\", str group=\"dp\")"
#define ALL_GATHER "SymInt group_size, str group=\"dp\")"
#define REDUCE_SCATTER "SymInt group_size, str op=\"sum\", str group=\"dp\")"
#define ALL_TO_ALL "SymInt[] input_splits, SymInt[] output_splits, str group=\"dp\")"
/* What is meant, and how it begins. */
#define PAIR(name, arguments, rule, adjoint)                                                                           \
    {.schema = "dist." #name "(Tensor self, " arguments " -> Tensor", .family = WF_COLLECTIVE, .eval = identity_eval,  \
     .infer = rule, .vjp = adjoint, .start = "dist." #name "_start"},                                                  \
    {.schema = "dist." #name "_start(Tensor[] self, " arguments " -> Tensor[]", .family = WF_COLLECTIVE,               \
     .eval = identity_eval, .infer = rule, .travel = &name}
#define NODE(text, rule) {.schema = text, .family = WF_COMPOSITE, .decompose = rule}
#define GATHER_NODE "all_gather_into_tensor(Tensor input, int group_size, str group_name) -> Tensor"
#define SCATTER_NODE "reduce_scatter_tensor(Tensor input, str reduce_op, int group_size, str group_name) -> Tensor"
#define EXCHANGE_NODE                                                                                                  \
    "all_to_all_single(Tensor input, SymInt[] output_split_sizes, SymInt[] input_split_sizes, str group_name) -> Tensor"

static const WfOp ops[] = {
    PAIR(all_reduce, ALL_REDUCE, reduce_infer, all_reduce_vjp),
    PAIR(broadcast, BROADCAST, root_infer, broadcast_vjp),
    PAIR(barrier, BARRIER, same_infer, barrier_vjp),
    PAIR(reduce, REDUCE, root_infer, reduce_vjp),
    PAIR(all_gather, ALL_GATHER, gather_infer, gather_vjp),
    PAIR(reduce_scatter, REDUCE_SCATTER, scatter_infer, scatter_vjp),
    PAIR(all_to_all, ALL_TO_ALL, exchange_infer, exchange_vjp),
    {.schema = "dist.wait(Tensor[] self) -> Tensor[]", .family = WF_COLLECTIVE, .eval = identity_eval, .infer = wait_infer},
    NODE("_c10d_functional.all_reduce(Tensor input, str reduce_op, str group_name) -> Tensor", all_reduce_node),
    NODE("_c10d_functional.all_reduce_coalesced(Tensor[] inputs, str reduce_op, str group_name) -> Tensor[]",
         all_reduce_node),
    NODE("_c10d_functional." GATHER_NODE, gather_node),
    NODE("_c10d_functional_autograd." GATHER_NODE, gather_node),
    NODE("_c10d_functional.all_gather_into_tensor_coalesced(Tensor[] inputs, int group_size, str group_name) -> Tensor[]",
         gather_node),
    NODE("_c10d_functional." SCATTER_NODE, scatter_node),
    NODE("_c10d_functional_autograd." SCATTER_NODE, scatter_node),
    NODE("_c10d_functional.reduce_scatter_tensor_coalesced(Tensor[] inputs, str reduce_op, int group_size, str group_name) "
         "-> Tensor[]",
         scatter_node),
    NODE("_c10d_functional." EXCHANGE_NODE, exchange_node),
    NODE("_c10d_functional_autograd." EXCHANGE_NODE, exchange_node),
    NODE("_c10d_functional.broadcast(Tensor input, int src, str group_name) -> Tensor", broadcast_node),
    NODE("_c10d_functional.wait_tensor(Tensor tensor) -> Tensor", wait_node),
    NODE("_c10d_functional.wait_tensors(Tensor[] tensors) -> Tensor[]", wait_node),
    {0}};

void wf_ops_collective(void) { wf_register(ops); }
