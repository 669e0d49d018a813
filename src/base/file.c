/* Files. Reading maps a regular file read-only (a pipe, or a file system that cannot map, is read whole); the
 * mapping lives as long as the arena it was opened with. Writing is atomic: a temporary name in the same
 * folder, fsync, rename, fsync of the folder, so that a reader or a crash sees the old file or the new one,
 * never a part. What is no regular file (a terminal, /dev/null, a pipe) is written to directly, since
 * renaming would replace the device. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/inner.h"

static void WF_NORETURN io_fail(WfCtx *ctx, const char *verb, const char *path, int err)
{
    const char *hint = err == ENOSPC || err == EDQUOT ? "free some space; a file of that name is left as it was"
                       : err == EMFILE || err == ENFILE ? "raise the limit of open files (ulimit -n)" : NULL;
    wf_fail_at(ctx, WF_E_IO, NULL, hint, "%s: cannot %s: %s", path, verb, strerror(err));
}

/* ---- reading ---- */

typedef struct {
    WfFile face;
    void *map; /* NULL: nothing is mapped (any more) */
} MappedFile;

static void close_fd(void *p)
{
    close((int)(intptr_t)p);
}

static void unmap_file(void *p)
{
    MappedFile *m = p;
    if (m->map)
        munmap(m->map, m->face.size);
    m->map = NULL;
}

/* Reads to the end of the descriptor into the arena; `guess` is the expected size. */
static void read_whole(WfCtx *ctx, WfArena *a, int fd, size_t guess, WfFile *f)
{
    size_t cap = guess < 4096 ? 4096 : guess + 1, n = 0; /* one more: the end shows without growing */
    uint8_t *at = wf_arena_alloc(a, cap);
    for (;;) {
        if (n == cap) {
            at = wf_arena_grow(a, at, cap, wf_mul_size(cap, 2));
            cap *= 2;
        }
        ssize_t got = wf_sys_read(fd, at + n, cap - n);
        if (got < 0)
            io_fail(ctx, "read", f->path, errno);
        if (got == 0)
            break;
        n += (size_t)got;
    }
    f->at = at;
    f->size = n;
}

/* What the descriptor, which is closed, holds. */
static WfFile *map_fd(WfCtx *ctx, WfArena *a, const char *path, int fd)
{
    WfDefer *closing = wf_defer(ctx, close_fd, (void *)(intptr_t)fd);
    MappedFile *m = WF_NEW(a, MappedFile);
    m->face.path = wf_arena_strdup(a, path);
    struct stat st;
    if (fstat(fd, &st) != 0)
        io_fail(ctx, "open", path, errno);
    if (S_ISDIR(st.st_mode))
        io_fail(ctx, "read", path, EISDIR);
    if (!S_ISREG(st.st_mode)) /* a pipe or a device may have no end */
        wf_fail_at(ctx, WF_E_IO, NULL, "Write it to a file first.", "%s: is a %s, not a file", path,
                   S_ISFIFO(st.st_mode) ? "pipe" : "device");
    if (st.st_size > 0) {
        m->face.size = (size_t)st.st_size;
        m->map = wf_sys_map_file(fd, m->face.size);
        m->face.at = m->map;
    }
    if (m->map)
        wf_arena_at_free(a, unmap_file, m);
    else
        read_whole(ctx, a, fd, (size_t)st.st_size, &m->face);
    wf_defer_run(closing);
    return &m->face;
}

WfFile *wf_file_map(WfCtx *ctx, WfArena *a, const char *path)
{
    int fd = wf_sys_open(path, O_RDONLY | O_NONBLOCK, 0); /* a pipe that nobody writes to would be waited for */
    if (fd < 0)
        io_fail(ctx, "open", path, errno);
    return map_fd(ctx, a, path, fd);
}

WfFile *wf_file_map_in(WfCtx *ctx, WfArena *a, const char *folder, const char *name)
{
    char *path = wf_arena_printf(a, "%s/%s", folder, name);
    if (!*name || strchr(name, '/') || !strcmp(name, ".") || !strcmp(name, ".."))
        wf_fail_at(ctx, WF_E_BESIDE, folder, "Files that another file names lie beside it, and are named without a folder.",
                   "'%.200s' is no plain file name", name);
    int fd = wf_sys_open_in(folder, name);
    if (fd < 0 && (errno == EXDEV || errno == ELOOP))
        wf_fail_at(ctx, WF_E_BESIDE, path, "Copy the files themselves (cp -L) into one folder.",
                   "%s: it is a link that leaves its folder, which Weft does not follow for files that another file names",
                   path);
    if (fd < 0)
        io_fail(ctx, "open", path, errno);
    return map_fd(ctx, a, path, fd);
}

