/* Products of matrices. Every form becomes prim.matmul over operands of equal batch dimensions: a matrix on
 * the right of a batch is met by folding the batch into rows (one large product, and one for its gradient),
 * other batches are broadcast by views, which the kernel reads with stride 0. */
#include "ops/ops_private.h"

#include <string.h>

#define E(g)      ((g)->exprs)
#define DECOMPOSE WfGraph *g, const WfNode *n, WfVal *out
#define T(i)      wf_tensor(n, i)

static int give(WfVal *out, WfVal v)
{
    out[0] = v;
    return 1;
}

static void need_rank(WfGraph *g, const WfNode *n, int arg, int rank)
{
    if (wf_rank_of(g, T(arg)) != rank)
        wf_fail_node(g, n, WF_E_SHAPES, "'%s' is %s, expected %d dimensions", n->schema->params[arg].name,
                     wf_shape_text(g, T(arg)), rank);
}

/* a[b.., M, K] times the matrix b[K, N] with the batch folded into rows. */
static WfVal rows_times(WfGraph *g, WfVal a, WfVal b)
{
    int r = wf_rank_of(g, a);
    if (r == 2)
        return wf_matmul(g, a, b);
    WfDim rows = wf_count(g, a, WF_ALL_DIMS(r - 1)), shape[WF_MAX_RANK];
    memcpy(shape, wf_value(g, a)->shape, sizeof shape);
    WfDim flat[2] = {rows, shape[r - 1]};
    WfVal y = wf_matmul(g, wf_reshape(g, a, 2, flat), b);
    shape[r - 1] = wf_size_of(g, b, 1);
    return wf_reshape(g, y, r, shape);
}

/* torch.matmul, all ranks. */
WfVal wf_matmul_any(WfGraph *g, const WfNode *n, WfVal a, WfVal b)
{
    int ra = wf_rank_of(g, a), rb = wf_rank_of(g, b);
    if (!ra || !rb)
        wf_fail_node(g, n, WF_E_SHAPES, "a product needs at least one dimension on both sides");
    if (wf_dtype_of(g, a) != wf_dtype_of(g, b))
        wf_fail_node(g, n, WF_E_SHAPES, "%s times %s: the dtypes differ", wf_shape_text(g, a),
                     wf_shape_text(g, b));
    if (wf_size_of(g, a, -1) != wf_size_of(g, b, rb == 1 ? 0 : rb - 2))
        wf_fail_node(g, n, WF_E_SHAPES, "%s times %s: the inner sizes differ", wf_shape_text(g, a),
                     wf_shape_text(g, b));
    if (ra == 1 && rb == 1)
        return wf_sum(g, wf_mul(g, a, b), 1, false);
    WfVal x = ra == 1 ? wf_unsqueeze(g, a, 0) : a, y = rb == 1 ? wf_unsqueeze(g, b, 1) : b, z;
    int rx = wf_rank_of(g, x), ry = wf_rank_of(g, y);
    if (ry == 2) {
        z = rows_times(g, x, y);
    } else {
        WfDim batch[WF_MAX_RANK], sx[WF_MAX_RANK], sy[WF_MAX_RANK];
        int r;
        const WfValue *vx = wf_value(g, x), *vy = wf_value(g, y);
        wf_broadcast_shape(g, n, rx - 2, vx->shape, ry - 2, vy->shape, &r, batch);
        memcpy(sx, batch, sizeof batch);
        memcpy(sy, batch, sizeof batch);
        memcpy(sx + r, vx->shape + rx - 2, 2 * sizeof(WfDim));
        memcpy(sy + r, vy->shape + ry - 2, 2 * sizeof(WfDim));
        z = wf_matmul(g, wf_expand(g, x, r + 2, sx), wf_expand(g, y, r + 2, sy));
    }
    if (ra == 1)
        z = wf_squeeze(g, z, wf_rank_of(g, z) - 2);
    return rb == 1 ? wf_squeeze(g, z, wf_rank_of(g, z) - 1) : z;
}

