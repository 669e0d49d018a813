/* The planned peak is what a step touches. The slab is filled with a pattern, a step runs, and the 64-byte lines in which
 * a byte differs are counted: within 2 % of the printed peak, below 64 MiB within 2 MiB. For the large steps the pages
 * that the first step brought into memory are counted as well. Since the pattern would do harm where a step reads what it
 * has not written, the same two steps run in a twin without it: loss and weights must be equal, bit by bit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "case_run.h"

enum { LINE = 64, MIB = 1 << 20 };

static uint64_t pattern(int64_t i) { return (uint64_t)i * 0x9e3779b97f4a7c15u ^ 0x5bd1e995a5a5a5a5u; }

static void fill(WfSession *s)
{
    uint64_t *at = (uint64_t *)s->slab[0].at;
    for (int64_t i = 0; i < s->slab[0].size / 8; i++)
        at[i] = pattern(i);
}

static int64_t touched(const WfSession *s)
{
    const uint64_t *at = (const uint64_t *)s->slab[0].at;
    int64_t lines = 0;
    for (int64_t i = 0; i < s->slab[0].size / 8; i += LINE / 8) {
        bool same = true;
        for (int64_t k = i; k < i + LINE / 8 && k < s->slab[0].size / 8; k++)
            same &= at[k] == pattern(k);
        lines += !same;
    }
    return lines * LINE;
}

static int64_t resident(const WfSession *s)
{
    int64_t page = sysconf(_SC_PAGESIZE), n = (s->slab[0].size + page - 1) / page, count = 0;
    unsigned char *in = malloc((size_t)n);
    void *start = (void *)((uintptr_t)s->slab[0].at & ~(uintptr_t)(page - 1));
    assert_int_equal(mincore(start, (size_t)s->slab[0].size, in), 0);
    for (int64_t i = 0; i < n; i++)
        count += in[i] & 1;
    free(in);
    return count * page;
}

static void expect_planned(Run *r, const char *what, int64_t bytes)
{
    double planned;
    must(r, weft_metric(r->session, "slab_bytes", &planned));
    double room = planned > 64.0 * MIB ? 0.02 * planned : 2.0 * MIB, off = (double)bytes - planned;
    print_message("%-22s %8.3f MiB planned, %8.3f MiB %s\n", r->folder, planned / MIB, (double)bytes / MIB, what);
    if (off > room || -off > room)
        fail_msg("%s: %.3f MiB planned, but %.3f MiB %s", r->folder, planned / MIB, (double)bytes / MIB, what);
}

static void small_steps(void **state)
{
    static const char *const folders[] = {"lenet_sgd_nesterov", "resnet_tiny_bn_sgd", "gpt_tiny_adamw", "unet_tiny_adam",
                                          "lstm_char_adam_clip", "bert_tiny_mask", "dlrm_tiny_sgd", "moe_tiny_adamw"};
    (void)state;
    for (size_t i = 0; i < WF_LEN(folders); i++) {
        Run r, twin;
        double a, b;
        open_case(&r, folders[i], (const char *const[]){"threads", i % 2 ? "2" : "1", NULL});
        open_case(&twin, folders[i], (const char *const[]){"threads", "1", NULL});
        must(&r, step_case(&r, 1, &a));
        must(&twin, step_case(&twin, 1, &b));
        fill(r.session->run);
        must(&r, step_case(&r, 2, &a));
        must(&twin, step_case(&twin, 2, &b));
        assert_true(a == b);
        expect_planned(&r, "written by a step", touched(r.session->run));
        assert_true(state_hash(&r) == state_hash(&twin));
        weft_context_free(r.ctx);
        weft_context_free(twin.ctx);
    }
}

/* ---- large steps, built by hand ---- */

static weft_value parameter(Run *r, const char *name, int rank, const int64_t *shape)
{
    int64_t n = 1;
    weft_tensor t = {.dtype = WEFT_F32, .rank = rank};
    for (int d = 0; d < rank; d++)
        n *= t.shape[d] = shape[d];
    float *v = malloc((size_t)n * sizeof *v);
    for (int64_t i = 0; i < n; i++)
        v[i] = (float)(i * 37 % 101 - 50) / 1000;
    t.data = v;
    weft_value p = weft_graph_parameter(r->program, name, &t, 1);
    free(v);
    return p;
}

static weft_value node(Run *r, const char *op, const char *format, int a, int b)
{
    char args[96];
    snprintf(args, sizeof args, format, a, b);
    weft_value v = weft_graph_node(r->program, op, args, NULL, NULL);
    if (!v)
        must(r, weft_graph_finish(r->program));
    return v;
}

/* What the memory is for adds up: the state to what the session holds (each tensor may be padded), the slab's kinds at the
 * peak to no more than the slab, and to most of it. */
