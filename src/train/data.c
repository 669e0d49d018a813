/* Datasets: tensors in mapped files, one row per sample, gathered into batches. Nothing is copied twice: a batch is gathered
 * straight from the mapping into the caller's buffer. What a file holds is checked once, when it is
 * opened, against the inputs of the model; conversions are few and named (see train.h), so that a wrong file is an
 * error and not a bad model.
 *
 * The order of visits is a permutation computed on the fly: a Feistel network over the smallest even number of bits
 * that holds n, with results beyond n walked on (cycle walking); it is a bijection by construction and needs no table.
 * Its keys come from (seed, epoch), so a resumed run visits what it had not visited. */
#include <math.h>
#include <string.h>

#include "train/train.h"

/* ---- messages ---- */

static void put_shape(WfStr *s, WfDtype dtype, int rank, const int64_t *shape, bool any_batch)
{
    wf_str_printf(s, "%s[", wf_dtype_name(dtype));
    for (int i = 0; i < rank; i++) {
        wf_str_puts(s, i ? ", " : "");
        if ((i == 0 && any_batch) || shape[i] < 0)
            wf_str_putc(s, '*');
        else
            wf_str_printf(s, "%lld", (long long)shape[i]);
    }
    wf_str_putc(s, ']');
}

static void put_names(WfStr *s, const WfDataInput *inputs, int n)
{
    for (int i = 0; i < n; i++)
        wf_str_printf(s, "%s%s", i ? ", " : "", inputs[i].name);
}

/* ---- opening ---- */

typedef struct {
    const char *name, *path;   /* name NULL: a file of named tensors */
    const WfTensor *idx;       /* IDX file */
    const WfTensors *tensors;  /* or safetensors */
    bool used;
} Source;

typedef struct {
    WfCtx *ctx;
    WfArena *a;
    Source *sources;
    int source_count;
    const WfDataInput *inputs;
    int n;
} Opening;

/* NAME=FILE when what stands before the first `=` looks like a name; a path does when it holds a slash or a dot. */
static void split_source(Opening *op, const char *text, Source *out)
{
    const char *equals = strchr(text, '=');
    size_t n = equals ? (size_t)(equals - text) : 0;
    *out = (Source){.path = text};
    if (n && !memchr(text, '/', n)) {
        out->name = wf_arena_strndup(op->a, text, n);
        out->path = equals + 1;
    }
}

static bool is_idx(const WfFile *f)
{
    bool gzip = f->size > 2 && f->at[0] == 0x1f && f->at[1] == 0x8b;
    bool plain = f->size > 4 && f->at[0] == 0 && f->at[1] == 0 && f->at[2] >= 8 && f->at[2] <= 14 && f->at[3] >= 1 &&
                 f->at[3] <= 8; /* as a safetensors header length it would be above 512 MiB */
    return gzip || plain;
}

static void open_source(Opening *op, Source *s)
{
    if (s->name) {
        const char *names[64];
        int n = 0;
        bool known = false;
        for (int i = 0; i < op->n; i++) {
            known = known || !strcmp(op->inputs[i].name, s->name);
            if (n < (int)WF_LEN(names))
                names[n++] = op->inputs[i].name;
        }
        if (!known) {
            WfStr have = {.arena = op->a};
            put_names(&have, op->inputs, op->n);
            const char *near = wf_nearest(s->name, names, n);
            wf_fail_at(op->ctx, WEFT_ERR_DATA, s->path, near ? wf_arena_printf(op->a, "did you mean %s?", near) : NULL,
                       "data: the model has no input %s; its inputs are %s", s->name, have.at ? have.at : "none");
        }
    }
    if (is_idx(wf_file_map(op->ctx, op->a, s->path))) {
        s->idx = wf_idx_open(op->ctx, op->a, s->path);
        if (!s->name) {
            WfStr have = {.arena = op->a};
            put_names(&have, op->inputs, op->n);
            wf_fail_at(op->ctx, WEFT_ERR_DATA, s->path, "write --data NAME=FILE",
                       "data: an IDX file does not say which input it feeds; the inputs are %s", have.at);
        }
    } else {
        s->tensors = wf_safetensors_open(op->ctx, op->a, s->path);
    }
}

