/* ATen's ops that join, pad, repeat and rearrange: expansions into view primitives, like aten_view.c. */
#include "ops/aten_view.h"

#include <string.h>

#define E          (g->exprs)
#define X          wf_tensor(n, 0)
#define RULE(name) static int name(WfGraph *g, const WfNode *n, WfVal *out)

static int give(WfVal *out, WfVal v)
{
    out[0] = v;
    return 1;
}

/* ---- joining ---- */

static bool is_nothing(WfGraph *g, WfVal v) /* torch.cat skips tensors of shape [0] */
{
    return wf_rank_of(g, v) == 1 && wf_size_of(g, v, 0) == 0;
}

/* Promotes to one dtype; `skip` leaves out empty vectors, as torch.cat does. Returns the number of tensors.
 */
static int collect(WfGraph *g, const WfNode *n, bool skip, WfVal *v)
{
    const WfArg *a = &n->args[0];
    WfDtype t = 0;
    int k = 0;
    if (!a->n || a->n > WF_MAX_RESULTS)
        wf_fail_node(g, n, a->n ? WF_E_OP_FORM : WF_E_SHAPES, "%d tensors to join", a->n);
    for (int i = 0; i < a->n; i++)
        t = wf_promote_types(t, wf_dtype_of(g, a->vals[i]));
    for (int i = 0; i < a->n; i++)
        if (!skip || !is_nothing(g, a->vals[i]) || (i == a->n - 1 && !k))
            v[k++] = wf_cast(g, a->vals[i], t);
    return k;
}

static WfVal join(WfGraph *g, const WfNode *n, const WfVal *v, int k, int dim)
{
    if (!wf_rank_of(g, v[0]))
        wf_fail_node(g, n, WF_E_SHAPES, "numbers cannot be joined");
    return wf_cat(g, v, k, dim);
}

RULE(cat)
{
    WfVal v[WF_MAX_RESULTS];
    int k = collect(g, n, true, v);
    return give(out, join(g, n, v, k, wf_dim_arg(g, n, 1, wf_rank_of(g, v[0]))));
}

RULE(stack)
{
    WfVal v[WF_MAX_RESULTS];
    int k = collect(g, n, false, v), rank = wf_rank_of(g, v[0]) + 1, dim = wf_dim_arg(g, n, 1, rank);
    wf_need_rank(g, n, rank);
    for (int i = 0; i < k; i++) {
        if (wf_rank_of(g, v[i]) != rank - 1)
            wf_fail_node(g, n, WF_E_SHAPES, "the tensors differ in shape");
        v[i] = wf_unsqueeze(g, v[i], dim);
    }
    return give(out, join(g, n, v, k, dim));
}

static int stack_along(WfGraph *g, const WfNode *n, WfVal *out, int rank, int dim)
{
    WfVal v[WF_MAX_RESULTS];
    int k = collect(g, n, false, v);
    for (int i = 0; i < k; i++)
        v[i] = wf_atleast(g, v[i], rank);
    if (dim < 0) /* hstack: columns, but vectors end to end */
        dim = wf_rank_of(g, v[0]) == 1 ? 0 : 1;
    return give(out, join(g, n, v, k, dim));
}

RULE(hstack)
{
    return stack_along(g, n, out, 1, -1);
}
RULE(vstack)
{
    return stack_along(g, n, out, 2, 0);
}
RULE(dstack)
{
    return stack_along(g, n, out, 3, 2);
}

RULE(column_stack)
{
    WfVal v[WF_MAX_RESULTS];
    int k = collect(g, n, false, v);
    for (int i = 0; i < k; i++)
        if (wf_rank_of(g, v[i]) < 2)
            v[i] = wf_unsqueeze(g, wf_atleast(g, v[i], 1), 1);
    return give(out, join(g, n, v, k, 1));
}