/* x w' + b, over x's last dimension. */
WfVal wf_linear(WfGraph *g, const WfNode *n, WfVal x, WfVal w, WfVal b)
{
    int r = wf_rank_of(g, w);
    if (wf_rank_of(g, x) < 1 || r > 2 || wf_size_of(g, x, -1) != wf_size_of(g, w, -1))
        wf_fail_node(g, n, WF_E_SHAPES, "weight is %s, but the input is %s", wf_shape_text(g, w),
                     wf_shape_text(g, x));
    WfVal y = wf_matmul_any(g, n, x, r == 2 ? wf_transpose(g, w, 0, 1) : w);
    return b ? wf_add(g, y, b) : y;
}

static int linear(DECOMPOSE)
{
    return give(out, wf_linear(g, n, T(0), T(1), T(2)));
}
static int matmul(DECOMPOSE)
{
    return give(out, wf_matmul_any(g, n, T(0), T(1)));
}

static int mm(DECOMPOSE)
{
    need_rank(g, n, 0, 2);
    need_rank(g, n, 1, 2);
    return matmul(g, n, out);
}

static int bmm(DECOMPOSE)
{
    need_rank(g, n, 0, 3);
    need_rank(g, n, 1, 3);
    return matmul(g, n, out);
}

static int mv(DECOMPOSE)
{
    need_rank(g, n, 0, 2);
    need_rank(g, n, 1, 1);
    return matmul(g, n, out);
}

static int dot(DECOMPOSE)
{
    need_rank(g, n, 0, 1);
    need_rank(g, n, 1, 1);
    return matmul(g, n, out);
}

/* inner products over both last dimensions */
static int inner(DECOMPOSE)
{
    int ra = wf_rank_of(g, T(0)), rb = wf_rank_of(g, T(1));
    if (!ra || !rb)
        return give(out, wf_mul(g, T(0), T(1)));
    WfDim shape[2 * WF_MAX_RANK], flat[2] = {wf_count(g, T(1), WF_ALL_DIMS(rb - 1)), wf_size_of(g, T(1), -1)};
    if (ra + rb - 2 > WF_MAX_RANK)
        wf_fail_node(g, n, WF_E_OP_FORM, "the result has more than %d dimensions", WF_MAX_RANK);
    WfVal y = wf_matmul_any(g, n, T(0), wf_transpose(g, wf_reshape(g, T(1), 2, flat), 0, 1));
    memcpy(shape, wf_value(g, T(0))->shape, (size_t)(ra - 1) * sizeof *shape);
    memcpy(shape + ra - 1, wf_value(g, T(1))->shape, (size_t)(rb - 1) * sizeof *shape);
    return give(out, wf_reshape(g, y, ra + rb - 2, shape));
}

static int outer(DECOMPOSE)
{
    need_rank(g, n, 0, 1);
    need_rank(g, n, 1, 1);
    WfDtype t = wf_promote(g, n, (int[]){0, 1}, 2);
    return give(out,
                wf_mul(g, wf_unsqueeze(g, wf_cast(g, T(0), t), 1), wf_unsqueeze(g, wf_cast(g, T(1), t), 0)));
}

/* beta base + alpha product; with beta 0 the base is not read, so that its NaNs do not spread. */
static int add_product(WfGraph *g, const WfNode *n, WfVal product, WfVal *out)
{
    double beta = wf_float(g, n, 3), alpha = wf_float(g, n, 4);
    WfVal p = wf_muls(g, product, alpha);
    return give(out, beta == 0 ? p : wf_add(g, wf_muls(g, T(0), beta), p));
}

static int addmm(DECOMPOSE)
{
    return add_product(g, n, wf_matmul_any(g, n, T(1), T(2)), out);
}
static int addbmm(DECOMPOSE)
{
    return add_product(g, n, wf_sum(g, wf_matmul_any(g, n, T(1), T(2)), 1, false), out);
}
static int addr(DECOMPOSE)
{
    return add_product(g, n, wf_mul(g, wf_unsqueeze(g, T(1), 1), wf_unsqueeze(g, T(2), 0)), out);
}

