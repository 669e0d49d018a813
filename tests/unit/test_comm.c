/* comm: ranks as threads of this process, over one mapping, so that a thread sanitizer sees what processes do
 * to each other's memory; and the reducing kernels against the order of sums that comm.h defines. Real
 * processes, faults and MPI are tested in tests/dist. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "comm/private.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST = 8 };

typedef struct {
    int rank, size;
    const WfShared *shared;
    void (*body)(WfComm *c, WfCtx *ctx, int rank, int size);
    weft_status status;
    char message[1500];
    WfCtx *ctx;
    double timeout;
} Rank;

static void run_rank(void *p)
{
    Rank *r = p;
    WfComm *c = wf_comm_open_thread(r->ctx, &(WfCommOptions){.timeout = r->timeout, .start = 10}, r->shared,
                                    r->rank, r->size);
    r->body(c, r->ctx, r->rank, r->size);
    wf_comm_close(c);
}

static void *rank_main(void *p)
{
    Rank *r = p;
    r->ctx = wf_ctx_new();
    r->status = wf_guard(r->ctx, run_rank, r);
    snprintf(r->message, sizeof r->message, "%s | %s", r->ctx->diag.message ? r->ctx->diag.message : "",
             r->ctx->diag.place ? r->ctx->diag.place : "");
    wf_ctx_free(r->ctx);
    return NULL;
}

/* Runs `body` on every rank of a world of threads. */
static void world(int size, double timeout, Rank *ranks,
                  void (*body)(WfComm *c, WfCtx *ctx, int rank, int size))
{
    pthread_t t[MOST];
    WfShared shared;
    WfCtx *ctx = wf_ctx_new();
    wf_shared_create(ctx, size, true, &shared);
    for (int r = 0; r < size; r++) {
        ranks[r] = (Rank){.rank = r, .size = size, .shared = &shared, .body = body, .timeout = timeout};
        assert_int_equal(pthread_create(&t[r], NULL, rank_main, &ranks[r]), 0);
    }
    for (int r = 0; r < size; r++)
        pthread_join(t[r], NULL);
    wf_shared_close(&shared);
    wf_ctx_free(ctx);
}

static void all_well(const Rank *ranks, int size)
{
    for (int r = 0; r < size; r++)
        if (ranks[r].status != WEFT_OK)
            fail_msg("rank %d of %d: %s", r, size, ranks[r].message);
}

static float input(int rank, int64_t i)
{
    return (float)(((i * 2654435761u + (unsigned)rank * 40503u) >> 8) % 100003) * 0.0137f - 600.0f;
}

static float tree(int first, int n, int64_t i)
{
    if (n == 1)
        return input(first, i);
    int left = wf_comm_tree_left(n);
    volatile float a = tree(first, left, i), b = tree(first + left, n - left, i);
    return a + b;
}

static void check(WfCtx *ctx, const float *got, int64_t n, int size, const char *what)
{
    for (int64_t i = 0; i < n; i++) {
        float want = tree(0, size, i);
        if (memcmp(&want, got + i, sizeof want))
            wf_fail(ctx, WEFT_ERR_MISMATCH, "%s: element %lld is %a instead of %a", what, (long long)i,
                    (double)got[i], (double)want);
    }
}

/* Inline, staged and direct; waited for at once and after others; the communication thread has time to do
 * some. */
static void sums(WfComm *c, WfCtx *ctx, int rank, int size)
{
    static const int64_t counts[] = {1, 100, 4096, 4097, 200003};
    enum { LARGEST = 200003 };
    float *arena = wf_comm_arena(c, LARGEST * sizeof(float)), *heap = malloc(2 * LARGEST * sizeof(float));
    for (size_t k = 0; k < WF_LEN(counts); k++)
        for (int way = 0; way < 4; way++) {
            int64_t n = counts[k];
            float *send = way & 1 ? arena : heap, *recv = way == 2 ? heap + LARGEST : send;
            for (int64_t i = 0; i < n; i++)
                send[i] = input(rank, i);
            WfCommOp op = {.kind = WF_ALL_REDUCE,
                           .dtype = WF_F32,
                           .send = send,
                           .recv = recv,
                           .count = n,
                           .node = "%sum",
                           .step = (int64_t)k};
            if (way < 2)
                wf_comm_run(c, wf_comm_world(c), &op);
            else {
                WfTicket t = wf_comm_start(c, wf_comm_world(c), &op);
                if (way == 3)
                    usleep(2000);
                wf_comm_wait(c, t);
            }
            check(ctx, recv, n, size, "all_reduce");
        }
    free(heap);
}

static void test_sums(void **state)
{
    (void)state;
    Rank ranks[MOST];
    for (int size = 1; size <= 5; size += size == 3 ? 2 : 1) {
        world(size, 60, ranks, sums);
        all_well(ranks, size);
    }
}

