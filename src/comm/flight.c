/* Reading the flight recorder from outside. A world's shared memory is an anonymous file; every process that
 * holds it shows it in /proc/PID/fd, so any process of the same user can map it there: also after a rank was
 * killed, as long as the launcher or one rank lives. A run's folder may name such a process in a small file.
 */
#include "comm/private.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define TRACE "ranks.pid"

void wf_write_trace(WfCtx *ctx, const char *dir)
{
    char path[4096], text[32];
    snprintf(path, sizeof path, "%s/%s", dir, TRACE);
    int n = snprintf(text, sizeof text, "%d\n", (int)getpid());
    wf_write_file(ctx, path, text, (size_t)n);
}

void wf_remove_trace(const char *dir)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", dir, TRACE);
    unlink(path);
}

/* Opens the world that process `pid` holds, read-only; -1 if it holds none. */
static int open_world(int pid)
{
    char folder[64], path[128], target[64];
    snprintf(folder, sizeof folder, "/proc/%d/fd", pid);
    DIR *d = opendir(folder);
    int fd = -1;
    for (struct dirent *e; d && fd < 0 && (e = readdir(d));) {
        snprintf(path, sizeof path, "%s/%.20s", folder, e->d_name);
        ssize_t n = readlink(path, target, sizeof target - 1);
        target[n > 0 ? n : 0] = 0;
        if (!strncmp(target, "/memfd:weft-world", 17))
            fd = open(path, O_RDONLY | O_CLOEXEC);
    }
    if (d)
        closedir(d);
    return fd;
}

static void put_rank(WfRankCell *cell, uint64_t first, WfStr *out)
{
    static const char *const states[] = {"not begun", "computing", "started", "waiting", "done"};
    WfFlightView v;
    int pid = atomic_load(&cell->pid), r = atomic_load(&cell->rank);
    wf_flight_read(&cell->flight, &v);
    uint64_t now = wf_ns(), beat = atomic_load(&cell->beat);
    if (!pid) {
        wf_str_printf(out, "  rank %d: has not started\n", r);
        return;
    }
    wf_str_printf(out, "  rank %d: pid %d, step %lld, %s %s for %.1f s, %llu collectives started, %llu done",
                  r, pid, (long long)v.step, v.state < WF_LEN(states) ? states[v.state] : "?", v.node,
                  v.time ? (double)(now - v.time) * 1e-9 : 0.0, (unsigned long long)v.started,
                  (unsigned long long)v.done);
    if (kill(pid, 0) != 0 && errno == ESRCH)
        wf_str_puts(out, "; has ended");
    else if (beat && now > beat + 1000000000u)
        wf_str_printf(out, "; has not moved for %.1f s", (double)(now - beat) * 1e-9);
    wf_str_puts(out, v.started < first ? "  <- behind\n" : "\n");
}

static void put_world(const WfShared *s, WfStr *out)
{
    WfWorldHead *h = s->head;
    uint64_t first = 0;
    for (int r = 0; r < h->size; r++) {
        uint64_t started = atomic_load(&wf_cell(s, r)->flight.started);
        first = started > first ? started : first;
    }
    wf_str_printf(out, "world of %d ranks", h->world);
    if (h->size < h->world)
        wf_str_printf(out, ", %d of them on this host", h->size);
    if (h->launcher)
        wf_str_printf(out, ", launcher pid %d", h->launcher);
    wf_str_putc(out, '\n');
    for (int r = 0; r < h->size; r++)
        put_rank(wf_cell(s, r), first, out);
    if (wf_failed(s)) {
        wf_wait_failure(s);
        wf_str_printf(out, "  failed: %s\n", h->failure.message);
    }
}