/* Tiles of b scaled by the elements of a. */
static int kron(DECOMPOSE)
{
    WfDtype t = wf_promote(g, n, (int[]){0, 1}, 2);
    const WfValue *a = wf_value(g, T(0)), *b = wf_value(g, T(1));
    int ra = a->rank, rb = b->rank, r = ra > rb ? ra : rb;
    WfDim sa[WF_MAX_RANK], sb[WF_MAX_RANK], shape[WF_MAX_RANK];
    if (2 * r > WF_MAX_RANK)
        wf_fail_node(g, n, WF_E_OP_FORM, "more than %d dimensions", WF_MAX_RANK / 2);
    for (int i = 0; i < r; i++) {
        WfDim x = i < r - ra ? 1 : a->shape[i - (r - ra)], y = i < r - rb ? 1 : b->shape[i - (r - rb)];
        sa[2 * i] = x, sa[2 * i + 1] = 1;
        sb[2 * i] = 1, sb[2 * i + 1] = y;
        shape[i] = wf_emul(E(g), x, y);
    }
    WfVal y = wf_mul(g, wf_reshape(g, wf_cast(g, T(0), t), 2 * r, sa),
                     wf_reshape(g, wf_cast(g, T(1), t), 2 * r, sb));
    return give(out, wf_reshape(g, y, r, shape));
}

/* Brings x to a matrix: kept dims against summed ones, the summed ones last (or first). Appends the kept
 * sizes. */
static WfVal as_matrix(WfGraph *g, const WfNode *n, int arg, bool summed_first, WfDim *shape, int *rank)
{
    WfVal x = T(arg), other = T(!arg);
    const WfArg *dims = &n->args[2 + arg], *its = &n->args[3 - arg];
    int r = wf_rank_of(g, x), perm[WF_MAX_RANK], sums = dims->n, kept = 0;
    WfDim k = 1, s = 1;
    uint32_t hit = 0;
    for (int i = 0; i < sums; i++) {
        int d = wf_dim_index(g, n, dims->ints[i], r);
        if (wf_size_of(g, x, d) != 1 && i < its->n && /* the other one has a single element, for all of these */
            wf_size_of(g, other, wf_dim_index(g, n, its->ints[i], wf_rank_of(g, other))) == 1)
            x = wf_sum(g, x, 1u << d, true);
        hit |= 1u << d;
        s = wf_emul(E(g), s, wf_size_of(g, x, d));
        perm[summed_first ? i : r - sums + i] = d;
    }
    for (int i = 0; i < r; i++)
        if (!(hit >> i & 1)) {
            perm[kept++ + (summed_first ? sums : 0)] = i;
            shape[(*rank)++] = wf_size_of(g, x, i);
            k = wf_emul(E(g), k, wf_size_of(g, x, i));
        }
    return wf_reshape(g, wf_permute(g, x, perm), 2, summed_first ? (WfDim[]){s, k} : (WfDim[]){k, s});
}

static int tensordot(DECOMPOSE)
{
    WfDim shape[2 * WF_MAX_RANK];
    int rank = 0;
    WfVal a = as_matrix(g, n, 0, false, shape, &rank), b = as_matrix(g, n, 1, true, shape, &rank);
    if (rank > WF_MAX_RANK)
        wf_fail_node(g, n, WF_E_OP_FORM, "the result has more than %d dimensions", WF_MAX_RANK);
    return give(out, wf_reshape(g, wf_matmul_any(g, n, a, b), rank, shape));
}

/* ---- distances: the p-norm of all differences ---- */

/* The product of all matrices, from the left; the first and the last may be vectors. */
static int multi_dot(DECOMPOSE)
{
    const WfArg *all = &n->args[0];
    if (all->n < 1)
        wf_fail_node(g, n, WF_E_SHAPES, "there is nothing to multiply");
    WfVal y = all->vals[0];
    for (int i = 1; i < all->n; i++)
        y = wf_matmul_any(g, n, y, all->vals[i]);
    return give(out, y);
}

static int matrix_power(DECOMPOSE)
{
    int64_t k;
    WfVal x = T(0), y = 0;
    int r = wf_rank_of(g, x);
    if (r < 2 || !wf_elit(E(g), wf_int(n, 1), &k) || k < -1024)
        wf_fail_node(g, n, WF_E_OP_FORM, "needs a matrix and a power that is known");
    if (k < 0) {
        x = wf_emit(g, "aten.linalg_inv", "v", x);
        k = -k;
    }
    for (; k; k /= 2) {
        if (k % 2)
            y = y ? wf_matmul(g, y, x) : x;
        if (k > 1)
            x = wf_matmul(g, x, x);
    }
    if (!y) {
        const WfDim *s = wf_value(g, x)->shape;
        WfVal hit = wf_binary(g, "prim.eq", wf_iota(g, WF_I64, r, s, r - 2), wf_iota(g, WF_I64, r, s, r - 1));
        y = wf_cast(g, hit, wf_dtype_of(g, x));
    }
    return give(out, y);
}

