/* Integration, statistics, products of sets, counting in sorted lists, norms of matrices: what scripts write around a
 * network, each by its definition. */
#include "ops/ops_private.h"

#include <math.h>
#include <string.h>

#define DECOMPOSE(name) static int name(WfGraph *g, const WfNode *n, WfVal *out)
#define DONE(v) do { out[0] = (v); return 1; } while (0)
#define T(i) wf_tensor(n, i)

static WfVal along(WfGraph *g, WfVal x, int d, bool later) /* all but the last, or all but the first */
{
    WfDim size = wf_size_of(g, x, d);
    return later ? wf_slice(g, x, d, 1, size, 1) : wf_slice(g, x, d, 0, wf_esub(g->exprs, size, 1), 1);
}

/* ---- the trapezoidal rule over y, its places x (one list, or as y) or their distance ---- */

static WfVal trapezoids(WfGraph *g, const WfNode *n, int *dim)
{
    WfVal y = T(0), x = !strcmp(n->schema->params[1].name, "x") ? T(1) : 0;
    int64_t size;
    int r = wf_rank_of(g, y), d = *dim = wf_dim_index(g, n, wf_int(n, 2), r);
    if (wf_elit(g->exprs, wf_size_of(g, y, d), &size) && size < 1)
        wf_fail_node(g, n, WF_E_OP_FORM, "dimension %d is empty", d);
    WfVal sum = wf_add(g, along(g, y, d, true), along(g, y, d, false));
    if (!x)
        return wf_mul(g, wf_muls(g, sum, 0.5), wf_operand(g, n, 1, wf_dtype_of(g, y)));
    int rx = wf_rank_of(g, x), dx = rx == 1 ? 0 : d - r + rx;
    if (dx < 0)
        wf_fail_node(g, n, WF_E_SHAPES, "%s and %s do not fit", wf_shape_text(g, x), wf_shape_text(g, y));
    x = wf_cast(g, x, wf_dtype_of(g, y));
    x = wf_sub(g, along(g, x, dx, true), along(g, x, dx, false));
    for (int k = d + 1; rx == 1 && k < r; k++)
        x = wf_unsqueeze(g, x, wf_rank_of(g, x));
    return wf_muls(g, wf_mul(g, sum, x), 0.5);
}
DECOMPOSE(trapezoid_op)
{
    int d;
    WfVal v = trapezoids(g, n, &d);
    DONE(wf_sum(g, v, 1u << d, false));
}
DECOMPOSE(cumulative_op)
{
    int d;
    WfVal v = trapezoids(g, n, &d);
    DONE(wf_emit(g, "aten.cumsum", "vd", v, d));
}

/* ---- statistics ---- */

/* x[variables, samples]; a single list is one variable. */
static WfVal covariance(WfGraph *g, const WfNode *n, double correction)
{
    WfVal x = T(0);
    int r = wf_rank_of(g, x);
    if (r < 1 || r > 2 || !wf_dtype_is_float(wf_dtype_of(g, x)))
        wf_fail_node(g, n, WF_E_SHAPES, "%s is no table of variables and samples", wf_shape_text(g, x));
    x = r == 1 ? wf_unsqueeze(g, x, 0) : x;
    WfVal d = wf_sub(g, x, wf_mean(g, x, 2, true)), count = wf_dim_scalar(g, wf_dtype_of(g, x), wf_size_of(g, x, 1));
    WfVal by = wf_binary(g, "prim.max", wf_adds(g, count, -correction), wf_like(g, count, 0));
    WfVal c = wf_div(g, wf_matmul(g, d, wf_transpose(g, d, 0, 1)), by);
    return wf_size_of(g, x, 0) == 1 ? wf_reshape(g, c, 0, NULL) : c;
}
DECOMPOSE(cov_op)
{
    if (wf_has(n, 2) || wf_has(n, 3))
        wf_fail_node(g, n, WF_E_OP_FORM, "weights of samples are not supported");
    DONE(covariance(g, n, (double)wf_lit(g, n, 1)));
}
DECOMPOSE(corrcoef_op)
{
    WfVal c = covariance(g, n, 1);
    if (!wf_rank_of(g, c))
        DONE(wf_div(g, c, c));
    const WfValue *v = wf_value(g, c);
    WfVal hit = wf_binary(g, "prim.eq", wf_iota(g, WF_I64, 2, v->shape, 0), wf_iota(g, WF_I64, 2, v->shape, 1));
    WfVal own = wf_sum(g, wf_where(g, hit, c, wf_like(g, c, 0)), 2, false), s = wf_unary(g, "prim.sqrt", own);
    c = wf_div(g, wf_div(g, c, wf_unsqueeze(g, s, 1)), wf_unsqueeze(g, s, 0));
    DONE(wf_emit(g, "aten.clamp", "vff", c, -1.0, 1.0));
}

