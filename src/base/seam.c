/* The seam to the operating system. Each call that tests want to see fail is counted by kind; wf_seam_fail_at
 * picks the call that fails. The counters are atomics because worker threads allocate, and they are the only
 * state of the library outside a context: they influence nothing unless a test switches a failure on. */
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/inner.h"

static atomic_llong counts[WF_SEAM_KINDS];
static atomic_llong fail_at[WF_SEAM_KINDS]; /* absolute number of the failing call; 0: none */
static atomic_bool fail_sticky[WF_SEAM_KINDS];

/* Counts one call; true when a test wants it to fail. */
static bool injected(WfSeam kind)
{
    long long now = atomic_fetch_add(&counts[kind], 1) + 1;
    long long at = atomic_load(&fail_at[kind]);
    return at != 0 && (now == at || (now > at && atomic_load(&fail_sticky[kind])));
}

void wf_seam_fail_at(WfSeam kind, int64_t n, bool sticky)
{
    atomic_store(&fail_sticky[kind], sticky);
    atomic_store(&fail_at[kind], n > 0 ? atomic_load(&counts[kind]) + n : 0);
}

int64_t wf_seam_count(WfSeam kind)
{
    return atomic_load(&counts[kind]);
}

/* ---- memory ---- */

/* The address sanitizer ends the process over sizes that it cannot serve, instead of refusing them. */
#ifdef WITH_ASAN
static const size_t too_large = (size_t)1 << 36;
#else
static const size_t too_large = PTRDIFF_MAX;
#endif

void *wf_sys_alloc(size_t size)
{
    if (injected(WF_SEAM_ALLOC) || size > too_large)
        return NULL;
    return calloc(1, size ? size : 1);
}

void *wf_sys_realloc(void *p, size_t size)
{
    if (injected(WF_SEAM_ALLOC) || size > too_large)
        return NULL;
    return realloc(p, size ? size : 1);
}

void wf_sys_free(void *p)
{
    free(p);
}

static size_t round_up(size_t n, size_t to)
{
    return (n + to - 1) / to * to;
}

void *wf_sys_map(size_t size, bool huge)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), big = (size_t)2 << 20;
    if (injected(WF_SEAM_MAP) || size > PTRDIFF_MAX - 2 * big)
        return NULL;
    size_t want = round_up(size ? size : 1, page), extra = huge && want >= big ? big : 0;
    char *p = mmap(NULL, want + extra, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return NULL;
    if (!extra)
        return p;
    /* Huge pages need an aligned start: map too much and give both ends back. */
    char *start = (char *)round_up((uintptr_t)p, big);
    if (start > p)
        munmap(p, (size_t)(start - p));
    if (start + want < p + want + extra)
        munmap(start + want, (size_t)(p + want + extra - (start + want)));
#ifdef MADV_HUGEPAGE
    (void)madvise(start, want, MADV_HUGEPAGE); /* only advice: without huge pages the slab is slower, not wrong */
#endif
    return start;
}

void wf_sys_forget(const void *p, size_t size)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), from = ((uintptr_t)p + page - 1) / page * page;
    uintptr_t to = ((uintptr_t)p + size) / page * page;
    if (from < to)
        madvise((void *)from, to - from, MADV_DONTNEED);
}

void wf_sys_unmap(void *p, size_t size)
{
    if (p)
        munmap(p, size ? size : 1);
}

/* ---- files ---- */

int wf_sys_open(const char *path, int flags, int mode)
{
    if (injected(WF_SEAM_OPEN)) {
        errno = EMFILE;
        return -1;
    }
    int fd;
    do
        fd = open(path, flags | O_CLOEXEC, mode);
    while (fd < 0 && errno == EINTR);
    return fd;
}

int wf_sys_open_in(const char *folder, const char *name)
{
    if (injected(WF_SEAM_OPEN)) {
        errno = EMFILE;
        return -1;
    }
    int dir = open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC), fd;
    if (dir < 0)
        return -1;
    struct open_how how = {.flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK, .resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS};
    do
        fd = (int)syscall(SYS_openat2, dir, name, &how, sizeof how);
    while (fd < 0 && (errno == EINTR || errno == EAGAIN));
    if (fd < 0 && (errno == ENOSYS || errno == EPERM)) /* an old kernel, or a sandbox that does not know the call */
        fd = openat(dir, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
    int err = errno;
    close(dir);
    errno = err;
    return fd;
}

ssize_t wf_sys_read(int fd, void *p, size_t n)
{
    if (injected(WF_SEAM_READ)) {
        errno = EIO;
        return -1;
    }
    ssize_t got;
    do
        got = read(fd, p, n);
    while (got < 0 && errno == EINTR);
    return got;
}

ssize_t wf_sys_pread(int fd, void *p, size_t n, int64_t offset)
{
    if (injected(WF_SEAM_READ)) {
        errno = EIO;
        return -1;
    }
    ssize_t got;
    do
        got = pread(fd, p, n, offset);
    while (got < 0 && errno == EINTR);
    return got;
}

ssize_t wf_sys_write(int fd, const void *p, size_t n)
{
    if (injected(WF_SEAM_WRITE)) {
        errno = ENOSPC;
        return -1;
    }
    ssize_t put;
    do
        put = write(fd, p, n);
    while (put < 0 && errno == EINTR);
    return put;
}

int wf_sys_sync(int fd)
{
    if (injected(WF_SEAM_SYNC)) {
        errno = EIO;
        return -1;
    }
    int rc;
    do
        rc = fsync(fd);
    while (rc < 0 && errno == EINTR);
    return rc;
}

int wf_sys_rename(const char *from, const char *to)
{
    if (injected(WF_SEAM_RENAME)) {
        errno = EACCES;
        return -1;
    }
    return rename(from, to);
}

void *wf_sys_map_file(int fd, size_t size)
{
    if (injected(WF_SEAM_MAP)) {
        errno = ENOMEM;
        return NULL;
    }
    void *p = mmap(NULL, size, PROT_READ, MAP_PRIVATE, fd, 0);
    return p == MAP_FAILED ? NULL : p;
}

/* ---- clocks ---- */

static double read_clock(clockid_t id)
{
    struct timespec t;
    if (clock_gettime(id, &t) != 0)
        return 0;
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

double wf_now(void)
{
    return read_clock(CLOCK_MONOTONIC);
}

/* Field 22 of /proc/self/stat is the start in clock ticks since boot. That clock also runs while the machine
 * sleeps, the monotonic one does not, so the age is what carries over. Without /proc the answer is "now". */
double wf_process_start(void)
{
    double now = wf_now();
    char text[1024];
    int fd = open("/proc/self/stat", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return now;
    ssize_t n = read(fd, text, sizeof(text) - 1);
    close(fd);
    if (n <= 0)
        return now;
    text[n] = 0;
    char *p = strrchr(text, ')'); /* the command name, field 2, may hold spaces and brackets */
    for (int field = 2; p && field < 22; field++) {
        p = strchr(p, ' ');
        if (p)
            p++;
    }
    if (!p)
        return now;
    double age = read_clock(CLOCK_BOOTTIME) - strtod(p, NULL) / (double)sysconf(_SC_CLK_TCK);
    return age > 0 && age < now ? now - age : now;
}
