/* ATen's ops that take parts of a dimension: slices, and splits into several. Bounds may be negative, out of
 * range, and symbolic: all of that is settled here, and primitives only see proper ranges. */
#include "ops/aten_view.h"

#define E          (g->exprs)
#define X          wf_tensor(n, 0)
#define RULE(name) static int name(WfGraph *g, const WfNode *n, WfVal *out)

/* Negative numbers count from the end. Their sign must be known. */
static WfDim wrap(WfGraph *g, const WfNode *n, WfDim v, WfDim size)
{
    if (wf_eprove_ge0(E, v))
        return v;
    if (wf_eprove_lt(E, v, 0))
        return wf_eadd(E, v, size);
    wf_fail_node(g, n, WF_E_OP_FORM,
                 "an index may be negative or not, depending on the input's size");
}

static WfDim clamp(WfGraph *g, WfDim v, WfDim size)
{
    int64_t lit;
    if (wf_elit(E, v, &lit) && lit >= INT64_MAX / 2)
        return size;
    if (!wf_eprove_ge0(E, v))
        v = wf_eprove_lt(E, v, 1) ? 0 : wf_emax(E, v, 0);
    return wf_eprove_le(E, v, size) ? v : wf_eprove_le(E, size, v) ? size : wf_emin(E, v, size);
}

WfRange wf_slice_range(WfGraph *g, const WfNode *n, int start, int end, int step, WfDim size)
{
    WfRange r = {0, size, wf_lit(g, n, step)};
    int64_t lit;
    if (r.step < 1)
        wf_fail_node(g, n, WF_E_SHAPES, "the step of a slice must be positive");
    if (wf_has(n, start))
        r.start = clamp(g, wrap(g, n, wf_int(n, start), size), size);
    if (wf_has(n, end) && !(wf_elit(E, wf_int(n, end), &lit) && lit >= INT64_MAX / 2))
        r.end = clamp(g, wrap(g, n, wf_int(n, end), size), size);
    if (!wf_eprove_le(E, r.start, r.end))
        r.end = wf_eprove_le(E, r.end, r.start) ? r.start : wf_emax(E, r.start, r.end);
    return r;
}

WfDim wf_select_index(WfGraph *g, const WfNode *n, int arg, WfDim size)
{
    WfDim i = wrap(g, n, wf_int(n, arg), size);
    if (!wf_eprove_ge0(E, i) || wf_eprove_le(E, size, i))
        wf_fail_node(g, n, WF_E_SHAPES, "the index is out of range");
    return i;
}

static int need_dim(WfGraph *g, const WfNode *n, int arg)
{
    int rank = wf_rank_of(g, X);
    if (!rank)
        wf_fail_node(g, n, WF_E_SHAPES, "a number has no dimensions");
    return wf_dim_arg(g, n, arg, rank);
}

RULE(slice)
{
    int dim = wf_dim_arg(g, n, 1, wf_rank_of(g, X));
    if (!wf_rank_of(g, X))
        wf_fail_node(g, n, WF_E_SHAPES, "a number cannot be sliced");
    WfRange r = wf_slice_range(g, n, 2, 3, 4, wf_size_of(g, X, dim));
    out[0] = wf_slice(g, X, dim, r.start, r.end, r.step);
    return 1;
}

RULE(narrow)
{
    int dim = need_dim(g, n, 1);
    WfDim size = wf_size_of(g, X, dim), start = wrap(g, n, wf_int(n, 2), size),
          end = wf_eadd(E, start, wf_int(n, 3));
    if (!wf_eprove_ge0(E, wf_int(n, 3)) || !wf_eprove_ge0(E, start) || wf_eprove_lt(E, size, end))
        wf_fail_node(g, n, WF_E_SHAPES, "the range is outside the dimension");
    out[0] = wf_slice(g, X, dim, start, end, 1);
    return 1;
}

RULE(select_int)
{
    int dim = need_dim(g, n, 1);
    WfDim i = wf_select_index(g, n, 2, wf_size_of(g, X, dim));
    out[0] = wf_squeeze(g, wf_slice(g, X, dim, i, wf_eadd(E, i, 1), 1), dim);
    return 1;
}

RULE(select_scatter)
{
    int dim = need_dim(g, n, 2);
    WfDim i = wf_select_index(g, n, 3, wf_size_of(g, X, dim));
    WfVal src = wf_operand(g, n, 1, wf_dtype_of(g, X));
    if (wf_rank_of(g, src) != wf_rank_of(g, X) - 1)
        wf_fail_node(g, n, WF_E_SHAPES, "the source does not fit");
    out[0] = wf_slice_scatter(g, X, wf_unsqueeze(g, src, dim), dim, i, wf_eadd(E, i, 1), 1);
    return 1;
}

RULE(slice_scatter)
{
    int dim = need_dim(g, n, 2);
    WfRange r = wf_slice_range(g, n, 3, 4, 5, wf_size_of(g, X, dim));
    WfVal part = wf_slice(g, X, dim, r.start, r.end, r.step), src = wf_operand(g, n, 1, wf_dtype_of(g, X));
    out[0] = wf_slice_scatter(g, X, wf_expand_like(g, src, part), dim, r.start, r.end, r.step);
    return 1;
}

