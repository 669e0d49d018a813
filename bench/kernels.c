/* Speed of the library calls: GFLOP/s of each shape at 1..N threads, the best of many runs.
 *
 *   bench_kernels gemm|attention|conv [threads] [isa]
 *
 * The best run is reported because other programs may share the machine, and on one thread its processor time
 * for the same reason; compare with the same measure of another library run at the same time. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "kernels/kernels.h"

typedef struct {
    WfCtx *ctx;
    WfTeam *team;
    int threads, isa;
} Bench;

static WfOperand dense(int rank, const int64_t *shape)
{
    WfOperand o = {.dtype = WF_F32, .rank = rank};
    int64_t stride = 1;
    for (int i = rank - 1; i >= 0; i--) {
        o.shape[i] = shape[i];
        o.stride[i] = stride;
        stride *= shape[i];
    }
    return o;
}
#define DENSE(...) dense(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t), (int64_t[]){__VA_ARGS__})

/* Channels-last strides for [N, C, spatial..]. */
static WfOperand channels_last(int rank, const int64_t *shape)
{
    WfOperand o = dense(rank, shape);
    int64_t stride = 1;
    o.stride[1] = 1;
    stride = shape[1];
    for (int i = rank - 1; i >= 2; i--) {
        o.stride[i] = stride;
        stride *= shape[i];
    }
    o.stride[0] = stride;
    return o;
}
#define NHWC(...) channels_last(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t), (int64_t[]){__VA_ARGS__})

static size_t bytes(const WfOperand *o)
{
    size_t last = 1;
    for (int i = 0; i < o->rank; i++)
        last += (size_t)((o->shape[i] - 1) * o->stride[i]);
    return last * wf_dtype_size(o->dtype);
}

/* Seconds: of this thread alone when it is the only one. */
static double now(const Bench *b)
{
    struct timespec t;
    if (b->threads > 1 || clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t))
        return wf_now();
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Seconds of the best run of a call on random data. */
static double measure(Bench *b, const WfLibDesc *given)
{
    WfLibDesc d = *given;
    d.param[WF_LIB_ISA] = b->isa;
    WfArena *arena = wf_arena_new(b->ctx);
    WfLib *lib = wf_lib_create(b->ctx, arena, &d, b->threads);
    void *operand[WF_LIB_OPERANDS] = {0};
    for (int i = 0; i < d.n; i++) {
        if (!d.operand[i].dtype)
            continue;
        size_t size = bytes(&d.operand[i]);
        operand[i] = wf_sys_map(size, true);
        for (size_t k = 0; d.operand[i].dtype == WF_F32 && k < size / 4; k++)
            ((float *)operand[i])[k] = (float)(k * 2654435761u % 1000) / 1000 - 0.5f;
    }
    size_t each = wf_lib_scratch(&d) + 4096, ws = wf_lib_workspace(&d) + 64;
    void *workspace = wf_sys_map(ws, true), *scratch = wf_sys_map(each * (size_t)b->threads, true);
    double best = 1e9, start = wf_now();
    for (int n = 0; wf_now() - start < 0.15 || n < 5; n++) {
        double t = now(b);
        wf_lib_run_team(lib, b->team, operand, workspace, scratch, each);
        t = now(b) - t;
        best = t < best ? t : best;
    }
    wf_sys_unmap(workspace, ws);
    wf_sys_unmap(scratch, each * (size_t)b->threads);
    for (int i = 0; i < d.n; i++)
        if (operand[i])
            wf_sys_unmap(operand[i], bytes(&d.operand[i]));
    wf_arena_free(arena);
    return best;
}

static WfOperand transposed(WfOperand o)
{
    int64_t n = o.shape[0], s = o.stride[0];
    o.shape[0] = o.shape[1], o.shape[1] = n;
    o.stride[0] = o.stride[1], o.stride[1] = s;
    return o;
}

static void gemm(Bench *b)
{
    static const int64_t ms[] = {128, 1024, 2048};
    static const int64_t kn[][2] = {{64, 64},    {784, 512},  {512, 512},  {512, 10},   {256, 768},
                                    {256, 1024}, {1024, 256}, {256, 4096}, {384, 1152}, {384, 1536},
                                    {1536, 384}, {256, 256},  {384, 65}};
    for (size_t i = 0; i < WF_LEN(ms); i++) {
        for (size_t j = 0; j < WF_LEN(kn); j++) {
            int64_t m = ms[i], k = kn[j][0], n = kn[j][1];
            double flops = 2e-9 * (double)m * (double)k * (double)n;
            WfLibDesc nn = {.kind = "gemm", .n = 3, .operand = {DENSE(m, k), DENSE(k, n), DENSE(m, n)}};
            WfLibDesc nt = {
                .kind = "gemm", .n = 3, .operand = {DENSE(m, k), transposed(DENSE(n, k)), DENSE(m, n)}};
            WfLibDesc tn = {
                .kind = "gemm", .n = 3, .operand = {transposed(DENSE(m, n)), DENSE(m, k), DENSE(n, k)}};
            printf("%d %d %d", (int)m, (int)k, (int)n);
            printf(" %.1f", flops / measure(b, &nn));
            printf(" %.1f", flops / measure(b, &nt));
            printf(" %.1f\n", flops / measure(b, &tn));
            fflush(stdout);
        }
    }
}

