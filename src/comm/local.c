/* The local transport: ranks of one host over shared memory.
 *
 * A collective begins with a barrier behind which each member's side (what it does, and where its buffers
 * lie) can be read by all; sides that do not fit are an error. How the data move is then the same decision on
 * every rank: inline   small contributions were copied beside the side before the barrier: one barrier,
 * everyone takes what it needs direct   all buffers lie in arenas: all_reduce splits the elements among the
 * ranks, each sums its slice straight out of all buffers and writes it straight into all of them; the others
 * pull. A second barrier ends it staged   some buffer is private memory: its chunks pass through staging
 * memory, two per rank by turns A slice of an all_reduce is read by no other rank than the one that writes
 * it, so send may be recv.
 *
 * Barriers of a group count arrivals; the n-th completes the phase and rings those who sleep. The side and
 * the inline copy of collective s are used again by s + 2: a rank gets there only when all have come to a
 * barrier of s + 1, for which they had to be done with s. */
#include "comm/private.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MODE_OPEN, MODE_INLINE, MODE_DIRECT, MODE_STAGED };

static char *base(const WfComm *c)
{
    return (char *)c->shared.head;
}

static size_t slot(const WfComm *c, const WfGroup *g, int member)
{
    return (size_t)g->id * (size_t)c->size + (size_t)g->ranks[member];
}

static WfMemberCell *member_cell(const WfComm *c, const WfGroup *g, int member)
{
    return (WfMemberCell *)(base(c) + c->shared.head->members) + slot(c, g, member);
}

static WfSide *side(const WfComm *c, const WfFlying *f, int member)
{
    return &member_cell(c, f->group, member)->side[f->seq & 1];
}

static uint64_t *displs_of(const WfComm *c, const WfFlying *f, int member)
{
    return (uint64_t *)(base(c) + c->shared.head->displs) +
           (slot(c, f->group, member) * 2 + (f->seq & 1)) * ((size_t)c->size + 1);
}

static char *inline_of(const WfComm *c, const WfFlying *f, int member)
{
    return base(c) + c->shared.head->inlines + (slot(c, f->group, member) * 2 + (f->seq & 1)) * INLINE_BYTES;
}

static char *stage_of(const WfComm *c, const WfFlying *f, int member, int chunk)
{
    return base(c) + c->shared.head->stages +
           (slot(c, f->group, member) * 2 + (size_t)(chunk & 1)) * STAGE_BYTES;
}

/* ---- arenas ---- */

/* Offset in the world's file of memory that lies wholly in an arena of this rank; -1 elsewhere. */
static int64_t offset_of(const WfComm *c, const void *p, size_t bytes)
{
    for (int i = 0; i < c->n_segments; i++) {
        const WfSegment *s = &c->segment[i];
        if ((const char *)p >= s->at && (const char *)p + bytes <= s->at + s->bytes)
            return s->offset + ((const char *)p - s->at);
    }
    return -1;
}

/* The address here of an offset that a peer has published; NULL if no arena holds it. */
static char *address_of(const WfComm *c, int64_t offset, size_t bytes)
{
    for (int i = 0; i < c->n_segments; i++) {
        const WfSegment *s = &c->segment[i];
        if (offset >= s->offset && offset + (int64_t)bytes <= s->offset + (int64_t)s->bytes)
            return s->at + (offset - s->offset);
    }
    return NULL;
}

