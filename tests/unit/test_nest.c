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

/* x is [rows, groups, channels], m one number for each group, v one for each channel of a group. (x - m + group's number) * v
 * is written and summed over the rows. Fewer channels than a vector has lanes make one loop with the groups where they divide it. */
static void groups_of(int64_t rows, int64_t groups, int64_t channels)
{
    weft_program *g;
    weft_session *s;
    weft_tensor sums, all;
    int64_t n = groups * channels;
    float one = 1, *x = malloc((size_t)(rows * n) * sizeof *x), *m = malloc((size_t)groups * sizeof *m), *v = malloc((size_t)channels * sizeof *v);
    double loss;
    char text[64];
    assert_true(x && m && v);
    for (int64_t i = 0; i < rows * n; i++)
        x[i] = value(i / n, i % n);
    for (int64_t i = 0; i < groups; i++)
        m[i] = value(3, i);
    for (int64_t i = 0; i < channels; i++)
        v[i] = value(i, 2);
    ctx = weft_context_new(NULL);
    assert_non_null(ctx);
    ok(weft_graph_new(ctx, &g));
    weft_graph_input(g, "x", WEFT_F32, 3, (int64_t[]){rows, groups, channels}, NULL); /* %1 */
    weft_graph_input(g, "m", WEFT_F32, 2, (int64_t[]){groups, 1}, NULL);              /* %2 */
    weft_graph_input(g, "v", WEFT_F32, 1, (int64_t[]){channels}, NULL);               /* %3 */
    weft_graph_parameter(g, "p", &(weft_tensor){WEFT_F32, 0, {0}, &one}, 1);          /* %4 */
    weft_graph_node(g, "aten.mul.Tensor", "%1, %4", NULL, NULL);                      /* %5 */
    weft_graph_node(g, "aten.sub.Tensor", "%5, %2", NULL, NULL);                      /* %6 */
    snprintf(text, sizeof text, "%lld", (long long)groups);
    weft_graph_node(g, "aten.arange.default", text, NULL, NULL); /* %7 */
    snprintf(text, sizeof text, "%%7, [%lld, 1]", (long long)groups);
    weft_graph_node(g, "aten.view.default", text, NULL, NULL);                            /* %8 */
    weft_graph_node(g, "aten.add.Tensor", "%6, %8", NULL, NULL);                          /* %9 */
    weft_value product = weft_graph_node(g, "aten.mul.Tensor", "%9, %3", NULL, NULL);     /* %10 */
    weft_value columns = weft_graph_node(g, "aten.sum.dim_IntList", "%10, [0]", NULL, NULL);
    weft_value total = weft_graph_node(g, "aten.sum.default", "%11", NULL, NULL);
    ok(weft_graph_output(g, total, "loss"));
    ok(weft_graph_output(g, columns, "columns"));
    ok(weft_graph_output(g, product, "product"));
    ok(weft_graph_finish(g));
    ok(weft_set(g, "optimizer", "sgd"));
    ok(weft_session_new(g, &s));
    ok(weft_feed(s, "x", &(weft_tensor){WEFT_F32, 3, {rows, groups, channels}, x}));
    ok(weft_feed(s, "m", &(weft_tensor){WEFT_F32, 2, {groups, 1}, m}));
    ok(weft_feed(s, "v", &(weft_tensor){WEFT_F32, 1, {channels}, v}));
    ok(weft_step(s, &loss));
    ok(weft_output(s, 1, &sums));
    ok(weft_output(s, 2, &all));
    for (int64_t k = 0; k < n; k++) {
        float sum = 0;
        for (int64_t r = 0; r < rows; r++) {
            float want = (value(r, k) - m[k / channels] + (float)(k / channels)) * v[k % channels];
            assert_true(((const float *)all.data)[r * n + k] == want);
            sum += want;
        }
        assert_true(((const float *)sums.data)[k] == sum);
    }
    weft_context_free(ctx);
    free(x);
    free(m);
    free(v);
}

static void groups_of_few_channels(void **state)
{
    (void)state;
    groups_of(9, 8, 2);
    groups_of(9, 8, 4);
    groups_of(70, 2, 8);
    groups_of(5, 96, 4);  /* several vectors side by side */
    groups_of(5, 10, 4);  /* the last vector is not full: they stay apart */
    groups_of(5, 16, 3);  /* nor do 3 divide a vector */
    groups_of(5, 3, 16);
    groups_of(5, 3, 24);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_vector_of_padded_columns),
        cmocka_unit_test(wide_tiles_of_padded_columns),
        cmocka_unit_test(groups_of_few_channels),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
