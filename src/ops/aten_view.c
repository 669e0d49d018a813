/* ATen's views and copies of shape: every one is expanded into the index maps of view.c, so that none of them
 * costs anything by itself. Dimension numbers may be negative and sizes symbolic: all of that is settled
 * here, and primitives only see proper ranges. Rows are at the end; aten_slice.c has the ops that take parts,
 * aten_join.c those that join, pad and rearrange. */
#include "ops/aten_view.h"

#include <string.h>

#define E          (g->exprs)
#define X          wf_tensor(n, 0)
#define RULE(name) static int name(WfGraph *g, const WfNode *n, WfVal *out)

/* ---- shared ---- */

void wf_need_rank(WfGraph *g, const WfNode *n, int rank)
{
    if (rank > WF_MAX_RANK)
        wf_fail_node(g, n, WF_E_OP_FORM, "more than %d dimensions are needed", WF_MAX_RANK);
}

int wf_dim_arg(WfGraph *g, const WfNode *n, int arg, int rank)
{
    return wf_dim_index(g, n, wf_econst(E, wf_lit(g, n, arg)), rank);
}

/* The sizes of argument `arg`, at most 8, with -1 replaced so that they hold `numel` elements. */
static int sizes(WfGraph *g, const WfNode *n, int arg, WfDim numel, WfDim *shape)
{
    const WfArg *a = &n->args[arg];
    int open = -1;
    WfDim rest = 1;
    wf_need_rank(g, n, a->n);
    for (int i = 0; i < a->n; i++) {
        int64_t v;
        shape[i] = a->ints[i];
        if (wf_elit(E, shape[i], &v) && v < 0) {
            if (v != -1 || open >= 0)
                wf_fail_node(g, n, WF_E_SHAPES, "more than one size is open, or a size is negative");
            open = i;
        } else {
            rest = wf_emul(E, rest, shape[i]);
        }
    }
    if (open >= 0) {
        if (rest == 0)
            wf_fail_node(g, n, WF_E_SHAPES, "an open size beside a size of 0 can be anything");
        shape[open] = wf_efloordiv(E, numel, rest);
    }
    return a->n;
}

/* ---- reshapes ---- */

RULE(same)
{
    (void)g;
    out[0] = X;
    return 1;
}

RULE(view)
{
    WfDim shape[WF_MAX_RANK];
    int r = sizes(g, n, 1, wf_numel(g, X), shape);
    out[0] = wf_reshape(g, X, r, shape);
    return 1;
}

RULE(view_as)
{
    const WfValue *o = wf_value(g, wf_tensor(n, 1));
    out[0] = wf_reshape(g, X, o->rank, o->shape);
    return 1;
}

RULE(flatten)
{
    const WfValue *x = wf_value(g, X);
    int r = 0, rank = x->rank, from = wf_dim_arg(g, n, 1, rank), to = wf_dim_arg(g, n, 2, rank);
    WfDim shape[WF_MAX_RANK + 1];
    if (from > to)
        wf_fail_node(g, n, WF_E_SHAPES, "start_dim lies behind end_dim");
    if (!rank)
        shape[r++] = 1;
    for (int i = 0; i < rank; i++)
        if (i > from && i <= to)
            shape[r - 1] = wf_emul(E, shape[r - 1], x->shape[i]);
        else
            shape[r++] = x->shape[i];
    out[0] = wf_reshape(g, X, r, shape);
    return 1;
}

RULE(ravel)
{
    WfDim shape[1] = {wf_numel(g, X)};
    out[0] = wf_reshape(g, X, 1, shape);
    return 1;
}

RULE(unflatten)
{
    const WfValue *x = wf_value(g, X);
    WfDim part[WF_MAX_RANK], shape[2 * WF_MAX_RANK];
    int dim = wf_dim_arg(g, n, 1, x->rank), r = 0;
    if (!x->rank)
        wf_fail_node(g, n, WF_E_SHAPES, "a number has no dimension to unflatten");
    int k = sizes(g, n, 2, x->shape[dim], part);
    wf_need_rank(g, n, x->rank - 1 + k);
    for (int i = 0; i < x->rank; i++) {
        for (int j = 0; i == dim && j < k; j++)
            shape[r++] = part[j];
        if (i != dim)
            shape[r++] = x->shape[i];
    }
    out[0] = wf_reshape(g, X, r, shape);
    return 1;
}

