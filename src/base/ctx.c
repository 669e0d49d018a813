/* Contexts: where failures are recorded and caught. A guard is a jump buffer on the stack of wf_guard;
 * raising records the diagnostic and jumps to the innermost one. Deferred releases form a stack of their own,
 * each with a growing number; a guard notes the number at its start and, on failure, releases everything
 * above it. Numbers instead of pointers, because what lay below the mark may be released by hand inside the
 * guard. The diagnostic is allocated before the old one is freed (messages are often built from the last
 * one), and falls back to fixed buffers. */
#include <stdlib.h>
#include <string.h>

#include "base/inner.h"

struct WfGuard {
    jmp_buf env;
    struct WfGuard *outer;
    uint64_t mark;
};

static void unwind(WfCtx *ctx, uint64_t mark)
{
    while (ctx->own->top && ctx->own->top->seq > mark)
        wf_defer_run(ctx->own->top);
}

WfCtx *wf_ctx_new(void)
{
    struct Block { WfCtx ctx; struct WfCtxOwn own; } *b = wf_sys_alloc(sizeof(*b));
    if (!b)
        return NULL;
    WfCtx *ctx = &b->ctx;
    ctx->own = &b->own;
    struct WfGuard g = { .outer = NULL };
    ctx->guard = &g;
    if (setjmp(g.env) == 0) {
        ctx->arena = wf_arena_new(ctx);
        ctx->guard = NULL;
        return ctx;
    }
    ctx->guard = NULL;
    wf_ctx_free(ctx);
    return NULL;
}

/* Frees text of a diagnostic unless it is one of the fixed buffers. */
static void free_text(WfCtx *ctx, char *text)
{
    for (int i = 0; i < 3; i++)
        if (text == ctx->own->spare[i])
            return;
    wf_sys_free(text);
}

void wf_ctx_free(WfCtx *ctx)
{
    if (!ctx)
        return;
    unwind(ctx, 0);
    /* All hooks first: one may look into, or free, another arena. */
    for (WfArena *a = ctx->own->arenas; a;) {
        bool had = wf_arena_run_hook(a);
        a = had ? ctx->own->arenas : a->next;
    }
    while (ctx->own->arenas)
        wf_arena_free(ctx->own->arenas);
    free_text(ctx, ctx->diag.message);
    free_text(ctx, ctx->diag.place);
    free_text(ctx, ctx->diag.hint);
    wf_sys_free(ctx);
}

weft_status wf_guard(WfCtx *ctx, void (*fn)(void *arg), void *arg)
{
    struct WfGuard g;
    g.outer = ctx->guard;
    g.mark = ctx->own->seq;
    ctx->guard = &g;
    if (setjmp(g.env) == 0) {
        fn(arg);
        ctx->guard = g.outer;
        return WEFT_OK;
    }
    ctx->guard = g.outer;
    weft_status code = ctx->diag.code; /* a release function may guard and fail in its turn */
    unwind(ctx, g.mark);
    return code;
}

/* ---- deferred releases ---- */

WfDefer *wf_defer(WfCtx *ctx, void (*release)(void *), void *p)
{
    WfDefer *d = wf_sys_alloc(sizeof(*d));
    if (!d) {
        release(p);
        wf_fail(ctx, WF_E_MEMORY, "out of memory");
    }
    *d = (WfDefer){ .ctx = ctx, .below = ctx->own->top, .seq = ++ctx->own->seq, .release = release, .p = p };
    if (d->below)
        d->below->above = d;
    ctx->own->top = d;
    return d;
}

void wf_defer_keep(WfDefer *d)
{
    if (!d)
        return;
    if (d->below)
        d->below->above = d->above;
    if (d->above)
        d->above->below = d->below;
    else
        d->ctx->own->top = d->below;
    wf_sys_free(d);
}

void wf_defer_run(WfDefer *d)
{
    if (!d)
        return;
    void (*release)(void *) = d->release;
    void *p = d->p;
    wf_defer_keep(d); /* first, so that it cannot run twice */
    release(p);
}

/* ---- failures ---- */

static void WF_NORETURN leave(WfCtx *ctx)
{
    if (!ctx->guard) {
        wf_log(ctx, WF_LOG_ERROR, "failure outside of any guard: %s", ctx->diag.message ? ctx->diag.message : "");
        abort();
    }
    longjmp(ctx->guard->env, 1);
}

/* Text that outlives the arenas: allocated, or cut to the fixed buffer when there is no memory. A buffer may
 * hold the very text that is being quoted, so the fallback formats beside it first. */
