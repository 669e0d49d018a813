/* An index out of range, told in the terms of who fed it: which input, which row, which value, what is allowed. Kernels report the
 * value alone; its row is searched for in what was fed. */
#include "run/private.h"

/* The first row of user input i that holds the value; -1: none. */
static int64_t row_with(const WfSession *s, int i, int64_t value)
{
    WfTensor t = wf_session_fed(s, i);
    size_t size = wf_dtype_size(t.dtype);
    if (!t.data || !t.rank || !t.shape[0] || !wf_dtype_is_int(t.dtype))
        return -1;
    int64_t each = (int64_t)(t.bytes / size) / t.shape[0];
    for (int64_t k = 0; k < t.shape[0] * each; k++)
        if (wf_load_i64(t.dtype, (const uint8_t *)t.data + (size_t)k * size) == value)
            return k / each;
    return -1;
}

void wf_raise_index(WfSession *s, const WfBinding *b, const WfExeCheck *c, int64_t value)
{
    WfIndexFault *f = &s->fault;
    int holders = 0;
    *f = (WfIndexFault){.input = c->input, .row = -1, .value = value, .lo = wf_exe_eval(s->x, c->lo, b->symbols),
                        .hi = wf_exe_eval(s->x, c->hi, b->symbols)};
    for (int i = 0; i < s->x->n_inputs; i++) {
        const WfExeInput *in = &s->x->inputs[i];
        int64_t row = in->role != WF_XIN_USER || (c->input && strcmp(in->name, c->input)) ? -1 : row_with(s, i, value);
        if (row < 0)
            continue;
        f->row = holders++ ? -1 : row;
        f->input = holders > 1 ? NULL : in->name;
    }
    WfStr text = {.arena = wf_arena_scratch(s->ctx)};
    wf_index_fault_text(f, NULL, &text);
    wf_fail_at(s->ctx, WF_E_INDEX_RANGE, c->where, "Do labels count from 1, or are there more tokens than the model's vocabulary has?", "%s",
               text.at);
}

void wf_index_fault_text(const WfIndexFault *f, const char *where, WfStr *out)
{
    if (f->row >= 0 && where)
        wf_str_printf(out, "input %s: %s holds %lld", f->input, where, (long long)f->value);
    else if (f->row >= 0)
        wf_str_printf(out, "input %s: row %lld of the batch holds %lld", f->input, (long long)f->row, (long long)f->value);
    else
        wf_str_printf(out, "%s%s%sindex %lld is out of range", f->input ? "input " : "", f->input ? f->input : "", f->input ? ": " : "",
                      (long long)f->value);
    if (f->hi > f->lo)
        wf_str_printf(out, "; %lld to %lld are allowed", (long long)f->lo, (long long)f->hi - 1);
}

const WfIndexFault *wf_session_fault(const WfSession *s) { return &s->fault; }