static WfVal squeeze_mask(WfGraph *g, WfVal v, uint32_t mask)
{
    const WfValue *x = wf_value(g, v);
    WfDim shape[WF_MAX_RANK];
    int r = 0;
    for (int i = 0; i < x->rank; i++)
        if (!(mask >> i & 1) || x->shape[i] != 1)
            shape[r++] = x->shape[i];
    return wf_reshape(g, v, r, shape);
}

RULE(squeeze)
{
    out[0] = squeeze_mask(g, X, ~0u);
    return 1;
}

RULE(squeeze_dims)
{
    const WfArg *a = &n->args[1];
    int rank = wf_rank_of(g, X);
    uint32_t mask = 0;
    if (a->kind == WF_ARG_INT)
        mask = 1u << wf_dim_arg(g, n, 1, rank);
    for (int i = 0; a->kind == WF_ARG_INTS && i < a->n; i++)
        mask |= 1u << wf_dim_index(g, n, a->ints[i], rank);
    out[0] = squeeze_mask(g, X, mask);
    return 1;
}

RULE(unsqueeze)
{
    int rank = wf_rank_of(g, X);
    wf_need_rank(g, n, rank + 1);
    out[0] = wf_unsqueeze(g, X, wf_dim_arg(g, n, 1, rank + 1));
    return 1;
}

static int atleast(WfGraph *g, const WfNode *n, WfVal *out, int rank)
{
    out[0] = wf_atleast(g, X, rank);
    (void)n;
    return 1;
}

WfVal wf_atleast(WfGraph *g, WfVal v, int rank)
{
    int r = wf_rank_of(g, v);
    if (r >= rank)
        return v;
    WfDim shape[3] = {1, 1, 1};
    if (r)
        shape[rank == 1 ? 0 : 1] = wf_size_of(g, v, r - 1); /* a vector lies in the second dimension */
    if (r == 2) {
        shape[0] = wf_size_of(g, v, 0);
        shape[1] = wf_size_of(g, v, 1);
    }
    return wf_reshape(g, v, rank, shape);
}

RULE(atleast_1d)
{
    return atleast(g, n, out, 1);
}
RULE(atleast_2d)
{
    return atleast(g, n, out, 2);
}
RULE(atleast_3d)
{
    return atleast(g, n, out, 3);
}

/* ---- permutations ---- */

RULE(transpose)
{
    int rank = wf_rank_of(g, X), a = wf_dim_arg(g, n, 1, rank), b = wf_dim_arg(g, n, 2, rank);
    out[0] = rank ? wf_transpose(g, X, a, b) : X;
    return 1;
}

RULE(t)
{
    int rank = wf_rank_of(g, X);
    if (rank > 2)
        wf_fail_node(g, n, WF_E_SHAPES,
                     "only matrices and vectors can be transposed without naming dimensions");
    out[0] = rank == 2 ? wf_transpose(g, X, 0, 1) : X;
    return 1;
}

RULE(m_transpose)
{
    int rank = wf_rank_of(g, X);
    if (rank < 2)
        wf_fail_node(g, n, WF_E_SHAPES, "a matrix is needed");
    out[0] = wf_transpose(g, X, rank - 2, rank - 1);
    return 1;
}

RULE(reverse)
{
    int rank = wf_rank_of(g, X), perm[WF_MAX_RANK];
    for (int i = 0; i < rank; i++)
        perm[i] = rank - 1 - i;
    out[0] = wf_permute(g, X, perm);
    return 1;
}

RULE(permute)
{
    int rank = wf_rank_of(g, X), perm[WF_MAX_RANK];
    const WfArg *a = &n->args[1];
    if (a->n != rank)
        wf_fail_node(g, n, WF_E_SHAPES, "%d dimension numbers are given for %d dimensions", a->n, rank);
    for (int i = 0; i < rank; i++)
        perm[i] = wf_dim_index(g, n, a->ints[i], rank);
    out[0] = wf_permute(g, X, perm);
    return 1;
}

