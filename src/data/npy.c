/* NumPy's files. An .npy is a magic number, a version, and a Python dict literal that says type, order and shape; the data
 * follow. Of that literal only what numpy.save writes is understood: nothing is evaluated, and types that hold Python objects
 * (pickles) are refused. An .npz is a ZIP archive of them: stored arrays are read in place, deflated ones (savez_compressed)
 * are unpacked into memory when their header, their size and the memory that is left allow it. */
#include <string.h>

#include "data/private.h"

enum { HEADER_MOST = 10000, PREFIX = 12, RATIO = 200, SMALL = 64 << 20 };

/* ---- the header ---- */

typedef struct {
    WfOpening *op;
    const char *path, *name; /* name: of the array in an archive, or NULL */
    const char *at, *end;
} Header;

typedef struct {
    WfDtype dtype;       /* as it is read */
    int width;           /* bytes of an element in the file; sign: of unsigned ones that Weft reads as a wider signed type */
    int rank;
    int64_t shape[8];
    int64_t start, bytes; /* of the data */
} Array;

static void WF_NORETURN WF_PRINTF(2, 3) bad(const Header *h, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    char *text = wf_arena_vprintf(h->op->a, fmt, ap);
    va_end(ap);
    wf_data_damaged(h->op, h->path, ".npy file", "%s%s%s", h->name ? h->name : "", h->name ? ": " : "", text);
}

static void skip_blank(Header *h)
{
    while (h->at < h->end && strchr(" \t\n", *h->at) && *h->at)
        h->at++;
}

static bool take(Header *h, char c)
{
    skip_blank(h);
    if (h->at == h->end || *h->at != c)
        return false;
    h->at++;
    return true;
}

static void need(Header *h, char c)
{
    if (!take(h, c))
        bad(h, "its header is no dict of descr, fortran_order and shape");
}

/* A string literal without escapes. */
static char *take_string(Header *h)
{
    skip_blank(h);
    char quote = h->at < h->end ? *h->at : 0;
    const char *from = h->at + 1;
    if (quote != '\'' && quote != '"')
        return NULL;
    for (h->at++; h->at < h->end && *h->at != quote; h->at++)
        if (*h->at == '\\' || *h->at < 32)
            bad(h, "its header holds a string that NumPy does not write");
    if (h->at == h->end)
        bad(h, "its header ends within a string");
    return wf_arena_strndup(h->op->a, from, (size_t)(h->at++ - from));
}

static void read_shape(Header *h, Array *out)
{
    need(h, '(');
    for (out->rank = 0; !take(h, ')');) {
        int64_t n = 0;
        skip_blank(h);
        if (h->at == h->end || *h->at < '0' || *h->at > '9')
            bad(h, "its shape holds something other than sizes");
        for (; h->at < h->end && *h->at >= '0' && *h->at <= '9'; h->at++)
            if (!wf_mul_ok(n, 10, &n) || !wf_add_ok(n, *h->at - '0', &n))
                bad(h, "its shape holds a size that is too large");
        if (h->at < h->end && *h->at == 'L') /* Python 2 */
            h->at++;
        if (out->rank == 8)
            bad(h, "it has more than 8 dimensions");
        out->shape[out->rank++] = n;
        if (!take(h, ',') && (skip_blank(h), h->at == h->end || *h->at != ')'))
            bad(h, "its shape is no tuple");
    }
}