RULE(block_diag)
{
    WfVal v[WF_MAX_RESULTS];
    int k = collect(g, n, false, v);
    WfDim width = 0, at = 0;
    for (int i = 0; i < k; i++) {
        v[i] = wf_atleast(g, v[i], 2);
        if (wf_rank_of(g, v[i]) != 2)
            wf_fail_node(g, n, WF_E_SHAPES, "matrices are needed");
        width = wf_eadd(E, width, wf_size_of(g, v[i], 1));
    }
    for (int i = 0; i < k; i++) {
        WfDim w = wf_size_of(g, v[i], 1), end = wf_eadd(E, at, w);
        v[i] = wf_pad_dim(g, v[i], 1, at, wf_esub(E, width, end), 0);
        at = end;
    }
    return give(out, join(g, n, v, k, 0));
}

RULE(meshgrid)
{
    const WfArg *a = &n->args[0];
    bool swap = n->schema->n_params > 1 && n->args[1].kind == WF_ARG_STRING && !strcmp(n->args[1].s, "xy") &&
                a->n > 1;
    WfDim shape[WF_MAX_RANK];
    wf_need_rank(g, n, a->n);
    for (int i = 0; i < a->n; i++) {
        if (wf_rank_of(g, a->vals[i]) > 1)
            wf_fail_node(g, n, WF_E_SHAPES, "vectors are needed");
        int at = swap && i < 2 ? 1 - i : i;
        shape[at] = wf_numel(g, a->vals[i]);
    }
    for (int i = 0; i < a->n; i++) {
        WfDim own[WF_MAX_RANK];
        int at = swap && i < 2 ? 1 - i : i;
        for (int d = 0; d < a->n; d++)
            own[d] = d == at ? shape[at] : 1;
        out[i] = wf_expand(g, wf_reshape(g, a->vals[i], a->n, own), a->n, shape);
    }
    return a->n;
}

/* ---- flips, rolls, repeats ---- */

RULE(flip)
{
    int dims[WF_MAX_RANK], rank = wf_rank_of(g, X), k = 0;
    const WfArg *a = &n->args[1];
    uint32_t seen = 0;
    for (int i = 0; i < a->n; i++) {
        int d = wf_dim_index(g, n, a->ints[i], rank);
        if (seen >> d & 1)
            wf_fail_node(g, n, WF_E_SHAPES, "a dimension is named twice");
        seen |= 1u << d;
        if (rank)
            dims[k++] = d;
    }
    return give(out, k ? wf_flip(g, X, dims, k) : X);
}

static int flip_one(WfGraph *g, const WfNode *n, WfVal *out, int dim)
{
    if (wf_rank_of(g, X) <= dim)
        wf_fail_node(g, n, WF_E_SHAPES, "too few dimensions");
    return give(out, wf_flip(g, X, &dim, 1));
}

RULE(fliplr)
{
    return flip_one(g, n, out, 1);
}
RULE(flipud)
{
    return flip_one(g, n, out, 0);
}

static WfVal roll_dim(WfGraph *g, WfVal v, int dim, WfDim shift)
{
    WfDim size = wf_size_of(g, v, dim);
    if (size == 0)
        return v;
    WfDim cut = wf_esub(E, size, wf_emod(E, shift, size));
    if (cut == size)
        return v;
    WfVal part[2] = {wf_slice(g, v, dim, cut, size, 1), wf_slice(g, v, dim, 0, cut, 1)};
    return wf_cat(g, part, 2, dim);
}

RULE(roll)
{
    const WfArg *s = &n->args[1], *d = &n->args[2];
    const WfValue *x = wf_value(g, X);
    WfVal v = X;
    if (!d->n && s->n == 1) {
        WfDim flat[1] = {wf_numel(g, X)};
        return give(out,
                    wf_reshape(g, roll_dim(g, wf_reshape(g, X, 1, flat), 0, s->ints[0]), x->rank, x->shape));
    }
    if (s->n != d->n)
        wf_fail_node(g, n, WF_E_SHAPES, "every dimension needs a shift");
    for (int i = 0; i < d->n && x->rank; i++)
        v = roll_dim(g, v, wf_dim_index(g, n, d->ints[i], x->rank), s->ints[i]);
    return give(out, v);
}