static void *local_arena(WfComm *c, size_t bytes)
{
    enum { ALIGN = 2 << 20 }; /* each rank's part begins where a huge page can */
    int64_t *sizes = WF_NEWN(c->arena, int64_t, (size_t)c->size), total = 0, mine_at = 0, mine;
    if (bytes > (size_t)1 << 46 || c->n_segments == (int)WF_LEN(c->segment))
        wf_fail(c->ctx, WF_E_MEMORY, "an arena of %zu bytes between ranks is not possible", bytes);
    mine = ((int64_t)bytes + ALIGN - 1) / ALIGN * ALIGN;
    wf_comm_exchange(c, &mine, sizeof mine, sizes, 0, "sizes of the arenas");
    for (int r = 0; r < c->size; r++) {
        if (r == c->rank)
            mine_at = total;
        total += sizes[r];
    }
    if (!total)
        return wf_arena_alloc(c->arena, LINE);
    struct stat st;
    int64_t offset = (int64_t)c->shared.bytes + c->data_used;
    /* All ranks want the same size, so whoever comes first makes it and nobody makes it smaller. */
    bool ok = fstat(c->shared.fd, &st) == 0 &&
              (st.st_size >= offset + total || ftruncate(c->shared.fd, offset + total) == 0);
    char *at = !ok ? MAP_FAILED
                   : mmap(NULL, (size_t)total + ALIGN, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                          -1, 0);
    if (at != MAP_FAILED) {
        char *aligned = (char *)(((uintptr_t)at + ALIGN - 1) & ~(uintptr_t)(ALIGN - 1));
        at = mmap(aligned, (size_t)total, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_NORESERVE,
                  c->shared.fd, offset);
    }
    if (at == MAP_FAILED)
        wf_fail(c->ctx, WF_E_MEMORY, "%lld MB of memory shared between ranks cannot be had: %s",
                (long long)(total >> 20), strerror(errno));
    (void)madvise(at, (size_t)total, MADV_HUGEPAGE); /* most systems refuse it for shared memory */
    c->segment[c->n_segments++] = (WfSegment){at, offset, (size_t)total};
    c->data_used += total;
#ifdef MADV_POPULATE_WRITE
    /* Touched once, here, and not in the first step. Without room the first touch would kill the rank: ask
     * now. */
    if (bytes && madvise(at + mine_at, (bytes + 4095) & ~(size_t)4095, MADV_POPULATE_WRITE) != 0 &&
        errno != EINVAL && errno != ENOSYS)
        wf_fail(c->ctx, WF_E_MEMORY, "%zu MB of memory shared between ranks cannot be had: %s",
                bytes >> 20, strerror(errno));
#endif
    return at + mine_at;
}

/* ---- groups ---- */

static uint64_t members_hash(const WfGroup *g)
{
    return wf_hash64(g->ranks, (size_t)g->n * sizeof(int), (uint64_t)g->n);
}

/* Finds the cell of that name, or takes a free one. Cells are taken in order, and one that is being named is
 * waited for, so two members never take two. */
static void local_group(WfComm *c, WfGroup *g)
{
    WfGroupCell *cells = (WfGroupCell *)(base(c) + c->shared.head->groups);
    if (strlen(g->name) >= sizeof cells[0].name)
        wf_fail(c->ctx, WF_E_RANK_LIMIT, "group name \"%s\" is longer than %zu letters", g->name,
                sizeof cells[0].name - 1);
    for (int i = 0; i < WF_COMM_MAX_GROUPS; i++) {
        uint32_t state = 0;
        if (atomic_compare_exchange_strong(&cells[i].state, &state, 1)) {
            snprintf(cells[i].name, sizeof cells[i].name, "%s", g->name);
            cells[i].members = members_hash(g);
            atomic_store(&cells[i].state, 2);
        }
        for (int tries = 0; atomic_load(&cells[i].state) == 1 && tries < 10000 && !wf_failed(&c->shared);
             tries++)
            usleep(100);
        if (atomic_load(&cells[i].state) != 2)
            wf_fail(c->ctx, WF_E_RANK_GROUP_FORMED,
                    "group %s cannot be formed: a rank has failed while it named its own", g->name);
        if (strcmp(cells[i].name, g->name))
            continue;
        if (cells[i].members != members_hash(g))
            wf_fail(c->ctx, WF_E_RANK_GROUP_FORMED, "group %s has other members on another rank", g->name);
        g->id = i;
        g->cell = &cells[i];
        return;
    }
    wf_fail(c->ctx, WF_E_RANK_LIMIT, "group %s is one too many; a world has at most %d", g->name,
            WF_COMM_MAX_GROUPS);
}

