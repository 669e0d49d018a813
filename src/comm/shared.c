/* The memory that the ranks of one host share: an anonymous file (memfd), which leaves nothing behind
 * whatever happens to its processes. Its head holds the record of the first failure, a cell per rank (pid,
 * heartbeat, bell, flight recorder) and the cells of groups; the buffers of arenas follow behind. The file is
 * sparse: what no collective touches takes no memory. Words that several processes write are atomics; a
 * process that dies holds no lock. */
#include "comm/private.h"

#include <errno.h>
#include <linux/futex.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static const uint64_t magic = WF_WORLD_MAGIC;

uint64_t wf_ns(void)
{
    return (uint64_t)(wf_now() * 1e9);
}

void wf_futex_wait(_Atomic uint32_t *word, uint32_t value, double seconds)
{
    struct timespec t = {.tv_sec = (time_t)seconds,
                         .tv_nsec = (long)((seconds - (double)(time_t)seconds) * 1e9)};
    syscall(SYS_futex, word, FUTEX_WAIT, value, &t, NULL, 0);
}

void wf_futex_wake(_Atomic uint32_t *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

static uint64_t place_table(uint64_t *end, uint64_t bytes)
{
    uint64_t at = *end;
    *end += (bytes + 4095) / 4096 * 4096;
    return at;
}

static void map_file(WfCtx *ctx, int fd, size_t bytes, WfShared *out)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
    if (p == MAP_FAILED) {
        int err = errno;
        close(fd);
        wf_fail(ctx, WF_E_MEMORY,
                "the memory shared between ranks (%zu MB of addresses) cannot be mapped: %s", bytes >> 20,
                strerror(err));
    }
    *out = (WfShared){fd, bytes, p, false};
}

void wf_shared_create(WfCtx *ctx, int ranks, bool collectives, WfShared *out)
{
    if (ranks < 1 || ranks > WF_COMM_MAX_LOCAL)
        wf_fail(ctx, WF_E_RANK_LIMIT, "%d ranks on one host: 1 to %d are possible", ranks, WF_COMM_MAX_LOCAL);
    uint64_t n = (uint64_t)ranks, end = 0, groups = collectives ? WF_COMM_MAX_GROUPS : 0;
    WfWorldHead h = {.magic = magic, .size = ranks, .world = ranks};
    place_table(&end, sizeof h);
    h.ranks = place_table(&end, n * sizeof(WfRankCell));
    h.groups = place_table(&end, groups * sizeof(WfGroupCell));
    h.members = place_table(&end, groups * n * sizeof(WfMemberCell));
    h.displs = place_table(&end, groups * n * 2 * (n + 1) * sizeof(uint64_t));
    h.inlines = place_table(&end, groups * n * 2 * INLINE_BYTES);
    h.stages = place_table(&end, groups * n * 2 * STAGE_BYTES);
    end = (end + ((2u << 20) - 1)) & ~(uint64_t)((2u << 20) - 1); /* arenas begin where a huge page can */
    h.bytes = end;
    int fd = memfd_create("weft-world", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, (off_t)end) != 0) {
        int err = errno;
        if (fd >= 0)
            close(fd);
        wf_fail(ctx, WF_E_SCRATCH, "the system gives no anonymous file for the ranks' shared memory: %s",
                strerror(err));
    }
    map_file(ctx, fd, end, out);
    memcpy(out->head, &h, sizeof h);
    for (int r = 0; r < ranks; r++)
        atomic_store(&wf_cell(out, r)->rank, r);
}

void wf_shared_attach(WfCtx *ctx, int fd, int ranks, WfShared *out)
{
    struct stat st;
    WfWorldHead h;
    if (fstat(fd, &st) != 0 || st.st_size < (off_t)sizeof h ||
        pread(fd, &h, sizeof h, 0) != (ssize_t)sizeof h || h.magic != magic ||
        (uint64_t)st.st_size < h.bytes || (ranks && h.size != ranks))
        wf_fail_at(ctx, WF_E_RANK_START, NULL, "Start all ranks with one program, through one launcher.",
                   "descriptor %d does not hold the shared memory of a world of %d ranks of this version", fd,
                   ranks);
    map_file(ctx, fd, h.bytes, out);
}

void wf_shared_close(WfShared *s)
{
    if (!s->head)
        return;
    if (!s->borrowed) {
        munmap(s->head, s->bytes);
        close(s->fd);
    }
    s->head = NULL;
}

/* ---- bells ---- */

void wf_ring(WfRankCell *cell)
{
    if (atomic_load(&cell->asleep)) {
        atomic_fetch_add(&cell->bell, 1);
        wf_futex_wake(&cell->bell);
    }
}

/* ---- failures ---- */

static void set_text(char *out, size_t size, const char *text)
{
    snprintf(out, size, "%s", text ? text : "");
}

bool wf_failed(const WfShared *s)
{
    return s->head && atomic_load_explicit(&s->head->failure.state, memory_order_acquire) != 0;
}

bool wf_fail_world(const WfShared *s, int culprit, int reporter, bool own, const char *message,
                   const char *place, const char *hint)
{
    WfFailure *f = &s->head->failure;
    uint32_t free_state = 0;
    if (!atomic_compare_exchange_strong(&f->state, &free_state, 1))
        return false;
    f->culprit = culprit;
    f->reporter = reporter;
    f->own = own;
    set_text(f->message, sizeof f->message, message);
    set_text(f->place, sizeof f->place, place);
    set_text(f->hint, sizeof f->hint, hint);
    atomic_store(&f->state, 2);
    for (int r = 0; r < s->head->size; r++)
        wf_ring(wf_cell(s, r));
    return true;
}

