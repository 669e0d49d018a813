/* The table of micro-batches: a step of B rows can be taken in micro-batches of any size that divides B. */
#include "report/report.h"

#include <string.h>

static bool allowed(const WfExe *x, int64_t rows)
{
    int64_t lo, hi;
    for (int i = 0; i < x->n_symbols; i++) {
        const WfExeSymbol *m = &x->symbols[i];
        wf_exe_sizes(m, &lo, &hi);
        if (m->dim == 0 && (rows < lo || rows > hi || (rows - m->plus) % m->factor))
            return false;
    }
    return true;
}

static double seconds(const WfExeProgram *p, const int64_t *symbols, int threads)
{
    double t = 0;
    for (int c = 0; c < p->n_calls; c++)
        if (p->calls[c].kind != WF_CALL_START && p->calls[c].kind != WF_CALL_WAIT)
            t += wf_exe_seconds(&p->calls[c], symbols) / threads;
    return t;
}

static WfMicroRow row_of(WfSession *s, const WfExe *x, int64_t *symbols, int64_t rows, int64_t count)
{
    WfProgramKind micro = x->program[WF_PROG_MICRO].n_calls ? WF_PROG_MICRO : WF_PROG_STEP; /* but for the update, the same */
    for (int i = 0; i < x->n_symbols; i++)
        if (!x->symbols[i].dim)
            symbols[i] = (rows - x->symbols[i].plus) / x->symbols[i].factor;
    WfMicroRow r = {.rows = rows, .count = count, .bytes = wf_session_needs(s, WF_PROG_STEP, symbols)};
    int64_t more = count > 1 ? wf_session_needs(s, micro, symbols) : 0;
    int threads = wf_session_threads(s);
    r.bytes = more > r.bytes ? more : r.bytes;
    r.seconds = seconds(&x->program[WF_PROG_STEP], symbols, threads);
    if (count > 1)
        r.seconds += (double)(count - 1) * seconds(&x->program[micro], symbols, threads);
    return r;
}

WfMicroTable *wf_micro_table(WfArena *a, WfSession *s, const WfExe *x, const int64_t *symbols,
                             int64_t batch, bool any)
{
    WfMicroTable *t = WF_NEW(a, WfMicroTable);
    int fixed = x->accumulate ? x->accumulate : 1;
    int64_t *of_row = WF_NEWN(a, int64_t, (size_t)x->n_symbols + 1);
    memcpy(of_row, symbols, (size_t)x->n_symbols * sizeof *symbols);
    for (int64_t k = 1; k <= batch && k <= 65536; k++) /* largest micro-batch first */
        if (k == 1 || (x->n_symbols && any && batch % k == 0 && allowed(x, batch / k)))
            WF_PUSH(a, &t->rows, row_of(s, x, of_row, batch / k, k * fixed));
    return t;
}

void wf_micro_print(const WfMicroTable *t, const char *device, int64_t others, WfStr *out)
{
    wf_str_printf(out, "  %-8s  %12s  %15s  %11s  %16s\n", "Device", "Memory, MB", "Max micro-batch", "Accum steps",
                  "Latency overhead");
    for (int i = 0; i < t->rows.n; i++) {
        const WfMicroRow *r = &t->rows.at[i];
        wf_str_printf(out, "  %-8s  %12.3f  %15lld  %11lld  %14.1f %%\n", device, (double)(r->bytes + others) / 1048576.0,
                      (long long)r->rows, (long long)r->count, (r->seconds / t->rows.at[0].seconds - 1) * 100);
    }
}
