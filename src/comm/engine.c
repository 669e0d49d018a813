/* The engine: collectives that were started, in order per group, and who drives them.
 *
 * Every group has a queue. The head of each queue is a state machine of the transport; to drive is to give
 * each head a push until nothing moves. Groups do not wait for each other, so two ranks may start collectives
 * of different groups in different orders. At most one thread drives at a time (`driver`): the communication
 * thread, woken by a start, or the caller who waits. A caller in a wait takes the driving over (`helping`),
 * since a hand-over between two threads costs more than a small collective; the communication thread then
 * only keeps the heart beating. Sleeping is a futex in shared memory (the rank's bell) that peers ring when a
 * barrier of theirs completes; no sleep is longer than 20 ms, after which failures, peers and deadlines are
 * looked at. */
#include "comm/private.h"

#include <stdlib.h>
#include <string.h>

#define SLICE 0.02 /* seconds of one sleep */

const char *wf_collective_name(WfCollective kind)
{
    static const char *const names[] = {"all_reduce", "all_gather", "reduce_scatter",
                                        "all_to_all", "broadcast",  "barrier"};
    return (unsigned)kind < WF_LEN(names) ? names[kind] : "collective";
}

static void relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

/* ---- driving ---- */

static bool take_driver(WfComm *c)
{
    uint32_t nobody = 0;
    return !atomic_load_explicit(&c->driver, memory_order_relaxed) &&
           atomic_compare_exchange_strong_explicit(&c->driver, &nobody, 1, memory_order_acquire,
                                                   memory_order_relaxed);
}

static void leave_driver(WfComm *c)
{
    atomic_store_explicit(&c->driver, 0, memory_order_release);
}

/* In order; but a transport that says so is given the next while the last is under way, so that the latency of one is
 * hidden behind the other. What finishes early leaves a hole that the head passes over later. */
static bool drive_group(WfComm *c, WfGroup *g)
{
    enum { AHEAD = 8 };
    bool moved = false, in_order = true;
    uint32_t head = atomic_load_explicit(&g->head, memory_order_relaxed);
    for (uint32_t at = head; at != atomic_load_explicit(&g->tail, memory_order_acquire); at++) {
        WfFlying **slot = &g->queue[at % WF_LEN(g->queue)], *f = *slot;
        if (!f)
            continue;
        if (!f->posted) {
            f->seq = g->seq++;
            f->posted = true;
            c->transport->post(c, f);
            moved = true;
        }
        WfProgress p = c->transport->progress(c, f);
        moved |= p != WF_BLOCKED;
        if (p == WF_FINISHED) {
            *slot = NULL;
            if (in_order)
                atomic_store_explicit(&g->head, head = at + 1, memory_order_release);
            atomic_fetch_sub(&c->pending, 1);
            atomic_store(&f->state, WF_FLYING_DONE); /* from here on the caller may use it again */
            continue;
        }
        in_order = false;
        if (!c->transport->ahead || at - head >= AHEAD || !c->transport->ahead(f))
            break;
    }
    return moved;
}

static bool drive(WfComm *c)
{
    bool moved = false;
    if (wf_failed(&c->shared))
        return false;
    for (WfGroup *g = __atomic_load_n(&c->groups, __ATOMIC_ACQUIRE); g; g = g->next)
        moved |= drive_group(c, g);
    return moved;
}

static void beat(WfComm *c)
{
    if (c->threaded) /* else it would be silent while its program computes */
        atomic_store(&c->cell->beat, wf_ns());
}

static void look_around(WfComm *c)
{
    beat(c);
    wf_check_peers(c);
}

/* Until the bell rings. The sleeper counts itself first and drives once more: whoever completes a barrier
 * afterwards sees the count and rings. A transport without bells takes naps of so many times its own. */
