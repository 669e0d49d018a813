/* Sorting along the last dimension, and running sums and products along any.
 *
 * Sort: every element becomes an unsigned key whose order is the wanted one (all NaN the largest and equal,
 * both zeros equal, complement for descending); a radix sort by bytes, least significant first, is stable and
 * needs one pass per byte that differs at all. Short rows are sorted by insertion. Values are then gathered
 * by index.
 *
 * Running sums of f32 are kept in double precision, as PyTorch does on CPUs. A tile is a range of rows, or of
 * columns when the dimension is not the last. */
#include <string.h>

#include "kernels/private.h"

enum { TILES = 16, SHORT = 32, COLUMNS = 64 };

/* ---- sort --------------------------------------------------------------------------------------- */

typedef struct {
    WfDtype dtype;
    bool descending;
    int64_t rows, n, tiles;
    int bytes;
} Sort;
typedef struct {
    uint64_t key;
    int64_t index;
} Item;

static bool sort_accepts(const WfLibDesc *d, char *why, size_t size)
{
    if (d->n != 3)
        return wf_refuse(why, size, "sort takes 3 operands");
    const WfOperand *x = &d->operand[0];
    if (x->rank < 1 || x->rank > 8 || !x->dtype)
        return wf_refuse(why, size, "x has %d dimensions, expected 1 to 8", x->rank);
    if (!wf_want(d, 1, "values", x->dtype, x->rank, why, size) ||
        !wf_want(d, 2, "indices", WF_I64, x->rank, why, size))
        return false;
    for (int i = 0; i < 3; i++) {
        if (!wf_dense(&d->operand[i]))
            return wf_refuse(why, size, "operand %d is not dense: copy it", i);
        if (memcmp(d->operand[i].shape, x->shape, (size_t)x->rank * sizeof(int64_t)))
            return wf_refuse(why, size, "values and indices must have the shape of x");
    }
    return true;
}

static void sort_plan(const WfLibDesc *d, Sort *s)
{
    const WfOperand *x = &d->operand[0];
    *s = (Sort){.dtype = x->dtype, .descending = d->param[0] != 0, .rows = 1, .n = x->shape[x->rank - 1]};
    for (int i = 0; i + 1 < x->rank; i++)
        s->rows *= x->shape[i];
    s->bytes = x->dtype == WF_F32 || x->dtype == WF_I32 ? 4 : wf_dtype_size(x->dtype) == 1 ? 1 : 8;
    s->tiles = s->rows < TILES ? s->rows : TILES;
}

static void sort_sizes(const WfLibDesc *d, size_t *workspace, size_t *scratch)
{
    Sort s;
    sort_plan(d, &s);
    *workspace = 0;
    *scratch = 2 * (size_t)s.n * sizeof(Item);
}

static uint64_t float_key(uint64_t bits, uint64_t sign)
{
    return bits & sign ? ~bits & (sign | (sign - 1)) : bits | sign;
}

static uint64_t key_of(WfDtype t, const char *p)
{
    if (t == WF_F32) {
        float v;
        uint32_t bits;
        memcpy(&v, p, 4);
        if (v != v)
            return UINT32_MAX;
        v = v == 0 ? 0 : v;
        memcpy(&bits, &v, 4);
        return float_key(bits, 1u << 31);
    }
    if (wf_dtype_is_float(t)) {
        double v = wf_load_f64(t, p);
        uint64_t bits;
        if (v != v)
            return UINT64_MAX;
        v = v == 0 ? 0 : v;
        memcpy(&bits, &v, 8);
        return float_key(bits, (uint64_t)1 << 63);
    }
    uint64_t v = (uint64_t)wf_load_i64(t, p);
    return t == WF_I32             ? (uint32_t)v ^ 1u << 31
           : t == WF_I8            ? (uint8_t)v ^ 0x80u
           : wf_dtype_size(t) == 1 ? v
                                   : v ^ (uint64_t)1 << 63;
}

/* Sorts a by key; returns where the result is: a or b. */
static Item *radix(Item *a, Item *b, int64_t n, int bytes)
{
    if (n <= SHORT) {
        for (int64_t i = 1; i < n; i++) {
            Item x = a[i];
            int64_t j = i;
            for (; j > 0 && a[j - 1].key > x.key; j--)
                a[j] = a[j - 1];
            a[j] = x;
        }
        return a;
    }
    for (int shift = 0; shift < 8 * bytes; shift += 8) {
        int64_t count[256] = {0}, sum = 0;
        for (int64_t i = 0; i < n; i++)
            count[a[i].key >> shift & 255]++;
        if (count[a[0].key >> shift & 255] == n)
            continue;
        for (int v = 0; v < 256; v++) {
            int64_t c = count[v];
            count[v] = sum;
            sum += c;
        }
        for (int64_t i = 0; i < n; i++)
            b[count[a[i].key >> shift & 255]++] = a[i];
        Item *t = a;
        a = b, b = t;
    }
    return a;
}

static void sort_run(const WfLib *lib, int phase, int64_t tile, void *const *operand, void *workspace,
                     void *scratch, int thread)
{
    const Sort *s = lib->self;
    (void)phase, (void)workspace, (void)thread;
    size_t size = wf_dtype_size(s->dtype);
    uint64_t all = s->bytes == 8 ? UINT64_MAX : ((uint64_t)1 << 8 * s->bytes) - 1;
    Item *a = scratch, *b = a + s->n;
    for (int64_t row = s->rows * tile / s->tiles; row < s->rows * (tile + 1) / s->tiles; row++) {
        const char *x = (const char *)operand[0] + (size_t)(row * s->n) * size;
        char *values = (char *)operand[1] + (size_t)(row * s->n) * size;
        int64_t *indices = (int64_t *)operand[2] + row * s->n;
        for (int64_t i = 0; i < s->n; i++) {
            uint64_t key = key_of(s->dtype, x + (size_t)i * size);
            a[i] = (Item){s->descending ? ~key & all : key, i};
        }
        const Item *sorted = radix(a, b, s->n, s->bytes);
        for (int64_t i = 0; i < s->n; i++) {
            indices[i] = sorted[i].index;
            memcpy(values + (size_t)i * size, x + (size_t)sorted[i].index * size, size);
        }
    }
}

