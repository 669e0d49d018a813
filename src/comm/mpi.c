/* The MPI transport: every collective out of messages, since the order of MPI_SUM belongs to MPI.
 *
 * all_reduce sends each rank its slice of everybody's buffer, which that rank sums in tree order and sends
 * back to all. Slices travel in pieces: a window of them is under way, a piece is summed when the last rank's
 * has come and goes out again while others are still on their way, so a long link is kept full and nobody
 * waits for a round. A piece is small enough for MPIs to send it unasked: on a link of 5 ms a message that is
 * announced and called for first takes three times as long, and one of megabytes leaves gaps on the wire (25
 * to 45 of 50 MB/s where pieces of 60 KB reach 49). Small ones take one round: everybody sends everything to
 * everybody and sums for itself.
 * The other collectives are direct messages; broadcast is a binomial tree, barrier a dissemination.
 *
 * Tags name group, sequence number, phase and piece, so nothing of MPI is needed to make a group. All calls of MPI
 * are made by the thread that drives (one at a time: MPI_THREAD_SERIALIZED is enough). A rank that fails
 * sends a notice to all. */
#include "comm/plugin.h"
#include "comm/private.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    PIECE = 60 << 10,   /* of a slice: below the 64 KB, with headers, up to which MPIs send over TCP unasked */
    ONE_ROUND = PIECE,  /* bytes that a rank may send in an all_reduce of one round */
    WINDOW = 4 << 20,   /* bytes of pieces under way to all peers: what a link holds, for two phases */
    PIECES = 1 << 16,   /* of a slice, at most */
    MESSAGE = 1 << 30,  /* largest message: MPI counts in int */
    TAG_BITS = 14,
};
enum { PHASE_DATA, PHASE_RESULT, PHASE_ROUND };

typedef struct {
    int peer, piece, phase;
    bool send, done;
    size_t bytes;
} Message;

typedef struct WfMpiOp {
    Message *message;
    char *request; /* MPI_Request[cap] */
    int *which;
    size_t *got;
    int *spare; /* slots of messages that have completed */
    int n, cap, open, spares;
    Message *event; /* what has completed in one look; has room for `events` */
    int events;
    char *tmp;
    size_t tmp_bytes;
    int64_t piece; /* elements of a piece */
    int pieces, begun, round;
    int *missing, *left, piece_cap; /* per piece: contributions that have not come; messages not completed */
    bool one_round;
} MpiOp;

typedef struct {
    const WfMpiPlugin *p;
    WfMpiWorld *world;
    WfMpiInfo info;
    char notice[2048]; /* arrives here when a rank has failed */
    char *notice_request;
    int notice_tag;
    unsigned looks;
} Mpi;

static Mpi *mpi_of(const WfComm *c) { return c->state; }

/* ---- failures ---- */

/* Several ranks find the same thing at the same time. So that one of them speaks and not all, each gives those of lower rank so much
 * time to tell it: more than a busy machine takes to deliver a message. */
static double patience(const WfComm *c) { return 0.3 * (c->rank < 10 ? c->rank : 10); }

static void await_notice(WfComm *c)
{
    Mpi *m = mpi_of(c);
    int n = 0, which;
    size_t got;
    if (m->p->test(m->world, 1, m->notice_request, &n, &which, &got) || !n)
        return;
    m->notice[sizeof m->notice - 1] = 0;
    int from = -1, at = 0;
    sscanf(m->notice, "%d %n", &from, &at);
    char *text = m->notice + at, *place = strchr(text, '\n');
    if (place)
        *place++ = 0;
    wf_fail_world(&c->shared, from, from, false, text, place,
                  NULL); /* reporter: `from`, so this rank need not speak */
}

