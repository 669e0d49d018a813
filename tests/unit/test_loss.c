/* Every --loss with its options against PyTorch: values and gradients of tests/refs/losses, which losses.py recorded in
 * float64. The model of a case is x + w with a parameter w of zeros, so that the gradient of w is that of the loss by the
 * predictions. Each case runs in float32 and in float64, through the public interface and generated kernels. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <jansson.h>

#include "base/base.h"

#define FOLDER WEFT_SOURCE_DIR "/tests/refs/losses/"
enum { MOST = 4096 };

static WfCtx *ctx;
static const WfTensors *file;
static json_t *table;
static char folder[] = "/tmp/weft-loss-XXXXXX";

static void do_open(void *p)
{
    (void)p;
    file = wf_safetensors_open(ctx, ctx->arena, FOLDER "tensors.safetensors");
}

static int setup(void **state)
{
    (void)state;
    ctx = wf_ctx_new();
    table = json_load_file(FOLDER "cases.json", 0, NULL);
    return !ctx || !table || !mkdtemp(folder) || wf_guard(ctx, do_open, NULL) != WEFT_OK;
}

static int teardown(void **state)
{
    (void)state;
    json_decref(table);
    wf_ctx_free(ctx);
    return rmdir(folder); /* every case removes its files */
}

static const WfTensor *recorded(const char *name, const char *what)
{
    char key[128];
    snprintf(key, sizeof key, "%s.%s", name, what);
    const WfTensor *t = wf_tensors_find(file, key);
    if (!t)
        fail_msg("%s is not recorded", key);
    return t;
}

/* The recorded tensor in dtype t; the memory is the caller's, MOST elements. */
static weft_tensor as(const WfTensor *r, WfDtype t, void *memory, int64_t *n)
{
    weft_tensor w = {.dtype = (weft_dtype)t, .rank = r->rank, .data = memory};
    *n = 1;
    for (int d = 0; d < r->rank; d++)
        *n *= w.shape[d] = r->shape[d];
    assert_true(*n <= MOST);
    for (int64_t i = 0; i < *n; i++) {
        const char *from = (const char *)r->data + i * (int64_t)wf_dtype_size(r->dtype);
        char *to = (char *)memory + i * (int64_t)wf_dtype_size(t);
        if (t == WF_I64)
            wf_store_i64(t, to, wf_load_i64(r->dtype, from));
        else
            wf_store_f64(t, to, wf_load_f64(r->dtype, from));
    }
    return w;
}

typedef struct { const char *path; const WfTensor *t; } Written;

static void do_write(void *p)
{
    Written *w = p;
    WfTensor one = *w->t;
    one.name = "weight";
    wf_safetensors_write(ctx, w->path, &one, 1);
}

static void must(weft_context *c, weft_status s, const char *what)
{
    if (s != WEFT_OK)
        fail_msg("%s: %s %s", what, weft_message(c), weft_hint(c));
}

static void set_options(weft_context *c, weft_program *p, json_t *row, const char *name)
{
    const char *key;
    json_t *value;
    size_t i;
    must(c, weft_set(p, "loss", json_string_value(json_object_get(row, "loss"))), name);
    must(c, weft_set(p, "optimizer", "sgd"), name);
    must(c, weft_set(p, "cache", "false"), name);
    must(c, weft_set(p, "threads", "1"), name);
    json_object_foreach(json_object_get(row, "options"), key, value)
        must(c, weft_set(p, key, json_string_value(value)), name);
    json_array_foreach(json_object_get(row, "files"), i, value) {
        char path[128];
        snprintf(path, sizeof path, "%s/%s", folder, json_string_value(value));
        Written w = {path, recorded(name, json_string_value(value))};
        assert_int_equal(wf_guard(ctx, do_write, &w), WEFT_OK);
        must(c, weft_set(p, json_string_value(value), path), name);
    }
}