/* The tensor that feeds `in`: that of NAME=FILE first, then the first file of named tensors that has it. */
static const WfTensor *find_tensor(Opening *op, const WfDataInput *in, const Source **from)
{
    for (int i = 0; i < op->source_count; i++) {
        Source *s = &op->sources[i];
        if (!s->name || strcmp(s->name, in->name) != 0)
            continue;
        const WfTensor *t = s->idx ? s->idx : wf_tensors_find(s->tensors, in->name);
        if (!t && s->tensors->n == 1)
            t = &s->tensors->at[0];
        if (!t)
            wf_fail_at(op->ctx, WEFT_ERR_DATA, s->path, NULL,
                       "data: the file holds %d tensors, and none is called %s", s->tensors->n, in->name);
        s->used = true;
        *from = s;
        return t;
    }
    for (int i = 0; i < op->source_count; i++) {
        Source *s = &op->sources[i];
        const WfTensor *t = s->name ? NULL : wf_tensors_find(s->tensors, in->name);
        if (t) {
            s->used = true;
            *from = s;
            return t;
        }
    }
    WfStr have = {.arena = op->a};
    for (int i = 0; i < op->source_count; i++)
        for (int k = 0; op->sources[i].tensors && !op->sources[i].name && k < op->sources[i].tensors->n; k++)
            wf_str_printf(&have, "%s%s", have.n ? ", " : "the files hold ", op->sources[i].tensors->at[k].name);
    wf_fail_at(op->ctx, WEFT_ERR_DATA, NULL, "name the file: --data NAME=FILE", "data: input %s has no data%s%s",
               in->name, have.n ? "; " : "", have.n ? have.at : "");
}

/* Which conversion leads from the file's type to the input's; false if none does. */
static bool choose_convert(const WfDataInput *in, WfDtype have, int rank, bool idx, WfConvert *out)
{
    *out = WF_CONVERT_NONE;
    if (have == in->dtype)
        return true;
    if (idx && rank >= 3 && have == WF_U8 && in->dtype == WF_F32) {
        *out = WF_CONVERT_SCALE;
        return true;
    }
    *out = WF_CONVERT_WIDEN;
    if (!wf_dtype_is_int(have) || !wf_dtype_is_int(in->dtype))
        return false;
    bool from_unsigned = have == WF_U8, to_unsigned = in->dtype == WF_U8;
    return wf_dtype_size(in->dtype) > wf_dtype_size(have) && !(to_unsigned && !from_unsigned);
}

/* Fits the file's shape to the input's; for IDX images also by a channel dimension or by flattening. */
static bool choose_shape(const WfDataInput *in, const WfTensor *t, bool idx, WfColumn *c)
{
    c->rank = t->rank;
    memcpy(c->shape, t->shape, sizeof c->shape);
    if (idx && t->rank == 3 && in->rank == 4) {
        c->reshape = WF_RESHAPE_CHANNEL;
        c->rank = 4;
        memcpy(c->shape, (int64_t[]){t->shape[0], 1, t->shape[1], t->shape[2]}, 4 * sizeof(int64_t));
    } else if (idx && t->rank > 2 && in->rank == 2) {
        c->reshape = WF_RESHAPE_FLATTEN;
        c->rank = 2;
        int64_t elements = 1;
        for (int i = 1; i < t->rank; i++)
            if (!wf_mul_ok(elements, t->shape[i], &elements))
                return false;
        c->shape[1] = elements;
    }
    if (c->rank != in->rank)
        return false;
    for (int i = 1; i < in->rank; i++)
        if (in->shape[i] >= 0 && in->shape[i] != c->shape[i])
            return false;
    return true;
}