static void mpi_failed(WfComm *c, const WfFlying *f, const char *text)
{
    char place[NODE_TEXT + 64], all[900];
    for (double until = wf_now() + patience(c); wf_now() < until && !wf_failed(&c->shared); usleep(1000))
        await_notice(c);
    snprintf(all, sizeof all, "%s cannot go on. %s", wf_collective_name(f->op.kind), text);
    snprintf(place, sizeof place, "at %s (step %lld), group %s", f->op.node ? f->op.node : "an unnamed node",
             (long long)f->op.step, f->group->name);
    wf_fail_world(&c->shared, -1, c->rank, false, all, place, NULL);
}

/* Tells all others, but those of this host, who read it; waits no longer than a moment until the messages are off. */
static void send_notices(WfComm *c)
{
    Mpi *m = mpi_of(c);
    const WfFailure *f = &c->shared.head->failure;
    char *requests = wf_sys_alloc((size_t)c->size * m->p->request_size),
         *text = wf_sys_alloc(sizeof m->notice);
    int *which = wf_sys_alloc((size_t)c->size * sizeof(int)), left = 0;
    size_t *got = wf_sys_alloc((size_t)c->size * sizeof(size_t));
    if (requests && text && which && got) {
        if (f->own)
            snprintf(text, sizeof m->notice, "%d rank %d failed: %s\n%s", c->rank, c->rank, f->message,
                     f->place);
        else
            snprintf(text, sizeof m->notice, "%d %s\n%s", c->rank, f->message, f->place);
        for (int r = 0; r < c->size; r++)
            if (!c->cell_of[r] && !m->p->send(m->world, text, sizeof m->notice, r, m->notice_tag,
                                            requests + (size_t)left * m->p->request_size))
                left++;
        double until = wf_now() + 0.2;
        for (int open = left, n; open > 0 && wf_now() < until; open -= n) {
            n = 0;
            if (m->p->test(m->world, left, requests, &n, which, got))
                break;
            if (!n)
                usleep(500);
        }
    }
    /* Requests that are still open point into these: they are left to the end of the process. */
    (void)got;
}

/* ---- messages of a collective ---- */

/* Messages of equal tags between two ranks do not overtake each other, so that numbers may come round again. */
static int tag_of(const WfFlying *f, int phase, int piece)
{
    return f->group->id << TAG_BITS | (int)(f->seq & 15) << 10 | phase << 8 | (piece & 255);
}

static bool room(MpiOp *o, size_t request_size)
{
    if (o->spares || o->n < o->cap)
        return true;
    int cap = o->cap ? o->cap * 2 : 64;
    void *a = wf_sys_realloc(o->message, (size_t)cap * sizeof *o->message);
    o->message = a ? a : o->message;
    void *b = wf_sys_realloc(o->request, (size_t)cap * request_size);
    o->request = b ? b : o->request;
    void *w = wf_sys_realloc(o->which, (size_t)cap * sizeof *o->which);
    o->which = w ? w : o->which;
    void *g = wf_sys_realloc(o->got, (size_t)cap * sizeof *o->got);
    o->got = g ? g : o->got;
    void *s = wf_sys_realloc(o->spare, (size_t)cap * sizeof *o->spare);
    o->spare = s ? s : o->spare;
    if (!a || !b || !w || !g || !s)
        return false;
    o->cap = cap;
    return true;
}

/* Bytes to or from a member of the group; nothing when there are none. */
static void post(WfComm *c, WfFlying *f, bool send, const char *p, size_t bytes, int member, int phase,
                 int piece)
{
    Mpi *m = mpi_of(c);
    MpiOp *o = f->mpi;
    for (size_t at = 0; at < bytes; at += MESSAGE) {
        size_t n = bytes - at < MESSAGE ? bytes - at : MESSAGE;
        if (!room(o, m->p->request_size)) {
            mpi_failed(c, f, "out of memory for messages");
            return;
        }
        int slot = o->spares ? o->spare[--o->spares] : o->n++;
        char *request = o->request + (size_t)slot * m->p->request_size;
        int peer = f->group->ranks[member], tag = tag_of(f, phase, piece);
        const char *err = send ? m->p->send(m->world, p + at, n, peer, tag, request)
                               : m->p->recv(m->world, (char *)p + at, n, peer, tag, request);
        if (err) {
            mpi_failed(c, f, err);
            return;
        }
        o->message[slot] = (Message){member, piece, phase, send, false, n};
        o->open++;
    }
}

