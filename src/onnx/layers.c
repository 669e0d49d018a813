/* Products, convolutions, attention, norms, pools and recurrent layers in ONNX. */
#include "onnx/private.h"

#include <math.h>
#include <string.h>

/* ---- products ---- */

void onnx_matmul(RULE)
{
    const char *a = IN(0), *b = IN(1);
    onnx_set(x, n, 0, onnx_node(x, op, a, b, NULL));
}

/* Stride, padding on both sides, dilation, groups, from argument `at` on. */
static void conv_attributes(Onnx *x, const WfNode *n, int at)
{
    int64_t v[4][2 * WF_MAX_RANK];
    int s = n->args[at].n;
    for (int i = 0; i < s; i++) {
        v[0][i] = onnx_literal(x, n->args[at].ints[i]);
        v[1][i] = v[1][s + i] = onnx_literal(x, n->args[at + 1].ints[i]);
        v[2][i] = onnx_literal(x, n->args[at + 2].ints[i]);
    }
    onnx_attr_ints(x, "strides", v[0], s);
    onnx_attr_ints(x, "pads", v[1], 2 * s);
    onnx_attr_ints(x, "dilations", v[2], s);
    onnx_attr_int(x, "group", wf_lit(x->g, n, at + 3));
}

void onnx_conv(RULE)
{
    const char *a = IN(0), *w = IN(1);
    onnx_begin(x, op);
    onnx_in(x, a);
    onnx_in(x, w);
    conv_attributes(x, n, 2);
    onnx_set(x, n, 0, onnx_end(x));
}

bool onnx_keep_conv(WfGraph *g, const WfNode *n)
{
    int s = wf_value(g, wf_tensor(n, 1))->rank - 2;
    return wf_value(g, wf_tensor(n, 0))->rank == s + 2 && n->args[3].n == s && n->args[4].n == s && n->args[5].n == s;
}

void onnx_conv_bias(RULE)
{
    const char *a = IN(0), *w = IN(1), *b = wf_tensor(n, 2) ? IN(2) : NULL;
    onnx_begin(x, op);
    onnx_in(x, a);
    onnx_in(x, w);
    if (b)
        onnx_in(x, b);
    conv_attributes(x, n, 3);
    onnx_set(x, n, 0, onnx_end(x));
}

/* The gradient of a convolution by its input is the transposed one. */
void onnx_conv_transposed(RULE)
{
    WfExprs *e = x->g->exprs;
    WfVal y = wf_tensor(n, 0), w = wf_tensor(n, 1);
    int64_t more[WF_MAX_RANK];
    int s = n->args[3].n;
    for (int i = 0; i < s; i++) { /* how far the given size is beyond the smallest */
        WfDim span = wf_eadd(e, wf_emul(e, n->args[5].ints[i], wf_esub(e, SHAPE(w)[2 + i], 1)), 1);
        WfDim least = wf_eadd(e, wf_emul(e, wf_esub(e, SHAPE(y)[2 + i], 1), n->args[3].ints[i]), span);
        least = wf_esub(e, least, wf_emul(e, 2, n->args[4].ints[i]));
        more[i] = onnx_literal(x, wf_esub(e, SHAPE(n->out)[2 + i], least));
    }
    const char *a = IN(0), *b = IN(1);
    onnx_begin(x, op);
    onnx_in(x, a);
    onnx_in(x, b);
    conv_attributes(x, n, 3);
    onnx_attr_ints(x, "output_padding", more, s);
    onnx_set(x, n, 0, onnx_end(x));
}

static const char *transposed(Onnx *x, const char *v) /* the last two of four dimensions */
{
    static const int64_t perm[4] = {0, 1, 3, 2};
    onnx_begin(x, "Transpose");
    onnx_in(x, v);
    onnx_attr_ints(x, "perm", perm, 4);
    return onnx_end(x);
}

/* Fewer key heads than query heads: each serves several in a row. */
static const char *repeated(Onnx *x, const char *v, const WfDim *shape, WfDim heads)
{
    WfDim each = wf_efloordiv(x->g->exprs, heads, shape[1]);
    WfDim apart[5] = {shape[0], shape[1], 1, shape[2], shape[3]}, wide[5] = {shape[0], shape[1], each, shape[2], shape[3]};
    WfDim to[4] = {shape[0], heads, shape[2], shape[3]};
    if (shape[1] == heads)
        return v;
    return onnx_reshape(x, onnx_node(x, "Expand", onnx_reshape(x, v, apart, 5), onnx_sizes(x, wide, 5), NULL), to, 4);
}

