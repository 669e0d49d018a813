/* Every collective as a node: forward and gradient on 1, 2, 3 and 4 ranks (threads of this process), over all ranks and over
 * named groups, against what the definition says. Values are small whole numbers, so that sums are exact in any order and
 * extrema have ties. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "api/api.h"
#include "comm/private.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 4, ROWS = 12, COLS = 3, N = ROWS * COLS };

enum { SUM, MEAN, MAX, MIN, BROADCAST, REDUCE, GATHER, SCATTER, SCATTER_MEAN, EXCHANGE, BARRIER, OPS };
static const char *const ops[OPS] = {"all_reduce",     "all_reduce",     "all_reduce", "all_reduce", "broadcast", "reduce", "all_gather",
                                     "reduce_scatter", "reduce_scatter", "all_to_all", "barrier"};
static const char *const names[OPS] = {"sum",        "mean",    "max",          "min",        "broadcast", "reduce",
                                       "all_gather", "scatter", "scatter mean", "all_to_all", "barrier"};

typedef struct {
    int rank, size;          /* of the world */
    const char *group, *declared;
    int set[MOST], m, me;    /* this rank's group, and its place there */
    const WfShared *shared;
    WfCtx *ctx;
    weft_status status;
    char message[1500];
    float out[OPS][MOST * N], grad[OPS][N];
} Rank;

static pthread_mutex_t compiling = PTHREAD_MUTEX_INITIALIZER;

/* Small whole numbers: `what` tells weights, inputs and cotangents apart. */
static double value(int what, int op, int rank, int i)
{
    uint64_t key[4] = {(uint64_t)what, (uint64_t)op, (uint64_t)rank, (uint64_t)i};
    return (double)(wf_hash64(key, sizeof key, 11) % 9) - 4;
}
static double w(int op, int i) { return value(0, op, 0, i) + 5; }
static double x(int rank, int i) { return value(1, 0, rank, i); }
static double z(int op, int rank, int i) { return value(2, op, rank, i); }
static double h(int op, int rank, int i) { return w(op, i) * x(rank, i); }

/* ---- what the definitions say ---- */

static int length(int op, int m) { return op == GATHER ? m * N : op == SCATTER || op == SCATTER_MEAN ? N / m : N; }

static double total(const Rank *r, double (*f)(int, int, int), int op, int i)
{
    double s = 0;
    for (int q = 0; q < r->m; q++)
        s += f(op, r->set[q], i);
    return s;
}

static double extremum(const Rank *r, int op, int i)
{
    double best = h(op, r->set[0], i);
    for (int q = 1; q < r->m; q++) {
        double v = h(op, r->set[q], i);
        best = op == MAX ? fmax(best, v) : fmin(best, v);
    }
    return best;
}

static double expected_out(const Rank *r, int op, int i)
{
    int block = N / r->m;
    switch (op) {
    case SUM: return total(r, h, op, i);
    case MEAN: return total(r, h, op, i) / r->m;
    case MAX: case MIN: return extremum(r, op, i);
    case BROADCAST: return h(op, r->set[r->m - 1], i);
    case REDUCE: return r->me == 0 ? total(r, h, op, i) : 0;
    case GATHER: return h(op, r->set[i / N], i % N);
    case SCATTER: return total(r, h, op, r->me * block + i);
    case SCATTER_MEAN: return total(r, h, op, r->me * block + i) / r->m;
    case EXCHANGE: return h(op, r->set[i / block], r->me * block + i % block);
    default: return h(op, r->rank, i);
    }
}

/* Of this rank's h, before the mean over the ranks. */
static double expected_dh(const Rank *r, int op, int i)
{
    int block = N / r->m, ties = 0;
    double s = 0;
    switch (op) {
    case SUM: return total(r, z, op, i);
    case MEAN: return total(r, z, op, i) / r->m;
    case MAX: case MIN:
        for (int q = 0; q < r->m; q++)
            ties += h(op, r->set[q], i) == extremum(r, op, i);
        return h(op, r->rank, i) == extremum(r, op, i) ? total(r, z, op, i) / ties : 0;
    case BROADCAST: return r->me == r->m - 1 ? total(r, z, op, i) : 0;
    case REDUCE: return z(op, r->set[0], i);
    case GATHER:
        for (int q = 0; q < r->m; q++)
            s += z(op, r->set[q], r->me * N + i);
        return s;
    case SCATTER: return z(op, r->set[i / block], i % block);
    case SCATTER_MEAN: return z(op, r->set[i / block], i % block) / r->m;
    case EXCHANGE: return z(op, r->set[i / block], r->me * block + i % block);
    default: return z(op, r->rank, i);
    }
}

