/* Files that are read at any offset, from any thread, without a mapping: what has been read is no memory of this process,
 * and a file that is cut off or replaced while it is in use is an error instead of a SIGBUS or other data. Small files are
 * read whole when they are opened. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/inner.h"

enum { RESIDENT = 8 << 20 };

struct WfBytes {
    char *path;
    int fd;              /* -1: all of it is in memory */
    int64_t size;
    struct timespec changed;
    const uint8_t *memory;
};

typedef struct { void *map; size_t size; } Mapping;

static void close_bytes(void *p)
{
    WfBytes *b = p;
    if (b->fd >= 0)
        close(b->fd);
    b->fd = -1;
}

static void unmap(void *p)
{
    Mapping *m = p;
    munmap(m->map, m->size);
}

static void WF_NORETURN open_fail(WfCtx *ctx, const char *path, int err)
{
    wf_fail_at(ctx, WF_E_IO, NULL, err == EMFILE || err == ENFILE ? "raise the limit of open files (ulimit -n)" : NULL,
               "%s: cannot open: %s", path, strerror(err));
}

WfBytes *wf_bytes_open(WfCtx *ctx, WfArena *a, const char *path)
{
    WfBytes *b = WF_NEW(a, WfBytes);
    struct stat st;
    b->path = wf_arena_strdup(a, path);
    b->fd = wf_sys_open(path, O_RDONLY | O_NONBLOCK, 0); /* a pipe that nobody writes to would be waited for */
    if (b->fd < 0)
        open_fail(ctx, path, errno);
    wf_arena_at_free(a, close_bytes, b);
    if (fstat(b->fd, &st))
        open_fail(ctx, path, errno);
    if (!S_ISREG(st.st_mode))
        wf_fail_at(ctx, WF_E_IO, NULL, "Write it to a file first: data are read in any order, and again in every epoch.",
                   "%s: is a %s, not a file", path, S_ISDIR(st.st_mode) ? "folder" : S_ISFIFO(st.st_mode) ? "pipe" : "device");
    b->size = st.st_size;
    b->changed = st.st_mtim;
    if (b->size <= RESIDENT) {
        uint8_t *p = wf_arena_alloc(a, (size_t)b->size + 1);
        int err = wf_bytes_read(b, 0, p, (size_t)b->size);
        if (err)
            wf_fail(ctx, WF_E_IO, "%s: cannot read: %s", path, wf_bytes_error(err));
        b->memory = p;
        close_bytes(b);
    }
    return b;
}

int64_t wf_bytes_size(const WfBytes *b) { return b->size; }

const char *wf_bytes_path(const WfBytes *b) { return b->path; }

const char *wf_bytes_error(int error)
{
    return error == WF_BYTES_CHANGED ? "the file was changed or cut off while it is in use" : strerror(error);
}

int wf_bytes_read(const WfBytes *b, int64_t offset, void *p, size_t n)
{
    struct stat st;
    if (offset < 0 || offset > b->size || n > (uint64_t)(b->size - offset))
        return EINVAL;
    if (b->memory) {
        if (n)
            memcpy(p, b->memory + offset, n);
        return 0;
    }
    if (fstat(b->fd, &st))
        return errno;
    if (st.st_size != b->size || st.st_mtim.tv_sec != b->changed.tv_sec || st.st_mtim.tv_nsec != b->changed.tv_nsec)
        return WF_BYTES_CHANGED;
    for (uint8_t *to = p; n;) {
        ssize_t got = wf_sys_pread(b->fd, to, n > SSIZE_MAX ? SSIZE_MAX : n, offset);
        if (got < 0)
            return errno;
        if (!got)
            return WF_BYTES_CHANGED;
        to += got;
        offset += got;
        n -= (size_t)got;
    }
    return 0;
}

WfFile *wf_bytes_view(WfCtx *ctx, WfArena *a, const WfBytes *b)
{
    WfFile *f = WF_NEW(a, WfFile);
    *f = (WfFile){.at = b->memory, .size = (size_t)b->size, .path = b->path};
    if (!b->memory) {
        Mapping *m = WF_NEW(a, Mapping);
        *m = (Mapping){wf_sys_map_file(b->fd, f->size), f->size};
        if (!m->map)
            wf_fail(ctx, WF_E_IO, "%s: cannot map: %s", b->path, strerror(errno));
        wf_arena_at_free(a, unmap, m);
        f->at = m->map;
    }
    return f;
}

uint8_t *wf_bytes_load(const char *path, size_t most, size_t *n, int *error)
{
    struct stat st;
    uint8_t *p = NULL;
    int fd = wf_sys_open(path, O_RDONLY | O_NONBLOCK, 0);
    *n = 0;
    *error = fd < 0 || fstat(fd, &st) ? errno : !S_ISREG(st.st_mode) ? EINVAL : (uint64_t)st.st_size > most ? EFBIG : 0;
    if (!*error && !(p = wf_sys_alloc((size_t)st.st_size + 1)))
        *error = ENOMEM;
    while (!*error && *n < (size_t)st.st_size) {
        ssize_t got = wf_sys_pread(fd, p + *n, (size_t)st.st_size - *n, (int64_t)*n);
        *error = got < 0 ? errno : got ? 0 : WF_BYTES_CHANGED;
        *n += got > 0 ? (size_t)got : 0;
    }
    if (fd >= 0)
        close(fd);
    if (!*error)
        return p;
    wf_sys_free(p);
    return NULL;
}
