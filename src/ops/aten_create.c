/* Tensors made from nothing: constants, ranges, and copies of constants. */
#include "ops/ops_private.h"

#include <math.h>
#include <string.h>

#define DECOMPOSE(name) static int name(WfGraph *g, const WfNode *n, WfVal *out)
#define DONE(v) do { out[0] = (v); return 1; } while (0)

static WfDtype dtype_arg(const WfNode *n, WfDtype otherwise)
{
    const WfArg *a = wf_arg(n, "dtype");
    return a && a->kind == WF_ARG_DTYPE ? a->dtype : otherwise;
}

static int filled(WfGraph *g, const WfNode *n, WfVal *out, int size_arg, double v, WfDtype t)
{
    DONE(wf_full(g, t, n->args[size_arg].n, n->args[size_arg].ints, v));
}

DECOMPOSE(zeros_op) { return filled(g, n, out, 0, 0, dtype_arg(n, WF_F32)); }
DECOMPOSE(ones_op) { return filled(g, n, out, 0, 1, dtype_arg(n, WF_F32)); }
DECOMPOSE(new_zeros_op) { return filled(g, n, out, 1, 0, dtype_arg(n, wf_dtype_of(g, wf_tensor(n, 0)))); }
DECOMPOSE(new_ones_op) { return filled(g, n, out, 1, 1, dtype_arg(n, wf_dtype_of(g, wf_tensor(n, 0)))); }

/* A fill value that may be a symbolic size. */
static WfVal fill_value(WfGraph *g, const WfNode *n, int arg, WfDtype t, int rank, const WfDim *shape)
{
    WfDim copy[WF_MAX_RANK];
    memcpy(copy, shape, (size_t)rank * sizeof *shape);
    return wf_expand(g, wf_operand(g, n, arg, t), rank, copy);
}
static WfDtype of_number(const WfArg *a)
{
    return a->kind == WF_ARG_BOOL ? WF_BOOL : a->kind == WF_ARG_INT ? WF_I64 : WF_F32;
}
DECOMPOSE(full_op)
{
    DONE(fill_value(g, n, 1, dtype_arg(n, of_number(&n->args[1])), n->args[0].n, n->args[0].ints));
}
DECOMPOSE(new_full_op)
{
    WfDtype t = dtype_arg(n, wf_dtype_of(g, wf_tensor(n, 0)));
    DONE(fill_value(g, n, 2, t, n->args[1].n, n->args[1].ints));
}
DECOMPOSE(full_like_op)
{
    const WfValue *x = wf_value(g, wf_tensor(n, 0));
    DONE(fill_value(g, n, 1, dtype_arg(n, x->dtype), x->rank, x->shape));
}
static int like(WfGraph *g, const WfNode *n, WfVal *out, double v)
{
    const WfValue *x = wf_value(g, wf_tensor(n, 0));
    WfDim shape[WF_MAX_RANK];
    memcpy(shape, x->shape, sizeof shape);
    DONE(wf_full(g, dtype_arg(n, x->dtype), x->rank, shape, v));
}
DECOMPOSE(zeros_like_op) { return like(g, n, out, 0); }
DECOMPOSE(ones_like_op) { return like(g, n, out, 1); }
DECOMPOSE(scalar_tensor_op) { DONE(wf_operand(g, n, 0, dtype_arg(n, of_number(&n->args[0])))); }

/* ceil((end - start) / step) elements; integers may be symbolic */
static int range(WfGraph *g, const WfNode *n, WfVal *out, int start, int end, int step)
{
    bool floating = false;
    for (int k = 0; k < 3; k++) {
        int i = k == 0 ? start : k == 1 ? end : step;
        floating |= i >= 0 && n->args[i].kind == WF_ARG_FLOAT;
    }
    WfDtype t = dtype_arg(n, floating ? WF_F32 : WF_I64);
    if (floating) {
        double a = start >= 0 ? wf_float(g, n, start) : 0, b = wf_float(g, n, end), s = step >= 0 ? wf_float(g, n, step) : 1;
        WfDim count = (WfDim)ceil((b - a) / s);
        WfVal i = wf_cast(g, wf_iota(g, WF_I64, 1, &count, 0), WF_F64);
        DONE(wf_cast(g, wf_adds(g, wf_muls(g, i, s), a), t));
    }
    WfExprs *e = g->exprs;
    WfDim a = start >= 0 ? wf_int(n, start) : 0, s = step >= 0 ? wf_int(n, step) : 1;
    int64_t lit;
    if (!wf_elit(e, s, &lit) || !lit)
        wf_fail_node(g, n, WF_E_OP_FORM, "the step must be a static integer other than 0");
    WfDim span = wf_esub(e, wf_int(n, end), a);
    WfDim count = lit > 0 ? wf_efloordiv(e, wf_eadd(e, span, wf_econst(e, lit - 1)), lit)
                          : wf_efloordiv(e, wf_eadd(e, wf_esub(e, 0, span), wf_econst(e, -lit - 1)), -lit);
    WfVal i = wf_iota(g, WF_I64, 1, &count, 0);
    if (lit != 1)
        i = wf_mul(g, i, wf_scalar(g, WF_I64, (double)lit));
    if (a != 0)
        i = wf_add(g, i, wf_dim_scalar(g, WF_I64, a));
    DONE(wf_cast(g, i, t));
}
DECOMPOSE(arange_op) { return range(g, n, out, -1, 0, -1); }
DECOMPOSE(arange_start_op) { return range(g, n, out, 0, 1, -1); }
DECOMPOSE(arange_step_op) { return range(g, n, out, 0, 1, 2); }
static int eye(WfGraph *g, const WfNode *n, WfVal *out, int m)
{
    WfDim shape[2] = {wf_int(n, 0), wf_int(n, m)};
    WfVal hit = wf_binary(g, "prim.eq", wf_iota(g, WF_I64, 2, shape, 0), wf_iota(g, WF_I64, 2, shape, 1));
    DONE(wf_cast(g, hit, dtype_arg(n, WF_F32)));
}
DECOMPOSE(eye_op) { return eye(g, n, out, 0); }
DECOMPOSE(eye_m_op) { return eye(g, n, out, 1); }

