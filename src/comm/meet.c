/* How ranks of one host find their shared memory when another launcher started them. Without MPI the first rank makes the
 * file and listens on an abstract socket, whose name is made of the user and of what the launcher gives all
 * ranks of one start; the others connect and receive the descriptor. Abstract names live in no folder, so
 * nothing is left behind. Both sides check that the other belongs to the same user. Over MPI messages say which process holds
 * the file. */
#include "comm/private.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

typedef struct {
    uint64_t magic;
    int32_t rank, size;
} Hello;
static const uint64_t hello_magic = 0x316c6c6568667765; /* "ewfhell1" */

static socklen_t address(const WfLaunchInfo *info, struct sockaddr_un *a)
{
    *a = (struct sockaddr_un){.sun_family = AF_UNIX};
    /* The key can be longer than a name may be: its hash stands for it. */
    int n = snprintf(a->sun_path + 1, sizeof a->sun_path - 1, "weft-%u-%016llx", (unsigned)getuid(),
                     (unsigned long long)wf_hash64(info->key, strlen(info->key), 0));
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
}

static bool same_user(int fd)
{
    struct ucred who;
    socklen_t n = sizeof who;
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &n) == 0 && who.uid == geteuid();
}

static bool readable(int fd, double until)
{
    double left = until - wf_now();
    struct pollfd p = {.fd = fd, .events = POLLIN};
    return left > 0 && poll(&p, 1, (int)(left * 1000) + 1) > 0;
}

static bool send_fd(int to, int fd)
{
    char byte = 1, space[CMSG_SPACE(sizeof fd)] = {0};
    struct iovec v = {&byte, 1};
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof space};
    struct cmsghdr *h = CMSG_FIRSTHDR(&m);
    h->cmsg_level = SOL_SOCKET;
    h->cmsg_type = SCM_RIGHTS;
    h->cmsg_len = CMSG_LEN(sizeof fd);
    memcpy(CMSG_DATA(h), &fd, sizeof fd);
    return sendmsg(to, &m, MSG_NOSIGNAL) == 1;
}

static int receive_fd(int from)
{
    char byte, space[CMSG_SPACE(sizeof(int))];
    int fd = -1;
    struct iovec v = {&byte, 1};
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof space};
    if (recvmsg(from, &m, MSG_CMSG_CLOEXEC) != 1)
        return -1;
    struct cmsghdr *h = CMSG_FIRSTHDR(&m);
    if (h && h->cmsg_level == SOL_SOCKET && h->cmsg_type == SCM_RIGHTS && h->cmsg_len == CMSG_LEN(sizeof fd))
        memcpy(&fd, CMSG_DATA(h), sizeof fd);
    return fd;
}

static void WF_NORETURN nobody_came(WfComm *c, const bool *here, double seconds)
{
    char list[256] = "";
    size_t n = 0;
    for (int r = 0; r < c->size && n < sizeof list - 12; r++)
        if (!here[r])
            n += (size_t)snprintf(list + n, sizeof list - n, "%s%d", n ? ", " : "", r);
    wf_fail_at(c->ctx, WF_E_RANKS_MISSING, NULL, "Look at the output of the ranks that are missing.",
               "%.1f s after the start these of %d ranks have not come: %s", seconds, c->size, list);
}

/* Rank 0: makes the memory, hands it to all others. */
static void receive_all(WfComm *c, int listener, double until)
{
    bool *here = WF_NEWN(c->arena, bool, (size_t)c->size);
    here[0] = true;
    for (int n = 1; n < c->size;) {
        Hello h;
        if (!readable(listener, until))
            nobody_came(c, here, c->options.start);
        int peer = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        if (peer < 0)
            continue;
        bool ok = same_user(peer) && readable(peer, wf_now() + 1) &&
                  recv(peer, &h, sizeof h, 0) == (ssize_t)sizeof h && h.magic == hello_magic;
        if (ok && (h.size != c->size || h.rank < 1 || h.rank >= c->size || here[h.rank])) {
            close(peer);
            wf_fail_at(c->ctx, WF_E_RANKS_MISSING, NULL,
                       "Give every start its own MASTER_PORT, and stop what is left of the last one.",
                       "a process that calls itself rank %d of %d came to a world of %d ranks%s", h.rank,
                       h.size, c->size,
                       h.rank >= 0 && h.rank < c->size && here[h.rank] ? ", where that rank is already" : "");
        }
        if (ok && send_fd(peer, c->shared.fd)) {
            here[h.rank] = true;
            n++;
        }
        close(peer);
    }
}

