/* Predictions: the evaluation form over all rows of a dataset, batch by batch in the order of the file. The last batch is
 * filled up with row 0 and the padding is cut off again. They go to the file as they come: memory holds one batch. Inputs
 * that only the loss reads (labels) need no data. */
#include "train/train.h"

#include <string.h>

typedef struct {
    WfTraining *t;
    int output; /* which output holds the predictions */
    WfDataset *data;
    WfDataInput *inputs; /* the needed user inputs */
    int n_inputs;
    int64_t batch;
    int64_t *index;
    WfTensor *fed; /* by input of the executable: one batch; zeros where not needed */
    const char *path;
    WfTensor all;  /* the result, but for its data */
    WfOut *out;    /* takes them as they come; NULL: none have */
} Predict;

static void choose_inputs(Predict *r)
{
    const WfExe *x = r->t->exe;
    int all, at = 0;
    WfDataInput *in = wf_train_inputs(r->t->arena, x, &all);
    r->inputs = WF_NEWN(r->t->arena, WfDataInput, (size_t)all + 1);
    for (int i = 0; i < x->n_inputs; i++) {
        if (x->inputs[i].role != WF_XIN_USER)
            continue;
        if (x->inputs[i].predicts)
            r->inputs[r->n_inputs++] = in[at];
        at++;
    }
    if (!r->n_inputs)
        wf_fail(r->t->ctx, WF_E_PREDICTIONS, "the predictions depend on no input");
}

static void allocate(Predict *r)
{
    const WfExe *x = r->t->exe;
    WfArena *a = r->t->arena;
    r->index = WF_NEWN(a, int64_t, (size_t)r->batch);
    r->fed = WF_NEWN(a, WfTensor, (size_t)x->n_inputs + 1);
    for (int i = 0, col = 0; i < x->n_inputs; i++) {
        const WfExeInput *in = &x->inputs[i];
        if (in->role != WF_XIN_USER)
            continue;
        if (!in->predicts) {
            r->fed[i] = wf_batch_zeros(r->t, in, r->batch);
            continue;
        }
        const WfColumn *c = &r->data->columns[col++];
        WfTensor *t = &r->fed[i];
        *t = (WfTensor){.name = in->name, .dtype = in->dtype, .rank = in->rank};
        memcpy(t->shape, c->shape, sizeof t->shape);
        t->shape[0] = r->batch;
        t->bytes = wf_mul_size((size_t)r->batch, (size_t)c->sample_elements * wf_dtype_size(c->input->dtype));
        t->data = wf_batch_memory(a, t->bytes);
    }
}

static void feed(Predict *r)
{
    const WfExe *x = r->t->exe;
    for (int i = 0, col = 0; i < x->n_inputs; i++) {
        if (x->inputs[i].role != WF_XIN_USER)
            continue;
        if (x->inputs[i].predicts)
            wf_dataset_gather(r->data, col++, r->index, r->batch, (void *)(uintptr_t)r->fed[i].data);
        wf_session_feed(r->t->session, r->fed[i].name, &r->fed[i]);
    }
}

static void keep(Predict *r, int64_t valid)
{
    WfTensor t;
    wf_session_output(r->t->session, WF_PROG_EVAL, r->output, &t);
    if (!t.rank || t.shape[0] % r->batch)
        wf_fail(r->t->ctx, WF_E_PREDICTIONS,
                "the predictions have no row for each sample: their first dimension is %lld",
                (long long)(t.rank ? t.shape[0] : 0));
    int64_t each = t.shape[0] / r->batch;
    size_t bytes = (size_t)each * wf_dtype_size(t.dtype);
    for (int d = 1; d < t.rank; d++)
        bytes = wf_mul_size(bytes, (size_t)t.shape[d]);
    if (!r->out) {
        WfStr head = {.arena = r->t->arena};
        r->all = t;
        r->all.name = "predictions";
        r->all.shape[0] = each * r->data->samples;
        r->all.bytes = wf_mul_size((size_t)r->data->samples, bytes);
        wf_safetensors_head(r->t->ctx, &r->all, &head);
        r->out = wf_out_open(r->t->ctx, r->path);
        wf_out_write(r->out, head.at, head.n);
    }
    wf_out_write(r->out, t.data, (size_t)valid * bytes);
}

static void predict(void *p)
{
    Predict *r = p;
    for (int64_t at = 0; at < r->data->samples; at += r->batch) {
        int64_t valid = r->data->samples - at < r->batch ? r->data->samples - at : r->batch;
        wf_check_cancel(r->t->ctx);
        for (int64_t i = 0; i < r->batch; i++)
            r->index[i] = i < valid ? at + i : 0;
        feed(r);
        wf_session_forward(r->t->session, true);
        keep(r, valid);
    }
}

int64_t wf_predict(WfTraining *t, const char *path)
{
    Predict r = {.t = t, .path = path};
    r.output = wf_exe_predicted(t->ctx, t->exe);
    choose_inputs(&r);
    r.data = wf_dataset_open(t->ctx, t->arena, t->options, WF_DATA_PREDICT, r.inputs, r.n_inputs);
    r.batch = wf_exe_batch(t->ctx, t->exe, t->options);
    allocate(&r);
    weft_status s = wf_guard(t->ctx, predict, &r);
    if (s != WEFT_OK) {
        WfCaught f = wf_train_failure(t, s);
        wf_train_fail(t, &f, r.data, r.index);
    }
    wf_out_commit(r.out);
    return r.data->samples;
}
