/* Micro-batches by the memory there is. A step of B rows can be taken in micro-batches of any size that divides B: the plan
 * says what memory each needs and how long the step is then predicted to take. The compiled step serves all of them; the row
 * of the table is fixed by --micro-batch N, or chosen when a step begins. Ranks choose for themselves: their steps have the
 * same rows, and gradients are divided by counts. */
#include "train/train.h"

#include <string.h>

enum { KEEP = 16, SPARE = 10 }; /* 1 / KEEP of the memory stays free; a larger row must have 1 / SPARE to spare */

void wf_train_symbols(const WfExe *x, const WfDataset *d, int64_t rows, int64_t *symbols)
{
    for (int i = 0; i < x->n_symbols; i++) {
        const WfExeSymbol *m = &x->symbols[i];
        int64_t size = m->dim ? wf_exe_usual(m) : rows;
        for (int c = 0; d && m->dim && c < d->n; c++)
            if (!strcmp(d->columns[c].input->name, x->inputs[m->input].name))
                size = d->columns[c].shape[m->dim];
        symbols[i] = (size - m->plus) / m->factor;
    }
}

/* The row of --micro-batch N. */
static int named(WfCtx *ctx, const WfMicroTable *t, int64_t n)
{
    WfMicroRow whole = t->rows.at[0];
    for (int i = 0; i < t->rows.n; i++)
        if (t->rows.at[i].rows == n)
            return i;
    wf_fail_at(ctx, WF_E_MICRO_BATCH, NULL,
               t->rows.n > 1 ? "weft plan lists the sizes that it can be taken in."
                             : "Export it with dynamic_shapes={'x': {0: torch.export.Dim('batch', min=1)}, ...} to choose freely.",
               "--micro-batch %lld: a step of %lld rows cannot be taken in micro-batches of that size", (long long)n,
               (long long)whole.rows);
}

WfMicro *wf_micro_new(WfCtx *ctx, WfArena *a, const WfTraining *t, const WfDataset *d, int64_t batch)
{
    int64_t wanted = wf_options_micro(t->options);
    if (wanted < 0 && t->exe->accumulate)
        return NULL;
    WfMicro *m = WF_NEW(a, WfMicro);
    int ranks = t->comm ? wf_comm_size(t->comm) : 1;
    bool speaks = false; /* the model's own collectives come once per micro-batch */
    for (int c = 0; c < t->exe->program[WF_PROG_MICRO].n_calls; c++)
        speaks |= t->exe->program[WF_PROG_MICRO].calls[c].kind == WF_CALL_START;
    if (m->automatic && speaks && ranks > 1)
        wf_fail_at(ctx, WF_E_MICRO_BATCH, NULL, "Choose one size for all ranks with --micro-batch N.",
                   "--micro-batch auto: the model's forward pass has collectives, which need as many micro-batches on all ranks");
    if (t->exe->accumulate && wanted > 0 && wanted != batch && t->exe->n_symbols)
        wf_fail_at(ctx, WF_E_STEP_FIXED, NULL, "Compile the model again with --micro-batch.",
                   "--micro-batch %lld: the step was compiled for a fixed number of micro-batches", (long long)wanted);
    int64_t *symbols = WF_NEWN(a, int64_t, (size_t)t->exe->n_symbols + 1);
    wf_train_symbols(t->exe, d, batch, symbols);
    m->table = wf_micro_table(a, t->session, t->exe, symbols, batch, !t->exe->accumulate);
    m->chosen = WF_NEWN(a, int64_t, (size_t)ranks);
    m->automatic = wanted == 0;
    m->at = wanted > 0 ? named(ctx, m->table, wanted) : 0;
    return m;
}

/* The largest micro-batch that there is memory for. A row that is in use stays until it does not fit, or a larger one does
 * with something to spare. */
static int choose(WfMicro *m, WfTraining *t, int rank, int64_t step)
{
    const WfMicroTable *table = m->table;
    int64_t left = wf_memory_available(t->ctx, wf_ranks_here(t), rank, step), held = wf_session_holds(t->session);
    left = left - left / KEEP;
    left = wf_env("WEFT_MEMORY") ? left : left + held; /* measured: what is held is not available any more */
    for (int i = 0; i < table->rows.n; i++) {
        int64_t need = table->rows.at[i].bytes;
        if (need + (m->begun && i < m->at ? need / SPARE : 0) <= left)
            return i;
    }
    if (!m->told)
        wf_log(t->ctx, WF_LOG_WARN, "--micro-batch auto: %.1f MB of memory are available, and micro-batches of %lld rows need %.1f",
               (double)left / 1048576.0, (long long)table->rows.at[table->rows.n - 1].rows,
               (double)table->rows.at[table->rows.n - 1].bytes / 1048576.0);
    m->told = true;
    return table->rows.n - 1;
}

const WfMicroRow *wf_micro_begin(WfMicro *m, WfTraining *t, int64_t step)
{
    int ranks = t->comm ? wf_comm_size(t->comm) : 1, rank = t->comm ? wf_comm_rank(t->comm) : 0, before = m->at;
    if (m->automatic && m->table->rows.n > 1)
        m->at = choose(m, t, rank, step);
    if (m->begun && m->at > before) /* what is not needed any more is what was short */
        wf_session_release(t->session);
    const WfMicroRow *r = &m->table->rows.at[m->at];
    if (!t->exe->accumulate)
        wf_session_set_micro_batches(t->session, (int)r->count);
    if (!m->begun || m->automatic) {
        m->chosen[0] = r->rows;
        if (ranks > 1)
            wf_comm_exchange(t->comm, &r->rows, sizeof r->rows, m->chosen, 0, "the choice of micro-batches");
    }
    m->begun = true;
    return r;
}