/* Row and column numbers of the lower (upper) triangle, counted at compile time. */
static int tri_indices(WfGraph *g, const WfNode *n, WfVal *out, bool lower)
{
    int64_t rows = wf_lit(g, n, 0), cols = wf_lit(g, n, 1), offset = wf_lit(g, n, 2), count = 0;
    if (rows < 0 || cols < 0 || rows > 4096 || cols > 4096)
        wf_fail_node(g, n, WF_E_OP_FORM, "up to 4096 rows and columns");
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < cols; c++)
            count += lower ? c - r <= offset : c - r >= offset;
    WfDim shape[2] = {2, count};
    WfVal v = wf_add_input(g, WF_IN_CONST, wf_arena_printf(g->arena, "tri.%d", g->inputs.n), WF_I64, 2, shape);
    int64_t *data = WF_NEWN(g->arena, int64_t, (size_t)(2 * count + 1)), k = 0;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < cols; c++)
            if (lower ? c - r <= offset : c - r >= offset) {
                data[k] = r;
                data[count + k++] = c;
            }
    WfInput *in = &g->inputs.at[g->inputs.n - 1];
    in->data = data;
    in->strides[0] = count;
    in->strides[1] = 1;
    DONE(v);
}
DECOMPOSE(tril_indices_op) { return tri_indices(g, n, out, true); }
DECOMPOSE(triu_indices_op) { return tri_indices(g, n, out, false); }

#define OPTIONS "ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None"
#define LIKE OPTIONS ", MemoryFormat? memory_format=None) -> Tensor"
#define MADE OPTIONS ") -> Tensor"

static const WfOp ops[] = {
    ROW("zeros(SymInt[] size, *, " MADE, zeros_op), ROW("ones(SymInt[] size, *, " MADE, ones_op),
    ROW("empty.memory_format(SymInt[] size, *, " LIKE, zeros_op),
    ROW("empty_permuted(SymInt[] size, int[] physical_layout, *, " MADE, zeros_op),
    ROW("empty_strided(SymInt[] size, SymInt[] stride, *, " MADE, zeros_op),
    ROW("new_empty(Tensor self, SymInt[] size, *, " MADE, new_zeros_op),
    ROW("new_zeros(Tensor self, SymInt[] size, *, " MADE, new_zeros_op), ROW("new_ones(Tensor self, SymInt[] size, *, " MADE, new_ones_op),
    ROW("full(SymInt[] size, Scalar fill_value, *, " MADE, full_op),
    ROW("new_full(Tensor self, SymInt[] size, Scalar fill_value, *, " MADE, new_full_op),
    ROW("full_like(Tensor self, Scalar fill_value, *, " LIKE, full_like_op), ROW("zeros_like(Tensor self, *, " LIKE, zeros_like_op),
    ROW("ones_like(Tensor self, *, " LIKE, ones_like_op), ROW("empty_like(Tensor self, *, " LIKE, zeros_like_op),
    ROW("scalar_tensor(Scalar s, *, " MADE, scalar_tensor_op),
    ROW("arange(Scalar end, *, " MADE, arange_op), ROW("arange.start(Scalar start, Scalar end, *, " MADE, arange_start_op),
    ROW("arange.start_step(Scalar start, Scalar end, Scalar step=1, *, " MADE, arange_step_op),
    ROW("eye(SymInt n, *, " MADE, eye_op), ROW("eye.m(SymInt n, SymInt m, *, " MADE, eye_m_op),
    ROW("tril_indices(int row, int col, int offset=0, *, " MADE, tril_indices_op),
    ROW("triu_indices(int row, int col, int offset=0, *, " MADE, triu_indices_op),
    {0}};

void wf_ops_aten_create(void) { wf_register(ops); }
