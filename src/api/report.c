/* What a session finds out and keeps: evaluations, checkpoints, its plan as text. */
#include "api/call.h"

#include "report/report.h"

#include <string.h>

/* ---- evaluation ---- */

struct WfEvaluation {
    WfMetrics *metrics;
    int64_t ignore;
    bool done; /* finished: values can be asked for */
};

static void do_begin(void *v)
{
    Call *c = v;
    weft_session *s = c->s;
    wf_arena_free(s->arena);
    s->measured = NULL;
    s->arena = wf_arena_new(c->ctx);
    const char *names = c->text ? wf_arena_strdup(s->arena, c->text) : NULL; /* the metrics keep their names */
    struct WfEvaluation *e = WF_NEW(s->arena, struct WfEvaluation);
    e->metrics = wf_metrics_new(c->ctx, s->arena, names, NULL);
    e->ignore = wf_metrics_ignored(s->program->exe, s->arena);
    wf_metrics_begin(e->metrics);
    s->measured = e;
}

weft_status weft_evaluate_begin(weft_session *session, const char *metrics)
{
    Call c = {.s = session, .text = metrics};
    return wf_api_run(SESSION_CTX(session), do_begin, &c);
}

static void need_begun(const Call *c)
{
    if (!c->s->measured || c->s->measured->done)
        wf_fail(c->ctx, WF_E_LIBRARY_CALL, "no evaluation has begun: weft_evaluate_begin comes first");
}

typedef struct { weft_session *s; const WfMeasured *b; } Filled;

static void run_filled(void *v)
{
    Filled *f = v;
    wf_metrics_run(f->s->measured->metrics, f->s->run, f->b);
}

static void do_evaluate(void *v)
{
    Call *c = v;
    weft_session *s = c->s;
    const WfExe *x = s->program->exe;
    need_begun(c);
    struct WfEvaluation *e = s->measured;
    wf_api_take_fed(s);
    int64_t rows = wf_session_rows(s->run), all;
    WfMeasured b = {.exe = x, .inputs = s->stand_in->inputs, .ignore = e->ignore};
    b.given = b.count = wf_api_rows(s, &all);
    if (b.count < 1)
        wf_fail(c->ctx, WF_E_DATA_SHAPE, "the batch has no rows");
    b.valid = rows >= 0 && rows < b.count ? rows : b.count;
    if (all && s->comm && wf_exe_speaks(x, WF_PROG_EVAL))
        wf_fail(c->ctx, WF_E_UNEVEN, "the model's forward pass has collectives, so all ranks evaluate batches of %lld rows, but this one has %lld",
                (long long)all, (long long)b.given);
    s->last = WF_PROG_EVAL;
    if (all) {
        b.count = all;
        wf_api_make_room(s, b.given, all);
        weft_status failed = wf_api_run_stood_in(s, run_filled, &(Filled){s, &b});
        if (failed)
            wf_reraise(c->ctx, failed);
    } else {
        wf_metrics_run(e->metrics, s->run, &b);
    }
}

weft_status weft_evaluate(weft_session *session, double *loss)
{
    Call c = {.s = session};
    weft_status r = wf_api_run(SESSION_CTX(session), do_evaluate, &c);
    if (r == WEFT_OK && loss)
        *loss = wf_session_loss(session->run);
    return r;
}

static void do_end(void *v)
{
    Call *c = v;
    need_begun(c);
    wf_metrics_finish(c->s->measured->metrics, c->s->comm);
    c->s->measured->done = true;
}

weft_status weft_evaluate_end(weft_session *session)
{
    Call c = {.s = session};
    return wf_api_run(SESSION_CTX(session), do_end, &c);
}

const char *weft_evaluated(const weft_session *session, int i, double *value)
{
    const struct WfEvaluation *e = session ? session->measured : NULL;
    if (!e || !e->done || i < 0 || i >= wf_metrics_count(e->metrics))
        return NULL;
    if (value)
        *value = wf_metrics_value(e->metrics, i);
    return wf_metrics_name(e->metrics, i);
}

/* ---- checkpoints ---- */

static WfRun run_of(const Call *c, WfArena *a)
{
    const weft_program *p = c->s->program;
    return (WfRun){c->ctx, a, p->exe, c->s->run, c->s->comm, &p->options, c->text, c->i};
}

static void do_checkpoint(void *v)
{
    Call *c = v;
    if (c->i < 1)
        wf_fail(c->ctx, WF_E_LIBRARY_CALL, "keep %d checkpoints: at least one stays", c->i);
    WfArena *a = wf_arena_scratch(c->ctx);
    WfRun run = run_of(c, a);
    WfMark mark = {.step = wf_session_steps(c->s->run), .total = c->s->program->options.total_steps};
    memcpy(mark.job, c->s->job, sizeof mark.job);
    wf_checkpoint_save(&run, &mark);
    memcpy(c->s->job, mark.job, sizeof mark.job);
    wf_arena_free(a);
}

weft_status weft_checkpoint(weft_session *session, const char *folder, int keep)
{
    Call c = {.s = session, .needs = "folder", .text = folder, .i = keep};
    return wf_api_run(SESSION_CTX(session), do_checkpoint, &c);
}

static void do_resume(void *v)
{
    Call *c = v;
    WfArena *a = wf_arena_scratch(c->ctx);
    WfRun run = run_of(c, a);
    WfMark mark = {.total = c->s->program->options.total_steps};
    bool found = wf_checkpoint_load(&run, &mark);
    c->steps = found ? wf_session_steps(c->s->run) : -1;
    if (found)
        memcpy(c->s->job, mark.job, sizeof mark.job);
    wf_arena_free(a);
}

weft_status weft_resume(weft_session *session, const char *folder, int64_t *step)
{
    Call c = {.s = session, .needs = "folder", .text = folder};
    weft_status r = wf_api_run(SESSION_CTX(session), do_resume, &c);
    if (r == WEFT_OK && step)
        *step = c.steps;
    return r;
}

/* ---- the plan ---- */

WfStr wf_program_text(weft_program *p)
{
    wf_arena_free(p->text);
    p->text = NULL;
    p->text = wf_arena_new(p->ctx);
    return (WfStr){.arena = p->text};
}

static void do_plan(void *v)
{
    Call *c = v;
    if (!c->p->exe)
        wf_program_compile(c->p);
    WfStr s = wf_program_text(c->p);
    wf_report_plan(c->ctx, c->p->exe, &c->p->options, &s);
    c->result = s.at;
}

weft_status weft_plan_text(weft_program *program, const char **out)
{
    Call c = {.p = program};
    weft_status r = out ? wf_api_run(CTX(program), do_plan, &c) : WEFT_ERR_USAGE;
    if (r == WEFT_OK)
        *out = c.result;
    return r;
}
