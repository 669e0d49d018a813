/* Programs and sessions of the public interface. Every call runs inside a guard and returns its status; nothing leaves
 * the library but through it. */
#include "api/call.h"

#include <math.h>
#include <string.h>

static bool is_zip_with_exe(const char *path, WfCtx *ctx, WfArena *a)
{
    WfFile *f = wf_file_map(ctx, a, path);
    const char *dot = strrchr(path, '.');
    if (f->size < 4 || memcmp(f->at, "PK\3\4", 4)) {
        if (dot && !strcmp(dot, ".weft"))
            wf_fail_at(ctx, WF_E_STEP_DAMAGED, path, "Compile it again with weft compile.", "not a compiled step");
        return false;
    }
    size_t n = (size_t)(f->at[26] | f->at[27] << 8);
    return f->size > 30 + n && n == 8 && !memcmp(f->at + 30, "exe.json", 8);
}

weft_program *wf_open(WfCtx *ctx, const char *path)
{
    WfArena *a = wf_arena_new(ctx);
    weft_program *p = WF_NEW(a, weft_program);
    p->ctx = ctx;
    p->arena = a;
    p->path = wf_arena_strdup(a, path);
    wf_options_init(ctx, a, &p->options);
    wf_options_env(ctx, &p->options);
    if (is_zip_with_exe(path, ctx, a)) {
        p->exe = wf_exe_load(ctx, a, path);
        p->loaded = true;
    } else {
        p->path = wf_arena_strdup(a, path);
    }
    return p;
}

void wf_need_training(const weft_program *p)
{
    if (!p->exe || p->exe->program[WF_PROG_STEP].n_calls)
        return;
    bool halves = p->exe->program[WF_PROG_FORWARD].n_calls > 0;
    wf_fail_at(p->ctx, WF_E_STEP_FORM, p->path,
               halves ? "Call weft_run_forward and weft_run_backward, or compile it without option halves." : "Compile it without --forward-only.",
               "this step was compiled %s", halves ? "as two halves" : "for predictions only");
}

void wf_program_warn(const weft_program *p)
{
    for (int i = 0; !p->hushed && i < p->exe->n_warnings; i++)
        wf_log(p->ctx, WF_LOG_WARN, "%s", p->exe->warnings[i]);
}

weft_session *wf_start(weft_program *p)
{
    if (!p->exe)
        wf_program_compile(p);
    weft_session *s = p->spare ? p->spare : WF_NEW(p->arena, weft_session);
    p->spare = p->spare ? p->spare->next : NULL;
    *s = (weft_session){0};
    const WfOptions *o = &p->options;
    int isa = o->isa == WF_ISA_V3 ? WF_ISA_LEVEL_V3 : o->isa == WF_ISA_V4 ? WF_ISA_LEVEL_V4 : 0;
    WfWeightSource from = {p->loaded ? NULL : wf_program_weight, p};
    s->program = p;
    s->run = wf_session_new(p->ctx, p->exe, (int)o->threads, isa, from);
    s->next = p->sessions;
    p->sessions = s;
    s->lr = p->exe->n_groups ? p->exe->groups[0].lr : 0;
    if (wf_option_origin(o, "lr") != WF_FROM_DEFAULT)
        s->lr = o->hyper.lr;
    wf_session_set_lr(s->run, s->lr);
    wf_session_set_seed(s->run, (uint64_t)o->seed);
    wf_session_set_check_finite(s->run, o->check_finite);
    wf_session_set_reduce(s->run, o->reduce);
    if (o->weights)
        wf_load_weights(s, o->weights);
    if (o->optimizer_state)
        wf_optimizer_load(p->ctx, p->exe, s->run, o->optimizer_state, o->strict);
    return s;
}

/* ---- guards around them ---- */

static void checked(void *v)
{
    Call *c = v;
    if (c->needs && !c->text)
        wf_fail(c->ctx, WF_E_LIBRARY_CALL, "the %s is NULL", c->needs);
    if (c->needs_out && !c->out)
        wf_fail(c->ctx, WF_E_LIBRARY_CALL, "there is no tensor to put the result in: out is NULL");
    c->fn(c);
}