/* ---- vectors ---- */

static int cross(WfGraph *g, const WfNode *n, WfVal *out, int64_t otherwise)
{
    static const int two[2] = {0, 1};
    WfDtype t = wf_promote(g, n, two, 2);
    WfVal a = wf_cast(g, T(0), t), b = wf_cast(g, T(1), t);
    const WfValue *x = wf_value(g, a), *y = wf_value(g, b);
    WfDim shape[WF_MAX_RANK];
    int r, d = -1;
    wf_broadcast_shape(g, n, x->rank, x->shape, y->rank, y->shape, &r, shape);
    a = wf_expand(g, a, r, shape);
    b = wf_expand(g, b, r, shape);
    if (wf_has(n, 2) || otherwise < 0)
        d = wf_dim_index(g, n, wf_has(n, 2) ? wf_int(n, 2) : wf_econst(g->exprs, otherwise), r);
    for (int k = 0; d < 0 && k < r; k++) /* the first of size 3 */
        d = shape[k] == 3 ? k : d;
    if (d < 0 || shape[d] != 3)
        wf_fail_node(g, n, WF_E_SHAPES, "the vectors must have 3 elements");
    WfVal p[3], q[3], c[3];
    for (int k = 0; k < 3; k++) {
        p[k] = wf_slice(g, a, d, k, k + 1, 1);
        q[k] = wf_slice(g, b, d, k, k + 1, 1);
    }
    for (int k = 0; k < 3; k++) {
        int i = (k + 1) % 3, j = (k + 2) % 3;
        c[k] = wf_sub(g, wf_mul(g, p[i], q[j]), wf_mul(g, p[j], q[i]));
    }
    DONE(wf_cat(g, c, 3, d));
}
DECOMPOSE(cross_op) { return cross(g, n, out, 0); }
DECOMPOSE(linalg_cross_op) { return cross(g, n, out, -1); }
DECOMPOSE(vecdot_op)
{
    WfVal v = wf_mul(g, T(0), T(1));
    DONE(wf_sum(g, v, 1u << wf_dim_index(g, n, wf_int(n, 2), wf_rank_of(g, v)), false));
}
DECOMPOSE(dist_op) /* self, other, p */
{
    WfVal d = wf_sub(g, T(0), T(1));
    DONE(wf_emit(g, "aten.linalg_vector_norm", "va", d, &n->args[2]));
}

/* ---- norms; order None: of all elements ---- */

