/* Schedules against PyTorch's own numbers; datasets: what is accepted, converted, refused; orders of visits. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include <cmocka.h>

#include "train/train.h"

typedef struct {
    WfCtx *ctx;
    WfOptions o;
    char folder[64];
    const char *name, *value;
    WfStrings files;
    const WfDataInput *inputs;
    int n;
    WfDataset *d;
    const char *path;
    const WfTensor *tensors;
} Fixture;

static void do_init(void *p)
{
    Fixture *f = p;
    wf_options_init(f->ctx, f->ctx->arena, &f->o);
}

static void do_set(void *p)
{
    Fixture *f = p;
    wf_options_set(f->ctx, &f->o, f->name, f->value);
}

static void do_open(void *p)
{
    Fixture *f = p;
    f->d = wf_dataset_open(f->ctx, f->ctx->arena, &f->files, f->inputs, f->n);
}

static void do_write(void *p)
{
    Fixture *f = p;
    wf_safetensors_write(f->ctx, f->path, f->tensors, f->n);
}

static void do_check_finite(void *p)
{
    wf_dataset_check_finite(((Fixture *)p)->d);
}

static int setup(void **state)
{
    Fixture *f = calloc(1, sizeof *f);
    f->ctx = wf_ctx_new();
    strcpy(f->folder, "/tmp/weft-test-XXXXXX");
    if (!mkdtemp(f->folder))
        return -1;
    *state = f;
    return wf_guard(f->ctx, do_init, f);
}

static int teardown(void **state)
{
    Fixture *f = *state;
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", f->folder);
    int rc = system(command);
    wf_ctx_free(f->ctx);
    free(f);
    return rc;
}

static void set(Fixture *f, const char *name, const char *value)
{
    f->name = name;
    f->value = value;
    if (wf_guard(f->ctx, do_set, f) != WEFT_OK)
        fail_msg("%s %s: %s", name, value, f->ctx->diag.message);
}

/* ---- schedules: the lists are param_groups[0]["lr"] before each step, torch 2.15.0 ---- */

static void expect_rates(Fixture *f, const double *want, int n, int64_t total)
{
    for (int i = 0; i < n; i++) {
        double got = wf_schedule_lr(&f->o, i + 1, total);
        if (fabs(got - want[i]) > 1e-12 * fabs(want[i]) + 1e-18)
            fail_msg("step %d: %.17g, not %.17g", i + 1, got, want[i]);
    }
}

static void cosine_is_pytorchs(void **state)
{
    /* CosineAnnealingLR(T_max=8, eta_min=1e-4), lr 0.1 */
    const double want[] = {0.1, 0.09619778264893877, 0.08536998372026805, 0.06916503744663624,
                           0.050050000000000004, 0.030934962553363768, 0.014730016279731953, 0.0039022173510612273};
    set(*state, "lr", "0.1");
    set(*state, "schedule", "cosine");
    set(*state, "min-lr", "1e-4");
    expect_rates(*state, want, 8, 8);
}

static void linear_is_pytorchs(void **state)
{
    /* LinearLR(1.0, 0.1, 8), lr 0.1 */
    const double want[] = {0.1, 0.08875, 0.07749999999999999, 0.06624999999999999, 0.05499999999999999,
                           0.04374999999999999, 0.032499999999999994, 0.021249999999999995};
    set(*state, "lr", "0.1");
    set(*state, "schedule", "linear");
    set(*state, "min-lr", "0.01");
    expect_rates(*state, want, 8, 8);
}

static void step_is_pytorchs(void **state)
{
    const double want[] = {0.1, 0.1, 0.1, 0.05, 0.05, 0.05, 0.025, 0.025}; /* StepLR(3, 0.5), lr 0.1 */
    set(*state, "lr", "0.1");
    set(*state, "schedule", "step");
    set(*state, "step-size", "3");
    set(*state, "gamma", "0.5");
    expect_rates(*state, want, 8, 8);
}