RULE(rot90)
{
    int rank = wf_rank_of(g, X);
    const WfArg *d = &n->args[2];
    if (d->n != 2 || rank < 2)
        wf_fail_node(g, n, WF_E_SHAPES, "two dimensions are needed");
    int a = wf_dim_index(g, n, d->ints[0], rank), b = wf_dim_index(g, n, d->ints[1], rank), both[2] = {a, b};
    if (a == b)
        wf_fail_node(g, n, WF_E_SHAPES, "the two dimensions must differ");
    switch (((wf_lit(g, n, 1) % 4) + 4) % 4) {
    case 1:
        return give(out, wf_transpose(g, wf_flip(g, X, &b, 1), a, b));
    case 2:
        return give(out, wf_flip(g, X, both, 2));
    case 3:
        return give(out, wf_transpose(g, wf_flip(g, X, &a, 1), a, b));
    default:
        return give(out, X);
    }
}

/* Dimension dim becomes times * size: whole copies one after the other, or each element `times` times. */
static WfVal repeat_dim(WfGraph *g, const WfNode *n, WfVal v, int dim, WfDim times, bool each)
{
    const WfValue *x = wf_value(g, v);
    WfDim shape[WF_MAX_RANK + 1], flat[WF_MAX_RANK];
    int rank = x->rank, at = each ? dim + 1 : dim;
    if (times == 1)
        return v;
    if (!wf_eprove_ge0(E, times))
        wf_fail_node(g, n, WF_E_SHAPES, "a tensor cannot be repeated a negative number of times");
    memcpy(flat, x->shape, sizeof flat);
    flat[dim] = wf_emul(E, flat[dim], times);
    if (x->shape[dim] == 1)
        return wf_expand(g, v, rank, flat);
    wf_need_rank(g, n, rank + 1);
    for (int i = 0, k = 0; i <= rank; i++)
        shape[i] = i == at ? times : x->shape[k++];
    return wf_reshape(g, wf_expand(g, wf_unsqueeze(g, v, at), rank + 1, shape), rank, flat);
}

RULE(repeat)
{
    const WfArg *a = &n->args[1];
    const WfValue *x = wf_value(g, X);
    bool tile = strstr(n->schema->name, "tile") != NULL;
    int rank = a->n > x->rank ? a->n : x->rank, lead = rank - x->rank;
    WfDim shape[WF_MAX_RANK];
    wf_need_rank(g, n, rank);
    if (a->n < x->rank && !tile)
        wf_fail_node(g, n, WF_E_SHAPES, "every dimension needs a count");
    for (int i = 0; i < rank; i++)
        shape[i] = i < lead ? 1 : x->shape[i - lead];
    WfVal v = wf_reshape(g, X, rank, shape);
    for (int i = 0; i < a->n; i++)
        v = repeat_dim(g, n, v, rank - a->n + i, a->ints[i], false);
    return give(out, v);
}

RULE(repeat_interleave)
{
    WfVal v = X;
    int dim = 0;
    if (wf_has(n, 2) && wf_rank_of(g, X)) {
        dim = wf_dim_arg(g, n, 2, wf_rank_of(g, X));
    } else {
        WfDim flat[1] = {wf_numel(g, X)};
        v = wf_reshape(g, X, 1, flat);
    }
    return give(out, repeat_dim(g, n, v, dim, wf_int(n, 1), true));
}

/* ---- padding: pairs of amounts from the last dimension on ---- */

/* Checks the list and gives the number of padded dimensions. */
static int pad_pairs(WfGraph *g, const WfNode *n)
{
    const WfArg *p = &n->args[1];
    if (p->n % 2 || p->n / 2 > wf_rank_of(g, X))
        wf_fail_node(g, n, WF_E_SHAPES, "%d pad amounts for %d dimensions", p->n, wf_rank_of(g, X));
    return p->n / 2;
}

static WfVal pad_constant(WfGraph *g, const WfNode *n, double value)
{
    WfDim lo[WF_MAX_RANK] = {0}, hi[WF_MAX_RANK] = {0};
    int k = pad_pairs(g, n), rank = wf_rank_of(g, X);
    for (int i = 0; i < k; i++) {
        lo[rank - 1 - i] = n->args[1].ints[2 * i];
        hi[rank - 1 - i] = n->args[1].ints[2 * i + 1];
    }
    for (int i = 0; i < rank; i++) {
        WfDim size = wf_eadd(E, wf_size_of(g, X, i), wf_eadd(E, lo[i], hi[i]));
        if (!wf_eprove_ge0(E, size))
            wf_fail_node(g, n, WF_E_SHAPES, "a dimension would get a negative size");
    }
    return rank ? wf_pad(g, X, lo, hi, value) : X;
}