/* Maps and reports the world of `pid`. `seen` holds the inodes of worlds that were reported. */
static bool report(WfCtx *ctx, int pid, ino_t *seen, int *n_seen, WfStr *out)
{
    int fd = open_world(pid);
    struct stat st;
    WfWorldHead h;
    if (fd < 0)
        return false;
    bool fine = fstat(fd, &st) == 0 && pread(fd, &h, sizeof h, 0) == (ssize_t)sizeof h &&
                h.magic == WF_WORLD_MAGIC && h.size > 0 && h.size <= WF_COMM_MAX_LOCAL &&
                h.groups <= (uint64_t)st.st_size &&
                h.ranks + (uint64_t)h.size * sizeof(WfRankCell) <= h.groups;
    for (int i = 0; fine && i < *n_seen; i++)
        fine = seen[i] != st.st_ino;
    void *p = fine ? mmap(NULL, h.groups, PROT_READ, MAP_SHARED, fd, 0) : MAP_FAILED;
    close(fd);
    if (p == MAP_FAILED)
        return false;
    (void)ctx;
    if (*n_seen < 64)
        seen[(*n_seen)++] = st.st_ino;
    put_world(&(WfShared){-1, h.groups, p, true}, out);
    munmap(p, h.groups);
    return true;
}

static int pid_of(WfCtx *ctx, const char *where)
{
    char *end, text[32] = "", path[4096];
    long v = strtol(where, &end, 10);
    if (*where && !*end && v > 0)
        return (int)v;
    snprintf(path, sizeof path, "%s/%s", where, TRACE);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        wf_fail(ctx, WF_E_NO_WORLD,
                "%s is neither a process nor the folder of a run with several ranks (no %s in it)", where,
                TRACE);
    ssize_t n = read(fd, text, sizeof text - 1);
    close(fd);
    text[n > 0 ? n : 0] = 0;
    return atoi(text);
}

void wf_comm_hang_report(WfCtx *ctx, const char *where, WfStr *out)
{
    ino_t seen[64];
    int n = 0;
    if (where) {
        int pid = pid_of(ctx, where);
        if (!report(ctx, pid, seen, &n, out))
            wf_fail(ctx, WF_E_NO_WORLD,
                    "process %d holds no world of ranks: it has ended, or belongs to another user", pid);
        return;
    }
    DIR *d = opendir("/proc");
    for (struct dirent *e; d && (e = readdir(d));)
        if (atoi(e->d_name) > 0)
            report(ctx, atoi(e->d_name), seen, &n, out);
    if (d)
        closedir(d);
    if (!n)
        wf_fail(ctx, WF_E_NO_WORLD, "no world of ranks runs on this host under this user");
}

static void put_json_text(FILE *f, const char *const parts[3])
{
    for (int i = 0; i < 3; i++) {
        if (i && parts[i] && parts[i][0])
            fputs("\\n  ", f);
        for (const char *p = parts[i] ? parts[i] : ""; *p; p++) {
            unsigned char ch = (unsigned char)*p;
            if (ch == '"' || ch == '\\')
                fprintf(f, "\\%c", ch);
            else if (ch < 32)
                fprintf(f, "\\u%04x", ch);
            else
                fputc(ch, f);
        }
    }
}

/* torchelastic's shape. Its agent shows, as the root cause, what the worker with the earliest time wrote as
 * its call stack; so ranks that fail because of another one name a later second, and the text stands in both
 * places. */
void wf_error_file(const char *message, const char *place, const char *hint, bool root)
{
    const char *path = wf_env("TORCHELASTIC_ERROR_FILE");
    FILE *f = path && *path ? fopen(path, "we") : NULL;
    const char *const parts[3] = {message, place, hint};
    if (!f)
        return;
    fputs("{\"message\": {\"message\": \"", f);
    put_json_text(f, parts);
    fputs("\", \"extraInfo\": {\"py_callstack\": \"", f);
    put_json_text(f, parts);
    fprintf(f, "\", \"timestamp\": \"%lld\"}}}\n", (long long)time(NULL) + (root ? 0 : 1));
    fclose(f);
}
