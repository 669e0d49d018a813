/* Scaled dot-product attention. It becomes prim.attention in four dimensions [batch, heads, tokens,
 * features], or, where that kernel does not do it (dropout on the probabilities, double precision), the plain
 * formula with a softmax that gives zeros for a query that sees no key, as PyTorch's does. */
#include "ops/ops_private.h"

#include <math.h>
#include <string.h>

#define E(g)      ((g)->exprs)
#define DECOMPOSE WfGraph *g, const WfNode *n, WfVal *out
#define T(i)      wf_tensor(n, i)

typedef struct {
    WfVal q, k, v, mask; /* mask: added to the scores, broadcasts to them; may be 0 */
    double scale, dropout;
    bool causal;
} Attention;

static WfVal additive(WfGraph *g, WfVal mask, WfDtype t)
{
    if (!mask || wf_dtype_of(g, mask) != WF_BOOL)
        return mask ? wf_cast(g, mask, t) : 0;
    return wf_where(g, mask, wf_scalar(g, t, 0), wf_scalar(g, t, -INFINITY));
}

/* x with its leading dimensions (all but `keep`) broadcast to lead[0..r) and flattened into one. */
static WfVal flatten_lead(WfGraph *g, WfVal x, int keep, int r, const WfDim *lead)
{
    WfDim shape[WF_MAX_RANK], flat[4];
    const WfValue *v = wf_value(g, x);
    memcpy(shape, lead, (size_t)r * sizeof *lead);
    flat[0] = 1;
    for (int i = 0; i < r; i++)
        flat[0] = wf_emul(E(g), flat[0], lead[i]);
    for (int i = 0; i < keep; i++)
        flat[1 + i] = shape[r + i] = v->shape[v->rank - keep + i];
    return wf_reshape(g, wf_expand(g, x, r + keep, shape), 1 + keep, flat);
}

static WfVal raise_rank(WfGraph *g, WfVal x, int rank)
{
    while (x && wf_rank_of(g, x) < rank)
        x = wf_unsqueeze(g, x, 0);
    return x;
}

/* Query, key and value to four dimensions, batch sizes made equal; returns the leading dimensions taken away.
 */
static void to_four(WfGraph *g, const WfNode *n, Attention *a, int *r, WfDim *lead)
{
    WfVal *x[3] = {&a->q, &a->k, &a->v};
    int full = 4, given = wf_rank_of(g, a->q);
    *r = 0;
    for (int i = 0; i < 3; i++)
        full = wf_rank_of(g, *x[i]) > full ? wf_rank_of(g, *x[i]) : full;
    for (int i = 0; i < 3; i++) {
        if (wf_rank_of(g, *x[i]) < 2)
            wf_fail_node(g, n, WF_E_SHAPES, "%s has fewer than two dimensions", wf_shape_text(g, *x[i]));
        if (wf_rank_of(g, *x[i]) == 3) /* [batch, tokens, features]: one head */
            *x[i] = wf_unsqueeze(g, *x[i], 1);
        *x[i] = raise_rank(g, *x[i], full);
        WfDim both[WF_MAX_RANK];
        wf_broadcast_shape(g, n, *r, lead, full - 3, wf_value(g, *x[i])->shape, r, both);
        memcpy(lead, both, (size_t)*r * sizeof *lead);
    }
    for (int i = 0; i < 3; i++)
        *x[i] = flatten_lead(g, *x[i], 3, *r, lead);
    if (!a->mask)
        return;
    if (wf_rank_of(g, a->mask) == 3 && given == 3)
        a->mask = wf_unsqueeze(g, a->mask, 1);
    a->mask = raise_rank(g, a->mask, full);
    if (full > 4)
        a->mask = flatten_lead(g, a->mask, 3, *r, lead);
}

/* Key and value heads repeated for the query heads that share them. */
static WfVal repeat_heads(WfGraph *g, WfVal x, WfDim heads)
{
    const WfValue *v = wf_value(g, x);
    WfDim have = v->shape[1], times = wf_efloordiv(E(g), heads, have);
    if (have == heads)
        return x;
    WfDim wide[5] = {v->shape[0], have, times, v->shape[2], v->shape[3]};
    WfDim flat[4] = {v->shape[0], heads, v->shape[2], v->shape[3]};
    return wf_reshape(g, wf_expand(g, wf_unsqueeze(g, x, 2), 5, wide), 4, flat);
}

static WfVal by_formula(WfGraph *g, const Attention *a)
{
    WfDim heads = wf_size_of(g, a->q, 1);
    WfVal k = repeat_heads(g, a->k, heads), v = repeat_heads(g, a->v, heads);
    WfVal s = wf_muls(g, wf_matmul(g, a->q, wf_transpose(g, k, 2, 3)), a->scale);
    if (a->mask)
        s = wf_add(g, s, a->mask);
    if (a->causal) {
        const WfValue *sv = wf_value(g, s);
        WfVal row = wf_iota(g, WF_I64, 4, sv->shape, 2), col = wf_iota(g, WF_I64, 4, sv->shape, 3);
        s = wf_where(g, wf_binary(g, "prim.le", col, row), s, wf_like(g, s, -INFINITY));
    }
    WfVal top = wf_detach(g, wf_reduce(g, "prim.amax", s, 8, true)), blind = wf_like(g, s, -INFINITY);
    blind = wf_binary(g, "prim.eq", top,
                      blind); /* these rows are made of zeros before the softmax, and after it */
    s = wf_where(g, blind, wf_like(g, s, 0), s);
    WfVal p = wf_where(g, blind, wf_like(g, s, 0), wf_emit(g, "aten._softmax", "vdb", s, 3, 0));
    return wf_matmul(g, wf_dropout(g, p, a->dropout), v);
}

