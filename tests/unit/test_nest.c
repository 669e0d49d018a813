/* Forms of loop nests that no recorded case has, against values computed here. All values are small integers,
 * so that every sum is exact in float32 whatever its order, and results are compared bit by bit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "weft.h"

static weft_context *ctx;

static void ok(weft_status s)
{
    if (s != WEFT_OK)
        print_message("%s\n  %s\n", weft_message(ctx), weft_place(ctx));
    assert_int_equal(s, WEFT_OK);
}

static float value(int64_t row, int64_t column)
{
    return (float)((row * 7 + column * 3) % 11 - 5);
}

/* x is [rows, n]; its columns, with `left` zeros before and `right` after them, are summed. At n >= 256 the
 * kernel has several vectors side by side, and the padding cuts through the first and the last ones: the text
 * asks for bounds at their end lanes. */
static void padded_columns(int64_t rows, int64_t n, int left, int right)
{
    weft_program *g;
    weft_session *s;
    weft_tensor t;
    float one = 1, *x = malloc((size_t)(rows * n) * sizeof *x);
    double loss;
    char pad[64];
    assert_non_null(x);
    for (int64_t i = 0; i < rows * n; i++)
        x[i] = value(i / n, i % n);
    ctx = weft_context_new(NULL);
    assert_non_null(ctx);
    ok(weft_graph_new(ctx, &g));
    weft_graph_input(g, "x", WEFT_F32, 2, (int64_t[]){rows, n}, NULL);       /* %1 */
    weft_graph_parameter(g, "p", &(weft_tensor){WEFT_F32, 0, {0}, &one}, 1); /* %2 */
    weft_graph_node(g, "aten.mul.Tensor", "%1, %2", NULL, NULL);             /* %3 */
    snprintf(pad, sizeof pad, "%%3, [%d, %d], 0.0", left, right);
    weft_graph_node(g, "aten.constant_pad_nd", pad, NULL, NULL); /* %4 */
    weft_value columns = weft_graph_node(g, "aten.sum.dim_IntList", "%4, [0]", NULL, NULL);
    weft_value all = weft_graph_node(g, "aten.sum.default", "%5", NULL, NULL);
    ok(weft_graph_output(g, all, "loss"));
    ok(weft_graph_output(g, columns, "columns"));
    ok(weft_graph_finish(g));
    ok(weft_set(g, "optimizer", "sgd"));
    ok(weft_session_new(g, &s));
    ok(weft_feed(s, "x", &(weft_tensor){WEFT_F32, 2, {rows, n}, x}));
    ok(weft_step(s, &loss));
    ok(weft_output(s, 1, &t));
    assert_int_equal(t.rank, 1);
    assert_int_equal(t.shape[0], left + n + right);
    for (int64_t k = 0; k < left + n + right; k++) {
        float want = 0;
        for (int64_t r = 0; r < rows && k >= left && k < left + n; r++)
            want += value(r, k - left);
        if (((const float *)t.data)[k] != want)
            print_message("column %lld: %g instead of %g\n", (long long)k, (double)((const float *)t.data)[k],
                          (double)want);
        assert_true(((const float *)t.data)[k] == want);
    }
    weft_context_free(ctx);
    free(x);
}

static void one_vector_of_padded_columns(void **state)
{
    (void)state;
    padded_columns(50, 100, 3, 5);
}

static void wide_tiles_of_padded_columns(void **state)
{
    (void)state;
    padded_columns(50, 300, 3, 5);
    padded_columns(50, 1100, 20, 33);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_vector_of_padded_columns),
        cmocka_unit_test(wide_tiles_of_padded_columns),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