static void doze(WfComm *c, double seconds, int naps)
{
    WfRankCell *cell = c->cell;
    uint32_t seen = atomic_load(&cell->bell);
    if (c->transport->poll > 0)
        seconds = c->transport->poll * naps;
    atomic_fetch_add(&cell->asleep, 1);
    bool still = take_driver(c);
    if (still) {
        still = !drive(c);
        leave_driver(c);
    }
    if (still && !wf_failed(&c->shared))
        wf_futex_wait(&cell->bell, seen, seconds);
    atomic_fetch_sub(&cell->asleep, 1);
}

/* Without work: until a start, or the next heartbeat. */
static void park(WfComm *c, uint32_t seen)
{
    atomic_store(&c->parked, 1);
    if (atomic_load(&c->park) == seen)
        wf_futex_wait(&c->park, seen, 0.1);
    atomic_store(&c->parked, 0);
}

static void unpark(WfComm *c)
{
    atomic_fetch_add(&c->park, 1);
    if (atomic_load(&c->parked))
        wf_futex_wake(&c->park);
}

static void *thread_main(void *p)
{
    /* Each look of a polled transport costs those who compute on the same core some 10 us: few, each at what has gathered. */
    enum { NAPS = 16 };
    WfComm *c = p;
    bool polled = c->transport->poll > 0;
    int idle = 0;
    double looked = 0;
    while (!atomic_load(&c->quit)) {
        uint32_t seen = atomic_load(&c->park);
        double now = wf_now();
        if (now - looked > 0.1) {
            looked = now;
            look_around(c);
        }
        if (atomic_load(&c->helping) || !atomic_load(&c->pending) || wf_failed(&c->shared)) {
            park(c, seen);
            idle = 0;
            continue;
        }
        bool moved = false, mine = take_driver(c);
        if (mine) {
            moved = drive(c);
            leave_driver(c);
            atomic_fetch_add(&c->unlocks, 1);
            if (atomic_load(&c->helping))
                wf_futex_wake(&c->unlocks);
        }
        idle = moved ? 0 : idle < 1 << 20 ? idle + 1 : idle;
        if (!moved && mine && (polled || idle > 50) && atomic_load(&c->pending))
            doze(c, SLICE, NAPS);
        else if (!moved)
            relax();
    }
    return NULL;
}

void wf_engine_open(WfComm *c)
{
    c->flying = wf_arena_alloc(c->arena, WF_COMM_INFLIGHT * sizeof *c->flying);
    c->displ_pool =
        wf_arena_alloc(c->arena, wf_mul_size(2 * WF_COMM_INFLIGHT * ((size_t)c->size + 1), sizeof(int64_t)));
    for (uint32_t i = 0; i < WF_COMM_INFLIGHT; i++) {
        c->flying[i].displs = c->displ_pool + (size_t)i * 2 * ((size_t)c->size + 1);
        c->flying[i].recv_displs = c->flying[i].displs + c->size + 1;
        c->free_list[i] = WF_COMM_INFLIGHT - 1 - i;
    }
    c->n_free = WF_COMM_INFLIGHT;
}

void wf_engine_start(WfComm *c)
{
    if (c->size == 1 || !c->threaded)
        return;
    int err = pthread_create(&c->thread, NULL, thread_main, c);
    if (err)
        wf_fail(c->ctx, WF_E_RANK_START, "cannot start the communication thread: %s", strerror(err));
    c->running = true;
}

void wf_engine_close(WfComm *c)
{
    if (!c->running)
        return;
    atomic_store(&c->quit, 1);
    unpark(c);
    wf_ring(c->cell);
    pthread_join(c->thread, NULL);
    c->running = c->threaded = false;
}

/* ---- starting ---- */

static void WF_NORETURN refuse(WfComm *c, const WfCommOp *o, const char *why)
{
    char place[NODE_TEXT + 32];
    snprintf(place, sizeof place, "at %s", o->node ? o->node : "an unnamed node");
    wf_fail_at(c->ctx, WF_E_COLLECTIVE_CALL, place, NULL, "%s: %s", wf_collective_name(o->kind), why);
}

static bool overlap(const void *a, size_t n, const void *b, size_t m)
{
    return n && m && (const char *)a < (const char *)b + m && (const char *)b < (const char *)a + n;
}