/* y[.., o] = sum over i, j of a[.., i] w[o, i, j] b[.., j], plus bias[o] */
static int bilinear(DECOMPOSE)
{
    WfVal a = T(0), b = T(1), w = T(2), bias = T(3);
    need_rank(g, n, 2, 3);
    int r = wf_rank_of(g, a);
    WfDim o = wf_size_of(g, w, 0), i = wf_size_of(g, w, 1), j = wf_size_of(g, w, 2), shape[WF_MAX_RANK];
    if (r < 1 || r + 1 > WF_MAX_RANK || wf_rank_of(g, b) != r || wf_size_of(g, a, r - 1) != i ||
        wf_size_of(g, b, r - 1) != j)
        wf_fail_node(g, n, WF_E_SHAPES, "inputs %s and %s do not fit weight %s", wf_shape_text(g, a),
                     wf_shape_text(g, b), wf_shape_text(g, w));
    WfVal m = wf_reshape(g, wf_permute(g, w, (int[]){1, 0, 2}), 2, (WfDim[]){i, wf_emul(E(g), o, j)});
    memcpy(shape, wf_value(g, a)->shape, sizeof shape);
    shape[r - 1] = o;
    shape[r] = j;
    WfVal half = wf_reshape(g, wf_matmul_any(g, n, a, m), r + 1, shape);
    WfVal y = wf_sum(g, wf_mul(g, half, wf_unsqueeze(g, b, r - 1)), 1u << r, false);
    return give(out, bias ? wf_add(g, y, bias) : y);
}

static WfVal distance(WfGraph *g, WfVal diff, double p)
{
    return wf_emit(g, "aten.linalg_vector_norm", "vfd", diff, p, -1);
}

static int cdist(DECOMPOSE)
{
    WfVal a = T(0), b = T(1);
    WfVal diff =
        wf_sub(g, wf_unsqueeze(g, a, wf_rank_of(g, a) - 1), wf_unsqueeze(g, b, wf_rank_of(g, b) - 2));
    return give(out, distance(g, diff, wf_float(g, n, 2)));
}

static int pdist(DECOMPOSE)
{
    int64_t rows;
    WfVal part[WF_MAX_RESULTS];
    need_rank(g, n, 0, 2);
    if (!wf_elit(E(g), wf_size_of(g, T(0), 0), &rows) || rows > WF_MAX_RESULTS)
        wf_fail_node(g, n, WF_E_OP_FORM, "the number of rows must be static and at most %d",
                     WF_MAX_RESULTS);
    if (rows < 2)
        return give(out, wf_full(g, wf_dtype_of(g, T(0)), 1, (WfDim[]){0}, 0));
    for (int64_t i = 0; i + 1 < rows; i++)
        part[i] = wf_sub(g, wf_slice(g, T(0), 0, i, i + 1, 1), wf_slice(g, T(0), 0, i + 1, rows, 1));
    return give(out, distance(g, wf_cat(g, part, (int)rows - 1, 0), wf_float(g, n, 1)));
}

/* x[S, in] whose rows lie group by group, group e up to row ends[e]; each times its group's w[e]: one product of rows
 * that hold x in their group's columns, and zeros, by the matrices below each other. Rows behind the last group give
 * zeros. (E times the needed operations.) */
