/* Opening and closing a world: which transport, the ranks' presence, their death watch, groups. */
#include "comm/private.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

/* ---- options ---- */

static double seconds_option(WfCtx *ctx, double given, const char *name, double fallback)
{
    const char *text = wf_env(name);
    char *end;
    if (given > 0)
        return given;
    if (!text || !*text)
        return fallback;
    double v = strtod(text, &end);
    if (*end || !(v > 0) || v > 1e9)
        wf_fail(ctx, WF_E_ENVIRONMENT_VALUE, "%s=%s is no number of seconds above 0", name, text);
    return v;
}

static WfCommKind kind_option(WfCtx *ctx, const WfCommOptions *o)
{
    const char *text = wf_env("WEFT_COMM");
    if (o->kind != WF_COMM_AUTO || !text || !*text || !strcmp(text, "auto"))
        return o->kind;
    if (strcmp(text, "local") && strcmp(text, "mpi"))
        wf_fail(ctx, WF_E_ENVIRONMENT_VALUE, "WEFT_COMM=%s: there are local, mpi and auto", text);
    return !strcmp(text, "mpi") ? WF_COMM_MPI : WF_COMM_LOCAL;
}

/* ---- peers ---- */

static void watch_peers(WfComm *c)
{
    if (c->launched)
        return;
    c->peer_fd = WF_NEWN(c->arena, int, (size_t)c->size);
    memset(c->peer_fd, -1, (size_t)c->size * sizeof(int));
}

/* Whether the process of rank r has ended. Its descriptor is opened when the rank is first seen here. */
static bool has_ended(WfComm *c, int r)
{
    int *fd = c->peer_fd ? &c->peer_fd[r] : NULL, pid = atomic_load(&c->cell_of[r]->pid);
    if (!fd || pid <= 0 || atomic_load(&c->shared.head->watcher))
        return false;
    if (*fd < 0 && (*fd = (int)syscall(SYS_pidfd_open, pid, 0)) >= 0)
        fcntl(*fd, F_SETFD, FD_CLOEXEC);
    else if (*fd < 0)
        return errno == ESRCH;
    return poll(&(struct pollfd){.fd = *fd, .events = POLLIN}, 1, 0) > 0;
}

void wf_check_peers(WfComm *c)
{
    if (wf_failed(&c->shared))
        return;
    wf_watch_tick(&c->watch);
    for (int r = 0; r < c->size; r++) {
        WfRankCell *cell = c->cell_of[r];
        char what[96];
        if (!cell || r == c->rank || atomic_load(&cell->leaving))
            continue;
        double silent = wf_watch_silence(&c->watch, cell);
        snprintf(what, sizeof what, "has not moved for %.1f s (stopped, or starved of time)", silent);
        if (has_ended(c, r) && !atomic_load(&cell->leaving)) /* it may have left in order since */
            wf_fail_lost(&c->shared, cell, cell->pid, c->rank, "has ended");
        else if (silent > c->options.stall)
            wf_fail_lost(&c->shared, cell, cell->pid, c->rank, what);
    }
    if (c->launched && getppid() != c->launcher_pid)
        wf_fail_world(&c->shared, -1, c->rank, false, "the launcher of the ranks has ended", NULL, NULL);
}

void wf_raise_failure(WfComm *c)
{
    const WfFailure *f = &c->shared.head->failure;
    wf_wait_failure(&c->shared);
    if (f->own && f->culprit != c->rank)
        wf_fail_at(c->ctx, WF_E_RANK_FAILED, f->place[0] ? f->place : NULL, f->hint[0] ? f->hint : NULL,
                   "rank %d failed: %s", f->culprit, f->message);
    wf_fail_at(c->ctx, WF_E_RANK_FAILED, f->place[0] ? f->place : NULL, f->hint[0] ? f->hint : NULL, "%s",
               f->message);
}

