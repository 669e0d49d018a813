/* ZIP archives. The reader trusts only the central directory, found from the end of the file: local headers
 * written by streaming writers carry no sizes. Every offset and length is added with overflow checks and
 * compared with the file before a byte is looked at; local headers must agree in name and method, and no two
 * entries may share a byte, so that no other reader can see another archive in the same file. Stored entries are
 * used in place, deflated ones are unpacked when the caller asks, to the size that the directory states. The writer emits stored entries whose payloads start at
 * multiples of 64 bytes (padding sits in an extra field, as PyTorch's does), with all times at the epoch of
 * the format: equal input gives equal bytes. */
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "base/inner.h"

enum {
    LOCAL = 0x04034b50, CENTRAL = 0x02014b50, END = 0x06054b50, END64 = 0x06064b50, LOCATOR64 = 0x07064b50, DESCRIPTOR = 0x08074b50,
    LOCAL_SIZE = 30, CENTRAL_SIZE = 46, END_SIZE = 22, END64_SIZE = 56, LOCATOR64_SIZE = 20,
    EXTRA64 = 1, EXTRA_PAD = 0x4246, EPOCH_DATE = 0x21, FLAG_UTF8 = 0x800, FLAG_STREAMED = 8, NAME_MAX_BYTES = 4096
};

typedef struct {
    WfZip face;
    WfMap *by_name;
} Archive;

typedef struct {
    WfCtx *ctx;
    WfArena *arena;
    const uint8_t *at;
    uint64_t size;
    const char *path;
    uint64_t dir, dir_size, count; /* central directory */
} Reader;

typedef struct { uint64_t from, to; const char *name; } Span;

static uint64_t get(const uint8_t *p, int bytes)
{
    uint64_t v = 0;
    for (int i = bytes - 1; i >= 0; i--)
        v = v << 8 | p[i];
    return v;
}

/* ---- reading ---- */

static void WF_NORETURN WF_PRINTF(3, 4) damaged(const Reader *r, uint64_t offset, const char *fmt, ...)
{
    char place[64];
    va_list ap;
    snprintf(place, sizeof(place), "offset %llu", (unsigned long long)offset);
    va_start(ap, fmt);
    char *what = wf_arena_vprintf(r->arena, fmt, ap);
    va_end(ap);
    wf_fail_at(r->ctx, WF_E_ZIP_DAMAGED, place, NULL, "%s: damaged ZIP archive: %s", r->path, what);
}

/* The n bytes at the offset, which must lie in [offset, limit). */
static const uint8_t *bytes_at(const Reader *r, uint64_t offset, uint64_t n, uint64_t limit, const char *what)
{
    if (offset > limit || n > limit - offset)
        damaged(r, offset, "%s reaches beyond its end", what);
    return r->at + offset;
}

/* Finds the end record, and the 64-bit one where there is one. */
static void find_directory(Reader *r)
{
    if (r->size < END_SIZE)
        damaged(r, 0, "the file has %llu bytes, too few for one", (unsigned long long)r->size);
    uint64_t end = r->size - END_SIZE, stop = end > 0xffff ? end - 0xffff : 0;
    for (;; end--) { /* behind it only a comment, whose length it states */
        if (get(r->at + end, 4) == END && get(r->at + end + 20, 2) == r->size - end - END_SIZE)
            break;
        if (end == stop)
            damaged(r, r->size, "no central directory at the end of the file (is it cut off?)");
    }
    const uint8_t *p = r->at + end;
    uint64_t limit = end;
    if (get(p + 4, 2) != 0 && get(p + 4, 2) != 0xffff)
        damaged(r, end, "it is one part of several");
    r->count = get(p + 10, 2);
    r->dir_size = get(p + 12, 4);
    r->dir = get(p + 16, 4);
    bool narrow = r->count != 0xffff && r->dir_size != 0xffffffff && r->dir != 0xffffffff;
    if (end >= LOCATOR64_SIZE && get(p - LOCATOR64_SIZE, 4) == LOCATOR64) {
        uint64_t at = get(p - LOCATOR64_SIZE + 8, 8);
        const uint8_t *q = bytes_at(r, at, END64_SIZE, end - LOCATOR64_SIZE, "the ZIP64 end record");
        if (get(q, 4) != END64)
            damaged(r, at, "no ZIP64 end record where one is announced");
        uint64_t count = get(q + 32, 8), dir_size = get(q + 40, 8), dir = get(q + 48, 8);
        if (narrow && (count != r->count || dir_size != r->dir_size || dir != r->dir))
            damaged(r, at, "its two end records differ");
        r->count = count;
        r->dir_size = dir_size;
        r->dir = dir;
        limit = at;
    } else if (!narrow) {
        damaged(r, end, "the ZIP64 end record is missing");
    }
    bytes_at(r, r->dir, r->dir_size, limit, "the central directory");
    if (r->count > r->dir_size / CENTRAL_SIZE)
        damaged(r, r->dir, "%llu entries are announced, but there is no room for them", (unsigned long long)r->count);
}