static WfVal of_dtype(WfGraph *g, const WfNode *n)
{
    const WfArg *a = wf_arg(n, "dtype");
    return a && a->kind == WF_ARG_DTYPE ? wf_cast(g, T(0), a->dtype) : T(0);
}
static WfVal vector_norm(WfGraph *g, WfVal x, double order, uint32_t dims, bool keep)
{
    WfDim list[WF_MAX_RANK];
    int count = 0;
    for (int i = 0; i < wf_rank_of(g, x); i++)
        if (dims >> i & 1)
            list[count++] = i;
    return wf_emit(g, "aten.linalg_vector_norm", "vfIb", x, order, list, count, (int)keep);
}
/* Order 1 and inf: the largest sum of magnitudes of a column, of a row; negative: the least. */
static WfVal matrix_norm(WfGraph *g, const WfNode *n, WfVal x, double order, int row, int column, bool keep)
{
    if (fabs(order) != 1 && !isinf(order))
        wf_fail_node(g, n, WF_E_OP_FORM, "the matrix norm of order %g needs singular values, which are not supported", order);
    int within = isinf(order) ? column : row, over = isinf(order) ? row : column;
    WfVal s = wf_sum(g, wf_unary(g, "prim.abs", x), 1u << within, true);
    s = wf_reduce(g, order > 0 ? "prim.amax" : "prim.amin", s, 1u << over, true);
    uint32_t both = 1u << row | 1u << column;
    return keep ? s : wf_sum(g, s, both, false);
}
DECOMPOSE(linalg_norm_op) /* self, ord, dim, keepdim */
{
    WfVal x = of_dtype(g, n);
    int r = wf_rank_of(g, x);
    bool keep = wf_bool(n, 3), text = n->args[1].kind == WF_ARG_STRING;
    uint32_t dims = wf_has(n, 2) ? wf_dims_mask(g, n, 2, r) : WF_ALL_DIMS(r);
    int count = wf_has(n, 2) ? n->args[2].n : r;
    if (text && strcmp(n->args[1].s, "fro"))
        wf_fail_node(g, n, WF_E_OP_FORM, "the norm %s needs singular values, which are not supported", n->args[1].s);
    if (!wf_has(n, 1) || text)
        DONE(vector_norm(g, x, 2, dims, keep));
    if (count == 1)
        DONE(vector_norm(g, x, wf_float(g, n, 1), dims, keep));
    if (count != 2)
        wf_fail_node(g, n, WF_E_SHAPES, "a norm of %d dimensions", count);
    int row = wf_has(n, 2) ? wf_dim_index(g, n, n->args[2].ints[0], r) : 0;
    int column = wf_has(n, 2) ? wf_dim_index(g, n, n->args[2].ints[1], r) : 1;
    DONE(matrix_norm(g, n, x, wf_float(g, n, 1), row, column, keep));
}

/* ---- sets and lists ---- */

DECOMPOSE(cartesian_prod_op)
{
    const WfArg *a = &n->args[0];
    WfVal v[WF_MAX_RESULTS];
    if (a->n < 1 || a->n > WF_MAX_RANK)
        wf_fail_node(g, n, WF_E_OP_FORM, "a product of %d lists", a->n);
    if (a->n == 1)
        DONE(a->vals[0]);
    WfDim shape[WF_MAX_RANK], all = 1;
    for (int i = 0; i < a->n; i++) {
        if (wf_rank_of(g, a->vals[i]) != 1)
            wf_fail_node(g, n, WF_E_SHAPES, "%s is no list", wf_shape_text(g, a->vals[i]));
        shape[i] = wf_size_of(g, a->vals[i], 0);
        all = wf_emul(g->exprs, all, shape[i]);
    }
    for (int i = 0; i < a->n; i++) {
        WfDim own[WF_MAX_RANK] = {1, 1, 1, 1, 1, 1, 1, 1}, column[2] = {all, 1};
        own[i] = shape[i];
        v[i] = wf_reshape(g, wf_expand(g, wf_reshape(g, a->vals[i], a->n, own), a->n, shape), 2, column);
    }
    DONE(wf_cat(g, v, a->n, 1));
}
DECOMPOSE(diagflat_op)
{
    WfVal x = T(0);
    WfDim all = wf_numel(g, x);
    DONE(wf_emit(g, "aten.diag_embed", "va", wf_reshape(g, x, 1, &all), &n->args[1]));
}
DECOMPOSE(sum_to_size_op) { DONE(wf_sum_to(g, T(0), n->args[1].n, n->args[1].ints)); }

DECOMPOSE(isin_op) /* elements, test_elements, assume_unique, invert */
{
    static const int two[2] = {0, 1};
    WfDtype t = wf_promote(g, n, two, 2);
    WfVal x = wf_operand(g, n, 0, t), y = wf_operand(g, n, 1, t);
    WfDim all = wf_numel(g, y);
    int r = wf_rank_of(g, x);
    WfVal hit = wf_binary(g, "prim.eq", wf_unsqueeze(g, x, r), wf_reshape(g, y, 1, &all));
    hit = wf_reduce(g, "prim.amax", hit, 1u << r, false);
    DONE(wf_bool(n, 3) ? wf_unary(g, "prim.not", hit) : hit);
}