bool wf_file_exists(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0;
}

bool wf_is_folder(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

/* ---- writing ---- */

enum { BUFFER = 1 << 16 };

struct WfOut {
    WfCtx *ctx;
    WfDefer *defer;
    char *path;  /* the name that the user gave, for messages */
    char *final; /* where the data ends up: links followed */
    char *temp;  /* NULL: written in place (a device), or renamed already */
    int fd;
    size_t n;
    uint8_t *buffer;
};

/* Closes, removes the temporary, frees. */
static void drop_out(void *p)
{
    WfOut *o = p;
    if (o->fd >= 0)
        close(o->fd);
    if (o->temp)
        unlink(o->temp);
    wf_sys_free(o->path);
    wf_sys_free(o->final);
    wf_sys_free(o->temp);
    wf_sys_free(o->buffer);
    wf_sys_free(o);
}

static char *WF_PRINTF(2, 3) sys_printf(WfCtx *ctx, const char *fmt, ...)
{
    va_list ap;
    if (!fmt) /* never; gcc fears it where the sanitizer checks for it */
        fmt = "";
    va_start(ap, fmt);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    char *p = wf_sys_alloc((size_t)n + 1);
    if (!p)
        wf_fail(ctx, WF_E_MEMORY, "out of memory");
    va_start(ap, fmt);
    vsnprintf(p, (size_t)n + 1, fmt, ap);
    va_end(ap);
    return p;
}

/* Name of a temporary: "PATH.tmp-PID-I". */
#define TEMP_MARK ".tmp-"

/* Creates a temporary file beside o->final. */
static void open_temp(WfOut *o)
{
    for (int i = 0; i < 1000; i++) {
        char *name = sys_printf(o->ctx, "%s" TEMP_MARK "%ld-%d", o->final, (long)getpid(), i);
        o->fd = wf_sys_open(name, O_WRONLY | O_CREAT | O_EXCL, 0666);
        if (o->fd >= 0) {
            o->temp = name;
            return;
        }
        int err = errno;
        wf_sys_free(name);
        if (err != EEXIST)
            io_fail(o->ctx, "create", o->path, err);
    }
    io_fail(o->ctx, "create", o->path, EEXIST);
}

WfOut *wf_out_open(WfCtx *ctx, const char *path)
{
    WfOut *o = wf_sys_alloc(sizeof(*o));
    if (!o)
        wf_fail(ctx, WF_E_MEMORY, "out of memory");
    o->ctx = ctx;
    o->fd = -1;
    o->defer = wf_defer(ctx, drop_out, o);
    o->path = sys_printf(ctx, "%s", path);
    o->buffer = wf_sys_alloc(BUFFER);
    if (!o->buffer)
        wf_fail(ctx, WF_E_MEMORY, "out of memory");
    struct stat st;
    bool there = stat(path, &st) == 0;
    if (there && S_ISDIR(st.st_mode))
        io_fail(ctx, "write", path, EISDIR);
    char real[PATH_MAX];
    o->final = sys_printf(ctx, "%s", there && realpath(path, real) ? real : path);
    if (there && !S_ISREG(st.st_mode)) {
        o->fd = wf_sys_open(path, O_WRONLY, 0);
        if (o->fd < 0)
            io_fail(ctx, "open", path, errno);
        return o;
    }
    open_temp(o);
    if (there)
        (void)fchmod(o->fd, st.st_mode & 07777); /* keeps the old file's rights as far as possible */
    return o;
}

static void put_all(WfOut *o, const uint8_t *p, size_t n)
{
    while (n) {
        ssize_t put = wf_sys_write(o->fd, p, n > SSIZE_MAX ? SSIZE_MAX : n);
        if (put <= 0)
            io_fail(o->ctx, "write", o->path, put < 0 ? errno : ENOSPC);
        p += put;
        n -= (size_t)put;
    }
}

static void flush(WfOut *o)
{
    put_all(o, o->buffer, o->n);
    o->n = 0;
}

void wf_out_write(WfOut *o, const void *p, size_t n)
{
    if (n > BUFFER - o->n)
        flush(o);
    if (n >= BUFFER) {
        put_all(o, p, n);
        return;
    }
    if (n)
        memcpy(o->buffer + o->n, p, n);
    o->n += n;
}

void wf_sync_folder(WfCtx *ctx, const char *path)
{
    int fd = wf_sys_open(path, O_RDONLY | O_DIRECTORY, 0);
    if (fd < 0)
        return; /* a folder that may be written but not read: the name is as durable as the system makes it */
    int rc = wf_sys_sync(fd), err = errno;
    close(fd);
    if (rc != 0 && err != EINVAL && err != EROFS) /* some file systems do not know it */
        io_fail(ctx, "sync the folder", path, err);
}

/* fsync of the folder that holds the file: makes the new name itself durable. */
static void sync_parent(WfCtx *ctx, const char *path)
{
    char *folder = sys_printf(ctx, "%s", path);
    WfDefer *d = wf_defer(ctx, wf_sys_free, folder);
    char *slash = strrchr(folder, '/');
    if (slash)
        slash[slash == folder] = 0;
    wf_sync_folder(ctx, slash ? folder : ".");
    wf_defer_run(d);
}

void wf_rename(WfCtx *ctx, const char *from, const char *to)
{
    if (wf_sys_rename(from, to) != 0)
        io_fail(ctx, "rename to", to, errno);
    sync_parent(ctx, to);
}

void wf_remove_unfinished(const char *path)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    char folder[PATH_MAX];
    size_t n = strlen(name);
    if (snprintf(folder, sizeof folder, "%.*s", slash ? (int)(name - path) : 1, slash ? path : ".") >= PATH_MAX)
        return;
    DIR *d = opendir(folder);
    for (struct dirent *e; d && (e = readdir(d));)
        if (!strncmp(e->d_name, name, n) && !strncmp(e->d_name + n, TEMP_MARK, strlen(TEMP_MARK)))
            unlinkat(dirfd(d), e->d_name, 0);
    if (d)
        closedir(d);
}

