/* What a step needs before it runs: memory, its largest buffers, calls and kernels, program by
 * program. The numbers are those of the binding that training would use, so the planned peak is the measured
 * one. */
#include "report/private.h"

#include <stdlib.h>
#include <string.h>

enum { LARGEST = 6 };

typedef struct {
    const WfExeBuf *b;
    int64_t bytes;
} Big;

static int larger(const void *a, const void *b)
{
    const Big *x = a, *y = b;
    return x->bytes != y->bytes ? (x->bytes < y->bytes ? 1 : -1) : x->b < y->b ? -1 : 1;
}

static void put_buffers(WfStr *out, const WfExe *x, const WfExeProgram *g, const int64_t *symbols)
{
    Big *big = WF_NEWN(out->arena, Big, (size_t)g->n_bufs + 1);
    int n = 0;
    for (int i = 0; i < g->n_bufs; i++)
        if (g->bufs[i].place == WF_PLACE_SLAB && g->bufs[i].same_as < 0 && g->bufs[i].first >= 0)
            big[n++] = (Big){&g->bufs[i], wf_exe_eval(x, g->bufs[i].bytes, symbols)};
    qsort(big, (size_t)n, sizeof *big, larger);
    for (int i = 0; i < n && i < LARGEST; i++) {
        WfStr s = {.arena = out->arena};
        for (int d = 0; d < big[i].b->rank; d++)
            wf_str_printf(&s, "%s%lld", d ? ", " : "",
                          (long long)wf_exe_eval(x, big[i].b->shape[d], symbols));
        wf_str_printf(out, "  %10.3f MB  %%%-24s %s[%s]  calls %d to %d\n", (double)big[i].bytes / 1048576.0,
               big[i].b->name ? big[i].b->name : "-", wf_dtype_name(big[i].b->dtype), s.at ? s.at : "",
               big[i].b->first, big[i].b->last);
    }
    if (n > LARGEST)
        wf_str_printf(out, "  and %d smaller buffers\n", n - LARGEST);
}

static void put_calls(WfStr *out, const WfExeProgram *g)
{
    WfMap *kinds = wf_map_new(out->arena), *names = wf_map_new(out->arena);
    int kernels = 0, copies = 0;
    for (int c = 0; c < g->n_calls; c++) {
        const WfExeCall *k = &g->calls[c];
        int64_t n = 0;
        copies += k->kind == WF_CALL_COPY;
        kernels += k->kind == WF_CALL_KERNEL;
        if (k->kind == WF_CALL_KERNEL)
            wf_map_put(names, k->symbol, 1);
        if (k->kind != WF_CALL_LIB)
            continue;
        wf_map_get(kinds, k->symbol, &n);
        wf_map_put(kinds, k->symbol, n + 1);
    }
    wf_str_printf(out, "  %d calls: %d of %d generated kernels", g->n_calls, kernels, wf_map_count(names));
    for (int i = 0; i < wf_map_count(kinds); i++) {
        size_t n;
        int64_t times;
        const char *name = wf_map_at(kinds, i, &n, &times);
        wf_str_printf(out, ", %lld %.*s", (long long)times, (int)n, name);
    }
    if (copies)
        wf_str_printf(out, ", %d copies", copies);
    wf_str_printf(out, "; %d of them update the state\n", g->n_calls - g->commit);
}

/* When buckets start and arrive, and how much of that a step waits for, by the predicted cost of its calls. */
static void put_timeline(WfStr *out, const WfExe *x, const WfExeProgram *g, const int64_t *symbols, int threads,
                         bool measured)
{
    double now = 0, free_at = 0, exposed = 0, sent = 0, *arrives = WF_NEWN(out->arena, double, (size_t)g->n_calls + 1);
    int n = 0;
    for (int c = 0; c < g->n_calls; c++) {
        const WfExeCall *k = &g->calls[c];
        if (k->kind == WF_CALL_START) {
            if (!n++)
                wf_str_printf(out, "  buckets, predicted%s, ms:\n  %10s  %10s  %10s  %10s  %10s\n",
                       measured ? "" : " (weft bench --machine measures this machine)", "MB", "start",
                       "arrival", "hidden", "exposed");
            free_at = (free_at > now ? free_at : now) + k->seconds;
            arrives[c] = free_at;
            sent += k->seconds;
        } else if (k->kind == WF_CALL_WAIT) {
            const WfExeCall *s = &g->calls[k->param[2]];
            double late = arrives[k->param[2]] - now, hidden;
            late = late > 0 ? late : 0;
            hidden = s->seconds > late ? s->seconds - late : 0;
            wf_str_printf(out, "  %10.3f  %10.3f  %10.3f  %10.3f  %10.3f  %s\n",
                   (double)wf_exe_eval(x, g->bufs[k->operand[0].buf].bytes, symbols) / 1048576.0,
                   (arrives[k->param[2]] - s->seconds) * 1e3, arrives[k->param[2]] * 1e3, hidden * 1e3, late * 1e3, s->name);
            exposed += late;
            now += late;
        } else {
            now += wf_exe_seconds(k, symbols) / threads;
        }
    }
    if (n)
        wf_str_printf(out, "  communication: %.3f ms in %d buckets, %.3f ms of it exposed; step: %.3f ms\n", sent * 1e3, n, exposed * 1e3,
               now * 1e3);
}

