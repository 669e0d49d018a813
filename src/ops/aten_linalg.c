/* Linear algebra. What a primitive factorises (ops/matrix.c) is a constant to autograd; its gradient comes from the
 * first-order term, which is zero: with X = A^-1, X - X (A - A*) X has the value of X and the derivative of the inverse (A*
 * is A without gradient). Triangular systems are substituted row by row, in graphs of their own. */
#include "ops/ops_private.h"

#include <math.h>
#include <string.h>

#define DECOMPOSE WfGraph *g, const WfNode *n, WfVal *out

enum { MOST_ROWS = 64 }; /* each row is a few nodes */

/* Adds leading dimensions up to those that both operands broadcast to. */
static WfVal batched(WfGraph *g, const WfNode *n, WfVal v, WfVal other)
{
    const WfValue *x = wf_value(g, v), *y = wf_value(g, other);
    WfDim shape[WF_MAX_RANK], own[2];
    int r;
    memcpy(own, x->shape + x->rank - 2, sizeof own);
    wf_broadcast_shape(g, n, x->rank - 2, x->shape, y->rank - 2, y->shape, &r, shape);
    memcpy(shape + r, own, sizeof own);
    return wf_expand(g, v, r + 2, shape);
}

static WfVal row(WfGraph *g, WfVal x, int64_t i, int64_t count)
{
    return wf_slice(g, x, wf_rank_of(g, x) - 2, i, i + count, 1);
}

static WfVal columns(WfGraph *g, WfVal x, int64_t i, int64_t count)
{
    return wf_slice(g, x, wf_rank_of(g, x) - 1, i, i + count, 1);
}

/* X with A X = B, A triangular: x_i = (b_i - sum over the known x_j of a_ij x_j) / a_ii. */
static WfVal substitute(WfGraph *g, WfVal a, WfVal b, int64_t size, bool upper, bool unit)
{
    int r = wf_rank_of(g, a);
    WfVal known = 0;
    for (int64_t step = 0; step < size; step++) {
        int64_t i = upper ? size - 1 - step : step;
        WfVal own = row(g, a, i, 1), x = row(g, b, i, 1);
        if (known)
            x = wf_sub(g, x, wf_matmul(g, columns(g, own, upper ? i + 1 : 0, step), known));
        if (!unit)
            x = wf_div(g, x, columns(g, own, i, 1));
        WfVal both[2] = {upper ? x : known, upper ? known : x};
        known = known ? wf_cat(g, both, 2, r - 2) : x;
    }
    return known;
}

static int solve_triangular(WfGraph *g, const WfNode *n, WfVal *out)
{
    WfVal a = wf_tensor(n, 0), b = wf_tensor(n, 1);
    int ra = wf_rank_of(g, a), rb = wf_rank_of(g, b);
    bool upper = wf_bool(n, 2), left = wf_bool(n, 3), unit = wf_bool(n, 4);
    int64_t size;
    if (ra < 2 || rb < 2 || !wf_elit(g->exprs, wf_size_of(g, a, -1), &size) || size > MOST_ROWS || size < 1)
        wf_fail_node(g, n, WF_E_OP_FORM,
                     "the matrix %s must have 1 to %d rows, known at compile time", wf_shape_text(g, a),
                     MOST_ROWS);
    if (!left) { /* X A = B is A' X' = B' */
        a = wf_transpose(g, a, ra - 2, ra - 1);
        b = wf_transpose(g, b, rb - 2, rb - 1);
    }
    if (!wf_dims_equal(g, wf_size_of(g, b, -2), wf_size_of(g, a, -1)))
        wf_fail_node(g, n, WF_E_SHAPES, "%s and %s do not fit", wf_shape_text(g, a), wf_shape_text(g, b));
    WfVal wide = batched(g, n, a, b);
    b = batched(g, n, b, a);
    WfVal x = substitute(g, wide, b, size, left ? upper : !upper, unit);
    int r = wf_rank_of(g, x);
    out[0] = left ? x : wf_transpose(g, x, r - 2, r - 1);
    return 1;
}

/* ---- factorisations ---- */

/* A[.., m, n] as [B, m, n], and what becomes of results. */
typedef struct {
    WfVal a, fixed, zero; /* A; without its gradient; their difference, which has it */
    WfDim lead[WF_MAX_RANK], batch, m, n;
    int rank;
} Matrices;