/* Names end up in paths sooner or later: no absolute ones, none that climb. */
static void check_name(const Reader *r, uint64_t offset, const char *name, size_t n)
{
    if (n == 0 || memchr(name, 0, n))
        damaged(r, offset, "an entry's name is empty or holds a zero byte");
    if (n > NAME_MAX_BYTES)
        damaged(r, offset, "an entry's name has %zu bytes", n);
    if (memchr(name, '\\', n))
        damaged(r, offset, "the entry name '%.*s' holds a backslash", (int)(n > 200 ? 200 : n), name);
    if (name[0] == '/' || (n >= 2 && name[1] == ':'))
        damaged(r, offset, "the entry name '%.*s' is absolute", (int)(n > 200 ? 200 : n), name);
    for (size_t i = 0; i < n;) {
        size_t len = 0;
        while (i + len < n && name[i + len] != '/')
            len++;
        if (len == 2 && name[i] == '.' && name[i + 1] == '.')
            damaged(r, offset, "the entry name '%.*s' holds '..'", (int)(n > 200 ? 200 : n), name);
        i += len + 1;
    }
}

/* Fills in what the narrow fields could not hold, from the ZIP64 extra field. */
static void read_extra64(const Reader *r, const uint8_t *p, uint64_t n, uint64_t *size, uint64_t *packed, uint64_t *at)
{
    uint64_t *wide[3] = { size, packed, at };
    bool needed = *size == 0xffffffff || *packed == 0xffffffff || *at == 0xffffffff;
    for (uint64_t i = 0; needed && i + 4 <= n;) {
        uint64_t id = get(p + i, 2), len = get(p + i + 2, 2), k = i + 4;
        if (len > n - k)
            break;
        for (int f = 0; id == EXTRA64 && f < 3; f++) {
            if (*wide[f] != 0xffffffff)
                continue;
            if (i + 4 + len - k < 8)
                damaged(r, (uint64_t)(p - r->at), "a ZIP64 extra field is too short");
            *wide[f] = get(p + k, 8);
            k += 8;
        }
        if (id == EXTRA64)
            return;
        i += 4 + len;
    }
    if (needed)
        damaged(r, (uint64_t)(p - r->at), "a ZIP64 extra field is missing");
}

/* Where the payload starts, from the local header. */
static uint64_t payload_start(const Reader *r, uint64_t at, const char *name, size_t name_len, uint64_t method)
{
    const uint8_t *p = bytes_at(r, at, LOCAL_SIZE, r->dir, "a local header");
    if (get(p, 4) != LOCAL)
        damaged(r, at, "no local header for entry '%s'", name);
    uint64_t n = get(p + 26, 2), extra = get(p + 28, 2);
    bytes_at(r, at, LOCAL_SIZE + n + extra, r->dir, "a local header");
    if (n != name_len || memcmp(p + LOCAL_SIZE, name, n) != 0 || get(p + 8, 2) != method)
        damaged(r, at, "the local header of entry '%s' does not fit the central directory", name);
    return at + LOCAL_SIZE + n + extra;
}

static void WF_NORETURN compressed(WfCtx *ctx, const char *path, const char *name)
{
    wf_fail_at(ctx, WF_E_ZIP_STORED, NULL, "save it uncompressed, as torch.export.save does, or repack it with `zip -0`",
               "%s: entry '%s' is compressed; only stored entries can be read in place", path, name);
}