static void one_cycle_is_pytorchs(void **state)
{
    /* OneCycleLR(max_lr=0.1, total_steps=10, pct_start=0.3, cycle_momentum=False) */
    const double want[] = {0.0040000000000000036, 0.052000000000000005, 0.1, 0.09504846320134738, 0.0811745653949763,
                           0.06112620219362893, 0.03887419780637107, 0.0188258346050237, 0.004951936798652629, 4e-07};
    set(*state, "schedule", "one-cycle");
    set(*state, "max-lr", "0.1");
    expect_rates(*state, want, 10, 10);
}

static void warmup_is_lambda_lr(void **state)
{
    const double want[] = {0.025, 0.05, 0.07500000000000001, 0.1, 0.1, 0.1}; /* LambdaLR(min(1, (e + 1) / 4)) */
    set(*state, "lr", "0.1");
    set(*state, "warmup-steps", "4");
    expect_rates(*state, want, 6, 6);
}

static void schedules_end_where_they_should(void **state)
{
    Fixture *f = *state;
    set(f, "lr", "0.1");
    set(f, "schedule", "cosine");
    set(f, "min-lr", "0.01");
    set(f, "warmup-steps", "2");
    assert_true(wf_schedule_lr(&f->o, 2, 10) == 0.1 && wf_schedule_lr(&f->o, 3, 10) == 0.1);
    assert_true(fabs(wf_schedule_lr(&f->o, 11, 10) - 0.01) < 1e-15);
    assert_true(wf_schedule_lr(&f->o, 1000, 10) == wf_schedule_lr(&f->o, 11, 10));
    assert_true(fabs(wf_schedule_lr_from(&f->o, 0.2, 11, 10) - 0.02) < 1e-15);
    set(f, "total-steps", "20");
    assert_true(wf_schedule_lr(&f->o, 11, 10) > 0.05);
    set(f, "schedule", "one-cycle");
    set(f, "pct-start", "0");
    assert_true(isfinite(wf_schedule_lr(&f->o, 1, 1)) && isfinite(wf_schedule_lr(&f->o, 5, 1)));
}

/* ---- datasets ---- */

static char *path_of(Fixture *f, const char *name)
{
    return wf_arena_printf(f->ctx->arena, "%s/%s", f->folder, name);
}

static char *write_tensors(Fixture *f, const char *name, const WfTensor *t, int n)
{
    char *path = path_of(f, name);
    int inputs = f->n;
    f->path = path;
    f->tensors = t;
    f->n = n;
    if (wf_guard(f->ctx, do_write, f) != WEFT_OK)
        fail_msg("%s", f->ctx->diag.message);
    f->n = inputs;
    return path;
}

/* An IDX file of bytes 0, 1, 2, ... */
static char *write_idx(Fixture *f, const char *name, int rank, const int *shape)
{
    char *path = path_of(f, name);
    gzFile out = gzopen(path, strstr(name, ".gz") ? "wb" : "wbT");
    unsigned char header[4 + 4 * 4] = {0, 0, 8, (unsigned char)rank};
    int n = 1;
    for (int i = 0; i < rank; i++) {
        header[4 + 4 * i + 3] = (unsigned char)shape[i];
        n *= shape[i];
    }
    gzwrite(out, header, (unsigned)(4 + 4 * rank));
    for (int i = 0; i < n; i++)
        gzputc(out, i & 255);
    gzclose(out);
    return path;
}

static void give(Fixture *f, const char *file)
{
    WF_PUSH(f->ctx->arena, &f->files, wf_arena_strdup(f->ctx->arena, file));
}

static void give_named(Fixture *f, const char *name, const char *file)
{
    give(f, wf_arena_printf(f->ctx->arena, "%s=%s", name, file));
}

static void opens(Fixture *f)
{
    if (wf_guard(f->ctx, do_open, f) != WEFT_OK)
        fail_msg("%s", f->ctx->diag.message);
}

static void refused(Fixture *f, const char *message)
{
    assert_int_equal(wf_guard(f->ctx, do_open, f), WEFT_ERR_DATA);
    assert_string_equal(f->ctx->diag.message, message);
    f->files.n = 0;
}