RULE(movedim)
{
    int rank = wf_rank_of(g, X), perm[WF_MAX_RANK];
    const WfArg *from = &n->args[1], *to = &n->args[2];
    bool list = from->kind == WF_ARG_INTS, taken[WF_MAX_RANK] = {false};
    int k = list ? from->n : 1;
    if (k > rank || (list && to->n != k)) {
        if (rank)
            wf_fail_node(g, n, WF_E_SHAPES, "source and destination do not fit the %d dimensions", rank);
        k = 0;
    }
    for (int i = 0; i < rank; i++)
        perm[i] = -1;
    for (int i = 0; i < k; i++) {
        int s = wf_dim_index(g, n, list ? from->ints[i] : from->i, rank);
        int d = wf_dim_index(g, n, list ? to->ints[i] : to->i, rank);
        if (taken[s] || perm[d] >= 0)
            wf_fail_node(g, n, WF_E_SHAPES, "a dimension is moved twice");
        taken[s] = true;
        perm[d] = s;
    }
    for (int i = 0, next = 0; i < rank; i++)
        if (perm[i] < 0) {
            while (taken[next])
                next++;
            perm[i] = next++;
        }
    out[0] = rank ? wf_permute(g, X, perm) : X;
    return 1;
}

/* ---- broadcasting ---- */

RULE(expand)
{
    const WfValue *x = wf_value(g, X);
    const WfArg *a = &n->args[1];
    WfDim shape[WF_MAX_RANK];
    wf_need_rank(g, n, a->n);
    for (int i = 0; i < a->n; i++) {
        int64_t v;
        int from = i - (a->n - x->rank);
        shape[i] = a->ints[i];
        if (wf_elit(E, shape[i], &v) && v < 0) {
            if (v != -1 || from < 0)
                wf_fail_node(g, n, WF_E_SHAPES, "a new dimension needs a size");
            shape[i] = x->shape[from];
        }
    }
    out[0] = wf_expand(g, X, a->n, shape);
    return 1;
}

RULE(expand_as)
{
    out[0] = wf_expand_like(g, X, wf_tensor(n, 1));
    return 1;
}

RULE(broadcast_tensors)
{
    const WfArg *a = &n->args[0];
    WfDim shape[WF_MAX_RANK];
    int rank = 0;
    for (int i = 0; i < a->n; i++) {
        const WfValue *v = wf_value(g, a->vals[i]);
        WfDim wide[WF_MAX_RANK];
        memcpy(wide, shape, sizeof wide);
        wf_broadcast_shape(g, n, rank, wide, v->rank, v->shape, &rank, shape);
    }
    for (int i = 0; i < a->n; i++)
        out[i] = wf_expand(g, a->vals[i], rank, shape);
    return a->n;
}

/* ---- diagonals, windows, strides ---- */

/* dim1 and dim2 to the end, in this order. */
static WfVal to_end(WfGraph *g, WfVal v, int dim1, int dim2)
{
    int rank = wf_rank_of(g, v), perm[WF_MAX_RANK], k = 0;
    for (int i = 0; i < rank; i++)
        if (i != dim1 && i != dim2)
            perm[k++] = i;
    perm[k++] = dim1;
    perm[k++] = dim2;
    return wf_permute(g, v, perm);
}

/* The diagonal of the last two dimensions: every (columns + 1)-th element of the flattened matrix. */
WfVal wf_diagonal(WfGraph *g, const WfNode *n, WfVal v, int64_t offset, int dim1, int dim2)
{
    v = to_end(g, v, dim1, dim2);
    const WfValue *x = wf_value(g, v);
    int rank = x->rank;
    WfDim rows = x->shape[rank - 2], columns = x->shape[rank - 1], flat[WF_MAX_RANK];
    int64_t c;
    if (!wf_elit(E, columns, &c))
        wf_fail_node(g, n, WF_E_OP_FORM, "the diagonal of a matrix whose width is not fixed");
    if (offset < -(INT64_C(1) << 40) || offset > (INT64_C(1) << 40))
        wf_fail_node(g, n, WF_E_SHAPES, "the offset of the diagonal is too large");
    WfDim start = offset >= 0 ? offset : wf_emul(E, -offset, columns);
    WfDim r = offset >= 0 ? rows : wf_esub(E, rows, -offset),
          w = offset >= 0 ? wf_esub(E, columns, offset) : columns;
    WfDim len = wf_emax(E, 0, wf_emin(E, r, w));
    WfDim end = wf_eadd(E, start, wf_eadd(E, wf_emul(E, wf_esub(E, len, 1), c + 1), 1));
    if (len == 0)
        start = end = 0;
    memcpy(flat, x->shape, sizeof flat);
    flat[rank - 2] = wf_emul(E, rows, columns);
    return wf_slice(g, wf_reshape(g, v, rank - 1, flat), rank - 2, start, end, c + 1);
}