void wf_zip_need_stored(WfCtx *ctx, const WfZip *z, const char *path)
{
    for (int i = 0; i < z->n; i++)
        if (z->at[i].packed)
            compressed(ctx, path, z->at[i].name);
}

/* Reads the central entry at *pos and moves *pos behind it. */
static void read_entry(const Reader *r, uint64_t *pos, WfZipEntry *out, Span *span, unsigned how)
{
    uint64_t dir_end = r->dir + r->dir_size, here = *pos;
    const uint8_t *p = bytes_at(r, here, CENTRAL_SIZE, dir_end, "the central directory");
    if (get(p, 4) != CENTRAL)
        damaged(r, here, "no entry of the central directory where one is expected");
    uint64_t flags = get(p + 8, 2), method = get(p + 10, 2), crc = get(p + 16, 4), packed = get(p + 20, 4);
    uint64_t size = get(p + 24, 4), n = get(p + 28, 2), extra = get(p + 30, 2), comment = get(p + 32, 2);
    uint64_t at = get(p + 42, 4);
    bytes_at(r, here, CENTRAL_SIZE + n + extra + comment, dir_end, "an entry of the central directory");
    *pos = here + CENTRAL_SIZE + n + extra + comment;
    check_name(r, here, (const char *)p + CENTRAL_SIZE, n);
    char *name = wf_arena_strndup(r->arena, (const char *)p + CENTRAL_SIZE, n);
    read_extra64(r, p + CENTRAL_SIZE + n, extra, &size, &packed, &at);
    if (flags & 1)
        wf_fail(r->ctx, WF_E_ZIP_STORED, "%s: entry '%s' is encrypted", r->path, name);
    if (method != 0 && !(method == Z_DEFLATED && how & WF_ZIP_DEFLATED && packed))
        compressed(r->ctx, r->path, name);
    if (method == 0 && packed != size)
        damaged(r, here, "the two sizes of the stored entry '%s' differ", name);
    uint64_t start = payload_start(r, at, name, n, method);
    out->name = name;
    out->at = bytes_at(r, start, packed, r->dir, "an entry's content");
    out->size = size;
    out->packed = method ? packed : 0;
    out->crc = (uint32_t)crc;
    *span = (Span){ at, start + packed, name };
    if (how & WF_ZIP_CHECK && !method && crc32_z(0, out->at, size) != crc)
        damaged(r, start, "the content of entry '%s' does not match its checksum", name);
}

static int by_start(const void *a, const void *b)
{
    const Span *x = a, *y = b;
    return x->from != y->from ? (x->from > y->from) - (x->from < y->from) : (x->to > y->to) - (x->to < y->to);
}

WfZip *wf_zip_open(WfCtx *ctx, WfArena *a, const WfFile *f, unsigned how)
{
    Reader r = { .ctx = ctx, .arena = a, .at = f->at, .size = f->size, .path = f->path };
    find_directory(&r);
    Archive *z = WF_NEW(a, Archive);
    z->by_name = wf_map_new(a);
    z->face.at = WF_NEWN(a, WfZipEntry, r.count);
    if (r.count > INT32_MAX)
        damaged(&r, r.dir, "it has too many entries");
    Span *spans = WF_NEWN(a, Span, r.count);
    uint64_t pos = r.dir;
    for (uint64_t i = 0; i < r.count; i++) {
        uint64_t here = pos;
        WfZipEntry entry;
        read_entry(&r, &pos, &entry, &spans[i], how);
        if (wf_map_get(z->by_name, entry.name, NULL))
            damaged(&r, here, "two entries are named '%s'", entry.name);
        wf_map_put(z->by_name, entry.name, z->face.n);
        z->face.at[z->face.n++] = entry;
    }
    if (pos != r.dir + r.dir_size)
        damaged(&r, pos, "the central directory is longer than its entries");
    qsort(spans, r.count, sizeof(*spans), by_start);
    for (uint64_t i = 1; i < r.count; i++)
        if (spans[i].from < spans[i - 1].to)
            damaged(&r, spans[i].from, "entries '%s' and '%s' overlap", spans[i - 1].name, spans[i].name);
    return &z->face;
}

const WfZipEntry *wf_zip_find(const WfZip *z, const char *name)
{
    int64_t i;
    return wf_map_get(((const Archive *)z)->by_name, name, &i) ? &z->at[i] : NULL;
}

