/* The step. All members of the team walk the list of calls together: tiles of a call are divided among them, small
 * calls are done by the first, and a barrier stands where the next call may read what others wrote. Run-time checks
 * write into a line per thread; they are looked at before the commit point, so that a failed step changes nothing. */
#include "run/private.h"

#include <math.h>
#include <stdlib.h>

static void run_kernel(const WfSession *s, const WfBoundCall *c, long *st, int thread, int n)
{
    long lo = c->tiles * thread / n, hi = c->tiles * (thread + 1) / n;
    if (lo < hi)
        c->fn(c->pointer, s->now->values, st, lo, hi);
}

static void note(WfStatusLine *line, int call)
{
    if (line->word[0] && !line->word[2])
        line->word[2] = call + 1;
}

/* next: the kernel that follows the call row by row; NULL: none. */
static void run_lib(WfSession *s, const WfBoundCall *c, const WfBoundCall *next, long *st, int thread, int n)
{
    uint8_t *scratch = s->slab[s->device].at + s->now->slab_bytes[s->device] + (size_t)thread * s->now->scratch_each;
    for (int phase = 0; phase < c->lib->n_phases; phase++) {
        int64_t tiles = c->lib->tiles[phase], lo = tiles * thread / n, hi = tiles * (thread + 1) / n;
        for (int64_t t = lo; t < hi; t++) {
            wf_lib_run(c->lib, phase, t, c->pointer, c->workspace, scratch, thread);
            if (next && phase + 1 == c->lib->n_phases) {
                int64_t first, end;
                c->lib->rows(c->lib, t, &first, &end);
                next->fn(next->pointer, s->now->values, st, first, end);
            }
        }
        if (phase + 1 < c->lib->n_phases && n > 1)
            wf_team_barrier(s->team);
    }
}

/* First output operand with a value that is not finite, under check_finite. */
static bool all_finite(const WfSession *s, int call, int *operand)
{
    const WfExeProgram *p = &s->x->program[s->now->kind];
    const WfExeCall *k = &p->calls[call];
    for (int i = 0; i < k->n; i++) {
        if (k->operand[i].buf < 0)
            continue;
        const WfExeBuf *f = &p->bufs[k->operand[i].buf];
        if (f->dtype != WF_F32 || (k->kind == WF_CALL_KERNEL && f->first != call) || f->first != call)
            continue;
        int64_t n = wf_exe_eval(s->x, f->bytes, s->now->symbols) / 4;
        const float *v = s->now->calls[call].pointer[i];
        for (int64_t j = 0; k->kind == WF_CALL_KERNEL && j < n; j++)
            if (!isfinite(v[j])) {
                *operand = i;
                return false;
            }
    }
    return true;
}

typedef struct { WfSession *s; int call; } Travel;

static void travel(void *arg)
{
    Travel *t = arg;
    WfSession *s = t->s;
    WfBinding *b = s->now;
    const WfExeCall *k = &s->x->program[b->kind].calls[t->call];
    WfBoundCall *c = &b->calls[t->call];
    if (k->kind == WF_CALL_WAIT) {
        wf_comm_wait(s->comm, b->ticket[k->param[WF_TRAVEL_START]]);
        return;
    }
    if (c->counts && !c->counts[wf_group_rank(c->group)]) /* all of it goes to another rank */
        memset(c->pointer[1], 0, c->copy_bytes);
    WfCommOp op = {.kind = (WfCollective)k->param[WF_TRAVEL_KIND],
                   .op = (WfCommReduce)k->param[WF_TRAVEL_OP],
                   .dtype = s->x->program[b->kind].bufs[k->operand[0].buf].dtype,
                   .send = c->pointer[0],
                   .recv = c->pointer[k->n - 1],
                   .count = c->tiles,
                   .counts = c->counts,
                   .root = (int)k->param[WF_TRAVEL_ROOT],
                   .node = k->name,
                   .step = s->steps + 1};
    b->ticket[t->call] = wf_comm_start(s->comm, c->group, &op);
}

/* Has a check of this run failed? Members of the team other than the caller are behind a barrier. */
static bool refused(const WfSession *s)
{
    bool any = s->bad_call >= 0;
    for (int t = 0; t < s->threads; t++)
        any |= s->status[t].word[0] != 0;
    return any;
}

