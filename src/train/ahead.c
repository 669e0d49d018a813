/* Reading ahead: while a step runs, a thread gathers the batch of the next one. There are two sets of buffers: one
 * belongs to the step, the other to the thread, and they change hands when the step asks for its batch. Which samples a
 * batch (with accumulation a micro-batch) holds depends on its number alone, so bits and order are those of gathering in
 * place. */
#include "train/train.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <time.h>

enum { LOOK_MS = 100, PATIENCE_S = 600 };

struct WfAhead {
    WfCtx *ctx;
    const WfDataset *data;
    int64_t batch, per_epoch, total;
    WfShare share;
    uint64_t seed;
    bool shuffle;
    int64_t *index;
    void **buffer[2];        /* of batch k: k % 2 */
    pthread_t thread;
    pthread_mutex_t lock;    /* of what follows */
    pthread_cond_t changed;
    int64_t wanted, filled;  /* batches below `wanted` may be gathered, those below `filled` are */
    bool stop;
    WfDataFault fault;       /* why batch `filled` cannot be: the thread has ended */
};

static bool stopped(WfAhead *h)
{
    pthread_mutex_lock(&h->lock);
    bool stop = h->stop;
    pthread_mutex_unlock(&h->lock);
    return stop;
}

static bool gather(WfAhead *h, int64_t k, WfDataFault *fault)
{
    bool ok = true;
    WfOrder order = wf_order(h->data->samples, h->seed, k / h->per_epoch, h->shuffle);
    wf_order_batch(&order, wf_share_batch(h->share, k % h->per_epoch), h->batch, h->index);
    for (int i = 0; i < h->data->n && ok && !stopped(h); i++)
        ok = wf_dataset_read(h->data, i, k / h->per_epoch, h->index, h->batch, h->buffer[k % 2][i], fault);
    return ok;
}

static void *work(void *p)
{
    WfAhead *h = p;
    WfDataFault fault = {0};
    pthread_mutex_lock(&h->lock);
    while (!h->fault.kind) {
        while (!h->stop && (h->filled >= h->wanted || h->filled >= h->total))
            pthread_cond_wait(&h->changed, &h->lock); /* until the next step or the end of the run */
        if (h->stop)
            break;
        int64_t k = h->filled;
        pthread_mutex_unlock(&h->lock);
        bool ok = gather(h, k, &fault);
        pthread_mutex_lock(&h->lock);
        if (ok)
            h->filled = k + 1;
        else
            h->fault = fault;
        pthread_cond_broadcast(&h->changed);
    }
    pthread_mutex_unlock(&h->lock);
    return NULL;
}

static void end(void *p)
{
    WfAhead *h = p;
    pthread_mutex_lock(&h->lock);
    h->stop = true;
    pthread_cond_broadcast(&h->changed);
    pthread_mutex_unlock(&h->lock);
    pthread_join(h->thread, NULL); /* it looks at `stop` after each column */
    pthread_cond_destroy(&h->changed);
    pthread_mutex_destroy(&h->lock);
}

WfAhead *wf_ahead_new(WfCtx *ctx, WfArena *a, const WfDataset *d, const WfOptions *o, int64_t batch, int64_t per_epoch,
                      int64_t from, int64_t total, WfShare share, void **first, void **second)
{
    WfAhead *h = WF_NEW(a, WfAhead);
    *h = (WfAhead){.ctx = ctx, .data = d, .batch = batch, .per_epoch = per_epoch, .share = share, .total = total,
                   .seed = (uint64_t)o->seed, .shuffle = o->shuffle, .buffer = {first, second}, .filled = from,
                   .wanted = from + 1};
    h->index = WF_NEWN(a, int64_t, (size_t)batch);
    pthread_condattr_t monotonic;
    sigset_t all, old;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&h->lock, NULL);
    pthread_cond_init(&h->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    sigfillset(&all); /* signals are for the threads of the program */
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int rc = pthread_create(&h->thread, NULL, work, h);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (rc) {
        pthread_cond_destroy(&h->changed);
        pthread_mutex_destroy(&h->lock);
        return NULL;
    }
    wf_arena_at_free(a, end, h);
    return h;
}

void **wf_ahead_next(WfAhead *h)
{
    double deadline = wf_now() + PATIENCE_S;
    bool late = false;
    pthread_mutex_lock(&h->lock);
    int64_t k = h->wanted - 1;
    while (h->filled <= k && !late && !h->fault.kind && !(h->ctx->cancel && *h->ctx->cancel)) {
        struct timespec look;
        clock_gettime(CLOCK_MONOTONIC, &look);
        look.tv_nsec += LOOK_MS * 1000000L;
        look.tv_sec += look.tv_nsec / 1000000000L;
        look.tv_nsec %= 1000000000L;
        pthread_cond_timedwait(&h->changed, &h->lock, &look);
        late = wf_now() > deadline;
    }
    bool there = h->filled > k;
    if (there) {
        h->wanted = k + 2; /* the other set, of the step before, is free now */
        pthread_cond_broadcast(&h->changed);
    }
    bool failed = !there && h->fault.kind;
    pthread_mutex_unlock(&h->lock);
    wf_check_cancel(h->ctx);
    if (failed) /* nobody writes it any more */
        wf_data_raise(h->ctx, &h->fault);
    if (!there)
        wf_fail_at(h->ctx, WF_E_DATA_LATE, h->data->columns[0].path, "Is the file system that holds the data still there?",
                   "the data of batch %lld were not read within %d s", (long long)k + 1, PATIENCE_S);
    return h->buffer[k % 2];
}
