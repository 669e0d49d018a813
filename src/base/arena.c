/* Arenas: memory handed out by moving a pointer through chunks, given back all at once. Chunks grow
 * geometrically, so that a small arena costs one small allocation; a large request gets a chunk of its own
 * behind the current one. Each chunk remembers who has to release it, because the embedder's allocator is set
 * after a context exists. Under the address sanitizer everything not handed out is poisoned, with a gap
 * behind each piece. */
#include <string.h>

#include "base/inner.h"

#ifdef WITH_ASAN
#include <sanitizer/asan_interface.h>
#define GAP 16
#define POISON(p, n) ASAN_POISON_MEMORY_REGION(p, n)
#define UNPOISON(p, n) ASAN_UNPOISON_MEMORY_REGION(p, n)
#else
#define GAP 0
#define POISON(p, n) ((void)(p), (void)(n))
#define UNPOISON(p, n) ((void)(p), (void)(n))
#endif

enum { FIRST_CHUNK = 4096, LAST_CHUNK = 1 << 20 };

struct WfChunk {
    struct WfChunk *below;
    size_t size; /* of the whole block, this header included */
    void (*release)(void *user, void *p, size_t size);
    void *user;
    bool own;    /* from the embedder's allocator */
};

struct WfAtFree {
    struct WfAtFree *below;
    void (*release)(void *);
    void *p;
};

enum { HEADER = (sizeof(struct WfChunk) + 15) / 16 * 16 };

static void WF_NORETURN no_memory(WfCtx *ctx, size_t size)
{
    if (size > PTRDIFF_MAX)
        wf_fail(ctx, WF_E_MEMORY, "a size is too large for this machine's memory");
    wf_fail(ctx, WF_E_MEMORY, "out of memory: %zu more bytes were refused", size);
}

static struct WfChunk *chunk_new(WfCtx *ctx, size_t size)
{
    struct WfChunk *c = ctx->alloc ? ctx->alloc(ctx->alloc_user, size) : wf_sys_alloc(size);
    if (!c)
        no_memory(ctx, size);
    if (ctx->alloc) /* the embedder's memory need not be zero */
        memset(c, 0, size);
    c->size = size;
    c->own = ctx->alloc != NULL;
    c->release = ctx->release;
    c->user = ctx->alloc_user;
    return c;
}

static void chunk_free(struct WfChunk *c)
{
    UNPOISON(c, c->size);
    if (!c->own)
        wf_sys_free(c);
    else if (c->release)
        c->release(c->user, c, c->size);
}

WfArena *wf_arena_new(WfCtx *ctx)
{
    struct WfChunk *c = chunk_new(ctx, FIRST_CHUNK);
    WfArena *a = (WfArena *)((char *)c + HEADER);
    a->ctx = ctx;
    a->chunk = c;
    a->bytes = c->size;
    a->at = (char *)a + (sizeof(*a) + 15) / 16 * 16;
    a->end = (char *)c + c->size;
    POISON(a->at, a->end - a->at);
    a->next = ctx->own->arenas;
    if (a->next)
        a->next->prev = a;
    ctx->own->arenas = a;
    return a;
}

static void free_scratch(void *p)
{
    WfArena *a = p;
    a->defer = NULL; /* the caller of this function is just taking it off the stack */
    wf_arena_free(a);
}

WfArena *wf_arena_scratch(WfCtx *ctx)
{
    WfArena *a = wf_arena_new(ctx);
    a->defer = wf_defer(ctx, free_scratch, a);
    return a;
}

bool wf_arena_run_hook(WfArena *a)
{
    struct WfAtFree *f = a->at_free;
    if (!f)
        return false;
    a->at_free = f->below;
    f->release(f->p);
    return true;
}

void wf_arena_free(WfArena *a)
{
    if (!a)
        return;
    while (wf_arena_run_hook(a))
        ;
    wf_defer_keep(a->defer);
    if (a->next)
        a->next->prev = a->prev;
    if (a->prev)
        a->prev->next = a->next;
    else
        a->ctx->own->arenas = a->next;
    for (struct WfChunk *c = a->chunk, *below; c; c = below) {
        below = c->below;
        chunk_free(c);
    }
}

WfCtx *wf_arena_ctx(const WfArena *a)
{
    return a->ctx;
}

size_t wf_arena_bytes(const WfArena *a)
{
    return a->bytes;
}