static void read_type(Header *h, const char *descr, Array *out)
{
    static const struct { const char *descr; WfDtype dtype; int width; } types[] = {
        {"f4", WF_F32, 4}, {"f8", WF_F64, 8}, {"f2", WF_F16, 2}, {"i8", WF_I64, 8}, {"i4", WF_I32, 4}, {"i2", WF_I16, 2},
        {"i1", WF_I8, 1},  {"u1", WF_U8, 1},  {"b1", WF_BOOL, 1}, {"u2", WF_I32, 2}, {"u4", WF_I64, 4}};
    char order = descr[0];
    for (size_t i = 0; i < WF_LEN(types); i++) {
        if (strcmp(descr + (order != 0), types[i].descr) || (order != '<' && order != '|' && order != '=' && order != '>'))
            continue;
        if (order == '>' && types[i].width > 1)
            wf_fail_at(h->op->ctx, WF_E_DATA_KIND, h->path, "In Python: a.astype(a.dtype.newbyteorder('<'))",
                       "data: the array is big-endian ('%s')", descr);
        out->dtype = types[i].dtype;
        out->width = types[i].width;
        return;
    }
    if (strchr(descr, 'O'))
        wf_fail_at(h->op->ctx, WF_E_DATA_KIND, h->path, "In Python: a.astype('float32')",
                   "data: the array holds Python objects ('%s'); Weft reads no pickles", descr);
    wf_fail_at(h->op->ctx, WF_E_DATA_KIND, h->path, "In Python: a.astype('float32')",
               "data: element type '%.40s' is none of float16/32/64, int8/16/32/64, uint8/16/32, bool", descr);
}

/* Reads the header from the first n bytes (all of it must be in them) of an array file of `size` bytes. */
static void read_header(Header *h, const uint8_t *p, size_t n, int64_t size, Array *out)
{
    if (n < PREFIX || memcmp(p, "\x93NUMPY", 6))
        bad(h, "it does not start with NumPy's magic number");
    bool wide = p[6] >= 2;
    size_t length = wide ? p[8] | p[9] << 8 | (size_t)p[10] << 16 | (size_t)p[11] << 24 : (size_t)(p[8] | p[9] << 8);
    size_t before = wide ? 12 : 10;
    if (p[6] < 1 || p[6] > 3 || p[7])
        bad(h, "its version is %d.%d; 1.0, 2.0 and 3.0 are known", p[6], p[7]);
    if (length > HEADER_MOST)
        bad(h, "its header has %zu bytes; NumPy itself allows %d", length, HEADER_MOST);
    if ((int64_t)(before + length) > size || before + length > n)
        bad(h, "its header ends beyond the file");
    h->at = (const char *)p + before;
    h->end = h->at + length;
    bool fortran = false;
    unsigned seen = 0;
    need(h, '{');
    while (!take(h, '}')) {
        char *key = take_string(h), *descr;
        need(h, ':');
        skip_blank(h);
        if (key && !strcmp(key, "descr") && !(seen & 1)) {
            if (!(descr = take_string(h)))
                wf_fail_at(h->op->ctx, WF_E_DATA_KIND, h->path, "Save each field as an array of its own.",
                           "data: the array is structured: its elements have fields");
            read_type(h, descr, out);
            seen |= 1;
        } else if (key && !strcmp(key, "fortran_order") && !(seen & 2)) {
            size_t left = (size_t)(h->end - h->at);
            fortran = left >= 4 && !memcmp(h->at, "True", 4);
            if (!fortran && !(left >= 5 && !memcmp(h->at, "False", 5)))
                bad(h, "fortran_order is neither True nor False");
            h->at += fortran ? 4 : 5;
            seen |= 2;
        } else if (key && !strcmp(key, "shape") && !(seen & 4)) {
            read_shape(h, out);
            seen |= 4;
        } else {
            bad(h, "its header has %s", key ? "a key that is unknown or there twice" : "a key that is no string");
        }
        if (!take(h, ',') && (skip_blank(h), h->at == h->end || *h->at != '}'))
            bad(h, "its header is no dict of descr, fortran_order and shape");
    }
    skip_blank(h);
    if (h->at != h->end || seen != 7)
        bad(h, "its header is no dict of descr, fortran_order and shape");
    out->start = (int64_t)(before + length);
    out->bytes = out->width;
    for (int i = 0; i < out->rank; i++)
        if (!wf_mul_ok(out->bytes, out->shape[i], &out->bytes))
            bad(h, "its shape is too large");
    if (out->bytes != size - out->start)
        bad(h, "its header describes %lld bytes of data, and %lld follow it", (long long)out->bytes, (long long)(size - out->start));
    if (!out->rank)
        wf_fail_at(h->op->ctx, WF_E_DATA_COUNT, h->path, NULL, "data: the array has no dimensions, so no samples");
    if (fortran && out->rank > 1 && out->bytes)
        wf_fail_at(h->op->ctx, WF_E_DATA_KIND, h->path, "In Python: numpy.ascontiguousarray(a)",
                   "data: the array is in Fortran order, where a sample's values do not lie together");
}