/* A collective may fail in the middle of a step, when other threads stand at barriers: the step is walked to its end,
 * nothing more is sent, and the failure is raised when all are back. Nor is anything sent of a step that a check refuses: the other
 * ranks would commit what this one does not. */
static void collective(WfSession *s, int call)
{
    Travel t = {s, call};
    const WfBoundCall *c = &s->now->calls[call];
    if (s->comm && s->reduce && !s->lost && !refused(s))
        s->lost = wf_guard(s->ctx, travel, &t);
    else if ((!s->comm || !s->reduce) && c->kind == WF_CALL_START && c->pointer[1])
        memcpy(c->pointer[1], c->pointer[0], c->copy_bytes);
}

static void walk(void *arg, int thread, int n)
{
    WfSession *s = arg;
    WfBinding *b = s->now;
    long *st = s->status[thread].word;
    bool pending = false; /* serial work since the last barrier */
    for (int c = s->from; c < s->to; c++) {
        WfBoundCall *k = &b->calls[c], *next = c + 1 < s->to && !s->check_finite && k[1].follows ? k + 1 : NULL;
        bool alone = k->serial || n == 1;
        double t = s->profile && thread == 0 ? wf_now() : 0;
        if (alone && thread == 0) {
            if (k->kind == WF_CALL_KERNEL)
                run_kernel(s, k, st, 0, 1);
            else if (k->kind == WF_CALL_LIB)
                run_lib(s, k, next, st, 0, 1);
            else if (k->kind != WF_CALL_COPY)
                collective(s, c);
            else
                memcpy(k->pointer[1], k->pointer[0], k->copy_bytes);
            note(&s->status[0], c + (next != NULL));
        }
        if (alone) {
            pending = n > 1;
        } else {
            if (pending)
                wf_team_barrier(s->team);
            pending = false;
            if (k->kind == WF_CALL_KERNEL)
                run_kernel(s, k, st, thread, n);
            else
                run_lib(s, k, next, st, thread, n);
            note(&s->status[thread], c + (next != NULL));
            wf_team_barrier(s->team);
        }
        c += next != NULL;
        if (b->counts && thread == 0)
            b->spent[c - (next != NULL)] += wf_now() - t;
        if (s->check_finite) {
            if (thread == 0 && s->bad_call < 0 && !all_finite(s, c, &s->bad_operand))
                s->bad_call = c;
            if (n > 1)
                wf_team_barrier(s->team);
        }
    }
}

/* The calls that took longest, by way of the log. */
void wf_report_profile(WfSession *s, const WfBinding *b)
{
    const WfExeProgram *p = &s->x->program[b->kind];
    double total = 0, shown = 0, runs = (double)b->counted;
    for (int c = 0; c < p->n_calls; c++)
        total += b->spent[c];
    wf_log(s->ctx, WF_LOG_INFO, "profile: %d calls, %.3f ms a run (%lld of %lld)", p->n_calls, total / runs * 1e3,
           (long long)b->counted, (long long)b->runs);
    double clock = 0;
    for (int c = 0; c < p->n_calls; clock += b->spent[c++]) /* when buckets were ready */
        if (p->calls[c].kind == WF_CALL_START)
            wf_log(s->ctx, WF_LOG_INFO, "  start at %.3f ms: %lld elements of %s", clock / runs * 1e3,
                   (long long)b->calls[c].tiles, p->calls[c].name);
    for (int k = 0; k < 400 && shown < 0.98 * total; k++) {
        int most = 0;
        for (int c = 1; c < p->n_calls; c++)
            most = b->spent[c] > b->spent[most] ? c : most;
        const WfExeCall *e = &p->calls[most];
        wf_log(s->ctx, WF_LOG_INFO, "  %8.3f ms %5.1f %%  call %-4d %-20s %-22s %s%s", b->spent[most] / runs * 1e3,
               100 * b->spent[most] / total, most, e->symbol ? e->symbol : "copy", e->name ? e->name : "",
               b->calls[most].serial ? "(one thread) " : "", e->where ? e->where : "");
        shown += b->spent[most];
        b->spent[most] = 0;
    }
}