/* ---- pieces ---- */

/* `count` pieces between bounds, all but the last of `step` elements. */
static int pieces(WfGraph *g, const WfNode *n, int dim, int64_t count, WfDim step, WfVal *out)
{
    WfDim at = 0, size = wf_size_of(g, X, dim);
    if (count < 1 || count > WF_MAX_RESULTS)
        wf_fail_node(g, n, WF_E_OP_FORM, "%lld pieces (Weft goes up to %d)", (long long)count,
                     WF_MAX_RESULTS);
    for (int i = 0; i < count; i++) {
        WfDim end = i == count - 1 ? size : wf_eadd(E, at, step);
        out[i] = wf_slice(g, X, dim, at, end, 1);
        at = end;
    }
    return (int)count;
}

static int64_t fixed_count(WfGraph *g, const WfNode *n, WfDim size, WfDim step)
{
    int64_t count, v;
    if (wf_elit(E, step, &v) && v < 1) {
        if (wf_elit(E, size, &v) && v == 0)
            return 1;
        wf_fail_node(g, n, WF_E_SHAPES, "the size of a piece must be positive");
    }
    WfDim c = wf_efloordiv(E, wf_eadd(E, size, wf_esub(E, step, 1)), step);
    if (!wf_elit(E, c, &count))
        wf_fail_node(g, n, WF_E_OP_FORM, "the number of pieces depends on the input's size");
    return count ? count : 1;
}

RULE(split)
{
    int dim = need_dim(g, n, 2);
    WfDim step = wf_int(n, 1);
    return pieces(g, n, dim, fixed_count(g, n, wf_size_of(g, X, dim), step), step, out);
}

RULE(split_sizes)
{
    const WfArg *a = &n->args[1];
    int dim = need_dim(g, n, 2);
    WfDim at = 0;
    if (a->n > WF_MAX_RESULTS)
        wf_fail_node(g, n, WF_E_OP_FORM, "%d pieces (Weft goes up to %d)", a->n, WF_MAX_RESULTS);
    for (int i = 0; i < a->n; i++) {
        if (!wf_eprove_ge0(E, a->ints[i]))
            wf_fail_node(g, n, WF_E_SHAPES, "a piece has a negative size");
        WfDim end = wf_eadd(E, at, a->ints[i]);
        out[i] = wf_slice(g, X, dim, at, end, 1);
        at = end;
    }
    if (at != wf_size_of(g, X, dim))
        wf_fail_node(g, n, WF_E_SHAPES, "the pieces do not add up to the dimension");
    return a->n;
}

RULE(chunk)
{
    int dim = need_dim(g, n, 2);
    int64_t chunks = wf_lit(g, n, 1);
    WfDim size = wf_size_of(g, X, dim);
    if (chunks < 1)
        wf_fail_node(g, n, WF_E_SHAPES, "the number of pieces must be positive");
    WfDim step = wf_efloordiv(E, wf_eadd(E, size, chunks - 1), chunks), even = wf_efloordiv(E, size, chunks);
    if (wf_emul(E, even, chunks) == size && even != 0)
        return pieces(g, n, dim, chunks, even, out);
    if (size == 0)
        return pieces(g, n, dim, chunks, 0, out);
    return pieces(g, n, dim, fixed_count(g, n, size, step), step, out);
}

RULE(tensor_split)
{
    int dim = need_dim(g, n, 2);
    int64_t k = wf_lit(g, n, 1);
    WfDim size = wf_size_of(g, X, dim), at = 0;
    if (k < 1 || k > WF_MAX_RESULTS)
        wf_fail_node(g, n, WF_E_SHAPES, "%lld pieces", (long long)k);
    WfDim small = wf_efloordiv(E, size, k), more = wf_emod(E, size, k);
    for (int i = 0; i < k; i++) { /* the first size % k pieces are one longer */
        WfDim extra = wf_emin(E, 1, wf_emax(E, 0, wf_esub(E, more, i)));
        WfDim end = wf_eadd(E, at, wf_eadd(E, small, extra));
        out[i] = wf_slice(g, X, dim, at, i == k - 1 ? size : end, 1);
        at = end;
    }
    return (int)k;
}

RULE(tensor_split_at)
{
    const WfArg *a = &n->args[1];
    int dim = need_dim(g, n, 2);
    WfDim size = wf_size_of(g, X, dim), at = 0;
    if (a->n >= WF_MAX_RESULTS)
        wf_fail_node(g, n, WF_E_OP_FORM, "%d pieces (Weft goes up to %d)", a->n + 1, WF_MAX_RESULTS);
    for (int i = 0; i <= a->n; i++) {
        WfDim next = i < a->n ? clamp(g, wrap(g, n, a->ints[i], size), size) : size;
        WfDim end = wf_eprove_le(E, at, next) ? next : wf_eprove_le(E, next, at) ? at : wf_emax(E, at, next);
        out[i] = wf_slice(g, X, dim, at, end, 1);
        at = next;
    }
    return a->n + 1;
}

