/* The two halves of a program whose backward pass a host calls. A frame begins with a line that says which executable filled it,
 * for which sizes, and with which seed: backward draws the same random numbers where it computes a mask again. */
#include "run/private.h"

enum { LINE = 64 };

typedef struct { uint64_t magic, seed, sizes; const WfExe *x; } Head;
_Static_assert(sizeof(Head) <= LINE, "a frame's head is one line");
static const uint64_t magic = UINT64_C(0x5765667446726d31);

int64_t wf_frame_offset(const WfSession *s, const int64_t *symbols, int saved)
{
    int64_t at = LINE;
    for (int i = 0; i < saved; i++)
        at += (wf_exe_eval(s->x, s->x->saved[i].bytes, symbols) + LINE - 1) & ~(int64_t)(LINE - 1);
    return at;
}

int64_t wf_session_frame(const WfSession *s, const int64_t *symbols)
{
    return s->x->program[WF_PROG_BACKWARD].n_outputs ? wf_frame_offset(s, symbols, s->x->n_saved) : 0;
}

static uint64_t sizes_of(const WfExe *x, const int64_t *symbols)
{
    uint64_t h = 1469598103934665603u;
    for (int i = 0; i < x->n_symbols; i++)
        h = (h ^ (uint64_t)symbols[i]) * 1099511628211u;
    return h;
}

static void check_symbols(WfSession *s, const int64_t *symbols)
{
    for (int i = 0; i < s->x->n_symbols; i++) {
        const WfExeSymbol *m = &s->x->symbols[i];
        if (!symbols || symbols[i] < m->lo || symbols[i] > m->hi)
            wf_fail(s->ctx, WF_E_INPUT_SIZE, "size %s is %lld; the program allows %lld to %lld", m->name,
                    symbols ? (long long)symbols[i] : -1, (long long)m->lo, (long long)m->hi);
    }
}

static void give_inputs(WfSession *s, const WfHalfRun *r)
{
    int k = 0, c = 0;
    for (int i = 0; i < s->x->n_inputs; i++) {
        const WfExeInput *in = &s->x->inputs[i];
        bool own = in->role == WF_XIN_PARAM || in->role == WF_XIN_BUFFER;
        if (in->role == WF_XIN_COTANGENT) {
            s->input[i] = r->cotangents ? r->cotangents[c++] : NULL;
        } else if (own || in->role == WF_XIN_USER) {
            void *given = r->inputs[k++];
            s->input[i] = given || !own ? given : s->state + s->state_offset[i];
        }
    }
}

void wf_session_half(WfSession *s, WfProgramKind kind, const WfHalfRun *r)
{
    static const int64_t none[1];
    const WfExeProgram *p = &s->x->program[kind];
    const int64_t *symbols = r->symbols ? r->symbols : none;
    bool forward = kind == WF_PROG_FORWARD;
    Head *head = r->frame;
    if (!p->n_outputs)
        wf_fail(s->ctx, WF_E_STEP_FORM, forward ? "this step was not compiled as two halves" : "nothing of this program has a gradient");
    check_symbols(s, r->symbols);
    if (wf_session_frame(s, symbols) && (!head || (uintptr_t)head % LINE))
        wf_fail(s->ctx, WF_E_LIBRARY_CALL, "the frame is %s", head ? "not aligned to 64 bytes" : "NULL");
    if (!forward && (head->magic != magic || head->x != s->x || head->sizes != sizes_of(s->x, symbols)))
        wf_fail(s->ctx, WF_E_LIBRARY_CALL, "the frame does not hold what this program's forward half has kept for these sizes");
    WfBinding *b = wf_bind_half(s, kind, symbols);
    give_inputs(s, r);
    s->frame = r->frame;
    for (int i = 0, k = 0; i < p->n_outputs; i++)
        if (p->outputs[i].role == WF_XOUT_USER || p->outputs[i].role == WF_XOUT_GRAD)
            s->given[i] = r->outputs[k++];
    s->seed = forward ? r->seed : head->seed;
    if (forward && head)
        head->magic = 0;
    wf_execute(s, b, 0, p->commit);
    wf_execute(s, b, p->commit, p->n_calls);
    if (forward && head)
        *head = (Head){magic, s->seed, sizes_of(s->x, symbols), s->x};
}
