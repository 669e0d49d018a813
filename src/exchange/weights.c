/* Weights of a session to and from files. All that does not fit is found before the first byte changes, and is said at
 * once, as load_state_dict does: one error is one list. */
#include "exchange/exchange.h"

#include <string.h>

enum { MOST_LISTED = 20 };

/* The wanted ones that a line names. */
typedef struct { WfStr names; int n; } List;

static void list_add(List *l, const char *text, const char *between)
{
    if (l->n++ < MOST_LISTED)
        wf_str_printf(&l->names, "%s%s", l->n > 1 ? between : "", text);
    else if (l->n == MOST_LISTED + 1)
        wf_str_printf(&l->names, "%s..", between);
}

static char *type_text(WfArena *a, WfDtype t, int rank, const int64_t *shape)
{
    WfStr s = {.arena = a};
    wf_str_printf(&s, "%s[", wf_dtype_name(t));
    for (int d = 0; d < rank; d++)
        wf_str_printf(&s, d ? ", %lld" : "%lld", (long long)shape[d]);
    wf_str_putc(&s, ']');
    return s.at;
}

static bool convertible(WfDtype from, WfDtype to) { return from == to || (wf_dtype_is_float(from) && wf_dtype_is_float(to)); }

typedef struct {
    WfCtx *ctx;
    WfArena *a;
    const WfTensors *file;
    WfMap *used;
    List missing, unexpected, wrong;
} Fit;

/* k-th name of a wanted tensor; the first is its own. */
static const char *name_of(const WfWanted *w, int k) { return k ? w->aliases[k - 1] : w->name; }

static void fit_one(Fit *f, WfWanted *w)
{
    bool found = false;
    w->from = NULL;
    for (int k = 0; k <= w->n_aliases; k++) {
        const WfTensor *t = wf_tensors_find(f->file, name_of(w, k));
        if (!t)
            continue;
        found = true;
        wf_map_put(f->used, t->name, 1);
        if (t->rank != w->rank || memcmp(t->shape, w->shape, (size_t)w->rank * sizeof *w->shape) || !convertible(t->dtype, w->dtype))
            list_add(&f->wrong, wf_arena_printf(f->a, "%s: %s in the file, %s in the model", t->name,
                                                type_text(f->a, t->dtype, t->rank, t->shape),
                                                type_text(f->a, w->dtype, w->rank, w->shape)), "\n  ");
        else if (w->from && (w->from->dtype != t->dtype || memcmp(w->from->data, t->data, t->bytes)))
            list_add(&f->wrong, wf_arena_printf(f->a, "%s: another value than %s, with which it is one tensor in the model",
                                                t->name, w->from->name), "\n  ");
        else
            w->from = t;
    }
    if (!found)
        list_add(&f->missing, w->name, ", ");
}

static const char *are(int n) { return n == 1 ? "is" : "are"; }

/* Under strict: everything in one error. */
static void refuse(Fit *f, const char *what, bool strict)
{
    WfStr places = {.arena = f->a}, counts = {.arena = f->a};
    const char *between = "";
    if (f->missing.n && strict) {
        wf_str_printf(&counts, "%d missing", f->missing.n);
        wf_str_printf(&places, "missing: %s", f->missing.names.at);
        between = ", ";
    }
    if (f->unexpected.n && strict) {
        wf_str_printf(&counts, "%s%d unexpected", between, f->unexpected.n);
        wf_str_printf(&places, "%sunexpected: %s", *between ? "\n  " : "", f->unexpected.names.at);
        between = ", ";
    }
    if (f->wrong.n) {
        wf_str_printf(&counts, "%s%d different", between, f->wrong.n);
        wf_str_printf(&places, "%s%s", *between ? "\n  " : "", f->wrong.names.at);
    }
    if (counts.n)
        wf_fail_at(f->ctx, WF_E_WEIGHTS, places.at,
                   f->wrong.n ? "Take the file that belongs to this model. Of a model with another head, leave these tensors out of the file and give "
                                "--strict=false: what is missing keeps the model's values."
                              : "With --strict=false missing tensors keep the model's values, and unexpected ones are left out.",
                   "%s: it does not hold the model's %s: %s", f->file->path, what, counts.at);
}

