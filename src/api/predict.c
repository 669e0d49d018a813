/* Predictions, and batches of fewer rows than the export's: filled up in memory of the session, never in the caller's. */
#include "api/call.h"

#include <string.h>

/* ---- what stands in for what was fed ---- */

static WfStandIn *stand_in(weft_session *s)
{
    if (s->stand_in)
        return s->stand_in;
    s->rooms = wf_arena_new(s->program->ctx);
    size_t n = (size_t)s->program->exe->n_inputs + 1;
    WfStandIn *in = WF_NEW(s->rooms, WfStandIn);
    in->inputs = WF_NEWN(s->rooms, WfTensor, n);
    in->given = WF_NEWN(s->rooms, WfTensor, n);
    in->room = WF_NEWN(s->rooms, void *, n);
    in->room_bytes = WF_NEWN(s->rooms, size_t, n);
    in->symbols = WF_NEWN(s->rooms, int64_t, (size_t)s->program->exe->n_symbols + 1);
    return s->stand_in = in;
}

void wf_api_take_fed(weft_session *s)
{
    WfStandIn *in = stand_in(s);
    for (int i = 0; i < s->program->exe->n_inputs; i++)
        in->inputs[i] = in->given[i] = wf_session_fed(s->run, i);
}

/* Memory for input i; of a size that grows there are a few at most. */
static void *room(weft_session *s, int i, size_t bytes)
{
    WfStandIn *in = s->stand_in;
    if (in->room_bytes[i] < bytes) {
        in->room_bytes[i] = bytes > 2 * in->room_bytes[i] ? bytes : 2 * in->room_bytes[i];
        in->room[i] = wf_arena_alloc(s->rooms, in->room_bytes[i]);
    }
    return in->room[i];
}

void wf_api_make_room(weft_session *s, int64_t given, int64_t rows)
{
    const WfExe *x = s->program->exe;
    for (int i = 0; i < x->n_inputs; i++) {
        WfTensor *t = &s->stand_in->inputs[i];
        int64_t size;
        if (!t->data || !t->rank || !wf_elit(x->exprs, x->inputs[i].shape[0], &size) || size != rows)
            continue;
        if (t->shape[0] != given)
            wf_fail(s->program->ctx, WF_E_DATA_SHAPE, "input %s has %lld rows, in a batch of %lld", t->name, (long long)t->shape[0], (long long)given);
        size_t bytes = t->bytes;
        t->bytes = wf_mul_size(bytes / (size_t)given, (size_t)rows);
        t->data = memcpy(room(s, i, t->bytes), t->data, bytes);
        t->shape[0] = rows;
    }
}

int64_t wf_api_rows(const weft_session *s, int64_t *full)
{
    const WfExe *x = s->program->exe;
    int64_t size;
    *full = 0;
    for (int i = 0; i < x->n_inputs; i++) {
        const WfTensor *t = &s->stand_in->inputs[i];
        if (!t->data || !t->rank)
            continue;
        if (wf_elit(x->exprs, x->inputs[i].shape[0], &size) && t->shape[0] > 0 && t->shape[0] < size)
            *full = size;
        return t->shape[0];
    }
    return 1;
}

weft_status wf_api_run_stood_in(weft_session *s, void (*fn)(void *), void *arg)
{
    const WfExe *x = s->program->exe;
    weft_status failed = wf_guard(s->program->ctx, fn, arg);
    for (int i = 0; i < x->n_inputs; i++)
        if (x->inputs[i].role == WF_XIN_USER)
            wf_session_feed(s->run, x->inputs[i].name, s->stand_in->given[i].data ? &s->stand_in->given[i] : NULL);
    return failed;
}

/* ---- predictions ---- */