void onnx_attention(RULE)
{
    const WfDim *q = SHAPE(wf_tensor(n, 0)), *k = SHAPE(wf_tensor(n, 1)), *v = SHAPE(wf_tensor(n, 2));
    WfDtype t = wf_dtype_of(x->g, n->out);
    const char *key = repeated(x, IN(1), k, q[1]), *value = repeated(x, IN(2), v, q[1]);
    const char *s = onnx_node(x, "MatMul", IN(0), transposed(x, key), NULL);
    s = onnx_node(x, "Mul", s, onnx_scalar(x, t, wf_float(x->g, n, 5)), NULL);
    if (wf_tensor(n, 3))
        s = onnx_node(x, "Add", s, IN(3), NULL);
    if (wf_bool(n, 4)) {
        WfDim column[2] = {q[2], 1};
        const char *row = onnx_reshape(x, onnx_range(x, q[2]), column, 2);
        const char *seen = onnx_node(x, "LessOrEqual", onnx_range(x, k[2]), row, NULL);
        s = onnx_node(x, "Where", seen, s, onnx_scalar(x, t, -INFINITY));
    }
    onnx_begin(x, "Softmax");
    onnx_in(x, s);
    onnx_attr_int(x, "axis", 3);
    onnx_set(x, n, 0, onnx_node(x, op, onnx_end(x), value, NULL));
}

/* ---- norms, pools ---- */

/* A layer norm where it is one; else mean and variance by hand. */
void onnx_normalize(RULE)
{
    WfVal v = wf_tensor(n, 0), w = wf_tensor(n, 1), b = wf_tensor(n, 2);
    int r = RANK(v), k = n->args[3].n;
    int64_t axes[WF_MAX_RANK], sizes[WF_MAX_RANK], elements = 1;
    bool last = wf_dtype_of(x->g, v) == WF_F32 && (!w || RANK(w) == k) && (!b || RANK(b) == k);
    for (int i = 0; i < k; i++) {
        axes[i] = n->args[3].ints[i];
        last = last && axes[i] == r - k + i && wf_elit(x->g->exprs, SHAPE(v)[axes[i]], &sizes[i]);
        last = last && (!w || SHAPE(w)[i] == SHAPE(v)[axes[i]]) && (!b || SHAPE(b)[i] == SHAPE(v)[axes[i]]);
        elements *= last ? sizes[i] : 1;
    }
    const char *in = IN(0);
    if (last) {
        float *ones = WF_NEWN(x->a, float, (size_t)elements + 1);
        for (int64_t i = 0; i < elements; i++)
            ones[i] = 1;
        const char *scale = w ? IN(1) : onnx_constant(x, WF_F32, k, sizes, ones, (size_t)elements * sizeof *ones);
        const char *bias = b ? IN(2) : NULL;
        onnx_begin(x, op);
        onnx_in(x, in);
        onnx_in(x, scale);
        if (bias)
            onnx_in(x, bias);
        onnx_attr_int(x, "axis", r - k);
        onnx_attr_float(x, "epsilon", wf_float(x->g, n, 4));
        onnx_set(x, n, 0, onnx_end(x));
        return;
    }
    const char *over = onnx_ints(x, axes, k), *d = onnx_node(x, "Sub", in, onnx_node(x, "ReduceMean", in, over, NULL), NULL);
    const char *var = onnx_node(x, "ReduceMean", onnx_node(x, "Mul", d, d, NULL), over, NULL);
    var = onnx_node(x, "Add", var, onnx_scalar(x, wf_dtype_of(x->g, v), wf_float(x->g, n, 4)), NULL);
    d = onnx_node(x, "Div", d, onnx_node(x, "Sqrt", var, NULL, NULL), NULL);
    d = w ? onnx_node(x, "Mul", d, IN(1), NULL) : d;
    onnx_set(x, n, 0, b ? onnx_node(x, "Add", d, IN(2), NULL) : d);
}

bool onnx_keep_batch_norm(WfGraph *g, const WfNode *n)
{
    WfVal v = wf_tensor(n, 0);
    return !wf_bool(n, 5) && wf_tensor(n, 3) && wf_tensor(n, 4) && wf_value(g, v)->rank > 1 &&
           wf_elit(g->exprs, wf_value(g, v)->shape[1], NULL);
}

void onnx_batch_norm(RULE)
{
    int64_t channels = onnx_literal(x, SHAPE(wf_tensor(n, 0))[1]);
    const char *one = onnx_ints(x, &channels, 1), *in[5] = {IN(0)};
    for (int i = 1; i < 5; i++)
        in[i] = wf_tensor(n, i) ? IN(i) : onnx_node(x, "Expand", onnx_scalar(x, wf_dtype_of(x->g, n->out), i == 1), one, NULL);
    onnx_begin(x, op);
    for (int i = 0; i < 5; i++)
        onnx_in(x, in[i]);
    onnx_attr_float(x, "epsilon", wf_float(x->g, n, 7));
    onnx_set(x, n, 0, onnx_end(x));
}

