/* Helpers for decompositions and VJPs: broadcasting, constants, views and reductions in terms of primitives, and
 * PyTorch's type promotion. Also the registration of all families. */
#include "ops/ops_private.h"

#include <pthread.h>
#include <string.h>

static void init_once(void)
{
#define WF_FAMILY(name) wf_ops_##name();
#include "ops/ops.list"
#undef WF_FAMILY
    wf_ops_inplace(); /* last: completes the families */
}

void wf_ops_init(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, init_once);
}

WfDtype wf_dtype_of(WfGraph *g, WfVal v) { return wf_value(g, v)->dtype; }
int wf_rank_of(WfGraph *g, WfVal v) { return wf_value(g, v)->rank; }
WfDim wf_size_of(WfGraph *g, WfVal v, int dim)
{
    const WfValue *x = wf_value(g, v);
    int d = dim < 0 ? dim + x->rank : dim;
    if (d >= 0 && d < x->rank)
        return x->shape[d];
    if (g->expanding)
        wf_fail_node(g, g->expanding, WF_E_SHAPES, "an operand %s has too few dimensions", wf_shape_text(g, v));
    wf_fail(g->ctx, WF_E_BUG, "%s has no dimension %d", wf_shape_text(g, v), dim);
}

/* ---- pointwise ---- */

static void broadcast(WfGraph *g, WfVal *a, WfVal *b)
{
    if (wf_same_shape(g, *a, *b))
        return;
    WfDim shape[WF_MAX_RANK];
    int rank;
    const WfValue *x = wf_value(g, *a), *y = wf_value(g, *b);
    wf_broadcast_shape(g, NULL, x->rank, x->shape, y->rank, y->shape, &rank, shape);
    *a = wf_expand(g, *a, rank, shape);
    *b = wf_expand(g, *b, rank, shape);
}

WfVal wf_unary(WfGraph *g, const char *prim, WfVal a) { return wf_emit(g, prim, "v", a); }

WfVal wf_binary(WfGraph *g, const char *prim, WfVal a, WfVal b)
{
    broadcast(g, &a, &b);
    if (wf_dtype_of(g, a) != wf_dtype_of(g, b) && g->expanding)
        wf_fail_node(g, g->expanding, WF_E_SHAPES, "operands are %s and %s", wf_shape_text(g, a),
                     wf_shape_text(g, b));
    if (wf_dtype_of(g, a) != wf_dtype_of(g, b))
        wf_fail(g->ctx, WF_E_BUG, "%s: operands are %s and %s", prim, wf_shape_text(g, a),
                wf_shape_text(g, b));
    return wf_emit(g, prim, "vv", a, b);
}

WfVal wf_add(WfGraph *g, WfVal a, WfVal b) { return wf_binary(g, "prim.add", a, b); }
WfVal wf_sub(WfGraph *g, WfVal a, WfVal b) { return wf_binary(g, "prim.sub", a, b); }
WfVal wf_mul(WfGraph *g, WfVal a, WfVal b) { return wf_binary(g, "prim.mul", a, b); }
WfVal wf_div(WfGraph *g, WfVal a, WfVal b) { return wf_binary(g, "prim.div", a, b); }
WfVal wf_neg(WfGraph *g, WfVal a) { return wf_unary(g, "prim.neg", a); }
WfVal wf_detach(WfGraph *g, WfVal a) { return wf_unary(g, "prim.detach", a); }
WfVal wf_cast(WfGraph *g, WfVal a, WfDtype t) { return wf_emit(g, "prim.cast", "vt", a, t); }
WfVal wf_adds(WfGraph *g, WfVal a, double v) { return wf_add(g, a, wf_like(g, a, v)); }
WfVal wf_muls(WfGraph *g, WfVal a, double v) { return wf_mul(g, a, wf_like(g, a, v)); }

WfVal wf_where(WfGraph *g, WfVal c, WfVal a, WfVal b)
{
    broadcast(g, &a, &b);
    broadcast(g, &c, &a);
    broadcast(g, &b, &a);
    return wf_emit(g, "prim.where", "vvv", c, a, b);
}

/* ---- constants ---- */

WfVal wf_full(WfGraph *g, WfDtype t, int rank, const WfDim *shape, double v)
{
    return wf_emit(g, "prim.full", "Ift", shape, rank, v, t);
}

WfVal wf_scalar(WfGraph *g, WfDtype t, double v) { return wf_full(g, t, 0, NULL, v); }
WfVal wf_like(WfGraph *g, WfVal like, double v) { return wf_scalar(g, wf_dtype_of(g, like), v); }