static int grouped_mm(DECOMPOSE)
{
    WfVal x = T(0), w = T(1), ends = T(2);
    if (wf_rank_of(g, x) != 2 || wf_rank_of(g, w) != 3 || !ends || wf_rank_of(g, ends) != 1)
        wf_fail_node(g, n, WF_E_OP_FORM, "only rows in groups, a matrix for each, are supported");
    WfDim rows = wf_size_of(g, x, 0), groups = wf_size_of(g, w, 0), in = wf_size_of(g, x, 1);
    WfDim wide = wf_emul(g->exprs, groups, in), columns = wf_size_of(g, w, 2);
    ends = wf_cast(g, ends, WF_I64);
    WfVal begins = wf_pad_dim(g, wf_slice(g, ends, 0, 0, wf_esub(g->exprs, groups, 1), 1), 0, 1, 0, 0);
    WfVal place = wf_iota(g, WF_I64, 2, (WfDim[]){rows, 1}, 0);
    WfVal member = wf_binary(g, "prim.and", wf_binary(g, "prim.ge", place, begins), wf_binary(g, "prim.lt", place, ends));
    WfVal spread = wf_where(g, wf_unsqueeze(g, member, 2), wf_unsqueeze(g, x, 1), wf_like(g, x, 0));
    return give(out, wf_matmul(g, wf_reshape(g, spread, 2, (WfDim[]){rows, wide}),
                               wf_reshape(g, w, 2, (WfDim[]){wide, columns})));
}

#define NAME(text, fn)                                                  \
    {                                                                   \
        .schema = "aten." text, .family = WF_COMPOSITE, .decompose = fn \
    }
#define IN_PLACE(text)                                 \
    {                                                  \
        .schema = "aten." text, .family = WF_COMPOSITE \
    }
#define SCALES ", *, Scalar beta=1, Scalar alpha=1) -> Tensor"

static const WfOp ops[] = {
    NAME("linear(Tensor input, Tensor weight, Tensor? bias=None) -> Tensor", linear),
    NAME("matmul(Tensor self, Tensor other) -> Tensor", matmul),
    NAME("mm(Tensor self, Tensor mat2) -> Tensor", mm),
    {.schema = "transformers.grouped_mm_fallback(Tensor input, Tensor weight, Tensor offs) -> Tensor",
     .family = WF_COMPOSITE,
     .decompose = grouped_mm},
    NAME("_grouped_mm(Tensor self, Tensor mat2, Tensor? offs=None, Tensor? bias=None, ScalarType? out_dtype=None) -> "
         "Tensor",
         grouped_mm),
    NAME("bmm(Tensor self, Tensor mat2) -> Tensor", bmm),
    NAME("mv(Tensor self, Tensor vec) -> Tensor", mv),
    NAME("dot(Tensor self, Tensor tensor) -> Tensor", dot),
    NAME("vdot(Tensor self, Tensor other) -> Tensor", dot),
    NAME("inner(Tensor self, Tensor other) -> Tensor", inner),
    NAME("outer(Tensor self, Tensor vec2) -> Tensor", outer),
    NAME("ger(Tensor self, Tensor vec2) -> Tensor", outer),
    NAME("addmm(Tensor self, Tensor mat1, Tensor mat2" SCALES, addmm),
    NAME("baddbmm(Tensor self, Tensor batch1, Tensor batch2" SCALES, addmm),
    NAME("addbmm(Tensor self, Tensor batch1, Tensor batch2" SCALES, addbmm),
    NAME("addmv(Tensor self, Tensor mat, Tensor vec" SCALES, addmm),
    NAME("addr(Tensor self, Tensor vec1, Tensor vec2" SCALES, addr),
    IN_PLACE("addmm_(Tensor(a!) self, Tensor mat1, Tensor mat2" SCALES "(a!)"),
    IN_PLACE("baddbmm_(Tensor(a!) self, Tensor batch1, Tensor batch2" SCALES "(a!)"),
    NAME("kron(Tensor self, Tensor other) -> Tensor", kron),
    NAME("tensordot(Tensor self, Tensor other, int[] dims_self, int[] dims_other) -> Tensor", tensordot),
    NAME("chain_matmul(Tensor[] matrices) -> Tensor", multi_dot),
    NAME("linalg_multi_dot(Tensor[] tensors) -> Tensor", multi_dot),
    NAME("linalg_matrix_power(Tensor self, int n) -> Tensor", matrix_power),
    NAME("bilinear(Tensor input1, Tensor input2, Tensor weight, Tensor? bias=None) -> Tensor", bilinear),
    NAME("cdist(Tensor x1, Tensor x2, float p=2., int? compute_mode=None) -> Tensor", cdist),
    NAME("_cdist_forward(Tensor x1, Tensor x2, float p, int? compute_mode) -> Tensor", cdist),
    NAME("pdist(Tensor self, float p=2.) -> Tensor", pdist),
    {0}};

void wf_ops_aten_matmul(void)
{
    wf_register(ops);
}
