/* Primitives that a kernel of src/kernels computes: matmul, convolution, attention, recurrence, sorting, running sums.
 * Their shape rules and VJPs; which layouts a kernel takes is asked of the kernels room when the plan is made. */
#include "ops/ops_private.h"

#include <math.h>
#include <string.h>

#define E(g) ((g)->exprs)

/* ---- matmul(a[b.., M, K], b[b.., K, N]): equal batch dims ---- */

static void matmul_infer(WfGraph *g, const WfNode *n)
{
    const WfValue *a = wf_value(g, wf_tensor(n, 0)), *b = wf_value(g, wf_tensor(n, 1));
    bool ok = a->rank >= 2 && a->rank == b->rank && a->dtype == b->dtype && a->shape[a->rank - 1] == b->shape[a->rank - 2];
    for (int i = 0; ok && i < a->rank - 2; i++)
        ok = a->shape[i] == b->shape[i];
    if (!ok)
        wf_fail_node(g, n, WF_E_SHAPES, "%s times %s", wf_shape_text(g, wf_tensor(n, 0)),
                     wf_shape_text(g, wf_tensor(n, 1)));
    WfDim shape[WF_MAX_RANK];
    memcpy(shape, a->shape, sizeof shape);
    shape[a->rank - 1] = b->shape[a->rank - 1];
    wf_set_result(g, n, 0, a->dtype, a->rank, shape);
}

/* x y, or (y' x')' when the operand it is the gradient of is itself a transpose: the two transposes then cancel, and
 * the gradient of a weight comes out in the weight's own layout. */
static WfVal product_for(WfGraph *g, WfVal operand, WfVal x, WfVal y)
{
    const WfNode *p = wf_producer(g, operand);
    int r = wf_rank_of(g, x);
    if (p && !strcmp(p->schema->name, "prim.permute") && p->args[1].ints[r - 1] == r - 2 &&
        p->args[1].ints[r - 2] == r - 1)
        return wf_transpose(g, wf_matmul(g, wf_transpose(g, y, r - 2, r - 1), wf_transpose(g, x, r - 2, r - 1)), r - 2,
                            r - 1);
    return wf_matmul(g, x, y);
}

static void matmul_vjp(WfGraph *g, const WfNode *n, const WfVal *dy, WfVal *dx)
{
    WfVal a = wf_tensor(n, 0), b = wf_tensor(n, 1);
    int r = wf_rank_of(g, a);
    if (wf_wants(g, 0))
        dx[0] = product_for(g, a, dy[0], wf_transpose(g, b, r - 2, r - 1));
    if (wf_wants(g, 1))
        dx[1] = product_for(g, b, wf_transpose(g, a, r - 2, r - 1), dy[0]);
}

/* ---- convolution; x[N, C, s..], w[O, C/groups, k..]; padding the same on both sides ---- */

static WfDim conv_size(WfGraph *g, WfDim in, WfDim k, WfDim stride, WfDim pad, WfDim dil)
{
    WfExprs *e = E(g);
    WfDim span = wf_eadd(e, wf_emul(e, dil, wf_esub(e, k, 1)), 1);
    return wf_eadd(e, wf_efloordiv(e, wf_esub(e, wf_eadd(e, in, wf_emul(e, 2, pad)), span), stride), 1);
}

static void conv_infer(WfGraph *g, const WfNode *n)
{
    const WfValue *x = wf_value(g, wf_tensor(n, 0)), *w = wf_value(g, wf_tensor(n, 1));
    const WfArg *stride = &n->args[2], *pad = &n->args[3], *dil = &n->args[4];
    int s = x->rank - 2;
    if (x->rank != w->rank || s < 1 || s > 3 || stride->n != s || pad->n != s || dil->n != s ||
        x->dtype != w->dtype || x->shape[1] != wf_emul(E(g), w->shape[1], wf_int(n, 5)))
        wf_fail_node(g, n, WF_E_SHAPES, "input %s and weight %s do not fit", wf_shape_text(g, wf_tensor(n, 0)),
                     wf_shape_text(g, wf_tensor(n, 1)));
    WfDim shape[WF_MAX_RANK] = {x->shape[0], w->shape[0]};
    for (int i = 0; i < s; i++) {
        int64_t v;
        shape[2 + i] = conv_size(g, x->shape[2 + i], w->shape[2 + i], stride->ints[i], pad->ints[i], dil->ints[i]);
        if (wf_elit(E(g), shape[2 + i], &v) && v < 1)
            wf_fail_node(g, n, WF_E_SHAPES, "the kernel is larger than the padded input %s",
                         wf_shape_text(g, wf_tensor(n, 0)));
    }
    wf_set_result(g, n, 0, x->dtype, x->rank, shape);
}