static void end_inflate(void *p)
{
    inflateEnd(p);
}

static void WF_NORETURN bad_content(WfCtx *ctx, const WfZipEntry *e, const char *what, const char *how)
{
    wf_fail(ctx, WF_E_ZIP_DAMAGED, "%s: damaged ZIP archive: the content of entry '%s' %s", what, e->name, how);
}

static void unpack(WfCtx *ctx, const WfZipEntry *e, const char *what, uint8_t *out, size_t n)
{
    WfArena *scratch = wf_arena_scratch(ctx); /* zlib refers to the stream by address */
    z_stream *z = WF_NEW(scratch, z_stream);
    if (inflateInit2(z, -15) != Z_OK) /* no zlib header */
        wf_fail(ctx, WF_E_MEMORY, "out of memory");
    wf_arena_at_free(scratch, end_inflate, z);
    size_t in = e->packed, left = n;
    const uint8_t *from = e->at;
    int rc = Z_OK;
    uint8_t beyond;
    while (rc == Z_OK && (left || n == e->size)) { /* all of it: until the stream itself says that it ends */
        uInt room = left > 1u << 30 ? 1u << 30 : (uInt)left;
        if (!z->avail_in) {
            z->next_in = (Bytef *)(uintptr_t)from;
            z->avail_in = in > 1u << 30 ? 1u << 30 : (uInt)in;
            from += z->avail_in;
            in -= z->avail_in;
        }
        z->next_out = left ? out + (n - left) : &beyond;
        z->avail_out = left ? room : 1;
        rc = inflate(z, Z_NO_FLUSH);
        if (!left && !z->avail_out)
            bad_content(ctx, e, what, "is longer than the directory says");
        left -= left ? room - z->avail_out : 0;
        wf_check_cancel(ctx);
    }
    if (rc != Z_OK && rc != Z_STREAM_END)
        bad_content(ctx, e, what, rc == Z_BUF_ERROR ? "ends too early" : "is damaged");
    if (left)
        bad_content(ctx, e, what, "is shorter than the directory says");
    if (n == e->size && (in || z->avail_in))
        bad_content(ctx, e, what, "is followed by other bytes");
    wf_arena_free(scratch);
}

void wf_zip_read(WfCtx *ctx, const WfZipEntry *e, const char *what, void *out, size_t n)
{
    WF_ASSERT(ctx, n <= e->size);
    if (e->packed)
        unpack(ctx, e, what, out, n);
    else if (n)
        memcpy(out, e->at, n);
    if (n == e->size && crc32_z(0, out, n) != e->crc)
        bad_content(ctx, e, what, "does not match its checksum");
}

/* ---- writing ---- */

typedef struct { uint64_t at; const uint8_t *with; size_t size; } Edit; /* bytes of the file that change */
typedef WF_VEC(Edit) Edits;

static int by_place(const void *a, const void *b)
{
    const Edit *x = a, *y = b;
    return (x->at > y->at) - (x->at < y->at);
}

/* The checksum where it stands: in the central entry, and in the local header or, of a streaming writer, behind the content. */
static void edit_checksums(const Reader *r, Edits *edits, uint64_t here, uint64_t local, const WfZipEntry *old, const uint8_t *now)
{
    uint64_t end = (uint64_t)(old->at - r->at) + old->size;
    const uint8_t *before = r->at + here + 16;
    WF_PUSH(r->arena, edits, ((Edit){here + 16, now, 4}));
    if (!(get(r->at + here + 8, 2) & FLAG_STREAMED)) {
        WF_PUSH(r->arena, edits, ((Edit){local + 14, now, 4}));
        return;
    }
    if (get(bytes_at(r, end, 8, r->dir, "a data descriptor"), 4) == DESCRIPTOR)
        end += 4;
    if (memcmp(r->at + end, before, 4))
        damaged(r, end, "the data descriptor of entry '%s' does not fit the central directory", old->name);
    WF_PUSH(r->arena, edits, ((Edit){end, now, 4}));
}

