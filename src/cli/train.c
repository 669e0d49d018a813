/* weft train: compiles (or takes from the cache), trains, says where the weights are. */
#include "cli/cli.h"

#include "train/train.h"

#include <malloc.h>
#include <stdlib.h>

static void save(void *user, const char *path) { wf_save_weights(user, path); }

/* How the step came about. */
static char *compiled(const weft_program *p)
{
    if (p->loaded)
        return wf_arena_strdup(p->arena, "a compiled step");
    if (p->from_cache)
        return wf_arena_printf(p->arena, "compiled before, taken from the cache in %.2f s", p->compile_s);
    return wf_arena_printf(p->arena, "compiled in %.2f s%s", p->compile_s, p->options.cache ? " (it was not in the cache)" : ", without a cache");
}

/* step_ms: gets the time of each of the o->steps steps; may be NULL. *steps is 0 afterwards where nothing was timed: in the
 * launcher, and on ranks other than the first. */
static int train(WfCtx *ctx, const WfOptions *given, const WfStrings *words, double *step_ms, int64_t *steps)
{
    WfOptions options = *given, *o = &options;
    if (o->resume && !o->out) /* a run goes on where it is */
        o->out = o->resume;
    if (words->n && !o->data.n) /* without a model, that is what is missing first */
        wf_fail(ctx, WF_E_ARGUMENT_MISSING, "name the training data with --data FILE.safetensors or --data INPUT=FILE");
    WfComm *comm = wf_cli_join(ctx, o);
    if (!comm || !wf_comm_rank(comm))
        wf_train_check_out(ctx, o);
    weft_program *p = wf_cli_open(ctx, o, words);
    bool launches = o->nproc > 1 && !comm;
    p->hushed = launches; /* rank 0 warns */
    if (comm) {
        wf_ranks_compare(ctx, comm, &p->options, p->identity, p->identity_size);
        wf_options_check(ctx, o); /* of what a launcher of somebody else starts, the number is known only since the ranks are joined */
    }
    if (!p->exe && comm)
        wf_program_compile_together(p, comm);
    else if (!p->exe && !(launches && (!wf_cache_dir(ctx, p->arena, &p->options) || wf_program_cached(p))))
        wf_program_compile(p);
    if (p->exe)
        wf_need_training(p);
    if (launches) { /* the step is in the cache, for rank 0 to share; without a cache rank 0 compiles */
        weft_program_free(p);
        if (o->out && !o->dry_run)
            wf_mkdirs(ctx, o->out);
        *steps = 0;
        return wf_cli_launch(ctx, (int)o->nproc, wf_cli_process.argv, o->dry_run ? NULL : o->out);
    }
    if (p->loaded)
        wf_program_warn(p);
    weft_session *s = wf_start(p);
    bool speaks = !comm || wf_comm_rank(comm) == 0;
    wf_cli_progress_end();
    WfTraining t = {.ctx = ctx, .arena = p->arena, .exe = p->exe, .session = s->run, .options = &p->options, .lr = s->lr,
                    .save = save, .user = s, .terminal = wf_cli_terminal(), .comm = comm, .step_ms = step_ms,
                    .model = words->at[0], .compiled = compiled(p)};
    malloc_trim(0); /* what reading and compiling took: the steps need none of it */
    wf_train(&t);
    *steps = speaks ? o->steps : 0;
    weft_program_free(p);
    wf_comm_close(comm);
    return 0;
}

int wf_cli_train(WfCtx *ctx, const WfOptions *o, const WfStrings *words)
{
    int64_t steps;
    WfOptions all = *o;
    all.reduce = true; /* a settings file may also serve weft bench */
    return train(ctx, &all, words, NULL, &steps);
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *v, int64_t n)
{
    qsort(v, (size_t)n, sizeof *v, by_size);
    return n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

/* Neighbours of one with and one without reductions: what the reductions add, freed of what is slow for longer than that. */
static void put_pairs(WfArena *a, const double *ms, int64_t n)
{
    double *with = WF_NEWN(a, double, (size_t)n), *without = WF_NEWN(a, double, (size_t)n), *more = WF_NEWN(a, double, (size_t)n);
    int64_t k = 0;
    for (int64_t i = 0; i + 1 < n; i += 2, k++) {
        bool first = wf_bench_reduces(i);
        with[k] = ms[first ? i : i + 1];
        without[k] = ms[first ? i + 1 : i];
        more[k] = with[k] - without[k];
    }
    double m = median(more, k);
    printf("step: %.3f ms with reductions, %.3f ms without; they add %.3f ms (median of %lld pairs, half from %.3f to %.3f)\n",
           median(with, k), median(without, k), m, (long long)k, more[k / 4], more[k - 1 - k / 4]);
}

int wf_cli_bench_steps(WfCtx *ctx, const WfOptions *given, const WfStrings *words)
{
    enum { WARM = 4 };
    WfOptions o = *given;
    if (o.out || o.resume)
        wf_fail(ctx, WF_E_OPTION_MEANINGLESS, "weft bench keeps nothing and begins anew: leave --out and --resume away");
    if (!o.steps)
        o.steps = 24;
    if (o.steps < WARM + 2 || o.steps > 1 << 20)
        wf_fail(ctx, WF_E_OPTION_MEANINGLESS, "--steps %lld: a bench takes %d, of which the first %d warm up, to a million", (long long)o.steps,
                WARM + 2, WARM);
    int64_t n = o.steps;
    double *ms = WF_NEWN(ctx->arena, double, (size_t)n);
    int code = train(ctx, &o, words, ms, &n);
    if (!n)
        return code;
    n -= WARM;
    ms += WARM;
    if (!o.reduce) {
        put_pairs(ctx->arena, ms, n);
        return code;
    }
    double m = median(ms, n);
    printf("step: %.3f ms (median of %lld, from %.3f to %.3f)\n", m, (long long)n, ms[0], ms[n - 1]);
    return code;
}