void onnx_max_pool(RULE)
{
    int64_t v[4][2 * WF_MAX_RANK];
    int s = n->args[1].n;
    if (RANK(n->out) != s + 2)
        onnx_refuse(x, "pooling without a batch dimension");
    for (int i = 0; i < s; i++) {
        v[0][i] = onnx_literal(x, n->args[1].ints[i]);
        v[1][i] = onnx_literal(x, n->args[2].ints[i]);
        v[2][i] = onnx_literal(x, n->args[3].ints[i]);
        v[2][s + i] = onnx_literal(x, n->args[4].ints[i]);
        v[3][i] = onnx_literal(x, n->args[5].ints[i]);
    }
    onnx_begin(x, op);
    onnx_in(x, IN(0));
    onnx_attr_ints(x, "kernel_shape", v[0], s);
    onnx_attr_ints(x, "strides", v[1], s);
    onnx_attr_ints(x, "pads", v[2], 2 * s);
    onnx_attr_ints(x, "dilations", v[3], s);
    onnx_set(x, n, 0, onnx_end(x));
}

/* ---- recurrent layers: ONNX multiplies its input by a weight; here that is done already, so the weight only puts the gates in
 * ONNX's order (LSTM: i o f c, PyTorch i f g o; GRU: z r h, PyTorch r z n) ---- */

void onnx_rnn(RULE)
{
    static const char *const ops[] = {"LSTM", "GRU", "RNN", "RNN"};
    static const int gates[] = {4, 3, 1, 1}, order[4][4] = {{0, 3, 1, 2}, {1, 0, 2}, {0}, {0}};
    int mode = (int)wf_lit(x->g, n, 5), count = gates[mode];
    int64_t h = onnx_literal(x, SHAPE(wf_tensor(n, 1))[1]), all = count * h, shape[3] = {1, all, all}, flat = all, first = 0, second_axis = 1;
    int64_t *from = WF_NEWN(x->a, int64_t, (size_t)all);
    float *unit = WF_NEWN(x->a, float, wf_mul_size((size_t)all, (size_t)all)), *none = WF_NEWN(x->a, float, (size_t)all);
    (void)op;
    if (wf_dtype_of(x->g, n->out) != WF_F32)
        onnx_refuse(x, "recurrent layers in another precision than float32");
    for (int64_t i = 0; i < all; i++) {
        from[i] = order[mode][i / h] * h + i % h;
        unit[i * all + from[i]] = 1;
    }
    const char *places = onnx_ints(x, from, (int)all), *axis0 = onnx_ints(x, &first, 1), *axis1 = onnx_ints(x, &second_axis, 1);
    const char *in = IN(0), *w = onnx_constant(x, WF_F32, 3, shape, unit, (size_t)(all * all) * sizeof *unit);
    const char *r = onnx_node(x, "Unsqueeze", onnx_node(x, "Gather", IN(1), places, NULL), axis0, NULL);
    const char *zeros = onnx_constant(x, WF_F32, 1, &flat, none, (size_t)all * sizeof *none);
    const char *bias = wf_tensor(n, 2) ? onnx_node(x, "Gather", IN(2), places, NULL) : zeros, *out[3];
    onnx_begin(x, "Concat");
    onnx_in(x, zeros);
    onnx_in(x, bias);
    onnx_attr_int(x, "axis", 0);
    bias = onnx_node(x, "Unsqueeze", onnx_end(x), axis0, NULL);
    const char *h0 = onnx_node(x, "Unsqueeze", IN(3), axis0, NULL);
    const char *c0 = mode == 0 ? onnx_node(x, "Unsqueeze", IN(4), axis0, NULL) : NULL;
    onnx_begin(x, ops[mode]);
    onnx_in(x, in);
    onnx_in(x, w);
    onnx_in(x, r);
    onnx_in(x, bias);
    onnx_in(x, NULL); /* all sequences have the full length */
    onnx_in(x, h0);
    if (c0)
        onnx_in(x, c0);
    onnx_attr_int(x, "hidden_size", h);
    onnx_attr_text(x, "direction", wf_bool(n, 6) ? "reverse" : "forward");
    if (mode == 1)
        onnx_attr_int(x, "linear_before_reset", 1);
    if (mode == 3)
        onnx_attr_texts(x, "activations", "Relu");
    onnx_end_many(x, out, mode == 0 ? 3 : 2);
    onnx_set(x, n, 0, onnx_node(x, "Squeeze", out[0], axis1, NULL));
    onnx_set(x, n, 1, onnx_node(x, "Squeeze", out[1], axis0, NULL));
    if (mode == 0)
        onnx_set(x, n, 2, onnx_node(x, "Squeeze", out[2], axis0, NULL));
}
