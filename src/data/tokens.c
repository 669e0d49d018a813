/* Streams of tokens, cut into windows: raw uint16 or uint32 numbers (.bin), the same behind the header of llm.c, or the bytes
 * of a text (.txt). Window k of a file holds tokens k * stride .. k * stride + length - 1; with NAME,NAME=FILE the second input
 * gets those that follow each by one. No window reaches into another file.
 *
 * llm.c's header is 256 int32: a magic number, a version, the number of tokens. Magic 20240520, version 1: uint16 (GPT-2);
 * magic 20240801, version 7: uint32 (Llama 3). */
#include <string.h>

#include "data/private.h"

enum { HEADER = 1024, BLOCK = 1 << 14, EARLY = 1 << 20 };

static const struct { uint32_t magic, version; int width; } headers[] = {{20240520, 1, 2}, {20240801, 7, 4}};

typedef struct {
    int width;           /* bytes of a token */
    int64_t start, count; /* where they begin; how many */
    bool header;
} Stream;

typedef struct {
    const Stream *stream;
    int64_t length, stride, shift;
    int64_t limit;       /* tokens are below it */
} Windows;

static uint32_t word(const uint8_t *p, int i)
{
    return p[4 * i] | (uint32_t)p[4 * i + 1] << 8 | (uint32_t)p[4 * i + 2] << 16 | (uint32_t)p[4 * i + 3] << 24;
}

/* The row of llm.c's header with that magic number; -1: none. */
static int header_row(const uint8_t *head, size_t size)
{
    for (size_t i = 0; i < WF_LEN(headers) && size >= 4; i++)
        if (word(head, 0) == headers[i].magic)
            return (int)i;
    return -1;
}

static bool knows_tokens(const WfDataFile *f, const uint8_t *head, size_t size)
{
    if (!head)
        return false;
    return f->recipe->tokens || header_row(head, size) >= 0 || wf_data_ends_with(f->path, ".bin") || wf_data_ends_with(f->path, ".txt");
}

static void open_tokens(WfOpening *op, WfDataFile *f)
{
    uint8_t head[12];
    int64_t size = wf_bytes_size(f->bytes);
    Stream *s = f->own = WF_NEW(op->a, Stream);
    WfTokens kind = f->recipe->tokens;
    int row = -1;
    if (size >= (int64_t)sizeof head && !wf_bytes_read(f->bytes, 0, head, sizeof head) && kind != WF_TOKENS_BYTES)
        row = header_row(head, sizeof head);
    s->width = row >= 0 ? headers[row].width : kind == WF_TOKENS_U32 ? 4 : kind == WF_TOKENS_U16 ? 2 : 1;
    if (row < 0 && kind == WF_TOKENS_AUTO && !wf_data_ends_with(f->path, ".txt"))
        s->width = 2;
    if (row >= 0) {
        s->header = true;
        s->start = HEADER;
        if (size < HEADER)
            wf_data_damaged(op, f->path, "token file", "it has %lld bytes, fewer than llm.c's header", (long long)size);
        if (word(head, 1) != headers[row].version)
            wf_fail_at(op->ctx, WF_E_DATA_KIND, f->path, "Version 1 with magic 20240520 and version 7 with 20240801 are known.",
                       "data: llm.c's header has magic %u and version %u", word(head, 0), word(head, 1));
        if ((int32_t)word(head, 2) <= 0)
            wf_data_damaged(op, f->path, "token file", "its header says that it holds %d tokens", (int32_t)word(head, 2));
        if ((int64_t)word(head, 2) * s->width != size - HEADER)
            wf_data_damaged(op, f->path, "token file", "its header says that it holds %u tokens of %d bytes, and %lld bytes follow it",
                            word(head, 2), s->width, (long long)(size - HEADER));
    }
    if ((size - s->start) % s->width)
        wf_fail_at(op->ctx, WF_E_DATA_FILE, f->path, "Is it of uint32 tokens (tokens: u32 in the recipe), a text (tokens: bytes), or cut off?",
                   "data: %lld bytes are no multiple of the %d bytes of a token", (long long)size, s->width);
    s->count = (size - s->start) / s->width;
}

/* Tokens as the input's type; returns the largest. One loop for each pair of types, for the compiler to vectorise. */
#define WIDEN(FROM, TO)                                              \
    for (int64_t i = 0; i < n; i++) {                                \
        uint32_t x = ((const FROM *)(const void *)raw)[i];           \
        top = x > top ? x : top;                                     \
        ((TO *)(void *)out)[i] = (TO)x;                              \
    }
static uint32_t widen(int width, const uint8_t *restrict raw, WfDtype to, uint8_t *restrict out, int64_t n)
{
    uint32_t top = 0;
    if (to == WF_I64 && width == 1)
        WIDEN(uint8_t, int64_t)
    else if (to == WF_I64 && width == 2)
        WIDEN(uint16_t, int64_t)
    else if (to == WF_I64)
        WIDEN(uint32_t, int64_t)
    else if (width == 1)
        WIDEN(uint8_t, int32_t)
    else if (width == 2)
        WIDEN(uint16_t, int32_t)
    else
        WIDEN(uint32_t, int32_t)
    return top;
}

