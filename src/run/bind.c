/* Binding: an executable's program under given symbol values becomes concrete calls. Sizes are evaluated, buffers are
 * packed into the slab, library primitives are created. Done once per set of values; a few sets are kept. */
#include "run/private.h"

#include <dlfcn.h>

#define ALIGN 64
#define SERIAL_ELEMENTS 16384 /* a barrier costs about what one core does with so many elements */

static int64_t ev(const WfSession *s, const WfBinding *b, WfDim d) { return wf_exe_eval(s->x, d, b->symbols); }

static void fill_desc(const WfSession *s, const WfBinding *b, const WfExeProgram *p, const WfExeCall *c, WfLibDesc *d)
{
    memset(d, 0, sizeof *d);
    d->kind = c->symbol;
    d->n = c->n;
    memcpy(d->param, c->param, sizeof c->param);
    memcpy(d->fparam, c->fparam, sizeof c->fparam);
    d->param[WF_LIB_ISA] = s->isa;
    for (int k = 0; k < c->n; k++) {
        const WfExeOperand *o = &c->operand[k];
        if (o->buf == -1)
            continue;
        d->operand[k].dtype = o->buf == -2 ? WF_I64 : p->bufs[o->buf].dtype;
        d->operand[k].rank = o->rank;
        for (int i = 0; i < o->rank; i++) {
            d->operand[k].shape[i] = ev(s, b, o->shape[i]);
            d->operand[k].stride[i] = ev(s, b, o->stride[i]);
        }
    }
}

/* Places buffers; buffers that take over another's memory are one item with it. */
static int64_t place(WfBinding *b, const WfExeProgram *p, WfPlace where, int device, const int64_t *bytes)
{
    int *item_of = WF_NEWN(b->arena, int, (size_t)p->n_bufs + 1);
    WfPackItem *items = WF_NEWN(b->arena, WfPackItem, (size_t)p->n_bufs + 1);
    int n = 0;
    for (int i = 0; i < p->n_bufs; i++) {
        const WfExeBuf *f = &p->bufs[i];
        item_of[i] = -1;
        if (f->place != where || f->device != device || f->first < 0 || (where == WF_PLACE_ARENA && f->inside >= 0))
            continue;
        if (f->same_as >= 0 && item_of[f->same_as] >= 0) {
            item_of[i] = item_of[f->same_as];
            WfPackItem *it = &items[item_of[i]];
            it->last = f->last > it->last ? f->last : it->last;
            continue;
        }
        item_of[i] = n;
        items[n++] = (WfPackItem){.size = bytes[i], .first = f->first, .last = f->last};
    }
    int64_t size = wf_pack(b->arena, items, n, ALIGN);
    for (int i = 0; i < p->n_bufs; i++)
        if (item_of[i] >= 0)
            b->offset[i] = items[item_of[i]].offset;
    return size;
}

uint8_t *wf_buffer_memory(const WfSession *s, const WfBinding *b, const WfExeProgram *p, int buf)
{
    const WfExeBuf *f = &p->bufs[buf];
    if (f->place == WF_PLACE_SLAB)
        return s->slab[f->device].at + b->offset[buf];
    return s->shared[f->device].at + b->offset[f->inside >= 0 ? f->inside : buf] + (f->inside >= 0 ? ev(s, b, f->at) : 0);
}

void wf_check_device(const WfSession *s, const WfExeCall *k, const char *what, const void *p)
{
    int want = k->device ? s->x->core : -1, is = wf_core_at(p);
    if (is != want)
        wf_fail_at(s->ctx, WF_E_DEVICE, k->where, "Give it memory of that device, or plan the step for the other (--device).",
                   "%s is placed on %s, but its operand%s%s lies on %s", k->name ? k->name : "a call",
                   wf_core_name(s->ctx->arena, want), what ? " " : "", what ? what : "", wf_core_name(s->ctx->arena, is));
}

/* The arena is the world's, which never gives memory back: a larger one replaces it. */
static void ensure_arena(WfSession *s, int device, int64_t size)
{
    WfStretch *m = &s->shared[device];
    if (size <= m->size)
        return;
    wf_release_arena(s, device);
    m->at = s->comm ? wf_comm_arena(s->comm, (size_t)size) : wf_sys_map((size_t)size, size >= (4 << 20));
    if (!m->at)
        wf_fail(s->ctx, WF_E_MEMORY, "%.1f MB of memory for gradients, which the system refuses", (double)size / 1e6);
    m->size = size;
    wf_pool_take(s->pool[device], m->at, (size_t)size);
    while (s->n_bindings)
        wf_arena_free(s->bindings[0]->arena);
}

