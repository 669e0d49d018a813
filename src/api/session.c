/* Programs and sessions of the public interface. Every call runs inside a guard and returns its status; nothing leaves
 * the library but through it. */
#include "api/api.h"

#include <math.h>
#include <string.h>

#define CTX(p) ((p) ? (p)->ctx : NULL)
#define SESSION_CTX(s) ((s) ? (s)->program->ctx : NULL)

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
    if (p->exe && !p->exe->program[WF_PROG_STEP].n_calls)
        wf_fail_at(p->ctx, WF_E_STEP_FORM, p->path, "Compile it without --forward-only.",
                   "this step was compiled for predictions only");
}

void wf_program_warn(const weft_program *p)
{
    for (int i = 0; i < p->exe->n_warnings; i++)
        wf_log(p->ctx, WF_LOG_WARN, "%s", p->exe->warnings[i]);
}

weft_session *wf_start(weft_program *p)
{
    if (!p->exe)
        wf_program_compile(p);
    weft_session *s = WF_NEW(p->arena, weft_session);
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

typedef struct {
    WfCtx *ctx;
    void (*fn)(void *);
    const char *needs;       /* what .text is, for a call that needs one; NULL: it needs none */
    bool needs_out;
    weft_program *p;
    weft_session *s;
    const char *text, *value;
    const weft_tensor *in;
    weft_tensor *out;
    int i;
    double number;
    void *result;
} Call;

static void checked(void *v)
{
    Call *c = v;
    if (c->needs && !c->text)
        wf_fail(c->ctx, WF_E_LIBRARY_CALL, "the %s is NULL", c->needs);
    if (c->needs_out && !c->out)
        wf_fail(c->ctx, WF_E_LIBRARY_CALL, "there is no tensor to put the result in: out is NULL");
    c->fn(c);
}

/* ctx is NULL when the caller's handle was: there is nobody to tell more than the status. */
static weft_status run(WfCtx *ctx, void (*fn)(void *), Call *c)
{
    if (!ctx)
        return WEFT_ERR_USAGE;
    c->ctx = ctx;
    c->fn = fn;
    return wf_guard(ctx, checked, c);
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
    weft_status r = out ? run((WfCtx *)ctx, do_open, &c) : WEFT_ERR_USAGE;
    if (r == WEFT_OK)
        *out = c.p;
    return r;
}

/* What the loop of weft train does: here the caller's loop does it, and would wait in vain for the library to. */
static bool of_the_loop(const WfOptionRow *row)
{
    const unsigned loop = 1u << WF_GROUP_SCHEDULE | 1u << WF_GROUP_LOOP | 1u << WF_GROUP_DATA | 1u << WF_GROUP_SAMPLE | 1u << WF_GROUP_OUTPUT;
    return row && loop >> row->group & 1;
}

static void do_set(void *v)
{
    Call *c = v;
    const WfOptionRow *row = wf_option_find(c->text);
    if (!c->value)
        wf_fail(c->ctx, WF_E_LIBRARY_CALL, "option %s: the value is NULL", c->text);
    if (of_the_loop(row))
        wf_fail_at(c->ctx, WF_E_OPTION_MEANINGLESS, NULL, "Feed batches in your own loop; set lr before any step for a schedule.",
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
    return run(CTX(program), do_set, &c);
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
    return run(CTX(program), do_compile, &c);
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
    return run(CTX(program), do_save_compiled, &c);
}

static void do_start(void *v)
{
    Call *c = v;
    c->s = wf_start(c->p);
}

weft_status weft_session_new(weft_program *program, weft_session **out)
{
    Call c = {.p = program};
    weft_status r = out ? run(CTX(program), do_start, &c) : WEFT_ERR_USAGE;
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
}

void weft_program_free(weft_program *program)
{
    if (!program)
        return;
    while (program->sessions)
        weft_session_free(program->sessions);
    wf_arena_free(program->arena);
}

static WfTensor tensor_in(const weft_tensor *t)
{
    WfTensor w = {.dtype = (WfDtype)t->dtype, .rank = t->rank, .data = t->data};
    w.bytes = wf_dtype_size(w.dtype);
    for (int d = 0; d < t->rank && d < 8; d++) {
        w.shape[d] = t->shape[d];
        w.bytes *= (size_t)t->shape[d];
    }
    return w;
}

static void tensor_out(const WfTensor *t, weft_tensor *out)
{
    *out = (weft_tensor){.dtype = (weft_dtype)t->dtype, .rank = t->rank, .data = (void *)t->data};
    memcpy(out->shape, t->shape, sizeof out->shape);
}

static void do_feed(void *v)
{
    Call *c = v;
    if (!c->in || !c->in->data || c->in->rank < 0 || c->in->rank > 8)
        wf_fail(c->ctx, WF_E_LIBRARY_CALL, "input %s: no data or an impossible number of dimensions", c->text);
    WfTensor t = tensor_in(c->in);
    wf_session_feed(c->s->run, c->text, &t);
}

weft_status weft_feed(weft_session *session, const char *input, const weft_tensor *batch)
{
    Call c = {.s = session, .needs = "name of the input", .text = input, .in = batch};
    return run(SESSION_CTX(session), do_feed, &c);
}

static void do_rows(void *v)
{
    Call *c = v;
    wf_session_set_rows(c->s->run, c->i);
}

weft_status weft_rows(weft_session *session, int rows)
{
    Call c = {.s = session, .i = rows};
    return run(SESSION_CTX(session), do_rows, &c);
}

static void do_step(void *v)
{
    Call *c = v;
    double t = wf_now();
    wf_need_training(c->s->program);
    wf_session_step(c->s->run);
    c->s->last = WF_PROG_STEP;
    c->s->step_s = wf_now() - t;
}

weft_status weft_step(weft_session *session, double *loss)
{
    Call c = {.s = session};
    weft_status r = run(SESSION_CTX(session), do_step, &c);
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
    weft_status r = run(SESSION_CTX(session), do_micro, &c);
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
    return run(SESSION_CTX(session), do_micro_batches, &c);
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
    weft_status r = run(SESSION_CTX(session), do_forward, &c);
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

static void do_output(void *v)
{
    Call *c = v;
    int k = c->i < 0 ? -1 : user_output(c->s, c->i);
    WfTensor t;
    if (k < 0)
        wf_fail(c->ctx, WF_E_LIBRARY_CALL, "there is no output %d", c->i);
    wf_session_output(c->s->run, c->s->last, k, &t);
    tensor_out(&t, c->out);
}

weft_status weft_output(weft_session *session, int i, weft_tensor *out)
{
    Call c = {.s = session, .i = i, .needs_out = true, .out = out};
    return run(SESSION_CTX(session), do_output, &c);
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
    weft_status r = out ? run(SESSION_CTX(session), do_metric, &c) : WEFT_ERR_USAGE;
    if (r == WEFT_OK)
        *out = c.number;
    return r;
}

/* ---- parameters ---- */

static const WfExeInput *weight(const weft_session *s, int i)
{
    const WfExe *x = s->program->exe;
    for (int k = 0; k < x->n_inputs; k++)
        if ((x->inputs[k].role == WF_XIN_PARAM || x->inputs[k].role == WF_XIN_BUFFER) && i-- == 0)
            return &x->inputs[k];
    return NULL;
}

int weft_parameter_count(const weft_session *session)
{
    int n = 0;
    while (session && weight(session, n))
        n++;
    return n;
}

const char *weft_parameter_name(const weft_session *session, int i)
{
    const WfExeInput *in = session && i >= 0 ? weight(session, i) : NULL;
    return in ? in->name : NULL;
}

static void do_parameter(void *v)
{
    Call *c = v;
    WfTensor t;
    if (!wf_session_tensor(c->s->run, c->text, &t))
        wf_fail(c->ctx, WF_E_LIBRARY_CALL, "there is no parameter or buffer %s", c->text);
    tensor_out(&t, c->out);
}

weft_status weft_parameter(weft_session *session, const char *name, weft_tensor *out)
{
    Call c = {.s = session, .needs = "name of the parameter", .text = name, .needs_out = true, .out = out};
    return run(SESSION_CTX(session), do_parameter, &c);
}

static void do_replace(void *v)
{
    Call *c = v;
    WfTensor t, given;
    if (!c->in || !c->in->data)
        wf_fail(c->ctx, WF_E_LIBRARY_CALL, "there is no memory for %s: NULL was given", c->text);
    given = tensor_in(c->in);
    if (!wf_session_tensor(c->s->run, c->text, &t))
        wf_fail(c->ctx, WF_E_LIBRARY_CALL, "there is no parameter or buffer %s", c->text);
    if (given.dtype != t.dtype || given.rank != t.rank || memcmp(given.shape, t.shape, sizeof t.shape))
        wf_fail(c->ctx, WF_E_LIBRARY_CALL, "the memory for %s has another dtype or shape", c->text);
    if ((uintptr_t)given.data % 64)
        wf_fail(c->ctx, WF_E_LIBRARY_CALL, "the memory for %s is not aligned to 64 bytes", c->text);
    wf_session_replace(c->s->run, c->text, (void *)given.data);
}

weft_status weft_parameter_replace(weft_session *session, const char *name, const weft_tensor *memory)
{
    Call c = {.s = session, .needs = "name of the parameter", .text = name, .in = memory};
    return run(SESSION_CTX(session), do_replace, &c);
}

static void do_gradient(void *v)
{
    Call *c = v;
    const WfExeProgram *p = &c->s->program->exe->program[WF_PROG_STEP];
    for (int k = 0; k < p->n_outputs; k++) {
        WfTensor t;
        if (p->outputs[k].role != WF_XOUT_GRAD || strcmp(p->outputs[k].name, c->text))
            continue;
        wf_session_output(c->s->run, WF_PROG_STEP, k, &t);
        tensor_out(&t, c->out);
        return;
    }
    wf_fail(c->ctx, WF_E_LIBRARY_CALL, "no gradient reaches %s, or there is no such parameter", c->text);
}

weft_status weft_gradient(weft_session *session, const char *name, weft_tensor *out)
{
    Call c = {.s = session, .needs = "name of the parameter", .text = name, .needs_out = true, .out = out};
    return run(SESSION_CTX(session), do_gradient, &c);
}

void wf_save_weights(weft_session *s, const char *path) { wf_weights_save(s->program->ctx, s->program->exe, s->run, path); }

void wf_load_weights(weft_session *s, const char *path)
{
    wf_weights_load(s->program->ctx, s->program->exe, s->run, path, s->program->options.strict);
}

static void do_save(void *v) { wf_save_weights(((Call *)v)->s, ((Call *)v)->text); }
static void do_load(void *v) { wf_load_weights(((Call *)v)->s, ((Call *)v)->text); }

weft_status weft_save(weft_session *session, const char *path)
{
    Call c = {.s = session, .needs = "path", .text = path};
    return run(SESSION_CTX(session), do_save, &c);
}

weft_status weft_load(weft_session *session, const char *path)
{
    Call c = {.s = session, .needs = "path", .text = path};
    return run(SESSION_CTX(session), do_load, &c);
}