/* ---- barriers ---- */

static void arrive(WfComm *c, WfFlying *f)
{
    WfGroup *g = f->group;
    f->target = ++g->phase;
    atomic_store_explicit(&member_cell(c, g, g->rank)->phase, g->phase, memory_order_release);
    if (atomic_fetch_add(&g->cell->count, 1) + 1 != g->phase * (uint64_t)g->n)
        return;
    atomic_store(&g->cell->phase, g->phase);
    for (int i = 0; i < g->n; i++)
        if (i != g->rank)
            wf_ring(c->cell_of[g->ranks[i]]);
}

static void local_missing(WfComm *c, const WfFlying *f, bool *missing)
{
    for (int i = 0; i < f->group->n; i++)
        missing[i] = atomic_load(&member_cell(c, f->group, i)->phase) < f->target;
}

/* ---- one collective ---- */

static bool pulls(const WfFlying *f)
{
    return f->op.kind != WF_ALL_REDUCE;
}

/* Inline costs one barrier less, but every rank writes and reads everything through others' caches. That pays
 * for an all_reduce when ranks share cores, where a barrier is a change of process, and otherwise for scalars
 * only. */
static size_t inline_limit(const WfComm *c, const WfFlying *f)
{
    size_t many = INLINE_BYTES * 4 / (size_t)f->group->n, least = 1024;
    if (pulls(f) || (c->crowded && f->group->n <= 4))
        return INLINE_BYTES;
    return c->crowded && many > least ? many : least;
}

static void stage_in(WfComm *c, const WfFlying *f, int chunk)
{
    size_t at = (size_t)chunk * STAGE_BYTES;
    if (f->send_at >= 0 || at >= f->send_bytes)
        return;
    size_t n = f->send_bytes - at < STAGE_BYTES ? f->send_bytes - at : STAGE_BYTES;
    /* all_reduce writes its result over the chunk, and copies it out before the next one comes in */
    memcpy(stage_of(c, f, f->group->rank, pulls(f) ? chunk : 0), (const char *)f->op.send + at, n);
}

static void local_start(WfComm *c, WfFlying *f)
{
    f->send_at = f->send_bytes ? offset_of(c, f->op.send, f->send_bytes) : 0;
    f->recv_at = f->recv_bytes ? offset_of(c, f->op.recv, f->recv_bytes) : 0;
}

static void local_post(WfComm *c, WfFlying *f)
{
    const WfCommOp *o = &f->op;
    WfSide *mine = side(c, f, f->group->rank);
    bool whole = o->kind == WF_ALL_REDUCE || o->kind == WF_BROADCAST || o->kind == WF_BARRIER;
    mine->kind = (uint32_t)o->kind;
    mine->op = (uint32_t)o->op;
    mine->dtype = (uint32_t)o->dtype;
    mine->root = (uint32_t)o->root;
    mine->count = whole ? o->count : -1;
    mine->agree = whole || o->kind == WF_ALL_TO_ALL
                      ? 0
                      : wf_hash64(f->displs, ((size_t)f->group->n + 1) * sizeof(int64_t), 1);
    mine->bytes = f->send_bytes;
    mine->send = f->send_at;
    mine->recv = pulls(f) ? 0 : f->recv_at; /* only all_reduce writes into others' buffers */
    mine->scale = f->scaled ? f->scale : 0;
    mine->step = o->step;
    snprintf(mine->node, sizeof mine->node, "%s", o->node ? o->node : "an unnamed node");
    if (o->kind == WF_ALL_TO_ALL)
        for (int i = 0; i <= f->group->n; i++)
            displs_of(c, f, f->group->rank)[i] = (uint64_t)f->displs[i];
    f->mode = MODE_OPEN;
    f->last = f->summed = false;
    if (f->send_bytes && f->send_bytes <= inline_limit(c, f))
        memcpy(inline_of(c, f, f->group->rank), o->send, f->send_bytes);
    if (f->send_bytes > inline_limit(c, f) ||
        o->counts) /* with counts another rank's may be too large to go inline */
        stage_in(c, f, 0);
    arrive(c, f);
}

