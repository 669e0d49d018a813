/* Long float32 sums. A running sum of n equal terms is wrong by about n / 4 units in the last place (every
 * addition rounds the same way while the exponent stays), so that sums of ten thousands of terms lose two
 * digits; sums of partial sums must stay within a few units, in every form of loop: rows, columns, both,
 * known and unknown sizes. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "weft.h"

/* 64 terms of one exponent in a partial sum: at most 64 / 2 half units; and as many partial sums. Measured:
 * 3e-7. */
#define BOUND 1e-6

static weft_context *ctx;

static void ok(weft_status s)
{
    if (s != WEFT_OK)
        print_message("%s\n  %s\n", weft_message(ctx), weft_place(ctx));
    assert_int_equal(s, WEFT_OK);
}

static void check(weft_session *s, int i, int64_t count, double want)
{
    weft_tensor t;
    ok(weft_output(s, i, &t));
    for (int64_t k = 0; k < count; k++) {
        double have = ((const float *)t.data)[k];
        if (!(fabs(have - want) <= BOUND * want))
            print_message("output %d, element %lld: %.9g instead of %.9g\n", i, (long long)k, have, want);
        assert_true(fabs(have - want) <= BOUND * want);
    }
}

/* x is [a, b, c], all elements 0.1f times the parameter 1. */
static void sums(int64_t a, int64_t b, int64_t c, bool symbolic)
{
    weft_program *g;
    weft_session *s;
    float one = 1, *x = malloc((size_t)(a * b * c) * sizeof *x);
    double loss;
    assert_non_null(x);
    for (int64_t i = 0; i < a * b * c; i++)
        x[i] = 0.1f;
    ctx = weft_context_new(NULL);
    assert_non_null(ctx);
    ok(weft_graph_new(ctx, &g));
    weft_graph_input(g, "x", WEFT_F32, 3, (int64_t[]){symbolic ? -1 : a, b, c}, "s0"); /* %1 */
    weft_graph_parameter(g, "p", &(weft_tensor){WEFT_F32, 0, {0}, &one}, 1);           /* %2 */
    weft_graph_node(g, "aten.mul.Tensor", "%1, %2", NULL, NULL);                       /* %3 */
    weft_value all = weft_graph_node(g, "aten.sum.default", "%3", NULL, NULL);
    weft_value columns = weft_graph_node(g, "aten.sum.dim_IntList", "%3, [0]", NULL, NULL);
    weft_value middle = weft_graph_node(g, "aten.sum.dim_IntList", "%3, [0, 2]", NULL, NULL);
    weft_value rows = weft_graph_node(g, "aten.sum.dim_IntList", "%3, [1, 2]", NULL, NULL);
    ok(weft_graph_output(g, all, "loss"));
    ok(weft_graph_output(g, columns, "columns"));
    ok(weft_graph_output(g, middle, "middle"));
    ok(weft_graph_output(g, rows, "rows"));
    ok(weft_graph_finish(g));
    ok(weft_set(g, "optimizer", "sgd"));
    ok(weft_session_new(g, &s));
    ok(weft_feed(s, "x", &(weft_tensor){WEFT_F32, 3, {a, b, c}, x}));
    ok(weft_step(s, &loss));
    double each = 0.1f;
    check(s, 0, 1, each * (double)(a * b * c));
    check(s, 1, b * c, each * (double)a);
    check(s, 2, b, each * (double)(a * c));
    check(s, 3, a, each * (double)(b * c));
    weft_context_free(ctx);
    free(x);
}

static void tall(void **state)
{
    (void)state;
    sums(20011, 1, 17, false);
}

static void long_rows(void **state)
{
    (void)state;
    sums(3, 1, 300007, false);
}

static void channels_inside(void **state)
{
    (void)state;
    sums(3000, 16, 9, false);
}

static void short_inner_loops(void **state)
{
    (void)state;
    sums(5, 4001, 3, false);
}

static void unknown_size(void **state)
{
    (void)state;
    sums(9973, 3, 20, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tall),
        cmocka_unit_test(long_rows),
        cmocka_unit_test(channels_inside),
        cmocka_unit_test(short_inner_loops),
        cmocka_unit_test(unknown_size),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
