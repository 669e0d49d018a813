/* A process that watches over the ranks of one host under a launcher that ends all of them, by SIGKILL and within milliseconds,
 * when one dies (MPICH's mpirun): none of them lives to say which one it was, and where. It is no rank: it holds the memory of the
 * host's ranks and waits for their ends, in a session of its own, so that the launcher does not know it. Its stderr is that of the
 * rank that started it; the launcher stays until all have closed it. It ends behind the last rank.
 *
 * What tells of an end is a pipe that only the rank writes. The launcher, too, notices by what the rank's end closes, and the ends
 * of the others follow; epoll keeps the order, however late the watcher runs. Processes that are told by their number (pidfds) are
 * ended only when the last of their threads is, and the others may be faster at that. */
#include "comm/private.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

enum { MEMORY = 3 }; /* descriptor of the watcher */

void wf_watch_join(WfComm *c)
{
    if (pipe2(c->alive, O_CLOEXEC) != 0)
        wf_fail(c->ctx, WF_E_RANK_START, "no pipe can be had: %s", strerror(errno));
}

void wf_watch_start(WfComm *c)
{
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attr;
    sigset_t none;
    char program[4096], number[16], *argv[] = {"weft", "watch", number, NULL};
    pid_t pid = 0;
    snprintf(number, sizeof number, "%d", MEMORY);
    wf_own_program(program, sizeof program);
    sigemptyset(&none);
    posix_spawn_file_actions_init(&files);
    posix_spawnattr_init(&attr);
    posix_spawn_file_actions_adddup2(&files, c->shared.fd, MEMORY);
    posix_spawn_file_actions_addclosefrom_np(&files, MEMORY + 1); /* the launcher's, too, who would take it for a rank */
    posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&files, 1, "/dev/null", O_WRONLY, 0);
    posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK);
    posix_spawnattr_setsigmask(&attr, &none);
    int err = posix_spawn(&pid, program, &files, &attr, argv, environ);
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&attr);
    if (err) {
        wf_log(c->ctx, WF_LOG_DEBUG, "rank %d: nobody watches over the ranks of this host: %s", c->rank, strerror(err));
        return;
    }
    c->watcher = pid;
    atomic_store(&c->shared.head->watcher, pid);
}

void wf_watch_end(WfComm *c, bool failed)
{
    if (c->alive[1]) {
        close(c->alive[0]);
        close(c->alive[1]);
    }
    if (!c->watcher || failed) /* it may have to speak */
        return;
    kill(c->watcher, SIGKILL);
    while (waitpid(c->watcher, NULL, 0) < 0 && errno == EINTR)
        ;
}

/* The first end out of order, if nobody has spoken of a failure before. */
static void judge(WfCtx *ctx, const WfShared *s, WfRankCell *cell)
{
    const WfFailure *f = &s->head->failure;
    if (!atomic_load(&cell->leaving) && wf_fail_lost(s, cell, cell->pid, -1, "has ended"))
        wf_fail_at(ctx, WF_E_RANK_FAILED, f->place[0] ? f->place : NULL, NULL, "%s", f->message);
}

typedef struct {
    WfRankCell *cell;
    int fd;
    bool seen;
} Watched;

/* Opens the pipes of those who have come since the last look. How many have not. */
static int meet(WfCtx *ctx, const WfShared *s, Watched *w, int queue, int *living)
{
    int absent = 0;
    for (int i = 0; i < s->head->size; i++) {
        char path[64];
        int pid = atomic_load(&w[i].cell->pid);
        absent += !pid;
        if (!pid || w[i].seen)
            continue;
        snprintf(path, sizeof path, "/proc/%d/fd/%d", pid, atomic_load(&w[i].cell->alive));
        w[i].seen = true;
        w[i].fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
        if (w[i].fd < 0 || epoll_ctl(queue, EPOLL_CTL_ADD, w[i].fd, &(struct epoll_event){.data.ptr = &w[i]}) != 0)
            judge(ctx, s, w[i].cell); /* it has ended since */
        else
            ++*living;
    }
    return absent;
}

void wf_comm_watch(WfCtx *ctx, int fd)
{
    WfShared s;
    wf_shared_attach(ctx, fd, 0, &s);
    Watched *w = WF_NEWN(ctx->arena, Watched, (size_t)s.head->size);
    int living = 0, absent, queue = epoll_create1(EPOLL_CLOEXEC);
    for (int i = 0; i < s.head->size; i++)
        w[i].cell = wf_cell(&s, i);
    for (absent = meet(ctx, &s, w, queue, &living); living; absent = meet(ctx, &s, w, queue, &living)) {
        struct epoll_event ended[WF_COMM_MAX_LOCAL]; /* in the order in which they have ended */
        int n = epoll_wait(queue, ended, WF_COMM_MAX_LOCAL, absent ? 50 : -1);
        for (int i = 0; i < n; i++) {
            Watched *one = ended[i].data.ptr;
            judge(ctx, &s, one->cell);
            close(one->fd);
            living--;
        }
    }
    close(queue);
    wf_shared_close(&s);
}
