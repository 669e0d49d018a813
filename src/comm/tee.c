/* What a rank writes to stderr: kept in OUT/rank-N.log, and passed on to the launcher's own stderr. There the first rank's text
 * comes as it is, so that a line which is rewritten stays one; lines of the others begin with "[rank N] ". The log gets whole
 * lines, of a rewritten one what it was at last. The launcher never waits for a rank: pipes are read when they have
 * something. */
#include "comm/private.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

enum { LONGEST = 4096 };

struct WfTee {
    WfCtx *ctx;
    int rank, in, write_end, log;
    size_t n;
    char line[LONGEST];
};

static void close_tee(void *p)
{
    WfTee *t = p;
    int *const all[] = {&t->in, &t->write_end, &t->log};
    for (size_t i = 0; i < WF_LEN(all); i++) {
        if (*all[i] >= 0)
            close(*all[i]);
        *all[i] = -1;
    }
}

WfTee *wf_tee_open(WfCtx *ctx, WfArena *a, const char *out, int rank)
{
    WfTee *t = WF_NEW(a, WfTee);
    int ends[2] = {-1, -1};
    size_t n = strlen(out);
    char *path = wf_arena_printf(a, "%s%srank-%d.log", out, n && out[n - 1] == '/' ? "" : "/", rank);
    *t = (WfTee){.ctx = ctx, .rank = rank, .in = -1, .write_end = -1, .log = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666)};
    wf_arena_at_free(a, close_tee, t);
    if (t->log < 0)
        wf_fail(ctx, WF_E_IO, "%s: cannot open: %s", path, strerror(errno));
    if (pipe2(ends, O_CLOEXEC) || fcntl(ends[0], F_SETFL, O_NONBLOCK))
        wf_fail(ctx, WF_E_RANK_START, "no pipe for the output of rank %d: %s", rank, strerror(errno));
    t->in = ends[0];
    t->write_end = ends[1];
    return t;
}

int wf_tee_write_end(const WfTee *t) { return t->write_end; }
int wf_tee_read_end(const WfTee *t) { return t->in; }

void wf_tee_started(WfTee *t)
{
    close(t->write_end); /* the rank has its own: when it ends, reading does */
    t->write_end = -1;
}

static void put(int fd, const char *p, size_t n)
{
    while (n) {
        ssize_t w = write(fd, p, n);
        if (w < 0 && errno != EINTR)
            return; /* a full disk or a reader that has left stops no training */
        p += w > 0 ? w : 0;
        n -= w > 0 ? (size_t)w : 0;
    }
}

static void end_line(WfTee *t)
{
    const char *from = t->line, *end = t->line + t->n;
    if (!t->n)
        return;
    for (const char *c = from; c < end; c++)
        from = *c == '\r' && c + 1 < end && c[1] != '\n' ? c + 1 : from;
    if (end - from > 3 && !memcmp(from, "\033[K", 3))
        from += 3;
    put(t->log, from, (size_t)(end - from));
    if (t->rank) {
        char prefix[32];
        int k = snprintf(prefix, sizeof prefix, "[rank %d] ", t->rank);
        put(2, prefix, (size_t)k);
        put(2, from, (size_t)(end - from));
    }
    t->n = 0;
}

void wf_tee_read(WfTee *t)
{
    char text[4096];
    ssize_t got;
    while (t->in >= 0 && (got = read(t->in, text, sizeof text)) != 0) {
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return; /* nothing there now */
        if (!t->rank)
            put(2, text, (size_t)got);
        for (ssize_t i = 0; i < got; i++) {
            t->line[t->n++] = text[i];
            if (text[i] == '\n' || t->n == LONGEST)
                end_line(t);
        }
    }
    if (t->in < 0)
        return;
    if (t->n && t->n < LONGEST) /* the end of a line that nobody ended */
        t->line[t->n++] = '\n';
    end_line(t);
    close(t->in);
    t->in = -1;
}
