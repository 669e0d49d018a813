/* One rank of the tests of `comm`, and its launcher.
 *
 *   rank launch N [GRACE] MODE...   starts N ranks with Weft's launcher
 *   rank MODE...                    a rank, whatever launched it; see `modes` at the end
 *
 * Inputs are a function of (seed, rank, index), so that every rank can compute what any other contributes:
 * expected results are computed here in plain C (no vector code, no fused multiply-add), in the order that
 * comm.h defines, and compared bit by bit. Rank 0 prints "hash HEX" of all its results: equal hashes of two
 * transports are equal bits. */
#include "comm/comm.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static WfCtx *ctx;
static WfComm *c;
static int rank, size;
static uint64_t seed = 1, hash = 0;
static int checks;

/* ---- inputs ---- */

static uint64_t mix(uint64_t x)
{
    x += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

/* Floats of very different sizes, so that another order of sums gives other bits. */
static void element(WfDtype t, void *p, int r, int64_t i, int salt)
{
    uint64_t h =
        mix(seed * 1000003 + (uint64_t)salt * 7919 + (uint64_t)r * UINT64_C(0x100000001) + (uint64_t)i * 31);
    if (t == WF_BOOL)
        *(uint8_t *)p = h & 1;
    else if (wf_dtype_is_float(t)) {
        double unit = (double)(h >> 11) * 0x1p-53 - 0.5;
        wf_store_f64(t, p, unit * (double)(1 << (h & 7)));
    } else
        wf_store_i64(t, p, (int64_t)(h >> 3) - (int64_t)(1ull << 59));
}

static void fill(WfDtype t, void *p, int64_t n, int r, int64_t from, int salt)
{
    for (int64_t i = 0; i < n; i++)
        element(t, (char *)p + i * (int64_t)wf_dtype_size(t), r, from + i, salt);
}

/* ---- the reference ---- */

static double tree(WfDtype t, int first, int n, const int *ranks, int64_t i, int salt, double scale)
{
    if (n == 1) {
        uint64_t raw = 0;
        element(t, &raw, ranks[first], i, salt);
        double v = wf_load_f64(t, &raw);
        if (t == WF_F64)
            return scale != 0 ? v * scale : v;
        return scale != 0 ? (double)((float)v * (float)scale) : v;
    }
    int left = (n + 1) / 2;
    double a = tree(t, first, left, ranks, i, salt, scale),
           b = tree(t, first + left, n - left, ranks, i, salt, scale);
    return t == WF_F64 ? a + b : (double)((float)a + (float)b);
}

static void expected(WfDtype t, WfCommReduce op, double scale, const int *ranks, int n, int64_t i, int salt,
                     void *out)
{
    if (op == WF_COMM_MEAN && scale == 0)
        scale = 1.0 / n;
    if (wf_dtype_is_float(t) && (op == WF_COMM_SUM || op == WF_COMM_MEAN)) {
        wf_store_f64(t, out, tree(t, 0, n, ranks, i, salt, scale));
        return;
    }
    double best = 0;
    int64_t ibest = 0;
    for (int r = 0; r < n; r++) {
        uint64_t raw = 0;
        element(t, &raw, ranks[r], i, salt);
        double v = wf_load_f64(t, &raw);
        int64_t w = wf_load_i64(t, &raw);
        if (wf_dtype_is_float(t))
            best = !r || (op == WF_COMM_MIN ? v < best : v > best) ? v : best;
        else if (op == WF_COMM_SUM)
            ibest = (int64_t)((uint64_t)ibest + (uint64_t)w);
        else
            ibest = !r || (op == WF_COMM_MIN ? w < ibest : w > ibest) ? w : ibest;
    }
    if (wf_dtype_is_float(t))
        wf_store_f64(t, out, best);
    else
        wf_store_i64(t, out, ibest);
}

static void WF_NORETURN wrong(const char *what, WfDtype t, int64_t n, int64_t i)
{
    wf_fail(ctx, WEFT_ERR_MISMATCH, "%s of %lld %s: element %lld is wrong on rank %d (seed %llu)", what,
            (long long)n, wf_dtype_name(t), (long long)i, rank, (unsigned long long)seed);
}

static void keep(const void *p, size_t n)
{
    if (rank == 0)
        hash = wf_hash64(p, n, hash);
    checks++;
}

/* ---- memory: private, in the arena, or one kind on even ranks and another on odd ones ---- */

enum { PRIVATE, ARENA, MIXED, MEMORIES };
static char *arena, *heap;
static size_t half; /* bytes of one buffer */

static char *buffer(int memory, int which)
{
    bool shared = memory == ARENA || (memory == MIXED && (rank + which) % 2);
    return (shared ? arena : heap) + (size_t)which * half;
}

static void memory_for(size_t bytes)
{
    half = (bytes + 63) / 64 * 64;
    arena = wf_comm_arena(c, 2 * half);
    heap = aligned_alloc(64, 2 * half);
}

/* ---- collectives against the reference ---- */

static void all_reduce(WfGroup *g, const int *ranks, WfDtype t, WfCommReduce op, double scale, int64_t n,
                       int memory, bool in_place, int salt)
{
    size_t e = wf_dtype_size(t);
    char *send = buffer(memory, 0), *recv = in_place ? send : buffer(memory, 1);
    memset(recv, 0x5a, (size_t)n * e);
    fill(t, send, n, rank, 0, salt);
    wf_comm_run(c, g,
                &(WfCommOp){.kind = WF_ALL_REDUCE,
                            .op = op,
                            .dtype = t,
                            .send = send,
                            .recv = recv,
                            .count = n,
                            .scale = scale,
                            .node = "%all_reduce",
                            .step = salt});
    for (int64_t i = 0; i<n; i = n> 5000 ? i + 1 + (int64_t)(mix((uint64_t)i) % 97) : i + 1) {
        uint64_t want = 0;
        expected(t, op, scale, ranks, wf_group_size(g), i, salt, &want);
        if (memcmp(&want, recv + i * (int64_t)e, e))
            wrong("all_reduce", t, n, i);
    }
    keep(recv, (size_t)n * e);
}

static void all_gather(WfGroup *g, const int *ranks, WfDtype t, const int64_t *counts, int memory,
                       bool in_place, int salt)
{
    int n = wf_group_size(g), me = wf_group_rank(g);
    int64_t e = (int64_t)wf_dtype_size(t), before = 0, total = 0;
    for (int r = 0; r < n; r++) {
        before += r < me ? counts[r] : 0;
        total += counts[r];
    }
    char *recv = buffer(memory, 1), *send = in_place ? recv + before * e : buffer(memory, 0);
    memset(recv, 0x5a, (size_t)(total * e));
    fill(t, send, counts[me], rank, 0, salt);
    bool equal = true;
    for (int r = 0; r < n; r++)
        equal = equal && counts[r] == counts[0];
    wf_comm_run(c, g,
                &(WfCommOp){.kind = WF_ALL_GATHER,
                            .dtype = t,
                            .send = send,
                            .recv = recv,
                            .count = counts[0],
                            .counts = equal ? NULL : counts,
                            .node = "%all_gather",
                            .step = salt});
    int64_t at = 0;
    for (int r = 0; r < n; r++)
        for (int64_t i = 0; i < counts[r]; i++, at++) {
            uint64_t want = 0;
            element(t, &want, ranks[r], i, salt);
            if (memcmp(&want, recv + at * e, (size_t)e))
                wrong("all_gather", t, total, at);
        }
    keep(recv, (size_t)(total * e));
}

static void reduce_scatter(WfGroup *g, const int *ranks, WfDtype t, const int64_t *counts, int memory,
                           bool in_place, int salt)
{
    int n = wf_group_size(g), me = wf_group_rank(g);
    int64_t e = (int64_t)wf_dtype_size(t), before = 0, total = 0;
    for (int r = 0; r < n; r++) {
        before += r < me ? counts[r] : 0;
        total += counts[r];
    }
    char *send = buffer(memory, 0), *recv = in_place ? send + before * e : buffer(memory, 1);
    fill(t, send, total, rank, 0, salt);
    wf_comm_run(c, g,
                &(WfCommOp){.kind = WF_REDUCE_SCATTER,
                            .op = WF_COMM_SUM,
                            .dtype = t,
                            .send = send,
                            .recv = recv,
                            .count = counts[0],
                            .counts = counts,
                            .node = "%reduce_scatter",
                            .step = salt});
    for (int64_t i = 0; i < counts[me]; i++) {
        uint64_t want = 0;
        expected(t, WF_COMM_SUM, 0, ranks, n, before + i, salt, &want);
        if (memcmp(&want, recv + i * e, (size_t)e))
            wrong("reduce_scatter", t, total, before + i);
    }
    keep(recv, (size_t)(counts[me] * e));
}

/* Rank a sends (base + a + 2 b) % 5 * unit elements to rank b. */
static int64_t pair_count(int a, int b, int salt, int64_t unit)
{
    return (salt + a + 2 * b) % 5 * unit;
}

static void all_to_all(WfGroup *g, const int *ranks, WfDtype t, int64_t unit, int memory, int salt)
{
    int n = wf_group_size(g), me = wf_group_rank(g);
    int64_t sends[64], recvs[64], e = (int64_t)wf_dtype_size(t), at = 0, total = 0;
    char *send = buffer(memory, 0), *recv = buffer(memory, 1);
    for (int r = 0; r < n; r++) {
        sends[r] = pair_count(me, r, salt, unit);
        recvs[r] = pair_count(r, me, salt, unit);
        total += recvs[r];
        fill(t, send + at * e, sends[r], rank, r * 100000, salt);
        at += sends[r];
    }
    wf_comm_run(c, g,
                &(WfCommOp){.kind = WF_ALL_TO_ALL,
                            .dtype = t,
                            .send = send,
                            .recv = recv,
                            .counts = sends,
                            .recv_counts = recvs,
                            .node = "%all_to_all",
                            .step = salt});
    at = 0;
    for (int r = 0; r < n; r++)
        for (int64_t i = 0; i < recvs[r]; i++, at++) {
            uint64_t want = 0;
            element(t, &want, ranks[r], me * 100000 + i, salt);
            if (memcmp(&want, recv + at * e, (size_t)e))
                wrong("all_to_all", t, total, at);
        }
    keep(recv, (size_t)(total * e));
}

static void broadcast(WfGroup *g, const int *ranks, WfDtype t, int64_t n, int root, int memory, int salt)
{
    size_t e = wf_dtype_size(t);
    char *recv = buffer(memory, 0);
    memset(recv, 0x5a, (size_t)n * e);
    if (wf_group_rank(g) == root)
        fill(t, recv, n, rank, 0, salt);
    wf_comm_run(c, g,
                &(WfCommOp){.kind = WF_BROADCAST,
                            .dtype = t,
                            .recv = recv,
                            .count = n,
                            .root = root,
                            .node = "%broadcast",
                            .step = salt});
    for (int64_t i = 0; i < n; i++) {
        uint64_t want = 0;
        element(t, &want, ranks[root], i, salt);
        if (memcmp(&want, recv + i * (int64_t)e, e))
            wrong("broadcast", t, n, i);
    }
    keep(recv, (size_t)n * e);
}

static const WfDtype all_dtypes[] = {WF_F32, WF_F64, WF_F16, WF_BF16, WF_I64,
                                     WF_I32, WF_I16, WF_I8,  WF_U8,   WF_BOOL};

static void every_collective(WfGroup *g, const int *ranks, int64_t largest)
{
    static const int64_t counts[] = {0, 1, 2, 15, 16, 17, 1000, 4096, 4097, 16385, 140001, 300007};
    int n = wf_group_size(g), salt = 0;
    for (size_t k = 0; k < WF_LEN(counts) && counts[k] <= largest; k++)
        for (int memory = 0; memory < MEMORIES; memory++)
            for (int in_place = 0; in_place < 2; in_place++) {
                int64_t blocks[64], m = counts[k];
                salt++;
                all_reduce(g, ranks, WF_F32, WF_COMM_SUM, 0, m, memory, in_place, salt);
                all_reduce(g, ranks, WF_F32, WF_COMM_MEAN, 0, m, memory, in_place, salt);
                for (int r = 0; r < n; r++)
                    blocks[r] = (m + r) / n + (r + salt) % 3 * (m > 100 ? 9 : m > 0);
                all_gather(g, ranks, WF_F32, blocks, memory, in_place, salt);
                reduce_scatter(g, ranks, WF_F32, blocks, memory, in_place, salt);
                for (int r = 0; r < n; r++)
                    blocks[r] = m / n;
                all_gather(g, ranks, WF_I16, blocks, memory, in_place, salt);
                reduce_scatter(g, ranks, WF_F64, blocks, memory, in_place, salt);
                all_to_all(g, ranks, WF_I32, m / n / 4, memory, salt);
                broadcast(g, ranks, WF_U8, m, salt % n, memory, salt);
                wf_comm_run(c, g, &(WfCommOp){.kind = WF_BARRIER, .node = "%barrier"});
            }
    for (size_t d = 0; d < WF_LEN(all_dtypes); d++)
        for (int op = WF_COMM_SUM; op <= WF_COMM_MAX; op++) {
            WfDtype t = all_dtypes[d];
            bool sums = op == WF_COMM_SUM || op == WF_COMM_MEAN;
            if ((sums && t == WF_BOOL) || (op == WF_COMM_MEAN && !wf_dtype_is_float(t)))
                continue;
            all_reduce(g, ranks, t, (WfCommReduce)op, sums && wf_dtype_is_float(t) ? 0.3 : 0, 1013, PRIVATE,
                       false, 900 + op);
            if (largest > 20000)
                all_reduce(g, ranks, t, (WfCommReduce)op, 0, 20011, ARENA, true, 950 + op);
        }
}

/* Several in flight, waited for in another order; groups started in different orders by different ranks. */
static void in_flight(void)
{
    enum { N = 24, COUNT = 3001 };
    WfTicket t[N];
    int *ranks = calloc((size_t)size, sizeof(int));
    for (int r = 0; r < size; r++)
        ranks[r] = r;
    WfGroup *second = wf_comm_group(c, "second", ranks, size);
    float *x = (float *)arena, *y = (float *)(arena + half);
    for (int i = 0; i < N; i++)
        fill(WF_F32, x + (size_t)i * COUNT, COUNT, rank, 0, 5000 + i);
    for (int k = 0; k < N; k++) {
        int i = rank % 2 ? k ^ 1 : k; /* neighbours swapped: one of them is of the other group */
        t[i] = wf_comm_start(c, i % 2 ? second : wf_comm_world(c),
                             &(WfCommOp){.kind = WF_ALL_REDUCE,
                                         .op = WF_COMM_SUM,
                                         .dtype = WF_F32,
                                         .send = x + (size_t)i * COUNT,
                                         .recv = (i % 3 ? x : y) + (size_t)i * COUNT,
                                         .count = COUNT,
                                         .node = "%flying"});
    }
    for (int k = 0; k < N; k++) {
        int i = (k * 7 + rank) % N;
        wf_comm_wait(c, t[i]);
        for (int j = 0; j < COUNT; j++) {
            float want;
            expected(WF_F32, WF_COMM_SUM, 0, ranks, size, j, 5000 + i, &want);
            if (memcmp(&want, (i % 3 ? x : y) + (size_t)i * COUNT + j, sizeof want))
                wrong("all_reduce in flight", WF_F32, COUNT, j);
        }
        checks++;
    }
    free(ranks);
}

/* What was started ends without anybody waiting: the communication thread does it while this one is busy
 * elsewhere. */
static void in_background(void)
{
    float *x = (float *)arena;
    int64_t n = (int64_t)(half / sizeof(float));
    memset(x, 0, half);
    WfTicket t = wf_comm_start(
        c, wf_comm_world(c),
        &(WfCommOp){
            .kind = WF_ALL_REDUCE, .dtype = WF_F32, .send = x, .recv = x, .count = n, .node = "%background"});
    double until = wf_now() + 20; /* the machine may be busy; a transport without a thread would never end */
    while (!wf_comm_done(c, t))
        if (wf_now() > until)
            wf_fail(ctx, WEFT_ERR_MISMATCH,
                    "an all_reduce that nobody waits for is not done after 20 s on rank %d", rank);
        else
            usleep(1000);
    wf_comm_wait(c, t);
    checks++;
}

static void values(int argc, char **argv)
{
    int64_t largest = argc > 0 ? atoll(argv[0]) : 300007;
    int *ranks = calloc((size_t)size, sizeof(int)), n = 0;
    memory_for((size_t)largest * 8 + 65536 * (size_t)(size > 8 ? 1 : 4) + (size_t)size * 1024);
    for (int r = 0; r < size; r++)
        ranks[r] = r;
    every_collective(wf_comm_world(c), ranks, largest);
    if (half >= 24 * 3001 * sizeof(float))
        in_flight();
    in_background();
    for (int which = 0; which < 3 && size > 2; which++) { /* even ranks; all but the first; the last alone */
        n = 0;
        for (int r = which == 1 ? 1 : which == 2 ? size - 1 : 0; r < size; r += which == 0 ? 2 : 1)
            ranks[n++] = r;
        WfGroup *g = wf_comm_group(c, which == 0 ? "even" : which == 1 ? "tail" : "alone", ranks, n);
        if (g)
            every_collective(g, ranks, largest < 5000 ? largest : 5000);
    }
    uint64_t mine = (uint64_t)rank * 3 + 1, all[64];
    wf_comm_exchange(c, &mine, sizeof mine, all, 10, "a number");
    for (int r = 0; r < size; r++)
        if (all[r] != (uint64_t)r * 3 + 1)
            wrong("exchange", WF_I64, size, r);
    size_t bytes = 700001;
    char *blob = malloc(bytes);
    fill(WF_U8, blob, (int64_t)bytes, 0, 0, 1);
    const char *got =
        wf_comm_share(c, ctx->arena, 0, rank ? NULL : blob, rank ? &(size_t){0} : &bytes, "a blob");
    if (memcmp(got, blob, bytes))
        wrong("share", WF_U8, (int64_t)bytes, 0);
    free(blob);
    free(heap);
    free(ranks);
    if (rank == 0)
        printf("hash %016llx\nchecks %d\n", (unsigned long long)hash, checks);
}

/* ---- faults: steps of one all_reduce each; from step 5 on the victim does something else ---- */

static void nap(double s)
{
    usleep((useconds_t)(s * 1e6));
}

static void steps(int argc, char **argv)
{
    const char *how = argc > 0 ? argv[0] : "none";
    int victim = argc > 1 ? atoi(argv[1]) : size - 1, n = argc > 2 ? atoi(argv[2]) : 1000000;
    memory_for(1 << 20);
    float *x = (float *)arena;
    for (int step = 1; step <= n; step++) {
        wf_comm_mark(c, WF_FLIGHT_COMPUTING, "%mm", step);
        if (step == 5 && rank == victim) {
            if (!strcmp(how, "kill"))
                raise(SIGKILL);
            if (!strcmp(how, "stop"))
                raise(SIGSTOP);
            if (!strcmp(how, "exit"))
                _exit(0);
            if (!strcmp(how, "leave"))
                return;
            if (!strcmp(how, "error"))
                wf_fail_at(ctx, WEFT_ERR_DATA, "at %mm", "Look at the data.", "input x: sample 3 is nan");
            if (!strcmp(how, "slow"))
                nap(0.7);
            if (!strcmp(how, "hang"))
                nap(600);
        }
        bool odd = !strcmp(how, "differ") && step == 5 && rank == victim;
        wf_comm_run(c, wf_comm_world(c),
                    &(WfCommOp){.kind = WF_ALL_REDUCE,
                                .op = WF_COMM_SUM,
                                .dtype = WF_F32,
                                .send = x,
                                .recv = x,
                                .count = odd ? 999 : 1000,
                                .node = odd ? "%other" : "%grad",
                                .step = step});
        if (!strcmp(how, "forever"))
            nap(0.01);
    }
}

/* ---- times ---- */

/* The copy rate of one rank while all copy: 64 MB from one buffer to the other, bytes copied per second. */
static void bench(int argc, char **argv)
{
    size_t largest = argc > 0 ? (size_t)atoll(argv[0]) : 64u << 20;
    memory_for(largest);
    memset(arena, 0, 2 * half);
    WfGroup *w = wf_comm_world(c);
    for (size_t bytes = 4096; bytes <= largest; bytes *= 4) {
        int rounds = 3;
        double best = 1e9;
        for (int i = 0; i < 6; i++) {
            double t = wf_comm_measure(c, w, arena, bytes, rounds);
            best = t < best ? t : best;
            if (!i) { /* as many as fill 30 ms */
                rounds = t > 0 && 0.03 / t < 2000 ? (int)(0.03 / t) : 2000;
                rounds = rounds < 3 ? 3 : rounds;
            }
        }
        if (rank == 0)
            printf("%zu %.3f\n", bytes, best * 1e6);
    }
    double best = 1e9;
    for (int i = 0; i < 5; i++) {
        wf_comm_run(c, w, &(WfCommOp){.kind = WF_BARRIER});
        double begun = wf_now();
        memcpy(arena, arena + half, largest);
        double took = wf_now() - begun;
        best = took < best ? took : best;
    }
    if (rank == 0)
        printf("copy %.3f\n", best * 1e6);
}

static void hello(int argc, char **argv)
{
    (void)argc, (void)argv;
    int mine = rank, *all = calloc((size_t)size, sizeof(int));
    wf_comm_exchange(c, &mine, sizeof mine, all, 0, "ranks");
    for (int r = 0; r < size; r++)
        if (all[r] != r)
            wrong("exchange", WF_I32, size, r);
    printf("%s\n", wf_comm_describe(c));
    free(all);
}

typedef struct {
    const char *name;
    void (*run)(int argc, char **argv);
} Mode;
static const Mode modes[] = {{"values", values}, {"steps", steps}, {"bench", bench}, {"hello", hello}};

/* ---- main ---- */

typedef struct {
    int argc;
    char **argv;
    int code;
} Args;
static volatile int interrupted;
static void on_signal(int s)
{
    interrupted = s;
}

static void go(void *p)
{
    Args *a = p;
    if (!strcmp(a->argv[1], "launch")) {
        struct sigaction sa = {.sa_handler = on_signal};
        sigaction(SIGINT, &sa, NULL);
        sigaction(SIGTERM, &sa, NULL);
        a->argv[2 + 1 - 1] = a->argv[0];
        int n = a->code;
        a->code = wf_launch(ctx, &(WfLaunch){.nproc = n,
                                             .argv = a->argv + 2,
                                             .interrupt = &interrupted,
                                             .grace = 1,
                                             .out = getenv("TEST_OUT")});
        return;
    }
    const char *absent = getenv("TEST_ABSENT"), *me = getenv("WEFT_WORLD");
    if (absent && me && atoi(me) == atoi(absent))
        nap(600);
    const char *s = getenv("TEST_SEED");
    seed = s ? strtoull(s, NULL, 10) : 1;
    c = wf_comm_open(ctx, &(WfCommOptions){.start = absent ? 1 : 0});
    rank = wf_comm_rank(c);
    size = wf_comm_size(c);
    for (size_t i = 0; i < WF_LEN(modes); i++)
        if (!strcmp(modes[i].name, a->argv[1])) {
            modes[i].run(a->argc - 2, a->argv + 2);
            fflush(stdout);
            wf_comm_close(c);
            return;
        }
    wf_fail(ctx, WEFT_ERR_USAGE, "no mode %s", a->argv[1]);
}

int main(int argc, char **argv)
{
    ctx = wf_ctx_new();
    if (argc < 2)
        return 2;
    Args a = {argc, argv, 0};
    if (!strcmp(argv[1], "launch"))
        a.code = argc > 2 ? atoi(argv[2]) : 0;
    weft_status s = wf_guard(ctx, go, &a);
    if (s != WEFT_OK) {
        a.code = s == WEFT_ERR_USAGE ? 2 : 1;
        if (!ctx->diag.told)
            fprintf(stderr, "error: %s\n%s%s%s%s%s", ctx->diag.message, ctx->diag.place ? "  " : "",
                    ctx->diag.place ? ctx->diag.place : "", ctx->diag.place ? "\n" : "",
                    ctx->diag.hint ? ctx->diag.hint : "", ctx->diag.hint ? "\n" : "");
    }
    wf_ctx_free(ctx);
    return a.code;
}