static void images_and_labels(void **state)
{
    static const WfDataInput inputs[] = {{"x", WF_F32, 4, {-1, 1, 2, 3}}, {"y", WF_I64, 1, {-1}}};
    Fixture *f = *state;
    f->inputs = inputs;
    f->n = 2;
    char *images = write_idx(f, "images.gz", 3, (int[]){4, 2, 3}), *labels = write_idx(f, "labels", 1, (int[]){4});
    give_named(f, "y", labels);
    give_named(f, "x", images);
    opens(f);
    assert_int_equal(f->d->samples, 4);
    float x[2][6];
    int64_t y[2], index[] = {3, 1};
    wf_dataset_gather(f->d, 0, index, 2, x);
    wf_dataset_gather(f->d, 1, index, 2, y);
    for (int i = 0; i < 6; i++)
        assert_true(x[0][i] == (float)(18 + i) / 255.0f && x[1][i] == (float)(6 + i) / 255.0f);
    assert_true(y[0] == 3 && y[1] == 1);
    WfStr text = {.arena = f->ctx->arena};
    wf_dataset_describe(f->d, &text);
    assert_non_null(strstr(text.at, "bytes divided by 255, with a channel dimension of 1 added"));
    assert_non_null(strstr(text.at, "widened from u8"));

    static const WfDataInput flat[] = {{"x", WF_F32, 2, {-1, 6}}};
    f->files.n = 0;
    f->inputs = flat;
    f->n = 1;
    give_named(f, "x", images);
    opens(f);
    assert_int_equal(f->d->columns[0].reshape, WF_RESHAPE_FLATTEN);
}

static void named_tensors(void **state)
{
    static const WfDataInput inputs[] = {{"idx", WF_I64, 2, {-1, 3}}, {"w", WF_F32, 1, {-1}}};
    Fixture *f = *state;
    int32_t idx[] = {1, 2, 3, -4, 5, 6};
    float w[] = {0.5f, 1.5f}, extra[] = {1};
    WfTensor tensors[] = {{"idx", WF_I32, 2, {2, 3}, idx, sizeof idx}, {"w", WF_F32, 1, {2}, w, sizeof w},
                          {"other", WF_F32, 1, {1}, extra, sizeof extra}};
    f->inputs = inputs;
    f->n = 2;
    give(f, write_tensors(f, "a.safetensors", tensors, 3));
    opens(f);
    int64_t out[6], index[] = {1, 0};
    wf_dataset_gather(f->d, 0, index, 2, out);
    assert_true(out[0] == -4 && out[2] == 6 && out[3] == 1);
    assert_int_equal(wf_guard(f->ctx, do_check_finite, f), WEFT_OK);
    w[1] = NAN;
    f->files.n = 0;
    give(f, write_tensors(f, "b.safetensors", tensors, 3));
    opens(f);
    assert_int_equal(wf_guard(f->ctx, do_check_finite, f), WEFT_ERR_DATA);
    assert_string_equal(f->ctx->diag.message, "data: input w: sample 1, element 0 is nan");
}

