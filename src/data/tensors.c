/* Files of tensors that base reads: safetensors (only its header is read here; the data stay where they are) and MNIST's IDX
 * (big-endian, so all of it is turned in memory). */
#include <string.h>

#include "data/private.h"

/* ---- safetensors ---- */

typedef struct {
    WfTensors *tensors;
    int64_t *start;  /* of each tensor's data, in the file */
} Tensors;

static bool knows_safetensors(const WfDataFile *f, const uint8_t *head, size_t size)
{
    return head && (wf_data_ends_with(f->path, ".safetensors") || (size > 8 && head[8] == '{' && !head[7] && !head[6] && !head[5]));
}

static void open_safetensors(WfOpening *op, WfDataFile *f)
{
    WfArena *scratch = wf_arena_scratch(op->ctx);
    const WfFile *all = wf_bytes_view(op->ctx, scratch, f->bytes);
    Tensors *t = f->own = WF_NEW(op->a, Tensors);
    t->tensors = wf_safetensors_index(op->ctx, op->a, all->at, all->size, f->path);
    t->start = WF_NEWN(op->a, int64_t, (size_t)t->tensors->n + 1);
    for (int i = 0; i < t->tensors->n; i++)
        t->start[i] = (const uint8_t *)t->tensors->at[i].data - all->at;
    wf_arena_free(scratch);
}

static bool safetensors_field(WfOpening *op, WfDataFile *f, const WfDataInput *in, int place, int names_n, WfField *out)
{
    const Tensors *own = f->own;
    const WfTensor *t = wf_tensors_find(own->tensors, in->name);
    if (!t && place >= 0 && names_n == 1 && own->tensors->n == 1)
        t = own->tensors->at;
    if (!t && place < 0)
        return false;
    if (!t)
        wf_fail_at(op->ctx, WF_E_DATA_WHICH, f->path, NULL, "data: the file holds %d tensors, and none is called %s", own->tensors->n, in->name);
    out->dtype = t->dtype;
    out->rank = t->rank;
    memcpy(out->shape, t->shape, sizeof out->shape);
    out->bytes = f->bytes;
    out->start = own->start[t - own->tensors->at];
    return true;
}

static void safetensors_names(WfOpening *op, WfDataFile *f, WfStr *out)
{
    const Tensors *own = f->own;
    (void)op;
    for (int i = 0; i < own->tensors->n; i++)
        wf_str_printf(out, "%s%s", out->n ? ", " : "", own->tensors->at[i].name);
}

const WfFormat wf_format_safetensors = {"a safetensors file", true, false, WF_USE_VALUES | WF_USE_WINDOW, WF_USE_VALUES | WF_USE_WINDOW, knows_safetensors, open_safetensors, safetensors_field,
                                        safetensors_names};

/* ---- IDX ---- */

static bool knows_idx(const WfDataFile *f, const uint8_t *head, size_t size)
{
    (void)f;
    if (!head)
        return false;
    bool gzip = size > 2 && head[0] == 0x1f && head[1] == 0x8b;
    bool plain = size > 4 && head[0] == 0 && head[1] == 0 && head[2] >= 8 && head[2] <= 14 && head[3] >= 1 &&
                 head[3] <= 8; /* as a safetensors header length it would be above 512 MiB */
    return gzip || plain;
}

static void open_idx(WfOpening *op, WfDataFile *f)
{
    WfArena *scratch = wf_arena_scratch(op->ctx);
    const WfFile *all = wf_bytes_view(op->ctx, scratch, f->bytes);
    f->own = wf_idx_parse(op->ctx, op->a, all->at, all->size, f->path);
    wf_arena_free(scratch);
}

static bool idx_field(WfOpening *op, WfDataFile *f, const WfDataInput *in, int place, int names_n, WfField *out)
{
    const WfTensor *t = f->own;
    if (names_n > 1)
        wf_fail_at(op->ctx, WF_E_DATA_WHICH, f->path, NULL, "data: an IDX file feeds one input, not %d", names_n);
    (void)in, (void)place;
    out->dtype = t->dtype;
    out->rank = t->rank;
    memcpy(out->shape, t->shape, sizeof out->shape);
    out->memory = t->data;
    out->picture = t->rank >= 3;
    return true;
}

const WfFormat wf_format_idx = {"an IDX file", false, false, WF_USE_VALUES | WF_USE_WINDOW, 0, knows_idx, open_idx, idx_field, NULL};