void *wf_arena_alloc(WfArena *a, size_t size)
{
    if (size > PTRDIFF_MAX - 2 * FIRST_CHUNK)
        no_memory(a->ctx, SIZE_MAX);
    size_t need = (size + 15) / 16 * 16 + GAP;
    if (need > (size_t)(a->end - a->at)) {
        size_t next = a->bytes < LAST_CHUNK ? a->bytes : LAST_CHUNK; /* doubles the arena, up to a bound */
        bool alone = need > next / 2;
        struct WfChunk *c = chunk_new(a->ctx, HEADER + (alone ? need : next));
        a->bytes += c->size;
        POISON((char *)c + HEADER, c->size - HEADER);
        if (alone) { /* behind the current chunk, whose rest stays usable */
            c->below = a->chunk->below;
            a->chunk->below = c;
            UNPOISON((char *)c + HEADER, size);
            return (char *)c + HEADER;
        }
        c->below = a->chunk;
        a->chunk = c;
        a->at = (char *)c + HEADER;
        a->end = (char *)c + c->size;
    }
    char *p = a->at;
    a->at += need;
    UNPOISON(p, size);
    return p;
}

void *wf_arena_grow(WfArena *a, void *old, size_t old_size, size_t new_size)
{
    if (old && new_size <= old_size)
        return old;
    if (old && new_size <= PTRDIFF_MAX - 2 * FIRST_CHUNK) {
        char *end = (char *)old + (old_size + 15) / 16 * 16 + GAP;
        size_t more = (new_size + 15) / 16 * 16 - (old_size + 15) / 16 * 16;
        if (end == a->at && more <= (size_t)(a->end - a->at)) { /* the last piece grows where it is */
            a->at += more;
            UNPOISON(old, new_size);
            memset((char *)old + old_size, 0, new_size - old_size); /* the gap may have been written to */
            return old;
        }
    }
    void *p = wf_arena_alloc(a, new_size);
    if (old && old_size)
        memcpy(p, old, old_size);
    return p;
}

void wf_arena_at_free(WfArena *a, void (*release)(void *), void *p)
{
    WfDefer *d = wf_defer(a->ctx, release, p); /* covers the allocation, which may raise */
    struct WfAtFree *f = WF_NEW(a, struct WfAtFree);
    wf_defer_keep(d);
    f->release = release;
    f->p = p;
    f->below = a->at_free;
    a->at_free = f;
}

char *wf_arena_strndup(WfArena *a, const char *s, size_t n)
{
    if (n == SIZE_MAX)
        no_memory(a->ctx, n);
    char *p = wf_arena_alloc(a, n + 1);
    if (n)
        memcpy(p, s, n);
    return p;
}

char *wf_arena_strdup(WfArena *a, const char *s)
{
    return wf_arena_strndup(a, s, strlen(s));
}

char *wf_arena_vprintf(WfArena *a, const char *fmt, va_list ap)
{
    va_list again;
    va_copy(again, ap);
    if (!fmt) /* never; gcc fears it where the sanitizer checks for it */
        fmt = "";
    int n = vsnprintf(NULL, 0, fmt, ap);
    char *p = wf_arena_alloc(a, (size_t)(n < 0 ? 0 : n) + 1);
    if (n > 0)
        vsnprintf(p, (size_t)n + 1, fmt, again);
    va_end(again);
    return p;
}

char *wf_arena_printf(WfArena *a, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    char *p = wf_arena_vprintf(a, fmt, ap);
    va_end(ap);
    return p;
}

void *wf_vec_grow(WfArena *a, void *at, int *cap, size_t item)
{
    int more = *cap < 8 ? 8 : *cap > INT32_MAX / 2 ? INT32_MAX : *cap * 2;
    if (more == *cap)
        no_memory(a->ctx, SIZE_MAX);
    void *p = wf_arena_grow(a, at, wf_mul_size((size_t)*cap, item), wf_mul_size((size_t)more, item));
    *cap = more;
    return p;
}

bool wf_add_ok(int64_t a, int64_t b, int64_t *out)
{
    return !__builtin_add_overflow(a, b, out);
}

bool wf_mul_ok(int64_t a, int64_t b, int64_t *out)
{
    return !__builtin_mul_overflow(a, b, out);
}

size_t wf_mul_size(size_t n, size_t size)
{
    size_t out;
    return __builtin_mul_overflow(n, size, &out) ? SIZE_MAX : out;
}