WfVal wf_zeros_like(WfGraph *g, WfVal like)
{
    const WfValue *x = wf_value(g, like);
    WfDim shape[WF_MAX_RANK];
    memcpy(shape, x->shape, sizeof shape);
    return wf_full(g, x->dtype, x->rank, shape, 0);
}

WfVal wf_dim_scalar(WfGraph *g, WfDtype t, WfDim d) { return wf_emit(g, "prim.size", "it", d, t); }

WfVal wf_iota(WfGraph *g, WfDtype t, int rank, const WfDim *shape, int dim)
{
    WfDim copy[WF_MAX_RANK];
    if (rank) /* shape may be NULL */
        memcpy(copy, shape, (size_t)rank * sizeof *shape);
    return wf_emit(g, "prim.iota", "Idt", copy, rank, dim, t);
}

bool wf_constant(WfGraph *g, WfVal v, double *out)
{
    const WfNode *p = wf_producer(g, v);
    if (!p || strcmp(p->schema->name, "prim.full"))
        return false; /* views of constants are folded to constants when they are built */
    *out = wf_float(g, p, 1);
    return true;
}

/* ---- views ---- */

WfVal wf_reshape(WfGraph *g, WfVal a, int rank, const WfDim *shape)
{
    WfDim copy[WF_MAX_RANK];
    if (rank) /* shape may be NULL */
        memcpy(copy, shape, (size_t)rank * sizeof *shape);
    return wf_emit(g, "prim.reshape", "vI", a, copy, rank);
}

WfVal wf_expand(WfGraph *g, WfVal a, int rank, const WfDim *shape)
{
    WfDim copy[WF_MAX_RANK];
    if (rank) /* shape may be NULL */
        memcpy(copy, shape, (size_t)rank * sizeof *shape);
    return wf_emit(g, "prim.expand", "vI", a, copy, rank);
}

WfVal wf_expand_like(WfGraph *g, WfVal a, WfVal like)
{
    return wf_expand(g, a, wf_value(g, like)->rank, wf_value(g, like)->shape);
}

WfVal wf_permute(WfGraph *g, WfVal a, const int *perm)
{
    WfDim p[WF_MAX_RANK];
    int r = wf_rank_of(g, a);
    for (int i = 0; i < r; i++)
        p[i] = perm[i];
    return wf_emit(g, "prim.permute", "vI", a, p, r);
}

WfVal wf_transpose(WfGraph *g, WfVal a, int d0, int d1)
{
    int p[WF_MAX_RANK];
    for (int i = 0; i < WF_MAX_RANK; i++)
        p[i] = i == d0 ? d1 : i == d1 ? d0 : i;
    return wf_permute(g, a, p);
}

WfVal wf_slice(WfGraph *g, WfVal a, int dim, WfDim start, WfDim end, int64_t step)
{
    return wf_emit(g, "prim.slice", "vdiii", a, dim, start, end, (WfDim)step);
}

WfVal wf_squeeze(WfGraph *g, WfVal a, int dim)
{
    const WfValue *x = wf_value(g, a);
    WfDim s[WF_MAX_RANK];
    int r = 0;
    for (int i = 0; i < x->rank; i++)
        if (i != dim)
            s[r++] = x->shape[i];
    return wf_reshape(g, a, r, s);
}

WfVal wf_unsqueeze(WfGraph *g, WfVal a, int dim)
{
    const WfValue *x = wf_value(g, a);
    WfDim s[WF_MAX_RANK + 1];
    for (int i = 0, k = 0; i <= x->rank; i++)
        s[i] = i == dim ? 1 : x->shape[k++];
    return wf_reshape(g, a, x->rank + 1, s);
}

WfVal wf_pad(WfGraph *g, WfVal a, const WfDim *lo, const WfDim *hi, double fill)
{
    int r = wf_rank_of(g, a);
    return wf_emit(g, "prim.pad", "vIIf", a, lo, r, hi, r, fill);
}

WfVal wf_pad_dim(WfGraph *g, WfVal a, int dim, WfDim lo, WfDim hi, double fill)
{
    WfDim l[WF_MAX_RANK] = {0}, h[WF_MAX_RANK] = {0};
    l[dim] = lo;
    h[dim] = hi;
    return wf_pad(g, a, l, h, fill);
}

WfVal wf_cat(WfGraph *g, const WfVal *v, int n, int dim) { return wf_emit(g, "prim.cat", "Vd", v, n, dim); }