void wf_weights_fit(WfCtx *ctx, const WfTensors *file, WfWanted *w, int n, bool strict, const char *what)
{
    WfArena *a = wf_arena_scratch(ctx);
    Fit f = {ctx, a, file, wf_map_new(a), {.names.arena = a}, {.names.arena = a}, {.names.arena = a}};
    for (int i = 0; i < n; i++)
        fit_one(&f, &w[i]);
    for (int i = 0; i < file->n; i++)
        if (!wf_map_get(f.used, file->at[i].name, NULL))
            list_add(&f.unexpected, file->at[i].name, ", ");
    refuse(&f, what, strict);
    if (f.missing.n)
        wf_log(ctx, WF_LOG_WARN, "%s: %d of the %s %s missing and left as they are: %s", file->path, f.missing.n, what,
               are(f.missing.n), f.missing.names.at);
    if (f.unexpected.n)
        wf_log(ctx, WF_LOG_WARN, "%s: %d of its tensors %s not the model's and left out: %s", file->path, f.unexpected.n,
               are(f.unexpected.n), f.unexpected.names.at);
    wf_arena_free(a);
}

void wf_weights_copy(const WfWanted *w, void *to)
{
    const WfTensor *t = w->from;
    if (t->dtype == w->dtype) {
        memcpy(to, t->data, t->bytes);
        return;
    }
    size_t from_size = wf_dtype_size(t->dtype), to_size = wf_dtype_size(w->dtype), n = t->bytes / from_size;
    for (size_t i = 0; i < n; i++)
        wf_store_f64(w->dtype, (uint8_t *)to + i * to_size, wf_load_f64(t->dtype, (const uint8_t *)t->data + i * from_size));
}

void wf_weights_tell(WfCtx *ctx, const WfTensors *file, const WfWanted *w, int n)
{
    int converted = 0, first = -1;
    for (int i = 0; i < n; i++)
        if (w[i].from && w[i].from->dtype != w[i].dtype) {
            first = first < 0 ? i : first;
            converted++;
        }
    if (converted)
        wf_log(ctx, WF_LOG_INFO, "%s: %d of %d tensors were converted, the first is %s, from %s to %s", file->path, converted, n,
               w[first].name, wf_dtype_name(w[first].from->dtype), wf_dtype_name(w[first].dtype));
}

static bool kept(const WfExeInput *in)
{
    return in->role == WF_XIN_PARAM || (in->role == WF_XIN_BUFFER && in->persistent);
}

void wf_weights_load(WfCtx *ctx, const WfExe *x, WfSession *s, const char *path, bool strict)
{
    WfArena *a = wf_arena_scratch(ctx);
    WfTensors *file = wf_weights_open(ctx, a, path);
    WfWanted *w = WF_NEWN(a, WfWanted, (size_t)x->n_inputs + 1);
    void **to = WF_NEWN(a, void *, (size_t)x->n_inputs + 1);
    int n = 0;
    for (int i = 0; i < x->n_inputs; i++) {
        const WfExeInput *in = &x->inputs[i];
        WfTensor t;
        if (!kept(in) || !wf_session_tensor(s, in->name, &t))
            continue;
        w[n] = (WfWanted){.name = in->name, .aliases = in->aliases, .n_aliases = in->n_aliases, .dtype = t.dtype, .rank = t.rank};
        memcpy(w[n].shape, t.shape, sizeof t.shape);
        to[n++] = (void *)(uintptr_t)t.data;
    }
    wf_weights_fit(ctx, file, w, n, strict, "weights");
    for (int i = 0; i < n; i++)
        if (w[i].from)
            wf_weights_copy(&w[i], to[i]);
    wf_weights_tell(ctx, file, w, n);
    wf_arena_free(a);
}

void wf_weights_save(WfCtx *ctx, const WfExe *x, WfSession *s, const char *path)
{
    WfArena *a = wf_arena_scratch(ctx);
    int n = 0, cap = 0;
    for (int i = 0; i < x->n_inputs; i++)
        cap += 1 + x->inputs[i].n_aliases;
    WfTensor *t = WF_NEWN(a, WfTensor, (size_t)cap + 1);
    for (int i = 0; i < x->n_inputs; i++) {
        const WfExeInput *in = &x->inputs[i];
        if (!kept(in))
            continue;
        for (int k = -1; k < in->n_aliases; k++) {
            wf_session_tensor(s, in->name, &t[n]);
            t[n++].name = k < 0 ? in->name : in->aliases[k];
        }
    }
    wf_safetensors_write(ctx, path, t, n);
    wf_arena_free(a);
}