/* Prefix sums of counts (or of n times `each`); false on a negative count or when bytes leave int64. */
static bool prefix(int64_t *out, const int64_t *counts, int64_t each, int n, int64_t size)
{
    int64_t bytes;
    out[0] = 0;
    for (int i = 0; i < n; i++) {
        int64_t k = counts ? counts[i] : each;
        if (k < 0 || !wf_add_ok(out[i], k, &out[i + 1]) || !wf_mul_ok(out[i + 1], size, &bytes))
            return false;
    }
    return true;
}

static void check_dtype(WfComm *c, const WfCommOp *o)
{
    if (o->dtype < WF_F32 || o->dtype >= WF_DTYPES)
        refuse(c, o, "this dtype cannot be sent");
    if (o->kind != WF_ALL_REDUCE && o->kind != WF_REDUCE_SCATTER)
        return;
    bool floats = wf_dtype_is_float(o->dtype);
    if (o->op > WF_COMM_MAX)
        refuse(c, o, "this reduction does not exist; there are sum, mean, min and max");
    if (!floats && o->op == WF_COMM_MEAN)
        refuse(c, o, "a mean needs floats; use sum, or convert first");
    if (o->dtype == WF_BOOL && o->op == WF_COMM_SUM)
        refuse(c, o, "bool has no sum; use max (or) or min (and)");
    if (o->scale != 0 && (!floats || o->op == WF_COMM_MIN || o->op == WF_COMM_MAX))
        refuse(c, o, "a scale needs a sum or mean of floats");
}

static void check_overlap(WfComm *c, const WfFlying *f)
{
    const WfCommOp *o = &f->op;
    const char *send = o->send, *recv = o->recv;
    int64_t mine = f->displs[f->group->rank] * (int64_t)f->size;
    bool fine = !overlap(send, f->send_bytes, recv, f->recv_bytes);
    if (o->kind == WF_ALL_REDUCE || o->kind == WF_BROADCAST)
        fine = fine || send == recv;
    else if (o->kind == WF_ALL_GATHER)
        fine = fine || send == recv + mine;
    else if (o->kind == WF_REDUCE_SCATTER)
        fine = fine || recv == send + mine;
    if (!fine)
        refuse(c, o, "send and recv overlap, and not in the way that this collective can do in place");
    if ((f->send_bytes && !send) || (f->recv_bytes && !recv))
        refuse(c, o, "a buffer is missing");
}

static void set_sizes(WfComm *c, WfFlying *f)
{
    WfCommOp *o = &f->op;
    int n = f->group->n, me = f->group->rank;
    int64_t size = (int64_t)f->size, total;
    if (o->kind == WF_BARRIER)
        o->count = 0;
    bool whole = o->kind == WF_ALL_REDUCE || o->kind == WF_BROADCAST || o->kind == WF_BARRIER;
    bool ok = whole ? o->count >= 0 && wf_mul_ok(o->count, size, &total)
                    : prefix(f->displs, o->counts, o->count, n, size);
    if (ok && o->kind == WF_ALL_TO_ALL)
        ok = prefix(f->recv_displs, o->recv_counts ? o->recv_counts : o->counts, o->count, n, size);
    if (!ok)
        refuse(c, o, "a count is negative or too large");
    if (whole) { /* displs hold the slices that the ranks reduce: equal parts, on cache lines */
        int64_t line = LINE / size < 1 ? 1 : LINE / size, lines = (o->count + line - 1) / line;
        for (int i = 0; i <= n; i++) {
            int64_t at = lines / n * i + lines % n * i / n;
            f->displs[i] = at * line < o->count ? at * line : o->count;
        }
    }
    size_t mine = whole ? 0 : (size_t)((f->displs[me + 1] - f->displs[me]) * size);
    size_t all = whole ? (size_t)(o->count * size) : (size_t)(f->displs[n] * size);
    f->send_bytes = o->kind == WF_ALL_GATHER ? mine : all;
    f->recv_bytes = o->kind == WF_ALL_GATHER ? all : mine;
    if (whole)
        f->recv_bytes = f->send_bytes;
    if (o->kind == WF_ALL_TO_ALL)
        f->recv_bytes = (size_t)(f->recv_displs[n] * size);
    if (o->kind == WF_BROADCAST) {
        o->send = o->recv;
        if (o->root < 0 || o->root >= n)
            refuse(c, o, "the root is no rank of the group");
        f->send_bytes = o->root == me ? f->recv_bytes : 0;
    }
}

