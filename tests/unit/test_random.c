/* Random operators by their statistics: range, mean and variance of 40,000 draws by the oracle, whose
 * prim.rand is the generator's definition. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ops/ops.h"

enum { DRAWS = 40000 };

typedef struct {
    WfCtx *ctx;
    WfArena *arena;
    double *v;
    const char *name;
    double mean, var, lo, hi;
} Draw;

static void draw(void *arg)
{
    Draw *d = arg;
    WfGraph *g = wf_graph_new(d->ctx, d->arena, NULL, WF_PRIM);
    WfDim shape[1] = {DRAWS};
    WfVal ones = wf_full(g, WF_F32, 1, shape, 1), y = 0, quarter = wf_full(g, WF_F32, 1, shape, 0.25);
    const char *n = d->name;
    if (!strcmp(n, "rand") || !strcmp(n, "randn"))
        y = wf_emit(g, wf_arena_printf(d->arena, "aten.%s", n), "I", shape, 1);
    else if (!strcmp(n, "dropout") || !strcmp(n, "alpha_dropout"))
        y = wf_emit(g, wf_arena_printf(d->arena, "aten.%s", n), "vfb", ones, 0.25, 1);
    else if (!strcmp(n, "bernoulli"))
        y = wf_emit(g, "aten.bernoulli", "v", quarter);
    else if (!strcmp(n, "randint"))
        y = wf_emit(g, "aten.randint.low", "iiI", wf_econst(g->exprs, -3), (WfDim)7, shape, 1);
    else if (!strcmp(n, "exponential"))
        y = wf_emit(g, "aten.exponential", "vf", ones, 2.0);
    else if (!strcmp(n, "normal"))
        y = wf_emit(g, "aten.normal_functional", "vff", ones, 3.0, 2.0);
    else if (!strcmp(n, "uniform"))
        y = wf_emit(g, "aten.uniform", "vff", ones, -1.0, 3.0);
    wf_add_output(g, WF_OUT_USER, "y", y, -1);
    const double *inputs[1] = {NULL};
    WfOracle o = {.g = g, .arena = d->arena, .seed = 0x123456789abcdefull, .step = 3};
    wf_oracle_run(&o, inputs);
    d->v = o.val[y];
}

static void draws_have_their_statistics(void **state)
{
    (void)state;
    Draw all[] = {
        {.name = "rand", .mean = 0.5, .var = 1.0 / 12, .lo = 0, .hi = 1},
        {.name = "randn", .mean = 0, .var = 1, .lo = -7, .hi = 7},
        {.name = "dropout", .mean = 1, .var = 1.0 / 3, .lo = 0, .hi = 4.0 / 3 + 1e-6},
        {.name = "bernoulli", .mean = 0.25, .var = 0.1875, .lo = 0, .hi = 1},
        {.name = "randint", .mean = 1.5, .var = 8.25, .lo = -3, .hi = 6},
        {.name = "exponential", .mean = 0.5, .var = 0.25, .lo = 0, .hi = 20},
        {.name = "normal", .mean = 3, .var = 4, .lo = -12, .hi = 18},
        {.name = "uniform", .mean = 1, .var = 16.0 / 12, .lo = -1, .hi = 3},
    };
    wf_ops_init();
    WfCtx *ctx = wf_ctx_new();
    for (size_t k = 0; k < WF_LEN(all); k++) {
        Draw *d = &all[k];
        double mean = 0, var = 0;
        d->ctx = ctx;
        d->arena = wf_arena_new(ctx);
        if (wf_guard(ctx, draw, d))
            fail_msg("%s: %s", d->name, ctx->diag.message);
        for (int i = 0; i < DRAWS; i++) {
            assert_true(d->v[i] >= d->lo && d->v[i] <= d->hi);
            mean += d->v[i] / DRAWS;
        }
        for (int i = 0; i < DRAWS; i++)
            var += (d->v[i] - mean) * (d->v[i] - mean) / DRAWS;
        /* five standard errors of the mean; the variance to 5 % */
        if (fabs(mean - d->mean) > 5 * sqrt(d->var / DRAWS) || fabs(var / d->var - 1) > 0.05)
            fail_msg("%s: mean %g, variance %g", d->name, mean, var);
        wf_arena_free(d->arena);
    }
    wf_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(draws_have_their_statistics)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