#define CONV_REST(n) &(n)->args[at], &(n)->args[at + 1], &(n)->args[at + 2], &(n)->args[at + 3]

static WfVal bwd_data(WfGraph *g, WfVal dy, WfVal w, WfVal like, const WfNode *n, int at)
{
    const WfValue *x = wf_value(g, like);
    return wf_emit(g, "prim.conv_bwd_data", "vvIaaaa", dy, w, x->shape, (int)x->rank, CONV_REST(n));
}

static WfVal bwd_weight(WfGraph *g, WfVal x, WfVal dy, WfVal like, const WfNode *n, int at)
{
    const WfValue *w = wf_value(g, like);
    return wf_emit(g, "prim.conv_bwd_weight", "vvIaaaa", x, dy, w->shape, (int)w->rank, CONV_REST(n));
}

static void conv_vjp(WfGraph *g, const WfNode *n, const WfVal *dy, WfVal *dx)
{
    WfVal x = wf_tensor(n, 0), w = wf_tensor(n, 1);
    if (wf_wants(g, 0))
        dx[0] = bwd_data(g, dy[0], w, x, n, 2);
    if (wf_wants(g, 1))
        dx[1] = bwd_weight(g, x, dy[0], w, n, 2);
}

static void conv_bwd_infer(WfGraph *g, const WfNode *n)
{
    wf_set_result(g, n, 0, wf_dtype_of(g, wf_tensor(n, 0)), n->args[2].n, n->args[2].ints);
}

/* y = bwd_data(d, w) is linear in both: its adjoints are the convolution and the weight gradient. */
static void conv_bwd_data_vjp(WfGraph *g, const WfNode *n, const WfVal *dy, WfVal *dx)
{
    WfVal d = wf_tensor(n, 0), w = wf_tensor(n, 1);
    int at = 3;
    if (wf_wants(g, 0))
        dx[0] = wf_emit(g, "prim.conv", "vvaaaa", dy[0], w, CONV_REST(n));
    if (wf_wants(g, 1))
        dx[1] = bwd_weight(g, dy[0], d, w, n, 3);
}

/* ---- attention(q[B,H,T,D], k[B,Hk,S,D], v[B,Hk,S,Dv], mask?, causal, scale) -> o[B,H,T,Dv], lse[B,H,T] ---- */

static void attention_infer(WfGraph *g, const WfNode *n)
{
    const WfValue *q = wf_value(g, wf_tensor(n, 0)), *k = wf_value(g, wf_tensor(n, 1));
    const WfValue *v = wf_value(g, wf_tensor(n, 2));
    if (q->rank != 4 || k->rank != 4 || v->rank != 4 || q->shape[3] != k->shape[3] || k->shape[2] != v->shape[2] ||
        q->shape[0] != k->shape[0] || k->shape[1] != v->shape[1])
        wf_fail_node(g, n, WF_E_SHAPES, "query %s, key %s and value %s do not fit",
                     wf_shape_text(g, wf_tensor(n, 0)), wf_shape_text(g, wf_tensor(n, 1)),
                     wf_shape_text(g, wf_tensor(n, 2)));
    WfDim shape[4] = {q->shape[0], q->shape[1], q->shape[2], v->shape[3]};
    wf_set_result(g, n, 0, q->dtype, 4, shape);
    wf_set_result(g, n, 1, WF_F32, 3, shape);
}