static WfFlying *prepare(WfComm *c, WfGroup *g, const WfCommOp *op)
{
    if (wf_failed(&c->shared))
        wf_raise_failure(c);
    if (op->kind >= WF_COLLECTIVES)
        refuse(c, op, "no such collective");
    if (!c->n_free)
        refuse(c, op, "more than 1024 collectives are in flight; wait for some");
    WfFlying *f = &c->flying[c->free_list[c->n_free - 1]];
    f->op = *op;
    f->group = g;
    if (op->kind == WF_BARRIER)
        f->op.dtype = WF_U8;
    check_dtype(c, &f->op);
    f->size = wf_dtype_size(f->op.dtype);
    set_sizes(c, f);
    if (op->kind != WF_BARRIER)
        check_overlap(c, f);
    f->scale = op->scale != 0 ? op->scale : op->op == WF_COMM_MEAN ? 1.0 / g->n : 1;
    f->scaled = op->scale != 0 || op->op == WF_COMM_MEAN;
    f->posted = false;
    f->chunk = 0;
    atomic_store_explicit(&f->state, WF_FLYING_QUEUED, memory_order_relaxed);
    if (c->size > 1)
        c->transport->start(c, f);
    c->n_free--;
    return f;
}

/* A group of one: the result is the own contribution. */
static void alone(WfFlying *f)
{
    const WfCommOp *o = &f->op;
    const void *src[1] = {o->send};
    void *dst[1] = {o->recv};
    bool reduces = o->kind == WF_ALL_REDUCE || o->kind == WF_REDUCE_SCATTER;
    if (reduces && f->scaled)
        wf_sum_ranks(&(WfReduceHow){o->dtype, o->op, f->scale, true, false}, src, 1, f->recv_bytes / f->size,
                     dst, 1);
    else if (f->recv_bytes && o->recv != o->send)
        memcpy(o->recv, o->send, f->recv_bytes);
}

static WfFlying *enqueue(WfComm *c, WfGroup *g, const WfCommOp *op)
{
    WfFlying *f = prepare(c, g, op);
    WfFlightCell *fl = &c->cell->flight;
    if (g != c->control)
        atomic_fetch_add_explicit(&fl->started, 1, memory_order_relaxed);
    if (g->n == 1) {
        alone(f);
        atomic_store_explicit(&f->state, WF_FLYING_DONE, memory_order_relaxed);
        return f;
    }
    uint32_t tail = atomic_load_explicit(&g->tail, memory_order_relaxed);
    g->queue[tail % WF_LEN(g->queue)] = f;
    atomic_fetch_add(&c->pending, 1);
    atomic_store_explicit(&g->tail, tail + 1, memory_order_release);
    return f;
}

static WfTicket ticket_of(const WfComm *c, const WfFlying *f)
{
    return (uint64_t)f->generation << 32 | (uint64_t)(f - c->flying);
}

WfTicket wf_comm_start(WfComm *c, WfGroup *g, const WfCommOp *op)
{
    WfFlying *f = enqueue(c, g, op);
    wf_comm_mark(c, WF_FLIGHT_STARTED, op->node, op->step);
    if (g->n > 1 && c->threaded) {
        unpark(c);
        wf_ring(c->cell);
    } else if (g->n > 1 && take_driver(c)) { /* no thread: at least it is posted */
        drive(c);
        leave_driver(c);
    }
    return ticket_of(c, f);
}

/* ---- waiting ---- */