static void sort_create(WfCtx *ctx, WfArena *arena, const WfLibDesc *d, int threads, WfLib *lib)
{
    (void)ctx, (void)threads;
    Sort *s = WF_NEW(arena, Sort);
    sort_plan(d, s);
    lib->self = s;
    lib->run = sort_run;
    lib->n_phases = 1;
    lib->tiles[0] = s->n ? s->tiles : 0;
}

/* ---- running sums and products ------------------------------------------------------------------ */

typedef struct {
    WfDtype dtype;
    bool product, reverse;
    int64_t outer, n, inner, row_tiles, column_tiles;
} Scan;

static bool scan_accepts(const WfLibDesc *d, char *why, size_t size)
{
    WfDtype t = d->operand[0].dtype;
    if (d->n != 2)
        return wf_refuse(why, size, "%s takes 2 operands", d->kind);
    if (t != WF_F32 && t != WF_F64 && t != WF_I64)
        return wf_refuse(why, size, "x is neither f32, f64 nor i64");
    if (!wf_want(d, 0, "x", t, 3, why, size) || !wf_want(d, 1, "y", t, 3, why, size))
        return false;
    if (!wf_dense(&d->operand[0]) || !wf_dense(&d->operand[1]))
        return wf_refuse(why, size, "x and y must be dense");
    if (memcmp(d->operand[0].shape, d->operand[1].shape, 3 * sizeof(int64_t)))
        return wf_refuse(why, size, "x and y differ in shape");
    return true;
}

static void scan_sizes(const WfLibDesc *d, size_t *workspace, size_t *scratch)
{
    (void)d;
    *workspace = *scratch = 0;
}

/* One row of columns: acc runs over i; A is the type of the sum, U of its arithmetic (unsigned for integers:
 * wraps). */
#define SCAN(T, A, name)                                                                        \
    static void scan_##name(const Scan *s, int64_t o, int64_t c0, int64_t c1, const T *x, T *y) \
    {                                                                                           \
        for (int64_t c = c0; c < c1; c += COLUMNS) {                                            \
            int64_t w = c1 - c < COLUMNS ? c1 - c : COLUMNS;                                    \
            A acc[COLUMNS];                                                                     \
            for (int64_t j = 0; j < w; j++)                                                     \
                acc[j] = s->product;                                                            \
            for (int64_t i = 0; i < s->n; i++) {                                                \
                int64_t at = (o * s->n + (s->reverse ? s->n - 1 - i : i)) * s->inner + c;       \
                for (int64_t j = 0; j < w; j++) {                                               \
                    acc[j] = s->product ? acc[j] * (A)x[at + j] : acc[j] + (A)x[at + j];        \
                    y[at + j] = (T)acc[j];                                                      \
                }                                                                               \
            }                                                                                   \
        }                                                                                       \
    }
SCAN(float, double, f32)
SCAN(double, double, f64)
SCAN(int64_t, uint64_t, i64)

static void scan_run(const WfLib *lib, int phase, int64_t tile, void *const *operand, void *workspace,
                     void *scratch, int thread)
{
    const Scan *s = lib->self;
    (void)phase, (void)workspace, (void)scratch, (void)thread;
    int64_t ct = tile % s->column_tiles, rt = tile / s->column_tiles;
    int64_t c0 = s->inner * ct / s->column_tiles, c1 = s->inner * (ct + 1) / s->column_tiles;
    for (int64_t o = s->outer * rt / s->row_tiles; o < s->outer * (rt + 1) / s->row_tiles; o++) {
        if (s->dtype == WF_F32)
            scan_f32(s, o, c0, c1, operand[0], operand[1]);
        else if (s->dtype == WF_F64)
            scan_f64(s, o, c0, c1, operand[0], operand[1]);
        else
            scan_i64(s, o, c0, c1, operand[0], operand[1]);
    }
}

static void scan_create(WfCtx *ctx, WfArena *arena, const WfLibDesc *d, int threads, WfLib *lib)
{
    (void)ctx, (void)threads;
    const int64_t *shape = d->operand[0].shape;
    Scan *s = WF_NEW(arena, Scan);
    *s = (Scan){.dtype = d->operand[0].dtype,
                .product = !strcmp(d->kind, "cumprod"),
                .reverse = d->param[0] == 1,
                .outer = shape[0],
                .n = shape[1],
                .inner = shape[2]};
    s->row_tiles = s->outer < 1 ? 1 : s->outer < TILES ? s->outer : TILES;
    s->column_tiles = s->row_tiles < 8 && s->inner >= 8 * COLUMNS ? 8 : 1;
    if (s->outer * s->n * s->inner < 1 << 13)
        s->row_tiles = s->column_tiles = 1;
    lib->self = s;
    lib->run = scan_run;
    lib->n_phases = 1;
    lib->tiles[0] = s->row_tiles * s->column_tiles;
}

const WfKind wf_kind_sort = {"sort", sort_accepts, sort_sizes, sort_create};
const WfKind wf_kind_cumsum = {"cumsum", scan_accepts, scan_sizes, scan_create};
const WfKind wf_kind_cumprod = {"cumprod", scan_accepts, scan_sizes, scan_create};