/* What a member does differs from what this rank does: an error that names both. */
static bool compare(WfComm *c, const WfFlying *f)
{
    const WfGroup *g = f->group;
    const WfSide *a = side(c, f, g->rank);
    for (int i = 0; i < g->n; i++) {
        const WfSide *b = side(c, f, i);
        const char *what = a->kind != b->kind                             ? "the collective"
                           : a->dtype != b->dtype                         ? "the dtype"
                           : a->count != b->count || a->agree != b->agree ? "the number of elements"
                           : a->op != b->op                               ? "the reduction"
                           : a->scale != b->scale                         ? "the scale"
                           : a->root != b->root                           ? "the root"
                                                                          : NULL;
        if (!what && a->kind == WF_ALL_TO_ALL) {
            uint64_t sent = displs_of(c, f, i)[g->rank + 1] - displs_of(c, f, i)[g->rank];
            if (sent != (uint64_t)(f->recv_displs[i + 1] - f->recv_displs[i]))
                what = "the number of elements between them";
        }
        if (!what)
            continue;
        char text[512], place[NODE_TEXT + 64];
        snprintf(text, sizeof text,
                 "ranks %d and %d differ in %s: %s of %lld %s at %s (step %lld) against %s of %lld %s at %s "
                 "(step %lld)",
                 g->ranks[g->rank], g->ranks[i], what, wf_collective_name((WfCollective)a->kind),
                 (long long)a->count, wf_dtype_name((WfDtype)a->dtype), a->node, (long long)a->step,
                 wf_collective_name((WfCollective)b->kind), (long long)b->count,
                 wf_dtype_name((WfDtype)b->dtype), b->node, (long long)b->step);
        snprintf(place, sizeof place, "at %s (step %lld), group %s", a->node, (long long)a->step, g->name);
        wf_fail_world(&c->shared, g->ranks[i], c->rank, false, text, place,
                      "Start all ranks with the same model, data and options.");
        return false;
    }
    return true;
}

static void choose(WfComm *c, WfFlying *f)
{
    uint64_t largest = 0;
    bool direct = true;
    int n = f->group->n;
    for (int i = 0; i < n; i++) {
        const WfSide *s = side(c, f, i);
        largest = s->bytes > largest ? s->bytes : largest;
        direct = direct && s->send >= 0 && s->recv >= 0;
    }
    f->mode = largest <= inline_limit(c, f) ? MODE_INLINE : direct ? MODE_DIRECT : MODE_STAGED;
    f->chunks = f->mode == MODE_STAGED ? (int)((largest + STAGE_BYTES - 1) / STAGE_BYTES) : 1;
}

static void reduce(const WfFlying *f, const void *const *src, size_t count, void *const *dst, int n_dst,
                   bool stream)
{
    WfReduceHow how = {f->op.dtype, f->op.op, f->scale, f->scaled, stream};
    if (count)
        wf_sum_ranks(&how, src, f->group->n, count, dst, n_dst);
}

/* Bytes [from, from + n) of what `member` sends, when chunk `f->chunk` is there; NULL when the arena does not
 * hold it. */
static const char *source(WfComm *c, const WfFlying *f, int member, size_t from, size_t n)
{
    const WfSide *s = side(c, f, member);
    if (f->mode == MODE_INLINE)
        return inline_of(c, f, member) + from;
    if (s->send >= 0)
        return member == f->group->rank ? (const char *)f->op.send + from
                                        : address_of(c, s->send + (int64_t)from, n);
    return stage_of(c, f, member, pulls(f) ? f->chunk : 0) + (from - (size_t)f->chunk * STAGE_BYTES);
}