/* The writer may have been killed half-way: its text is not waited for longer than a moment. */
void wf_wait_failure(const WfShared *s)
{
    for (int i = 0; i < 100 && atomic_load(&s->head->failure.state) == 1; i++)
        usleep(1000);
}

/* ---- flight recorder ---- */

void wf_flight_write(WfFlightCell *f, uint32_t state, const char *node, int64_t step)
{
    uint32_t seq = atomic_load_explicit(&f->seq, memory_order_relaxed);
    uint64_t words[NODE_TEXT / 8] = {0};
    size_t n = node ? strlen(node) : 0;
    memcpy(words, node ? node : "", n < NODE_TEXT - 1 ? n : NODE_TEXT - 1);
    atomic_store_explicit(&f->seq, seq + 1, memory_order_relaxed);
    atomic_thread_fence(memory_order_release);
    atomic_store_explicit(&f->state, state, memory_order_relaxed);
    atomic_store_explicit(&f->step, step, memory_order_relaxed);
    atomic_store_explicit(&f->time, wf_ns(), memory_order_relaxed);
    for (size_t i = 0; i < NODE_TEXT / 8; i++)
        atomic_store_explicit(&f->node[i], words[i], memory_order_relaxed);
    atomic_store_explicit(&f->seq, seq + 2, memory_order_release);
}

/* A rank killed while it wrote leaves an odd count for ever: after a few tries what is there is taken. */
void wf_flight_read(const WfFlightCell *cell, WfFlightView *out)
{
    WfFlightCell *f = (WfFlightCell *)cell;
    for (int tries = 0; tries < 100; tries++) {
        uint32_t before = atomic_load_explicit(&f->seq, memory_order_acquire);
        uint64_t words[NODE_TEXT / 8];
        out->state = atomic_load_explicit(&f->state, memory_order_relaxed);
        out->step = atomic_load_explicit(&f->step, memory_order_relaxed);
        out->time = atomic_load_explicit(&f->time, memory_order_relaxed);
        out->started = atomic_load_explicit(&f->started, memory_order_relaxed);
        out->done = atomic_load_explicit(&f->done, memory_order_relaxed);
        for (size_t i = 0; i < NODE_TEXT / 8; i++)
            words[i] = atomic_load_explicit(&f->node[i], memory_order_relaxed);
        memcpy(out->node, words, sizeof words);
        out->node[NODE_TEXT - 1] = 0;
        atomic_thread_fence(memory_order_acquire);
        if (!(before & 1) && atomic_load_explicit(&f->seq, memory_order_relaxed) == before)
            return;
    }
}

void wf_flight_text(const WfFlightView *v, char *out, size_t size)
{
    static const char *const words[] = {"before its first step", "computing", "starting", "waiting at",
                                        "past"};
    const char *word = v->state < WF_LEN(words) ? words[v->state] : "at";
    if (v->state == WF_FLIGHT_NONE)
        snprintf(out, size, "%s", word);
    else
        snprintf(out, size, "%s %s (step %lld)", word, v->node[0] ? v->node : "an unnamed node",
                 (long long)v->step);
}

bool wf_fail_lost(const WfShared *s, WfRankCell *cell, int pid, int reporter, const char *what)
{
    char text[768], where[NODE_TEXT + 64], place[NODE_TEXT + 64];
    WfFlightView v;
    int rank = atomic_load(&cell->rank);
    wf_flight_read(&cell->flight, &v);
    wf_flight_text(&v, where, sizeof where);
    snprintf(text, sizeof text, "rank %d (pid %d) %s, %s", rank, pid, what, where);
    snprintf(place, sizeof place, "at %s (step %lld)", v.node, (long long)v.step);
    return wf_fail_world(s, rank, reporter, false, text, v.node[0] ? place : NULL, NULL);
}

void wf_rank_text(const WfRankCell *at, char *out, size_t size)
{
    WfRankCell *cell = (WfRankCell *)at;
    WfFlightView v;
    char where[NODE_TEXT + 64];
    int pid = atomic_load(&cell->pid), rank = atomic_load(&cell->rank);
    uint64_t beat = atomic_load(&cell->beat), now = wf_ns();
    wf_flight_read(&cell->flight, &v);
    wf_flight_text(&v, where, sizeof where);
    if (!pid)
        snprintf(out, size, "rank %d has not started", rank);
    else if (beat && now > beat + 1000000000u)
        snprintf(out, size, "rank %d (pid %d) has not moved for %.1f s, %s", rank, pid,
                 (double)(now - beat) * 1e-9, where);
    else
        snprintf(out, size, "rank %d (pid %d) is %s", rank, pid, where);
}

/* ---- silence ---- */

void wf_watch_tick(WfWatch *w)
{
    uint64_t now = wf_ns();
    if (now - w->looked > 1000000000u) /* watchers look at least five times a second */
        w->since = now;
    w->looked = now;
}

double wf_watch_silence(const WfWatch *w, const WfRankCell *cell)
{
    uint64_t beat = atomic_load(&((WfRankCell *)cell)->beat), from = beat > w->since ? beat : w->since;
    return beat && w->looked > from ? (double)(w->looked - from) * 1e-9 : 0;
}
