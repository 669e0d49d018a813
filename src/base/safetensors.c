/* safetensors: eight bytes of length, a JSON header, the data. Nothing of the header is believed: each
 * tensor's byte range must have exactly the size of its dtype and shape, and the ranges, sorted, must follow
 * each other without gap or overlap to the end of the file, as the format demands. Data is used in place;
 * only a tensor whose start does not suit its element (files of old writers) is copied. Written files put
 * wide elements first, names within, and start the data at a multiple of 64 bytes. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/inner.h"

enum { MAX_HEADER = 100 << 20 };

static const char *const type_names[WF_DTYPES] = {
    [WF_F64] = "F64", [WF_F32] = "F32", [WF_F16] = "F16", [WF_BF16] = "BF16", [WF_I64] = "I64",
    [WF_I32] = "I32", [WF_I16] = "I16", [WF_I8] = "I8",   [WF_U8] = "U8",     [WF_BOOL] = "BOOL",
};

typedef struct {
    WfCtx *ctx;
    WfArena *arena;
    const uint8_t *data;
    int64_t data_size;
    const char *what;
} Reader;

typedef struct { int64_t from, to; const char *name; } Span;

static void WF_NORETURN WF_PRINTF(2, 3) damaged(const Reader *r, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    char *text = wf_arena_vprintf(r->arena, fmt, ap);
    va_end(ap);
    wf_fail(r->ctx, WF_E_SAFETENSORS, "%s: not a valid safetensors file: %s", r->what, text);
}

static int64_t get_size(const Reader *r, const json_t *j, const char *name, const char *what)
{
    if (!json_is_integer(j) || json_integer_value(j) < 0)
        damaged(r, "tensor '%.200s': %s must be a number that is not negative", name, what);
    return json_integer_value(j);
}

static WfDtype get_dtype(const Reader *r, const json_t *j, const char *name)
{
    const char *text = json_string_value(j);
    if (!text)
        damaged(r, "tensor '%.200s' has no dtype", name);
    for (int t = 1; t < WF_DTYPES; t++)
        if (!strcmp(type_names[t], text))
            return (WfDtype)t;
    wf_fail(r->ctx, WF_E_TENSOR_KIND, "%s: tensor '%.200s' has the dtype %.50s, which Weft does not know", r->what,
            name, text);
}

static void read_tensor(const Reader *r, const char *name, const json_t *j, WfTensor *t, Span *span)
{
    const json_t *shape = json_object_get(j, "shape"), *range = json_object_get(j, "data_offsets");
    if (!json_is_object(j) || !json_is_array(shape) || !json_is_array(range) || json_array_size(range) != 2)
        damaged(r, "tensor '%.200s' needs a dtype, a shape and two data_offsets", name);
    if (json_array_size(shape) > WF_LEN(t->shape))
        wf_fail(r->ctx, WF_E_TENSOR_KIND, "%s: tensor '%.200s' has %zu dimensions; at most 8 are supported",
                r->what, name, json_array_size(shape));
    t->name = wf_arena_strdup(r->arena, name);
    t->dtype = get_dtype(r, json_object_get(j, "dtype"), name);
    t->rank = (int)json_array_size(shape);
    int64_t bytes = (int64_t)wf_dtype_size(t->dtype);
    bool empty = false, fits = true;
    for (int i = 0; i < t->rank; i++) {
        t->shape[i] = get_size(r, json_array_get(shape, (size_t)i), name, "a dimension");
        empty |= t->shape[i] == 0;
        fits = fits && wf_mul_ok(bytes, t->shape[i], &bytes);
    }
    int64_t from = get_size(r, json_array_get(range, 0), name, "an offset");
    int64_t to = get_size(r, json_array_get(range, 1), name, "an offset");
    if (from > to || to > r->data_size)
        damaged(r, "tensor '%.200s': bytes %lld to %lld do not lie in the file's %lld", name, (long long)from,
                (long long)to, (long long)r->data_size);
    if (empty ? from != to : !fits || to - from != bytes)
        damaged(r, "tensor '%.200s': its dtype and shape do not have %lld bytes", name, (long long)(to - from));
    t->bytes = (size_t)(to - from);
    t->data = r->data + from;
    *span = (Span){ from, to, t->name };
}

static int by_start(const void *a, const void *b)
{
    const Span *x = a, *y = b;
    return x->from != y->from ? (x->from > y->from) - (x->from < y->from) : (x->to > y->to) - (x->to < y->to);
}

static void check_spans(const Reader *r, Span *spans, int n)
{
    int64_t at = 0;
    qsort(spans, (size_t)n, sizeof(*spans), by_start);
    for (int i = 0; i < n; i++) {
        if (spans[i].from < at)
            damaged(r, "tensors '%.200s' and '%.200s' overlap", spans[i - 1].name, spans[i].name);
        if (spans[i].from > at)
            damaged(r, "bytes %lld to %lld belong to no tensor", (long long)at, (long long)spans[i].from);
        at = spans[i].to;
    }
    if (at != r->data_size)
        damaged(r, "%lld bytes behind the last tensor belong to none", (long long)(r->data_size - at));
}

static void check_metadata(const Reader *r, json_t *j)
{
    const char *key;
    json_t *value;
    if (!json_is_object(j))
        damaged(r, "__metadata__ is no object");
    json_object_foreach(j, key, value)
        if (!json_is_string(value))
            damaged(r, "__metadata__ holds something else than strings");
}

WfTensors *wf_safetensors_index(WfCtx *ctx, WfArena *a, const uint8_t *p, size_t n, const char *what)
{
    Reader r = { .ctx = ctx, .arena = a, .what = what };
    uint64_t header = 0;
    if (n < 8)
        damaged(&r, "it has only %zu bytes", n);
    for (int i = 7; i >= 0; i--)
        header = header << 8 | p[i];
    bool none = header > MAX_HEADER || header > n - 8;
    if (none && (!memcmp(p, "PK\3\4", 4) || (p[0] == 0x80 && p[1] >= 2 && p[1] <= 5))) /* zip; pickle */
        wf_fail_at(ctx, WF_E_SAFETENSORS, NULL, "Write one by safetensors.torch.save_file(state_dict, FILE); tools/state.py converts PyTorch's files.",
                   "%s: not a safetensors file, but a checkpoint as torch.save writes it, or another archive", what);
    if (none)
        damaged(&r, "its header should have %llu bytes (is the file cut off, or of another kind?)",
                (unsigned long long)header);
    if (header < 2 || p[8] != '{')
        damaged(&r, "its header is no JSON object");
    r.data = p + 8 + header;
    r.data_size = (int64_t)(n - 8 - header);
    WfDefer *json_defer;
    json_t *root = wf_json_load(ctx, (const char *)p + 8, header, what, &json_defer), *value;
    if (!json_is_object(root))
        damaged(&r, "its header is no JSON object");
    WfTensors *out = WF_NEW(a, WfTensors);
    out->path = wf_arena_strdup(a, what);
    out->by_name = wf_map_new(a);
    out->at = WF_NEWN(a, WfTensor, json_object_size(root));
    Span *spans = WF_NEWN(a, Span, json_object_size(root));
    const char *name;
    json_object_foreach(root, name, value) { /* duplicate names: refused by the JSON reader */
        if (!strcmp(name, "__metadata__")) {
            check_metadata(&r, value);
            continue;
        }
        read_tensor(&r, name, value, &out->at[out->n], &spans[out->n]);
        wf_map_put(out->by_name, name, out->n);
        out->n++;
    }
    check_spans(&r, spans, out->n);
    wf_defer_run(json_defer);
    return out;
}