/* Elements of piece k of member p's slice: from `at`, as many as returned. */
static int64_t piece_of(const WfFlying *f, int p, int k, int64_t *at)
{
    int64_t from = f->displs[p] + k * f->mpi->piece, end = f->displs[p + 1];
    *at = from;
    if (from >= end)
        return 0;
    return end - from < f->mpi->piece ? end - from : f->mpi->piece;
}

static void sum(const WfFlying *f, const char *own, const char *tmp, size_t stride, char *out, int64_t count)
{
    const void *src[WF_COMM_MAX_RANKS];
    void *dst[1] = {out};
    WfReduceHow how = {f->op.dtype, f->op.op, f->scale, f->scaled, false};
    for (int p = 0; p < f->group->n; p++)
        src[p] = p == f->group->rank ? own : tmp + (size_t)p * stride;
    if (count)
        wf_sum_ranks(&how, src, f->group->n, (size_t)count, dst, 1);
}

/* ---- all_reduce ---- */

/* Contributions to the next piece of every slice. */
static void begin_piece(WfComm *c, WfFlying *f)
{
    MpiOp *o = f->mpi;
    int n = f->group->n, me = f->group->rank, k = o->begun++;
    size_t mine = (size_t)(f->displs[me + 1] - f->displs[me]) * f->size;
    int64_t size = (int64_t)f->size, at, take = piece_of(f, me, k, &at);
    o->missing[k] = take > 0 ? n - 1 : 0;
    o->left[k] = 2 * o->missing[k];
    for (int i = 1; i < n; i++) {
        int from = (me - i + n) % n;
        post(c, f, false, o->tmp + (size_t)from * mine + (size_t)((at - f->displs[me]) * size), (size_t)(take * size), from,
             PHASE_DATA, k);
    }
    for (int i = 1; i < n; i++) {
        int to = (me + i) % n;
        int64_t from, give = piece_of(f, to, k, &from);
        o->left[k] += give > 0 ? 2 : 0;
        post(c, f, true, (const char *)f->op.send + from * size, (size_t)(give * size), to, PHASE_DATA, k);
    }
}

static void post_reduce(WfComm *c, WfFlying *f)
{
    MpiOp *o = f->mpi;
    int n = f->group->n, me = f->group->rank;
    if (o->one_round) {
        for (int p = 0; p < n; p++)
            if (p != me)
                post(c, f, false, o->tmp + (size_t)p * f->send_bytes, f->send_bytes, p, PHASE_DATA, 0);
        for (int p = 0; p < n; p++)
            if (p != me)
                post(c, f, true, f->op.send, f->send_bytes, p, PHASE_DATA, 0);
        return;
    }
    size_t each = (size_t)o->piece * f->size * (size_t)(n - 1);
    int window = each * 64 < WINDOW ? 64 : each * 4 > WINDOW ? 4 : (int)(WINDOW / each);
    while (o->begun < o->pieces && o->begun < window)
        begin_piece(c, f);
}

static void sum_piece(WfComm *c, WfFlying *f, int k)
{
    MpiOp *o = f->mpi;
    int n = f->group->n, me = f->group->rank;
    int64_t size = (int64_t)f->size, at, count = piece_of(f, me, k, &at);
    size_t mine = (size_t)((f->displs[me + 1] - f->displs[me]) * size);
    char *out = (char *)f->op.recv + at * size;
    sum(f, (const char *)f->op.send + at * size, o->tmp + (size_t)((at - f->displs[me]) * size), mine, out,
        count);
    for (int i = 1; i < n; i++)
        post(c, f, true, out, (size_t)(count * size), (me + i) % n, PHASE_RESULT, k);
}

