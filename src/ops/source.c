/* Primitives without tensor operands: constants, indices, sizes, random numbers. All are pointwise over their shape and
 * so are recomputed where they are used, never stored. */
#include "ops/ops_private.h"

static void full_infer(WfGraph *g, const WfNode *n)
{
    wf_set_result(g, n, 0, n->args[2].dtype, n->args[0].n, n->args[0].ints);
}

static void iota_infer(WfGraph *g, const WfNode *n)
{
    wf_set_result(g, n, 0, n->args[2].dtype, n->args[0].n, n->args[0].ints);
}

static void size_infer(WfGraph *g, const WfNode *n) { wf_set_result(g, n, 0, n->args[1].dtype, 0, NULL); }

static WfVal size_fold(WfGraph *g, const WfNode *n)
{
    int64_t v;
    return wf_elit(g->exprs, wf_int(n, 0), &v) ? wf_scalar(g, n->args[1].dtype, (double)v) : 0;
}

static void rand_infer(WfGraph *g, const WfNode *n) { wf_set_result(g, n, 0, WF_F32, n->args[0].n, n->args[0].ints); }

static const WfOp ops[] = {
    {.schema = "prim.full(int[] shape, float value, ScalarType dtype) -> Tensor", .family = WF_SOURCE,
     .infer = full_infer,
     .eval = wf_full_eval},
    /* The index along dim, as dtype. */
    {.schema = "prim.iota(int[] shape, int dim, ScalarType dtype) -> Tensor", .family = WF_SOURCE,
     .infer = iota_infer,
     .eval = wf_iota_eval},
    /* A symbolic integer as a value of rank 0. */
    {.schema = "prim.size(int value, ScalarType dtype) -> Tensor", .family = WF_SOURCE, .infer = size_infer,
     .fold = size_fold,
     .eval = wf_size_eval},
    /* Uniform in [0, 1), f32: Philox4x32-10 with key (seed, stream) and counter (step, element). */
    {.schema = "prim.rand(int[] shape, int stream) -> Tensor", .family = WF_SOURCE, .infer = rand_infer,
     .eval = wf_rand_eval},
    {0}};

void wf_ops_source(void) { wf_register(ops); }