/* Gathers of unequal blocks on two groups at once, from both ends. */
static void gathers(WfComm *c, WfCtx *ctx, int rank, int size)
{
    int all[MOST];
    for (int r = 0; r < size; r++)
        all[r] = r;
    WfGroup *g[2] = {wf_comm_world(c), wf_comm_group(c, "other", all, size)};
    int64_t counts[MOST], total = 0, before = 0;
    for (int r = 0; r < size; r++) {
        counts[r] = r * 7001;
        before += r < rank ? counts[r] : 0;
        total += counts[r];
    }
    int32_t *recv[2];
    for (int k = 0; k < 2; k++) {
        recv[k] = malloc((size_t)total * sizeof(int32_t));
        for (int64_t i = 0; i < counts[rank]; i++)
            recv[k][before + i] = (int32_t)(rank * 1000000 + i + k);
    }
    for (int round = 0; round < 5; round++) {
        WfTicket t[2];
        for (int j = 0; j < 2; j++) {
            int k = (j + rank) % 2;
            t[k] = wf_comm_start(c, g[k],
                                 &(WfCommOp){.kind = WF_ALL_GATHER,
                                             .dtype = WF_I32,
                                             .send = recv[k] + before,
                                             .recv = recv[k],
                                             .counts = counts,
                                             .node = "%gather"});
        }
        wf_comm_wait(c, t[0]);
        wf_comm_wait(c, t[1]);
        for (int k = 0; k < 2; k++)
            for (int64_t r = 0, at = 0; r < size; at += counts[r], r++)
                for (int64_t i = 0; i < counts[r]; i++)
                    if (recv[k][at + i] != (int32_t)(r * 1000000 + i + k))
                        wf_fail(ctx, WEFT_ERR_MISMATCH, "all_gather: block %d element %d of group %d", (int)r,
                                (int)i, k);
    }
    free(recv[0]);
    free(recv[1]);
}

static void test_gathers(void **state)
{
    (void)state;
    Rank ranks[MOST];
    world(4, 60, ranks, gathers);
    all_well(ranks, 4);
}

static void one_differs(WfComm *c, WfCtx *ctx, int rank, int size)
{
    (void)ctx, (void)size;
    float x[4] = {0};
    wf_comm_run(c, wf_comm_world(c),
                &(WfCommOp){.kind = WF_ALL_REDUCE,
                            .dtype = rank == 1 ? WF_I32 : WF_F32,
                            .send = x,
                            .recv = x,
                            .count = 4,
                            .node = rank == 1 ? "%b" : "%a",
                            .step = 3});
}

static void test_difference(void **state)
{
    (void)state;
    Rank ranks[MOST];
    world(3, 60, ranks, one_differs);
    for (int r = 0; r < 3; r++) {
        assert_int_equal(ranks[r].status, WEFT_ERR_RANK);
        assert_non_null(strstr(ranks[r].message, "differ in the dtype"));
        assert_non_null(strstr(ranks[r].message, "%a"));
        assert_non_null(strstr(ranks[r].message, "%b"));
    }
}

static void one_stays_away(WfComm *c, WfCtx *ctx, int rank, int size)
{
    (void)ctx, (void)size;
    float x = 0;
    wf_comm_mark(c, WF_FLIGHT_COMPUTING, "%mm", 8);
    if (rank == 2)
        usleep(1500000);
    wf_comm_run(c, wf_comm_world(c),
                &(WfCommOp){.kind = WF_ALL_REDUCE,
                            .dtype = WF_F32,
                            .send = &x,
                            .recv = &x,
                            .count = 1,
                            .node = "%grad",
                            .step = 8});
}

/* The deadline passes, and the message says who is missing, where that rank is, and at which node the others
 * wait. */
static void test_deadline(void **state)
{
    (void)state;
    Rank ranks[MOST];
    double begun = wf_now();
    world(3, 0.3, ranks, one_stays_away);
    assert_true(wf_now() - begun < 10);
    for (int r = 0; r < 3; r++) {
        assert_int_equal(ranks[r].status, WEFT_ERR_RANK);
        assert_non_null(strstr(ranks[r].message, "missing: rank 2"));
        assert_null(strstr(ranks[r].message, "missing: rank 2 (pid 0"));
        assert_non_null(strstr(ranks[r].message, "computing %mm (step 8)"));
        assert_non_null(strstr(ranks[r].message, "at %grad (step 8)"));
    }
}

static void one_fails(WfComm *c, WfCtx *ctx, int rank, int size)
{
    (void)size;
    if (rank == 0)
        wf_fail_at(ctx, WEFT_ERR_DATA, "at %embedding", NULL, "label 99 is out of range");
    wf_comm_run(c, wf_comm_world(c), &(WfCommOp){.kind = WF_BARRIER, .node = "%barrier"});
}

static void test_own_error(void **state)
{
    (void)state;
    Rank ranks[MOST];
    world(2, 60, ranks, one_fails);
    assert_int_equal(ranks[0].status, WEFT_ERR_DATA);
    assert_int_equal(ranks[1].status, WEFT_ERR_RANK);
    assert_string_equal(ranks[1].message, "rank 0 failed: label 99 is out of range | at %embedding");
}

