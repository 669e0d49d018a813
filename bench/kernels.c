/* Speed of the library calls: GFLOP/s of each shape at 1..N threads, the best of many runs.
 *
 *   bench_kernels gemm|attention|conv|rnn [threads] [isa]
 *
 * The best run is reported because other programs may share the machine; compare with the same measure of
 * another library (tools that measure PyTorch print the same columns). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
        double t = wf_now();
        wf_lib_run_team(lib, b->team, operand, workspace, scratch, each);
        t = wf_now() - t;
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
    static const int64_t kn[][2] = {{64, 64},    {784, 512},  {512, 512},  {512, 10},
                                    {256, 768},  {256, 1024}, {1024, 256}, {256, 4096},
                                    {384, 1152}, {384, 1536}, {1536, 384}};
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

typedef struct {
    const char *what;
    Bench *bench;
} Job;

static void job(void *arg)
{
    Job *j = arg;
    j->bench->team = wf_team_new(j->bench->ctx, j->bench->threads, wf_kernels_thread_init, NULL);
    if (!strcmp(j->what, "gemm"))
        gemm(j->bench);
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