static void expect_kinds(Run *r)
{
    WfCtx *ctx = (WfCtx *)r->ctx;
    const WfExe *x = r->session->program->exe;
    WfArena *a = wf_arena_new(ctx);
    WfExeMemory m;
    wf_exe_memory(x, a, WF_PROG_STEP, NULL, &m);
    int64_t state = m.weights + m.buffers + m.optimiser + m.gathered, held = wf_session_state_bytes(r->session->run);
    int64_t slab = wf_session_slab_bytes(r->session->run), peak = m.gradients + m.workspace + m.activations;
    int tensors = 0;
    for (int i = 0; i < x->n_inputs; i++)
        tensors += x->inputs[i].role != WF_XIN_USER;
    assert_true(m.weights > 0 && m.optimiser >= 2 * m.weights && m.activations > 0 && m.call >= 0);
    assert_true(state <= held && held - state <= 4096 + 64 * tensors);
    if (peak > slab || (double)peak < 0.7 * (double)slab)
        fail_msg("%s: %lld bytes alive at the peak of a slab of %lld", r->folder, (long long)peak, (long long)slab);
    wf_arena_free(a);
}

static void run_large(Run *r, weft_value predictions, const weft_tensor *x, const char *threads)
{
    double loss;
    weft_graph_output(r->program, predictions, "p");
    must(r, weft_graph_finish(r->program));
    must(r, weft_set(r->program, "loss", "cross_entropy"));
    must(r, weft_set(r->program, "threads", threads));
    must(r, weft_session_new(r->program, &r->session));
    int64_t *y = calloc((size_t)x->shape[0], sizeof *y);
    must(r, weft_feed(r->session, "x", x));
    must(r, weft_feed(r->session, "y", &(weft_tensor){WEFT_I64, 1, {x->shape[0]}, y}));
    must(r, weft_step(r->session, &loss));
    expect_planned(r, "in memory after a step", resident(r->session->run));
    fill(r->session->run);
    must(r, weft_step(r->session, &loss));
    expect_planned(r, "written by a step", touched(r->session->run));
    double planned;
    must(r, weft_metric(r->session, "slab_bytes", &planned));
    expect_kinds(r);
    assert_true(planned > 64.0 * MIB); /* else this test would allow what it is to refuse */
    free(y);
    weft_context_free(r->ctx);
}

static void large_layers(void **state)
{
    Run r = {.ctx = weft_context_new(NULL), .folder = "large layers"};
    const int64_t rows = 16384, shape[] = {rows, 64}, w[2][2] = {{768, 64}, {10, 768}};
    (void)state;
    must(&r, weft_graph_new(r.ctx, &r.program));
    weft_value x = weft_graph_input(r.program, "x", WEFT_F32, 2, shape, NULL);
    x = node(&r, "aten.linear", "%%%d, %%%d", x, parameter(&r, "a", 2, w[0]));
    x = node(&r, "aten.gelu", "%%%d", x, 0);
    x = node(&r, "aten.layer_norm", "%%%d, [768]", x, 0);
    x = node(&r, "aten.linear", "%%%d, %%%d", x, parameter(&r, "b", 2, w[1]));
    float *data = calloc((size_t)rows * 64, sizeof *data);
    for (int64_t i = 0; i < rows * 64; i++)
        data[i] = (float)(i % 13) / 13;
    run_large(&r, x, &(weft_tensor){WEFT_F32, 2, {rows, 64}, data}, "2");
    free(data);
}

static void large_images(void **state)
{
    Run r = {.ctx = weft_context_new(NULL), .folder = "large images"};
    const int64_t n = 64, shape[] = {n, 3, 64, 64}, w[3][4] = {{24, 3, 3, 3}, {24, 24, 3, 3}, {10, 24}};
    (void)state;
    must(&r, weft_graph_new(r.ctx, &r.program));
    weft_value x = weft_graph_input(r.program, "x", WEFT_F32, 4, shape, NULL);
    x = node(&r, "aten.conv2d", "%%%d, %%%d, None, [1, 1], [1, 1]", x, parameter(&r, "a", 4, w[0]));
    x = node(&r, "aten.relu", "%%%d", x, 0);
    x = node(&r, "aten.conv2d", "%%%d, %%%d, None, [1, 1], [1, 1]", x, parameter(&r, "b", 4, w[1]));
    x = node(&r, "aten.max_pool2d", "%%%d, [2, 2]", x, 0);
    x = node(&r, "aten.mean.dim", "%%%d, [2, 3]", x, 0);
    x = node(&r, "aten.linear", "%%%d, %%%d", x, parameter(&r, "c", 2, w[2]));
    float *data = calloc((size_t)n * 3 * 64 * 64, sizeof *data);
    for (int64_t i = 0; i < n * 3 * 64 * 64; i++)
        data[i] = (float)(i % 17) / 17;
    run_large(&r, x, &(weft_tensor){WEFT_F32, 4, {n, 3, 64, 64}, data}, "1");
    free(data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_steps),
        cmocka_unit_test(large_layers),
        cmocka_unit_test(large_images),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
