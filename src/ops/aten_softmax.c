/* Softmax and its logarithm. Both are kept as nodes until the primitive level, because their gradients by
 * results, y (dy - sum y dy) and dy - exp(y) sum dy, are cheaper and more exact than those of the primitives.
 */
#include "ops/ops_private.h"

#include <math.h>

#define DECOMPOSE WfGraph *g, const WfNode *n, WfVal *out
#define X         wf_tensor(n, 0)

static uint32_t mask(WfGraph *g, const WfNode *n)
{
    int r = wf_rank_of(g, X);
    int d = wf_dim_index(g, n, wf_int(n, 1), r);
    return r ? 1u << d : 0;
}

/* half_to_float: 16-bit input, f32 result (CUDA exports only) */
static WfDtype result_dtype(WfGraph *g, const WfNode *n)
{
    return wf_bool(n, 2) ? WF_F32 : wf_dtype_of(g, X);
}

static void softmax_infer(WfGraph *g, const WfNode *n)
{
    const WfValue *x = wf_value(g, X);
    wf_set_result(g, n, 0, result_dtype(g, n), x->rank, x->shape);
}

static WfVal input(WfGraph *g, const WfNode *n)
{
    return wf_wide(g, X);
}

/* x minus its largest element along the dimension; the shift cancels, so no gradient goes through it. */
static WfVal shifted(WfGraph *g, WfVal x, uint32_t m)
{
    return wf_sub(g, x, wf_detach(g, wf_reduce(g, "prim.amax", x, m, true)));
}

static int softmax(DECOMPOSE)
{
    uint32_t m = mask(g, n);
    WfVal e = wf_unary(g, "prim.exp", shifted(g, input(g, n), m));
    out[0] = wf_cast(g, wf_div(g, e, wf_sum(g, e, m, true)), result_dtype(g, n));
    return 1;
}

static int log_softmax(DECOMPOSE)
{
    uint32_t m = mask(g, n);
    WfVal s = shifted(g, input(g, n), m);
    WfVal y = wf_sub(g, s, wf_unary(g, "prim.log", wf_sum(g, wf_unary(g, "prim.exp", s), m, true)));
    out[0] = wf_cast(g, y, result_dtype(g, n));
    return 1;
}

static void softmax_vjp(WfGraph *g, const WfNode *n, const WfVal *dy, WfVal *dx)
{
    WfVal d = wf_wide(g, dy[0]), y = wf_wide(g, n->out), s = wf_sum(g, wf_mul(g, d, y), mask(g, n), true);
    dx[0] = wf_cast(g, wf_mul(g, y, wf_sub(g, d, s)), wf_dtype_of(g, X));
}

static void log_softmax_vjp(WfGraph *g, const WfNode *n, const WfVal *dy, WfVal *dx)
{
    WfVal d = wf_wide(g, dy[0]), s = wf_sum(g, d, mask(g, n), true);
    WfVal p = wf_unary(g, "prim.exp", wf_wide(g, n->out));
    dx[0] = wf_cast(g, wf_sub(g, d, wf_mul(g, p, s)), wf_dtype_of(g, X));
}

static WfVal floating(WfGraph *g, const WfNode *n) /* of the dtype asked for; integers become f32 */
{
    WfDtype t = wf_dtype_of(g, X);
    return wf_cast(g, X, wf_has(n, 2) ? n->args[2].dtype : wf_dtype_is_float(t) ? t : WF_F32);
}

static int softmax_int(DECOMPOSE)
{
    out[0] = wf_emit(g, "aten._softmax", "vib", floating(g, n), wf_int(n, 1), 0);
    return 1;
}

static int log_softmax_int(DECOMPOSE)
{
    out[0] = wf_emit(g, "aten._log_softmax", "vib", floating(g, n), wf_int(n, 1), 0);
    return 1;
}

/* Rows of -inf only give zeros instead of NaN. */
static int safe_softmax(DECOMPOSE)
{
    WfVal x = floating(g, n), top = wf_detach(g, wf_reduce(g, "prim.amax", x, mask(g, n), true));
    WfVal none = wf_binary(g, "prim.eq", top, wf_like(g, x, -INFINITY)), zero = wf_like(g, x, 0);
    WfVal y = wf_emit(g, "aten._softmax", "vib", wf_where(g, none, zero, x), wf_int(n, 1), 0);
    out[0] = wf_where(g, none, zero, y); /* zeros before, too: no NaN for the gradient to meet */
    return 1;
}

static const WfOp ops[] = {
    {.schema = "aten._softmax(Tensor self, int dim, bool half_to_float) -> Tensor",
     .family = WF_COMPOSITE,
     .infer = softmax_infer,
     .decompose = softmax,
     .vjp = softmax_vjp},
    {.schema = "aten._log_softmax(Tensor self, int dim, bool half_to_float) -> Tensor",
     .family = WF_COMPOSITE,
     .infer = softmax_infer,
     .decompose = log_softmax,
     .vjp = log_softmax_vjp},
    {.schema = "aten.softmax.int(Tensor self, int dim, ScalarType? dtype=None) -> Tensor",
     .family = WF_COMPOSITE,
     .decompose = softmax_int},
    {.schema = "aten.log_softmax.int(Tensor self, int dim, ScalarType? dtype=None) -> Tensor",
     .family = WF_COMPOSITE,
     .decompose = log_softmax_int},
    {.schema = "aten._safe_softmax(Tensor self, int dim, ScalarType? dtype=None) -> Tensor",
     .family = WF_COMPOSITE,
     .decompose = safe_softmax},
    {0}};

void wf_ops_aten_softmax(void)
{
    wf_register(ops);
}
