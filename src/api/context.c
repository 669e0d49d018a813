/* Contexts of the public interface: a weft_context is a WfCtx. */
#include "api/api.h"

#include <string.h>

static WfCtx *inner(const weft_context *c) { return (WfCtx *)c; }

const char *weft_version(void) { return "0.1.0"; }

weft_context *weft_context_new(const weft_allocator *allocator)
{
    WfCtx *c = wf_ctx_new();
    if (c && allocator) {
        c->alloc = allocator->alloc;
        c->release = allocator->release;
        c->alloc_user = allocator->user;
    }
    return (weft_context *)c;
}

void weft_context_free(weft_context *ctx) { wf_ctx_free(inner(ctx)); }

static const char *text(const char *s) { return s ? s : ""; }
const char *weft_message(const weft_context *ctx) { return text(inner(ctx)->diag.message); }
const char *weft_place(const weft_context *ctx) { return text(inner(ctx)->diag.place); }
const char *weft_code(const weft_context *ctx)
{
    const WfErrorKind *k = wf_error_find(inner(ctx)->diag.kind);
    return k ? k->code : "";
}
const char *weft_hint(const weft_context *ctx) { return text(inner(ctx)->diag.hint); }
const char *weft_status_name(weft_status status) { return wf_status_name(status); }

void weft_on_log(weft_context *ctx, void (*fn)(void *user, int level, const char *line), void *user)
{
    inner(ctx)->log = (WfLogFn)(void (*)(void))fn; /* WfLogLevel is an int to the outside */
    inner(ctx)->log_user = user;
}

void weft_cancel_flag(weft_context *ctx, volatile int *flag) { inner(ctx)->cancel = flag; }