void wf_fail_missing(WfComm *c, const WfFlying *f, double seconds)
{
    bool *missing = wf_sys_alloc((size_t)c->size);
    char text[900], place[NODE_TEXT + 128];
    const char *node = f->op.node ? f->op.node : "an unnamed node";
    int culprit = -1;
    size_t n = (size_t)snprintf(text, sizeof text,
                                "%s at %s has waited %.1f s; missing: ", wf_collective_name(f->op.kind), node,
                                seconds);
    if (missing && f->posted)
        c->transport->missing(c, f, missing);
    for (int i = 0, shown = 0; missing && i < f->group->n; i++) {
        char who[NODE_TEXT + 160];
        int r = f->group->ranks[i];
        if (!missing[i] || r == c->rank)
            continue;
        culprit = culprit < 0 ? r : culprit;
        if (c->cell_of[r])
            wf_rank_text(c->cell_of[r], who, sizeof who);
        else
            snprintf(who, sizeof who, "rank %d", r);
        if (n < sizeof text - 1)
            n += (size_t)snprintf(text + n, sizeof text - n, "%s%s", shown++ ? "; " : "", who);
    }
    if (culprit < 0)
        snprintf(text + n, sizeof text - n, "collectives of group %s that were started before it",
                 f->group->name);
    snprintf(place, sizeof place, "at %s (step %lld), group %s", node, (long long)f->op.step, f->group->name);
    wf_fail_world(&c->shared, culprit, c->rank, false, text, place,
                  "A longer wait is allowed by WEFT_COMM_TIMEOUT (seconds).");
    wf_sys_free(missing);
}

/* ---- groups ---- */

WfGroup *wf_group_new(WfComm *c, const char *name, const int *ranks, int n)
{
    WfGroup *g = wf_arena_alloc(c->arena, sizeof *g);
    g->comm = c;
    g->name = wf_arena_strdup(c->arena, name);
    g->n = n;
    g->rank = -1;
    g->ranks = WF_NEWN(c->arena, int, (size_t)n);
    for (int i = 0; i < n; i++) {
        g->ranks[i] = ranks ? ranks[i] : i;
        if (g->ranks[i] == c->rank)
            g->rank = i;
        if (g->ranks[i] < 0 || g->ranks[i] >= c->size || (i && g->ranks[i] <= g->ranks[i - 1]))
            wf_fail(c->ctx, WF_E_RANK_GROUP, "group %s: ranks must ascend and lie within the world of %d",
                    name, c->size);
    }
    g->id = c->n_groups++;
    if (g->id >= WF_COMM_MAX_GROUPS)
        wf_fail(c->ctx, WF_E_RANK_LIMIT, "group %s is one too many; a world has at most %d", name,
                WF_COMM_MAX_GROUPS);
    if (g->rank < 0)
        return NULL;
    if (c->size > 1)
        c->transport->group(c, g);
    g->next = c->groups;
    __atomic_store_n(&c->groups, g, __ATOMIC_RELEASE); /* the communication thread walks the list */
    return g;
}

WfGroup *wf_comm_group(WfComm *c, const char *name, const int *ranks, int n)
{
    for (WfGroup *g = c->groups; g; g = g->next) {
        if (strcmp(g->name, name))
            continue;
        if (g == c->control || g->n != n || memcmp(g->ranks, ranks, (size_t)n * sizeof *ranks))
            wf_fail(c->ctx, WF_E_RANK_GROUP, "group %s exists, with other ranks", name);
        return g;
    }
    if (n < 1)
        wf_fail(c->ctx, WF_E_RANK_GROUP, "group %s has no ranks", name);
    return wf_group_new(c, name, ranks, n);
}

WfGroup *wf_comm_world(WfComm *c)
{
    return c->world;
}
int wf_group_rank(const WfGroup *g)
{
    return g->rank;
}
int wf_group_size(const WfGroup *g)
{
    return g->n;
}

/* ---- opening ---- */

/* On the way out after an error. Without a launcher of ours the rank that found the failure speaks, once for
 * all ranks of its host. */
static void abandon(WfComm *c, WfDiag *why)
{
    bool mine = wf_fail_world(&c->shared, c->rank, c->rank, true, why->message, why->place, why->hint);
    wf_wait_failure(&c->shared);
    const WfFailure *f = &c->shared.head->failure;
    bool speaker = mine || (f->reporter == c->rank && !f->own);
    if (!c->launched)
        wf_error_file(f->message, f->place, f->hint, speaker);
    why->told = c->launched || !speaker;
}