/* The mask's gradient is not the kernel's: rebuilt from the probabilities exp(scale q k' + mask - lse). */
static WfVal mask_gradient(WfGraph *g, const WfNode *n, WfVal dy)
{
    WfVal q = wf_tensor(n, 0), k = wf_tensor(n, 1), v = wf_tensor(n, 2), mask = wf_tensor(n, 3);
    const WfValue *m = wf_value(g, mask), *qv = wf_value(g, q);
    if (wf_value(g, k)->shape[1] != qv->shape[1])
        wf_fail_node(g, n, WF_E_NO_GRADIENT, "the mask's gradient needs as many key heads as query heads");
    WfVal s = wf_add(g, wf_muls(g, wf_matmul(g, q, wf_transpose(g, k, 2, 3)), wf_float(g, n, 5)), mask);
    WfVal p = wf_unary(g, "prim.exp", wf_sub(g, s, wf_unsqueeze(g, n->out + 1, 3)));
    if (wf_bool(n, 4)) {
        const WfValue *sv = wf_value(g, s);
        WfVal row = wf_iota(g, WF_I64, 4, sv->shape, 2), col = wf_iota(g, WF_I64, 4, sv->shape, 3);
        p = wf_where(g, wf_binary(g, "prim.le", col, row), p, wf_like(g, p, 0));
    }
    WfVal dp = wf_matmul(g, dy, wf_transpose(g, v, 2, 3));
    WfVal delta = wf_sum(g, wf_mul(g, dy, n->out), 1u << 3, true);
    return wf_sum_to(g, wf_mul(g, p, wf_sub(g, dp, delta)), m->rank, m->shape);
}

static void attention_vjp(WfGraph *g, const WfNode *n, const WfVal *dy, WfVal *dx)
{
    WfVal d[3];
    if (!dy[0])
        return;
    if (wf_wants(g, 0) || wf_wants(g, 1) || wf_wants(g, 2)) {
        wf_emit_multi(g, d, "prim.attention_bwd", "vvvvvvvbf", wf_tensor(n, 0), wf_tensor(n, 1), wf_tensor(n, 2),
                      n->out, dy[0], n->out + 1, wf_tensor(n, 3), (int)wf_bool(n, 4), wf_float(g, n, 5));
        memcpy(dx, d, sizeof d);
    }
    if (wf_tensor(n, 3) && wf_wants(g, 3))
        dx[3] = mask_gradient(g, n, dy[0]);
}

static void attention_bwd_infer(WfGraph *g, const WfNode *n)
{
    for (int i = 0; i < 3; i++) {
        const WfValue *x = wf_value(g, wf_tensor(n, i));
        wf_set_result(g, n, i, x->dtype, x->rank, x->shape);
    }
}

/* ---- rnn(xproj[T,B,G*H], w_hh[G*H,H], b_hh?, h0[B,H], c0?, mode, reverse) -> y[T,B,H], hT, cT, saved[T,B,S*H] ----
 * One layer, one direction; xproj holds x w_ih' + b_ih for all steps. Modes and the widths G and S as in kernels.h. */

static const int rnn_gates[] = {4, 3, 1, 1}, rnn_saved[] = {5, 4, 0, 0};

static void rnn_infer(WfGraph *g, const WfNode *n)
{
    const WfValue *x = wf_value(g, wf_tensor(n, 0)), *w = wf_value(g, wf_tensor(n, 1));
    const WfValue *h = wf_value(g, wf_tensor(n, 3));
    int mode = (int)wf_lit(g, n, 5);
    if (x->rank != 3 || w->rank != 2 || h->rank != 2 || x->shape[2] != w->shape[0] ||
        w->shape[0] != wf_emul(E(g), rnn_gates[mode], w->shape[1]) || h->shape[1] != w->shape[1])
        wf_fail_node(g, n, WF_E_SHAPES, "%s and weight %s do not fit", wf_shape_text(g, wf_tensor(n, 0)),
                     wf_shape_text(g, wf_tensor(n, 1)));
    WfDim y[3] = {x->shape[0], x->shape[1], w->shape[1]};
    WfDim s[3] = {x->shape[0], x->shape[1], wf_emul(E(g), rnn_saved[mode], w->shape[1])};
    wf_set_result(g, n, 0, x->dtype, 3, y);
    wf_set_result(g, n, 1, x->dtype, 2, y + 1);
    wf_set_result(g, n, 2, x->dtype, 2, y + 1);
    wf_set_result(g, n, 3, x->dtype, 3, s);
}