static void reduce_event(WfComm *c, WfFlying *f, Message m)
{
    MpiOp *o = f->mpi;
    int64_t at;
    if (o->one_round)
        return;
    o->left[m.piece]--;
    if (m.phase == PHASE_DATA && m.send) { /* the result may lie where the contribution did: only now is the place free */
        int64_t count = piece_of(f, m.peer, m.piece, &at);
        post(c, f, false, (char *)f->op.recv + at * (int64_t)f->size, (size_t)count * f->size, m.peer,
             PHASE_RESULT, m.piece);
    } else if (m.phase == PHASE_DATA && --o->missing[m.piece] == 0)
        sum_piece(c, f, m.piece);
    if (!o->left[m.piece] && o->begun < o->pieces)
        begin_piece(c, f);
}

/* ---- the others ---- */

static void post_blocks(WfComm *c, WfFlying *f)
{
    const WfCommOp *op = &f->op;
    int n = f->group->n, me = f->group->rank;
    size_t size = f->size, mine = (size_t)(f->displs[me + 1] - f->displs[me]) * size;
    const char *send = op->send;
    char *recv = op->recv;
    bool gather = op->kind == WF_ALL_GATHER, scatter = op->kind == WF_REDUCE_SCATTER;
    for (int i = 1; i < n; i++) {
        int from = (me - i + n) % n, to = (me + i) % n;
        size_t in = gather ? (size_t)(f->displs[from + 1] - f->displs[from]) * size
                           : (size_t)(f->recv_displs[from + 1] - f->recv_displs[from]) * size;
        char *into =
            gather ? recv + (size_t)f->displs[from] * size : recv + (size_t)f->recv_displs[from] * size;
        if (scatter) {
            in = mine;
            into = f->mpi->tmp + (size_t)from * mine;
        }
        post(c, f, false, into, in, from, PHASE_DATA, 0);
        if (gather)
            post(c, f, true, send, mine, to, PHASE_DATA, 0);
        else
            post(c, f, true, send + (size_t)f->displs[to] * size,
                 (size_t)(f->displs[to + 1] - f->displs[to]) * size, to, PHASE_DATA, 0);
    }
    char *own = gather ? recv + (size_t)f->displs[me] * size : recv + (size_t)f->recv_displs[me] * size;
    const char *from_own = gather ? send : send + (size_t)f->displs[me] * size;
    if (!scatter && mine && own != from_own)
        memcpy(own, from_own, mine);
}

static void broadcast_down(WfComm *c, WfFlying *f)
{
    int n = f->group->n, v = (f->group->rank - f->op.root + n) % n, bit = 1;
    while (bit < n && !(v & bit))
        bit <<= 1;
    for (bit >>= 1; bit; bit >>= 1)
        if (v + bit < n)
            post(c, f, true, f->op.recv, f->recv_bytes, (v + bit + f->op.root) % n, PHASE_DATA, 0);
}

static void post_broadcast(WfComm *c, WfFlying *f)
{
    int n = f->group->n, v = (f->group->rank - f->op.root + n) % n;
    if (v == 0)
        broadcast_down(c, f);
    else
        post(c, f, false, f->op.recv, f->recv_bytes, ((v & (v - 1)) + f->op.root) % n, PHASE_DATA, 0);
}

/* Round k of a barrier: a byte to the rank 2^k further, one from the rank 2^k before. */
static void barrier_round(WfComm *c, WfFlying *f)
{
    MpiOp *o = f->mpi;
    int n = f->group->n, me = f->group->rank, step = 1 << o->round;
    post(c, f, false, o->tmp, 1, (me - step % n + n) % n, PHASE_ROUND, 0);
    post(c, f, true, o->tmp + 1, 1, (me + step) % n, PHASE_ROUND, 0);
}

/* ---- the table ---- */

