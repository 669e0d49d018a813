/* weft plan: what a step needs before it runs: memory, its largest buffers, calls and kernels, program by
 * program. The numbers are those of the binding that training would use, so the planned peak is the measured
 * one. */
#include "cli/cli.h"

#include "train/train.h"

#include <stdlib.h>
#include <string.h>

enum { LARGEST = 12 };

typedef struct {
    const WfExeBuf *b;
    int64_t bytes;
} Big;

static int larger(const void *a, const void *b)
{
    const Big *x = a, *y = b;
    return x->bytes != y->bytes ? (x->bytes < y->bytes ? 1 : -1) : x->b < y->b ? -1 : 1;
}

static void put_buffers(weft_program *p, const WfExeProgram *g, const int64_t *symbols)
{
    Big *big = WF_NEWN(p->arena, Big, (size_t)g->n_bufs + 1);
    int n = 0;
    for (int i = 0; i < g->n_bufs; i++)
        if (g->bufs[i].place == WF_PLACE_SLAB && g->bufs[i].same_as < 0 && g->bufs[i].first >= 0)
            big[n++] = (Big){&g->bufs[i], wf_exe_eval(p->exe, g->bufs[i].bytes, symbols)};
    qsort(big, (size_t)n, sizeof *big, larger);
    for (int i = 0; i < n && i < LARGEST; i++) {
        WfStr s = {.arena = p->arena};
        for (int d = 0; d < big[i].b->rank; d++)
            wf_str_printf(&s, "%s%lld", d ? ", " : "",
                          (long long)wf_exe_eval(p->exe, big[i].b->shape[d], symbols));
        printf("  %10.3f MB  %%%-24s %s[%s]  calls %d to %d\n", (double)big[i].bytes / 1048576.0,
               big[i].b->name ? big[i].b->name : "-", wf_dtype_name(big[i].b->dtype), s.at ? s.at : "",
               big[i].b->first, big[i].b->last);
    }
    if (n > LARGEST)
        printf("  and %d smaller buffers\n", n - LARGEST);
}

static void put_calls(weft_program *p, const WfExeProgram *g)
{
    WfMap *kinds = wf_map_new(p->arena), *names = wf_map_new(p->arena);
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
    printf("  %d calls: %d of %d generated kernels", g->n_calls, kernels, wf_map_count(names));
    for (int i = 0; i < wf_map_count(kinds); i++) {
        size_t n;
        int64_t times;
        const char *name = wf_map_at(kinds, i, &n, &times);
        printf(", %lld %.*s", (long long)times, (int)n, name);
    }
    if (copies)
        printf(", %d copies", copies);
    printf("; %d of them update the state\n", g->n_calls - g->commit);
}

/* When buckets start and arrive, and how much of that a step waits for, by the predicted cost of its calls. */
static void put_timeline(weft_program *p, const WfExeProgram *g, const int64_t *symbols, int threads)
{
    double now = 0, free_at = 0, exposed = 0, sent = 0, *arrives = WF_NEWN(p->arena, double, (size_t)g->n_calls + 1);
    int n = 0;
    for (int c = 0; c < g->n_calls; c++) {
        const WfExeCall *k = &g->calls[c];
        if (k->kind == WF_CALL_START) {
            if (!n++)
                printf("  buckets, predicted%s, ms:\n  %10s  %10s  %10s  %10s  %10s\n",
                       p->options.machine.measured ? "" : " (weft bench --machine measures this machine)", "MB", "start",
                       "arrival", "hidden", "exposed");
            free_at = (free_at > now ? free_at : now) + k->seconds;
            arrives[c] = free_at;
            sent += k->seconds;
        } else if (k->kind == WF_CALL_WAIT) {
            const WfExeCall *s = &g->calls[k->param[2]];
            double late = arrives[k->param[2]] - now, hidden;
            late = late > 0 ? late : 0;
            hidden = s->seconds > late ? s->seconds - late : 0;
            printf("  %10.3f  %10.3f  %10.3f  %10.3f  %10.3f  %s\n",
                   (double)wf_exe_eval(p->exe, g->bufs[k->operand[0].buf].bytes, symbols) / 1048576.0,
                   (arrives[k->param[2]] - s->seconds) * 1e3, arrives[k->param[2]] * 1e3, hidden * 1e3, late * 1e3, s->name);
            exposed += late;
            now += late;
        } else {
            now += wf_exe_seconds(k, symbols) / threads;
        }
    }
    if (n)
        printf("  communication: %.3f ms in %d buckets, %.3f ms of it exposed; step: %.3f ms\n", sent * 1e3, n, exposed * 1e3,
               now * 1e3);
}

int wf_cli_plan(WfCtx *ctx, const WfOptions *o, const WfStrings *words)
{
    static const char *const names[] = {"training step", "evaluation", "micro-batch"};
    weft_program *p = wf_cli_open(ctx, o, words);
    if (!p->exe)
        wf_program_compile(p);
    const WfExe *x = p->exe;
    int64_t *symbols = WF_NEWN(p->arena, int64_t, (size_t)x->n_symbols + 1), state = 0;
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
        printf("%s = %lld\n", x->symbols[i].name, (long long)symbols[i]);
    }
    for (int k = 0; k < WF_PROGRAMS; k++) {
        if (!x->program[k].n_calls)
            continue;
        weft_session *s = wf_start(p);
        wf_session_prepare(s->run, (WfProgramKind)k, symbols);
        printf("%s: %.3f MB slab with %d threads", names[k], (double)wf_session_slab_bytes(s->run) / 1048576.0,
               wf_session_threads(s->run));
        if (x->core >= 0)
            printf(", in the memory of core %d", x->core);
        putchar('\n');
        put_calls(p, &x->program[k]);
        put_timeline(p, &x->program[k], symbols, wf_session_threads(s->run));
        WfExeMemory memory;
        wf_exe_memory(x, p->arena, (WfProgramKind)k, symbols, &memory);
        wf_cli_slowest(p->arena, &x->program[k], symbols, wf_session_threads(s->run));
        wf_cli_lines(p->arena, x, &x->program[k], symbols, memory.call);
        if (k != WF_PROG_EVAL)
            wf_cli_recompute(p->arena, x, &x->program[k], symbols, wf_session_threads(s->run), memory.call);
        puts("  largest buffers:");
        put_buffers(p, &x->program[k], symbols);
        state = wf_session_state_bytes(s->run);
        weft_session_free(s);
    }
    bool batches = false;
    for (int i = 0; i < x->n_inputs; i++)
        batches |= x->inputs[i].role == WF_XIN_USER && x->inputs[i].rank;
    if (x->program[WF_PROG_STEP].n_calls && batches) {
        weft_session *s = wf_start(p);
        WfStr text = {.arena = p->arena};
        int64_t batch = wf_train_batch(ctx, x, o);
        bool any = !x->accumulate || (x->accumulate == 1 && !strstr(x->options, "deterministic=elastic"));
        printf("micro-batches of a step of %lld rows%s:\n", (long long)batch * (x->accumulate > 1 ? x->accumulate : 1),
               any ? " (--micro-batch)" : "");
        wf_micro_print(wf_micro_table(ctx, p->arena, s->run, x, NULL, batch, any), "cpu", wf_session_state_bytes(s->run), &text);
        fputs(text.at, stdout);
        weft_session_free(s);
    }
    wf_cli_modules(p->arena, x);
    printf("weights, buffers%s optimiser state: %.3f MB\n", x->accumulate != 1 ? ", accumulated gradients and" : " and",
           (double)state / 1048576.0);
    weft_program_free(p);
    return 0;
}