static void diagonal_dims(WfGraph *g, const WfNode *n, int first, int rank, int *dim1, int *dim2)
{
    if (rank < 2)
        wf_fail_node(g, n, WF_E_SHAPES, "two dimensions are needed");
    *dim1 = wf_dim_arg(g, n, first, rank);
    *dim2 = wf_dim_arg(g, n, first + 1, rank);
    if (*dim1 == *dim2)
        wf_fail_node(g, n, WF_E_SHAPES, "the two dimensions must differ");
}

RULE(diagonal)
{
    int dim1, dim2;
    diagonal_dims(g, n, 2, wf_rank_of(g, X), &dim1, &dim2);
    out[0] = wf_diagonal(g, n, X, wf_lit(g, n, 1), dim1, dim2);
    return 1;
}

RULE(unfold)
{
    WfVal x = X;
    int rank = wf_rank_of(g, x), dim = wf_dim_arg(g, n, 1, rank);
    int64_t size = wf_lit(g, n, 2), step = wf_lit(g, n, 3);
    wf_need_rank(g, n, rank + 1);
    if (size < 1 || step < 1)
        wf_fail_node(g, n, WF_E_SHAPES, "size and step of a window must be positive");
    if (!rank && size == 1) {
        out[0] = wf_unsqueeze(g, x, 0);
        return 1;
    }
    if (!rank)
        wf_fail_node(g, n, WF_E_SHAPES, "a number holds no window of %lld", (long long)size);
    out[0] = wf_emit(g, "prim.window", "vdiid", x, dim, (WfDim)size, (WfDim)step, 1);
    return 1;
}

/* Strides that describe a dense tensor in some order of its dimensions: a permutation of a reshape; any others: a lookup. The
 * operand is taken to be contiguous, which functionalize has checked. */
RULE(as_strided)
{
    const WfArg *size = &n->args[1], *stride = &n->args[2];
    int rank = size->n, back[WF_MAX_RANK];
    WfDim want = 1, shape[WF_MAX_RANK];
    bool used[WF_MAX_RANK] = {false};
    wf_need_rank(g, n, rank);
    bool ok = stride->n == rank && (!wf_has(n, 3) || wf_int(n, 3) == 0);
    for (int k = rank - 1; ok && k >= 0; k--) { /* the dimension whose stride is the product so far */
        int hit = -1;
        for (int i = rank - 1; i >= 0 && hit < 0; i--)
            if (!used[i] && (stride->ints[i] == want || size->ints[i] == 1))
                hit = i;
        if (!(ok = hit >= 0))
            break;
        used[hit] = true;
        back[hit] = k;
        shape[k] = size->ints[hit];
        want = wf_emul(E, want, shape[k]);
    }
    if (!ok || want != wf_numel(g, X)) { /* any other: the places are counted, and read one by one */
        WfVal x = X, at = wf_dim_scalar(g, WF_I64, wf_has(n, 3) ? wf_int(n, 3) : 0);
        WfDim all = wf_numel(g, x);
        if (stride->n != rank)
            wf_fail_node(g, n, WF_E_SHAPES, "%d strides for %d dimensions", stride->n, rank);
        for (int k = 0; k < rank; k++) {
            WfVal step = wf_mul(g, wf_iota(g, WF_I64, rank, size->ints, k), wf_dim_scalar(g, WF_I64, stride->ints[k]));
            at = wf_add(g, at, step);
        }
        out[0] = wf_take_rows(g, wf_reshape(g, x, 1, &all), 0, at);
        return 1;
    }
    out[0] = wf_permute(g, wf_reshape(g, X, rank, shape), back);
    return 1;
}

/* ---- copies and the like ---- */

RULE(detach)
{
    out[0] = wf_detach(g, X);
    return 1;
}

RULE(type_as)
{
    out[0] = wf_cast(g, X, wf_dtype_of(g, wf_tensor(n, 1)));
    return 1;
}