static Matrices matrices(WfGraph *g, const WfNode *n, int arg, bool square)
{
    Matrices x = {.a = wf_tensor(n, arg), .batch = 1};
    x.rank = wf_rank_of(g, x.a);
    WfDtype t = wf_dtype_of(g, x.a);
    if (x.rank < 2 || !(t == WF_F32 || t == WF_F64))
        wf_fail_node(g, n, WF_E_SHAPES, "%s is no matrix of f32 or f64", wf_shape_text(g, x.a));
    for (int i = 0; i + 2 < x.rank; i++) {
        x.lead[i] = wf_size_of(g, x.a, i);
        x.batch = wf_emul(g->exprs, x.batch, x.lead[i]);
    }
    x.m = wf_size_of(g, x.a, -2);
    x.n = wf_size_of(g, x.a, -1);
    if (square && !wf_dims_equal(g, x.m, x.n))
        wf_fail_node(g, n, WF_E_SHAPES, "%s is no square matrix", wf_shape_text(g, x.a));
    x.a = wf_reshape(g, x.a, 3, (WfDim[]){x.batch, x.m, x.n});
    x.fixed = wf_detach(g, x.a);
    x.zero = wf_sub(g, x.a, x.fixed);
    return x;
}

/* v[B, ..] with A's leading dimensions in B's place. */
static WfVal restored(WfGraph *g, const Matrices *x, WfVal v)
{
    const WfValue *s = wf_value(g, v);
    WfDim shape[WF_MAX_RANK + 2];
    memcpy(shape, x->lead, sizeof x->lead);
    memcpy(shape + x->rank - 2, s->shape + 1, (size_t)(s->rank - 1) * sizeof *shape);
    return wf_reshape(g, v, x->rank - 3 + s->rank, shape);
}
static WfVal t_of(WfGraph *g, WfVal v) { return wf_transpose(g, v, 1, 2); }
/* a b c, of [B, ., .] */
static WfVal product(WfGraph *g, WfVal a, WfVal b, WfVal c) { return wf_matmul(g, wf_matmul(g, a, b), c); }

/* 1 where row - column stands so to 0 ("prim.eq": the diagonal), else 0. */
static WfVal where_index(WfGraph *g, WfVal like, const char *how)
{
    WfDim s[2] = {wf_size_of(g, like, -2), wf_size_of(g, like, -1)};
    WfVal hit = wf_binary(g, how, wf_iota(g, WF_I64, 2, s, 0), wf_iota(g, WF_I64, 2, s, 1));
    return wf_cast(g, hit, wf_dtype_of(g, like));
}
static WfVal diagonal_of(WfGraph *g, WfVal v) /* of [B, n, n]: [B, n] */
{
    return wf_sum(g, wf_mul(g, v, where_index(g, v, "prim.eq")), 1u << 2, false);
}

typedef struct { WfVal inverse, log_det, sign, trace; } Inverse; /* trace of A^-1 (A - A*), [B] */

static Inverse inverse(WfGraph *g, const Matrices *x)
{
    WfVal r[3];
    wf_emit_multi(g, r, "prim.inverse", "v", x->fixed);
    for (int i = 0; i < 3; i++)
        r[i] = wf_detach(g, r[i]);
    WfVal step = wf_matmul(g, r[0], x->zero);
    return (Inverse){wf_sub(g, r[0], wf_matmul(g, step, r[0])), r[1], r[2],
                     wf_sum(g, diagonal_of(g, step), 1u << 1, false)};
}

/* b solved by the factor L of A = L L' (or L' L). */
static int cholesky_solve(DECOMPOSE) /* B, L, upper */
{
    Matrices x = matrices(g, n, 1, true);
    WfVal i = restored(g, &x, inverse(g, &x).inverse), ti = wf_transpose(g, i, x.rank - 2, x.rank - 1);
    bool upper = wf_bool(n, 2);
    out[0] = wf_matmul_any(g, n, upper ? i : ti, wf_matmul_any(g, n, upper ? ti : i, wf_tensor(n, 0)));
    return 1;
}
static int cholesky_inverse(DECOMPOSE) /* L, upper */
{
    Matrices x = matrices(g, n, 0, true);
    WfVal i = inverse(g, &x).inverse;
    out[0] = restored(g, &x, wf_bool(n, 1) ? wf_matmul(g, i, t_of(g, i)) : wf_matmul(g, t_of(g, i), i));
    return 1;
}
static int inv(DECOMPOSE)
{
    Matrices x = matrices(g, n, 0, true);
    out[0] = restored(g, &x, inverse(g, &x).inverse);
    return 1;
}
static int inv_ex(DECOMPOSE)
{
    Matrices x = matrices(g, n, 0, true);
    out[0] = restored(g, &x, inverse(g, &x).inverse);
    out[1] = restored(g, &x, wf_full(g, WF_I32, 1, &x.batch, 0));
    return 2;
}
static int det(DECOMPOSE) /* det (1 + tr A^-1 dA) */
{
    Matrices x = matrices(g, n, 0, true);
    Inverse i = inverse(g, &x);
    WfVal d = wf_mul(g, i.sign, wf_unary(g, "prim.exp", i.log_det));
    out[0] = restored(g, &x, wf_add(g, d, wf_mul(g, d, i.trace)));
    return 1;
}
static int slogdet(DECOMPOSE) /* sign, log |det| */
{
    Matrices x = matrices(g, n, 0, true);
    Inverse i = inverse(g, &x);
    out[0] = restored(g, &x, i.sign);
    out[1] = restored(g, &x, wf_add(g, i.log_det, i.trace));
    return 2;
}
static int logdet(DECOMPOSE) /* NaN where det < 0 */
{
    WfVal v[2];
    slogdet(g, n, v);
    WfVal minus = wf_binary(g, "prim.lt", v[0], wf_like(g, v[0], 0));
    out[0] = wf_where(g, minus, wf_like(g, v[1], NAN), v[1]);
    return 1;
}