static void rnn_vjp(WfGraph *g, const WfNode *n, const WfVal *dy, WfVal *dx)
{
    int mode = (int)wf_lit(g, n, 5);
    bool reverse = wf_bool(n, 6);
    WfVal x = wf_tensor(n, 0), w = wf_tensor(n, 1), b = wf_tensor(n, 2), h0 = wf_tensor(n, 3), c0 = wf_tensor(n, 4);
    WfVal y = n->out, d[4]; /* dxproj, dhproj, dh0, dc0 */
    wf_emit_multi(g, d, "prim.rnn_bwd", "vvvvvvvvdb", w, h0, c0, y, n->out + 3, dy[0], dy[1],
                  mode == 0 ? dy[2] : (WfVal)0, mode, (int)reverse);
    const WfValue *xv = wf_value(g, x), *hv = wf_value(g, h0), *wv = wf_value(g, w);
    WfVal gates = mode == 1 ? d[1] : d[0]; /* gradient of the hidden side's pre-activations */
    WfDim t = xv->shape[0], flat = wf_emul(E(g), t, xv->shape[1]);
    if (wf_wants(g, 1)) { /* dW = sum over steps of gates' times the state before the step */
        WfVal first = wf_reshape(g, h0, 3, (WfDim[]){1, hv->shape[0], hv->shape[1]});
        WfVal parts[2] = {first, wf_slice(g, y, 0, 0, wf_esub(E(g), t, 1), 1)};
        if (reverse) {
            parts[0] = wf_slice(g, y, 0, 1, t, 1);
            parts[1] = first;
        }
        WfVal before = wf_reshape(g, wf_cat(g, parts, 2, 0), 2, (WfDim[]){flat, hv->shape[1]});
        WfVal rows = wf_reshape(g, gates, 2, (WfDim[]){flat, wv->shape[0]});
        dx[1] = wf_matmul(g, wf_transpose(g, rows, 0, 1), before);
    }
    dx[0] = d[0];
    int slot = 2;
    if (b) {
        if (wf_wants(g, slot))
            dx[slot] = wf_sum(g, gates, 3, false);
        slot++;
    }
    dx[slot++] = d[2];
    if (c0)
        dx[slot] = d[3];
}

static void rnn_bwd_infer(WfGraph *g, const WfNode *n)
{
    const WfValue *w = wf_value(g, wf_tensor(n, 0)), *y = wf_value(g, wf_tensor(n, 3));
    WfDim x[3] = {y->shape[0], y->shape[1], w->shape[0]};
    wf_set_result(g, n, 0, y->dtype, 3, x);
    wf_set_result(g, n, 1, y->dtype, 3, x);
    wf_set_result(g, n, 2, y->dtype, 2, y->shape + 1);
    wf_set_result(g, n, 3, y->dtype, 2, y->shape + 1);
}

/* ---- sort(x, descending) along the last dim: stable, NaN largest -> values, i64 indices ---- */

static void sort_infer(WfGraph *g, const WfNode *n)
{
    const WfValue *x = wf_value(g, wf_tensor(n, 0));
    wf_set_result(g, n, 0, x->dtype, x->rank, x->shape);
    wf_set_result(g, n, 1, WF_I64, x->rank, x->shape);
}

static void sort_vjp(WfGraph *g, const WfNode *n, const WfVal *dy, WfVal *dx)
{
    if (!dy[0])
        return;
    const WfValue *x = wf_value(g, wf_tensor(n, 0));
    WfVal zeros = wf_full(g, x->dtype, x->rank, x->shape, 0);
    dx[0] = wf_scatter(g, zeros, wf_rank_of(g, n->out) - 1, n->out + 1, dy[0], "set");
}

/* ---- running sums and products along dim; reverse: from the end ---- */

static void same_infer(WfGraph *g, const WfNode *n)
{
    const WfValue *x = wf_value(g, wf_tensor(n, 0));
    wf_set_result(g, n, 0, x->dtype, x->rank, x->shape);
}

