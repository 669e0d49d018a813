/* IDX, the format of MNIST: two zero bytes, type, rank, big-endian dimensions, big-endian elements; plain or
 * inside gzip, told apart by content. The size follows from the header and is checked before memory is taken:
 * a plain file must have exactly that size, and gzip never expands by more than 1032 to 1, so a small file
 * cannot ask for much. */
#include <string.h>
#include <zlib.h>

#include "base/inner.h"

typedef struct {
    WfCtx *ctx;
    const char *what;
    const uint8_t *at; /* plain input */
    size_t left;
    z_stream *gz;      /* NULL: plain */
    bool ended;
} Source;

static void WF_NORETURN WF_PRINTF(2, 3) damaged(const Source *s, const char *fmt, ...)
{
    char text[256];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    wf_fail(s->ctx, WF_E_IDX, "%s: not a valid IDX file: %s", s->what, text);
}

static voidpf gz_alloc(voidpf user, uInt n, uInt size)
{
    (void)user;
    return wf_sys_alloc(wf_mul_size(n, size));
}

static void gz_free(voidpf user, voidpf p)
{
    (void)user;
    wf_sys_free(p);
}

static void end_gz(void *p)
{
    inflateEnd(p);
}

/* Gives zlib the next piece of input: its counters have 32 bits. */
static void refill(Source *s)
{
    if (s->gz->avail_in == 0 && s->left) {
        uInt n = s->left > 1u << 30 ? 1u << 30 : (uInt)s->left;
        s->gz->next_in = (Bytef *)(uintptr_t)s->at;
        s->gz->avail_in = n;
        s->at += n;
        s->left -= n;
    }
}

/* Fills p with n bytes of content. */
static void take(Source *s, void *p, size_t n)
{
    if (!s->gz) {
        if (n > s->left)
            damaged(s, "it ends too early");
        if (n)
            memcpy(p, s->at, n);
        s->at += n;
        s->left -= n;
        return;
    }
    for (uint8_t *to = p; n;) {
        uInt want = n > 1u << 30 ? 1u << 30 : (uInt)n;
        refill(s);
        s->gz->next_out = to;
        s->gz->avail_out = want;
        int rc = s->ended ? Z_BUF_ERROR : inflate(s->gz, Z_NO_FLUSH);
        size_t got = want - s->gz->avail_out;
        s->ended |= rc == Z_STREAM_END;
        if (rc == Z_MEM_ERROR)
            wf_fail(s->ctx, WF_E_MEMORY, "out of memory");
        if ((rc != Z_OK && rc != Z_STREAM_END) || (s->ended && got < n))
            damaged(s, rc == Z_DATA_ERROR ? "its gzip data is damaged" : "it ends too early");
        to += got;
        n -= got;
    }
}

/* Nothing may follow; the checksum of gzip is verified on the way. */
static void check_end(Source *s)
{
    if (!s->gz) {
        if (s->left)
            damaged(s, "%zu bytes follow the data that its header describes", s->left);
        return;
    }
    uint8_t more;
    while (!s->ended) {
        refill(s);
        s->gz->next_out = &more;
        s->gz->avail_out = 1;
        int rc = inflate(s->gz, Z_NO_FLUSH);
        if (s->gz->avail_out == 0)
            damaged(s, "bytes follow the data that its header describes");
        if (rc != Z_OK && rc != Z_STREAM_END)
            damaged(s, rc == Z_DATA_ERROR ? "its gzip checksum is wrong" : "its gzip data ends too early");
        s->ended = rc == Z_STREAM_END;
    }
    if (s->gz->avail_in || s->left)
        damaged(s, "bytes follow the gzip data");
}

static WfDtype type_of(const Source *s, int code)
{
    switch (code) {
    case 0x08: return WF_U8;
    case 0x09: return WF_I8;
    case 0x0b: return WF_I16;
    case 0x0c: return WF_I32;
    case 0x0d: return WF_F32;
    case 0x0e: return WF_F64;
    default: damaged(s, "element type 0x%02x is unknown", code);
    }
}

/* Big-endian elements to the machine's (little-endian) order, in place. */
static void swap_bytes(uint8_t *p, size_t bytes, size_t width)
{
    for (size_t i = 0; width > 1 && i + width <= bytes; i += width) {
        for (size_t a = 0, b = width - 1; a < b; a++, b--) {
            uint8_t t = p[i + a];
            p[i + a] = p[i + b];
            p[i + b] = t;
        }
    }
}

/* Reads the header and the data. `most` bounds the content by what the input can hold. */
static WfTensor *read_tensor(Source *s, WfArena *a, size_t most)
{
    uint8_t head[4], dim[4];
    take(s, head, 4);
    if (head[0] || head[1])
        damaged(s, "it does not start with two zero bytes");
    WfTensor *t = WF_NEW(a, WfTensor);
    t->name = "";
    t->dtype = type_of(s, head[2]);
    t->rank = head[3];
    if (t->rank < 1 || t->rank > (int)WF_LEN(t->shape))
        damaged(s, "%d dimensions; 1 to 8 are possible", t->rank);
    int64_t bytes = (int64_t)wf_dtype_size(t->dtype);
    for (int i = 0; i < t->rank; i++) {
        take(s, dim, 4);
        t->shape[i] = (int64_t)dim[0] << 24 | dim[1] << 16 | dim[2] << 8 | dim[3];
        if (!wf_mul_ok(bytes, t->shape[i], &bytes))
            damaged(s, "its dimensions are too large");
    }
    if ((uint64_t)bytes > most || (!s->gz && (size_t)bytes > s->left))
        damaged(s, "its header describes %lld bytes of data, more than the file can hold", (long long)bytes);
    t->bytes = (size_t)bytes;
    void *data = wf_arena_alloc(a, t->bytes);
    take(s, data, t->bytes);
    check_end(s);
    swap_bytes(data, t->bytes, wf_dtype_size(t->dtype));
    t->data = data;
    return t;
}

WfTensor *wf_idx_parse(WfCtx *ctx, WfArena *a, const uint8_t *p, size_t n, const char *what)
{
    Source s = { .ctx = ctx, .what = what, .at = p, .left = n };
    if (n < 2 || p[0] != 0x1f || p[1] != 0x8b)
        return read_tensor(&s, a, n);
    WfArena *scratch = wf_arena_scratch(ctx); /* zlib refers to the stream by address */
    s.gz = WF_NEW(scratch, z_stream);
    s.gz->zalloc = gz_alloc;
    s.gz->zfree = gz_free;
    int rc = inflateInit2(s.gz, 15 + 16); /* 16: gzip only */
    if (rc != Z_OK)
        wf_fail(ctx, rc == Z_MEM_ERROR ? WF_E_MEMORY : WF_E_LIBRARY, "zlib cannot start: %s", zError(rc));
    wf_arena_at_free(scratch, end_gz, s.gz);
    WfTensor *t = read_tensor(&s, a, wf_mul_size(n, 1032));
    wf_arena_free(scratch);
    return t;
}

WfTensor *wf_idx_open(WfCtx *ctx, WfArena *a, const char *path)
{
    WfArena *scratch = wf_arena_scratch(ctx); /* the data is copied: elements change their byte order */
    WfFile *f = wf_file_map(ctx, scratch, path);
    WfTensor *t = wf_idx_parse(ctx, a, f->at, f->size, path);
    wf_arena_free(scratch);
    return t;
}
