/* Tables of a step for weft plan and weft info: what each module of the model holds, what memory at the peak comes from which
 * line, which calls take the time, which buffers would be cheap to compute again. Predicted numbers are those that the planner
 * goes by. */
#include "report/private.h"

#include <stdlib.h>
#include <string.h>

enum { SHOWN = 6, CODE = 60 };

typedef struct {
    const char *name;
    int64_t elements, trainable, bytes, state, activations;
    double weight;
} Row;

static int heavier(const void *a, const void *b)
{
    const Row *x = a, *y = b;
    return x->weight != y->weight ? (x->weight < y->weight ? 1 : -1) : strcmp(x->name, y->name);
}

typedef struct { WfArena *a; WfMap *by_name; WF_VEC(Row) rows; } Rows;

static Row *row_of(Rows *r, const char *name, size_t n)
{
    const char *key = wf_arena_strndup(r->a, name, n);
    int64_t at;
    if (!wf_map_get(r->by_name, key, &at)) {
        wf_map_put(r->by_name, key, at = r->rows.n);
        WF_PUSH(r->a, &r->rows, ((Row){.name = key}));
    }
    return &r->rows.at[at];
}

static size_t module_of(const char *parameter)
{
    const char *dot = strrchr(parameter, '.');
    return dot ? (size_t)(dot - parameter) : 0;
}

/* What is alive at call `peak` of the step, by the module of the call that made it. */
static void add_activations(Rows *r, const WfExe *x, const int64_t *symbols, int peak)
{
    const WfExeProgram *p = &x->program[WF_PROG_STEP];
    for (int i = 0; i < p->n_bufs && peak >= 0; i++) {
        const WfExeBuf *b = &p->bufs[i];
        if (b->place != WF_PLACE_SLAB || b->same_as >= 0 || b->first < 0 || b->first > peak || b->last < peak)
            continue;
        const char *module = p->calls[b->first].module;
        row_of(r, module ? module : "", module ? strlen(module) : 0)->activations += wf_exe_eval(x, b->bytes, symbols);
    }
}

void wf_report_modules(WfStr *out, const WfExe *x, const int64_t *symbols, int peak)
{
    Rows r = {.a = out->arena, .by_name = wf_map_new(out->arena)};
    for (int i = 0; i < x->n_inputs; i++) {
        const WfExeInput *in = &x->inputs[i];
        const char *name = in->role == WF_XIN_STATE || in->role == WF_XIN_ACCUM ? in->of : in->name;
        if (in->role == WF_XIN_USER || in->role == WF_XIN_SCALAR || !name)
            continue;
        int64_t n = wf_exe_elements(x, in);
        Row *row = row_of(&r, name, module_of(name));
        int64_t bytes = n * (int64_t)wf_dtype_size(in->dtype);
        if (in->role == WF_XIN_PARAM) {
            row->elements += n;
            row->trainable += in->trainable ? n : 0;
        }
        *(in->role == WF_XIN_STATE || in->role == WF_XIN_ACCUM ? &row->state : &row->bytes) += bytes;
    }
    add_activations(&r, x, symbols, peak);
    wf_str_printf(out, "%-32s %14s %14s %12s %12s %16s\n", "module", "parameters", "trainable", "weights, MB", "state, MB", "activations, MB");
    for (int i = 0; i < r.rows.n; i++) {
        const Row *row = &r.rows.at[i];
        wf_str_printf(out, "%-32s %14lld %14lld %12.3f %12.3f %16.3f\n", *row->name ? row->name : "(the model itself)", (long long)row->elements,
               (long long)row->trainable, (double)row->bytes / 1048576.0, (double)row->state / 1048576.0,
               (double)row->activations / 1048576.0);
    }
}

/* Where a call comes from: its Python line, without folders and cut, else its name. */
static const char *origin(WfArena *a, const WfExeCall *k)
{
    if (!k->where || !*k->where)
        return k->name ? k->name : "-";
    const char *code = strstr(k->where, "  "), *file = k->where;
    for (const char *c = file; c < (code ? code : file + strlen(file)); c++)
        file = *c == '/' ? c + 1 : file;
    return !code || strlen(code) <= CODE ? file : wf_arena_printf(a, "%.*s...", (int)(code - file) + CODE, file);
}