/* ---- fields ---- */

/* uint16 and uint32, which Weft has not: as the next wider signed type. */
static bool read_unsigned(const WfField *f, const WfVisit *v, int64_t first, int64_t count, uint8_t *out)
{
    size_t to = wf_dtype_size(f->dtype), width = to / 2, n = wf_field_sample_bytes(f) / to * (size_t)count;
    int64_t at = f->start + first * (int64_t)(wf_field_sample_bytes(f) / 2);
    uint8_t *raw = out + n * width; /* the second half: each element is read before what it becomes reaches it */
    if (f->bytes ? !wf_data_read(v, f->bytes, at, raw, n * width) : (memcpy(raw, f->memory + at, n * width), false))
        return false;
    for (size_t i = 0; i < n; i++) {
        uint64_t x = 0;
        memcpy(&x, raw + i * width, width);
        memcpy(out + i * to, &x, to);
    }
    return true;
}

static void fill_field(const Array *x, WfField *out)
{
    out->dtype = x->dtype;
    out->rank = x->rank;
    memcpy(out->shape, x->shape, sizeof out->shape);
    if (x->width != (int)wf_dtype_size(x->dtype))
        out->read = read_unsigned;
}

/* ---- .npy ---- */

static bool knows_npy(const WfDataFile *f, const uint8_t *head, size_t size)
{
    return head && (wf_data_ends_with(f->path, ".npy") || (size > 6 && !memcmp(head, "\x93NUMPY", 6)));
}

static void open_npy(WfOpening *op, WfDataFile *f)
{
    Header h = {.op = op, .path = f->path};
    uint8_t head[HEADER_MOST + PREFIX];
    int64_t size = wf_bytes_size(f->bytes);
    size_t n = size < (int64_t)sizeof head ? (size_t)size : sizeof head;
    int err = wf_bytes_read(f->bytes, 0, head, n);
    if (err)
        wf_fail(op->ctx, WF_E_IO, "%s: cannot read: %s", f->path, wf_bytes_error(err));
    f->own = WF_NEW(op->a, Array);
    read_header(&h, head, n, size, f->own);
}

static bool npy_field(WfOpening *op, WfDataFile *f, const WfDataInput *in, int place, int names_n, WfField *out)
{
    const Array *x = f->own;
    (void)in, (void)place;
    if (names_n > 1)
        wf_fail_at(op->ctx, WF_E_DATA_WHICH, f->path, NULL, "data: an .npy file feeds one input, not %d", names_n);
    fill_field(x, out);
    out->bytes = f->bytes;
    out->start = x->start;
    return true;
}

const WfFormat wf_format_npy = {"an .npy file", false, false, WF_USE_VALUES | WF_USE_WINDOW, 0, knows_npy, open_npy, npy_field, NULL};

/* ---- .npz ---- */

typedef struct {
    WfZipEntry entry;
    char *name;     /* without .npy */
    int64_t start;  /* of its content, in the archive; packed or not */
} Member;

typedef struct { Member *at; int n; } Archive;

static bool knows_npz(const WfDataFile *f, const uint8_t *head, size_t size)
{
    return head && (wf_data_ends_with(f->path, ".npz") || (size > 4 && !memcmp(head, "PK\x03\x04", 4)));
}