static void open_column(Opening *op, const WfDataInput *in, WfColumn *c)
{
    const Source *from = NULL;
    const WfTensor *t = find_tensor(op, in, &from);
    bool idx = from->idx != NULL;
    *c = (WfColumn){.input = in, .path = from->path, .dtype = t->dtype, .at = t->data};
    if (!choose_convert(in, t->dtype, t->rank, idx, &c->convert) || !choose_shape(in, t, idx, c)) {
        WfStr have = {.arena = op->a}, want = {.arena = op->a};
        put_shape(&have, t->dtype, t->rank, t->shape, false);
        put_shape(&want, in->dtype, in->rank, in->shape, true);
        wf_fail_at(op->ctx, WEFT_ERR_DATA, from->path,
                   t->dtype != in->dtype ? "convert the file; Weft only widens integers and scales IDX images" : NULL,
                   "data: input %s expects %s, but the file holds %s", in->name, want.at, have.at);
    }
    c->sample_elements = 1;
    for (int i = 1; i < c->rank; i++)
        if (!wf_mul_ok(c->sample_elements, c->shape[i], &c->sample_elements))
            wf_fail_at(op->ctx, WEFT_ERR_DATA, from->path, NULL, "data: input %s has samples that are too large", in->name);
    c->sample_bytes = (size_t)c->sample_elements * wf_dtype_size(c->dtype);
}

WfDataset *wf_dataset_open(WfCtx *ctx, WfArena *a, const WfStrings *files, const WfDataInput *inputs, int n)
{
    Opening op = {.ctx = ctx, .a = a, .inputs = inputs, .n = n, .source_count = files->n};
    op.sources = WF_NEWN(a, Source, (size_t)files->n);
    for (int i = 0; i < files->n; i++) {
        split_source(&op, files->at[i], &op.sources[i]);
        for (int k = 0; k < i; k++)
            if (op.sources[i].name && op.sources[k].name && !strcmp(op.sources[i].name, op.sources[k].name))
                wf_fail_at(ctx, WEFT_ERR_DATA, op.sources[i].path, NULL, "data: input %s is given twice",
                           op.sources[i].name);
        open_source(&op, &op.sources[i]);
    }
    WfDataset *d = WF_NEW(a, WfDataset);
    d->ctx = ctx;
    d->n = n;
    d->columns = WF_NEWN(a, WfColumn, (size_t)n);
    for (int i = 0; i < n; i++) {
        WfColumn *c = &d->columns[i];
        open_column(&op, &inputs[i], c);
        if (i > 0 && c->shape[0] != d->samples)
            wf_fail_at(ctx, WEFT_ERR_DATA, c->path, NULL, "data: input %s has %lld samples, but input %s has %lld",
                       inputs[i].name, (long long)c->shape[0], inputs[0].name, (long long)d->samples);
        d->samples = c->shape[0];
        if (d->samples == 0)
            wf_fail_at(ctx, WEFT_ERR_DATA, c->path, NULL, "data: input %s has no samples", inputs[i].name);
    }
    for (int i = 0; i < op.source_count; i++)
        if (!op.sources[i].used)
            wf_fail_at(ctx, WEFT_ERR_DATA, op.sources[i].path, NULL, "data: the file feeds no input");
    return d;
}

void wf_dataset_describe(const WfDataset *d, WfStr *out)
{
    for (int i = 0; i < d->n; i++) {
        const WfColumn *c = &d->columns[i];
        wf_str_printf(out, "%s: ", c->input->name);
        put_shape(out, c->input->dtype, c->rank, c->shape, false);
        wf_str_printf(out, " from %s", c->path);
        if (c->convert == WF_CONVERT_SCALE)
            wf_str_puts(out, ", bytes divided by 255");
        if (c->convert == WF_CONVERT_WIDEN)
            wf_str_printf(out, ", widened from %s", wf_dtype_name(c->dtype));
        if (c->reshape == WF_RESHAPE_CHANNEL)
            wf_str_puts(out, ", with a channel dimension of 1 added");
        if (c->reshape == WF_RESHAPE_FLATTEN)
            wf_str_puts(out, ", each image flattened");
        wf_str_putc(out, '\n');
    }
}

