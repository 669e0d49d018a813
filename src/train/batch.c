/* Batches: which inputs a dataset must fill, how large a batch may be, gathering and feeding rows. */
#include "train/loop.h"

#include <string.h>

enum { AHEAD_BYTES = 1 << 20 };

WfDataInput *wf_train_inputs(WfArena *a, const WfExe *x, int *n)
{
    WfDataInput *in = WF_NEWN(a, WfDataInput, (size_t)x->n_inputs + 1);
    *n = 0;
    for (int i = 0; i < x->n_inputs; i++) {
        const WfExeInput *e = &x->inputs[i];
        if (e->role != WF_XIN_USER)
            continue;
        WfDataInput *d = &in[(*n)++];
        *d = (WfDataInput){.name = e->name, .dtype = e->dtype, .rank = e->rank, .help = wf_exe_target(x, a, e->name)};
        for (int k = 0; k < e->rank; k++)
            if (!wf_elit(x->exprs, e->shape[k], &d->shape[k]))
                d->shape[k] = -1;
        for (int k = 0; k < x->n_symbols; k++)
            if (x->symbols[k].input == i)
                d->usual[x->symbols[k].dim] = wf_exe_usual(&x->symbols[k]);
    }
    return in;
}

void *wf_batch_memory(WfArena *a, size_t bytes)
{
    uint8_t *p = wf_arena_alloc(a, bytes < SIZE_MAX - 64 ? bytes + 64 : bytes);
    return p + (64 - (uintptr_t)p % 64) % 64;
}

WfTensor wf_batch_zeros(const WfTraining *t, const WfExeInput *in, int64_t batch)
{
    WfTensor out = {.name = in->name, .dtype = in->dtype, .rank = in->rank, .bytes = wf_dtype_size(in->dtype)};
    for (int d = 0; d < in->rank; d++) {
        if (!wf_elit(t->exe->exprs, in->shape[d], &out.shape[d])) {
            if (d)
                wf_fail(t->ctx, WF_E_DATA_MISSING, "data: input %s has no data, and its size is not known without", in->name);
            out.shape[d] = batch;
        }
        out.bytes = wf_mul_size(out.bytes, (size_t)out.shape[d]);
    }
    out.data = wf_batch_memory(t->arena, out.bytes);
    return out;
}

static size_t column_bytes(const WfLoop *l, int i)
{
    const WfColumn *c = &l->data->columns[i];
    return wf_mul_size((size_t)l->batch,
                       wf_mul_size((size_t)c->sample_elements, wf_dtype_size(c->input->dtype)));
}

static void **new_buffers(const WfLoop *l)
{
    WfArena *a = l->t->arena;
    void **buffer = WF_NEWN(a, void *, (size_t)l->n_inputs + 1);
    for (int i = 0; i < l->n_inputs; i++)
        buffer[i] = wf_batch_memory(a, column_bytes(l, i));
    return buffer;
}

void wf_loop_allocate(WfLoop *l)
{
    l->index = WF_NEWN(l->t->arena, int64_t, (size_t)l->batch);
    l->buffer = new_buffers(l);
}

/* Below AHEAD_BYTES a batch is gathered in less time than it takes to wake a thread, but for what has to be decoded. */
void wf_loop_start_ahead(WfLoop *l, WfArena *a)
{
    size_t bytes = 0;
    int64_t batches;
    for (int i = 0; i < l->n_inputs; i++)
        bytes += column_bytes(l, i);
    if (!wf_mul_ok(l->total, l->micro, &batches))
        batches = INT64_MAX;
    if (bytes >= AHEAD_BYTES || l->data->slow)
        l->ahead = wf_ahead_new(l->t->ctx, a, l->data, l->t->options, l->batch, l->per_epoch * l->micro,
                                l->from * l->micro, batches, (WfShare){l->rank, l->ranks, l->micro},
                                l->buffer, new_buffers(l));
}

/* `count` rows of input i in the buffers, from row `first` on. */
static WfTensor rows_of(const WfLoop *l, const WfDataset *d, int i, int64_t first, int64_t count)
{
    const WfColumn *c = &d->columns[i];
    WfTensor t = {.name = c->input->name, .dtype = c->input->dtype, .rank = c->rank};
    size_t item = wf_dtype_size(t.dtype);
    t.data = (uint8_t *)l->buffer[i] + (size_t)(first * c->sample_elements) * item;
    memcpy(t.shape, c->shape, sizeof t.shape);
    t.shape[0] = count;
    t.bytes = (size_t)(count * c->sample_elements) * item;
    return t;
}

void wf_loop_hand_in(WfLoop *l, const WfDataset *d, int64_t first, int64_t count)
{
    l->fed.data = d;
    l->fed.first = first;
    for (int i = 0; i < l->n_inputs; i++) {
        WfTensor t = rows_of(l, d, i, first, count);
        wf_session_feed(l->t->session, t.name, &t);
    }
}

const int64_t *wf_loop_fed(WfLoop *l)
{
    if (l->fed.order.n && l->fed.data == l->data)
        wf_order_batch(&l->fed.order, l->fed.batch, l->batch, l->index);
    return l->index + l->fed.first;
}

void wf_loop_tensors(const WfLoop *l, const WfDataset *d, int64_t count, WfTensor *out)
{
    for (int i = 0, k = 0; i < l->t->exe->n_inputs; i++)
        if (l->t->exe->inputs[i].role == WF_XIN_USER)
            out[i] = rows_of(l, d, k++, 0, count);
}

void wf_loop_read(WfLoop *l, const WfDataset *d, int64_t count)
{
    for (int i = 0; i < l->n_inputs; i++) {
        WfDataFault fault = {0};
        if (!wf_dataset_read(d, i, l->epoch, l->index, count, l->buffer[i], &fault))
            wf_data_raise(l->t->ctx, &fault);
    }
}