static void mpi_start(WfComm *c, WfFlying *f)
{
    int n = f->group->n, me = f->group->rank;
    if (n == 1)
        return;
    MpiOp *o = f->mpi ? f->mpi : (f->mpi = wf_sys_alloc(sizeof *o));
    size_t mine = (size_t)(f->displs[me + 1] - f->displs[me]) * f->size, want = 2;
    int64_t longest = 0;
    if (!o)
        wf_fail(c->ctx, WF_E_MEMORY, "out of memory for a collective");
    o->n = o->open = o->round = o->spares = o->begun = 0;
    o->one_round = f->op.kind == WF_ALL_REDUCE && f->send_bytes * (size_t)(n - 1) <= ONE_ROUND;
    for (int p = 0; p < n; p++)
        longest = f->displs[p + 1] - f->displs[p] > longest ? f->displs[p + 1] - f->displs[p] : longest;
    o->piece = longest / PIECES + 1;
    if (o->piece * (int64_t)f->size < PIECE)
        o->piece = PIECE / (int64_t)f->size;
    o->pieces = (int)((longest + o->piece - 1) / o->piece);
    if (f->op.kind == WF_ALL_REDUCE && o->pieces > o->piece_cap) {
        int *a = wf_sys_realloc(o->missing, (size_t)o->pieces * sizeof(int));
        o->missing = a ? a : o->missing;
        int *b = wf_sys_realloc(o->left, (size_t)o->pieces * sizeof(int));
        o->left = b ? b : o->left;
        if (!a || !b)
            wf_fail(c->ctx, WF_E_MEMORY, "out of memory for a collective");
        o->piece_cap = o->pieces;
    }
    if (f->op.kind == WF_ALL_REDUCE)
        want = (size_t)n * (o->one_round ? f->send_bytes : mine);
    if (f->op.kind == WF_REDUCE_SCATTER)
        want = (size_t)n * mine;
    if (want <= o->tmp_bytes)
        return;
    wf_sys_unmap(o->tmp, o->tmp_bytes);
    o->tmp_bytes = 0;
    o->tmp = wf_sys_map(want, true);
    if (!o->tmp)
        wf_fail(c->ctx, WF_E_MEMORY, "out of memory: %zu MB for the messages of %s", want >> 20,
                wf_collective_name(f->op.kind));
    o->tmp_bytes = want;
}

static void mpi_post(WfComm *c, WfFlying *f)
{
    if (f->op.kind == WF_ALL_REDUCE)
        post_reduce(c, f);
    else if (f->op.kind == WF_BROADCAST)
        post_broadcast(c, f);
    else if (f->op.kind == WF_BARRIER)
        barrier_round(c, f);
    else
        post_blocks(c, f);
}

/* All messages so far have completed: what follows from that. True when that was the end. */
static bool all_complete(WfComm *c, WfFlying *f)
{
    MpiOp *o = f->mpi;
    int me = f->group->rank, n = f->group->n;
    size_t size = f->size;
    if (f->op.kind == WF_ALL_REDUCE && o->one_round)
        sum(f, f->op.send, o->tmp, f->send_bytes, f->op.recv, f->op.count);
    if (f->op.kind == WF_REDUCE_SCATTER) {
        size_t mine = (size_t)(f->displs[me + 1] - f->displs[me]) * size;
        sum(f, (const char *)f->op.send + (size_t)f->displs[me] * size, o->tmp, mine, f->op.recv,
            f->displs[me + 1] - f->displs[me]);
    }
    if (f->op.kind == WF_BARRIER && 1 << (o->round + 1) < n) {
        o->round++;
        barrier_round(c, f);
        return false;
    }
    return true;
}