void wf_dataset_check_finite(const WfDataset *d)
{
    for (int i = 0; i < d->n; i++) {
        const WfColumn *c = &d->columns[i];
        if (!wf_dtype_is_float(c->dtype))
            continue;
        size_t size = wf_dtype_size(c->dtype);
        for (int64_t s = 0; s < d->samples; s++) {
            const uint8_t *sample = c->at + (size_t)s * c->sample_bytes;
            if ((s & 1023) == 0)
                wf_check_cancel(d->ctx);
            for (int64_t e = 0; e < c->sample_elements; e++) {
                double v = wf_load_f64(c->dtype, sample + (size_t)e * size);
                if (!isfinite(v))
                    wf_fail_at(d->ctx, WEFT_ERR_DATA, c->path, NULL, "data: input %s: sample %lld, element %lld is %s",
                               c->input->name, (long long)s, (long long)e, isnan(v) ? "nan" : "infinite");
            }
        }
    }
}

/* ---- gathering ---- */

static void scale_bytes(const float table[256], const uint8_t *from, float *to, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        to[i] = table[from[i]];
}

static void widen(WfDtype from, const uint8_t *src, WfDtype to, uint8_t *dst, int64_t n)
{
    size_t from_size = wf_dtype_size(from), to_size = wf_dtype_size(to);
    for (int64_t i = 0; i < n; i++)
        wf_store_i64(to, dst + (size_t)i * to_size, wf_load_i64(from, src + (size_t)i * from_size));
}

void wf_dataset_gather(const WfDataset *d, int column, const int64_t *index, int64_t count, void *out)
{
    const WfColumn *c = &d->columns[column];
    size_t out_bytes = (size_t)c->sample_elements * wf_dtype_size(c->input->dtype);
    float scaled[256]; /* division, not multiplication by 1/255: what torchvision's ToTensor gives, to the bit */
    for (int i = 0; i < 256; i++)
        scaled[i] = (float)i / 255.0f;
    for (int64_t i = 0; i < count; i++) {
        const uint8_t *from = c->at + (size_t)index[i] * c->sample_bytes;
        uint8_t *to = (uint8_t *)out + (size_t)i * out_bytes;
        switch (c->convert) {
        case WF_CONVERT_NONE:
            memcpy(to, from, out_bytes);
            break;
        case WF_CONVERT_SCALE:
            scale_bytes(scaled, from, (float *)(void *)to, c->sample_elements);
            break;
        case WF_CONVERT_WIDEN:
            widen(c->dtype, from, c->input->dtype, to, c->sample_elements);
            break;
        }
    }
}

/* ---- order of visits ---- */

/* The finaliser of SplitMix64 (Steele, Lea, Flood 2014), after Stafford's variant 13. */
static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

WfOrder wf_order(int64_t n, uint64_t seed, int64_t epoch, bool shuffle)
{
    WfOrder o = {.n = (uint64_t)n, .shuffle = shuffle, .half = 1};
    while (o.half < 31 && ((uint64_t)1 << (2 * o.half)) < o.n)
        o.half++;
    o.mask = ((uint64_t)1 << o.half) - 1;
    uint64_t state = mix(seed + 0x9e3779b97f4a7c15u) ^ (uint64_t)epoch;
    for (size_t i = 0; i < WF_LEN(o.key); i++)
        o.key[i] = mix(state += 0x9e3779b97f4a7c15u);
    return o;
}

int64_t wf_order_at(const WfOrder *o, int64_t i)
{
    if (!o->shuffle)
        return i;
    uint64_t x = (uint64_t)i;
    do {
        uint64_t left = x >> o->half, right = x & o->mask;
        for (size_t r = 0; r < WF_LEN(o->key); r++) {
            uint64_t next = left ^ (mix(right + o->key[r]) & o->mask);
            left = right;
            right = next;
        }
        x = left << o->half | right;
    } while (x >= o->n);
    return (int64_t)x;
}

int64_t wf_order_batch(const WfOrder *o, int64_t batch, int64_t size, int64_t *index)
{
    int64_t first = batch * size, left = (int64_t)o->n - first, count = left < size ? left : size;
    for (int64_t i = 0; i < count; i++)
        index[i] = wf_order_at(o, first + i);
    for (int64_t i = count > 0 ? count : 0; i < size; i++)
        index[i] = count > 0 ? index[0] : wf_order_at(o, 0);
    return count > 0 ? count : 0;
}
