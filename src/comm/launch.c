/* The launcher: starts the ranks of one host and watches over them. It is no rank and has no threads; it
 * waits in poll() on a descriptor per rank (pidfd), so a death is known at once, and looks five times a
 * second at what only shows in the shared memory: failures that a rank recorded, hearts that do not beat.
 * Ranks get the shared memory as an inherited descriptor and are killed by the kernel when the launcher dies
 * (PR_SET_PDEATHSIG). The first failure counts; what the others do afterwards is its consequence and is not
 * told. */
#include "comm/private.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

typedef struct {
    pid_t pid;
    int fd, status;
    bool running;
    WfTee *tee; /* NULL: stderr is the launcher's */
} Child;
typedef struct {
    WfCtx *ctx;
    WfLaunch l;
    WfShared shared;
    Child *child;
    char program[4096];
    int running, interrupt;
    WfWatch silence;
    double stall, grace, term_at; /* term_at: when SIGTERM was sent; 0: not yet */
    bool killed;
} Launcher;

/* ---- ending ---- */

static void signal_all(Launcher *x, int sig)
{
    for (int r = 0; r < x->l.nproc; r++)
        if (x->child[r].running)
            kill(x->child[r].pid, sig);
}

static void reap(Launcher *x, int r)
{
    Child *k = &x->child[r];
    int status;
    pid_t got = waitpid(k->pid, &status, WNOHANG);
    if (got == 0 || (got < 0 && errno == EINTR))
        return;
    k->status = got < 0 ? 0 : status;
    k->running = false;
    x->running--;
    if (k->fd >= 0)
        close(k->fd);
    k->fd = -1;
}

/* Leaving early (also by an error half-way through the start): no rank may stay. */
static void end_all(void *p)
{
    Launcher *x = p;
    signal_all(x, SIGKILL);
    for (int r = 0; r < x->l.nproc; r++)
        while (x->child[r].running && waitpid(x->child[r].pid, NULL, 0) < 0 && errno == EINTR)
            ;
    wf_shared_close(&x->shared);
    if (x->l.out)
        wf_remove_trace(x->l.out);
}

/* ---- starting ---- */

/* terminal: NULL, or for the rank whose stderr is a pipe to a terminal. */
static char **environment(WfArena *a, char *world, char *terminal)
{
    int n = 0, k = 0;
    while (environ[n])
        n++;
    char **env = WF_NEWN(a, char *, (size_t)n + 3);
    for (int i = 0; i < n; i++)
        if (strncmp(environ[i], "WEFT_WORLD=", 11) && strncmp(environ[i], "WEFT_TERMINAL=", 14))
            env[k++] = environ[i];
    env[k++] = world;
    env[k] = terminal;
    return env;
}

static char *terminal(WfArena *a)
{
    struct winsize w = {0};
    return isatty(2) ? wf_arena_printf(a, "WEFT_TERMINAL=%d", !ioctl(2, TIOCGWINSZ, &w) && w.ws_col ? w.ws_col : 80) : NULL;
}

static void spawn(Launcher *x, WfArena *a, int r)
{
    char world[96];
    snprintf(world, sizeof world, "WEFT_WORLD=%d/%d/%d/%d", r, x->l.nproc, x->shared.fd, (int)getpid());
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attr;
    sigset_t none, defaults;
    sigemptyset(&none);
    sigemptyset(&defaults);
    sigaddset(&defaults, SIGINT);
    sigaddset(&defaults, SIGTERM);
    sigaddset(&defaults, SIGPIPE);
    posix_spawn_file_actions_init(&files);
    posix_spawnattr_init(&attr);
    posix_spawn_file_actions_adddup2(&files, x->shared.fd, x->shared.fd); /* onto itself: it survives exec */
    posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    posix_spawnattr_setpgroup(&attr, 0);
    posix_spawnattr_setsigmask(&attr, &none);
    posix_spawnattr_setsigdefault(&attr, &defaults);
    Child *k = &x->child[r];
    if (k->tee)
        posix_spawn_file_actions_adddup2(&files, wf_tee_write_end(k->tee), 2);
    int err = posix_spawn(&k->pid, x->program, &files, &attr, x->l.argv,
                          environment(a, world, k->tee && !r ? terminal(a) : NULL));
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&attr);
    if (err)
        wf_fail(x->ctx, WF_E_RANK_START, "rank %d cannot be started: %s", r, strerror(err));
    k->running = true;
    x->running++;
    if (k->tee)
        wf_tee_started(k->tee);
    k->fd = (int)syscall(SYS_pidfd_open, k->pid, 0);
    if (k->fd >= 0)
        fcntl(k->fd, F_SETFD, FD_CLOEXEC);
}