static double scale_of(WfGraph *g, const WfNode *n, const char *name)
{
    const WfArg *s = wf_arg(n, name);
    int64_t d;
    if (s->kind == WF_ARG_FLOAT)
        return s->f;
    if (s->kind == WF_ARG_INT)
        return (double)s->i;
    if (!wf_elit(E(g), wf_size_of(g, T(0), -1), &d))
        wf_fail_node(g, n, WF_E_OP_FORM, "the number of features must be static");
    return 1 / sqrt((double)d);
}

static WfVal attend(WfGraph *g, const WfNode *n, WfVal mask, double dropout, bool causal, WfVal *lse)
{
    WfDtype t = wf_dtype_of(g, T(0));
    Attention a = {
        wf_wide(g, T(0)), wf_wide(g, T(1)), wf_wide(g, T(2)), 0, scale_of(g, n, "scale"), dropout, causal};
    WfDim lead[WF_MAX_RANK], shape[WF_MAX_RANK];
    int r, rank = 0;
    WfVal both[2] = {0};
    for (int i = 0; i < 3; i++)
        rank = wf_rank_of(g, T(i)) > rank ? wf_rank_of(g, T(i)) : rank;
    a.q = raise_rank(g, a.q, rank);
    a.k = raise_rank(g, a.k, rank);
    a.v = raise_rank(g, a.v, rank);
    a.mask = additive(g, mask, wf_dtype_of(g, a.q));
    to_four(g, n, &a, &r, lead);
    WfDim hk = wf_size_of(g, a.k, 1), hv = wf_size_of(g, a.v, 1);
    a.k = repeat_heads(g, a.k, hk == 1 ? hv : hk); /* one head stands for all */
    a.v = repeat_heads(g, a.v, hv == 1 ? hk : hv);
    hk = wf_size_of(g, a.k, 1);
    if (wf_size_of(g, a.q, 1) == 1)
        a.q = repeat_heads(g, a.q, hk);
    WfDim hq = wf_size_of(g, a.q, 1);
    if (hk != wf_size_of(g, a.v, 1) || wf_emul(E(g), wf_efloordiv(E(g), hq, hk), hk) != hq)
        wf_fail_node(g, n, WF_E_SHAPES, "%s query heads, but key %s and value %s", wf_shape_text(g, T(0)),
                     wf_shape_text(g, T(1)), wf_shape_text(g, T(2)));
    if (dropout > 0 || t == WF_F64) {
        both[0] = by_formula(g, &a);
    } else {
        WfVal res[WF_MAX_RESULTS];
        wf_emit_multi(g, res, "prim.attention", "vvvvbf", a.q, a.k, a.v, a.mask, (int)causal, a.scale);
        both[0] = res[0];
        both[1] = res[1];
    }
    if (lse)
        *lse = both[1];
    /* back to the operands' form, with what broadcasting added in front */
    const WfValue *y = wf_value(g, both[0]);
    WfDim last[3] = {y->shape[1], y->shape[2], y->shape[3]};
    int k = 0;
    if (rank < 4) {
        if (rank == 3)
            shape[k++] = lead[0];
        for (int i = 1; i < 3; i++)
            shape[k++] = last[i];
    } else {
        for (int i = 0; i < r; i++)
            shape[k++] = lead[i];
        for (int i = 0; i < 3; i++)
            shape[k++] = last[i];
    }
    return wf_cast(g, wf_reshape(g, both[0], k, shape), t);
}

static int sdpa(DECOMPOSE)
{
    out[0] = attend(g, n, T(3), wf_float(g, n, 4), wf_bool(n, 5), NULL);
    return 1;
}

static int flash_for_cpu(DECOMPOSE)
{
    if (wf_float(g, n, 3) > 0 || wf_dtype_of(g, T(0)) == WF_F64)
        wf_fail_node(g, n, WF_E_OP_FORM, "dropout and double precision are not supported");
    const WfArg *mask = wf_arg(n, "attn_mask");
    out[0] = attend(g, n, mask->kind == WF_ARG_TENSOR ? mask->val : 0, 0, wf_bool(n, 4), &out[1]);
    out[1] = wf_detach(g, out[1]);
    return 2;
}

#define QKV "Tensor query, Tensor key, Tensor value"

static const WfOp ops[] = {
    {.schema = "aten.scaled_dot_product_attention(" QKV ", Tensor? attn_mask=None, float dropout_p=0., bool "
               "is_causal=False, *, float? scale=None, bool enable_gqa=False) -> Tensor",
     .family = WF_COMPOSITE,
     .decompose = sdpa},
    {.schema = "aten._scaled_dot_product_flash_attention_for_cpu(" QKV
               ", float dropout_p=0., bool is_causal=False, *, "
               "Tensor? attn_mask=None, float? scale=None) -> (Tensor output, Tensor logsumexp)",
     .family = WF_COMPOSITE,
     .decompose = flash_for_cpu},
    {0}};

void wf_ops_aten_attention(void)
{
    wf_register(ops);
}