weft_status wf_api_run(WfCtx *ctx, void (*fn)(void *), Call *c)
{
    if (!ctx)
        return WEFT_ERR_USAGE;
    c->ctx = ctx;
    c->fn = fn;
    return wf_guard(ctx, checked, c);
}

WfTensor wf_api_tensor_in(const weft_tensor *t)
{
    WfTensor w = {.dtype = (WfDtype)t->dtype, .rank = t->rank, .data = t->data};
    w.bytes = wf_dtype_size(w.dtype);
    for (int d = 0; d < t->rank && d < 8; d++) {
        w.shape[d] = t->shape[d];
        w.bytes *= (size_t)t->shape[d];
    }
    return w;
}

void wf_api_tensor_out(const WfTensor *t, weft_tensor *out)
{
    *out = (weft_tensor){.dtype = (weft_dtype)t->dtype, .rank = t->rank, .data = (void *)t->data};
    memcpy(out->shape, t->shape, sizeof out->shape);
}

static void do_open(void *v)
{
    Call *c = v;
    c->p = wf_open(c->ctx, c->text);
    if (!c->p->loaded)
        wf_program_open_model(c->p, c->text);
}

weft_status weft_open(weft_context *ctx, const char *path, weft_program **out)
{
    Call c = {.needs = "path", .text = path};
    weft_status r = out ? wf_api_run((WfCtx *)ctx, do_open, &c) : WEFT_ERR_USAGE;
    if (r == WEFT_OK)
        *out = c.p;
    return r;
}

/* What the loop of weft train does: here the caller's loop does it, and would wait in vain for the library to. */
static bool of_the_loop(const WfOptionRow *row)
{
    const unsigned loop = 1u << WF_GROUP_LOOP | 1u << WF_GROUP_DATA | 1u << WF_GROUP_SAMPLE | 1u << WF_GROUP_OUTPUT | 1u << WF_GROUP_JSON;
    return row && loop >> row->group & 1;
}

static void do_set(void *v)
{
    Call *c = v;
    const WfOptionRow *row = wf_option_find(c->text);
    if (!c->value)
        wf_fail(c->ctx, WF_E_LIBRARY_CALL, "option %s: the value is NULL", c->text);
    if (of_the_loop(row))
        wf_fail_at(c->ctx, WF_E_OPTION_MEANINGLESS, NULL, "Feed batches in your own loop.",
                   "option %s belongs to the loop of weft train, not to a program of the library", c->text);
    if (c->p->exe && (!row || row->plan))
        wf_fail(c->ctx, WF_E_STEP_FIXED, "option %s shapes the plan and cannot change once the step is compiled", c->text);
    if (c->p->sessions && strcmp(c->text, "lr"))
        wf_fail(c->ctx, WF_E_STEP_FIXED, "option %s must be set before the program's first session; only lr may change later",
                c->text);
    wf_options_set(c->ctx, &c->p->options, c->text, c->value);
    for (weft_session *s = c->p->sessions; s; s = s->next) {
        s->lr = c->p->options.hyper.lr;
        wf_session_set_lr(s->run, s->lr);
    }
}

weft_status weft_set(weft_program *program, const char *option, const char *value)
{
    Call c = {.p = program, .needs = "option", .text = option, .value = value};
    return wf_api_run(CTX(program), do_set, &c);
}

static void do_compile(void *v)
{
    Call *c = v;
    if (!c->p->exe)
        wf_program_compile(c->p);
}

weft_status weft_compile(weft_program *program)
{
    Call c = {.p = program};
    return wf_api_run(CTX(program), do_compile, &c);
}

static void do_save_compiled(void *v)
{
    Call *c = v;
    do_compile(v);
    wf_program_save(c->p, c->text);
}

weft_status weft_save_compiled(weft_program *program, const char *path)
{
    Call c = {.p = program, .needs = "path", .text = path};
    return wf_api_run(CTX(program), do_save_compiled, &c);
}