bool wf_remove_folder(const char *path)
{
    DIR *d = opendir(path);
    if (!d)
        return false;
    for (struct dirent *e; (e = readdir(d));)
        unlinkat(dirfd(d), e->d_name, 0);
    closedir(d);
    return !rmdir(path);
}

void wf_out_commit(WfOut *o)
{
    flush(o);
    if (o->temp) {
        if (wf_sys_sync(o->fd) != 0)
            io_fail(o->ctx, "write", o->path, errno);
        int fd = o->fd;
        o->fd = -1;
        if (close(fd) != 0) /* network file systems report a full disk here */
            io_fail(o->ctx, "write", o->path, errno);
        if (wf_sys_rename(o->temp, o->final) != 0)
            io_fail(o->ctx, "rename to", o->path, errno);
        wf_sys_free(o->temp);
        o->temp = NULL;
        sync_parent(o->ctx, o->final);
    }
    wf_defer_run(o->defer);
}

void wf_write_file(WfCtx *ctx, const char *path, const void *p, size_t n)
{
    WfOut *o = wf_out_open(ctx, path);
    wf_out_write(o, p, n);
    wf_out_commit(o);
}

void wf_mkdirs(WfCtx *ctx, const char *path)
{
    char *part = sys_printf(ctx, "%s", path);
    WfDefer *d = wf_defer(ctx, wf_sys_free, part);
    for (char *p = part; *p; p++) {
        if (p[1] != '/' && p[1] != 0)
            continue;
        char next = p[1];
        p[1] = 0;
        if (strcmp(part, "/") != 0 && mkdir(part, 0777) != 0) {
            int err = errno;
            struct stat st; /* also for EACCES or EROFS on a folder that is there */
            if (stat(part, &st) != 0 || !S_ISDIR(st.st_mode))
                io_fail(ctx, "create the folder", path, err == EEXIST ? ENOTDIR : err);
        }
        p[1] = next;
    }
    wf_defer_run(d);
}