WfVal wf_slice_scatter(WfGraph *g, WfVal whole, WfVal part, int dim, WfDim start, WfDim end, int64_t step)
{
    WfExprs *e = g->exprs;
    WfDim size = wf_size_of(g, whole, dim);
    if (step == 1) {
        WfVal v[3];
        int n = 0;
        if (start != 0)
            v[n++] = wf_slice(g, whole, dim, 0, start, 1);
        v[n++] = part;
        if (end != size)
            v[n++] = wf_slice(g, whole, dim, end, size, 1);
        return wf_cat(g, v, n, dim);
    }
    /* every step-th element: spread the part (each element followed by step - 1 zeros) and choose by position */
    int rank = wf_rank_of(g, part);
    WfDim wide[WF_MAX_RANK], count = wf_size_of(g, part, dim);
    if (rank == WF_MAX_RANK)
        wf_fail(g->ctx, WF_E_OP_FORM, "writing every n-th element of a tensor of %d dimensions", rank);
    memcpy(wide, wf_value(g, part)->shape, sizeof wide);
    wide[dim] = wf_emul(e, count, step);
    WfVal d = wf_pad_dim(g, wf_unsqueeze(g, part, dim + 1), dim + 1, 0, step - 1, 0);
    d = wf_reshape(g, d, rank, wide);
    d = wf_pad_dim(g, d, dim, start, wf_esub(e, size, wf_eadd(e, start, wide[dim])), 0);
    const WfValue *w = wf_value(g, whole);
    WfVal at = wf_iota(g, WF_I64, w->rank, w->shape, dim);
    WfVal first = wf_dim_scalar(g, WF_I64, start), last = wf_dim_scalar(g, WF_I64, end);
    WfVal off = wf_binary(g, "prim.fmod", wf_sub(g, at, first), wf_scalar(g, WF_I64, (double)step));
    WfVal hit = wf_binary(g, "prim.and", wf_binary(g, "prim.ge", at, first), wf_binary(g, "prim.lt", at, last));
    hit = wf_binary(g, "prim.and", hit, wf_binary(g, "prim.eq", off, wf_scalar(g, WF_I64, 0)));
    return wf_where(g, hit, d, whole);
}

WfVal wf_flip(WfGraph *g, WfVal a, const int *dims, int n)
{
    WfDim d[WF_MAX_RANK];
    for (int i = 0; i < n; i++)
        d[i] = dims[i];
    return wf_emit(g, "prim.flip", "vI", a, d, n);
}

/* ---- reductions ---- */

WfVal wf_keep_dims(WfGraph *g, WfVal reduced, WfVal full, uint32_t dims)
{
    const WfValue *x = wf_value(g, full);
    WfDim s[WF_MAX_RANK];
    for (int i = 0; i < x->rank; i++)
        s[i] = dims >> i & 1 ? 1 : x->shape[i];
    return wf_reshape(g, reduced, x->rank, s);
}

WfVal wf_reduce(WfGraph *g, const char *prim, WfVal a, uint32_t dims, bool keep)
{
    WfDim d[WF_MAX_RANK];
    int n = 0;
    for (int i = 0; i < wf_rank_of(g, a); i++)
        if (dims >> i & 1)
            d[n++] = i;
    WfVal r = wf_emit(g, prim, "vI", a, d, n);
    return keep ? wf_keep_dims(g, r, a, dims) : r;
}

WfVal wf_sum(WfGraph *g, WfVal a, uint32_t dims, bool keep) { return wf_reduce(g, "prim.sum", a, dims, keep); }

WfDim wf_count(WfGraph *g, WfVal a, uint32_t dims)
{
    WfDim n = 1;
    for (int i = 0; i < wf_rank_of(g, a); i++)
        if (dims >> i & 1)
            n = wf_emul(g->exprs, n, wf_size_of(g, a, i));
    return n;
}

WfVal wf_mean(WfGraph *g, WfVal a, uint32_t dims, bool keep)
{
    WfVal s = wf_sum(g, a, dims, keep);
    WfDim n = wf_count(g, a, dims);
    int64_t lit;
    if (wf_elit(g->exprs, n, &lit))
        return wf_muls(g, s, 1.0 / (double)lit);
    return wf_div(g, s, wf_dim_scalar(g, wf_dtype_of(g, a), n));
}

WfVal wf_sum_to(WfGraph *g, WfVal a, int rank, const WfDim *shape)
{
    const WfValue *x = wf_value(g, a);
    WfDim want[WF_MAX_RANK];
    memcpy(want, shape, (size_t)rank * sizeof *shape);
    uint32_t dims = 0;
    int extra = x->rank - rank;
    for (int i = 0; i < x->rank; i++)
        if (i < extra || (want[i - extra] == 1 && x->shape[i] != 1))
            dims |= 1u << i;
    return wf_reshape(g, dims ? wf_sum(g, a, dims, false) : a, rank, want);
}