static void close_fd(void *p)
{
    close((int)(intptr_t)p);
}

static void first(WfComm *c, const WfLaunchInfo *info, double until)
{
    struct sockaddr_un a;
    socklen_t n = address(info, &a);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&a, n) != 0 || listen(fd, c->size) != 0) {
        int err = errno;
        if (fd >= 0)
            close(fd);
        wf_fail_at(c->ctx, WF_E_MPI, NULL,
                   err == EADDRINUSE ? "Another training uses this MASTER_PORT; choose another one." : NULL,
                   "rank 0 cannot listen for the other ranks: %s", strerror(err));
    }
    WfDefer *d = wf_defer(c->ctx, close_fd, (void *)(intptr_t)fd);
    wf_shared_create(c->ctx, c->size, true, &c->shared);
    receive_all(c, fd, until);
    wf_defer_run(d);
}

static void other(WfComm *c, const WfLaunchInfo *info, double until)
{
    struct sockaddr_un a;
    socklen_t n = address(info, &a);
    int memory = -1;
    while (memory < 0) {
        int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (fd >= 0 && connect(fd, (struct sockaddr *)&a, n) == 0 && same_user(fd)) {
            Hello h = {hello_magic, c->rank, c->size};
            if (send(fd, &h, sizeof h, MSG_NOSIGNAL) == (ssize_t)sizeof h && readable(fd, until))
                memory = receive_fd(fd);
        }
        if (fd >= 0)
            close(fd);
        if (memory < 0 && wf_now() > until)
            wf_fail_at(c->ctx, WF_E_RANKS_MISSING, NULL, "Look at the output of rank 0.",
                       "%.1f s after the start rank %d has not heard of rank 0", c->options.start, c->rank);
        if (memory < 0)
            usleep(5000);
    }
    wf_shared_attach(c->ctx, memory, c->size, &c->shared);
}

void wf_meet(WfComm *c, const WfLaunchInfo *info)
{
    double until = wf_now() + c->options.start;
    if (c->rank == 0)
        first(c, info, until);
    else
        other(c, info, until);
}

/* ---- by messages ---- */

typedef struct {
    uint64_t host;           /* of one number: where one process can open what another one holds */
    int32_t pid, fd, cells;  /* cells: of the memory that it made for its host; 0: none */
} Address;

static uint64_t this_host(void)
{
    struct {
        char boot[40];
        uint64_t processes, user;
    } id = {{0}, 0, geteuid()};
    struct stat st;
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    if (fd < 0 || read(fd, id.boot, sizeof id.boot) < 0 || stat("/proc/self/ns/pid", &st) != 0)
        id.processes = wf_ns() ^ (uint64_t)getpid() << 48; /* a host of its own */
    else
        id.processes = st.st_ino;
    if (fd >= 0)
        close(fd);
    return wf_hash64(&id, sizeof id, 0);
}

/* Who cannot open it (ranks in containers of their own, say) keeps the memory that it has, and is alone in it. */
static bool attach(WfComm *c, const Address *at)
{
    char path[64];
    WfShared found;
    snprintf(path, sizeof path, "/proc/%d/fd/%d", at->pid, at->fd);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) {
        wf_log(c->ctx, WF_LOG_DEBUG, "rank %d: %s: %s", c->rank, path, strerror(errno));
        return false;
    }
    wf_shared_attach(c->ctx, fd, at->cells, &found);
    wf_shared_close(&c->shared);
    c->shared = found;
    return true;
}