/* ---- a rank ---- */

static void must(Rank *r, weft_status s)
{
    if (s != WEFT_OK)
        wf_reraise(r->ctx, s);
}

static weft_value node(weft_program *p, const char *op, const char *fmt, ...) WF_PRINTF(3, 4);
static weft_value node(weft_program *p, const char *op, const char *fmt, ...)
{
    char args[200];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(args, sizeof args, fmt, ap);
    va_end(ap);
    return weft_graph_node(p, op, args, NULL, NULL);
}

static weft_value collective(weft_program *p, const Rank *r, int op, weft_value v)
{
    char name[40], splits[64], *at = splits;
    static const char *const kinds[OPS] = {[SUM] = "sum", [MEAN] = "mean", [MAX] = "max", [MIN] = "min"};
    snprintf(name, sizeof name, "dist.%s", ops[op]);
    for (int q = 0; q < r->m; q++)
        at += sprintf(at, "%s%d", q ? ", " : "", ROWS / r->m);
    switch (op) {
    case BROADCAST: return node(p, name, "%%%d, root=%d, group=%s", v, r->m - 1, r->group);
    case REDUCE: return node(p, name, "%%%d, root=0, op=sum, group=%s", v, r->group);
    case GATHER: return node(p, name, "%%%d, group_size=%d, group=%s", v, r->m, r->group);
    case SCATTER: return node(p, name, "%%%d, group_size=%d, op=sum, group=%s", v, r->m, r->group);
    case SCATTER_MEAN: return node(p, name, "%%%d, group_size=%d, op=mean, group=%s", v, r->m, r->group);
    case EXCHANGE:
        return node(p, name, "%%%d, input_splits=[%s], output_splits=[%s], group=%s", v, splits, splits, r->group);
    case BARRIER: return node(p, name, "%%%d, group=%s", v, r->group);
    default: return node(p, name, "%%%d, op=%s, group=%s", v, kinds[op], r->group);
    }
}

static weft_session *make(Rank *r, weft_program **out)
{
    weft_program *p;
    weft_session *s;
    float data[N];
    char name[8], ranks[8];
    weft_value results[OPS], loss = 0;
    const int64_t shape[2] = {ROWS, COLS};
    must(r, weft_graph_new((weft_context *)r->ctx, &p));
    weft_value in = weft_graph_input(p, "x", WEFT_F32, 2, shape, NULL);
    for (int k = 0; k < OPS; k++) {
        const int64_t rows[2] = {length(k, r->m) / COLS, COLS};
        for (int i = 0; i < N; i++)
            data[i] = (float)w(k, i);
        snprintf(name, sizeof name, "w%d", k);
        weft_value v = weft_graph_parameter(p, name, &(weft_tensor){WEFT_F32, 2, {ROWS, COLS}, data}, 1);
        results[k] = collective(p, r, k, node(p, "aten.mul.Tensor", "%%%d, %%%d", v, in));
        snprintf(name, sizeof name, "z%d", k);
        v = weft_graph_input(p, name, WEFT_F32, 2, rows, NULL);
        v = node(p, "aten.sum", "%%%d", node(p, "aten.mul.Tensor", "%%%d, %%%d", results[k], v));
        loss = loss ? node(p, "aten.add.Tensor", "%%%d, %%%d", loss, v) : v;
    }
    weft_graph_output(p, loss, "loss");
    for (int k = 0; k < OPS; k++)
        weft_graph_output(p, results[k], names[k]);
    must(r, weft_graph_finish(p));
    snprintf(ranks, sizeof ranks, "%d", r->size);
    must(r, weft_set(p, "nproc", ranks));
    must(r, weft_set(p, "threads", "1"));
    if (r->declared)
        must(r, weft_set(p, "group", r->declared));
    pthread_mutex_lock(&compiling);
    weft_status status = weft_session_new(p, &s);
    pthread_mutex_unlock(&compiling);
    must(r, status);
    *out = p;
    return s;
}