static void conv(Bench *b)
{
    /* channels in, out, size, kernel, stride: ResNet-18 on 64 x 64 images, batch 32 */
    static const int64_t shapes[][5] = {{3, 64, 64, 7, 2},   {64, 64, 16, 3, 1},  {64, 128, 16, 3, 2},
                                        {128, 128, 8, 3, 1}, {64, 128, 16, 1, 2}, {128, 256, 8, 3, 2},
                                        {256, 256, 4, 3, 1}, {256, 512, 4, 3, 2}, {512, 512, 2, 3, 1},
                                        {128, 256, 8, 1, 2}, {256, 512, 4, 1, 2}};
    for (size_t i = 0; i < WF_LEN(shapes); i++) {
        const int64_t *s = shapes[i];
        int64_t n = 32, k = s[3], pad = k / 2, out = (s[2] + 2 * pad - k) / s[4] + 1;
        WfOperand x = NHWC(n, s[0], s[2], s[2]), w = DENSE(s[1], s[0], k, k), y = NHWC(n, s[1], out, out);
        double flops = 2e-9 * (double)(n * s[1] * out * out) * (double)(s[0] * k * k);
        WfLibDesc d[3] = {{.kind = "conv_fwd", .n = 3, .operand = {x, w, y}},
                          {.kind = "conv_bwd_data", .n = 3, .operand = {y, w, x}},
                          {.kind = "conv_bwd_weight", .n = 3, .operand = {x, y, w}}};
        printf("%d %d %d %d %d", (int)s[0], (int)s[1], (int)s[2], (int)k, (int)s[4]);
        for (int j = 0; j < 3; j++) {
            for (int q = 0; q < 2; q++)
                d[j].param[1 + q] = s[4], d[j].param[4 + q] = 1, d[j].param[7 + q] = pad;
            printf(" %.1f", flops / measure(b, &d[j]));
        }
        printf("\n");
    }
}

static void attention(Bench *b)
{
    static const int64_t shapes[][3] = {{8, 6, 256}, {16, 12, 128}, {4, 12, 512}, {2, 12, 1024}};
    for (size_t i = 0; i < WF_LEN(shapes); i++) {
        int64_t n = shapes[i][0], h = shapes[i][1], t = shapes[i][2], e = 64;
        WfOperand x = DENSE(n, h, t, e), lse = DENSE(n, h, t), no = {.dtype = 0};
        for (int causal = 0; causal < 2; causal++) {
            WfLibDesc f = {.kind = "attention_fwd", .n = 6, .operand = {x, x, x, no, x, lse}};
            WfLibDesc g = {.kind = "attention_bwd", .n = 10, .operand = {x, x, x, x, x, lse, no, x, x, x}};
            f.param[0] = g.param[0] = causal;
            double flops = 4e-9 * (double)(n * h * t * t * e) / (causal ? 2 : 1);
            printf("%d %d %d %d", (int)n, (int)h, (int)t, causal);
            printf(" %.1f", flops / measure(b, &f));
            printf(" %.1f\n", 2.5 * flops / measure(b, &g));
        }
    }
}

typedef struct {
    const char *what;
    Bench *bench;
} Job;

static void job(void *arg)
{
    Job *j = arg;
    j->bench->team = wf_team_new(j->bench->ctx, j->bench->threads, wf_kernels_threads);
    if (!strcmp(j->what, "gemm"))
        gemm(j->bench);
    else if (!strcmp(j->what, "attention"))
        attention(j->bench);
    else if (!strcmp(j->what, "conv"))
        conv(j->bench);
    else
        wf_fail(j->bench->ctx, WEFT_ERR_USAGE, "unknown benchmark '%s'", j->what);
}

int main(int argc, char **argv)
{
    Bench b = {
        .ctx = wf_ctx_new(), .threads = argc > 2 ? atoi(argv[2]) : 1, .isa = argc > 3 ? atoi(argv[3]) : 0};
    Job j = {argc > 1 ? argv[1] : "gemm", &b};
    weft_status status = wf_guard(b.ctx, job, &j);
    if (status)
        fprintf(stderr, "%s\n", b.ctx->diag.message);
    wf_team_free(b.team);
    wf_ctx_free(b.ctx);
    return status != WEFT_OK;
}