static void cumsum_vjp(WfGraph *g, const WfNode *n, const WfVal *dy, WfVal *dx)
{
    dx[0] = wf_emit(g, "prim.cumsum", "vib", dy[0], wf_int(n, 1), !wf_bool(n, 2));
}

/* dx_i = sum over k >= i of dy_k y_k / x_i; exact where no element is zero. With zeros PyTorch's rule is needed: the
 * terms after the first zero vanish, and at the first zero the product of the others stands for y / x. */
static void cumprod_vjp(WfGraph *g, const WfNode *n, const WfVal *dy, WfVal *dx)
{
    WfVal x = wf_tensor(n, 0), zero = wf_like(g, x, 0), one = wf_like(g, x, 1);
    WfDim dim = wf_int(n, 1);
    bool rev = wf_bool(n, 2);
    WfVal is0 = wf_binary(g, "prim.eq", x, zero);
    WfVal zeros = wf_emit(g, "prim.cumsum", "vib", wf_cast(g, is0, wf_dtype_of(g, x)), dim, rev);
    WfVal first = wf_binary(g, "prim.and", is0, wf_binary(g, "prim.eq", zeros, one));
    WfVal before = wf_binary(g, "prim.eq", zeros, zero);
    WfVal plain = wf_emit(g, "prim.cumsum", "vib", wf_mul(g, dy[0], n->out), dim, !rev);
    /* product with the first zero taken out: alive until the second zero */
    WfVal mended = wf_emit(g, "prim.cumprod", "vib", wf_where(g, first, one, x), dim, rev);
    WfVal alive = wf_where(g, wf_binary(g, "prim.ge", zeros, one), wf_mul(g, dy[0], mended), zero);
    WfVal at_zero = wf_emit(g, "prim.cumsum", "vib", alive, dim, !rev);
    WfVal other = wf_where(g, before, wf_div(g, plain, wf_where(g, is0, one, x)), zero);
    dx[0] = wf_where(g, first, at_zero, other);
}

#define CONV_ARGS "int[] stride, int[] padding, int[] dilation, int groups"

/* ---- the kernels' calling conventions (src/kernels/kernels.h) ---- */

static void operand(WfLibraryCall *c, WfVal v) { c->at[c->n++].v = v; }

static void channels_last(WfGraph *g, WfLibraryCall *c, WfVal v)
{
    int r = wf_rank_of(g, v);
    int8_t *o = c->at[c->n].order;
    c->at[c->n].ordered = c->at[c->n].dense = true;
    o[0] = 0;
    for (int i = 2; i < r; i++)
        o[i - 1] = (int8_t)i;
    o[r - 1] = 1;
    operand(c, v);
}

static void dense(WfLibraryCall *c, WfVal v)
{
    c->at[c->n].dense = true;
    operand(c, v);
}

static void gemm_call(WfGraph *g, const WfNode *n, WfLibraryCall *c)
{
    (void)g;
    c->kind = "gemm";
    operand(c, wf_tensor(n, 0));
    operand(c, wf_tensor(n, 1));
    operand(c, 0);
    operand(c, n->out);
}

static void conv_params(WfGraph *g, const WfNode *n, int at, WfLibraryCall *c)
{
    c->param[0] = wf_lit(g, n, at + 3);
    for (int i = 0; i < n->args[at].n; i++) {
        c->param[1 + i] = n->args[at].ints[i];
        c->param[7 + i] = n->args[at + 1].ints[i];
        c->param[4 + i] = n->args[at + 2].ints[i];
    }
}

static void conv_call(WfGraph *g, const WfNode *n, WfLibraryCall *c)
{
    c->kind = "conv_fwd";
    channels_last(g, c, wf_tensor(n, 0));
    dense(c, wf_tensor(n, 1));
    operand(c, 0);
    channels_last(g, c, n->out);
    conv_params(g, n, 2, c);
}

