/* Offsets for buffers with lifetimes. Buffers are placed one after another, each into the smallest gap that
 * fits among those already placed whose lifetimes meet its own, else behind them. The outcome depends on the
 * order, so several orders are tried and the smallest slab wins; a slab as small as the largest sum of sizes
 * alive in one step cannot be beaten and ends the search. All ties are broken by index: the same input gives
 * the same offsets. */
#include <stdlib.h>

#include "base/inner.h"

typedef struct {
    int64_t size, key, offset;
    int first, last, index;
} Piece;

/* Falling key, then falling size, then the order given. */
static int by_key(const void *a, const void *b)
{
    const Piece *x = a, *y = b;
    if (x->key != y->key)
        return (x->key < y->key) - (x->key > y->key);
    if (x->size != y->size)
        return (x->size < y->size) - (x->size > y->size);
    return x->index - y->index;
}

enum { ORDERS = 5 };

static int64_t order_key(int order, const Piece *p)
{
    int64_t span = (int64_t)p->last - p->first + 1, area;
    switch (order) {
    case 0: return p->size;
    case 1: return wf_mul_ok(p->size, span, &area) ? area : INT64_MAX;
    case 2: return span;
    case 3: return -(int64_t)p->first;
    default: return p->last;
    }
}

/* Places all pieces in their order; returns the slab size, or gives up beyond `best`. `placed` holds room for
 * n. */
static int64_t place(Piece *p, int n, Piece **placed, int64_t best)
{
    int64_t slab = 0;
    int count = 0;
    for (int i = 0; i < n; i++) {
        int64_t gap_best = INT64_MAX, at = 0, end = 0;
        for (int k = 0; k < count; k++) { /* by rising offset */
            const Piece *q = placed[k];
            if (q->first > p[i].last || q->last < p[i].first)
                continue;
            int64_t gap = q->offset - end;
            if (gap >= p[i].size && gap < gap_best) {
                gap_best = gap;
                at = end;
                if (gap == p[i].size)
                    break;
            }
            if (q->offset + q->size > end)
                end = q->offset + q->size;
        }
        p[i].offset = gap_best == INT64_MAX ? end : at;
        if (p[i].offset + p[i].size > slab)
            slab = p[i].offset + p[i].size;
        if (slab >= best)
            return slab;
        int k = count++;
        for (; k > 0 && placed[k - 1]->offset > p[i].offset; k--)
            placed[k] = placed[k - 1];
        placed[k] = &p[i];
    }
    return slab;
}

typedef struct { int at; int64_t change; } Event;

static int by_step(const void *a, const void *b)
{
    const Event *x = a, *y = b;
    return x->at != y->at ? (x->at > y->at) - (x->at < y->at) : (x->change > y->change) - (x->change < y->change);
}

/* The largest sum of sizes alive at once: no slab is smaller. */
static int64_t peak(WfArena *a, const Piece *p, int n)
{
    Event *ev = WF_NEWN(a, Event, 2 * (size_t)n);
    for (int i = 0; i < n; i++) {
        ev[2 * i] = (Event){ p[i].first, p[i].size };
        ev[2 * i + 1] = (Event){ p[i].last == INT32_MAX ? INT32_MAX : p[i].last + 1, -p[i].size };
    }
    qsort(ev, 2 * (size_t)n, sizeof(*ev), by_step);
    int64_t now = 0, most = 0;
    for (int i = 0; i < 2 * n; i++) {
        now += ev[i].change;
        most = now > most ? now : most;
    }
    return most;
}

int64_t wf_pack(WfArena *a, WfPackItem *items, int n, int64_t align)
{
    WfCtx *ctx = wf_arena_ctx(a);
    WfArena *scratch = wf_arena_scratch(ctx);
    Piece *p = WF_NEWN(scratch, Piece, (size_t)n), **placed = WF_NEWN(scratch, Piece *, (size_t)n);
    int used = 0;
    int64_t total = 0;
    WF_ASSERT(ctx, align > 0);
    for (int i = 0; i < n; i++) {
        int64_t size;
        WF_ASSERT(ctx, items[i].size >= 0 && items[i].first <= items[i].last);
        items[i].offset = 0;
        if (!wf_add_ok(items[i].size, align - 1, &size) || !wf_add_ok(total, size -= size % align, &total))
            wf_fail(ctx, WF_E_MEMORY, "the buffers of a step are too large for this machine's memory");
        if (size)
            p[used++] = (Piece){ size, 0, 0, items[i].first, items[i].last, i };
    }
    int64_t least = peak(scratch, p, used), best = INT64_MAX;
    for (int order = 0; order < ORDERS && best > least; order++) {
        for (int i = 0; i < used; i++)
            p[i].key = order_key(order, &p[i]);
        qsort(p, (size_t)used, sizeof(*p), by_key);
        int64_t slab = place(p, used, placed, best);
        if (slab >= best)
            continue;
        best = slab;
        for (int i = 0; i < used; i++)
            items[p[i].index].offset = p[i].offset;
    }
    wf_arena_free(scratch);
    return used ? best : 0;
}