static void release(void *p)
{
    WfComm *c = p;
    WfArena *a = c->arena;
    if (c->closed)
        return;
    c->closed = true;
    if (!c->orderly && c->shared.head && c->size > 1 && c->ctx->diag.code != WEFT_OK)
        abandon(c, &c->ctx->diag);
    if (c->stopped)
        c->ctx->diag.told = c->launched || c->rank;
    if (c->cell)
        atomic_store(&c->cell->leaving, 1);
    wf_engine_close(c);
    if (c->transport && c->transport->leave)
        c->transport->leave(c, c->shared.head && wf_failed(&c->shared));
    for (int r = 0; c->peer_fd && r < c->size; r++)
        if (c->peer_fd[r] >= 0)
            close(c->peer_fd[r]);
    wf_unbind_cores(c);
    wf_watch_end(c, !c->orderly || wf_failed(&c->shared));
    if (c->trace)
        wf_remove_trace(c->trace);
    wf_shared_close(&c->shared);
    wf_arena_free(a);
}

/* Until every rank of the world is here. */
static void gather(WfComm *c)
{
    double begun = wf_now(), until = begun + c->options.start;
    for (int i = 0;; i++) {
        int missing = -1, count = 0;
        for (int r = 0; r < c->size; r++)
            if (!atomic_load(&c->cell_of[r]->pid)) {
                missing = missing < 0 ? r : missing;
                count++;
            }
        if (missing < 0)
            return;
        if (wf_failed(&c->shared))
            wf_raise_failure(c);
        if (wf_now() > until) {
            char text[256];
            snprintf(text, sizeof text, "%.1f s after the start %d of %d ranks %s not come, first rank %d",
                     c->options.start, count, c->size, count == 1 ? "has" : "have", missing);
            wf_fail_world(&c->shared, missing, c->rank, false, text, NULL,
                          "Look at the output of the ranks that are missing.");
            wf_raise_failure(c);
        }
        usleep(i < 50 ? 200 : 2000);
    }
}

static void describe(WfComm *c)
{
    WfStr s = {.arena = c->arena};
    wf_str_printf(&s, "rank %d of %d, ", c->rank, c->size);
    if (!c->launcher)
        wf_str_puts(&s, "started alone, ");
    else
        wf_str_printf(&s, "launched by %s (%s), transport %s, ", c->launcher, c->launcher_var,
                      c->transport->name);
    wf_bind_text(c, &s);
    wf_str_printf(&s, ", %d thread%s", c->threads, c->threads == 1 ? "" : "s");
    c->describe = s.at;
}

static WfComm *new_comm(WfCtx *ctx, const WfCommOptions *options)
{
    WfArena *a = wf_arena_new(ctx);
    WfComm *c = WF_NEW(a, WfComm);
    c->arena = a;
    c->ctx = ctx;
    c->defer = wf_defer(ctx, release, c);
    if (options)
        c->options = *options;
    WfCommOptions *o = &c->options;
    o->kind = kind_option(ctx, o);
    o->timeout = seconds_option(ctx, o->timeout, "WEFT_COMM_TIMEOUT", 300);
    o->stall = seconds_option(ctx, o->stall, "WEFT_COMM_STALL", 30);
    if (!(o->start > 0))
        o->start = o->timeout < 60 ? o->timeout : 60;
    return c;
}

static void open_one(WfComm *c)
{
    c->size = c->local_size = 1;
    c->rank = c->local_rank = 0;
    wf_shared_create(c->ctx, 1, false, &c->shared);
    c->shared.head->world = 1;
}