/* The value of symbol k as an input says that predictions are made from; where none does, the usual one. */
static int64_t size_of(const WfExe *x, const WfTensor *inputs, int k)
{
    const WfExeSymbol *m = &x->symbols[k];
    WfDim wanted = x->inputs[m->input].shape[m->dim];
    for (int i = 0; i < x->n_inputs; i++)
        for (int d = 0; x->inputs[i].predicts && inputs[i].data && d < inputs[i].rank; d++)
            if (x->inputs[i].shape[d] == wanted)
                return (inputs[i].shape[d] - m->plus) / m->factor;
    return (wf_exe_usual(m) - m->plus) / m->factor;
}

/* Zeros for what only the loss reads. */
static void blank(weft_session *s)
{
    const WfExe *x = s->program->exe;
    WfTensor *inputs = s->stand_in->inputs;
    int64_t *symbols = s->stand_in->symbols;
    for (int k = 0; k < x->n_symbols; k++)
        symbols[k] = size_of(x, inputs, k);
    for (int i = 0; i < x->n_inputs; i++) {
        const WfExeInput *in = &x->inputs[i];
        if (in->role != WF_XIN_USER || in->predicts)
            continue;
        WfTensor t = {.name = in->name, .dtype = in->dtype, .rank = in->rank, .bytes = wf_dtype_size(in->dtype)};
        for (int d = 0; d < in->rank; d++) {
            t.shape[d] = wf_exe_eval(x, in->shape[d], symbols);
            t.bytes = wf_mul_size(t.bytes, (size_t)t.shape[d]);
        }
        t.data = memset(room(s, i, t.bytes ? t.bytes : 1), 0, t.bytes);
        inputs[i] = t;
    }
}

typedef struct { weft_session *s; int64_t given, rows; } Predicted;

static void run_predicted(void *v)
{
    Predicted *p = v;
    weft_session *s = p->s;
    const WfExe *x = s->program->exe;
    for (int i = 0; i < x->n_inputs; i++) {
        WfTensor *t = &s->stand_in->inputs[i];
        if (!t->data)
            continue;
        size_t row = p->rows && t->shape[0] == p->rows ? t->bytes / (size_t)p->rows : 0;
        for (int64_t k = p->given; row && x->inputs[i].predicts && k < p->rows; k++)
            memcpy((uint8_t *)(uintptr_t)t->data + (size_t)k * row, t->data, row);
        wf_session_feed(s->run, t->name, t);
    }
    wf_session_forward(s->run, true);
}

/* Of filled rows only those that were fed: each of them may have several in the predictions. */
static void cut(const Predicted *p, WfTensor *t)
{
    if (!t->rank || t->shape[0] % p->rows)
        wf_fail_at(p->s->program->ctx, WF_E_PREDICTIONS, NULL, "Give batches as large as the export's, or export it with dynamic_shapes.",
                   "the batch has %lld rows of %lld, and the predictions have no row for each", (long long)p->given, (long long)p->rows);
    t->shape[0] = t->shape[0] / p->rows * p->given;
}

static void do_predict(void *v)
{
    Call *c = v;
    weft_session *s = c->s;
    const WfExe *x = s->program->exe;
    wf_api_take_fed(s);
    Predicted p = {.s = s};
    for (int i = 0; i < x->n_inputs; i++)
        if (!x->inputs[i].predicts)
            s->stand_in->inputs[i] = (WfTensor){0};
    p.given = wf_api_rows(s, &p.rows);
    if (p.rows)
        wf_api_make_room(s, p.given, p.rows);
    blank(s);
    s->last = WF_PROG_EVAL;
    weft_status failed = wf_api_run_stood_in(s, run_predicted, &p);
    if (failed)
        wf_reraise(c->ctx, failed);
    WfTensor t;
    wf_session_output(s->run, WF_PROG_EVAL, wf_exe_predicted(c->ctx, x), &t);
    if (p.rows)
        cut(&p, &t);
    wf_api_tensor_out(&t, c->out);
}

weft_status weft_predict(weft_session *session, weft_tensor *out)
{
    Call c = {.s = session, .needs_out = true, .out = out};
    return wf_api_run(SESSION_CTX(session), do_predict, &c);
}