static void expect(const char *name, const char *what, const weft_tensor *got, const WfTensor *want)
{
    /* float32: a sum of some dozen rounded terms, gradients next to cancellation included; float64: the same in its
     * units, and polynomials for exp and log that are good to a few of them. Beside the largest value, since small
     * elements are differences of large ones. */
    WfDtype t = (WfDtype)got->dtype;
    double most = 0, tolerance = t == WF_F32 ? 2e-6 : 1e-13;
    int64_t n = 1;
    assert_int_equal(got->rank, want->rank);
    for (int d = 0; d < want->rank; d++) {
        assert_int_equal(got->shape[d], want->shape[d]);
        n *= want->shape[d];
    }
    for (int64_t i = 0; i < n; i++)
        most = fmax(most, fabs(wf_load_f64(want->dtype, (const char *)want->data + i * 8)));
    for (int64_t i = 0; i < n; i++) {
        double a = wf_load_f64(t, (const char *)got->data + i * (int64_t)wf_dtype_size(t));
        double b = wf_load_f64(want->dtype, (const char *)want->data + i * 8);
        if (!(fabs(a - b) <= tolerance * most))
            fail_msg("%s in %s: %s[%lld] is %.17g, PyTorch's %.17g", name, wf_dtype_name(t), what, (long long)i, a, b);
    }
}

static void run_case(json_t *row, WfDtype t)
{
    static double x[MOST], y[MOST], zero[MOST];
    const char *name = json_string_value(json_object_get(row, "name"));
    const WfTensor *ry = recorded(name, "y");
    weft_context *c = weft_context_new(NULL);
    weft_program *p;
    weft_session *s;
    int64_t n;
    double loss;
    weft_tensor tx = as(recorded(name, "x"), t, x, &n), ty = as(ry, ry->dtype == WF_F64 ? t : WF_I64, y, &n), tz = tx, grad;
    tz.data = zero;
    must(c, weft_graph_new(c, &p), name);
    weft_value vx = weft_graph_input(p, "x", tx.dtype, tx.rank, tx.shape, NULL);
    weft_value vw = weft_graph_parameter(p, "w", &tz, 1);
    char args[32];
    snprintf(args, sizeof args, "%%%d, %%%d", vx, vw);
    weft_graph_output(p, weft_graph_node(p, "aten.add.Tensor", args, "sum", "model.py:1"), "sum");
    must(c, weft_graph_finish(p), name);
    set_options(c, p, row, name);
    must(c, weft_session_new(p, &s), name);
    must(c, weft_feed(s, "x", &tx), name);
    must(c, weft_feed(s, "y", &ty), name);
    must(c, weft_step(s, &loss), name);
    double want = wf_load_f64(WF_F64, recorded(name, "loss")->data);
    if (!(fabs(loss - want) <= (t == WF_F32 ? 2e-6 : 1e-13) * fabs(want)))
        fail_msg("%s in %s: the loss is %.17g, PyTorch's %.17g", name, wf_dtype_name(t), loss, want);
    must(c, weft_gradient(s, "w", &grad), name);
    expect(name, "gradient", &grad, recorded(name, "grad"));
    weft_context_free(c);
    size_t i;
    json_t *value;
    json_array_foreach(json_object_get(row, "files"), i, value) {
        char path[128];
        snprintf(path, sizeof path, "%s/%s", folder, json_string_value(value));
        unlink(path);
    }
}

static void every_case(WfDtype t)
{
    size_t i;
    json_t *row;
    json_array_foreach(json_object_get(table, "cases"), i, row) run_case(row, t);
    assert_true(i >= 50);
}

static void losses_are_pytorchs_in_float32(void **state)
{
    (void)state;
    every_case(WF_F32);
}

static void losses_are_pytorchs_in_float64(void **state)
{
    (void)state;
    every_case(WF_F64);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(losses_are_pytorchs_in_float32),
        cmocka_unit_test(losses_are_pytorchs_in_float64),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
