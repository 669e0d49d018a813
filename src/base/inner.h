/* What the files of base share and no other room sees: the file calls of the seam and the inside of a
 * context. */
#ifndef WF_BASE_INNER_H
#define WF_BASE_INNER_H

#include <sys/types.h>

#include "base/base.h"

#if defined(__SANITIZE_ADDRESS__)
#define WITH_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define WITH_ASAN 1
#endif
#endif

/* As the system calls, but counted, restarted after EINTR and made to fail (EIO, or what fits) by
 * wf_seam_fail_at. */
int wf_sys_open(const char *path, int flags, int mode);
/* For reading, a plain name in a folder; links may lead to other files of the folder and below only (EXDEV, ELOOP). Does not
 * wait for the writer of a pipe. */
int wf_sys_open_in(const char *folder, const char *name);
ssize_t wf_sys_read(int fd, void *p, size_t n);
ssize_t wf_sys_pread(int fd, void *p, size_t n, int64_t offset);
ssize_t wf_sys_write(int fd, const void *p, size_t n);
int wf_sys_sync(int fd);
int wf_sys_rename(const char *from, const char *to);
void *wf_sys_map_file(int fd, size_t size); /* read-only, private; NULL on failure */


struct WfDefer {
    WfCtx *ctx;
    WfDefer *below, *above; /* doubly linked, since a resource may be released out of order */
    uint64_t seq;           /* grows towards the top: a guard unwinds everything above its own mark */
    void (*release)(void *);
    void *p;
};

struct WfCtxOwn {
    WfDefer *top;
    uint64_t seq;
    WfArena *arenas;        /* all that are alive, so that wf_ctx_free leaves nothing behind */
    char spare[3][512];     /* message, place and hint when there is no memory for them */
};

struct WfArena {
    WfCtx *ctx;
    struct WfChunk *chunk;  /* the one being filled; the arena itself lies in the first one */
    char *at, *end;
    size_t bytes;
    struct WfAtFree *at_free;
    WfArena *next, *prev;
    WfDefer *defer;         /* scratch arenas only */
};

/* Is the value a word in place of a number ("auto", "none")? Only the one that the table has as default. */
bool wf_option_word(const WfOptionRow *row, const char *value);

/* Takes off and calls the topmost wf_arena_at_free hook; false if none is left. */
bool wf_arena_run_hook(WfArena *a);

#endif
