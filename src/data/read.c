/* Rows of a dataset: which file holds a sample, how it is read and converted, on any thread; where reading is work, on several. */
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>

#include "data/private.h"

enum { CHUNK = 1 << 18 };

static const WfPart *part_of(const WfFeed *f, int64_t sample)
{
    int lo = 0, hi = f->parts.n - 1;
    while (lo < hi) { /* the last part that begins at or before it; parts may be empty */
        int middle = (lo + hi + 1) / 2;
        if (f->parts.at[middle].first <= sample)
            lo = middle;
        else
            hi = middle - 1;
    }
    return &f->parts.at[lo];
}

uint64_t wf_dataset_fingerprint(const WfDataset *d)
{
    enum { LOOKS = 16 };
    uint64_t h = 0;
    WfDataFault fault = {0};
    WfArena *a = wf_arena_scratch(d->ctx);
    for (int i = 0; i < d->n; i++) {
        const WfFeed *f = d->columns[i].feed;
        const WfField *first = &f->parts.at[0].field;
        size_t size = wf_field_sample_bytes(first);
        uint8_t *sample = wf_arena_alloc(a, size + 1);
        h = wf_hash64(d->columns[i].shape, (size_t)d->columns[i].rank * sizeof(int64_t), h);
        h = wf_hash64(&first->dtype, sizeof first->dtype, h);
        for (int64_t k = 0; k < LOOKS; k++) {
            int64_t at = (int64_t)((double)(d->samples - 1) * (double)k / (LOOKS - 1));
            const WfPart *p = part_of(f, at);
            const WfVisit v = {.sample = at, .fault = &fault};
            if (!p->field.read(&p->field, &v, at - p->first, 1, sample))
                wf_data_raise(d->ctx, &fault);
            h = wf_hash64(sample, size, h);
        }
    }
    wf_arena_free(a);
    return h;
}

void wf_dataset_place(const WfDataset *d, int c, int64_t sample, WfStr *out)
{
    const WfPart *p = part_of(d->columns[c].feed, sample);
    wf_str_printf(out, "sample %lld of %s (counted from 0)", (long long)(sample - p->first), p->field.path);
}

/* Samples that lie side by side in one file, from index[0] on; at most `most`. */
static int64_t run_length(const WfPart *p, const int64_t *index, int64_t count, int64_t most)
{
    int64_t n = 1, end = p->first + p->field.shape[0];
    while (n < count && n < most && index[n] == index[0] + n && index[n] < end)
        n++;
    return n;
}

static bool read_some(const WfDataset *d, int column, int64_t epoch, const int64_t *index, int64_t count, void *out, WfDataFault *fault)
{
    const WfColumn *c = &d->columns[column];
    const WfFeed *f = c->feed;
    size_t raw = wf_field_sample_bytes(&f->parts.at[0].field), to = (size_t)c->sample_elements * wf_dtype_size(c->input->dtype);
    bool plain = f->convert == WF_CONVERT_NONE && !f->window;
    int64_t most = raw && raw < CHUNK && !plain ? (int64_t)(CHUNK / raw) : plain ? INT64_MAX : 1;
    size_t chunk = wf_mul_size(raw, plain ? 0 : (size_t)(most < count ? most : count));
    WfVisit v = {.seed = f->seed, .epoch = epoch, .random = f->random, .fault = fault};
    uint8_t *memory = plain ? NULL : wf_sys_alloc(chunk + raw + 1);
    if (!plain && !memory)
        return wf_data_fault(&v, WF_E_MEMORY, c->path, NULL, "out of memory for samples of %zu bytes", raw);
    bool ok = true;
    for (int64_t i = 0; i < count && ok;) {
        const WfPart *p = part_of(f, index[i]);
        int64_t n = run_length(p, index + i, count - i, most), first = index[i] - p->first;
        uint8_t *at = (uint8_t *)out + (size_t)i * to;
        v.sample = index[i];
        ok = p->field.read(&p->field, &v, first, n, plain ? at : memory);
        for (int64_t k = 0; k < n && ok && !plain; k++) {
            v.sample = index[i] + k;
            ok = wf_feed_convert(f, &v, memory + (size_t)k * raw, memory + chunk, at + (size_t)k * to);
        }
        i += n;
    }
    wf_sys_free(memory);
    return ok;
}