static void choose_transport(WfComm *c, const WfLaunchInfo *info)
{
    bool several_hosts = c->local_size != c->size && info->by != WF_BY_PMIX;
    /* srun starts programs of any kind: on one host its ranks need no MPI, whether or which one is there. */
    bool mpi_launcher = info->by >= WF_BY_OPENMPI && (info->by != WF_BY_SLURM || several_hosts);
    bool mpi_wanted = c->options.kind == WF_COMM_MPI || (c->options.kind == WF_COMM_AUTO && mpi_launcher);
    if (mpi_wanted && info->by == WF_BY_SLURM && !info->speaks_mpi)
        wf_fail_at(c->ctx, WF_E_TRANSPORT, NULL,
                   "Start it as: srun --mpi=pmix weft ... (Open MPI), or srun --mpi=pmi2 weft ... (MPICH)",
                   "%d ranks, of which %d on this host: MPI is needed, but srun started them without it (no PMIX_RANK, no PMI_RANK)",
                   c->size, c->local_size);
    if (c->options.kind == WF_COMM_MPI && (info->by == WF_BY_WEFT || info->by == WF_BY_TORCHRUN))
        wf_fail_at(c->ctx, WF_E_TRANSPORT, NULL, "Start it as: mpirun -n N weft ...",
                   "the transport mpi needs an MPI launcher, but %s launched this rank", info->name);
    if (several_hosts && (info->by == WF_BY_TORCHRUN || c->options.kind == WF_COMM_LOCAL)) {
        char hint[160];
        snprintf(hint, sizeof hint, "Start it as: mpirun -n %d --host HOST1:%d,HOST2:%d weft ...", c->size,
                 c->local_size, c->local_size);
        wf_fail_at(c->ctx, WF_E_TRANSPORT, NULL, hint,
                   "%d ranks, of which %d on this host: several hosts need MPI, and %s launched this one%s",
                   c->size, c->local_size, info->name,
                   c->options.kind == WF_COMM_LOCAL ? " with the transport local" : "");
    }
    if (mpi_wanted)
        wf_mpi_open(c, info, NULL);
    else if (info->by == WF_BY_PMIX)
        wf_fail(c->ctx, WF_E_TRANSPORT,
                "a PMIx launcher does not say how many ranks there are; use the transport mpi");
    else
        wf_local_open(c, info);
}

void wf_take_cell(WfComm *c, int i)
{
    c->cell = c->cell_of[c->rank] = wf_cell(&c->shared, i);
    atomic_store(&c->cell->rank, c->rank);
    atomic_store(&c->cell->alive, c->alive[0]);
    if (c->threaded)
        atomic_store(&c->cell->beat, wf_ns());
    atomic_store(&c->cell->pid, getpid());
}

static void set_up(WfComm *c, const WfLaunchInfo *info)
{
    c->launcher_pid = info->launcher_pid;
    c->cell_of = WF_NEWN(c->arena, WfRankCell *, (size_t)c->size);
    for (int r = 0; r < c->size; r++)
        c->cell_of[r] = c->together ? wf_cell(&c->shared, r) : NULL;
    if (c->options.watched && info->by == WF_BY_MPICH && c->size > 1 && !c->together)
        wf_watch_join(c);
    wf_take_cell(c, c->together ? c->rank : 0);
    if (c->together)
        gather(c);
    watch_peers(c);
    wf_bind_cores(c);
    /* Spinning helps when the peer runs at this moment; with more ranks than cores it keeps the peer from
     * running. */
    c->crowded = c->local_size > sysconf(_SC_NPROCESSORS_ONLN); /* of the host: the same on all its ranks */
    c->spins = c->crowded ? 1 : 2000;
    wf_engine_open(c);
    c->control = wf_group_new(c, "(control)", NULL, c->size);
    c->world = wf_group_new(c, "world", NULL, c->size);
    if (c->size > 1 && !c->together)
        wf_meet_by_message(c);
    if (c->alive[1] && c->shared.head->size > 1 && c->cell == wf_cell(&c->shared, 0))
        wf_watch_start(c);
    wf_engine_start(c);
    describe(c);
}