/* How many of a sorted list's elements (its last dimension) come before x; right: those equal to x, too. */
static WfVal places(WfGraph *g, const WfNode *n, WfVal list, WfVal x, bool right)
{
    WfDtype t = wf_promote_types(wf_dtype_of(g, list), wf_dtype_of(g, x));
    int r = wf_rank_of(g, x), rl = wf_rank_of(g, list);
    if (rl > 1 && rl != r)
        wf_fail_node(g, n, WF_E_SHAPES, "%s and %s do not fit", wf_shape_text(g, list), wf_shape_text(g, x));
    list = wf_cast(g, list, t);
    if (rl > 1)
        list = wf_unsqueeze(g, list, rl - 1);
    WfVal hit = wf_binary(g, right ? "prim.le" : "prim.lt", list, wf_unsqueeze(g, wf_cast(g, x, t), r));
    const WfArg *narrow = wf_arg(n, "out_int32");
    WfVal count = wf_sum(g, wf_cast(g, hit, WF_I64), 1u << r, false);
    return narrow && narrow->b ? wf_cast(g, count, WF_I32) : count;
}
static WfVal number(WfGraph *g, const WfNode *n, int arg)
{
    return T(arg) ? T(arg) : wf_operand(g, n, arg, n->args[arg].kind == WF_ARG_INT ? WF_I64 : WF_F32);
}
DECOMPOSE(bucketize_op) { DONE(places(g, n, T(1), number(g, n, 0), wf_bool(n, 3))); }
DECOMPOSE(searchsorted_op) /* sorted_sequence, self, out_int32, right, side, sorter */
{
    if (wf_has(n, 5))
        wf_fail_node(g, n, WF_E_OP_FORM, "a sorter is not supported; gather the sorted list before");
    bool right = wf_has(n, 4) ? *n->args[4].s == 'r' : wf_bool(n, 3);
    DONE(places(g, n, T(0), number(g, n, 1), right));
}

/* ---- grids, from both ends, as PyTorch: exact at start and end, which may be tensors ---- */

static WfVal grid(WfGraph *g, const WfNode *n)
{
    WfVal a = wf_operand(g, n, 0, WF_F64), b = wf_operand(g, n, 1, WF_F64);
    int64_t k = wf_lit(g, n, 2);
    WfDim count = k;
    WfVal i = wf_cast(g, wf_iota(g, WF_I64, 1, &count, 0), WF_F64);
    WfVal first = wf_binary(g, "prim.lt", i, wf_scalar(g, WF_F64, (double)(k == 1 ? 1 : k / 2)));
    a = wf_reshape(g, a, 0, NULL);
    b = wf_reshape(g, b, 0, NULL);
    WfVal step = wf_div(g, wf_sub(g, b, a), wf_scalar(g, WF_F64, k > 1 ? (double)(k - 1) : 1));
    WfVal low = wf_add(g, wf_mul(g, i, step), a);
    WfVal back = wf_sub(g, wf_scalar(g, WF_F64, (double)(k - 1)), i);
    return wf_detach(g, wf_where(g, first, low, wf_sub(g, b, wf_mul(g, back, step))));
}
static WfDtype asked(const WfNode *n)
{
    const WfArg *a = wf_arg(n, "dtype");
    return a && a->kind == WF_ARG_DTYPE ? a->dtype : WF_F32;
}
DECOMPOSE(linspace_op) { DONE(wf_cast(g, grid(g, n), asked(n))); }
DECOMPOSE(logspace_op)
{
    WfVal v = grid(g, n);
    DONE(wf_cast(g, wf_binary(g, "prim.pow", wf_like(g, v, wf_float(g, n, 3)), v), asked(n)));
}