/* A schedule that ends somewhere must be told where: nobody knows how many steps the caller will take. */
static void check_schedule(const Call *c)
{
    const WfOptions *o = &c->p->options;
    if (!o->total_steps && (o->schedule == WF_SCHEDULE_LINEAR || o->schedule == WF_SCHEDULE_COSINE || o->schedule == WF_SCHEDULE_ONE_CYCLE))
        wf_fail_at(c->ctx, WF_E_ARGUMENT_MISSING, NULL, "Set option total-steps.", "option schedule: the number of steps is not known");
}

static void do_start(void *v)
{
    Call *c = v;
    const WfOptions *o = &c->p->options;
    wf_options_check(c->ctx, o);
    if (o->deterministic == WF_DETERMINISTIC_ELASTIC && wf_options_micro(o) > 0 && wf_options_micro(o) != o->batch_size)
        wf_fail_at(c->ctx, WF_E_OPTION_CONFLICT, NULL, "Set option accumulate.",
                   "option micro-batch: under deterministic elastic the caller's micro-batches are what sums are made of");
    check_schedule(c);
    c->s = wf_start(c->p);
}

weft_status weft_session_new(weft_program *program, weft_session **out)
{
    Call c = {.p = program};
    weft_status r = out ? wf_api_run(CTX(program), do_start, &c) : WEFT_ERR_USAGE;
    if (r == WEFT_OK)
        *out = c.s;
    return r;
}

void weft_session_free(weft_session *session)
{
    if (!session)
        return;
    weft_session **at = &session->program->sessions;
    while (*at && *at != session)
        at = &(*at)->next;
    if (*at)
        *at = session->next;
    wf_session_free(session->run);
    wf_arena_free(session->arena);
    wf_arena_free(session->rooms);
    session->next = session->program->spare;
    session->program->spare = session;
}

void weft_program_free(weft_program *program)
{
    if (!program)
        return;
    while (program->sessions)
        weft_session_free(program->sessions);
    wf_arena_free(program->arena);
}

static void do_feed(void *v)
{
    static const uint8_t nothing[64]; /* the memory of tensors without elements, which hosts often give none */
    Call *c = v;
    WfTensor t = {0};
    if (c->in && (c->in->rank < 0 || c->in->rank > 8))
        wf_fail(c->ctx, WF_E_LIBRARY_CALL, "input %s cannot have %d dimensions", c->text, c->in->rank);
    if (c->in)
        t = wf_api_tensor_in(c->in);
    if (c->in && !t.data && t.bytes)
        wf_fail(c->ctx, WF_E_LIBRARY_CALL, "input %s has no memory: data is NULL", c->text);
    t.data = c->in && !t.data ? nothing : t.data;
    wf_session_feed(c->s->run, c->text, c->in ? &t : NULL);
}

weft_status weft_feed(weft_session *session, const char *input, const weft_tensor *batch)
{
    Call c = {.s = session, .needs = "name of the input", .text = input, .in = batch};
    return wf_api_run(SESSION_CTX(session), do_feed, &c);
}

static void do_rows(void *v)
{
    Call *c = v;
    wf_session_set_rows(c->s->run, c->i);
}

weft_status weft_rows(weft_session *session, int rows)
{
    Call c = {.s = session, .i = rows};
    return wf_api_run(SESSION_CTX(session), do_rows, &c);
}

static void follow_schedule(weft_session *s)
{
    const WfOptions *o = &s->program->options;
    if (o->schedule != WF_SCHEDULE_CONSTANT || o->warmup_steps)
        wf_session_set_lr(s->run, s->lr = wf_schedule_lr(o, wf_session_steps(s->run) + 1, o->total_steps));
}

static void do_step(void *v)
{
    Call *c = v;
    double t = wf_now();
    wf_need_training(c->s->program);
    follow_schedule(c->s);
    wf_session_step(c->s->run);
    c->s->last = WF_PROG_STEP;
    c->s->step_s = wf_now() - t;
}

weft_status weft_step(weft_session *session, double *loss)
{
    Call c = {.s = session};
    weft_status r = wf_api_run(SESSION_CTX(session), do_step, &c);
    if (r == WEFT_OK && loss)
        *loss = wf_session_loss(session->run);
    if (r == WEFT_OK && loss) /* over micro-batches and ranks, where there are several */
        wf_session_metric(session->run, WF_PROG_STEP, "mean_loss", loss);
    return r;
}