/* ---- watching ---- */

static void how_it_ended(const Launcher *x, int r, char *out, size_t size)
{
    int status = x->child[r].status;
    if (WIFSIGNALED(status))
        snprintf(out, size, "was killed by signal %d (%s)", WTERMSIG(status), strsignal(WTERMSIG(status)));
    else
        snprintf(out, size, "ended with exit code %d%s", WEXITSTATUS(status),
                 WEXITSTATUS(status) ? "" : " before the other ranks");
}

static void lost(Launcher *x, int r, const char *what)
{
    wf_fail_lost(&x->shared, wf_cell(&x->shared, r), (int)x->child[r].pid, -1, what);
}

/* A rank has ended. That is a failure unless it did so in order: code 0, after wf_comm_close began, or
 * without ever having opened the world (a program that only prints its help). */
static void judge(Launcher *x, int r)
{
    WfRankCell *cell = wf_cell(&x->shared, r);
    int status = x->child[r].status;
    char what[160];
    bool fine = WIFEXITED(status) && WEXITSTATUS(status) == 0 &&
                (atomic_load(&cell->leaving) || !atomic_load(&cell->pid));
    if (fine || x->interrupt || wf_failed(&x->shared))
        return;
    how_it_ended(x, r, what, sizeof what);
    lost(x, r, what);
}

static void look(Launcher *x)
{
    wf_watch_tick(&x->silence);
    for (int r = 0; r < x->l.nproc && !wf_failed(&x->shared); r++) {
        double silent = wf_watch_silence(&x->silence, wf_cell(&x->shared, r));
        if (!x->child[r].running || silent <= x->stall)
            continue;
        char what[96];
        snprintf(what, sizeof what, "has not moved for %.1f s (stopped, or starved of time)", silent);
        lost(x, r, what);
    }
}

static void pass_on(Launcher *x)
{
    int sig = x->l.interrupt ? *x->l.interrupt : 0;
    if (!sig || x->interrupt)
        return;
    x->interrupt = sig;
    signal_all(x, sig);
}

/* After a failure: SIGTERM once the ranks have had half a second to end by themselves, SIGKILL after the
 * grace. SIGCONT lets a stopped rank see its SIGTERM. */
static void press(Launcher *x, double *failed_at)
{
    double now = wf_now();
    if (!wf_failed(&x->shared))
        return;
    if (*failed_at == 0)
        *failed_at = now;
    if (!x->term_at && now - *failed_at > 0.5) {
        x->term_at = now;
        signal_all(x, SIGTERM);
        signal_all(x, SIGCONT);
    } else if (x->term_at && !x->killed && now - x->term_at > x->grace) {
        x->killed = true;
        signal_all(x, SIGKILL);
    }
}