static void open_npz(WfOpening *op, WfDataFile *f)
{
    WfArena *scratch = wf_arena_scratch(op->ctx);
    const WfFile *all = wf_bytes_view(op->ctx, scratch, f->bytes);
    WfZip *z = wf_zip_open(op->ctx, scratch, all, WF_ZIP_DEFLATED | (all->size <= SMALL ? WF_ZIP_CHECK : 0));
    Archive *x = f->own = WF_NEW(op->a, Archive);
    x->at = WF_NEWN(op->a, Member, (size_t)z->n);
    for (int i = 0; i < z->n; i++) {
        size_t n = strlen(z->at[i].name);
        n -= wf_data_ends_with(z->at[i].name, ".npy") ? 4 : 0;
        x->at[i] = (Member){z->at[i], wf_arena_strndup(op->a, z->at[i].name, n), z->at[i].at - all->at};
        x->at[i].entry.name = x->at[i].name;
    }
    x->n = z->n;
    wf_arena_free(scratch);
}

/* Memory for an unpacked array, when the archive may claim it. */
static uint8_t *room_for(WfOpening *op, const WfDataFile *f, const Member *m)
{
    int64_t free = wf_memory_available(op->ctx, 1, 0, 0);
    if (m->entry.size > SMALL && m->entry.size / RATIO > m->entry.packed)
        wf_fail_at(op->ctx, WF_E_DATA_UNPACKED, f->path, "Save it with numpy.savez, which does not compress.",
                   "data: array %s unpacks to %zu times its size; above %d MiB Weft allows %d", m->name, m->entry.size / m->entry.packed,
                   SMALL >> 20, RATIO);
    if ((int64_t)m->entry.size < 0 || (int64_t)m->entry.size > free / 2)
        wf_fail_at(op->ctx, WF_E_MEMORY, f->path, "Save it with numpy.savez: what is not compressed stays on the disk.",
                   "data: array %s needs %.1f MB unpacked, and %.1f MB of memory are left", m->name, (double)m->entry.size / 1048576.0,
                   (double)free / 1048576.0);
    return wf_arena_alloc(op->a, m->entry.size);
}

static bool npz_field(WfOpening *op, WfDataFile *f, const WfDataInput *in, int place, int names_n, WfField *out)
{
    const Archive *x = f->own;
    const Member *m = place >= 0 && names_n == 1 && x->n == 1 ? x->at : NULL;
    for (int i = 0; i < x->n; i++)
        if (!strcmp(x->at[i].name, in->name))
            m = &x->at[i];
    if (!m && place < 0)
        return false;
    if (!m)
        wf_fail_at(op->ctx, WF_E_DATA_WHICH, f->path, NULL, "data: the file holds %d arrays, and none is called %s", x->n, in->name);
    Header h = {.op = op, .path = f->path, .name = m->name};
    Array array = {0};
    WfArena *scratch = wf_arena_scratch(op->ctx);
    WfZipEntry e = m->entry;
    e.at = wf_bytes_view(op->ctx, scratch, f->bytes)->at + m->start;
    size_t n = e.size < HEADER_MOST + PREFIX ? e.size : HEADER_MOST + PREFIX;
    uint8_t *head = wf_arena_alloc(scratch, n + 1);
    wf_zip_read(op->ctx, &e, f->path, head, n);
    read_header(&h, head, n, (int64_t)e.size, &array);
    fill_field(&array, out);
    out->bytes = f->bytes;
    out->start = m->start + array.start;
    if (e.packed) {
        uint8_t *all = room_for(op, f, m);
        wf_zip_read(op->ctx, &e, f->path, all, e.size);
        out->bytes = NULL;
        out->memory = all;
        out->start = array.start;
    }
    wf_arena_free(scratch);
    return true;
}

static void npz_names(WfOpening *op, WfDataFile *f, WfStr *out)
{
    const Archive *x = f->own;
    (void)op;
    for (int i = 0; i < x->n; i++)
        wf_str_printf(out, "%s%s", out->n ? ", " : "", x->at[i].name);
}

const WfFormat wf_format_npz = {"an .npz file", true, false, WF_USE_VALUES | WF_USE_WINDOW, WF_USE_VALUES | WF_USE_WINDOW, knows_npz, open_npz, npz_field, npz_names};