static int split_fixed(WfGraph *g, const WfNode *n, WfVal *out, int dim)
{
    int64_t k = wf_lit(g, n, 1);
    WfDim size = wf_size_of(g, X, dim), even = k > 0 ? wf_efloordiv(E, size, k) : 0;
    if (k < 1 || wf_emul(E, even, k) != size)
        wf_fail_node(g, n, WF_E_SHAPES, "the dimension is not a multiple of the number of pieces");
    return pieces(g, n, dim, k, even, out);
}

RULE(hsplit)
{
    int rank = wf_rank_of(g, X);
    if (!rank)
        wf_fail_node(g, n, WF_E_SHAPES, "a number cannot be split");
    return split_fixed(g, n, out, rank == 1 ? 0 : 1);
}

RULE(vsplit)
{
    if (wf_rank_of(g, X) < 2)
        wf_fail_node(g, n, WF_E_SHAPES, "two dimensions are needed");
    return split_fixed(g, n, out, 0);
}

RULE(unbind)
{
    int dim = need_dim(g, n, 1);
    int64_t k;
    if (!wf_elit(E, wf_size_of(g, X, dim), &k))
        wf_fail_node(g, n, WF_E_OP_FORM, "the number of pieces depends on the input's size");
    if (k > WF_MAX_RESULTS)
        wf_fail_node(g, n, WF_E_OP_FORM, "%lld pieces (Weft goes up to %d)", (long long)k,
                     WF_MAX_RESULTS);
    for (int i = 0; i < k; i++)
        out[i] = wf_squeeze(g, wf_slice(g, X, dim, i, i + 1, 1), dim);
    return (int)k;
}

static const WfOp ops[] = {
    ROW("slice.Tensor(Tensor(a) self, int dim=0, SymInt? start=None, SymInt? end=None, SymInt step=1) -> "
        "Tensor(a)",
        slice),
    ROW("slice_copy.Tensor(Tensor self, int dim=0, SymInt? start=None, SymInt? end=None, SymInt step=1) -> "
        "Tensor",
        slice),
    ROW("narrow(Tensor(a) self, int dim, SymInt start, SymInt length) -> Tensor(a)", narrow),
    ROW("narrow_copy(Tensor self, int dim, SymInt start, SymInt length) -> Tensor", narrow),
    ROW("select.int(Tensor(a) self, int dim, SymInt index) -> Tensor(a)", select_int),
    ROW("select_copy.int(Tensor self, int dim, SymInt index) -> Tensor", select_int),
    ROW("select_scatter(Tensor self, Tensor src, int dim, SymInt index) -> Tensor", select_scatter),
    ROW("slice_scatter(Tensor self, Tensor src, int dim=0, SymInt? start=None, SymInt? end=None, SymInt "
        "step=1) -> "
        "Tensor",
        slice_scatter),
    ROW("split.Tensor(Tensor(a -> *) self, SymInt split_size, int dim=0) -> Tensor(a)[]", split),
    ROW("split_copy.Tensor(Tensor self, SymInt split_size, int dim=0) -> Tensor[]", split),
    ROW("unsafe_split.Tensor(Tensor self, SymInt split_size, int dim=0) -> Tensor[]", split),
    ROW("split.sizes(Tensor(a -> *) self, SymInt[] split_size, int dim=0) -> Tensor(a)[]", split_sizes),
    ROW("split_with_sizes(Tensor(a -> *) self, SymInt[] split_sizes, int dim=0) -> Tensor(a)[]", split_sizes),
    ROW("split_with_sizes_copy(Tensor self, SymInt[] split_sizes, int dim=0) -> Tensor[]", split_sizes),
    ROW("unsafe_split_with_sizes(Tensor self, SymInt[] split_sizes, int dim=0) -> Tensor[]", split_sizes),
    ROW("chunk(Tensor(a -> *) self, int chunks, int dim=0) -> Tensor(a)[]", chunk),
    ROW("unsafe_chunk(Tensor self, int chunks, int dim=0) -> Tensor[]", chunk),
    ROW("tensor_split.sections(Tensor(a -> *) self, SymInt sections, int dim=0) -> Tensor(a)[]",
        tensor_split),
    ROW("tensor_split.indices(Tensor(a -> *) self, SymInt[] indices, int dim=0) -> Tensor(a)[]",
        tensor_split_at),
    ROW("hsplit.int(Tensor(a -> *) self, int sections) -> Tensor(a)[]", hsplit),
    ROW("vsplit.int(Tensor(a -> *) self, int sections) -> Tensor(a)[]", vsplit),
    ROW("unbind.int(Tensor(a -> *) self, int dim=0) -> Tensor(a)[]", unbind),
    ROW("unbind_copy.int(Tensor self, int dim=0) -> Tensor[]", unbind),
    {0}};

void wf_ops_aten_slice(void)
{
    wf_register(ops);
}