static void conv_bwd_data_call(WfGraph *g, const WfNode *n, WfLibraryCall *c)
{
    c->kind = "conv_bwd_data";
    channels_last(g, c, wf_tensor(n, 0));
    dense(c, wf_tensor(n, 1));
    channels_last(g, c, n->out);
    conv_params(g, n, 3, c);
}

static void conv_bwd_weight_call(WfGraph *g, const WfNode *n, WfLibraryCall *c)
{
    c->kind = "conv_bwd_weight";
    channels_last(g, c, wf_tensor(n, 0));
    channels_last(g, c, wf_tensor(n, 1));
    dense(c, n->out);
    operand(c, 0);
    conv_params(g, n, 3, c);
}

/* Heads are kept between tokens and features, [B, T, H, D], so that splitting and joining heads copies nothing. */
static void heads(WfLibraryCall *c, WfVal v)
{
    static const int8_t order[4] = {0, 2, 1, 3};
    c->at[c->n].ordered = true;
    memcpy(c->at[c->n].order, order, sizeof order);
    operand(c, v);
}

static void attention_call(WfGraph *g, const WfNode *n, WfLibraryCall *c)
{
    c->kind = "attention_fwd";
    for (int i = 0; i < 4; i++)
        operand(c, wf_tensor(n, i));
    heads(c, n->out);
    dense(c, n->out + 1);
    c->param[0] = wf_bool(n, 4);
    c->fparam[0] = wf_float(g, n, 5);
}

static void attention_bwd_call(WfGraph *g, const WfNode *n, WfLibraryCall *c)
{
    c->kind = "attention_bwd";
    for (int i = 0; i < 7; i++)
        operand(c, wf_tensor(n, i));
    c->at[5].dense = true;
    for (WfVal i = 0; i < 3; i++)
        heads(c, n->out + i);
    c->param[0] = wf_bool(n, 7);
    c->fparam[0] = wf_float(g, n, 8);
}

static bool empty(WfGraph *g, WfVal v) { return wf_size_of(g, v, -1) == 0; }

static void rnn_call(WfGraph *g, const WfNode *n, WfLibraryCall *c)
{
    c->kind = "rnn_fwd";
    for (int i = 0; i < 5; i++)
        operand(c, wf_tensor(n, i));
    for (WfVal i = 0; i < 4; i++)
        dense(c, (i == 2 && !wf_tensor(n, 4)) || empty(g, n->out + i) ? 0 : n->out + i);
    c->param[0] = wf_lit(g, n, 5);
    c->param[1] = wf_bool(n, 6);
}

static void rnn_bwd_call(WfGraph *g, const WfNode *n, WfLibraryCall *c)
{
    int64_t mode = wf_lit(g, n, 8);
    c->kind = "rnn_bwd";
    for (int i = 0; i < 8; i++)
        operand(c, wf_tensor(n, i) && empty(g, wf_tensor(n, i)) ? 0 : wf_tensor(n, i));
    dense(c, n->out);
    dense(c, mode == 1 ? n->out + 1 : 0);
    dense(c, n->out + 2);
    dense(c, wf_tensor(n, 2) ? n->out + 3 : 0);
    c->param[0] = mode;
    c->param[1] = wf_bool(n, 9);
}

static void sort_call(WfGraph *g, const WfNode *n, WfLibraryCall *c)
{
    (void)g;
    c->kind = "sort";
    dense(c, wf_tensor(n, 0));
    dense(c, n->out);
    dense(c, n->out + 1);
    c->param[0] = wf_bool(n, 1);
}

/* [outer, n, inner] around dimension dim. */
static void three(WfGraph *g, WfLibraryCall *c, WfVal v, int dim)
{
    const WfValue *x = wf_value(g, v);
    WfDim *s = c->at[c->n].shape;
    s[0] = s[2] = 1;
    for (int i = 0; i < x->rank; i++)
        if (i != dim)
            s[i < dim ? 0 : 2] = wf_emul(E(g), s[i < dim ? 0 : 2], x->shape[i]);
    s[1] = x->rank ? x->shape[dim] : 1;
    c->at[c->n].rank = 3;
    dense(c, v);
}