void wf_zip_replace(WfCtx *ctx, const char *path, const WfFile *f, const WfZipEntry *entries, int n)
{
    WfArena *a = wf_arena_scratch(ctx);
    Reader r = { .ctx = ctx, .arena = a, .at = f->at, .size = f->size, .path = f->path };
    Edits edits = { 0 };
    WfMap *by_name = wf_map_new(a);
    int found = 0;
    for (int i = 0; i < n; i++)
        wf_map_put(by_name, entries[i].name, i);
    find_directory(&r);
    uint64_t pos = r.dir;
    for (uint64_t i = 0; i < r.count; i++) {
        uint64_t here = pos;
        WfZipEntry old;
        Span span;
        int64_t k;
        read_entry(&r, &pos, &old, &span, false);
        if (!wf_map_get(by_name, old.name, &k))
            continue;
        WF_ASSERT(ctx, entries[k].size == old.size);
        uint32_t crc = (uint32_t)crc32_z(0, entries[k].at, entries[k].size);
        uint8_t *now = wf_arena_alloc(a, 4);
        for (int b = 0; b < 4; b++)
            now[b] = (uint8_t)(crc >> 8 * b);
        WF_PUSH(a, &edits, ((Edit){(uint64_t)(old.at - r.at), entries[k].at, entries[k].size}));
        edit_checksums(&r, &edits, here, span.from, &old, now);
        found++;
    }
    WF_ASSERT(ctx, found == n);
    qsort(edits.at, (size_t)edits.n, sizeof *edits.at, by_place);
    WfOut *o = wf_out_open(ctx, path);
    uint64_t at = 0;
    for (int i = 0; i < edits.n; at = edits.at[i].at + edits.at[i].size, i++) {
        wf_out_write(o, r.at + at, (size_t)(edits.at[i].at - at));
        wf_out_write(o, edits.at[i].with, edits.at[i].size);
    }
    wf_out_write(o, r.at + at, (size_t)(r.size - at));
    wf_out_commit(o);
    wf_arena_free(a);
}

typedef struct { uint8_t at[64]; int n; } Record;

static void put(Record *r, uint64_t v, int bytes)
{
    for (int i = 0; i < bytes; i++)
        r->at[r->n++] = (uint8_t)(v >> 8 * i);
}

static uint64_t narrow32(uint64_t v)
{
    return v < 0xffffffff ? v : 0xffffffff;
}

/* Extra field of the local header: wide sizes if needed, then padding to a multiple of 64. */
static size_t local_extra(uint64_t offset, size_t name, uint64_t size, size_t *wide)
{
    *wide = size >= 0xffffffff ? 20 : 0;
    uint64_t pad = (64 - (offset + LOCAL_SIZE + name + *wide) % 64) % 64;
    if (pad && pad < 4)
        pad += 64;
    return *wide + pad;
}

static void write_local(WfOut *o, uint64_t offset, const WfZipEntry *e, uint32_t crc)
{
    size_t name = strlen(e->name), wide, extra = local_extra(offset, name, e->size, &wide);
    Record r = { .n = 0 };
    put(&r, LOCAL, 4);
    put(&r, wide ? 45 : 20, 2);
    put(&r, FLAG_UTF8, 2);
    put(&r, 0, 2); /* stored */
    put(&r, 0, 2);
    put(&r, EPOCH_DATE, 2);
    put(&r, crc, 4);
    put(&r, narrow32(e->size), 4);
    put(&r, narrow32(e->size), 4);
    put(&r, name, 2);
    put(&r, extra, 2);
    wf_out_write(o, r.at, (size_t)r.n);
    wf_out_write(o, e->name, name);
    r.n = 0;
    if (wide) {
        put(&r, EXTRA64, 2);
        put(&r, 16, 2);
        put(&r, e->size, 8);
        put(&r, e->size, 8);
    }
    size_t pad = extra - wide;
    if (pad) {
        put(&r, EXTRA_PAD, 2);
        put(&r, pad - 4, 2);
    }
    wf_out_write(o, r.at, (size_t)r.n);
    static const uint8_t zeros[64];
    if (pad > 4)
        wf_out_write(o, zeros, pad - 4);
}