static void raise_checks(WfSession *s, WfBinding *b)
{
    const WfExeProgram *p = &s->x->program[b->kind];
    int call = -1, thread = 0;
    for (int t = 0; t < s->threads; t++)
        if (s->status[t].word[0] && (call < 0 || s->status[t].word[2] - 1 < call)) {
            call = (int)s->status[t].word[2] - 1;
            thread = t;
        }
    if (call >= 0) {
        const WfExeCall *k = &p->calls[call];
        long id = s->status[thread].word[0] - 1;
        const WfExeCheck other = {.where = k->where};
        wf_raise_index(s, b, id >= 0 && id < k->n_checks ? &k->checks[id] : &other, s->status[thread].word[1]);
    }
    if (s->bad_call >= 0) {
        const WfExeCall *k = &p->calls[s->bad_call];
        wf_fail_at(s->ctx, WF_E_NOT_FINITE, k->where ? k->where : k->name, NULL,
                   "node %s is the first whose result is not finite", k->name);
    }
}

/* Does the run that begins count for the profile? The first one's times are those of memory touched for the first time; and where some runs
 * leave the reductions out, it is those whose times are asked for. */
static void count_run(const WfSession *s, WfBinding *b)
{
    bool silent = s->comm && !s->reduce;
    if (b->runs == 2 || (silent && !b->silent)) {
        memset(b->spent, 0, (size_t)s->x->program[b->kind].n_calls * sizeof *b->spent);
        b->counted = 0;
    }
    b->silent |= silent;
    b->counts = silent == b->silent;
    b->counted += b->counts;
}

void wf_execute(WfSession *s, WfBinding *b, int from, int to)
{
    const WfExeProgram *p = &s->x->program[b->kind];
    for (int i = 0; i < b->n_patch; i++) {
        uint8_t *base = *b->patch[i].base;
        if (!base)
            wf_fail(s->ctx, WF_E_DATA_MISSING, "input %s was not fed", b->patch[i].name);
        wf_check_device(s, &p->calls[b->patch[i].call], b->patch[i].name, base);
        *b->patch[i].slot = base + b->patch[i].offset;
    }
    for (int c = from; c < to; c++) /* library calls report through the status word of their own operand */
        for (int i = 0; i < p->calls[c].n; i++)
            if (p->calls[c].operand[i].buf == -2)
                b->calls[c].pointer[i] = s->status[0].word;
    b->values[WF_S_SEED] = (long)s->seed;
    b->values[WF_S_STEP] = (long)s->steps;
    /* of all ranks' micro-batches the how manieth: every one draws its own random numbers */
    b->values[WF_S_ITERATION] = s->micro + (s->comm ? wf_comm_rank(s->comm) : 0) * (s->x->accumulate ? s->x->accumulate : MOST_MICRO);
    if (b->speaks && !s->comm)
        wf_fail_at(s->ctx, WF_E_STEP_RANKS, NULL, "Start it with --nproc or under a launcher, or join a world first.",
                   "the step was compiled for %d ranks, and this one is alone", s->x->ranks);
    b->runs += from == 0;
    if (s->profile && from == 0)
        count_run(s, b);
    s->now = b;
    s->from = from;
    s->to = to;
    s->bad_call = -1;
    s->lost = WEFT_OK;
    memset(s->status, 0, (size_t)s->threads * sizeof *s->status);
    bool alone = true; /* a step of small calls never wakes the team */
    for (int c = from; c < to && alone; c++)
        alone = b->calls[c].serial;
    if (alone)
        wf_team_alone(s->team, walk, s);
    else
        wf_team_run(s->team, walk, s);
    if (s->lost)
        wf_reraise(s->ctx, s->lost);
    raise_checks(s, b);
}

/* How many rows of the batch count in the run that begins. */
static int64_t take_rows(WfSession *s, WfProgramKind kind)
{
    int64_t rows = s->rows;
    bool none = false;
    s->rows = ALL_ROWS;
    for (int i = 0; i < s->x->n_inputs; i++)
        none |= s->x->inputs[i].role == WF_XIN_SCALAR && !strcmp(s->x->inputs[i].name, "batch.any");
    if (rows != ALL_ROWS && !wf_session_masks(s, kind) && (rows || !none || kind == WF_PROG_EVAL))
        wf_fail_at(s->ctx, WF_E_LAST_BATCH, NULL, "Compile it with --last-batch=pad; with short feed fewer rows, or tell that 0 count.",
                   "the step was not compiled for a batch of which %lld rows count", (long long)rows);
    return rows;
}