static void run_rank(void *arg)
{
    Rank *r = arg;
    weft_program *p;
    float data[MOST * N];
    char name[8];
    double loss;
    WfComm *c = wf_comm_open_thread(r->ctx, &(WfCommOptions){.timeout = 120, .start = 60}, r->shared, r->rank, r->size);
    weft_session *s = make(r, &p);
    weft_tensor t;
    wf_session_join(s->run, c);
    for (int i = 0; i < N; i++)
        data[i] = (float)x(r->rank, i);
    must(r, weft_feed(s, "x", &(weft_tensor){WEFT_F32, 2, {ROWS, COLS}, data}));
    float *cotangent = malloc(OPS * MOST * N * sizeof *cotangent);
    for (int k = 0; k < OPS; k++) {
        float *at = cotangent + k * MOST * N;
        for (int i = 0; i < length(k, r->m); i++)
            at[i] = (float)z(k, r->rank, i);
        snprintf(name, sizeof name, "z%d", k);
        must(r, weft_feed(s, name, &(weft_tensor){WEFT_F32, 2, {length(k, r->m) / COLS, COLS}, at}));
    }
    must(r, weft_step(s, &loss));
    free(cotangent);
    for (int k = 0; k < OPS; k++) {
        must(r, weft_output(s, k + 1, &t));
        memcpy(r->out[k], t.data, (size_t)length(k, r->m) * sizeof(float));
        snprintf(name, sizeof name, "w%d", k);
        must(r, weft_gradient(s, name, &t));
        memcpy(r->grad[k], t.data, N * sizeof(float));
    }
    weft_program_free(p);
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

static void near(double got, double want, int size, int rank, int op, const char *what, int i)
{
    if (!(fabs(got - want) <= 3e-5)) /* thirds of terms below 200 are rounded, and may cancel */
        fail_msg("%d ranks, rank %d, %s: %s[%d] is %g instead of %g", size, rank, names[op], what, i, got, want);
}

static void check(const Rank *ranks, int size)
{
    for (int r = 0; r < size; r++)
        if (ranks[r].status != WEFT_OK)
            fail_msg("rank %d of %d: %s", r, size, ranks[r].message);
    for (int k = 0; k < OPS; k++)
        for (int r = 0; r < size; r++) {
            for (int i = 0; i < length(k, ranks[r].m); i++)
                near(ranks[r].out[k][i], expected_out(&ranks[r], k, i), size, r, k, "the result", i);
            for (int i = 0; i < N; i++) {
                double dw = 0;
                for (int q = 0; q < size; q++)
                    dw += expected_dh(&ranks[q], k, i) * x(q, i) / size;
                near(ranks[r].grad[k][i], dw, size, r, k, "the gradient", i);
            }
        }
}

/* Ranks in sets of m: rank r is in set r % (size / m). */
static void world(int size, int m, const char *group, const char *declared)
{
    static Rank ranks[MOST];
    pthread_t t[MOST];
    WfShared shared;
    WfCtx *ctx = wf_ctx_new();
    int sets = size / m;
    wf_shared_create(ctx, size, true, &shared);
    for (int r = 0; r < size; r++) {
        ranks[r] = (Rank){.rank = r, .size = size, .m = m, .me = r / sets, .shared = &shared, .group = group,
                          .declared = declared};
        for (int q = 0; q < m; q++)
            ranks[r].set[q] = r % sets + q * sets;
        assert_int_equal(pthread_create(&t[r], NULL, rank_main, &ranks[r]), 0);
    }
    for (int r = 0; r < size; r++)
        pthread_join(t[r], NULL);
    wf_shared_close(&shared);
    wf_ctx_free(ctx);
    check(ranks, size);
}

static void one_rank(void **state) { (void)state; world(1, 1, "dp", NULL); }
static void two_ranks(void **state) { (void)state; world(2, 2, "dp", NULL); }
static void three_ranks(void **state) { (void)state; world(3, 3, "dp", NULL); }
static void four_ranks(void **state) { (void)state; world(4, 4, "dp", NULL); }
static void pairs_of_four(void **state) { (void)state; world(4, 2, "tp", "tp=0,2/1,3"); }
static void groups_of_one(void **state) { (void)state; world(3, 1, "own", "own=0/1/2"); }
static void a_group_of_all(void **state) { (void)state; world(3, 3, "all", "all=0-2"); }

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(one_rank),      cmocka_unit_test(two_ranks),
                                       cmocka_unit_test(three_ranks),   cmocka_unit_test(four_ranks),
                                       cmocka_unit_test(pairs_of_four), cmocka_unit_test(groups_of_one),
                                       cmocka_unit_test(a_group_of_all)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