void wf_release_arena(WfSession *s, int device)
{
    WfStretch *m = &s->shared[device];
    if (!m->at)
        return;
    wf_pool_give(s->pool[device], m->at);
    if (!s->comm)
        wf_sys_unmap(m->at, (size_t)m->size);
    *m = (WfStretch){0};
}

static void release_slab(WfSession *s, int device)
{
    WfStretch *m = &s->slab[device];
    if (m->at)
        wf_pool_unmap(s->pool[device], m->at, (size_t)m->size);
    *m = (WfStretch){0};
}

static void ensure_slab(WfSession *s, int device, int64_t size)
{
    WfStretch *m = &s->slab[device];
    if (size <= m->size)
        return;
    release_slab(s, device);
    m->at = wf_pool_map(s->pool[device], (size_t)size, size >= (4 << 20));
    if (!m->at)
        wf_fail_at(s->ctx, WF_E_STEP_MEMORY, NULL, "Use a smaller batch.",
                   "the planned step needs %.1f MB of memory, which the system refuses", (double)size / 1e6);
    m->size = size;
    while (s->n_bindings) /* pointers into the old slab are void */
        wf_arena_free(s->bindings[0]->arena);
}

/* The groups of ranks, made by the first binding, when the ranks have agreed on them: every rank makes all, in this order. */
static void make_groups(WfSession *s)
{
    const WfExe *x = s->x;
    s->groups = WF_NEWN(s->arena, WfGroup *, (size_t)x->n_rank_groups + 1);
    for (int i = 0; i < x->n_rank_groups; i++)
        for (int k = 0; k < x->rank_groups[i].n_sets; k++) {
            const WfRankGroup *r = &x->rank_groups[i];
            WfGroup *g = wf_comm_group(s->comm, wf_arena_printf(s->arena, "%s/%d", r->name, k), r->ranks + k * r->size, r->size);
            s->groups[i] = g ? g : s->groups[i];
        }
}

/* The group of that name that this rank is in (NULL: nobody joined a world yet), and how many ranks it has. */
static WfGroup *find_group(const WfSession *s, const char *name, int64_t *size)
{
    *size = s->x->ranks;
    if (!strcmp(name, "dp"))
        return s->comm ? wf_comm_world(s->comm) : NULL;
    for (int i = 0; i < s->x->n_rank_groups; i++) {
        *size = s->x->rank_groups[i].size;
        if (!strcmp(s->x->rank_groups[i].name, name))
            return s->comm ? s->groups[i] : NULL;
    }
    wf_fail(s->ctx, WF_E_STEP_DAMAGED, "the compiled step does not say what ranks group \"%s\" is made of", name);
}

/* What a start sends: its group, and the element count of a block. */
static void bind_start(WfSession *s, WfBinding *b, const WfExeProgram *p, const WfExeCall *k, WfBoundCall *r)
{
    int64_t kind = k->param[WF_TRAVEL_KIND], size[2] = {0, 0}, n, root = k->param[WF_TRAVEL_ROOT];
    r->group = find_group(s, k->symbol, &n);
    b->speaks |= n > 1;
    for (int i = 0; i < k->n; i++)
        size[i] = ev(s, b, p->bufs[k->operand[i].buf].bytes) / (int64_t)wf_dtype_size(p->bufs[k->operand[i].buf].dtype);
    bool scatters = kind == WF_REDUCE_SCATTER && !k->param[WF_TRAVEL_TO_ROOT];
    int64_t whole = kind == WF_ALL_GATHER ? size[1] : size[0], block = kind == WF_ALL_GATHER ? size[0] : size[1];
    bool fits = k->n == 1                  ? true
                : kind == WF_ALL_TO_ALL    ? whole == block && whole % n == 0
                : k->param[WF_TRAVEL_TO_ROOT] ? whole == block
                                           : whole == block * n;
    if (!fits || root >= n)
        wf_fail_at(s->ctx, WF_E_UNEVEN, k->where, scatters ? "Choose a batch that the group's size divides." : NULL,
                   "%s: %lld elements cannot be divided among the %lld ranks of group %s", k->name, (long long)whole,
                   (long long)n, k->symbol);
    r->tiles = kind == WF_ALL_TO_ALL ? whole / n : k->n == 1 ? whole : block;
    if (k->param[WF_TRAVEL_TO_ROOT]) {
        r->counts = WF_NEWN(b->arena, int64_t, (size_t)n);
        r->counts[root] = whole;
    }
}