uint32_t wf_dims_mask(WfGraph *g, const WfNode *n, int arg, int rank)
{
    const WfArg *a = &n->args[arg];
    if (a->kind == WF_ARG_NONE || (a->kind == WF_ARG_INTS && !a->n))
        return WF_ALL_DIMS(rank);
    if (a->kind == WF_ARG_INT)
        return rank ? 1u << wf_dim_index(g, n, a->i, rank) : 0;
    uint32_t m = 0;
    for (int i = 0; i < a->n; i++)
        m |= rank ? 1u << wf_dim_index(g, n, a->ints[i], rank) : 0;
    return m;
}

WfVal wf_matmul(WfGraph *g, WfVal a, WfVal b) { return wf_emit(g, "prim.matmul", "vv", a, b); }

/* ---- indexing ---- */

WfVal wf_gather(WfGraph *g, WfVal x, int dim, WfVal index) { return wf_emit(g, "prim.gather", "vdv", x, dim, index); }

WfVal wf_take_rows(WfGraph *g, WfVal x, int dim, WfVal index)
{
    const WfValue *v = wf_value(g, x), *iv = wf_value(g, index);
    WfDim result[2 * WF_MAX_RANK], flat[WF_MAX_RANK], lead[WF_MAX_RANK];
    int r = 0, ir = iv->rank, xr = v->rank;
    WfDim rows = wf_numel(g, index);
    if (xr - 1 + ir > WF_MAX_RANK)
        wf_fail(g->ctx, WF_E_OP_FORM, "an indexed result has more than %d dimensions", WF_MAX_RANK);
    for (int i = 0; i < xr; i++) {
        flat[i] = i == dim ? rows : v->shape[i];
        lead[i] = i == dim ? rows : 1;
        for (int k = 0; i == dim && k < ir; k++)
            result[r++] = iv->shape[k];
        if (i != dim)
            result[r++] = v->shape[i];
    }
    WfVal wide = wf_expand(g, wf_reshape(g, index, xr, lead), xr, flat);
    return wf_reshape(g, wf_gather(g, x, dim, wide), r, result);
}

/* ---- arguments ---- */

WfVal wf_operand(WfGraph *g, const WfNode *n, int arg, WfDtype t)
{
    const WfArg *a = &n->args[arg];
    if (a->kind == WF_ARG_TENSOR)
        return wf_cast(g, a->val, t);
    if (a->kind == WF_ARG_INT)
        return wf_dim_scalar(g, t, a->i);
    return wf_scalar(g, t, wf_float(g, n, arg));
}

/* Categories bool < int < float; within PyTorch's three priorities (tensors with dimensions, 0-d tensors, Python
 * numbers) a lower priority only raises the category, to that category's default dtype for numbers. */
static int category(WfDtype t) { return t == WF_BOOL ? 0 : wf_dtype_is_float(t) ? 2 : 1; }

WfDtype wf_promote_types(WfDtype a, WfDtype b)
{
    if (!a || a == b)
        return b;
    if (!b)
        return a;
    int ca = category(a), cb = category(b);
    if (ca != cb)
        return ca > cb ? a : b;
    if (ca == 2) {
        if ((a == WF_F16 && b == WF_BF16) || (a == WF_BF16 && b == WF_F16))
            return WF_F32;
        return wf_dtype_size(a) > wf_dtype_size(b) ? a : b;
    }
    if (a == WF_U8 || b == WF_U8) { /* u8 with a signed type: the next wider signed one */
        WfDtype s = a == WF_U8 ? b : a;
        return s == WF_I8 ? WF_I16 : s;
    }
    return wf_dtype_size(a) > wf_dtype_size(b) ? a : b;
}

WfDtype wf_promote(WfGraph *g, const WfNode *n, const int *args, int n_args)
{
    WfDtype level[3] = {0}; /* dimensioned, 0-d, numbers */
    for (int i = 0; i < n_args; i++) {
        const WfArg *a = &n->args[args[i]];
        if (a->kind == WF_ARG_TENSOR) {
            int p = wf_rank_of(g, a->val) ? 0 : 1;
            level[p] = wf_promote_types(level[p], wf_dtype_of(g, a->val));
        } else if (a->kind == WF_ARG_FLOAT) {
            level[2] = wf_promote_types(level[2], WF_F32);
        } else if (a->kind == WF_ARG_INT) {
            level[2] = wf_promote_types(level[2], WF_I64);
        } else if (a->kind == WF_ARG_BOOL) {
            level[2] = wf_promote_types(level[2], WF_BOOL);
        }
    }
    WfDtype t = 0;
    for (int p = 0; p < 3; p++)
        if (level[p] && (!t || category(level[p]) > category(t)))
            t = level[p];
    return t;
}

WfDtype wf_promote_float(WfGraph *g, const WfNode *n, const int *args, int n_args)
{
    WfDtype t = wf_promote(g, n, args, n_args);
    return wf_dtype_is_float(t) ? t : WF_F32;
}
