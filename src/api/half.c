/* The halves of a program, for a host that differentiates. */
#include "api/api.h"

#include <string.h>

static bool is_output(weft_ports ports) { return ports == WEFT_OUTPUTS || ports == WEFT_GRADIENTS; }

static bool reads(const WfExeProgram *p, int input)
{
    for (int i = 0; i < p->n_bufs; i++)
        if (p->bufs[i].place == WF_PLACE_INPUT && p->bufs[i].input == input && p->bufs[i].first >= 0)
            return true;
    return false;
}

static bool writes(const WfExeProgram *p, int input)
{
    for (int i = 0; i < p->n_outputs; i++)
        if (p->outputs[i].role == WF_XOUT_UPDATE && p->outputs[i].input == input)
            return true;
    return false;
}

/* Which input or output of the executable port i is; -1: there is none. */
static int port_at(const WfExe *x, weft_ports ports, int i)
{
    bool in = !is_output(ports);
    const WfExeProgram *p = &x->program[ports == WEFT_OUTPUTS ? WF_PROG_FORWARD : WF_PROG_BACKWARD];
    for (int k = 0; in && k < x->n_inputs; k++) {
        WfExeRole r = x->inputs[k].role;
        bool own = r == WF_XIN_PARAM || r == WF_XIN_BUFFER || r == WF_XIN_USER;
        own = ports == WEFT_READ ? own && reads(p, k) : ports == WEFT_WRITTEN ? own && writes(&x->program[WF_PROG_FORWARD], k) : own;
        if ((ports == WEFT_COTANGENTS ? r == WF_XIN_COTANGENT : own) && i-- == 0)
            return k;
    }
    for (int k = 0; !in && k < p->n_outputs; k++)
        if (p->outputs[k].role == (ports == WEFT_OUTPUTS ? WF_XOUT_USER : WF_XOUT_GRAD) && i-- == 0)
            return k;
    return -1;
}

int weft_port_count(const weft_session *session, weft_ports ports)
{
    int n = 0;
    if (!session || ports < WEFT_INPUTS || ports > WEFT_WRITTEN)
        return -1;
    while (port_at(session->program->exe, ports, n) >= 0)
        n++;
    return n;
}

const char *weft_port_name(const weft_session *session, weft_ports ports, int i)
{
    const WfExe *x = session ? session->program->exe : NULL;
    int k = x && i >= 0 && ports >= WEFT_INPUTS && ports <= WEFT_WRITTEN ? port_at(x, ports, i) : -1;
    if (k < 0)
        return NULL;
    return !is_output(ports) ? x->inputs[k].name : x->program[ports == WEFT_OUTPUTS ? WF_PROG_FORWARD : WF_PROG_BACKWARD].outputs[k].name;
}

int weft_size_count(const weft_session *session) { return session ? session->program->exe->n_symbols : 0; }

const char *weft_size_name(const weft_session *session, int i)
{
    return i >= 0 && i < weft_size_count(session) ? session->program->exe->symbols[i].name : NULL;
}

typedef struct {
    weft_session *s;
    weft_ports ports;
    int i;
    const int64_t *sizes;
    weft_tensor *out;
    size_t bytes;
    WfHalfRun run;
    bool backward, complete;
} Half;

static void need_sizes(const Half *h)
{
    if (!h->sizes && h->s->program->exe->n_symbols)
        wf_fail(h->s->program->ctx, WF_E_LIBRARY_CALL, "the program has %d symbolic sizes, and sizes is NULL",
                h->s->program->exe->n_symbols);
}

static void do_port(void *v)
{
    Half *h = v;
    const WfExe *x = h->s->program->exe;
    int k = h->i < 0 || h->ports < WEFT_INPUTS || h->ports > WEFT_WRITTEN ? -1 : port_at(x, h->ports, h->i);
    if (k < 0)
        wf_fail(h->s->program->ctx, WF_E_LIBRARY_CALL, "there is no port %d of kind %d", h->i, (int)h->ports);
    need_sizes(h);
    const WfExeProgram *p = &x->program[h->ports == WEFT_OUTPUTS ? WF_PROG_FORWARD : WF_PROG_BACKWARD];
    bool in = !is_output(h->ports);
    const WfExeBuf *b = in ? NULL : &p->bufs[p->outputs[k].buf];
    *h->out = (weft_tensor){.dtype = (weft_dtype)(in ? x->inputs[k].dtype : b->dtype), .rank = in ? x->inputs[k].rank : b->rank};
    for (int d = 0; d < h->out->rank; d++)
        h->out->shape[d] = wf_exe_eval(x, in ? x->inputs[k].shape[d] : b->shape[d], h->sizes);
}

weft_status weft_port(weft_session *session, weft_ports ports, int i, const int64_t *sizes, weft_tensor *out)
{
    Half h = {.s = session, .ports = ports, .i = i, .sizes = sizes, .out = out};
    return session && out ? wf_guard(session->program->ctx, do_port, &h) : WEFT_ERR_USAGE;
}

static void do_frame(void *v)
{
    Half *h = v;
    need_sizes(h);
    h->bytes = (size_t)wf_session_frame(h->s->run, h->sizes);
}

weft_status weft_frame_bytes(weft_session *session, const int64_t *sizes, size_t *out)
{
    Half h = {.s = session, .sizes = sizes};
    weft_status r = session && out ? wf_guard(session->program->ctx, do_frame, &h) : WEFT_ERR_USAGE;
    if (r == WEFT_OK)
        *out = h.bytes;
    return r;
}

static void do_run(void *v)
{
    Half *h = v;
    if (!h->complete)
        wf_fail(h->s->program->ctx, WF_E_LIBRARY_CALL, "a half needs its pointers: inputs, outputs, cotangents or gradients are NULL");
    wf_session_half(h->s->run, h->backward ? WF_PROG_BACKWARD : WF_PROG_FORWARD, &h->run);
    h->s->last = h->backward ? WF_PROG_BACKWARD : WF_PROG_FORWARD;
}

weft_status weft_run_forward(weft_session *session, const int64_t *sizes, uint64_t seed, void *const *inputs,
                             void *const *outputs, void *frame)
{
    Half h = {.s = session, .complete = inputs && outputs,
              .run = {.symbols = sizes, .seed = seed, .inputs = inputs, .outputs = outputs, .frame = frame}};
    return session ? wf_guard(session->program->ctx, do_run, &h) : WEFT_ERR_USAGE;
}

weft_status weft_run_backward(weft_session *session, const int64_t *sizes, void *const *inputs, void *const *cotangents,
                              void *const *gradients, void *frame)
{
    Half h = {.s = session, .backward = true, .complete = inputs && cotangents && gradients,
              .run = {.symbols = sizes, .inputs = inputs, .cotangents = cotangents, .outputs = gradients, .frame = frame}};
    return session ? wf_guard(session->program->ctx, do_run, &h) : WEFT_ERR_USAGE;
}