static char *keep_text(WfCtx *ctx, int slot, const char *fmt, va_list ap)
{
    char small[sizeof(ctx->own->spare[0])];
    va_list again;
    va_copy(again, ap);
    if (!fmt) /* never; gcc fears it where the sanitizer checks for it */
        fmt = "";
    int n = vsnprintf(small, sizeof(small), fmt, ap);
    char *text = wf_sys_alloc((size_t)(n < 0 ? 0 : n) + 1);
    if (text && n > 0)
        vsnprintf(text, (size_t)n + 1, fmt, again);
    va_end(again);
    if (!text) {
        text = ctx->own->spare[slot];
        memcpy(text, small, sizeof(small));
    }
    return text;
}

/* Names from files are quoted; on a terminal their control characters would do something. */
static char *printable(char *text)
{
    for (char *c = text; *c; c++)
        if (((unsigned char)*c < ' ' && *c != '\n' && *c != '\t') || *c == 0x7f)
            *c = '?';
    return text;
}

static char *WF_PRINTF(3, 4) keep_textf(WfCtx *ctx, int slot, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    char *text = keep_text(ctx, slot, fmt, ap);
    va_end(ap);
    return text;
}

static void WF_NORETURN vfail(WfCtx *ctx, int kind, const char *place, const char *hint, const char *fmt, va_list ap)
{
    const WfErrorKind *row = wf_error_find(kind);
    WfDiag old = ctx->diag;
    WfDiag new = { .code = row ? row->status : (weft_status)kind, .kind = kind };
    new.message = printable(keep_text(ctx, 0, fmt, ap));
    new.place = place ? printable(keep_textf(ctx, 1, "%s", place)) : NULL;
    new.hint = hint ? printable(keep_textf(ctx, 2, "%s", hint)) : NULL;
    ctx->diag = new;
    if (old.message != new.message)
        free_text(ctx, old.message);
    if (old.place != new.place)
        free_text(ctx, old.place);
    if (old.hint != new.hint)
        free_text(ctx, old.hint);
    leave(ctx);
}

void wf_fail(WfCtx *ctx, int kind, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vfail(ctx, kind, NULL, NULL, fmt, ap);
}

void wf_fail_at(WfCtx *ctx, int kind, const char *place, const char *hint, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vfail(ctx, kind, place, hint, fmt, ap);
}

void wf_reraise(WfCtx *ctx, weft_status code)
{
    ctx->diag.code = code;
    leave(ctx);
}

void wf_bug(WfCtx *ctx, const char *file, int line, const char *what)
{
    const char *src = strstr(file, "src/");
    wf_fail_at(ctx, WF_E_BUG, NULL, "this is a bug of Weft: please report it with the model and the command",
               "internal error at %s:%d: %s does not hold", src ? src : file, line, what);
}

void wf_log(WfCtx *ctx, WfLogLevel level, const char *fmt, ...)
{
    if (!ctx->log)
        return;
    char small[1024];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(small, sizeof(small), fmt, ap);
    va_end(ap);
    char *line = n >= (int)sizeof(small) ? wf_sys_alloc((size_t)n + 1) : NULL;
    if (line) {
        va_start(ap, fmt);
        vsnprintf(line, (size_t)n + 1, fmt, ap);
        va_end(ap);
    }
    ctx->log(ctx->log_user, level, line ? line : small); /* without memory: cut */
    wf_sys_free(line);
}

void wf_progress(WfCtx *ctx, const char *phase, int done, int of)
{
    if (ctx->progress)
        ctx->progress(ctx->progress_user, phase, done, of);
}

void wf_check_cancel(WfCtx *ctx)
{
    if (ctx->cancel && *ctx->cancel)
        wf_fail(ctx, WF_E_CANCELLED, "stopped on request");
}

const char *wf_status_name(weft_status code)
{
    static const char *const names[] = {
        [WEFT_OK] = "ok", [WEFT_ERR_USAGE] = "usage", [WEFT_ERR_FILE] = "file",
        [WEFT_ERR_UNSUPPORTED] = "unsupported", [WEFT_ERR_DATA] = "data", [WEFT_ERR_IO] = "io",
        [WEFT_ERR_MEMORY] = "memory", [WEFT_ERR_ENVIRONMENT] = "environment", [WEFT_ERR_NUMERIC] = "numeric",
        [WEFT_ERR_CANCELLED] = "cancelled", [WEFT_ERR_MISMATCH] = "mismatch", [WEFT_ERR_INTERNAL] = "internal",
        [WEFT_ERR_RANK] = "rank",
    };
    return (size_t)code < WF_LEN(names) ? names[code] : "unknown";
}