static void bind_call(WfSession *s, WfBinding *b, const WfExeProgram *p, int c, const WfLibDesc *desc)
{
    const WfExeCall *k = &p->calls[c];
    WfBoundCall *r = &b->calls[c];
    r->kind = k->kind;
    r->pointer = WF_NEWN(b->arena, void *, (size_t)k->n + 1);
    for (int i = 0; i < k->n; i++) {
        const WfExeOperand *o = &k->operand[i];
        if (o->buf < 0)
            continue;
        const WfExeBuf *f = &p->bufs[o->buf];
        int64_t at = ev(s, b, o->offset) * (int64_t)wf_dtype_size(f->dtype);
        if (f->place == WF_PLACE_SLAB || f->place == WF_PLACE_ARENA) {
            r->pointer[i] = wf_buffer_memory(s, b, p, o->buf) + at;
            wf_check_device(s, k, f->name, r->pointer[i]);
            continue;
        }
        bool input = f->place == WF_PLACE_INPUT, frame = f->place == WF_PLACE_FRAME;
        b->patch[b->n_patch].slot = &r->pointer[i];
        b->patch[b->n_patch].call = c;
        b->patch[b->n_patch].name = input ? s->x->inputs[f->input].name : f->name;
        b->patch[b->n_patch].base = input ? &s->input[f->input] : frame ? &s->frame : &s->given[f->input];
        b->patch[b->n_patch++].offset = at + (frame ? wf_frame_offset(s, b->symbols, f->input) : 0);
    }
    r->serial = ev(s, b, k->elements) < SERIAL_ELEMENTS;
    if (k->kind == WF_CALL_KERNEL) {
        r->tiles = ev(s, b, k->tiles);
        r->fn = (WfKernelFn)dlsym(s->object, k->symbol);
        if (!r->fn)
            wf_fail(s->ctx, WF_E_STEP_DAMAGED, "the compiled step has no kernel %s", k->symbol);
        r->serial |= r->tiles < 2;
    } else if (k->kind == WF_CALL_LIB) {
        r->lib = wf_lib_create(s->ctx, b->arena, desc, s->threads);
        r->workspace = k->workspace >= 0 ? wf_buffer_memory(s, b, p, k->workspace) : NULL;
    } else if (k->kind == WF_CALL_START || k->kind == WF_CALL_WAIT) {
        r->serial = true;
        r->copy_bytes = (size_t)ev(s, b, p->bufs[k->operand[k->n - 1].buf].bytes);
        if (k->kind == WF_CALL_START)
            bind_start(s, b, p, k, r);
    } else {
        r->serial = true;
        r->copy_bytes = (size_t)ev(s, b, p->bufs[k->operand[0].buf].bytes);
    }
}

static bool matches(const WfSession *s, const WfBinding *b, WfProgramKind kind, const int64_t *symbols)
{
    return b->kind == kind && !memcmp(b->symbols, symbols, (size_t)s->x->n_symbols * sizeof *symbols);
}

static void read_symbols(WfSession *s, int64_t *symbols)
{
    const WfExe *x = s->x;
    for (int i = 0; i < x->n_symbols; i++) {
        const WfExeSymbol *m = &x->symbols[i];
        if (!s->input[m->input])
            wf_fail(s->ctx, WF_E_DATA_MISSING, "input %s was not fed", x->inputs[m->input].name);
        int64_t size = s->fed_shape[m->input * WF_EXE_RANK + m->dim], rest = size - m->plus, lo, hi;
        symbols[i] = rest / m->factor;
        wf_exe_sizes(m, &lo, &hi);
        if (size < lo || size > hi)
            wf_fail(s->ctx, WF_E_INPUT_SIZE, "input %s: dimension %d is %lld; the export allows %lld to %lld",
                    x->inputs[m->input].name, m->dim, (long long)size, (long long)lo, (long long)hi);
        if (rest % m->factor)
            wf_fail(s->ctx, WF_E_INPUT_SIZE, "input %s: dimension %d is %lld; the export allows %lld plus multiples of %lld",
                    x->inputs[m->input].name, m->dim, (long long)size, (long long)lo, (long long)m->factor);
    }
}

#define FEWER "Batches of other sizes want an export with dynamic_shapes; or fill this one up, with option last-batch=pad, and tell its number of rows."