/* self with the values of argument 1, broadcast and cast: copy and fill. */
RULE(fill)
{
    const WfValue *x = wf_value(g, X);
    WfDim shape[WF_MAX_RANK];
    int rank = x->rank;
    memcpy(shape, x->shape, sizeof shape);
    out[0] = wf_expand(g, wf_operand(g, n, 1, x->dtype), rank, shape);
    return 1;
}

RULE(zero)
{
    out[0] = wf_zeros_like(g, X);
    (void)n;
    return 1;
}

/* functionalize changes what the operand's name stands for; there is nothing to compute */
#define META(text)                                     \
    {                                                  \
        .schema = "aten." text, .family = WF_COMPOSITE \
    }

static const WfOp ops[] = {
    ROW("view(Tensor(a) self, SymInt[] size) -> Tensor(a)", view),
    ROW("view_copy(Tensor self, SymInt[] size) -> Tensor", view),
    ROW("_unsafe_view(Tensor self, SymInt[] size) -> Tensor", view),
    ROW("reshape(Tensor(a) self, SymInt[] shape) -> Tensor(a)", view),
    ROW("_reshape_alias(Tensor(a) self, SymInt[] size, SymInt[] stride) -> Tensor(a)", view),
    ROW("view_as(Tensor(a) self, Tensor other) -> Tensor(a)", view_as),
    ROW("reshape_as(Tensor(a) self, Tensor other) -> Tensor(a)", view_as),
    ROW("flatten.using_ints(Tensor(a) self, int start_dim=0, int end_dim=-1) -> Tensor(a)", flatten),
    ROW("ravel(Tensor(a) self) -> Tensor(a)", ravel),
    ROW("unflatten.int(Tensor(a) self, int dim, SymInt[] sizes) -> Tensor(a)", unflatten),
    ROW("squeeze(Tensor(a) self) -> Tensor(a)", squeeze),
    ROW("squeeze.dim(Tensor(a) self, int dim) -> Tensor(a)", squeeze_dims),
    ROW("squeeze.dims(Tensor(a) self, int[] dim) -> Tensor(a)", squeeze_dims),
    ROW("squeeze_copy(Tensor self) -> Tensor", squeeze),
    ROW("squeeze_copy.dim(Tensor self, int dim) -> Tensor", squeeze_dims),
    ROW("squeeze_copy.dims(Tensor self, int[] dim) -> Tensor", squeeze_dims),
    ROW("unsqueeze(Tensor(a) self, int dim) -> Tensor(a)", unsqueeze),
    ROW("unsqueeze_copy(Tensor self, int dim) -> Tensor", unsqueeze),
    ROW("atleast_1d(Tensor self) -> Tensor", atleast_1d),
    ROW("atleast_2d(Tensor self) -> Tensor", atleast_2d),
    ROW("atleast_3d(Tensor self) -> Tensor", atleast_3d),
    ROW("transpose.int(Tensor(a) self, int dim0, int dim1) -> Tensor(a)", transpose),
    ROW("transpose_copy.int(Tensor self, int dim0, int dim1) -> Tensor", transpose),
    ROW("swapaxes(Tensor(a) self, int axis0, int axis1) -> Tensor(a)", transpose),
    ROW("swapdims(Tensor(a) self, int dim0, int dim1) -> Tensor(a)", transpose),
    ROW("t(Tensor(a) self) -> Tensor(a)", t),
    ROW("t_copy(Tensor self) -> Tensor", t),
    ROW("mT(Tensor(a) self) -> Tensor(a)", m_transpose),
    ROW("mH(Tensor(a) self) -> Tensor(a)", m_transpose),
    ROW("adjoint(Tensor(a) self) -> Tensor(a)", m_transpose),
    ROW("matrix_H(Tensor(a) self) -> Tensor(a)", t),
    ROW("numpy_T(Tensor(a) self) -> Tensor(a)", reverse),
    ROW("permute(Tensor(a) self, int[] dims) -> Tensor(a)", permute),
    ROW("permute_copy(Tensor self, int[] dims) -> Tensor", permute),
    ROW("movedim.int(Tensor(a) self, int source, int destination) -> Tensor(a)", movedim),
    ROW("movedim.intlist(Tensor(a) self, int[] source, int[] destination) -> Tensor(a)", movedim),
    ROW("moveaxis.int(Tensor(a) self, int source, int destination) -> Tensor(a)", movedim),
    ROW("moveaxis.intlist(Tensor(a) self, int[] source, int[] destination) -> Tensor(a)", movedim),
    ROW("expand(Tensor(a) self, SymInt[] size, *, bool implicit=False) -> Tensor(a)", expand),
    ROW("expand_copy(Tensor self, SymInt[] size, *, bool implicit=False) -> Tensor", expand),
    ROW("broadcast_to(Tensor(a) self, SymInt[] size) -> Tensor(a)", expand),
    ROW("expand_as(Tensor(a) self, Tensor other) -> Tensor(a)", expand_as),
    ROW("broadcast_tensors(Tensor[] tensors) -> Tensor[]", broadcast_tensors),
    ROW("diagonal(Tensor(a) self, int offset=0, int dim1=0, int dim2=1) -> Tensor(a)", diagonal),
    ROW("linalg_diagonal(Tensor(a) A, *, int offset=0, int dim1=-2, int dim2=-1) -> Tensor(a)", diagonal),
    ROW("unfold(Tensor(a) self, int dimension, int size, int step) -> Tensor(a)", unfold),
    ROW("as_strided(Tensor(a) self, SymInt[] size, SymInt[] stride, SymInt? storage_offset=None) -> "
        "Tensor(a)",
        as_strided),
    ROW("as_strided_copy(Tensor self, SymInt[] size, SymInt[] stride, SymInt? storage_offset=None) -> Tensor", as_strided),
    ROW("unfold_copy(Tensor self, int dimension, int size, int step) -> Tensor", unfold),
    ROW("diagonal_copy(Tensor self, int offset=0, int dim1=0, int dim2=1) -> Tensor", diagonal),
    ROW("contiguous(Tensor(a) self, *, MemoryFormat memory_format=0) -> Tensor(a)", same),
    ROW("clone(Tensor self, *, MemoryFormat? memory_format=None) -> Tensor", same),
    ROW("alias(Tensor(a) self) -> Tensor(a)", same),
    ROW("alias_copy(Tensor self) -> Tensor", same),
    ROW("lift(Tensor self) -> Tensor", same),
    ROW("lift_fresh(Tensor(a) self) -> Tensor(a)", same),
    ROW("lift_fresh_copy(Tensor self) -> Tensor", same),
    ROW("conj(Tensor(a) self) -> Tensor(a)", same),
    ROW("resolve_conj(Tensor(a) self) -> Tensor(a)", same),
    ROW("resolve_neg(Tensor(a) self) -> Tensor(a)", same),
    ROW("detach(Tensor(a) self) -> Tensor(a)", detach),
    ROW("detach_copy(Tensor self) -> Tensor", detach),
    ROW("type_as(Tensor self, Tensor other) -> Tensor", type_as),
    ROW("copy(Tensor self, Tensor src, bool non_blocking=False) -> Tensor", fill),
    ROW("fill.Scalar(Tensor self, Scalar value) -> Tensor", fill),
    ROW("fill.Tensor(Tensor self, Tensor value) -> Tensor", fill),
    ROW("zero(Tensor self) -> Tensor", zero),
    META("squeeze_(Tensor(a!) self) -> Tensor(a!)"),
    META("squeeze_.dim(Tensor(a!) self, int dim) -> Tensor(a!)"),
    META("squeeze_.dims(Tensor(a!) self, int[] dim) -> Tensor(a!)"),
    META("unsqueeze_(Tensor(a!) self, int dim) -> Tensor(a!)"),
    {.schema = "aten.transpose_(Tensor(a!) self, int dim0, int dim1) -> Tensor(a!)",
     .family = WF_COMPOSITE,
     .functional = "aten.transpose.int"},
    META("swapaxes_(Tensor(a!) self, int axis0, int axis1) -> Tensor(a!)"),
    META("swapdims_(Tensor(a!) self, int dim0, int dim1) -> Tensor(a!)"),
    META("t_(Tensor(a!) self) -> Tensor(a!)"),
    META("detach_(Tensor(a!) self) -> Tensor(a!)"),
    {0}};

void wf_ops_aten_view(void)
{
    wf_register(ops);
}