static void give_back(WfComm *c, WfFlying *f)
{
    f->generation++;
    atomic_store_explicit(&f->state, WF_FLYING_FREE, memory_order_relaxed);
    c->free_list[c->n_free++] = (uint32_t)(f - c->flying);
}

/* Somebody that is waited for has left the world, or has never come: no deadline is needed for that. */
static void check_left(WfComm *c, const WfFlying *f)
{
    bool missing[WF_COMM_MAX_LOCAL] = {0};
    if (f->group == c->control || !f->posted || !c->together)
        return;
    c->transport->missing(c, f, missing);
    for (int i = 0; i < f->group->n; i++) {
        int r = f->group->ranks[i];
        if (!missing[i] || r == c->rank || !atomic_load(&c->cell_of[r]->leaving))
            continue;
        char text[256];
        snprintf(text, sizeof text,
                 "rank %d (pid %d) has left the world while %s of other ranks waits for it", r,
                 atomic_load(&c->cell_of[r]->pid), wf_collective_name(f->op.kind));
        char place[NODE_TEXT + 64];
        snprintf(place, sizeof place, "at %s (step %lld)", f->op.node ? f->op.node : "an unnamed node",
                 (long long)f->op.step);
        wf_fail_world(&c->shared, r, c->rank, false, text, place, NULL);
    }
}

static void wait_for(WfComm *c, WfFlying *f, double timeout)
{
    double begun = 0;
    uint64_t looked = 0;
    int spins = 0;
    atomic_store(&c->helping, 1);
    while (atomic_load_explicit(&f->state, memory_order_acquire) != WF_FLYING_DONE) {
        if (wf_failed(&c->shared))
            break;
        uint32_t seen = atomic_load(&c->unlocks);
        bool mine = take_driver(c), moved = false;
        if (mine) {
            moved = drive(c);
            leave_driver(c);
        }
        if (moved) {
            spins = 0;
            continue;
        }
        if (++spins < c->spins) {
            relax();
            continue;
        }
        double now = wf_now();
        if (begun == 0)
            begun = now;
        if (!c->threaded && wf_ns() - looked > 100000000u) {
            looked = wf_ns();
            look_around(c);
        }
        if (now - begun > 0.05 && take_driver(c)) {
            check_left(c, f);
            if (now - begun > timeout)
                wf_fail_missing(c, f, now - begun);
            leave_driver(c);
        }
        if (mine)
            doze(c, timeout < SLICE ? timeout : SLICE, 1);
        else
            wf_futex_wait(&c->unlocks, seen, 0.001);
    }
    atomic_store(&c->helping, 0);
    while (atomic_load_explicit(&f->state, memory_order_acquire) !=
           WF_FLYING_DONE) { /* failed: nobody touches buffers now */
        if (take_driver(c)) {
            leave_driver(c);
            break;
        }
        relax();
    }
    if (c->threaded && atomic_load(&c->pending))
        unpark(c);
}

static void finish(WfComm *c, WfFlying *f, double timeout)
{
    wf_comm_mark(c, WF_FLIGHT_WAITING, f->op.node, f->op.step);
    if (atomic_load_explicit(&f->state, memory_order_acquire) != WF_FLYING_DONE)
        wait_for(c, f, timeout);
    if (atomic_load_explicit(&f->state, memory_order_acquire) != WF_FLYING_DONE)
        wf_raise_failure(c);
    if (f->group != c->control)
        atomic_fetch_add_explicit(&c->cell->flight.done, 1, memory_order_relaxed);
    wf_comm_mark(c, WF_FLIGHT_DONE, f->op.node, f->op.step);
    give_back(c, f);
}

void wf_comm_wait(WfComm *c, WfTicket t)
{
    uint32_t i = (uint32_t)t;
    WF_ASSERT(c->ctx, i < WF_COMM_INFLIGHT);
    WfFlying *f = &c->flying[i];
    WF_ASSERT(c->ctx, f->generation == (uint32_t)(t >> 32) && atomic_load(&f->state) != WF_FLYING_FREE);
    finish(c, f, c->options.timeout);
}