WfComm *wf_comm_open(WfCtx *ctx, const WfCommOptions *options)
{
    WfLaunchInfo info;
    wf_launch_info(ctx, &info);
    WfComm *c = new_comm(ctx, options);
    int want = c->options.nproc;
    c->rank = info.rank;
    c->size = info.size;
    c->local_rank = info.local_rank;
    c->local_size = info.local_size;
    c->launcher = info.by == WF_BY_NOBODY ? NULL : info.name;
    c->launcher_var = info.variable;
    c->launched = info.by == WF_BY_WEFT;
    if (c->launched) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* no rank outlives its launcher */
        fcntl(info.fd, F_SETFD, FD_CLOEXEC);
        if (getppid() != info.launcher_pid)
            wf_fail(ctx, WF_E_RANK_FAILED, "the launcher of this rank (pid %d) has ended", info.launcher_pid);
    }
    if (want > 0 && info.by != WF_BY_PMIX && want != info.size)
        wf_fail_at(ctx, WF_E_LAUNCHER, NULL,
                   c->launcher ? "Leave --nproc away: the launcher says how many ranks there are." : NULL,
                   "%d ranks were asked for, but %s started %d", want, c->launcher ? c->launcher : "nobody",
                   info.size);
    if (info.size == 1 && c->options.kind != WF_COMM_MPI && info.by != WF_BY_WEFT)
        open_one(c);
    else
        choose_transport(c, &info);
    set_up(c, &info);
    return c;
}

WfComm *wf_comm_open_mpi(WfCtx *ctx, const WfCommOptions *options, void *comm)
{
    WfLaunchInfo info;
    wf_launch_info(NULL, &info);
    WfComm *c = new_comm(ctx, options);
    c->launcher = "its host program";
    c->launcher_var = "MPI communicator";
    wf_mpi_open(c, &info, comm);
    info.launcher_pid = 0;
    set_up(c, &info);
    return c;
}

WfComm *wf_comm_open_thread(WfCtx *ctx, const WfCommOptions *options, const WfShared *shared, int rank,
                            int size)
{
    WfLaunchInfo info = {.rank = rank, .size = size, .fd = -1};
    WfComm *c = new_comm(ctx, options);
    c->rank = c->local_rank = rank;
    c->size = c->local_size = size;
    c->launcher = c->launcher_var = "a test";
    c->shared = *shared;
    c->shared.borrowed = c->options.unbound = true;
    wf_local_open(c, &info);
    set_up(c, &info);
    return c;
}

/* ---- leaving ---- */

static void say_goodbye(void *p)
{
    WfComm *c = p;
    char mine = 0, *all = wf_arena_alloc(c->arena, (size_t)c->size);
    wf_comm_exchange(c, &mine, 1, all, 0, "the end");
}

void wf_comm_stop(WfComm *c)
{
    if (c->size > 1 && !wf_failed(&c->shared) && wf_guard(c->ctx, say_goodbye, c) != WEFT_OK)
        wf_log(c->ctx, WF_LOG_DEBUG, "rank %d stops alone: %s", c->rank, c->ctx->diag.message);
    c->orderly = c->stopped = true;
}

void wf_comm_close(WfComm *c)
{
    if (!c)
        return;
    WfCtx *ctx = c->ctx;
    if (c->size > 1 && !wf_failed(&c->shared)) {
        atomic_store(&c->cell->leaving, 1);
        if (wf_guard(ctx, say_goodbye, c) != WEFT_OK)
            wf_log(ctx, WF_LOG_DEBUG, "rank %d leaves alone: %s", c->rank, ctx->diag.message);
    }
    c->orderly = true;
    wf_defer_run(c->defer);
}

int wf_comm_rank(const WfComm *c)
{
    return c->rank;
}
int wf_comm_size(const WfComm *c)
{
    return c->size;
}
int wf_comm_local_size(const WfComm *c)
{
    return c->local_size;
}
int wf_comm_threads(const WfComm *c)
{
    return c->threads;
}
const char *wf_comm_describe(const WfComm *c)
{
    return c->describe;
}

void wf_comm_trace(WfComm *c, const char *dir)
{
    if (c->launched || c->rank || c->size == 1)
        return;
    wf_write_trace(c->ctx, dir);
    c->trace = wf_arena_strdup(c->arena, dir);
}

void *wf_comm_arena(WfComm *c, size_t bytes)
{
    if (c->size > 1)
        return c->transport->arena(c, bytes);
    char *p = wf_arena_alloc(c->arena, bytes + LINE);
    return p + (-(uintptr_t)p & (LINE - 1));
}

void wf_comm_mark(WfComm *c, WfFlight state, const char *node, int64_t step)
{
    wf_flight_write(&c->cell->flight, (uint32_t)state, node, step);
}