WfTensors *wf_safetensors_parse(WfCtx *ctx, WfArena *a, const uint8_t *p, size_t n, const char *what)
{
    WfTensors *out = wf_safetensors_index(ctx, a, p, n, what);
    for (WfTensor *t = out->at; t < out->at + out->n; t++)
        if ((uintptr_t)t->data % wf_dtype_size(t->dtype)) {
            void *copy = wf_arena_alloc(a, t->bytes);
            memcpy(copy, t->data, t->bytes);
            t->data = copy;
        }
    return out;
}

WfTensors *wf_safetensors_open(WfCtx *ctx, WfArena *a, const char *path)
{
    WfFile *f = wf_file_map(ctx, a, path);
    return wf_safetensors_parse(ctx, a, f->at, f->size, path);
}

const WfTensor *wf_tensors_find(const WfTensors *t, const char *name)
{
    int64_t i;
    return wf_map_get(t->by_name, name, &i) ? &t->at[i] : NULL;
}

/* ---- writing ---- */

static int by_name(const void *a, const void *b)
{
    return strcmp((*(const WfTensor *const *)a)->name, (*(const WfTensor *const *)b)->name);
}

static int by_width(const void *a, const void *b)
{
    size_t x = wf_dtype_size((*(const WfTensor *const *)a)->dtype);
    size_t y = wf_dtype_size((*(const WfTensor *const *)b)->dtype);
    return x != y ? (x < y) - (x > y) : by_name(a, b);
}