static WfProgress mpi_progress(WfComm *c, WfFlying *f)
{
    Mpi *m = mpi_of(c);
    MpiOp *o = f->mpi;
    bool moved = false;
    if (++m->looks % 64 == 1)
        await_notice(c);
    while (o->open && !wf_failed(&c->shared)) {
        int done = 0, n = o->n;
        const char *err = m->p->test(m->world, n, o->request, &done, o->which, o->got);
        if (err) {
            mpi_failed(c, f, err);
            return WF_BLOCKED;
        }
        if (!done)
            return moved ? WF_MOVED : WF_BLOCKED;
        moved = true;
        o->open -= done;
        if (done > o->events) {
            Message *more = wf_sys_realloc(o->event, (size_t)done * sizeof *more);
            if (!more) {
                mpi_failed(c, f, "out of memory for messages");
                return WF_BLOCKED;
            }
            o->event = more;
            o->events = done;
        }
        for (int i = 0; i < done; i++) {
            Message *at = &o->message[o->which[i]];
            at->done = true;
            o->event[i] = *at;
            o->spare[o->spares++] = o->which[i];
            if (!at->send && o->got[i] != at->bytes) {
                char text[200];
                snprintf(text, sizeof text, "rank %d sent %zu bytes where this rank expected %zu",
                         f->group->ranks[at->peer], o->got[i], at->bytes);
                mpi_failed(c, f, text);
                return WF_BLOCKED;
            }
        }
        for (int i = 0; i < done && f->op.kind == WF_ALL_REDUCE; i++)
            reduce_event(c, f, o->event[i]);
        if (f->op.kind == WF_BROADCAST && !o->open && f->group->rank != f->op.root && !o->round++)
            broadcast_down(c, f);
    }
    if (wf_failed(&c->shared))
        return WF_BLOCKED;
    return all_complete(c, f) ? WF_FINISHED : WF_MOVED;
}

static void mpi_missing(WfComm *c, const WfFlying *f, bool *missing)
{
    (void)c;
    for (int i = 0; i < f->mpi->n; i++)
        if (!f->mpi->message[i].done)
            missing[f->mpi->message[i].peer] = true;
}

static void *mpi_arena(WfComm *c, size_t bytes)
{
    void *p = c->n_segments < (int)WF_LEN(c->segment) ? wf_sys_map(bytes ? bytes : 1, true) : NULL;
    if (!p)
        wf_fail(c->ctx, WF_E_MEMORY, "%zu MB of memory for buffers between ranks cannot be had",
                bytes >> 20);
    c->segment[c->n_segments++] = (WfSegment){p, 0, bytes ? bytes : 1};
    return p;
}

static void mpi_group(WfComm *c, WfGroup *g) { (void)c, (void)g; /* tags are all it needs */ }

static void free_op(MpiOp *o)
{
    if (!o)
        return;
    wf_sys_free(o->message);
    wf_sys_free(o->request);
    wf_sys_free(o->which);
    wf_sys_free(o->got);
    wf_sys_free(o->missing);
    wf_sys_free(o->left);
    wf_sys_free(o->spare);
    wf_sys_free(o->event);
    wf_sys_unmap(o->tmp, o->tmp_bytes);
    wf_sys_free(o);
}

static void mpi_leave(WfComm *c, bool failed)
{
    Mpi *m = mpi_of(c);
    bool orderly = c->orderly && !failed;
    if (!m || !m->world)
        return;
    if (failed && c->size > 1 && (c->shared.head->failure.reporter == c->rank || c->shared.head->failure.reporter < 0))
        send_notices(c);
    else if (failed)
        usleep(300000); /* the launcher ends everybody when the first leaves: let the one who speaks do so
                           before */
    if (orderly && c->size > 1)
        m->p->cancel(m->world, m->notice_request);
    /* After a failure messages may be on their way still: what they point into is left to the end of the
     * process. */
    for (int i = 0; orderly && c->flying && i < WF_COMM_INFLIGHT; i++)
        free_op(c->flying[i].mpi);
    m->p->close(m->world, orderly);
    for (int i = 0; orderly && i < c->n_segments; i++)
        wf_sys_unmap(c->segment[i].at, c->segment[i].bytes);
    if (orderly) {
        wf_sys_free(m->notice_request);
        wf_sys_free(m);
    }
}

static bool mpi_ahead(const WfFlying *f)
{
    return f->op.kind != WF_ALL_REDUCE || f->mpi->one_round || f->mpi->begun >= f->mpi->pieces;
}