static void wrong_files_are_refused(void **state)
{
    static const WfDataInput inputs[] = {{"x", WF_F32, 2, {-1, 3}}, {"y", WF_I64, 1, {-1}}};
    Fixture *f = *state;
    f->inputs = inputs;
    f->n = 2;
    float x[6] = {0};
    double xd[6] = {0};
    int64_t y[3] = {0};
    uint8_t bytes[6] = {0};
    WfTensor fx = {"x", WF_F32, 2, {2, 3}, x, sizeof x}, fd = {"x", WF_F64, 2, {2, 3}, xd, sizeof xd},
             wide = {"x", WF_F32, 2, {1, 6}, x, sizeof x}, fb = {"x", WF_U8, 2, {2, 3}, bytes, sizeof bytes},
             y2 = {"y", WF_I64, 1, {2}, y, 16}, y3 = {"y", WF_I64, 1, {3}, y, 24};
    give(f, write_tensors(f, "1.safetensors", &fx, 1));
    refused(f, "data: input y has no data; the files hold x");
    give(f, write_tensors(f, "2.safetensors", (WfTensor[]){fx, y3}, 2));
    refused(f, "data: input y has 3 samples, but input x has 2");
    give(f, write_tensors(f, "3.safetensors", (WfTensor[]){fd, y2}, 2));
    refused(f, "data: input x expects f32[*, 3], but the file holds f64[2, 3]");
    give(f, write_tensors(f, "4.safetensors", (WfTensor[]){wide, y2}, 2));
    refused(f, "data: input x expects f32[*, 3], but the file holds f32[1, 6]");
    give(f, write_tensors(f, "5.safetensors", (WfTensor[]){fb, y2}, 2));
    refused(f, "data: input x expects f32[*, 3], but the file holds u8[2, 3]");
    give_named(f, "z", path_of(f, "1.safetensors"));
    refused(f, "data: the model has no input z; its inputs are x, y");
    give(f, write_idx(f, "labels.gz", 1, (int[]){2}));
    refused(f, "data: an IDX file does not say which input it feeds; the inputs are x, y");
    give_named(f, "x", path_of(f, "1.safetensors"));
    give_named(f, "x", path_of(f, "1.safetensors"));
    refused(f, "data: input x is given twice");
    give(f, path_of(f, "2.safetensors"));
    give(f, path_of(f, "2.safetensors"));
    assert_int_equal(wf_guard(f->ctx, do_open, f), WEFT_ERR_DATA); /* feeds no input, or lengths: either is right */
    f->files.n = 0;
    give(f, path_of(f, "none.safetensors"));
    assert_int_equal(wf_guard(f->ctx, do_open, f), WEFT_ERR_IO);
    WfTensor nothing[] = {{"x", WF_F32, 2, {0, 3}, x, 0}, {"y", WF_I64, 1, {0}, y, 0}};
    f->files.n = 0;
    give(f, write_tensors(f, "6.safetensors", nothing, 2));
    refused(f, "data: input x has no samples");
}

/* ---- orders ---- */

static void orders_are_permutations(void **state)
{
    (void)state;
    static const int sizes[] = {1, 2, 3, 4, 5, 16, 17, 255, 1000, 60000};
    for (size_t s = 0; s < WF_LEN(sizes); s++) {
        int n = sizes[s];
        char *seen = calloc((size_t)n, 1);
        WfOrder o = wf_order(n, 7, 3, true);
        for (int i = 0; i < n; i++) {
            int64_t at = wf_order_at(&o, i);
            assert_true(at >= 0 && at < n && !seen[at]);
            seen[at] = 1;
        }
        free(seen);
    }
}

static void orders_look_random(void **state)
{
    (void)state;
    /* Over many epochs each sample must come equally often to each place: chi-square of a 10 x 10 table. */
    enum { N = 10, EPOCHS = 20000 };
    int count[N][N] = {{0}};
    for (int e = 0; e < EPOCHS; e++) {
        WfOrder o = wf_order(N, 1, e, true);
        for (int i = 0; i < N; i++)
            count[i][wf_order_at(&o, i)]++;
    }
    double chi = 0, expected = (double)EPOCHS / N;
    for (int i = 0; i < N; i++)
        for (int k = 0; k < N; k++)
            chi += (count[i][k] - expected) * (count[i][k] - expected) / expected;
    assert_true(chi < 130); /* 81 degrees of freedom: 126.1 is the 0.1 % point */
    WfOrder a = wf_order(1000, 1, 0, true), b = wf_order(1000, 2, 0, true), c = wf_order(1000, 1, 1, true);
    int same_b = 0, same_c = 0;
    for (int i = 0; i < 1000; i++) {
        same_b += wf_order_at(&a, i) == wf_order_at(&b, i);
        same_c += wf_order_at(&a, i) == wf_order_at(&c, i);
    }
    assert_true(same_b < 10 && same_c < 10);
}

static void batches_end_with_the_epoch(void **state)
{
    (void)state;
    WfOrder o = wf_order(10, 0, 0, false);
    int64_t index[4];
    assert_int_equal(wf_order_batch(&o, 0, 4, index), 4);
    assert_int_equal(wf_order_batch(&o, 2, 4, index), 2);
    assert_true(index[0] == 8 && index[1] == 9);
    assert_int_equal(wf_order_batch(&o, 3, 4, index), 0);
}

/* ---- reading ahead ---- */

enum { AHEAD_ROWS = 23, AHEAD_BATCH = 5, AHEAD_TOTAL = 14 };

typedef struct {
    Fixture *f;
    int64_t take;
    volatile int cancel;
    bool wait_for_end;
} Ahead;

