/* Layers over a batch of symbolic size: built once with the size s0 and once with its value, forward and
 * backward, the oracle must give the same numbers. What needs a static size must say so when it is built,
 * never go wrong. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "grad/grad.h"
#include "ops/ops.h"

enum { BATCH = 3 };

typedef struct {
    WfCtx *ctx;
    WfArena *arena;
    WfGraph *g;
    WfDim batch;
    int n_in;
    WfVal in[16];
    double *data[16], *grad[16], *y;
    int64_t n_y;
    void (*build)(void *run);
    bool symbolic;
    WfVal out;
} Run;

static WfVal input(Run *r, WfDtype t, int high, int rank, const WfDim *shape)
{
    int64_t n = 1;
    for (int i = 0; i < rank; i++)
        n *= shape[i] == r->batch && r->symbolic ? BATCH : shape[i];
    double *d = WF_NEWN(r->arena, double, (size_t)n + 1);
    for (int64_t i = 0; i < n; i++) {
        double u = (double)(wf_hash64(&i, sizeof i, (uint64_t)r->n_in) >> 11) * 0x1p-53;
        d[i] = high ? floor(u * high) : u * 2 - 1;
    }
    r->data[r->n_in] = d;
    return r->in[r->n_in++] = wf_add_input(r->g, WF_IN_USER, "x", t, rank, shape);
}

#define SHAPE(...)  \
    (WfDim[])       \
    {               \
        __VA_ARGS__ \
    }
#define RANK(...)         (int)(sizeof(SHAPE(__VA_ARGS__)) / sizeof(WfDim))
#define X(...)            input(r, WF_F32, 0, RANK(__VA_ARGS__), SHAPE(__VA_ARGS__))
#define LABELS(high, ...) input(r, WF_I64, high, RANK(__VA_ARGS__), SHAPE(__VA_ARGS__))
#define LAYER(name, ...)        \
    static void name(void *run) \
    {                           \
        Run *r = run;           \
        WfGraph *g = r->g;      \
        WfDim b = r->batch;     \
        __VA_ARGS__             \
    }

LAYER(linear, WfVal x = X(b, 5, 4), w = X(6, 4), c = X(6);
      r->out = wf_emit(g, "aten.linear", "vvv", x, w, c);)
LAYER(loss, WfVal x = X(b, 5), t = LABELS(5, b); r->out = wf_emit(g, "aten.cross_entropy_loss", "vv", x, t);)
LAYER(smooth_loss, WfVal x = X(b, 5, 2), t = LABELS(5, b, 2), w = input(r, WF_F32, 3, 1, SHAPE(5));
      r->out = wf_emit(g, "aten.cross_entropy_loss", "vvvdif", x, t, wf_detach(g, w), 1, (WfDim)1, 0.1);)
LAYER(mse, WfVal x = X(b, 5), t = X(b, 5); r->out = wf_emit(g, "aten.mse_loss", "vv", x, t);)
LAYER(conv, WfVal x = X(b, 2, 7, 6), w = X(3, 2, 3, 3), c = X(3);
      r->out = wf_emit(g, "aten.conv2d", "vvvII", x, w, c, SHAPE(2, 1), 2, SHAPE(1, 0), 2);)
LAYER(transposed, WfVal x = X(b, 2, 4, 3), w = X(2, 3, 3, 3);
      r->out = wf_emit(g, "aten.conv_transpose2d.input", "vvnI", x, w, SHAPE(2, 2), 2);)
LAYER(max_pool, WfVal x = X(b, 2, 7, 6);
      r->out = wf_emit(g, "aten.max_pool2d", "vIII", x, SHAPE(3, 2), 2, SHAPE(2, 2), 2, SHAPE(1, 1), 2);)
LAYER(avg_pool, WfVal x = X(b, 2, 7, 6); r->out = wf_emit(g, "aten.avg_pool2d", "vI", x, SHAPE(3, 2), 2);)
LAYER(adaptive, WfVal x = X(b, 2, 7, 6);
      r->out = wf_emit(g, "aten.adaptive_avg_pool2d", "vI", x, SHAPE(3, 2), 2);)
LAYER(batch_norm, WfVal x = X(b, 4, 3), w = X(4), c = X(4), m = X(4), v = X(4);
      r->out = wf_emit(g, "nn.batch_norm", "vvvvvbffb", x, w, c, wf_detach(g, m), wf_detach(g, v), 1, 0.1,
                       1e-5, 0);)
LAYER(running, WfVal x = X(b, 4, 3), m = X(4), v = X(4); WfVal o[WF_MAX_RESULTS];
      wf_emit_multi(g, o, "nn.batch_norm", "vnnvvbffb", x, wf_detach(g, m), wf_detach(g, v), 1, 0.1, 1e-5, 0);
      r->out = wf_add(g, o[1], o[2]);)
LAYER(layer_norm, WfVal x = X(b, 5, 4), w = X(4), c = X(4);
      r->out = wf_emit(g, "aten.layer_norm", "vIvv", x, SHAPE(4), 1, w, c);)
LAYER(group_norm, WfVal x = X(b, 6, 4), w = X(6); r->out = wf_emit(g, "aten.group_norm", "vdv", x, 3, w);)
LAYER(attention, WfVal q = X(b, 2, 5, 4), k = X(b, 2, 6, 4), v = X(b, 2, 6, 4);
      r->out = wf_emit(g, "aten.scaled_dot_product_attention", "vvv", q, k, v);)
LAYER(sequence, WfVal q = X(2, 2, b, 4), k = X(2, 2, b, 4), v = X(2, 2, b, 4);
      r->out = wf_emit(g, "aten.scaled_dot_product_attention", "vvvnfb", q, k, v, 0.0, 1);)
LAYER(lstm, WfVal x = X(5, b, 3), s[2] = {X(2, b, 4), X(2, b, 4)}, p[8];
      for (int i = 0; i < 8; i += 4) p[i] = X(16, 3), p[i + 1] = X(16, 4), p[i + 2] = X(16), p[i + 3] = X(16);
      r->out = wf_emit(g, "aten.lstm.input", "vVVbdfbbb", x, s, 2, p, 8, 1, 1, 0.0, 1, 1, 0);)
LAYER(embedding, WfVal w = X(7, 4), i = LABELS(7, b, 5);
      r->out = wf_emit(g, "aten.embedding", "vvi", w, i, (WfDim)2);)
LAYER(einsum, WfVal v[2] = {X(b, 5, 4), X(b, 4, 3)};
      r->out = wf_emit(g, "aten.einsum", "sV", "bij,bjk->bik", v, 2);)
LAYER(matmul, WfVal x = X(b, 2, 5, 4), y = X(2, 4, 3); r->out = wf_emit(g, "aten.matmul", "vv", x, y);)
LAYER(resample, WfVal x = X(b, 2, 4, 3);
      r->out = wf_emit(g, "aten.upsample_bilinear2d", "vIb", x, SHAPE(7, 5), 2, 0);)
LAYER(softmax, WfVal x = X(5, b); r->out = wf_emit(g, "aten.softmax.int", "vd", x, 1);)

static void run(void *arg)
{
    Run *r = arg;
    WfExprs *e = wf_exprs_new(r->ctx, r->arena);
    r->g = wf_graph_new(r->ctx, r->arena, e, WF_OP);
    r->batch = r->symbolic ? wf_sym(e, "s0", 2, 64) : BATCH;
    r->n_in = 0;
    r->build(r);
    WfGraph *g = r->g;
    WfVal wrt[16], grad[16] = {0}, weighted;
    int n = 0;
    for (int i = 0; i < r->n_in; i++)
        if (wf_dtype_of(g, r->in[i]) == WF_F32)
            wrt[n++] = r->in[i];
    weighted = wf_unary(g, "prim.sin", r->out); /* a cotangent that differs from element to element */
    if (wf_rank_of(g, r->out))
        weighted = wf_sum(g, weighted, WF_ALL_DIMS(wf_rank_of(g, r->out)), false);
    wf_grad_backward(g, weighted, 0, wrt, n, grad);
    wf_add_output(g, WF_OUT_USER, "y", r->out, -1);
    for (int i = 0; i < n; i++)
        if (grad[i])
            wf_add_output(g, WF_OUT_GRAD, "d", grad[i], 0);
    WfGraph *p = wf_graph_like(g, WF_PRIM);
    WfVal *map = WF_NEWN(r->arena, WfVal, (size_t)g->values.n);
    wf_graph_copy(g, p, map);
    int64_t *symbols = WF_NEWN(r->arena, int64_t, 64);
    if (r->symbolic)
        symbols[wf_esym_id(e, r->batch)] = BATCH;
    const double **inputs = WF_NEWN(r->arena, const double *, (size_t)g->inputs.n + 1);
    for (int i = 0; i < r->n_in; i++)
        inputs[wf_value(g, r->in[i])->index] = r->data[i];
    WfOracle o = {.g = p, .arena = r->arena, .symbols = symbols};
    wf_oracle_run(&o, inputs);
    WF_VEC(double) all = {0};
    for (int k = 0; k < p->outputs.n; k++)
        for (int64_t i = 0; i < wf_oracle_numel(&o, p->outputs.at[k].val); i++)
            WF_PUSH(r->arena, &all, o.val[p->outputs.at[k].val][i]);
    r->y = all.at;
    r->n_y = all.n;
}