/* Returns the record's size. */
static uint64_t write_central(WfOut *o, uint64_t offset, const WfZipEntry *e, uint32_t crc)
{
    size_t name = strlen(e->name);
    bool wide_size = e->size >= 0xffffffff, wide_at = offset >= 0xffffffff;
    int extra = wide_size || wide_at ? 4 + 16 * wide_size + 8 * wide_at : 0;
    Record r = { .n = 0 };
    put(&r, CENTRAL, 4);
    put(&r, extra ? 45 : 20, 2);
    put(&r, extra ? 45 : 20, 2);
    put(&r, FLAG_UTF8, 2);
    put(&r, 0, 2);
    put(&r, 0, 2);
    put(&r, EPOCH_DATE, 2);
    put(&r, crc, 4);
    put(&r, narrow32(e->size), 4);
    put(&r, narrow32(e->size), 4);
    put(&r, name, 2);
    put(&r, (uint64_t)extra, 2);
    put(&r, 0, 2); /* comment */
    put(&r, 0, 2); /* disk */
    put(&r, 0, 2);
    put(&r, 0, 4); /* attributes */
    put(&r, narrow32(offset), 4);
    wf_out_write(o, r.at, (size_t)r.n);
    wf_out_write(o, e->name, name);
    r.n = 0;
    if (extra) {
        put(&r, EXTRA64, 2);
        put(&r, (uint64_t)extra - 4, 2);
        if (wide_size) {
            put(&r, e->size, 8);
            put(&r, e->size, 8);
        }
        if (wide_at)
            put(&r, offset, 8);
    }
    wf_out_write(o, r.at, (size_t)r.n);
    return CENTRAL_SIZE + name + (uint64_t)extra;
}

static void write_end(WfOut *o, uint64_t count, uint64_t dir, uint64_t dir_size)
{
    Record r = { .n = 0 };
    if (count >= 0xffff || dir >= 0xffffffff || dir_size >= 0xffffffff) {
        put(&r, END64, 4);
        put(&r, END64_SIZE - 12, 8);
        put(&r, 45, 2);
        put(&r, 45, 2);
        put(&r, 0, 8); /* disks */
        put(&r, count, 8);
        put(&r, count, 8);
        put(&r, dir_size, 8);
        put(&r, dir, 8);
        wf_out_write(o, r.at, (size_t)r.n);
        r.n = 0;
        put(&r, LOCATOR64, 4);
        put(&r, 0, 4);
        put(&r, dir + dir_size, 8);
        put(&r, 1, 4);
        wf_out_write(o, r.at, (size_t)r.n);
        r.n = 0;
    }
    put(&r, END, 4);
    put(&r, 0, 4);
    put(&r, count < 0xffff ? count : 0xffff, 2);
    put(&r, count < 0xffff ? count : 0xffff, 2);
    put(&r, narrow32(dir_size), 4);
    put(&r, narrow32(dir), 4);
    put(&r, 0, 2);
    wf_out_write(o, r.at, (size_t)r.n);
}

void wf_zip_write(WfCtx *ctx, const char *path, const WfZipEntry *entries, int n)
{
    WfArena *a = wf_arena_scratch(ctx);
    uint64_t *offsets = WF_NEWN(a, uint64_t, (size_t)n), at = 0, dir_size = 0;
    uint32_t *crcs = WF_NEWN(a, uint32_t, (size_t)n);
    WfMap *names = wf_map_new(a);
    WfOut *o = wf_out_open(ctx, path);
    for (int i = 0; i < n; i++) {
        size_t name = strlen(entries[i].name), wide;
        if (name == 0 || name > 0xffff || wf_map_get(names, entries[i].name, NULL))
            wf_fail(ctx, WF_E_TENSOR_NAMES, "%s: the entry name '%.200s' is empty, too long or used twice", path,
                    entries[i].name);
        wf_map_put(names, entries[i].name, i);
        offsets[i] = at;
        crcs[i] = (uint32_t)crc32_z(0, entries[i].size ? entries[i].at : (const uint8_t *)"", entries[i].size);
        write_local(o, at, &entries[i], crcs[i]);
        at += LOCAL_SIZE + name + local_extra(at, name, entries[i].size, &wide);
        wf_out_write(o, entries[i].at, entries[i].size);
        at += entries[i].size;
    }
    for (int i = 0; i < n; i++)
        dir_size += write_central(o, offsets[i], &entries[i], crcs[i]);
    write_end(o, (uint64_t)n, at, dir_size);
    wf_out_commit(o);
    wf_arena_free(a);
}