static void watch(Launcher *x, WfArena *a)
{
    int n = x->l.nproc;
    struct pollfd *p = WF_NEWN(a, struct pollfd, (size_t)n * 2);
    double failed_at = 0;
    while (x->running) {
        for (int r = 0; r < n; r++) {
            WfTee *tee = x->child[r].tee;
            p[r] = (struct pollfd){.fd = x->child[r].running ? x->child[r].fd : -1, .events = POLLIN};
            p[n + r] = (struct pollfd){.fd = tee ? wf_tee_read_end(tee) : -1, .events = POLLIN};
        }
        poll(p, (nfds_t)n * 2, wf_failed(&x->shared) ? 20 : 100);
        pass_on(x);
        for (int r = 0; r < n; r++)
            if (x->child[r].tee)
                wf_tee_read(x->child[r].tee);
        for (int r = 0; r < x->l.nproc; r++) {
            if (!x->child[r].running)
                continue;
            reap(x, r);
            if (!x->child[r].running)
                judge(x, r);
        }
        look(x);
        press(x, &failed_at);
    }
    for (int r = 0; r < n; r++)
        if (x->child[r].tee)
            wf_tee_read(x->child[r].tee);
}

static void WF_NORETURN raise_failure(Launcher *x)
{
    const WfFailure *f = &x->shared.head->failure;
    wf_wait_failure(&x->shared);
    const char *place = f->place[0] ? f->place : NULL, *hint = f->hint[0] ? f->hint : NULL;
    char text[1200];
    if (f->own)
        snprintf(text, sizeof text, "rank %d (pid %d): %s", f->culprit, (int)x->child[f->culprit].pid,
                 f->message);
    else
        snprintf(text, sizeof text, "%s", f->message);
    wf_error_file(text, place, hint, true);
    wf_fail_at(x->ctx, WF_E_RANK_FAILED, place, hint, "%s", text);
}

static double stall_of(WfCtx *ctx, double given)
{
    const char *text = wf_env("WEFT_COMM_STALL");
    char *end;
    double v = given > 0 ? given : text && *text ? strtod(text, &end) : 30;
    if (!(v > 0))
        wf_fail(ctx, WF_E_ENVIRONMENT_VALUE, "WEFT_COMM_STALL=%s is no number of seconds above 0", text);
    return v;
}

/* /proc/self/exe itself would be "exe" in ps. */
void wf_own_program(char *out, size_t size)
{
    ssize_t n = readlink("/proc/self/exe", out, size - 1);
    out[n > 0 ? n : 0] = 0;
    if (n <= 0 || access(out, X_OK) != 0) /* replaced since: the running one is still there */
        snprintf(out, size, "/proc/self/exe");
}

int wf_launch(WfCtx *ctx, const WfLaunch *l)
{
    WfArena *a = wf_arena_scratch(ctx);
    Launcher *x = WF_NEW(a, Launcher);
    x->ctx = ctx;
    x->l = *l; /* a failure is cleaned up after when the caller's frame is gone */
    wf_own_program(x->program, sizeof x->program);
    if (l->program)
        snprintf(x->program, sizeof x->program, "%s", l->program);
    x->grace = l->grace > 0 ? l->grace : 5;
    x->stall = stall_of(ctx, l->stall);
    wf_shared_create(ctx, l->nproc, true, &x->shared);
    x->child = wf_sys_alloc((size_t)l->nproc * sizeof(Child));
    if (!x->child) {
        wf_shared_close(&x->shared);
        wf_fail(ctx, WF_E_MEMORY, "out of memory for %d ranks", l->nproc);
    }
    wf_arena_at_free(a, wf_sys_free, x->child);
    WfDefer *d = wf_defer(ctx, end_all, x);
    x->shared.head->launcher = (int)getpid();
    if (l->out)
        wf_write_trace(ctx, l->out);
    for (int r = 0; r < l->nproc; r++)
        x->child[r].tee = l->out ? wf_tee_open(ctx, a, l->out, r) : NULL;
    for (int r = 0; r < l->nproc; r++)
        spawn(x, a, r);
    watch(x, a);
    if (wf_failed(&x->shared) && !x->interrupt)
        raise_failure(x);
    int code = x->interrupt ? 128 + x->interrupt : 0;
    wf_defer_run(d);
    wf_arena_free(a);
    return code;
}
