/* Threads: a small team that runs one function on all members and waits for the last.
 *
 * A step runs thousands of short pieces, so waiting spins for a few microseconds before it sleeps in a futex;
 * when another process takes a core the spinning ends soon and the scheduler decides. The caller is member 0.
 * A run is one release store of a new epoch (members wait for the epoch to change) and one counter of members
 * still at work. The waiting sides announce that they sleep, so that a run between spinning members makes no
 * system call. */
#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include "base/base.h"

enum { SPINS = 4000, LINE = 64 };

/* Each group of fields that one side writes has a cache line of its own. */
struct WfTeam {
    _Alignas(LINE) _Atomic uint32_t epoch;   /* changes when there is work */
    _Atomic uint32_t sleepers;               /* members asleep on the epoch */
    _Alignas(LINE) _Atomic uint32_t pending; /* members still at work */
    _Atomic uint32_t caller_sleeps;
    _Alignas(LINE) _Atomic uint32_t arrived;    /* barrier: how many are in it */
    _Alignas(LINE) _Atomic uint32_t generation; /* barrier: how often it opened */
    _Atomic uint32_t barrier_sleepers;
    _Alignas(LINE) int n;
    WfTeamFn fn;
    void *arg;
    WfThreadMode mode;
    const WfHostThreads *host;
    bool stop;
    pthread_t *thread;
    struct Member *member;
};

typedef struct Member {
    WfTeam *team;
    int index;
} Member;

static void relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

static void futex_wait(_Atomic uint32_t *word, uint32_t value)
{
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
}

static void futex_wake(_Atomic uint32_t *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT32_MAX, NULL, NULL, 0);
}

/* Until *word differs from `value`. The sleeper counts itself first and looks again (futex compares in the
 * kernel): whoever changes the word afterwards sees the count and wakes. */
static void wait_change(_Atomic uint32_t *word, uint32_t value, _Atomic uint32_t *sleepers)
{
    for (int i = 0; i < SPINS; i++) {
        if (atomic_load_explicit(word, memory_order_acquire) != value)
            return;
        relax();
    }
    atomic_fetch_add(sleepers, 1);
    while (atomic_load(word) == value)
        futex_wait(word, value);
    atomic_fetch_sub(sleepers, 1);
}

/* What the caller's thread was before it became member 0: the host program's own computations go on as it set them. */
typedef struct { unsigned csr; int mode; } Before;

static Before enter(const WfTeam *t)
{
    Before b = {0};
#if defined(__x86_64__)
    b.csr = _mm_getcsr();
    _mm_setcsr(0x1f80); /* round to nearest, denormals kept, no traps: the same bits on every member */
#endif
    if (t->mode)
        b.mode = t->mode(1);
    return b;
}

static void leave(const WfTeam *t, Before b)
{
#if defined(__x86_64__)
    _mm_setcsr(b.csr);
#endif
    if (t->mode)
        t->mode(b.mode);
}

static void *member_main(void *p)
{
    Member *m = p;
    WfTeam *t = m->team;
    enter(t);
    for (uint32_t seen = 0;; seen++) {
        wait_change(&t->epoch, seen, &t->sleepers);
        if (t->stop)
            return NULL;
        t->fn(t->arg, m->index, t->n);
        if (atomic_fetch_sub(&t->pending, 1) == 1 && atomic_load(&t->caller_sleeps))
            futex_wake(&t->pending);
    }
}

static void start(WfTeam *t)
{
    atomic_fetch_add(&t->epoch, 1);
    if (atomic_load(&t->sleepers))
        futex_wake(&t->epoch);
}

static void nothing(void *arg, int thread, int n)
{
    (void)arg, (void)thread, (void)n;
}

WfTeam *wf_team_new(WfCtx *ctx, int n, WfThreadMode mode) { return wf_team_of_host(ctx, n, mode, NULL); }

WfTeam *wf_team_of_host(WfCtx *ctx, int n, WfThreadMode mode, const WfHostThreads *host)
{
    n = n < 1 ? 1 : n;
    char *block = wf_sys_alloc(sizeof(WfTeam) + LINE + (size_t)n * (sizeof(Member) + sizeof(pthread_t)));
    if (!block)
        wf_fail(ctx, WF_E_MEMORY, "out of memory for a team of %d threads", n);
    /* wf_sys_alloc aligns to 16 only; the team starts at the next line and remembers nothing: see
     * wf_team_free */
    WfTeam *t = (WfTeam *)(((uintptr_t)block + LINE) & ~(uintptr_t)(LINE - 1));
    ((void **)t)[-1] = block;
    t->thread = (pthread_t *)(t + 1);
    t->member = (Member *)(t->thread + n);
    t->mode = mode;
    t->host = host;
    t->n = host ? n : 1;
    for (int i = 1; i < n && !host; i++) {
        t->member[i] = (Member){t, i};
        int err = pthread_create(&t->thread[i], NULL, member_main, &t->member[i]);
        if (err) {
            wf_team_free(t);
            wf_fail(ctx, WF_E_RANK_START, "cannot start thread %d of %d (error %d)", i + 1, n, err);
        }
        t->n = i + 1;
    }
    wf_team_run(t, nothing, NULL); /* until every member has entered: later nobody allocates */
    return t;
}

void wf_team_alone(WfTeam *t, WfTeamFn fn, void *arg)
{
    Before b = enter(t);
    fn(arg, 0, 1);
    leave(t, b);
}

static void run_all(WfTeam *t, WfTeamFn fn, void *arg)
{
    t->fn = fn;
    t->arg = arg;
    atomic_store(&t->pending, (uint32_t)t->n - 1);
    start(t);
    fn(arg, 0, t->n);
    for (int i = 0; i < SPINS; i++) {
        if (!atomic_load_explicit(&t->pending, memory_order_acquire))
            return;
        relax();
    }
    atomic_store(&t->caller_sleeps, 1);
    for (uint32_t left; (left = atomic_load(&t->pending));)
        futex_wait(&t->pending, left);
    atomic_store(&t->caller_sleeps, 0);
}

static void as_member(void *team)
{
    WfTeam *t = team;
    int index = t->host->index();
    if (t->host->count() == t->n) {
        Before b = enter(t);
        t->fn(t->arg, index, t->n);
        leave(t, b);
    } else if (index == 0) {
        wf_team_alone(t, t->fn, t->arg);
    }
}

void wf_team_run(WfTeam *t, WfTeamFn fn, void *arg)
{
    if (t->n == 1) {
        wf_team_alone(t, fn, arg);
        return;
    }
    if (t->host) {
        t->fn = fn;
        t->arg = arg;
        t->host->run(t->n, as_member, t);
        return;
    }
    Before b = enter(t);
    run_all(t, fn, arg);
    leave(t, b);
}

void wf_team_barrier(WfTeam *t)
{
    if (t->n == 1)
        return;
    uint32_t generation = atomic_load(&t->generation);
    if (atomic_fetch_add(&t->arrived, 1) + 1 < (uint32_t)t->n) {
        wait_change(&t->generation, generation, &t->barrier_sleepers);
        return;
    }
    atomic_store(&t->arrived, 0);
    atomic_fetch_add(&t->generation, 1);
    if (atomic_load(&t->barrier_sleepers))
        futex_wake(&t->generation);
}

void wf_team_free(WfTeam *t)
{
    if (!t)
        return;
    t->stop = true;
    start(t);
    for (int i = 1; i < t->n && !t->host; i++)
        pthread_join(t->thread[i], NULL);
    wf_sys_free(((void **)t)[-1]);
}