/* ---- by several threads: where reading is work, as decoding pictures ---- */

typedef struct {
    const WfDataset *d;
    int column;
    int64_t epoch, count;
    const int64_t *index;
    uint8_t *out;
    WfDataFault fault;
    bool ok;
} Piece;

static void *read_piece(void *p)
{
    Piece *x = p;
    x->ok = read_some(x->d, x->column, x->epoch, x->index, x->count, x->out, &x->fault);
    return NULL;
}

/* Samples are divided among threads, each with a stretch of the result: what a sample becomes depends on its number alone, so bits
 * and order do not change, and each thread holds one sample besides. Of several failures the first sample's counts. */
static bool read_pieces(const WfDataset *d, int column, int64_t epoch, const int64_t *index, int64_t count, uint8_t *out, WfDataFault *fault)
{
    Piece piece[WF_MOST_READERS];
    pthread_t thread[WF_MOST_READERS];
    bool runs[WF_MOST_READERS] = {false};
    int n = d->readers < count ? d->readers : (int)count;
    size_t each = (size_t)d->columns[column].sample_elements * wf_dtype_size(d->columns[column].input->dtype);
    sigset_t all, before; /* signals are the main thread's */
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    for (int k = 0; k < n; k++) {
        int64_t from = count * k / n, to = count * (k + 1) / n;
        piece[k] = (Piece){.d = d, .column = column, .epoch = epoch, .count = to - from, .index = index + from, .out = out + (size_t)from * each};
        runs[k] = k && !pthread_create(&thread[k], NULL, read_piece, &piece[k]);
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    for (int k = 0; k < n; k++) { /* what no thread was to be had for is done here */
        if (runs[k])
            pthread_join(thread[k], NULL);
        else
            read_piece(&piece[k]);
    }
    for (int k = 0; k < n; k++)
        if (!piece[k].ok) {
            *fault = piece[k].fault;
            return false;
        }
    return true;
}

bool wf_dataset_read(const WfDataset *d, int column, int64_t epoch, const int64_t *index, int64_t count, void *out, WfDataFault *fault)
{
    if (d->readers > 1 && count > 1 && d->columns[column].feed->parts.at[0].field.slow)
        return read_pieces(d, column, epoch, index, count, out, fault);
    return read_some(d, column, epoch, index, count, out, fault);
}

void wf_dataset_gather(const WfDataset *d, int column, const int64_t *index, int64_t count, void *out)
{
    WfDataFault fault = {0};
    if (!wf_dataset_read(d, column, 0, index, count, out, &fault))
        wf_data_raise(d->ctx, &fault);
}

void wf_dataset_check_finite(const WfDataset *d)
{
    for (int i = 0; i < d->n; i++) {
        const WfColumn *c = &d->columns[i];
        WfDtype t = c->input->dtype;
        if (!wf_dtype_is_float(t))
            continue;
        WfArena *a = wf_arena_scratch(d->ctx);
        size_t size = wf_dtype_size(t);
        uint8_t *sample = wf_arena_alloc(a, wf_mul_size((size_t)c->sample_elements, size));
        for (int64_t s = 0; s < d->samples; s++) {
            if ((s & 1023) == 0)
                wf_check_cancel(d->ctx);
            wf_dataset_gather(d, i, &s, 1, sample);
            for (int64_t e = 0; e < c->sample_elements; e++) {
                double v = wf_load_f64(t, sample + (size_t)e * size);
                if (!isfinite(v))
                    wf_fail_at(d->ctx, WF_E_DATA_NOT_FINITE, c->path, NULL, "data: input %s: sample %lld, element %lld is %s",
                               c->input->name, (long long)s, (long long)e, isnan(v) ? "nan" : "infinite");
            }
        }
        wf_arena_free(a);
    }
}