/* The edges of one dimension: mirrored without the border, or the border itself, or the other end. Negative
 * amounts crop first. */
static WfVal pad_edge(WfGraph *g, const WfNode *n, WfVal v, int dim, WfDim lo, WfDim hi, char mode)
{
    WfDim size = wf_size_of(g, v, dim), from = 0, to = size, zero = 0;
    WfVal part[3];
    int k = 0;
    if (!wf_eprove_ge0(E, lo)) {
        from = wf_esub(E, 0, lo);
        lo = 0;
    }
    if (!wf_eprove_ge0(E, hi)) {
        to = wf_eadd(E, size, hi);
        hi = 0;
    }
    if (!wf_eprove_ge0(E, from) || !wf_eprove_le(E, from, to) || !wf_eprove_le(E, to, size))
        wf_fail_node(g, n, WF_E_SHAPES, "nothing is left of dimension %d", dim);
    v = wf_slice(g, v, dim, from, to, 1);
    size = wf_esub(E, to, from);
    WfDim need = mode == 'e' ? 1 : mode == 'r' ? wf_eadd(E, wf_emax(E, lo, hi), 1) : wf_emax(E, lo, hi);
    if ((lo != 0 || hi != 0) && wf_eprove_lt(E, size, need))
        wf_fail_node(g, n, WF_E_SHAPES, "dimension %d is too small to be padded so far", dim);
    if (lo != 0)
        part[k++] = mode == 'r'   ? wf_flip(g, wf_slice(g, v, dim, 1, wf_eadd(E, lo, 1), 1), &dim, 1)
                    : mode == 'e' ? repeat_dim(g, n, wf_slice(g, v, dim, zero, 1, 1), dim, lo, false)
                                  : wf_slice(g, v, dim, wf_esub(E, size, lo), size, 1);
    part[k++] = v;
    WfDim last = wf_esub(E, size, 1);
    if (hi != 0)
        part[k++] = mode == 'r'   ? wf_flip(g, wf_slice(g, v, dim, wf_esub(E, last, hi), last, 1), &dim, 1)
                    : mode == 'e' ? repeat_dim(g, n, wf_slice(g, v, dim, last, size, 1), dim, hi, false)
                                  : wf_slice(g, v, dim, zero, hi, 1);
    return wf_cat(g, part, k, dim);
}

static WfVal pad_edges(WfGraph *g, const WfNode *n, char mode)
{
    int k = pad_pairs(g, n), rank = wf_rank_of(g, X);
    WfVal v = X;
    for (int i = 0; i < k; i++)
        v = pad_edge(g, n, v, rank - 1 - i, n->args[1].ints[2 * i], n->args[1].ints[2 * i + 1], mode);
    return v;
}

RULE(pad)
{
    const char *mode = n->args[2].kind == WF_ARG_STRING ? n->args[2].s : "constant";
    if (!strcmp(mode, "constant"))
        return give(out, pad_constant(g, n, wf_has(n, 3) ? wf_float(g, n, 3) : 0));
    if (!strcmp(mode, "reflect"))
        return give(out, pad_edges(g, n, 'r'));
    if (!strcmp(mode, "replicate"))
        return give(out, pad_edges(g, n, 'e'));
    if (!strcmp(mode, "circular"))
        return give(out, pad_edges(g, n, 'c'));
    wf_fail_node(g, n, WF_E_SHAPES, "no way of padding is called '%s'", mode);
}

RULE(constant_pad)
{
    return give(out, pad_constant(g, n, wf_float(g, n, 2)));
}
RULE(reflection_pad)
{
    return give(out, pad_edges(g, n, 'r'));
}
RULE(replication_pad)
{
    return give(out, pad_edges(g, n, 'e'));
}

/* ---- triangles and diagonals ---- */