/* X with A X = B, or X A = B; B may be one vector per matrix. */
static int solve(DECOMPOSE)
{
    WfVal b = wf_tensor(n, 1);
    Matrices x = matrices(g, n, 0, true);
    bool left = wf_bool(n, 2);
    int rb = wf_rank_of(g, b);
    bool vector = rb == 1 || (x.rank == rb + 1 && wf_dims_equal(g, wf_size_of(g, b, -1), x.n));
    for (int i = 0; vector && i + 1 < rb; i++)
        vector = wf_dims_equal(g, wf_size_of(g, b, i), x.lead[i]);
    if (vector)
        b = wf_unsqueeze(g, b, rb);
    WfVal i = restored(g, &x, inverse(g, &x).inverse);
    WfVal y = left ? wf_matmul_any(g, n, i, b) : wf_matmul_any(g, n, b, i);
    out[0] = vector ? wf_squeeze(g, y, wf_rank_of(g, y) - 1) : y;
    return 1;
}

/* dL = L phi(L^-1 dA L^-T), phi the lower half with half of the diagonal, dA made symmetric */
static WfVal cholesky_of(WfGraph *g, Matrices *x, bool upper)
{
    if (upper) { /* of what the upper half says */
        x->a = t_of(g, x->a);
        x->fixed = t_of(g, x->fixed);
        x->zero = t_of(g, x->zero);
    }
    WfVal l = wf_detach(g, wf_emit(g, "prim.cholesky", "v", x->fixed)), r[3];
    wf_emit_multi(g, r, "prim.inverse", "v", l);
    WfVal i = wf_detach(g, r[0]), d = wf_muls(g, wf_add(g, x->zero, t_of(g, x->zero)), 0.5);
    WfVal phi = wf_mul(g, product(g, i, d, t_of(g, i)),
                       wf_add(g, where_index(g, l, "prim.gt"), wf_muls(g, where_index(g, l, "prim.eq"), 0.5)));
    WfVal v = wf_add(g, l, wf_matmul(g, l, phi));
    return restored(g, x, upper ? t_of(g, v) : v);
}
static int cholesky(DECOMPOSE)
{
    Matrices x = matrices(g, n, 0, true);
    out[0] = cholesky_of(g, &x, wf_bool(n, 1));
    return 1;
}
static int cholesky_ex(DECOMPOSE)
{
    cholesky(g, n, out);
    Matrices x = matrices(g, n, 0, true);
    out[1] = restored(g, &x, wf_full(g, WF_I32, 1, &x.batch, 0));
    return 2;
}

/* dR = (W - S) R and dQ = dA R^-1 - Q (W - S) with W = Q' dA R^-1, S = the lower half of W less its transpose */
static int qr(DECOMPOSE)
{
    Matrices x = matrices(g, n, 0, false);
    WfVal v[2], r[3];
    int64_t rows, columns;
    if (strcmp(n->args[1].s, "reduced"))
        wf_fail_node(g, n, WF_E_OP_FORM, "mode %s is not supported; use reduced", n->args[1].s);
    if (!wf_elit(g->exprs, x.m, &rows) || !wf_elit(g->exprs, x.n, &columns) || rows < columns)
        wf_fail_node(g, n, WF_E_OP_FORM, "%s must have at least as many rows as columns", wf_shape_text(g, wf_tensor(n, 0)));
    wf_emit_multi(g, v, "prim.qr", "v", x.fixed);
    for (int i = 0; i < 2; i++)
        v[i] = wf_detach(g, v[i]);
    wf_emit_multi(g, r, "prim.inverse", "v", v[1]);
    WfVal step = wf_matmul(g, x.zero, wf_detach(g, r[0])), w = wf_matmul(g, t_of(g, v[0]), step);
    WfVal low = wf_mul(g, w, where_index(g, w, "prim.gt"));
    WfVal rest = wf_sub(g, w, wf_sub(g, low, t_of(g, low)));
    out[0] = restored(g, &x, wf_add(g, v[0], wf_sub(g, step, wf_matmul(g, v[0], rest))));
    out[1] = restored(g, &x, wf_add(g, v[1], wf_matmul(g, rest, v[1])));
    return 2;
}