/* The part of [from, from + n) of a send buffer that the present chunk holds. */
static bool window(const WfFlying *f, size_t *from, size_t *n)
{
    if (f->mode != MODE_STAGED)
        return *n > 0;
    size_t lo = (size_t)f->chunk * STAGE_BYTES, hi = lo + STAGE_BYTES, end = *from + *n;
    size_t a = *from > lo ? *from : lo, b = end < hi ? end : hi;
    if (a >= b)
        return false;
    *from = a;
    *n = b - a;
    return true;
}

/* Takes from `member` the bytes that begin at send_from of its buffer to recv_at of this rank's. */
static void pull(WfComm *c, const WfFlying *f, int member, size_t send_from, size_t recv_at, size_t bytes)
{
    size_t from = send_from, n = bytes;
    if (!window(f, &from, &n))
        return;
    const char *src = source(c, f, member, from, n);
    char *dst = (char *)f->op.recv + recv_at + (from - send_from);
    if (src && src != dst)
        memcpy(dst, src, n);
}

static void pull_all(WfComm *c, WfFlying *f)
{
    int n = f->group->n, me = f->group->rank;
    size_t size = f->size;
    if (f->op.kind == WF_BROADCAST && f->op.root != me)
        pull(c, f, f->op.root, 0, 0, f->recv_bytes);
    for (int k = 0; k < n && f->op.kind == WF_ALL_GATHER; k++) {
        int p = (me + k) % n; /* not all from the same at once */
        pull(c, f, p, 0, (size_t)f->displs[p] * size, (size_t)(f->displs[p + 1] - f->displs[p]) * size);
    }
    for (int k = 0; k < n && f->op.kind == WF_ALL_TO_ALL; k++) {
        int p = (me + k) % n;
        const uint64_t *theirs = displs_of(c, f, p);
        pull(c, f, p, theirs[me] * size, (size_t)f->recv_displs[p] * size,
             (theirs[me + 1] - theirs[me]) * size);
    }
    if (f->op.kind == WF_REDUCE_SCATTER) {
        size_t block = (size_t)f->displs[me] * size, from = block,
               bytes = (size_t)(f->displs[me + 1] - f->displs[me]) * size;
        const void *src[WF_COMM_MAX_LOCAL];
        if (!window(f, &from, &bytes))
            return;
        for (int p = 0; p < n; p++)
            src[p] = source(c, f, p, from, bytes);
        void *dst[1] = {(char *)f->op.recv + (from - block)};
        reduce(f, src, bytes / size, dst, 1, false);
    }
}

/* all_reduce: this rank's slice of everything (direct) or of the present chunk (staged), from all to all. */
static void reduce_slice(WfComm *c, WfFlying *f)
{
    int n = f->group->n, me = f->group->rank;
    const void *src[WF_COMM_MAX_LOCAL];
    void *dst[WF_COMM_MAX_LOCAL];
    size_t size = f->size, from = (size_t)f->displs[me] * size,
           bytes = (size_t)(f->displs[me + 1] - f->displs[me]) * size;
    if (f->mode == MODE_STAGED) {
        size_t start = (size_t)f->chunk * STAGE_BYTES,
               whole = f->send_bytes - start < STAGE_BYTES ? f->send_bytes - start : STAGE_BYTES;
        size_t lines = (whole + LINE - 1) / LINE, lo = lines * (size_t)me / (size_t)n * LINE,
               hi = lines * (size_t)(me + 1) / (size_t)n * LINE;
        from = start + (lo < whole ? lo : whole);
        bytes = start + (hi < whole ? hi : whole) - from;
    }
    bool apart = true;
    for (int p = 0; p < n; p++) {
        const WfSide *s = side(c, f, p);
        src[p] = source(c, f, p, from, bytes);
        if (s->recv >= 0 && s->send >= 0)
            dst[p] = p == me ? (char *)f->op.recv + from : address_of(c, s->recv + (int64_t)from, bytes);
        else
            dst[p] = stage_of(c, f, p, 0) + (from - (size_t)f->chunk * STAGE_BYTES);
        if (!src[p] || !dst[p]) {
            wf_fail_world(&c->shared, f->group->ranks[p], c->rank, false,
                          "a rank sends memory that no arena holds", NULL, NULL);
            return;
        }
        apart = apart && src[p] != dst[p];
    }
    reduce(f, src, bytes / size, dst, n, apart && f->send_bytes > 4u << 20);
}