static void do_ahead(void *p)
{
    Ahead *t = p;
    WfCtx *ctx = t->f->ctx;
    WfArena *a = wf_arena_scratch(ctx);
    float x[2][AHEAD_BATCH * 3], want_x[AHEAD_BATCH * 3];
    int64_t y[2][AHEAD_BATCH], want_y[AHEAD_BATCH], index[AHEAD_BATCH];
    void *first[] = {x[0], y[0]}, *second[] = {x[1], y[1]};
    WfAhead *h = wf_ahead_new(ctx, a, t->f->d, &t->f->o, AHEAD_BATCH, AHEAD_ROWS / AHEAD_BATCH, 0, AHEAD_TOTAL, (WfShare){0, 1, 1},
                              first, second);
    assert_non_null(h);
    for (int64_t k = 0; k < t->take; k++) {
        void **got = wf_ahead_next(h);
        WfOrder order = wf_order(AHEAD_ROWS, (uint64_t)t->f->o.seed, k / 4, t->f->o.shuffle); /* 4 whole batches an epoch */
        assert_int_equal(wf_order_batch(&order, k % 4, AHEAD_BATCH, index), AHEAD_BATCH);
        wf_dataset_gather(t->f->d, 0, index, AHEAD_BATCH, want_x);
        wf_dataset_gather(t->f->d, 1, index, AHEAD_BATCH, want_y);
        assert_memory_equal(got[0], want_x, sizeof want_x);
        assert_memory_equal(got[1], want_y, sizeof want_y);
        memset(got[0], 0xff, sizeof want_x); /* the step's to use until it asks again */
    }
    if (t->wait_for_end) {
        t->cancel = 1; /* there is no batch after the last: without this it would wait for ten minutes */
        wf_ahead_next(h);
    }
    wf_arena_free(a);
}

static void batches_come_ahead_in_order(void **state)
{
    Fixture *f = *state;
    static const WfDataInput in[] = {{"x", WF_F32, 2, {-1, 3}}, {"y", WF_I64, 1, {-1}}};
    float x[AHEAD_ROWS * 3];
    int64_t y[AHEAD_ROWS];
    char path[128];
    snprintf(path, sizeof path, "%s/ahead.safetensors", f->folder);
    for (int i = 0; i < AHEAD_ROWS * 3; i++)
        x[i] = (float)i;
    for (int i = 0; i < AHEAD_ROWS; i++)
        y[i] = 1000 + i;
    const WfTensor t[] = {{"x", WF_F32, 2, {AHEAD_ROWS, 3}, x, sizeof x}, {"y", WF_I64, 1, {AHEAD_ROWS}, y, sizeof y}};
    f->path = path;
    f->tensors = t;
    f->n = 2;
    assert_int_equal(wf_guard(f->ctx, do_write, f), WEFT_OK);
    WF_PUSH(f->ctx->arena, &f->files, path);
    f->inputs = in;
    assert_int_equal(wf_guard(f->ctx, do_open, f), WEFT_OK);
    for (int shuffle = 0; shuffle < 2; shuffle++)
        for (int64_t take = 0; take <= AHEAD_TOTAL; take++) { /* also: ended before, while and after it gathers */
            Ahead a = {.f = f, .take = take};
            f->o.shuffle = shuffle;
            f->o.seed = 7 + take;
            assert_int_equal(wf_guard(f->ctx, do_ahead, &a), WEFT_OK);
        }
    Ahead a = {.f = f, .take = AHEAD_TOTAL, .wait_for_end = true};
    f->ctx->cancel = &a.cancel;
    assert_int_equal(wf_guard(f->ctx, do_ahead, &a), WEFT_ERR_CANCELLED);
    f->ctx->cancel = NULL;
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(cosine_is_pytorchs), TEST(linear_is_pytorchs), TEST(step_is_pytorchs), TEST(one_cycle_is_pytorchs),
        TEST(warmup_is_lambda_lr), TEST(schedules_end_where_they_should), TEST(images_and_labels), TEST(named_tensors),
        TEST(wrong_files_are_refused), cmocka_unit_test(orders_are_permutations), cmocka_unit_test(orders_look_random),
        cmocka_unit_test(batches_end_with_the_epoch), TEST(batches_come_ahead_in_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