static void symbolic_is_static(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        void (*build)(void *);
    } layers[] = {
#define L(name) {#name, name}
        L(linear),   L(loss),     L(smooth_loss), L(mse),     L(conv),       L(transposed), L(max_pool),
        L(avg_pool), L(adaptive), L(batch_norm),  L(running), L(layer_norm), L(group_norm), L(attention),
        L(sequence), L(lstm),     L(embedding),   L(einsum),  L(matmul),     L(resample),   L(softmax),
    };
    wf_ops_init();
    WfCtx *ctx = wf_ctx_new();
    int bad = 0;
    for (size_t k = 0; k < WF_LEN(layers); k++) {
        Run r[2];
        for (int s = 0; s < 2; s++) {
            r[s] =
                (Run){.ctx = ctx, .arena = wf_arena_new(ctx), .build = layers[k].build, .symbolic = s == 1};
            if (wf_guard(ctx, run, &r[s])) {
                printf("%s: %s %s\n", layers[k].name, ctx->diag.message,
                       ctx->diag.place ? ctx->diag.place : "");
                bad++;
            }
        }
        bool same = r[0].n_y == r[1].n_y;
        for (int64_t i = 0; same && i < r[0].n_y; i++)
            same = fabs(r[0].y[i] - r[1].y[i]) <= 1e-9 * (1 + fabs(r[0].y[i]));
        if (!same) {
            printf("%s: the two differ\n", layers[k].name);
            bad++;
        }
        wf_arena_free(r[0].arena);
        wf_arena_free(r[1].arena);
    }
    wf_ctx_free(ctx);
    assert_int_equal(bad, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(symbolic_is_static)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