static void running(WfGraph *g, const WfNode *n, WfLibraryCall *c, const char *kind)
{
    c->kind = kind;
    three(g, c, wf_tensor(n, 0), (int)n->args[1].i);
    three(g, c, n->out, (int)n->args[1].i);
    c->param[0] = wf_bool(n, 2);
}

static void cumsum_call(WfGraph *g, const WfNode *n, WfLibraryCall *c) { running(g, n, c, "cumsum"); }
static void cumprod_call(WfGraph *g, const WfNode *n, WfLibraryCall *c) { running(g, n, c, "cumprod"); }

static const WfOp ops[] = {
    {.schema = "prim.matmul(Tensor a, Tensor b) -> Tensor", .family = WF_LIBRARY, .infer = matmul_infer,
     .vjp = matmul_vjp, .describe = gemm_call,
     .eval = wf_matmul_eval},
    {.schema = "prim.conv(Tensor x, Tensor w, " CONV_ARGS ") -> Tensor", .family = WF_LIBRARY, .infer = conv_infer,
     .vjp = conv_vjp, .describe = conv_call,
     .eval = wf_conv_eval},
    {.schema = "prim.conv_bwd_data(Tensor dy, Tensor w, int[] shape, " CONV_ARGS ") -> Tensor", .family = WF_LIBRARY,
     .infer = conv_bwd_infer, .vjp = conv_bwd_data_vjp, .describe = conv_bwd_data_call,
     .eval = wf_conv_bwd_data_eval},
    {.schema = "prim.conv_bwd_weight(Tensor x, Tensor dy, int[] shape, " CONV_ARGS ") -> Tensor",
     .family = WF_LIBRARY, .infer = conv_bwd_infer, .describe = conv_bwd_weight_call,
     .eval = wf_conv_bwd_weight_eval},
    {.schema = "prim.attention(Tensor q, Tensor k, Tensor v, Tensor? mask, bool causal, float scale) -> "
               "(Tensor, Tensor)",
     .family = WF_LIBRARY, .infer = attention_infer, .vjp = attention_vjp, .describe = attention_call,
     .eval = wf_attention_eval},
    {.schema = "prim.attention_bwd(Tensor q, Tensor k, Tensor v, Tensor o, Tensor do, Tensor lse, Tensor? mask, bool "
               "causal, float scale) -> (Tensor, Tensor, Tensor)",
     .family = WF_LIBRARY, .infer = attention_bwd_infer, .describe = attention_bwd_call,
     .eval = wf_attention_bwd_eval},
    {.schema = "prim.rnn(Tensor xproj, Tensor w_hh, Tensor? b_hh, Tensor h0, Tensor? c0, int mode, bool reverse) -> "
               "(Tensor, Tensor, Tensor, Tensor)",
     .family = WF_LIBRARY, .infer = rnn_infer, .vjp = rnn_vjp, .describe = rnn_call,
     .eval = wf_rnn_eval},
    {.schema = "prim.rnn_bwd(Tensor w_hh, Tensor h0, Tensor? c0, Tensor y, Tensor saved, Tensor? dy, Tensor? dhT, "
               "Tensor? dcT, int mode, bool reverse) -> (Tensor, Tensor, Tensor, Tensor)",
     .family = WF_LIBRARY, .infer = rnn_bwd_infer, .describe = rnn_bwd_call,
     .eval = wf_rnn_bwd_eval},
    {.schema = "prim.sort(Tensor x, bool descending) -> (Tensor, Tensor)", .family = WF_LIBRARY, .infer = sort_infer,
     .vjp = sort_vjp, .describe = sort_call,
     .eval = wf_sort_eval},
    {.schema = "prim.cumsum(Tensor x, int dim, bool reverse=False) -> Tensor", .family = WF_LIBRARY,
     .infer = same_infer, .vjp = cumsum_vjp, .describe = cumsum_call,
     .eval = wf_cumsum_eval},
    {.schema = "prim.cumprod(Tensor x, int dim, bool reverse=False) -> Tensor", .family = WF_LIBRARY,
     .infer = same_infer, .vjp = cumprod_vjp, .describe = cumprod_call,
     .eval = wf_cumprod_eval},
    {0}};

void wf_ops_library(void) { wf_register(ops); }