static void set_scalars(WfSession *s, WfProgramKind kind)
{
    const WfExe *x = s->x;
    int64_t rows = take_rows(s, kind);
    for (int i = 0; i < x->n_inputs; i++) {
        const WfExeInput *in = &x->inputs[i];
        double v = 0;
        if (in->role != WF_XIN_SCALAR)
            continue;
        if (!strcmp(in->name, "accumulate.first")) {
            wf_store_f64(in->dtype, &s->scalars[i], s->micro == 0);
            continue;
        }
        if (!strcmp(in->name, "batch.rows") || !strcmp(in->name, "batch.any") || !strcmp(in->name, "eval.rows")) {
            wf_store_f64(in->dtype, &s->scalars[i], in->dtype == WF_BOOL ? rows != 0 : (double)rows);
            continue;
        }
        if (!strncmp(in->name, "accumulate.level", 16)) { /* the micro-batch whose number ends in that many ones */
            int level = atoi(in->name + 16), ones = 0;
            while (ones < 16 && s->micro >> ones & 1)
                ones++;
            wf_store_f64(in->dtype, &s->scalars[i], ones == level);
            continue;
        }
        int group = in->of ? in->of[0] - '0' : 0;
        const char *name = strrchr(in->name, '.'); /* group0.lr, group0.f64.lr */
        if (in->of) {
            group = 0;
            for (const char *c = in->of; *c >= '0' && *c <= '9'; c++)
                group = group * 10 + *c - '0';
        }
        const WfExeGroup *g = group < x->n_groups ? &x->groups[group] : NULL;
        double lr = !g ? 0 : g->lr_scale < 0 ? g->lr : s->lr * g->lr_scale;
        if (!name || !g || !wf_scalar_value(name + 1, g, lr, s->steps + 1, &v))
            wf_fail(s->ctx, WF_E_STEP_DAMAGED, "the compiled step wants the unknown run-time value %s", in->name);
        wf_store_f64(in->dtype, &s->scalars[i], v);
    }
}

/* A micro-batch that fails may have been added in part: its step begins again. */
static void run_training(WfSession *s, WfProgramKind kind)
{
    const WfExeProgram *p = &s->x->program[kind];
    WfBinding *b = wf_bind(s, kind);
    set_scalars(s, kind);
    s->torn = wf_session_micro_batches(s) > 1;
    wf_execute(s, b, 0, p->commit);
    wf_execute(s, b, p->commit, p->n_calls);
    s->torn = false;
}

static void mend(WfSession *s)
{
    if (s->torn)
        s->micro = 0;
    s->torn = false;
}

void wf_session_micro(WfSession *s)
{
    int k = wf_session_micro_batches(s);
    mend(s);
    if (s->micro + 1 >= k)
        wf_fail_at(s->ctx, WF_E_STEP_ORDER, NULL, "Run the step with it.",
                   k > 1 ? "micro-batch %d is the last of %d" : "a step has no micro-batches without --accumulate", s->micro + 1, k);
    run_training(s, WF_PROG_MICRO);
    s->micro++;
}

void wf_session_step(WfSession *s)
{
    int k = wf_session_micro_batches(s);
    mend(s);
    if (s->micro + 1 < k)
        wf_fail_at(s->ctx, WF_E_STEP_ORDER, NULL, "Run the others first.",
                   "a step of %d micro-batches has only %d so far, without the last", k, s->micro);
    run_training(s, WF_PROG_STEP);
    s->micro = 0;
    s->steps++;
}

void wf_session_forward(WfSession *s, bool eval)
{
    WfProgramKind kind = eval ? WF_PROG_EVAL : WF_PROG_STEP;
    const WfExeProgram *p = &s->x->program[kind];
    if (eval && !p->n_outputs)
        wf_fail(s->ctx, WF_E_STEP_FORM, "this step was compiled without its evaluation form");
    mend(s);
    if (!eval && s->micro)
        wf_fail_at(s->ctx, WF_E_STEP_ORDER, NULL, "Use the evaluation form, or finish the step first.",
                   "the training form cannot run by itself between the micro-batches of a step");
    WfBinding *b = wf_bind(s, kind);
    set_scalars(s, kind);
    wf_execute(s, b, 0, eval ? p->n_calls : p->commit);
}