static void inline_all(WfComm *c, WfFlying *f)
{
    const void *src[WF_COMM_MAX_LOCAL];
    void *dst[1] = {f->op.recv};
    if (f->op.kind != WF_ALL_REDUCE) {
        pull_all(c, f);
        return;
    }
    for (int p = 0; p < f->group->n; p++)
        src[p] = inline_of(c, f, p);
    reduce(f, src, (size_t)f->op.count, dst, 1, false);
}

/* After staged all_reduce: the result of the chunk out, the next one in. A rank one of whose two buffers is
 * private uses staging for both. */
static void stage_turn(WfComm *c, WfFlying *f)
{
    size_t at = (size_t)f->chunk * STAGE_BYTES,
           n = f->send_bytes - at < STAGE_BYTES ? f->send_bytes - at : STAGE_BYTES;
    if (f->send_at < 0 || f->recv_at < 0)
        memcpy((char *)f->op.recv + at, stage_of(c, f, f->group->rank, 0), n);
    f->chunk++;
    stage_in(c, f, f->chunk);
}

/* One turn behind a completed barrier; true when nothing is left to do. */
static bool turn(WfComm *c, WfFlying *f)
{
    if (f->last)
        return true;
    if (f->mode == MODE_DIRECT || pulls(f)) {
        if (pulls(f))
            pull_all(c, f);
        else
            reduce_slice(c, f);
        f->chunk++;
        f->last = f->chunk >= f->chunks;
        if (f->mode == MODE_STAGED)
            stage_in(c, f, f->chunk);
    } else if (!f->summed) {
        reduce_slice(c, f);
        f->summed = true;
    } else {
        stage_turn(c, f);
        f->summed = false;
        if (f->chunk >= f->chunks)
            return true; /* what the others still do, they do in their own staging */
    }
    arrive(c, f);
    return false;
}

static WfProgress local_progress(WfComm *c, WfFlying *f)
{
    bool moved = false;
    while (atomic_load_explicit(&f->group->cell->phase, memory_order_acquire) >= f->target) {
        moved = true;
        if (f->mode == MODE_OPEN) {
            if (!compare(c, f))
                return WF_BLOCKED;
            choose(c, f);
            if (f->mode == MODE_INLINE) {
                inline_all(c, f);
                return WF_FINISHED;
            }
        }
        if (turn(c, f))
            return WF_FINISHED;
    }
    return moved ? WF_MOVED : WF_BLOCKED;
}

static void local_leave(WfComm *c, bool failed)
{
    (void)failed;
    for (int i = 0; i < c->n_segments; i++)
        munmap(c->segment[i].at, c->segment[i].bytes);
    c->n_segments = 0;
}

static const WfTransport local = {"local",       local_arena, local_group,
                                  local_start,   local_post,  local_progress,
                                  local_missing, local_leave, 0,           NULL};

void wf_local_open(WfComm *c, const WfLaunchInfo *info)
{
    c->transport = &local;
    c->threaded = c->together = true;
    if (c->shared.borrowed)
        return;
    if (info->by == WF_BY_WEFT)
        wf_shared_attach(c->ctx, info->fd, c->size, &c->shared);
    else
        wf_meet(c, info);
}
