/* A host program with an MPI of its own: it hands Weft a communicator of some of its ranks, in reverse order,
 * and goes on using MPI beside Weft: through comm, and through weft.h, where it trains MODEL. usage: host
 * single|multiple MODEL; exit code 0 when all values are right. */
#include <mpi.h>

#include "comm/comm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { COUNT = 100000 };
typedef struct {
    WfCtx *ctx;
    MPI_Comm comm;
    int rank, size;
} Host;

static void body(void *p)
{
    Host *h = p;
    WfComm *c = wf_comm_open_mpi(h->ctx, NULL, &h->comm);
    float *x = wf_comm_arena(c, COUNT * sizeof(float));
    if (wf_comm_rank(c) != h->rank || wf_comm_size(c) != h->size)
        wf_fail(h->ctx, WEFT_ERR_MISMATCH, "rank %d of %d instead of %d of %d", wf_comm_rank(c),
                wf_comm_size(c), h->rank, h->size);
    for (int i = 0; i < COUNT; i++)
        x[i] = (float)(i + h->rank);
    WfTicket t = wf_comm_start(c, wf_comm_world(c),
                               &(WfCommOp){.kind = WF_ALL_REDUCE,
                                           .op = WF_COMM_MEAN,
                                           .dtype = WF_F32,
                                           .send = x,
                                           .recv = x,
                                           .count = COUNT,
                                           .node = "%mean"});
    int mine = h->rank + 1, sum = 0; /* the host's own collective, while Weft's is in flight */
    MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, h->comm);
    wf_comm_wait(c, t);
    if (sum != h->size * (h->size + 1) / 2)
        wf_fail(h->ctx, WEFT_ERR_MISMATCH, "the host's sum is %d", sum);
    for (int i = 0; i < COUNT; i++) /* 2 ranks: scaling by 1/2 is exact, so the mean is too */
        if (x[i] != (float)i + (float)(h->size - 1) / 2)
            wf_fail(h->ctx, WEFT_ERR_MISMATCH, "mean: element %d is %g", i, (double)x[i]);
    wf_comm_close(c);
}

#define NEED(call)                                                                                                   \
    do {                                                                                                             \
        if ((call) != WEFT_OK) {                                                                                     \
            fprintf(stderr, "error: %s: %s\n", #call, weft_message(ctx));                                            \
            return 1;                                                                                                \
        }                                                                                                            \
    } while (0)

/* Trains the model of tests/refs/dynamic_plain: every rank another batch, all ranks the same weights afterwards. */
static int train(Host *h, const char *model)
{
    weft_context *ctx = weft_context_new(NULL);
    weft_program *p;
    weft_session *s;
    weft_world *w;
    float x[4][8];
    int64_t y[4];
    double loss = 0, first = 0, last[2], sum[2];
    char size[16];
    for (int i = 0; i < 32; i++)
        x[i / 8][i % 8] = (float)((i * 7 + h->rank * 5) % 11) / 11;
    for (int i = 0; i < 4; i++)
        y[i] = (i + h->rank) % 4;
    snprintf(size, sizeof size, "%d", h->size);
    NEED(weft_world_open(ctx, &h->comm, &w));
    NEED(weft_open(ctx, model, &p));
    NEED(weft_set(p, "nproc", size));
    NEED(weft_set(p, "optimizer", "sgd"));
    NEED(weft_set(p, "lr", "0.5"));
    NEED(weft_set(p, "threads", "1"));
    NEED(weft_session_new(p, &s));
    NEED(weft_join(s, w));
    for (int step = 0; step < 20; step++) {
        NEED(weft_feed(s, "x", &(weft_tensor){WEFT_F32, 2, {4, 8}, x}));
        NEED(weft_feed(s, "y", &(weft_tensor){WEFT_I64, 1, {4}, y}));
        NEED(weft_step(s, &loss));
        first = step ? first : loss;
    }
    weft_tensor t;
    NEED(weft_parameter(s, "a.weight", &t));
    last[0] = loss, last[1] = 0;
    for (int i = 0; i < 96; i++)
        last[1] += (i + 1) * (double)((float *)t.data)[i];
    MPI_Allreduce(last, sum, 2, MPI_DOUBLE, MPI_SUM, h->comm);
    for (int i = 0; i < 2; i++) /* the same on 2 ranks: half of an exact double sum is exact */
        if (h->size == 2 && sum[i] / 2 != last[i]) {
            fprintf(stderr, "error: rank %d has another %s\n", h->rank, i ? "weight" : "loss");
            return 1;
        }
    if (!(loss < first)) {
        fprintf(stderr, "error: the loss went from %g to %g\n", first, loss);
        return 1;
    }
    weft_session_free(s);
    NEED(weft_world_close(w));
    weft_context_free(ctx);
    return 0;
}

int main(int argc, char **argv)
{
    int level = 0, rank, size, on = 0, code = 0;
    bool multiple = argc > 1 && !strcmp(argv[1], "multiple");
    MPI_Init_thread(&argc, &argv, multiple ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    Host h = {.ctx = wf_ctx_new()};
    MPI_Comm_split(MPI_COMM_WORLD, rank == 0 ? MPI_UNDEFINED : 1, -rank, &h.comm); /* without the first */
    if (rank > 0) {
        MPI_Comm_rank(h.comm, &h.rank);
        MPI_Comm_size(h.comm, &h.size);
        for (int again = 0; again < 2 && !code; again++) /* a second world in the same process */
            if (wf_guard(h.ctx, body, &h) != WEFT_OK) {
                fprintf(stderr, "error: %s\n", h.ctx->diag.message);
                code = 1;
            }
        if (!code && argc > 2)
            code = train(&h, argv[2]);
    }
    wf_ctx_free(h.ctx);
    MPI_Initialized(&on);
    MPI_Finalized(&level);
    if (!on || level)
        code = 1; /* MPI is the host's */
    int worst = 0;
    MPI_Allreduce(&code, &worst, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    MPI_Finalize();
    return worst;
}