/* column - row of the last two dimensions, i64 of the matrix's shape */
static WfVal above(WfGraph *g, WfDim rows, WfDim columns)
{
    WfDim shape[2] = {rows, columns};
    return wf_sub(g, wf_iota(g, WF_I64, 2, shape, 1), wf_iota(g, WF_I64, 2, shape, 0));
}

static int triangle(WfGraph *g, const WfNode *n, WfVal *out, const char *keep)
{
    int rank = wf_rank_of(g, X);
    if (rank < 2)
        wf_fail_node(g, n, WF_E_SHAPES, "a matrix is needed");
    WfVal d = above(g, wf_size_of(g, X, -2), wf_size_of(g, X, -1));
    WfVal hit = wf_binary(g, keep, d, wf_dim_scalar(g, WF_I64, wf_int(n, 1)));
    return give(out, wf_where(g, hit, X, wf_like(g, X, 0)));
}

RULE(tril)
{
    return triangle(g, n, out, "prim.le");
}
RULE(triu)
{
    return triangle(g, n, out, "prim.ge");
}

/* Where column - row == offset. */
static WfVal on_diagonal(WfGraph *g, WfDim rows, WfDim columns, int64_t offset)
{
    return wf_binary(g, "prim.eq", above(g, rows, columns), wf_dim_scalar(g, WF_I64, wf_econst(E, offset)));
}

/* [..., L] along the diagonal of a matrix in new dimensions dim1, dim2. */
static WfVal embed(WfGraph *g, const WfNode *n, WfVal v, int64_t offset, int dim1, int dim2)
{
    int rank = wf_rank_of(g, v), perm[WF_MAX_RANK], k = 0;
    wf_need_rank(g, n, rank + 1);
    if (offset < -(INT64_C(1) << 40) || offset > (INT64_C(1) << 40))
        wf_fail_node(g, n, WF_E_SHAPES, "the offset of the diagonal is too large");
    int64_t extra = offset < 0 ? -offset : offset;
    v = wf_pad_dim(g, v, rank - 1, 0, extra, 0); /* indexed by the row above, by the column below */
    WfDim side = wf_size_of(g, v, -1);
    WfVal m = wf_where(g, on_diagonal(g, side, side, offset),
                       wf_unsqueeze(g, v, offset < 0 ? rank - 1 : rank), wf_like(g, v, 0));
    for (int i = 0; i <= rank; i++)
        perm[i] = i == dim1 ? rank - 1 : i == dim2 ? rank : k++;
    return wf_permute(g, m, perm);
}

RULE(diag_embed)
{
    int rank = wf_rank_of(g, X) + 1, a, b;
    if (rank < 2)
        wf_fail_node(g, n, WF_E_SHAPES, "a vector is needed");
    a = wf_dim_arg(g, n, 2, rank);
    b = wf_dim_arg(g, n, 3, rank);
    if (a == b)
        wf_fail_node(g, n, WF_E_SHAPES, "the two dimensions must differ");
    return give(out, embed(g, n, X, wf_lit(g, n, 1), a, b));
}

RULE(diag)
{
    int rank = wf_rank_of(g, X);
    if (rank != 1 && rank != 2)
        wf_fail_node(g, n, WF_E_SHAPES, "a vector or a matrix is needed");
    int64_t offset = wf_lit(g, n, 1);
    return give(out, rank == 1 ? embed(g, n, X, offset, 0, 1) : wf_diagonal(g, n, X, offset, 0, 1));
}

