/* Failures of a run in the terms of who started it: which sample of which file. */
#include "train/train.h"

#include <string.h>

WfCaught wf_train_failure(WfTraining *t, weft_status s)
{
    const WfDiag *d = &t->ctx->diag;
    WfArena *a = t->arena;
    return (WfCaught){s, d->kind, wf_arena_strdup(a, d->message), d->place ? wf_arena_strdup(a, d->place) : NULL,
                       d->hint ? wf_arena_strdup(a, d->hint) : NULL, d->told};
}

/* The message of an index that is out of range, with its sample; NULL: another failure, or the sample is not known. */
static char *index_message(WfTraining *t, const WfCaught *failure, const WfDataset *d, const int64_t *index)
{
    const WfIndexFault *f = wf_session_fault(t->session);
    WfStr where = {.arena = t->arena}, text = {.arena = t->arena};
    if (failure->kind != WF_E_INDEX_RANGE || !d || f->row < 0)
        return NULL;
    for (int i = 0; i < d->n; i++)
        if (f->input && !strcmp(d->columns[i].input->name, f->input))
            wf_dataset_place(d, i, index[f->row], &where);
    wf_index_fault_text(f, where.at, &text);
    return text.at;
}

void wf_train_fail(WfTraining *t, const WfCaught *f, const WfDataset *d, const int64_t *index)
{
    char *message = index_message(t, f, d, index);
    if (f->told)
        wf_reraise(t->ctx, f->status);
    wf_fail_at(t->ctx, f->kind, f->place, f->hint, "%s", message ? message : f->message);
}