void wf_report_lines(WfStr *out, const WfExe *x, const WfExeProgram *p, const int64_t *symbols, int peak)
{
    Rows r = {.a = out->arena, .by_name = wf_map_new(out->arena)};
    double all = 0;
    for (int i = 0; i < p->n_bufs; i++) {
        const WfExeBuf *b = &p->bufs[i];
        if (b->place != WF_PLACE_SLAB || b->same_as >= 0 || b->first < 0 || b->first > peak || b->last < peak)
            continue;
        double bytes = (double)wf_exe_eval(x, b->bytes, symbols);
        const char *from = origin(r.a, &p->calls[b->first]);
        row_of(&r, from, strlen(from))->weight += bytes;
        all += bytes;
    }
    if (!all)
        return;
    qsort(r.rows.at, (size_t)r.rows.n, sizeof(Row), heavier);
    wf_str_printf(out, "  at the peak, %.3f MB are alive (during %s), made by\n", all / 1048576.0, p->calls[peak].name ? p->calls[peak].name : "-");
    for (int i = 0; i < r.rows.n && i < SHOWN; i++)
        wf_str_printf(out, "  %10.3f MB  %s\n", r.rows.at[i].weight / 1048576.0, r.rows.at[i].name);
    if (r.rows.n > SHOWN)
        wf_str_printf(out, "  and %d other lines\n", r.rows.n - SHOWN);
}

void wf_report_slowest(WfStr *out, const WfExeProgram *p, const int64_t *symbols, int threads)
{
    Rows r = {.a = out->arena, .by_name = wf_map_new(out->arena)};
    double all = 0;
    for (int c = 0; c < p->n_calls; c++) {
        const WfExeCall *k = &p->calls[c];
        if (k->kind == WF_CALL_START || k->kind == WF_CALL_WAIT)
            continue;
        Row row = {.name = wf_arena_printf(r.a, "%-24s %s", k->name ? k->name : "-", k->where ? origin(r.a, k) : ""),
                   .weight = wf_exe_seconds(k, symbols) / threads};
        WF_PUSH(r.a, &r.rows, row);
        all += row.weight;
    }
    if (!(all > 0))
        return;
    qsort(r.rows.at, (size_t)r.rows.n, sizeof(Row), heavier);
    wf_str_printf(out, "  predicted %.3f ms, of which\n", all * 1e3);
    for (int i = 0; i < r.rows.n && i < SHOWN; i++)
        wf_str_printf(out, "  %10.3f ms %3.0f %%  %s\n", r.rows.at[i].weight * 1e3, r.rows.at[i].weight / all * 100, r.rows.at[i].name);
}

void wf_report_recompute(WfStr *out, const WfExe *x, const WfExeProgram *p, const int64_t *symbols, int threads, int peak)
{
    Rows r = {.a = out->arena, .by_name = wf_map_new(out->arena)};
    for (int i = 0; i < p->n_bufs; i++) {
        const WfExeBuf *b = &p->bufs[i];
        if (b->place != WF_PLACE_SLAB || b->same_as >= 0 || b->first < 0 || b->first >= peak || b->last <= peak || b->last >= p->commit)
            continue;
        const WfExeCall *k = &p->calls[b->first];
        int64_t bytes = wf_exe_eval(x, b->bytes, symbols);
        double ms = wf_exe_seconds(k, symbols) / threads * 1e3;
        WF_PUSH(r.a, &r.rows, ((Row){.name = wf_arena_printf(r.a, "%s%s: %.3f MB for %.3f ms  %s", b->name ? "%" : "", b->name ? b->name : k->name ? k->name : "-",
                                                           (double)bytes / 1048576.0, ms, origin(r.a, k)),
                                   .weight = (double)bytes / (ms > 1e-6 ? ms : 1e-6)}));
    }
    if (!r.rows.n)
        return;
    qsort(r.rows.at, (size_t)r.rows.n, sizeof(Row), heavier);
    wf_str_puts(out, "  kept over the peak, cheapest first to compute again:\n");
    for (int i = 0; i < r.rows.n && i < SHOWN / 2; i++)
        wf_str_printf(out, "  %s\n", r.rows.at[i].name);
}