static const WfTransport mpi = {"mpi",        mpi_arena,   mpi_group, mpi_start, mpi_post,
                                mpi_progress, mpi_missing, mpi_leave, 30e-6,     mpi_ahead};

/* ---- opening ---- */

static void check_world(WfComm *c, const WfLaunchInfo *info, const Mpi *m)
{
    if (info->by != WF_BY_PMIX && info->by != WF_BY_NOBODY &&
        (info->size != m->info.size || info->rank != m->info.rank))
        wf_fail_at(c->ctx, WF_E_MPI, NULL,
                   "Start the ranks with the mpirun of that MPI; under srun, with the --mpi type that it was "
                   "built for.",
                   "%s started rank %d of %d (%s), but %s says rank %d of %d", info->name, info->rank,
                   info->size, info->variable, m->p->name, m->info.rank, m->info.size);
    if (m->info.size > WF_COMM_MAX_RANKS)
        wf_fail(c->ctx, WF_E_RANK_LIMIT, "%d ranks; up to %d are possible", m->info.size,
                WF_COMM_MAX_RANKS);
    if (m->info.largest_tag < (WF_COMM_MAX_GROUPS + 1) << TAG_BITS)
        wf_fail(c->ctx, WF_E_MPI, "%s allows tags up to %d only; %d are needed", m->p->name,
                m->info.largest_tag, (WF_COMM_MAX_GROUPS + 1) << TAG_BITS);
}

void wf_mpi_open(WfComm *c, const WfLaunchInfo *info, void *host_comm)
{
    Mpi *m = wf_sys_alloc(sizeof *m);
    if (!m)
        wf_fail(c->ctx, WF_E_MEMORY, "out of memory");
    c->state = m;
    c->transport = &mpi;
    m->p = wf_find_plugin(c, info, host_comm);
    if (!host_comm && (info->by == WF_BY_OPENMPI || info->by == WF_BY_MPICH) && info->local_rank >= 0)
        m->info = (WfMpiInfo){.local_rank = info->local_rank, .local_size = info->local_size};
    WfStart *start = host_comm ? NULL : wf_start_begin(c, info);
    const char *err = m->p->open(host_comm, &m->world, &m->info);
    wf_start_end(start);
    if (err)
        wf_fail(c->ctx, WF_E_MPI, "%s cannot be used: %s", m->p->name, err);
    if (!host_comm)
        check_world(c, info, m);
    c->rank = m->info.rank;
    c->size = m->info.size;
    c->local_rank = m->info.local_rank;
    c->local_size = m->info.local_size;
    /* Another thread may use MPI beside the host's own calls only at the highest level. */
    c->threaded = m->info.level == WF_MPI_MULTIPLE || (m->info.ours && m->info.level == WF_MPI_SERIALIZED);
    if (!c->threaded && c->size > 1)
        wf_log(c->ctx, WF_LOG_WARN,
               "%s was initialised below MPI_THREAD_MULTIPLE: messages move only inside Weft's own calls",
               m->p->name);
    /* The first rank of a host makes room for the others of it, who come when messages can tell where (wf_meet_by_message). */
    bool roomy = c->local_rank == 0 && c->local_size > 1 && c->local_size <= WF_COMM_MAX_LOCAL;
    wf_shared_create(c->ctx, roomy ? c->local_size : 1, false, &c->shared);
    c->shared.head->world = c->size;
    c->options.timeout += patience(c);
    if (c->size == 1)
        return;
    m->notice_tag = WF_COMM_MAX_GROUPS << TAG_BITS;
    m->notice_request = wf_sys_alloc(m->p->request_size);
    if (!m->notice_request)
        wf_fail(c->ctx, WF_E_MEMORY, "out of memory");
    err = m->p->recv(m->world, m->notice, sizeof m->notice, -1, m->notice_tag, m->notice_request);
    if (err)
        wf_fail(c->ctx, WF_E_MPI, "%s cannot be used: %s", m->p->name, err);
}