/* Values of the symbols for the batch size that is asked for, or the usual one. */
static int64_t *symbols_of(WfCtx *ctx, WfStr *out, const WfExe *x, const WfOptions *o)
{
    int64_t *symbols = WF_NEWN(out->arena, int64_t, (size_t)x->n_symbols + 1);
    for (int i = 0; i < x->n_symbols; i++) {
        const WfExeSymbol *m = &x->symbols[i];
        bool given = m->dim == 0 && o->batch_size;
        int64_t want = ((given ? o->batch_size : wf_exe_usual(m)) - m->plus) / m->factor, lo, hi;
        wf_exe_sizes(m, &lo, &hi);
        if (given && (o->batch_size < lo || o->batch_size > hi || (o->batch_size - m->plus) % m->factor))
            wf_fail(ctx, WF_E_BATCH_SIZE, "--batch-size %lld: the export allows %lld to %lld in steps of %lld",
                    (long long)o->batch_size, (long long)lo, (long long)hi, (long long)m->factor);
        symbols[i] = want < x->symbols[i].lo   ? x->symbols[i].lo
                     : want > x->symbols[i].hi ? x->symbols[i].hi
                                               : want;
        wf_str_printf(out, "%s = %lld\n", x->symbols[i].name, (long long)symbols[i]);
    }
    return symbols;
}

static WfSession *session_of(WfCtx *ctx, const WfExe *x, const WfOptions *o)
{
    int isa = o->isa == WF_ISA_V3 ? WF_ISA_LEVEL_V3 : o->isa == WF_ISA_V4 ? WF_ISA_LEVEL_V4 : 0;
    return wf_session_new(ctx, x, (int)o->threads, isa, (WfWeightSource){0});
}

void wf_report_plan(WfCtx *ctx, const WfExe *x, const WfOptions *o, WfStr *out)
{
    static const char *const names[WF_PROGRAMS] = {"training step", "evaluation", "micro-batch", "forward half", "backward half"};
    int64_t *symbols = symbols_of(ctx, out, x, o), state = 0;
    int peak = -1;
    for (int k = 0; k < WF_PROGRAMS; k++) {
        if (!x->program[k].n_calls)
            continue;
        WfSession *s = session_of(ctx, x, o);
        wf_session_prepare(s, (WfProgramKind)k, symbols);
        wf_str_printf(out, "%s: %.3f MB slab with %d threads", names[k], (double)wf_session_slab_bytes(s) / 1048576.0,
               wf_session_threads(s));
        if (x->core >= 0)
            wf_str_printf(out, ", in the memory of core %d", x->core);
        wf_str_putc(out, '\n');
        put_calls(out, &x->program[k]);
        put_timeline(out, x, &x->program[k], symbols, wf_session_threads(s), o->machine.measured);
        WfExeMemory memory;
        wf_exe_memory(x, out->arena, (WfProgramKind)k, symbols, &memory);
        peak = k == WF_PROG_STEP ? memory.call : peak;
        if (k == WF_PROG_STEP || !x->program[WF_PROG_STEP].n_calls) { /* the others are much the same */
            wf_report_slowest(out, &x->program[k], symbols, wf_session_threads(s));
            wf_report_lines(out, x, &x->program[k], symbols, memory.call);
            if (k != WF_PROG_EVAL)
                wf_report_recompute(out, x, &x->program[k], symbols, wf_session_threads(s), memory.call);
            wf_str_puts(out, "  largest buffers:\n");
            put_buffers(out, x, &x->program[k], symbols);
        }
        state = wf_session_state_bytes(s);
        wf_session_free(s);
    }
    bool batches = false;
    for (int i = 0; i < x->n_inputs; i++)
        batches |= x->inputs[i].role == WF_XIN_USER && x->inputs[i].rank;
    if (x->program[WF_PROG_STEP].n_calls && batches) {
        WfSession *s = session_of(ctx, x, o);
        int64_t batch = wf_exe_batch(ctx, x, o);
        bool any = !x->accumulate || (x->accumulate == 1 && !strstr(x->options, "deterministic=elastic"));
        wf_str_printf(out, "micro-batches of a step of %lld rows%s:\n", (long long)batch * (x->accumulate > 1 ? x->accumulate : 1),
               any ? " (--micro-batch)" : "");
        wf_micro_print(wf_micro_table(out->arena, s, x, symbols, batch, any), "cpu", wf_session_state_bytes(s), out);
        wf_session_free(s);
    }
    wf_report_modules(out, x, symbols, peak);
    wf_str_printf(out, "weights, buffers%s optimiser state: %.3f MB\n", x->accumulate != 1 ? ", accumulated gradients and" : " and",
           (double)state / 1048576.0);
}