/* d values = diag(V' dA V), dV = V (F V' dA V), F_ij = 1 / (value_j - value_i) off the diagonal */
static int eigh(DECOMPOSE)
{
    Matrices x = matrices(g, n, 0, true);
    WfVal v[2];
    bool upper = *n->args[1].s == 'U' || *n->args[1].s == 'u';
    wf_emit_multi(g, v, "prim.eigh", "v", upper ? t_of(g, x.fixed) : x.fixed);
    for (int i = 0; i < 2; i++)
        v[i] = wf_detach(g, v[i]);
    WfVal inner = product(g, t_of(g, v[1]), x.zero, v[1]), one = where_index(g, inner, "prim.eq");
    WfVal gap = wf_sub(g, wf_unsqueeze(g, v[0], 1), wf_unsqueeze(g, v[0], 2));
    WfVal f = wf_div(g, wf_sub(g, wf_like(g, one, 1), one), wf_add(g, gap, one));
    out[0] = restored(g, &x, wf_add(g, v[0], diagonal_of(g, inner)));
    out[1] = restored(g, &x, wf_add(g, v[1], wf_matmul(g, v[1], wf_mul(g, inner, f))));
    return 2;
}
static int eigvalsh(DECOMPOSE)
{
    WfVal v[2];
    eigh(g, n, v);
    out[0] = v[0];
    return 1;
}

/* exp(A / 64)^64, in double: good while the norm of A is below 64 */
static int matrix_exp(DECOMPOSE)
{
    enum { HALVINGS = 6, TERMS = 16 };
    Matrices x = matrices(g, n, 0, true);
    WfVal a = wf_muls(g, wf_cast(g, x.a, WF_F64), ldexp(1, -HALVINGS));
    WfVal one = wf_expand_like(g, where_index(g, a, "prim.eq"), a), s = one;
    for (int k = TERMS; k > 0; k--)
        s = wf_add(g, one, wf_muls(g, wf_matmul(g, a, s), 1.0 / k));
    for (int k = 0; k < HALVINGS; k++)
        s = wf_matmul(g, s, s);
    out[0] = restored(g, &x, wf_cast(g, s, wf_dtype_of(g, x.a)));
    return 1;
}

#define INFO "(Tensor, Tensor)"

static const WfOp ops[] = {
    ROW("linalg_inv(Tensor A) -> Tensor", inv),
    ROW("linalg_inv_ex(Tensor A, *, bool check_errors=False) -> " INFO, inv_ex),
    ROW("linalg_det(Tensor A) -> Tensor", det),
    ROW("linalg_slogdet(Tensor A) -> " INFO, slogdet),
    ROW("slogdet(Tensor self) -> " INFO, slogdet),
    ROW("logdet(Tensor self) -> Tensor", logdet),
    ROW("linalg_solve(Tensor A, Tensor B, *, bool left=True) -> Tensor", solve),
    ROW("linalg_cholesky(Tensor self, *, bool upper=False) -> Tensor", cholesky),
    ROW("linalg_cholesky_ex(Tensor self, *, bool upper=False, bool check_errors=False) -> " INFO, cholesky_ex),
    ROW("cholesky(Tensor self, bool upper=False) -> Tensor", cholesky),
    ROW("cholesky_solve(Tensor self, Tensor input2, bool upper=False) -> Tensor", cholesky_solve),
    ROW("cholesky_inverse(Tensor self, bool upper=False) -> Tensor", cholesky_inverse),
    ROW("linalg_qr(Tensor A, str mode='reduced') -> " INFO, qr),
    ROW("linalg_eigh(Tensor self, str UPLO='L') -> " INFO, eigh),
    ROW("linalg_eigvalsh(Tensor self, str UPLO='L') -> Tensor", eigvalsh),
    ROW("linalg_matrix_exp(Tensor self) -> Tensor", matrix_exp),
    ROW("matrix_exp(Tensor self) -> Tensor", matrix_exp),
    ROW("linalg_solve_triangular(Tensor self, Tensor B, *, bool upper, bool left=True, bool unitriangular=False) -> Tensor",
        solve_triangular),
    {0}};

void wf_ops_aten_linalg(void)
{
    wf_register(ops);
}