bool wf_comm_done(const WfComm *c, WfTicket t)
{
    const WfFlying *f = &c->flying[(uint32_t)t % WF_COMM_INFLIGHT];
    return atomic_load_explicit(&((WfFlying *)f)->state, memory_order_acquire) == WF_FLYING_DONE;
}

void wf_comm_run(WfComm *c, WfGroup *g, const WfCommOp *op)
{
    finish(c, enqueue(c, g, op), c->options.timeout);
}

/* ---- control plane: collectives of a group of its own ---- */

static void control(WfComm *c, const WfCommOp *op, double timeout)
{
    wf_log(c->ctx, WF_LOG_DEBUG, "rank %d: %s: %s among %d ranks", c->rank, op->node, wf_collective_name(op->kind),
           c->size);
    finish(c, enqueue(c, c->control, op), timeout > 0 ? timeout : c->options.timeout);
}

void wf_comm_exchange(WfComm *c, const void *mine, size_t bytes, void *all, double timeout, const char *what)
{
    control(c,
            &(WfCommOp){.kind = WF_ALL_GATHER,
                        .dtype = WF_U8,
                        .send = mine,
                        .recv = all,
                        .count = (int64_t)bytes,
                        .node = what},
            timeout);
}

const void *wf_comm_share(WfComm *c, WfArena *a, int root, const void *blob, size_t *bytes, const char *what)
{
    WfCommOp op = {.kind = WF_BROADCAST, .dtype = WF_U8, .root = root, .node = what};
    uint64_t size = c->rank == root ? *bytes : 0;
    op.recv = &size;
    op.count = sizeof size;
    control(c, &op, 0);
    void *out = c->rank == root ? (void *)blob : wf_arena_alloc(a, size);
    *bytes = size;
    op.recv = out;
    op.count = (int64_t)size;
    control(c, &op, 0);
    return out;
}

static const char measuring[] = "measurement of the link";

/* Of all ranks of the group. */
static void largest(WfComm *c, WfGroup *g, double *v)
{
    wf_comm_run(c, g,
                &(WfCommOp){.kind = WF_ALL_REDUCE, .op = WF_COMM_MAX, .dtype = WF_F64, .send = v, .recv = v, .count = 1,
                            .node = measuring});
}

static void one_measure(WfComm *c, WfGroup *g, void *buffer, size_t bytes)
{
    wf_comm_run(c, g,
                &(WfCommOp){.kind = WF_ALL_REDUCE,
                            .dtype = WF_F32,
                            .send = buffer,
                            .recv = buffer,
                            .count = (int64_t)(bytes / 4),
                            .node = measuring});
}

double wf_comm_measure_next(WfComm *c, WfGroup *g, void *buffer, size_t bytes, int rounds)
{
    enum { MANY = 4 };
    double one = wf_comm_measure(c, g, buffer, bytes, rounds), begun = wf_now();
    for (int i = 0; i < rounds; i++) {
        WfTicket t[MANY];
        for (int k = 0; k < MANY; k++)
            t[k] = wf_comm_start(c, g, &(WfCommOp){.kind = WF_ALL_REDUCE, .dtype = WF_F32, .count = (int64_t)(bytes / 4),
                                                   .send = (char *)buffer + (size_t)k * bytes,
                                                   .recv = (char *)buffer + (size_t)k * bytes, .node = measuring});
        for (int k = 0; k < MANY; k++)
            wf_comm_wait(c, t[k]);
    }
    double next = rounds > 0 ? ((wf_now() - begun) / rounds - one) / (MANY - 1) : 0;
    largest(c, g, &next);
    return next;
}

double wf_comm_measure(WfComm *c, WfGroup *g, void *buffer, size_t bytes, int rounds)
{
    one_measure(c, g, buffer, bytes);
    double begun = wf_now();
    for (int i = 0; i < rounds; i++)
        one_measure(c, g, buffer, bytes);
    double took = rounds > 0 ? (wf_now() - begun) / rounds : 0;
    largest(c, g, &took);
    return took;
}