static void do_micro(void *v)
{
    Call *c = v;
    wf_need_training(c->s->program);
    wf_session_micro(c->s->run);
    c->s->last = WF_PROG_MICRO;
}

weft_status weft_micro(weft_session *session, double *loss)
{
    Call c = {.s = session};
    weft_status r = wf_api_run(SESSION_CTX(session), do_micro, &c);
    if (r == WEFT_OK && loss)
        *loss = wf_session_loss(session->run);
    return r;
}

static void do_micro_batches(void *v)
{
    Call *c = v;
    wf_session_set_micro_batches(c->s->run, c->i);
}

weft_status weft_micro_batches(weft_session *session, int count)
{
    Call c = {.s = session, .i = count};
    return wf_api_run(SESSION_CTX(session), do_micro_batches, &c);
}

static void do_forward(void *v)
{
    Call *c = v;
    wf_session_forward(c->s->run, c->i != 0);
    c->s->last = c->i ? WF_PROG_EVAL : WF_PROG_STEP;
}

weft_status weft_forward(weft_session *session, int eval, double *loss)
{
    Call c = {.s = session, .i = eval};
    weft_status r = wf_api_run(SESSION_CTX(session), do_forward, &c);
    if (r == WEFT_OK && loss)
        *loss = wf_session_loss(session->run);
    return r;
}

/* USER outputs only, in order. */
static int user_output(const weft_session *s, int i)
{
    const WfExeProgram *p = &s->program->exe->program[s->last];
    for (int k = 0; k < p->n_outputs; k++)
        if (p->outputs[k].role == WF_XOUT_USER && i-- == 0)
            return k;
    return -1;
}

int weft_output_count(const weft_session *session)
{
    int n = 0;
    while (session && user_output(session, n) >= 0)
        n++;
    return n;
}

const char *weft_output_name(const weft_session *session, int i)
{
    int k = session && i >= 0 ? user_output(session, i) : -1;
    return k < 0 ? NULL : session->program->exe->program[session->last].outputs[k].name;
}

static void do_output(void *v)
{
    Call *c = v;
    int k = c->i < 0 ? -1 : user_output(c->s, c->i);
    WfTensor t;
    if (k < 0)
        wf_fail(c->ctx, WF_E_LIBRARY_CALL, "there is no output %d", c->i);
    wf_session_output(c->s->run, c->s->last, k, &t);
    wf_api_tensor_out(&t, c->out);
}

weft_status weft_output(weft_session *session, int i, weft_tensor *out)
{
    Call c = {.s = session, .i = i, .needs_out = true, .out = out};
    return wf_api_run(SESSION_CTX(session), do_output, &c);
}

static void do_metric(void *v)
{
    Call *c = v;
    WfSession *s = c->s->run;
    if (!strcmp(c->text, "loss"))
        c->number = wf_session_loss(s);
    else if (!strcmp(c->text, "lr"))
        c->number = c->s->lr;
    else if (!strcmp(c->text, "step"))
        c->number = (double)wf_session_steps(s);
    else if (!strcmp(c->text, "step_s"))
        c->number = c->s->step_s;
    else if (!strcmp(c->text, "slab_bytes"))
        c->number = (double)wf_session_slab_bytes(s);
    else if (!strcmp(c->text, "state_bytes"))
        c->number = (double)wf_session_state_bytes(s);
    else if (!wf_session_metric(s, WF_PROG_STEP, c->text, &c->number))
        wf_fail(c->ctx, WF_E_LIBRARY_CALL, "there is no metric %s", c->text);
}

weft_status weft_metric(weft_session *session, const char *name, double *out)
{
    Call c = {.s = session, .needs = "name of the metric", .text = name};
    weft_status r = out ? wf_api_run(SESSION_CTX(session), do_metric, &c) : WEFT_ERR_USAGE;
    if (r == WEFT_OK)
        *out = c.number;
    return r;
}