void wf_meet_by_message(WfComm *c)
{
    Address *all = WF_NEWN(c->arena, Address, (size_t)c->size);
    int cells = c->shared.head->size, holder = -1, n = 0;
    Address mine = {this_host(), getpid(), cells > 1 ? c->shared.fd : -1, cells > 1 ? cells : 0};
    wf_comm_exchange(c, &mine, sizeof mine, all, 0, "who is on which host");
    for (int r = c->size; r-- > 0;)
        if (all[r].host == mine.host) {
            n++;
            holder = all[r].cells ? r : holder;
        }
    if (holder < 0 || n > all[holder].cells || (holder != c->rank && !attach(c, &all[holder])))
        return;
    for (int r = 0, i = 1; r < c->size; r++) {
        if (all[r].host != mine.host)
            continue;
        int at = r == holder ? 0 : i++;
        c->cell_of[r] = wf_cell(&c->shared, at);
        atomic_store(&c->cell_of[r]->rank, r);
        if (r == c->rank)
            wf_take_cell(c, at);
    }
}

/* ---- the start of MPI ---- */

/* Whoever is about to start MPI has a name that the others of its host can look for. */
struct WfStart {
    int fd, rank, size; /* on this host */
    bool whole;         /* there is no other host */
    double seconds;
    char key[160];
    void (*hopeless)(const char *message, const char *hint);
    pthread_t thread;
};

static socklen_t name_of(const WfStart *s, int rank, struct sockaddr_un *a)
{
    WfLaunchInfo info;
    snprintf(info.key, sizeof info.key, "start-%.130s-%d", s->key, rank);
    return address(&info, a);
}

static bool has_come(const WfStart *s, int rank)
{
    struct sockaddr_un a;
    socklen_t n = name_of(s, rank, &a);
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    bool here = fd < 0 || connect(fd, (struct sockaddr *)&a, n) == 0;
    if (fd >= 0)
        close(fd);
    return here;
}

static void *start_main(void *p)
{
    WfStart *s = p;
    double first = s->seconds + (s->rank ? 3 : 0); /* if the first rank spoke, the launcher has ended the others by then (Open MPI: after 1 s) */
    for (double wait = first;; wait = 1) {
        int missing = -1, count = 0, speaker = s->rank;
        char text[256];
        if (poll(&(struct pollfd){.fd = s->fd, .events = POLLIN}, 1, (int)(wait * 1000)) > 0)
            return NULL;
        for (int r = s->size; r-- > 0;)
            if (!has_come(s, r)) {
                missing = r;
                count++;
            } else
                speaker = r;
        if (missing < 0)
            continue; /* MPI is slow, or somebody of another host is missing, whose neighbours say so */
        snprintf(text, sizeof text, "%.1f s after the start %d of %d ranks%s %s not come, first %srank %d", first, count, s->size,
                 s->whole ? "" : " of this host", count == 1 ? "has" : "have", s->whole ? "" : "local ", missing);
        if (speaker != s->rank)
            usleep(500000); /* the launcher ends all when the one who speaks has ended */
        s->hopeless(speaker == s->rank ? text : NULL, "Look at the output of the ranks that are missing: did they start this program?");
    }
}

WfStart *wf_start_begin(WfComm *c, const WfLaunchInfo *info)
{
    struct sockaddr_un a;
    if (!c->options.hopeless || info->local_rank < 0 || info->local_size < 2)
        return NULL;
    WfStart *s = WF_NEW(c->arena, WfStart);
    *s = (WfStart){.rank = info->local_rank, .size = info->local_size, .whole = info->local_size == info->size,
                   .seconds = c->options.start, .hopeless = c->options.hopeless};
    snprintf(s->key, sizeof s->key, "%s", info->key);
    socklen_t n = name_of(s, s->rank, &a);
    s->fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (s->fd >= 0 && bind(s->fd, (struct sockaddr *)&a, n) == 0 && pthread_create(&s->thread, NULL, start_main, s) == 0)
        return s;
    if (s->fd >= 0)
        close(s->fd);
    return NULL;
}

/* A byte to itself ends the thread. */
void wf_start_end(WfStart *s)
{
    struct sockaddr_un a;
    if (!s)
        return;
    socklen_t n = name_of(s, s->rank, &a);
    if (sendto(s->fd, "", 1, 0, (struct sockaddr *)&a, n) != 1)
        shutdown(s->fd, SHUT_RDWR);
    pthread_join(s->thread, NULL);
    close(s->fd);
}