RULE(diagonal_scatter)
{
    int rank = wf_rank_of(g, X), a = wf_dim_arg(g, n, 3, rank), b = wf_dim_arg(g, n, 4, rank);
    int to[WF_MAX_RANK], back[WF_MAX_RANK], k = 0;
    if (rank < 2 || a == b)
        wf_fail_node(g, n, WF_E_SHAPES, "two dimensions are needed");
    for (int i = 0; i < rank; i++)
        if (i != a && i != b)
            to[k++] = i;
    to[k++] = a;
    to[k] = b;
    for (int i = 0; i < rank; i++)
        back[to[i]] = i;
    WfVal x = wf_permute(g, X, to), src = wf_operand(g, n, 1, wf_dtype_of(g, X));
    WfDim rows = wf_size_of(g, x, -2), columns = wf_size_of(g, x, -1);
    int64_t offset = wf_lit(g, n, 2);
    WfVal m =
        embed(g, n, src, offset, rank - 2, rank - 1); /* at least as large as needed in both dimensions */
    WfDim lo[WF_MAX_RANK] = {0}, hi[WF_MAX_RANK] = {0};
    hi[rank - 2] = wf_esub(E, rows, wf_size_of(g, m, -2));
    hi[rank - 1] = wf_esub(E, columns, wf_size_of(g, m, -1));
    m = wf_pad(g, m, lo, hi, 0);
    return give(out, wf_permute(g, wf_where(g, on_diagonal(g, rows, columns, offset), m, x), back));
}

static const WfOp ops[] = {
    ROW("cat(Tensor[] tensors, int dim=0) -> Tensor", cat),
    ROW("concat(Tensor[] tensors, int dim=0) -> Tensor", cat),
    ROW("concatenate(Tensor[] tensors, int dim=0) -> Tensor", cat),
    ROW("stack(Tensor[] tensors, int dim=0) -> Tensor", stack),
    ROW("hstack(Tensor[] tensors) -> Tensor", hstack),
    ROW("vstack(Tensor[] tensors) -> Tensor", vstack),
    ROW("dstack(Tensor[] tensors) -> Tensor", dstack),
    ROW("column_stack(Tensor[] tensors) -> Tensor", column_stack),
    ROW("block_diag(Tensor[] tensors) -> Tensor", block_diag),
    ROW("meshgrid(Tensor[] tensors) -> Tensor[]", meshgrid),
    ROW("meshgrid.indexing(Tensor[] tensors, *, str indexing) -> Tensor[]", meshgrid),
    ROW("flip(Tensor self, int[] dims) -> Tensor", flip),
    ROW("fliplr(Tensor self) -> Tensor", fliplr),
    ROW("flipud(Tensor self) -> Tensor", flipud),
    ROW("roll(Tensor self, SymInt[1] shifts, int[1] dims=[]) -> Tensor", roll),
    ROW("rot90(Tensor self, int k=1, int[] dims=[0, 1]) -> Tensor", rot90),
    ROW("repeat(Tensor self, SymInt[] repeats) -> Tensor", repeat),
    ROW("tile(Tensor self, SymInt[] dims) -> Tensor", repeat),
    ROW("repeat_interleave.self_int(Tensor self, SymInt repeats, int? dim=None, *, SymInt? output_size=None) "
        "-> "
        "Tensor",
        repeat_interleave),
    ROW("pad(Tensor self, SymInt[] pad, str mode=\"constant\", float? value=None) -> Tensor", pad),
    ROW("constant_pad_nd(Tensor self, SymInt[] pad, Scalar value=0) -> Tensor", constant_pad),
    ROW("reflection_pad1d(Tensor self, SymInt[2] padding) -> Tensor", reflection_pad),
    ROW("reflection_pad2d(Tensor self, SymInt[4] padding) -> Tensor", reflection_pad),
    ROW("reflection_pad3d(Tensor self, SymInt[6] padding) -> Tensor", reflection_pad),
    ROW("replication_pad1d(Tensor self, SymInt[2] padding) -> Tensor", replication_pad),
    ROW("replication_pad2d(Tensor self, SymInt[4] padding) -> Tensor", replication_pad),
    ROW("replication_pad3d(Tensor self, SymInt[6] padding) -> Tensor", replication_pad),
    ROW("tril(Tensor self, SymInt diagonal=0) -> Tensor", tril),
    ROW("triu(Tensor self, SymInt diagonal=0) -> Tensor", triu),
    ROW("diag_embed(Tensor self, int offset=0, int dim1=-2, int dim2=-1) -> Tensor", diag_embed),
    ROW("diag(Tensor self, int diagonal=0) -> Tensor", diag),
    ROW("diagonal_scatter(Tensor self, Tensor src, int offset=0, int dim1=0, int dim2=1) -> Tensor",
        diagonal_scatter),
    {0}};

void wf_ops_aten_join(void)
{
    wf_register(ops);
}