static void put_json_string(WfStr *s, const char *text)
{
    wf_str_putc(s, '"');
    for (const unsigned char *p = (const unsigned char *)text; *p; p++) {
        if (*p < 0x20)
            wf_str_printf(s, "\\u%04x", *p);
        else if (*p == '"' || *p == '\\')
            wf_str_printf(s, "\\%c", *p);
        else
            wf_str_putc(s, (char)*p);
    }
    wf_str_putc(s, '"');
}

/* The header of the tensors, sorted by name; offsets as given. */
static void put_header(WfStr *s, const WfTensor **sorted, const int64_t *from, int n)
{
    wf_str_putc(s, '{');
    for (int i = 0; i < n; i++) {
        const WfTensor *t = sorted[i];
        if (i)
            wf_str_putc(s, ',');
        put_json_string(s, t->name);
        wf_str_printf(s, ":{\"dtype\":\"%s\",\"shape\":[", type_names[t->dtype]);
        for (int d = 0; d < t->rank; d++)
            wf_str_printf(s, d ? ",%lld" : "%lld", (long long)t->shape[d]);
        long long start = from[i], end = start + (long long)t->bytes;
        wf_str_printf(s, "],\"data_offsets\":[%lld,%lld]}", start, end);
    }
    wf_str_putc(s, '}');
    while (s->n % 64 != 56) /* with the length in front: a multiple of 64 */
        wf_str_putc(s, ' ');
}

/* The tensors in the order they lie in the file, and the header with its length in front. */
static const WfTensor **lay_out(WfCtx *ctx, WfArena *a, const char *what, const WfTensor *t, int n, WfStr *header)
{
    const WfTensor **named = WF_NEWN(a, const WfTensor *, (size_t)n);
    const WfTensor **laid = WF_NEWN(a, const WfTensor *, (size_t)n);
    int64_t *from = WF_NEWN(a, int64_t, (size_t)n), at = 0;
    for (int i = 0; i < n; i++) {
        int64_t bytes = (int64_t)wf_dtype_size(t[i].dtype);
        for (int d = 0; d < t[i].rank; d++)
            bytes *= t[i].shape[d];
        WF_ASSERT(ctx, (size_t)bytes == t[i].bytes && bytes >= 0);
        named[i] = laid[i] = &t[i];
    }
    qsort(named, (size_t)n, sizeof(*named), by_name);
    qsort(laid, (size_t)n, sizeof(*laid), by_width);
    for (int i = 1; i < n; i++)
        if (!strcmp(named[i - 1]->name, named[i]->name))
            wf_fail(ctx, WF_E_TENSOR_NAMES, "%s: two tensors are named '%s'", what, named[i]->name);
    WfMap *place = wf_map_new(a);
    for (int i = 0; i < n; i++) {
        wf_map_put(place, laid[i]->name, at);
        if (!wf_add_ok(at, (int64_t)laid[i]->bytes, &at))
            wf_fail(ctx, WF_E_TENSOR_NAMES, "%s: the tensors are too large for one file", what);
    }
    for (int i = 0; i < n; i++)
        wf_map_get(place, named[i]->name, &from[i]);
    WfStr text = { .arena = a };
    put_header(&text, named, from, n);
    header->arena = a;
    for (int i = 0; i < 8; i++)
        wf_str_putc(header, (char)((uint64_t)text.n >> 8 * i));
    wf_str_putn(header, text.at, text.n);
    return laid;
}

void wf_safetensors_write(WfCtx *ctx, const char *path, const WfTensor *t, int n)
{
    WfArena *a = wf_arena_scratch(ctx);
    WfStr header = { 0 };
    const WfTensor **laid = lay_out(ctx, a, path, t, n, &header);
    WfOut *o = wf_out_open(ctx, path);
    wf_out_write(o, header.at, header.n);
    for (int i = 0; i < n; i++)
        wf_out_write(o, laid[i]->data, laid[i]->bytes);
    wf_out_commit(o);
    wf_arena_free(a);
}

void wf_safetensors_head(WfCtx *ctx, const WfTensor *t, WfStr *out)
{
    lay_out(ctx, out->arena, t->name, t, 1, out);
}

const uint8_t *wf_safetensors_bytes(WfCtx *ctx, WfArena *a, const WfTensor *t, int n, size_t *size)
{
    WfStr header = { 0 };
    const WfTensor **laid = lay_out(ctx, a, "weights", t, n, &header);
    size_t at = header.n;
    *size = header.n;
    for (int i = 0; i < n; i++)
        *size += t[i].bytes;
    uint8_t *p = wf_arena_alloc(a, *size);
    memcpy(p, header.at, header.n);
    for (int i = 0; i < n; at += laid[i++]->bytes)
        memcpy(p + at, laid[i]->data, laid[i]->bytes);
    return p;
}
