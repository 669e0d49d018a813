/* Recurrent layers. Each layer and direction is one matrix product of all time steps with the input weights,
 * then the sequential part in prim.rnn. Single cells are written out. Gate order and formulas:
 * src/ops/evaluate_seq.c, which are PyTorch's (ATen/native/RNN.cpp). */
#include "ops/ops_private.h"

#include <string.h>

#define E(g)      ((g)->exprs)
#define DECOMPOSE WfGraph *g, const WfNode *n, WfVal *out
#define T(i)      wf_tensor(n, i)

enum { LSTM, GRU, TANH, RELU };

typedef struct {
    int mode, layers, directions, each; /* each: parameters of one layer and direction */
    const WfVal *params;
    bool biases, projected, train;
    double dropout;
} Stack;

static WfVal state(WfGraph *g, WfVal h, int k) /* h[layers * directions, B, H] at k, [B, H] */
{
    return wf_squeeze(g, wf_slice(g, h, 0, k, k + 1, 1), 0);
}

/* v[T, B, G] with `more` added at the step that comes first. */
static WfVal add_to_first(WfGraph *g, WfVal v, WfVal more, bool reverse)
{
    WfDim steps = wf_size_of(g, v, 0), at = reverse ? wf_esub(E(g), steps, 1) : 0, end = wf_eadd(E(g), at, 1);
    WfVal first = wf_add(g, wf_slice(g, v, 0, at, end, 1), wf_unsqueeze(g, more, 0));
    return wf_slice_scatter(g, v, first, 0, at, end, 1);
}

/* x[T, B, I] through one layer and direction. With a projection R the state is R u of the unit's output u: W_hh R is
 * then the recurrent weight of a layer without one, whose first step sees W_hh h0 beside its input. */
static WfVal one(WfGraph *g, const WfNode *n, const Stack *s, int k, WfVal x, WfVal h0, WfVal c0, WfVal *h,
                 WfVal *c)
{
    const WfVal *p = s->params + k * s->each;
    WfVal proj = wf_linear(g, n, x, p[0], s->biases ? p[2] : 0), before = state(g, h0, k), weight = p[1];
    WfVal after = s->projected ? p[s->each - 1] : 0, r[WF_MAX_RESULTS];
    bool reverse = s->directions == 2 && k % 2;
    if (after) {
        proj = add_to_first(g, proj, wf_linear(g, n, before, weight, 0), reverse);
        before = wf_zeros_like(g, state(g, c0, k));
        weight = wf_matmul(g, weight, after);
    }
    wf_emit_multi(g, r, "prim.rnn", "vvvvvdb", proj, weight, s->biases ? p[3] : (WfVal)0, before,
                  c0 ? state(g, c0, k) : (WfVal)0, s->mode, (int)reverse);
    for (int i = 0; after && i < 2; i++)
        r[i] = wf_linear(g, n, r[i], after, 0);
    *h = wf_unsqueeze(g, r[1], 0);
    *c = c0 ? wf_unsqueeze(g, r[2], 0) : 0;
    return r[0];
}

static void run(WfGraph *g, const WfNode *n, const Stack *s, WfVal x, bool batch_first, WfVal h0, WfVal c0,
                WfVal *out)
{
    WfVal h[WF_MAX_RESULTS], c[WF_MAX_RESULTS];
    int total = s->layers * s->directions;
    if (batch_first)
        x = wf_transpose(g, x, 0, 1);
    for (int l = 0; l < s->layers; l++) {
        WfVal y[2];
        for (int d = 0; d < s->directions; d++) {
            int k = l * s->directions + d;
            y[d] = one(g, n, s, k, x, h0, c0, &h[k], &c[k]);
        }
        x = s->directions == 2 ? wf_cat(g, y, 2, 2) : y[0];
        if (s->train && s->dropout > 0 && l + 1 < s->layers)
            x = wf_dropout(g, x, s->dropout);
    }
    out[0] = batch_first ? wf_transpose(g, x, 0, 1) : x;
    out[1] = wf_cat(g, h, total, 0);
    if (c0)
        out[2] = wf_cat(g, c, total, 0);
}

/* input, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first */
static int layers(WfGraph *g, const WfNode *n, int mode, WfVal *out)
{
    Stack s = {.mode = mode,
               .biases = wf_bool(n, 3),
               .layers = (int)wf_lit(g, n, 4),
               .dropout = wf_float(g, n, 5),
               .train = wf_bool(n, 6),
               .directions = wf_bool(n, 7) ? 2 : 1,
               .params = n->args[2].vals};
    s.each = s.biases ? 4 : 2;
    WfVal h0 = T(1), c0 = 0;
    if (mode == LSTM) {
        if (n->args[1].n != 2)
            wf_fail_node(g, n, WF_E_SHAPES, "two states are needed");
        h0 = n->args[1].vals[0];
        c0 = n->args[1].vals[1];
    }
    int total = s.layers * s.directions;
    if (total < 1 || total > WF_MAX_RESULTS)
        wf_fail_node(g, n, WF_E_OP_FORM, "%d layers", s.layers);
    s.projected = mode == LSTM && n->args[2].n == total * (s.each + 1); /* proj_size */
    s.each += s.projected;
    if (n->args[2].n != total * s.each || wf_rank_of(g, T(0)) != 3)
        wf_fail_node(g, n, WF_E_SHAPES, "%d weights do not make %d layers", n->args[2].n, total);
    run(g, n, &s, T(0), wf_bool(n, 8), h0, c0, out);
    return mode == LSTM ? 3 : 2;
}

