/* weft bench: a model's steps are timed (train.c); --machine measures what the planner wants to know of this machine: the products and the memory of one core
 * while all ranks work, and the link between two ranks. Alone it starts two ranks of its own; under mpirun it measures
 * the link that MPI uses. */
#include "cli/cli.h"

#include <string.h>

enum { SIDE = 768, COPY = 64 << 20, SMALL = 4096, MIDDLE = 256 << 10, LARGE = 16 << 20 };

static WfOperand square(void)
{
    return (WfOperand){.dtype = WF_F32, .rank = 2, .shape = {SIDE, SIDE}, .stride = {SIDE, 1}};
}

static uint8_t *memory(WfCtx *ctx, size_t n)
{
    uint8_t *p = wf_sys_map(n, true);
    if (!p)
        wf_fail(ctx, WF_E_MEMORY, "%zu MB for the measurement, which the system refuses", n >> 20);
    memset(p, 0, n);
    return p;
}

/* The best of several rounds: others may use the machine, too. */
static double flops(WfCtx *ctx)
{
    WfArena *a = wf_arena_scratch(ctx);
    WfLibDesc d = {.kind = "gemm", .n = 3, .operand = {square(), square(), square()}};
    WfLib *lib = wf_lib_create(ctx, a, &d, 1);
    size_t each = (size_t)SIDE * SIDE * sizeof(float), work = wf_lib_workspace(&d) + 64, scratch = wf_lib_scratch(&d) + 64;
    uint8_t *m = memory(ctx, 3 * each + work + scratch);
    void *operand[3] = {m, m + each, m + 2 * each};
    double best = 0;
    for (int i = 0; i < 12; i++) {
        double t = wf_now();
        for (int phase = 0; phase < lib->n_phases; phase++)
            for (int64_t tile = 0; tile < lib->tiles[phase]; tile++)
                wf_lib_run(lib, phase, tile, operand, m + 3 * each, m + 3 * each + work, 0);
        double rate = 2.0 * SIDE * SIDE * SIDE / (wf_now() - t);
        best = rate > best ? rate : best;
    }
    wf_sys_unmap(m, 3 * each + work + scratch);
    wf_arena_free(a);
    return best;
}

static double bytes(WfCtx *ctx)
{
    uint8_t *m = memory(ctx, 2 * (size_t)COPY);
    double best = 0;
    for (int i = 0; i < 6; i++) {
        double t = wf_now();
        memcpy(m + (i % 2 ? COPY : 0), m + (i % 2 ? 0 : COPY), COPY);
        double rate = 2.0 * COPY / (wf_now() - t);
        best = rate > best ? rate : best;
    }
    wf_sys_unmap(m, 2 * (size_t)COPY);
    return best;
}

/* Latency and rate of buckets. What a bucket takes beyond its bytes is more than a small message takes: its slices go to and
 * fro. */
static WfLink link_of(WfComm *c)
{
    void *arena = wf_comm_arena(c, LARGE);
    double small = wf_comm_measure(c, wf_comm_world(c), arena, SMALL, 200);
    double middle = wf_comm_measure(c, wf_comm_world(c), arena, MIDDLE, 20);
    double large = wf_comm_measure(c, wf_comm_world(c), arena, LARGE, 10);
    double per = (large - middle) / (LARGE - MIDDLE), latency = middle - MIDDLE * per;
    double next = wf_comm_measure_next(c, wf_comm_world(c), arena, MIDDLE, 20) - MIDDLE * per, least = 10e-6;
    latency = latency > small ? latency : small;
    next = next > latency ? latency : next > least ? next : least;
    return (WfLink){latency, next, per > 0 ? 1 / per : 1e12};
}

int wf_cli_bench(WfCtx *ctx, const WfOptions *given, const WfStrings *words)
{
    WfOptions o = *given;
    const char *dir = wf_cache_dir(ctx, ctx->arena, &o);
    if (words->n && o.machine_bench)
        wf_fail(ctx, WF_E_ARGUMENT_EXTRA, "--machine takes no model, but there is %s", words->at[0]);
    if (words->n)
        return wf_cli_bench_steps(ctx, given, words);
    if (!o.machine_bench)
        wf_fail(ctx, WF_E_ARGUMENT_MISSING, "say what to measure: a model with --data FILE, or --machine");
    if (!dir)
        wf_fail(ctx, WF_E_CACHE_FOLDER, "there is no cache folder to keep the numbers in: set --cache-dir, or HOME");
    WfComm *c = wf_cli_join(ctx, &o);
    if (!c)
        return wf_cli_launch(ctx, o.nproc > 1 ? (int)o.nproc : 2, wf_cli_process.argv, NULL);
    WfMachine m;
    wf_machine_load(ctx, ctx->arena, dir, &m);
    m.flops = flops(ctx);
    m.bytes = bytes(ctx);
    bool mpi = wf_cli_link(c) == WF_LINK_MPI;
    m.link[mpi ? WF_LINK_MPI : WF_LINK_LOCAL] = link_of(c);
    if (wf_comm_rank(c) == 0) {
        const WfLink *l = &m.link[mpi ? WF_LINK_MPI : WF_LINK_LOCAL];
        wf_machine_save(ctx, ctx->arena, dir, &m);
        printf("products: %.1f GFLOP/s on one core\nmemory: %.1f GB/s on one core, %d ranks at once\n", m.flops / 1e9,
               m.bytes / 1e9, wf_comm_size(c));
        printf("link (%s, %d ranks): %.1f us, %.1f us behind another, %.2f GB/s of all_reduce\nkept in %s/machine.json\n",
               mpi ? "mpi" : "local", wf_comm_size(c), l->latency * 1e6, l->next * 1e6, l->rate / 1e9, dir);
    }
    wf_comm_close(c);
    return 0;
}
