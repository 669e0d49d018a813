/* What a session holds: inputs, weights, buffers, gradients, the optimiser's state; and files of weights. */
#include "api/call.h"

#include <string.h>

/* ---- the executable's inputs by kind and number ---- */

typedef bool Kind(const WfExeInput *in);

static bool fed(const WfExeInput *in) { return in->role == WF_XIN_USER; }
static bool weight(const WfExeInput *in) { return in->role == WF_XIN_PARAM || in->role == WF_XIN_BUFFER; }
static bool state(const WfExeInput *in) { return in->role == WF_XIN_STATE; }

/* The i-th of that kind; NULL: there is none. */
static const WfExeInput *nth(const weft_session *s, Kind *is, int i)
{
    const WfExe *x = s ? s->program->exe : NULL;
    for (int k = 0; x && i >= 0 && k < x->n_inputs; k++)
        if (is(&x->inputs[k]) && i-- == 0)
            return &x->inputs[k];
    return NULL;
}

static int count(const weft_session *s, Kind *is)
{
    int n = 0;
    while (nth(s, is, n))
        n++;
    return n;
}

/* ---- inputs ---- */

int weft_input_count(const weft_session *session) { return count(session, fed); }

const char *weft_input_name(const weft_session *session, int i)
{
    const WfExeInput *in = nth(session, fed, i);
    return in ? in->name : NULL;
}

static void do_input(void *v)
{
    Call *c = v;
    const WfExeInput *in = nth(c->s, fed, c->i);
    if (!in)
        wf_fail(c->ctx, WF_E_LIBRARY_CALL, "there is no input %d", c->i);
    *c->out = (weft_tensor){.dtype = (weft_dtype)in->dtype, .rank = in->rank};
    for (int d = 0; d < in->rank; d++)
        if (!wf_elit(c->s->program->exe->exprs, in->shape[d], &c->out->shape[d]))
            c->out->shape[d] = -1;
}

weft_status weft_input(weft_session *session, int i, weft_tensor *out)
{
    Call c = {.s = session, .i = i, .needs_out = true, .out = out};
    return wf_api_run(SESSION_CTX(session), do_input, &c);
}

/* ---- parameters ---- */

int weft_parameter_count(const weft_session *session) { return count(session, weight); }

const char *weft_parameter_name(const weft_session *session, int i)
{
    const WfExeInput *in = nth(session, weight, i);
    return in ? in->name : NULL;
}

static void do_parameter(void *v)
{
    Call *c = v;
    WfTensor t;
    if (!wf_session_tensor(c->s->run, c->text, &t))
        wf_fail(c->ctx, WF_E_LIBRARY_CALL, "there is no parameter or buffer %s", c->text);
    wf_api_tensor_out(&t, c->out);
}

weft_status weft_parameter(weft_session *session, const char *name, weft_tensor *out)
{
    Call c = {.s = session, .needs = "name of the parameter", .text = name, .needs_out = true, .out = out};
    return wf_api_run(SESSION_CTX(session), do_parameter, &c);
}

static void do_replace(void *v)
{
    Call *c = v;
    WfTensor t, given;
    if (!c->in || !c->in->data)
        wf_fail(c->ctx, WF_E_LIBRARY_CALL, "there is no memory for %s: NULL was given", c->text);
    given = wf_api_tensor_in(c->in);
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
    return wf_api_run(SESSION_CTX(session), do_replace, &c);
}

/* Also of a tied parameter's further names. */
static bool is_called(const WfExeInput *in, const char *name)
{
    bool so = !strcmp(in->name, name);
    for (int k = 0; k < in->n_aliases && !so; k++)
        so = !strcmp(in->aliases[k], name);
    return so;
}

static void do_gradient(void *v)
{
    Call *c = v;
    const WfExe *x = c->s->program->exe;
    const WfExeProgram *p = &x->program[WF_PROG_STEP];
    for (int k = 0; k < p->n_outputs; k++) {
        WfTensor t;
        if (p->outputs[k].role != WF_XOUT_GRAD || !is_called(&x->inputs[p->outputs[k].input], c->text))
            continue;
        wf_session_output(c->s->run, WF_PROG_STEP, k, &t);
        if (!t.data)
            wf_fail(c->ctx, WF_E_LIBRARY_CALL, "there is no gradient of %s yet: no step has run", c->text);
        wf_api_tensor_out(&t, c->out);
        return;
    }
    wf_fail(c->ctx, WF_E_LIBRARY_CALL, "no gradient reaches %s, or there is no such parameter", c->text);
}

weft_status weft_gradient(weft_session *session, const char *name, weft_tensor *out)
{
    Call c = {.s = session, .needs = "name of the parameter", .text = name, .needs_out = true, .out = out};
    return wf_api_run(SESSION_CTX(session), do_gradient, &c);
}

int weft_parameter_flags(const weft_session *session, int i)
{
    const WfExeInput *in = nth(session, weight, i);
    if (!in)
        return 0;
    return (in->trainable ? WEFT_TRAINABLE : 0) | (in->role == WF_XIN_BUFFER ? WEFT_BUFFER : 0) |
           (in->role == WF_XIN_BUFFER && !in->persistent ? WEFT_TRANSIENT : 0);
}

const char *weft_parameter_alias(const weft_session *session, int i, int k)
{
    const WfExeInput *in = nth(session, weight, i);
    return in && k >= 0 && k < in->n_aliases ? in->aliases[k] : NULL;
}

/* ---- the optimiser's state ---- */

int weft_state_count(const weft_session *session) { return count(session, state); }

const char *weft_state_parameter(const weft_session *session, int i)
{
    const WfExeInput *in = nth(session, state, i);
    return in ? in->of : NULL;
}

const char *weft_state_kind(const weft_session *session, int i)
{
    const WfExeInput *in = nth(session, state, i);
    return in ? wf_optimizer_kind(in) : NULL;
}

static void do_state(void *v)
{
    Call *c = v;
    const WfExeInput *in = nth(c->s, state, c->i);
    WfTensor t;
    if (!in || !wf_session_tensor(c->s->run, in->name, &t))
        wf_fail(c->ctx, WF_E_LIBRARY_CALL, "the optimiser has no state %d", c->i);
    wf_api_tensor_out(&t, c->out);
}

weft_status weft_state(weft_session *session, int i, weft_tensor *out)
{
    Call c = {.s = session, .i = i, .needs_out = true, .out = out};
    return wf_api_run(SESSION_CTX(session), do_state, &c);
}

static void do_set_step(void *v)
{
    Call *c = v;
    if (c->steps < 0 || c->steps > (int64_t)1 << 53)
        wf_fail(c->ctx, WF_E_LIBRARY_CALL, "%lld steps cannot be done", (long long)c->steps);
    wf_session_set_step(c->s->run, c->steps);
}

weft_status weft_set_step(weft_session *session, int64_t steps)
{
    Call c = {.s = session, .steps = steps};
    return wf_api_run(SESSION_CTX(session), do_set_step, &c);
}

/* ---- files ---- */

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
    return wf_api_run(SESSION_CTX(session), do_save, &c);
}

weft_status weft_load(weft_session *session, const char *path)
{
    Call c = {.s = session, .needs = "path", .text = path};
    return wf_api_run(SESSION_CTX(session), do_load, &c);
}