static void refused(WfComm *c, WfCtx *ctx, int rank, int size)
{
    (void)ctx, (void)rank, (void)size;
    static _Thread_local float x[8];
    wf_comm_run(
        c, wf_comm_world(c),
        &(WfCommOp){
            .kind = WF_ALL_REDUCE, .dtype = WF_F32, .send = x, .recv = x + 1, .count = 4, .node = "%x"});
}

static void refused_mean(WfComm *c, WfCtx *ctx, int rank, int size)
{
    (void)ctx, (void)rank, (void)size;
    int32_t x = 0;
    wf_comm_run(
        c, wf_comm_world(c),
        &(WfCommOp){
            .kind = WF_ALL_REDUCE, .op = WF_COMM_MEAN, .dtype = WF_I32, .send = &x, .recv = &x, .count = 1});
}

static void test_refused(void **state)
{
    (void)state;
    Rank ranks[MOST];
    world(1, 5, ranks, refused);
    assert_int_equal(ranks[0].status, WEFT_ERR_USAGE);
    assert_string_equal(
        ranks[0].message,
        "all_reduce: send and recv overlap, and not in the way that this collective can do in place | at %x");
    world(1, 5, ranks, refused_mean);
    assert_int_equal(ranks[0].status, WEFT_ERR_USAGE);
    assert_string_equal(ranks[0].message,
                        "all_reduce: a mean needs floats; use sum, or convert first | at an unnamed node");
}

/* ---- kernels ---- */

static void kernel_case(WfReduceFn fn, WfDtype t, int n, size_t count, bool stream)
{
    size_t e = wf_dtype_size(t);
    char *mem[9];
    const void *src[8];
    for (int r = 0; r < n; r++) {
        mem[r] = malloc(count * e + 1);
        for (size_t i = 0; i < count; i++)
            wf_store_f64(t, mem[r] + i * e, (double)input(r, (int64_t)i) * 1e-3);
        src[r] = mem[r];
    }
    mem[n] = malloc(count * e + 8);
    void *dst[1] = {mem[n] + e % 8}; /* off any line */
    fn(&(WfReduceHow){t, WF_COMM_SUM, 0.25, true, stream}, src, n, count, dst, 1);
    for (size_t i = 0; i < count; i++) {
        float stack[8];
        for (int r = 0; r < n; r++)
            stack[r] = (float)wf_load_f64(t, mem[r] + i * e) * 0.25f;
        volatile float want =
            n == 5 ? ((stack[0] + stack[1]) + stack[2]) + (stack[3] + stack[4]) : stack[0] + stack[1];
        uint64_t bits = 0;
        wf_store_f64(t, &bits, (double)want);
        if (memcmp(&bits, (char *)dst[0] + i * e, e))
            fail_msg("%s, %d sources, %zu elements: element %zu", wf_dtype_name(t), n, count, i);
    }
    for (int r = 0; r <= n; r++)
        free(mem[r]);
}

/* Both instruction sets give the bits of the plain loop: five sources walk the tree, two take the short way.
 */
static void test_kernels(void **state)
{
    (void)state;
    static const WfDtype types[] = {WF_F32, WF_F16, WF_BF16};
    static const size_t counts[] = {0, 1, 7, 8, 1023, 1024, 1025, 5000};
    for (size_t t = 0; t < WF_LEN(types); t++)
        for (size_t k = 0; k < WF_LEN(counts); k++)
            for (int n = 2; n <= 5; n += 3)
                for (int stream = 0; stream < 2; stream++) {
                    kernel_case(wf_sum_ranks_v3, types[t], n, counts[k], stream);
                    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw"))
                        kernel_case(wf_sum_ranks_v4, types[t], n, counts[k], stream);
                }
}

/* A NaN of any rank reaches minimum and maximum; bf16 keeps a NaN whose payload lies in the bits that are cut
 * off. */
static void test_nan(void **state)
{
    (void)state;
    for (int at = 0; at < 3; at++)
        for (int op = WF_COMM_MIN; op <= WF_COMM_MAX; op++) {
            float x[3] = {1, 2, 3}, out = 0;
            x[at] = NAN;
            const void *src[3] = {&x[0], &x[1], &x[2]};
            void *dst[1] = {&out};
            wf_sum_ranks(&(WfReduceHow){WF_F32, (WfCommReduce)op, 0, false, false}, src, 3, 1, dst, 1);
            assert_true(isnan(out));
        }
    uint16_t a = 0x7f81, b = 0, out = 0;
    const void *src[2] = {&a, &b};
    void *dst[1] = {&out};
    wf_sum_ranks(&(WfReduceHow){WF_BF16, WF_COMM_SUM, 0, false, false}, src, 2, 1, dst, 1);
    assert_true((out & 0x7fff) > 0x7f80);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sums),     cmocka_unit_test(test_gathers),   cmocka_unit_test(test_difference),
        cmocka_unit_test(test_deadline), cmocka_unit_test(test_own_error), cmocka_unit_test(test_refused),
        cmocka_unit_test(test_kernels),  cmocka_unit_test(test_nan),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