#define PLACES "*, bool out_int32=False, bool right=False"
#define LISTS  PLACES ", str? side=None, Tensor? sorter=None) -> Tensor"
#define NORM   "int[1]? dim=None, bool keepdim=False, *, ScalarType? dtype=None) -> Tensor"
#define MATRIX "int[] dim=[-2,-1], bool keepdim=False, *, ScalarType? dtype=None) -> Tensor"
#define MADE   "*, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None) -> Tensor"
#define ENDS(name, more, fn)                                                                                             \
    ROW(name ".Tensor_Tensor(Tensor start, Tensor end, int steps, " more MADE, fn),                                    \
    ROW(name ".Tensor_Scalar(Tensor start, Scalar end, int steps, " more MADE, fn),                                    \
    ROW(name ".Scalar_Tensor(Scalar start, Tensor end, int steps, " more MADE, fn)

static const WfOp ops[] = {
    ROW("trapezoid.x(Tensor y, Tensor x, *, int dim=-1) -> Tensor", trapezoid_op),
    ROW("trapezoid.dx(Tensor y, *, Scalar dx=1, int dim=-1) -> Tensor", trapezoid_op),
    ROW("trapz.x(Tensor y, Tensor x, *, int dim=-1) -> Tensor", trapezoid_op),
    ROW("trapz.dx(Tensor y, *, float dx=1, int dim=-1) -> Tensor", trapezoid_op),
    ROW("cumulative_trapezoid.x(Tensor y, Tensor x, *, int dim=-1) -> Tensor", cumulative_op),
    ROW("cumulative_trapezoid.dx(Tensor y, *, Scalar dx=1, int dim=-1) -> Tensor", cumulative_op),
    ROW("cov(Tensor self, *, int correction=1, Tensor? fweights=None, Tensor? aweights=None) -> Tensor", cov_op),
    ROW("corrcoef(Tensor self) -> Tensor", corrcoef_op),
    ROW("cross(Tensor self, Tensor other, int? dim=None) -> Tensor", cross_op),
    ROW("linalg_cross(Tensor self, Tensor other, *, int dim=-1) -> Tensor", linalg_cross_op),
    ROW("linalg_vecdot(Tensor x, Tensor y, *, int dim=-1) -> Tensor", vecdot_op),
    ROW("dist(Tensor self, Tensor other, Scalar p=2) -> Tensor", dist_op),
    ROW("linalg_norm(Tensor self, Scalar? ord=None, " NORM, linalg_norm_op),
    ROW("linalg_norm.ord_str(Tensor self, str ord, " NORM, linalg_norm_op),
    ROW("linalg_matrix_norm(Tensor self, Scalar ord, " MATRIX, linalg_norm_op),
    ROW("linalg_matrix_norm.str_ord(Tensor self, str ord='fro', " MATRIX, linalg_norm_op),
    ROW("cartesian_prod(Tensor[] tensors) -> Tensor", cartesian_prod_op),
    ROW("diagflat(Tensor self, int offset=0) -> Tensor", diagflat_op),
    ROW("sum_to_size(Tensor self, SymInt[] size) -> Tensor", sum_to_size_op),
    ROW("isin.Tensor_Tensor(Tensor elements, Tensor test_elements, *, bool assume_unique=False, bool invert=False) -> Tensor", isin_op),
    ROW("isin.Tensor_Scalar(Tensor elements, Scalar test_element, *, bool assume_unique=False, bool invert=False) -> Tensor", isin_op),
    ROW("isin.Scalar_Tensor(Scalar element, Tensor test_elements, *, bool assume_unique=False, bool invert=False) -> Tensor", isin_op),
    ROW("bucketize.Tensor(Tensor self, Tensor boundaries, " PLACES ") -> Tensor", bucketize_op),
    ROW("bucketize.Scalar(Scalar self, Tensor boundaries, " PLACES ") -> Tensor", bucketize_op),
    ROW("searchsorted.Tensor(Tensor sorted_sequence, Tensor self, " LISTS, searchsorted_op),
    ROW("searchsorted.Scalar(Tensor sorted_sequence, Scalar self, " LISTS, searchsorted_op),
    ROW("linspace(Scalar start, Scalar end, int steps, " MADE, linspace_op), ENDS("linspace", "", linspace_op), ENDS("logspace", "float base=10.0, ", logspace_op),
    ROW("logspace(Scalar start, Scalar end, int steps, float base=10.0, " MADE, logspace_op),
    {0}};

void wf_ops_aten_numeric(void) { wf_register(ops); }