/* Every fed input must have the shape that the symbols give. */
static void check_shapes(WfSession *s, const WfBinding *b)
{
    const WfExe *x = s->x;
    for (int i = 0; i < x->n_inputs; i++) {
        const WfExeInput *in = &x->inputs[i];
        for (int d = 0; in->role == WF_XIN_USER && s->input[i] && d < in->rank; d++) {
            int64_t have = s->fed_shape[i * WF_EXE_RANK + d], want = ev(s, b, in->shape[d]);
            if (have != want)
                wf_fail_at(s->ctx, WF_E_INPUT_SIZE, NULL, d ? wf_exe_target(x, s->ctx->arena, in->name) : have > 0 && have < want ? FEWER : NULL,
                           "input %s: dimension %d is %lld, but must be %lld", in->name, d, (long long)have, (long long)want);
        }
    }
}

/* The arena of a binding goes, by whatever road: the session must not know it any more. */
static void forget(void *p)
{
    WfBinding *b = p;
    WfSession *s = b->session;
    if (s->profile && b->runs)
        wf_report_profile(s, b);
    for (int i = 0; i < s->n_bindings; i++)
        if (s->bindings[i] == b)
            s->bindings[i] = s->bindings[--s->n_bindings];
    for (int k = 0; k < WF_PROGRAMS; k++)
        s->last[k] = s->last[k] == b ? NULL : s->last[k];
    s->now = s->now == b ? NULL : s->now;
}

/* A binding with sizes and places, but no memory yet. */
static WfBinding *measured(WfSession *s, WfProgramKind kind, const int64_t *symbols, WfLibDesc **descriptions, int *operands)
{
    const WfExeProgram *p = &s->x->program[kind];
    WfArena *a = wf_arena_new(s->ctx);
    WfBinding *b = WF_NEW(a, WfBinding);
    b->arena = a;
    b->session = s;
    b->kind = kind;
    b->symbols = WF_NEWN(a, int64_t, (size_t)s->x->n_symbols + 1);
    memcpy(b->symbols, symbols, (size_t)s->x->n_symbols * sizeof *symbols);
    int64_t *bytes = WF_NEWN(a, int64_t, (size_t)p->n_bufs + 1);
    WfLibDesc *desc = *descriptions = WF_NEWN(a, WfLibDesc, (size_t)p->n_calls + 1);
    *operands = 0;
    for (int i = 0; i < p->n_bufs; i++)
        bytes[i] = ev(s, b, p->bufs[i].bytes);
    for (int c = 0; c < p->n_calls; c++) {
        const WfExeCall *k = &p->calls[c];
        *operands += k->n;
        if (k->kind != WF_CALL_LIB)
            continue;
        fill_desc(s, b, p, k, &desc[c]);
        if (c + 1 < p->n_calls && p->calls[c + 1].follows)
            desc[c].param[1] = 1;
        size_t scratch = (wf_lib_scratch(&desc[c]) + 63) & ~(size_t)63;
        b->scratch_each = scratch > b->scratch_each ? scratch : b->scratch_each;
        if (k->workspace >= 0)
            bytes[k->workspace] = (int64_t)wf_lib_workspace(&desc[c]);
    }
    b->offset = WF_NEWN(a, int64_t, (size_t)p->n_bufs + 1);
    for (int i = 0; i < p->n_bufs; i++)
        b->offset[i] = -1;
    for (int d = 0; d < WF_DEVICES; d++) {
        b->slab_bytes[d] = place(b, p, WF_PLACE_SLAB, d, bytes);
        b->arena_bytes[d] = place(b, p, WF_PLACE_ARENA, d, bytes);
    }
    return b;
}

/* Library primitives are made for the one thread that runs them, whatever the caller's own thread has set. */
typedef struct { WfSession *s; WfProgramKind kind; const int64_t *symbols; WfBinding *made; } Making;

static WfBinding *make_for_one(WfSession *s, WfProgramKind kind, const int64_t *symbols, void (*make)(void *))
{
    Making m = {s, kind, symbols, NULL};
    int was = wf_kernels_threads(1);
    weft_status r = wf_guard(s->ctx, make, &m);
    wf_kernels_threads(was);
    if (r != WEFT_OK)
        wf_reraise(s->ctx, r);
    return m.made;
}

static void measure(void *v)
{
    Making *m = v;
    WfLibDesc *desc;
    int operands;
    m->made = measured(m->s, m->kind, m->symbols, &desc, &operands);
}

int64_t wf_session_needs(WfSession *s, WfProgramKind kind, const int64_t *symbols)
{
    WfBinding *b = make_for_one(s, kind, symbols, measure);
    int64_t bytes = (int64_t)b->scratch_each * s->threads;
    for (int d = 0; d < WF_DEVICES; d++)
        bytes += b->slab_bytes[d] + b->arena_bytes[d];
    wf_arena_free(b->arena);
    return bytes;
}