/* One of the raw tokens, which begin with number `at`, reaches the limit: which? */
static bool too_large(const WfField *f, const WfVisit *v, const Windows *w, const uint8_t *raw, int64_t at)
{
    for (uint32_t x = 0;; raw += w->stream->width, at++) {
        memcpy(&x, raw, (size_t)w->stream->width);
        if (x >= w->limit)
            return wf_data_fault(v, WF_E_INDEX_RANGE, f->path, "Another tokenizer, or tokens of another width (tokens: u16 or u32 in the recipe)?",
                                 "data: token %lld, at byte %lld, is %u; it must be below %lld", (long long)at,
                                 (long long)(w->stream->start + at * w->stream->width), x, (long long)w->limit);
    }
}

/* Tokens at .. at + n - 1, none of them `limit` or above, as dtype. */
static bool read_tokens(const WfField *f, const WfVisit *v, const Windows *w, int64_t at, int64_t n, uint8_t *out)
{
    const Stream *s = w->stream;
    _Alignas(64) uint8_t raw[BLOCK];
    size_t to = wf_dtype_size(f->dtype);
    for (int64_t done = 0; done < n;) {
        int64_t here = n - done < BLOCK / s->width ? n - done : BLOCK / s->width;
        if (!wf_data_read(v, f->bytes, s->start + (at + done) * s->width, raw, (size_t)(here * s->width)))
            return false;
        if (widen(s->width, raw, f->dtype, out, here) >= w->limit)
            return too_large(f, v, w, raw, at + done);
        out += (size_t)here * to;
        done += here;
    }
    return true;
}

static bool read_windows(const WfField *f, const WfVisit *v, int64_t first, int64_t count, uint8_t *out)
{
    const Windows *w = f->own;
    if (w->stride == w->length)
        return read_tokens(f, v, w, first * w->stride + w->shift, count * w->length, out);
    for (int64_t i = 0; i < count; i++, out += wf_field_sample_bytes(f))
        if (!read_tokens(f, v, w, (first + i) * w->stride + w->shift, w->length, out))
            return false;
    return true;
}

/* With a vocabulary, the beginning of every file is looked at before the first step: a file of another kind shows there. */
static void check_early(WfOpening *op, const WfField *out, const Windows *w)
{
    WfDataFault fault = {0};
    WfVisit v = {.fault = &fault};
    WfArena *a = wf_arena_scratch(op->ctx);
    int64_t n = w->stream->count < EARLY ? w->stream->count : EARLY;
    uint8_t *room = wf_arena_alloc(a, wf_mul_size((size_t)n, wf_dtype_size(out->dtype)));
    if (!read_tokens(out, &v, w, 0, n, room))
        wf_data_raise(op->ctx, &fault);
    wf_arena_free(a);
}

static int64_t window_length(WfOpening *op, const WfDataFile *f, const WfDataInput *in)
{
    int64_t fixed = in->rank == 2 ? in->shape[1] : -1, asked = f->recipe->length;
    if (in->rank != 2 || (in->dtype != WF_I64 && in->dtype != WF_I32))
        wf_fail_at(op->ctx, WF_E_DATA_SHAPE, f->path, in->help,
                   "data: input %s has type %s and %d dimension%s; windows of tokens are i64[*, length] or i32[*, length]", in->name,
                   wf_dtype_name(in->dtype), in->rank, in->rank == 1 ? "" : "s");
    if (fixed > 0 && asked && asked != fixed)
        wf_fail_at(op->ctx, WF_E_RECIPE, op->recipe, NULL, "recipe: length: %lld, but input %s was exported with %lld", (long long)asked,
                   in->name, (long long)fixed);
    if (fixed <= 0 && !asked && !in->usual[1])
        wf_fail_at(op->ctx, WF_E_RECIPE, op->recipe, NULL, "data: how long are the windows of input %s? Say length: N in a recipe", in->name);
    return fixed > 0 ? fixed : asked ? asked : in->usual[1];
}

static bool tokens_field(WfOpening *op, WfDataFile *f, const WfDataInput *in, int place, int names_n, WfField *out)
{
    const Stream *s = f->own;
    const WfRecipe *r = f->recipe;
    Windows *w = out->own = WF_NEW(op->a, Windows);
    if (names_n > 2)
        wf_fail_at(op->ctx, WF_E_DATA_WHICH, f->path, "--data x,y=FILE: x gets tokens, y those that follow them", "data: tokens feed one input or two, not %d", names_n);
    w->stream = s;
    w->length = window_length(op, f, in);
    w->stride = r->stride ? r->stride : w->length;
    w->shift = place > 0 ? 1 : 0;
    w->limit = r->vocab ? r->vocab : in->dtype == WF_I32 ? (int64_t)INT32_MAX + 1 : (int64_t)UINT32_MAX + 1;
    int64_t need = w->length + (names_n > 1);
    if (s->count < need)
        wf_fail_at(op->ctx, WF_E_FEW_SAMPLES, f->path, "Leave it out, or join it with another file: no window reaches into a second one.",
                   "data: the file holds %lld tokens, and a window needs %lld", (long long)s->count, (long long)need);
    out->dtype = in->dtype;
    out->rank = 2;
    out->shape[0] = (s->count - need) / w->stride + 1;
    out->shape[1] = w->length;
    out->bytes = f->bytes;
    out->read = read_windows;
    if (r->vocab && !w->shift)
        check_early(op, out, w);
    return true;
}

const WfFormat wf_format_tokens = {"a file of tokens", false, false, WF_USE_TOKENS, 0, knows_tokens, open_tokens, tokens_field, NULL};