static int lstm(DECOMPOSE)
{
    return layers(g, n, LSTM, out);
}
static int gru(DECOMPOSE)
{
    return layers(g, n, GRU, out);
}
static int rnn_tanh(DECOMPOSE)
{
    return layers(g, n, TANH, out);
}
static int rnn_relu(DECOMPOSE)
{
    return layers(g, n, RELU, out);
}

/* ---- cells: input, hx, w_ih, w_hh, b_ih, b_hh ---- */

static WfVal gate(WfGraph *g, WfVal v, int k, int count)
{
    int dim = wf_rank_of(g, v) - 1;
    WfDim h = wf_efloordiv(E(g), wf_size_of(g, v, dim), count);
    return wf_slice(g, v, dim, wf_emul(E(g), h, k), wf_emul(E(g), h, k + 1), 1);
}

static WfVal sigmoid(WfGraph *g, WfVal x)
{
    return wf_unary(g, "prim.sigmoid", x);
}
static WfVal tanh_of(WfGraph *g, WfVal x)
{
    return wf_unary(g, "prim.tanh", x);
}

static int lstm_cell(DECOMPOSE)
{
    if (n->args[1].n != 2)
        wf_fail_node(g, n, WF_E_SHAPES, "two states are needed");
    WfVal h = n->args[1].vals[0], c = n->args[1].vals[1];
    WfVal v = wf_add(g, wf_linear(g, n, T(0), T(2), T(4)), wf_linear(g, n, h, T(3), T(5)));
    WfVal i = sigmoid(g, gate(g, v, 0, 4)), f = sigmoid(g, gate(g, v, 1, 4));
    WfVal m = tanh_of(g, gate(g, v, 2, 4)), o = sigmoid(g, gate(g, v, 3, 4));
    out[1] = wf_add(g, wf_mul(g, f, c), wf_mul(g, i, m));
    out[0] = wf_mul(g, o, tanh_of(g, out[1]));
    return 2;
}

static int gru_cell(DECOMPOSE)
{
    WfVal x = wf_linear(g, n, T(0), T(2), T(4)), h = wf_linear(g, n, T(1), T(3), T(5));
    WfVal r = sigmoid(g, wf_add(g, gate(g, x, 0, 3), gate(g, h, 0, 3)));
    WfVal z = sigmoid(g, wf_add(g, gate(g, x, 1, 3), gate(g, h, 1, 3)));
    WfVal m = tanh_of(g, wf_add(g, gate(g, x, 2, 3), wf_mul(g, r, gate(g, h, 2, 3))));
    out[0] = wf_add(g, m, wf_mul(g, z, wf_sub(g, T(1), m)));
    return 1;
}

static WfVal simple(WfGraph *g, const WfNode *n)
{
    return wf_add(g, wf_linear(g, n, T(0), T(2), T(4)), wf_linear(g, n, T(1), T(3), T(5)));
}

static int rnn_tanh_cell(DECOMPOSE)
{
    out[0] = tanh_of(g, simple(g, n));
    return 1;
}

static int rnn_relu_cell(DECOMPOSE)
{
    out[0] = wf_emit(g, "aten.relu", "v", simple(g, n));
    return 1;
}

#define NAME(text, fn)                                                  \
    {                                                                   \
        .schema = "aten." text, .family = WF_COMPOSITE, .decompose = fn \
    }
#define REST                                                                                              \
    ", Tensor[] params, bool has_biases, int num_layers, float dropout, bool train, bool bidirectional, " \
    "bool batch_first) -> "
#define CELL ", Tensor w_ih, Tensor w_hh, Tensor? b_ih=None, Tensor? b_hh=None) -> "

static const WfOp ops[] = {NAME("lstm.input(Tensor input, Tensor[] hx" REST "(Tensor, Tensor, Tensor)", lstm),
                           NAME("gru.input(Tensor input, Tensor hx" REST "(Tensor, Tensor)", gru),
                           NAME("rnn_tanh.input(Tensor input, Tensor hx" REST "(Tensor, Tensor)", rnn_tanh),
                           NAME("rnn_relu.input(Tensor input, Tensor hx" REST "(Tensor, Tensor)", rnn_relu),
                           NAME("lstm_cell(Tensor input, Tensor[] hx" CELL "(Tensor, Tensor)", lstm_cell),
                           NAME("gru_cell(Tensor input, Tensor hx" CELL "Tensor", gru_cell),
                           NAME("rnn_tanh_cell(Tensor input, Tensor hx" CELL "Tensor", rnn_tanh_cell),
                           NAME("rnn_relu_cell(Tensor input, Tensor hx" CELL "Tensor", rnn_relu_cell),
                           {0}};

void wf_ops_aten_rnn(void)
{
    wf_register(ops);
}