int64_t wf_session_holds(const WfSession *s)
{
    int64_t bytes = 0;
    for (int d = 0; d < WF_DEVICES; d++)
        bytes += s->slab[d].size + s->shared[d].size;
    return bytes;
}

void wf_session_release(WfSession *s)
{
    while (s->n_bindings)
        wf_arena_free(s->bindings[0]->arena);
    for (int d = 0; d < WF_DEVICES; d++)
        release_slab(s, d);
}

static WfBinding *new_binding(WfSession *s, WfProgramKind kind, const int64_t *symbols)
{
    const WfExeProgram *p = &s->x->program[kind];
    WfLibDesc *desc;
    int operands;
    WfBinding *b = measured(s, kind, symbols, &desc, &operands);
    WfArena *a = b->arena;
    wf_arena_at_free(a, forget, b);
    b->ticket = WF_NEWN(a, WfTicket, (size_t)p->n_calls + 1);
    if (s->comm && !s->groups)
        make_groups(s);
    for (int d = 0; d < WF_DEVICES; d++) {
        ensure_arena(s, d, b->arena_bytes[d]);
        ensure_slab(s, d, b->slab_bytes[d] + (d == s->device ? (int64_t)b->scratch_each * s->threads : 0));
    }
    b->calls = WF_NEWN(a, WfBoundCall, (size_t)p->n_calls + 1);
    b->spent = WF_NEWN(a, double, (size_t)p->n_calls + 1);
    b->patch = wf_arena_alloc(a, ((size_t)operands + 1) * sizeof *b->patch);
    for (int c = 0; c < p->n_calls; c++)
        bind_call(s, b, p, c, &desc[c]);
    for (int c = 1; c < p->n_calls; c++) {
        const WfLib *lib = b->calls[c - 1].lib;
        b->calls[c].follows = p->calls[c].follows && lib && lib->rows && lib->n_rows == b->calls[c].tiles;
    }
    b->values = WF_NEWN(a, long, (size_t)(WF_S_SYMBOLS + s->x->n_symbols));
    for (int i = 0; i < s->x->n_symbols; i++)
        b->values[WF_S_SYMBOLS + i] = symbols[i];
    return b;
}

static void make_binding(void *v)
{
    Making *m = v;
    m->made = new_binding(m->s, m->kind, m->symbols);
}

static WfBinding *find_or_make(WfSession *s, WfProgramKind kind, const int64_t *symbols)
{
    WfBinding *b = NULL;
    for (int i = 0; i < s->n_bindings && !b; i++)
        if (matches(s, s->bindings[i], kind, symbols))
            b = s->bindings[i];
    if (!b) {
        b = make_for_one(s, kind, symbols, make_binding);
        if (s->n_bindings == (int)WF_LEN(s->bindings)) { /* the least recently used makes room */
            int old = 0;
            for (int i = 1; i < s->n_bindings; i++)
                if (s->bindings[i]->used < s->bindings[old]->used)
                    old = i;
            wf_arena_free(s->bindings[old]->arena);
        }
        s->bindings[s->n_bindings++] = b;
    }
    b->used = ++s->clock;
    return b;
}

void wf_session_prepare(WfSession *s, WfProgramKind kind, const int64_t *symbols) { find_or_make(s, kind, symbols); }

/* Both are made at once: one of them may want a larger slab. */
WfBinding *wf_bind_half(WfSession *s, WfProgramKind kind, const int64_t *symbols)
{
    WfProgramKind other = kind == WF_PROG_FORWARD ? WF_PROG_BACKWARD : WF_PROG_FORWARD;
    if (!s->last[other] || !matches(s, s->last[other], other, symbols))
        find_or_make(s, other, symbols);
    return s->last[kind] = find_or_make(s, kind, symbols);
}

WfBinding *wf_bind(WfSession *s, WfProgramKind kind)
{
    int64_t symbols[64] = {0};
    if (s->x->n_symbols > 64)
        wf_fail(s->ctx, WF_E_SIZE_EXPRESSION, "more than 64 symbolic dimensions");
    read_symbols(s, symbols);
    bool both = wf_session_micro_batches(s) > 1 && kind != WF_PROG_EVAL;
    WfBinding *b = find_or_make(s, kind, symbols);
    if (both) { /* the other program of the step may want a larger slab: it is known before the first one runs */
        find_or_make(s, kind == WF_PROG_STEP ? WF_PROG_MICRO : WF_PROG_STEP, symbols);
        b = find_or_make(s, kind, symbols);
    }
    check_shapes(s, b);
    s->last[kind] = b;
    return b;
}
