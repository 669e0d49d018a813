/* Sessions: state memory, feeding, outputs. The state lies in one mapping of its own, outside the slab; its tensors
 * start as the executable's weights say. */
#include "run/private.h"

#include <dlfcn.h>
#include <errno.h>
#include <math.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

/* The shared object lives in the executable's memory; the loader wants a file: an anonymous one. The loader knows what
 * it has loaded by the file's name, which holds the descriptor: that stays open as long as the object, so that no other
 * session's file gets the name meanwhile and, with it, these kernels. */
static void load_object(WfSession *s)
{
    int k = s->isa >= WF_ISA_LEVEL_V4 ? 1 : 0;
    if (!s->x->object[k])
        wf_fail_at(s->ctx, WF_E_STEP_ISA, NULL, "Compile it with --isa=v3,v4.",
                   "the step was not compiled for this machine's instruction set (%s)", wf_isa_name(s->isa));
    int fd = memfd_create("weft-kernels", MFD_CLOEXEC);
    if (fd < 0)
        wf_fail(s->ctx, WF_E_SCRATCH, "the system gives no anonymous file for the kernels: %s", strerror(errno));
    s->object_fd = fd;
    const uint8_t *at = s->x->object[k];
    size_t left = s->x->object_size[k];
    while (left) {
        ssize_t w = write(fd, at, left);
        if (w <= 0)
            wf_fail(s->ctx, WF_E_SCRATCH, "the kernels cannot be written to an anonymous file: %s",
                    strerror(w ? errno : ENOSPC));
        at += w;
        left -= (size_t)w;
    }
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    s->object = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!s->object)
        wf_fail(s->ctx, WF_E_LIBRARY, "the kernels cannot be loaded: %s", dlerror());
}

static bool has_memory(const WfExeInput *in)
{
    return in->role == WF_XIN_PARAM || in->role == WF_XIN_BUFFER || in->role == WF_XIN_CONST || in->role == WF_XIN_STATE ||
           in->role == WF_XIN_ACCUM;
}

static int64_t static_bytes(const WfSession *s, const WfExeInput *in)
{
    int64_t n = (int64_t)wf_dtype_size(in->dtype), v;
    for (int d = 0; d < in->rank; d++)
        if (!wf_elit(s->x->exprs, in->shape[d], &v) || !wf_mul_ok(n, v, &n))
            wf_fail(s->ctx, WF_E_STEP_DAMAGED, "%s has no fixed size", in->name);
    return n;
}

static void start_value(WfSession *s, int i, WfWeightSource weights)
{
    const WfExeInput *in = &s->x->inputs[i];
    int64_t bytes = static_bytes(s, in);
    uint8_t *to = s->input[i];
    if (in->role == WF_XIN_ACCUM)
        return;
    if (in->role == WF_XIN_STATE) {
        for (int64_t k = 0; in->fill != 0 && k < bytes / (int64_t)wf_dtype_size(in->dtype); k++)
            wf_store_f64(in->dtype, to + k * (int64_t)wf_dtype_size(in->dtype), in->fill);
        return;
    }
    if (weights.fn && weights.fn(weights.user, in->name, to, (size_t)bytes))
        return;
    const WfTensor *t = s->x->weights ? wf_tensors_find(s->x->weights, in->name) : NULL;
    if (!t)
        return;
    if ((int64_t)t->bytes != bytes || t->dtype != in->dtype)
        wf_fail(s->ctx, WF_E_STEP_DAMAGED, "the stored value of %s has %zu bytes instead of %lld", in->name, t->bytes,
                (long long)bytes);
    memcpy(to, t->data, t->bytes);
}

static void release(void *p)
{
    WfSession *s = p;
    while (s->n_bindings)
        wf_arena_free(s->bindings[0]->arena);
    wf_team_free(s->team);
    for (int d = 0; d < WF_DEVICES; d++) {
        wf_release_arena(s, d);
        if (s->slab[d].at)
            wf_pool_unmap(s->pool[d], s->slab[d].at, (size_t)s->slab[d].size);
    }
    for (int i = 0; i < s->x->n_inputs; i++)
        if (s->staged[i].at)
            wf_pool_unmap(s->pool[s->device], s->staged[i].at, (size_t)s->staged[i].size);
    if (s->state)
        wf_pool_unmap(s->pool[s->device], s->state, s->state_mapped);
    if (s->object)
        dlclose(s->object);
    if (s->object_fd >= 0)
        close(s->object_fd);
}

WfSession *wf_session_new(WfCtx *ctx, const WfExe *x, int threads, int isa, WfWeightSource weights)
{
    WfArena *a = wf_arena_new(ctx);
    WfSession *s = WF_NEW(a, WfSession);
    s->arena = a;
    s->ctx = ctx;
    s->object_fd = -1;
    s->rows = ALL_ROWS;
    s->chosen = 1;
    wf_arena_at_free(a, release, s);
    s->x = x;
    s->device = x->core >= 0;
    s->staged = WF_NEWN(a, WfStretch, (size_t)x->n_inputs + 1);
    s->fed = WF_NEWN(a, const void *, (size_t)x->n_inputs + 1);
    if (x->core >= 0)
        s->pool[1] = wf_pool_open(ctx, a, x->core);
    s->isa = wf_isa_level();
    if (s->isa < WF_ISA_LEVEL_V3)
        wf_fail(ctx, WF_E_PROCESSOR, "this processor has no AVX2, which Weft's kernels need");
    if (x->isa == WF_ISA_LEVEL_AMX && s->isa < x->isa && !isa) /* others would compute other bits */
        wf_fail_at(ctx, WF_E_STEP_ISA, NULL, "Without --isa amx it needs AVX2 or AVX-512 only.",
                   "--isa amx: this processor has no AMX for bfloat16, or the system does not let programs use it");
    if (s->isa > x->isa)
        s->isa = x->isa;
    if (isa && s->isa > isa)
        s->isa = isa;
    if (!x->object[1])
        s->isa = WF_ISA_LEVEL_V3;
    cpu_set_t cores;
    bool known = !sched_getaffinity(0, sizeof cores, &cores);
    s->threads = threads > 0 ? threads : known && CPU_COUNT(&cores) > 0 ? CPU_COUNT(&cores) : 1;
    s->profile = wf_env("WEFT_PROFILE") != NULL;
    s->reduce = true;
    s->lr = x->n_groups ? x->groups[0].lr : 0;
    size_t n = (size_t)x->n_inputs + 1;
    s->input = WF_NEWN(a, void *, n);
    s->borrowed = WF_NEWN(a, bool, n);
    s->state_offset = WF_NEWN(a, int64_t, n);
    int given = x->program[WF_PROG_FORWARD].n_outputs + x->program[WF_PROG_BACKWARD].n_outputs;
    s->given = WF_NEWN(a, void *, (size_t)given + 1);
    s->fed_shape = WF_NEWN(a, int64_t, n * WF_EXE_RANK);
    s->status = WF_NEWN(a, WfStatusLine, (size_t)s->threads);
    int64_t at = 0;
    for (int i = 0; i < x->n_inputs; i++) {
        s->state_offset[i] = -1;
        if (!has_memory(&x->inputs[i]))
            continue;
        s->state_offset[i] = at;
        at += (static_bytes(s, &x->inputs[i]) + 63) & ~(int64_t)63;
    }
    s->state_bytes = at + 64;
    s->state_mapped = (size_t)s->state_bytes + n * sizeof(double);
    s->state = wf_pool_map(s->pool[s->device], s->state_mapped, at >= (4 << 20));
    if (!s->state)
        wf_fail(ctx, WF_E_MEMORY, "no memory for %.1f MB of weights and optimiser state", (double)at / 1e6);
    s->scalars = (double *)(s->state + s->state_bytes);
    for (int i = 0; i < x->n_inputs; i++)
        if (x->inputs[i].role == WF_XIN_SCALAR)
            s->input[i] = &s->scalars[i];
    for (int i = 0; i < x->n_inputs; i++)
        if (s->state_offset[i] >= 0) {
            s->input[i] = s->state + s->state_offset[i];
            start_value(s, i, weights);
        }
    load_object(s);
    /* A host that runs halves computes in between. Its OpenMP threads spin for milliseconds after a region and would take the
     * cores from threads of ours. */
    s->team = wf_team_of_host(ctx, s->threads, wf_kernels_threads, x->program[WF_PROG_FORWARD].n_outputs ? &wf_kernels_openmp : NULL);
    return s;
}

void wf_session_free(WfSession *s)
{
    if (s)
        wf_arena_free(s->arena);
}

/* What is fed to a step on a core's device is copied there. */
static void *on_device(WfSession *s, int input, const WfTensor *t)
{
    if (s->x->core < 0 || wf_core_at(t->data) == s->x->core || !t->data)
        return (void *)t->data;
    size_t bytes = wf_dtype_size(t->dtype);
    WfStretch *m = &s->staged[input];
    for (int d = 0; d < t->rank; d++)
        bytes = wf_mul_size(bytes, (size_t)t->shape[d]);
    if (bytes > (size_t)m->size) {
        if (m->at)
            wf_pool_unmap(s->pool[s->device], m->at, (size_t)m->size);
        m->size = 0;
        m->at = wf_pool_map(s->pool[s->device], bytes, false);
        if (!m->at)
            wf_fail(s->ctx, WF_E_MEMORY, "no memory for %.1f MB of input %s", (double)bytes / 1e6, t->name ? t->name : "");
        m->size = (int64_t)bytes;
    }
    memcpy(m->at, t->data, bytes);
    return m->at;
}

void wf_session_feed(WfSession *s, const char *name, const WfTensor *t)
{
    const WfExe *x = s->x;
    const char *names[64];
    int n = 0;
    for (int i = 0; i < x->n_inputs; i++) {
        const WfExeInput *in = &x->inputs[i];
        if (in->role != WF_XIN_USER)
            continue;
        if (n < 64)
            names[n++] = in->name;
        if (strcmp(in->name, name))
            continue;
        if (!t) {
            s->input[i] = NULL;
            s->fed[i] = NULL;
            return;
        }
        if (t->dtype != in->dtype)
            wf_fail_at(s->ctx, WF_E_DATA_SHAPE, NULL, wf_exe_target(x, s->ctx->arena, name), "input %s is %s, but the model wants %s", name,
                       wf_dtype_name(t->dtype), wf_dtype_name(in->dtype));
        if (t->rank != in->rank)
            wf_fail_at(s->ctx, WF_E_DATA_SHAPE, NULL, wf_exe_target(x, s->ctx->arena, name), "input %s has %d dimension%s, but the model wants %d",
                       name, t->rank, t->rank == 1 ? "" : "s", in->rank);
        memcpy(&s->fed_shape[i * WF_EXE_RANK], t->shape, (size_t)t->rank * sizeof *t->shape);
        s->input[i] = on_device(s, i, t);
        s->fed[i] = t->data;
        return;
    }
    const char *near = wf_nearest(name, names, n);
    wf_fail_at(s->ctx, WF_E_DATA_NAME, NULL, near ? wf_arena_printf(s->ctx->arena, "Did you mean %s?", near) : NULL,
               "the model has no input %s", name);
}

void wf_session_set_lr(WfSession *s, double lr) { s->lr = lr; }
void wf_session_set_seed(WfSession *s, uint64_t seed) { s->seed = seed; }
void wf_session_set_check_finite(WfSession *s, bool on) { s->check_finite = on; }
void wf_session_set_reduce(WfSession *s, bool on) { s->reduce = on; }
void wf_session_set_rows(WfSession *s, int64_t rows)
{
    if (rows < 0)
        wf_fail(s->ctx, WF_E_LIBRARY_CALL, "%lld rows of a batch cannot count", (long long)rows);
    s->rows = rows;
}

int64_t wf_session_rows(const WfSession *s) { return s->rows == ALL_ROWS ? -1 : s->rows; }

WfTensor wf_session_fed(const WfSession *s, int i)
{
    const WfExeInput *in = &s->x->inputs[i];
    WfTensor t = {.name = in->name, .dtype = in->dtype, .rank = in->rank};
    if (in->role != WF_XIN_USER || !s->input[i])
        return t;
    t.data = s->fed[i] ? s->fed[i] : s->input[i];
    t.bytes = wf_dtype_size(t.dtype);
    for (int d = 0; d < t.rank; d++) {
        t.shape[d] = s->fed_shape[i * WF_EXE_RANK + d];
        t.bytes *= (size_t)t.shape[d];
    }
    return t;
}

bool wf_session_masks(const WfSession *s, WfProgramKind kind)
{
    for (int i = 0; i < s->x->n_inputs; i++) {
        const WfExeInput *in = &s->x->inputs[i];
        if (in->role == WF_XIN_SCALAR && (!strcmp(in->name, "batch.rows") || (kind == WF_PROG_EVAL && !strcmp(in->name, "eval.rows"))))
            return true;
    }
    return false;
}

void wf_session_set_step(WfSession *s, int64_t step)
{
    s->steps = step;
    s->micro = 0;
}

int64_t wf_session_steps(const WfSession *s) { return s->steps; }
int wf_session_threads(const WfSession *s) { return s->threads; }
int wf_session_isa(const WfSession *s) { return s->isa; }
int64_t wf_session_state_bytes(const WfSession *s) { return s->state_bytes; }

int64_t wf_session_slab_bytes(const WfSession *s)
{
    int64_t most = 0;
    for (int i = 0; i < s->n_bindings; i++) {
        int64_t b = (int64_t)s->bindings[i]->scratch_each * s->threads;
        for (int d = 0; d < WF_DEVICES; d++)
            b += s->bindings[i]->slab_bytes[d];
        most = b > most ? b : most;
    }
    return most;
}

static int find_input(const WfSession *s, const char *name)
{
    for (int i = 0; i < s->x->n_inputs; i++) {
        const WfExeInput *in = &s->x->inputs[i];
        if (!has_memory(in))
            continue;
        if (!strcmp(in->name, name))
            return i;
        for (int k = 0; k < in->n_aliases; k++)
            if (!strcmp(in->aliases[k], name))
                return i;
    }
    return -1;
}

bool wf_session_tensor(WfSession *s, const char *name, WfTensor *out)
{
    int i = find_input(s, name);
    if (i < 0)
        return false;
    const WfExeInput *in = &s->x->inputs[i];
    *out = (WfTensor){.name = in->name, .dtype = in->dtype, .rank = in->rank, .data = s->input[i]};
    out->bytes = (size_t)static_bytes(s, in);
    for (int d = 0; d < in->rank; d++)
        wf_elit(s->x->exprs, in->shape[d], &out->shape[d]);
    return true;
}

void wf_session_replace(WfSession *s, const char *name, void *memory)
{
    int i = find_input(s, name);
    if (i < 0)
        wf_fail(s->ctx, WF_E_LIBRARY_CALL, "there is no parameter %s", name);
    s->input[i] = memory;
    s->borrowed[i] = true;
}

int wf_session_outputs(const WfSession *s, WfProgramKind kind) { return s->x->program[kind].n_outputs; }

void wf_session_output(WfSession *s, WfProgramKind kind, int k, WfTensor *out)
{
    const WfExeProgram *p = &s->x->program[kind];
    WfBinding *b = s->last[kind];
    const WfExeOutput *o = &p->outputs[k];
    memset(out, 0, sizeof *out);
    out->name = o->name;
    if (!b || o->buf < 0)
        return;
    const WfExeBuf *f = &p->bufs[o->buf];
    out->dtype = f->dtype;
    out->rank = f->rank;
    for (int d = 0; d < f->rank; d++)
        out->shape[d] = wf_exe_eval(s->x, f->shape[d], b->symbols);
    out->bytes = (size_t)wf_exe_eval(s->x, f->bytes, b->symbols);
    out->data = f->place == WF_PLACE_GIVEN ? s->given[f->input]
                : f->place == WF_PLACE_INPUT ? s->input[f->input]
                                           : wf_buffer_memory(s, b, &s->x->program[kind], o->buf);
}

static double scalar_of(const WfTensor *t) { return t->data ? wf_load_f64(t->dtype, t->data) : NAN; }

int wf_session_micro_batches(const WfSession *s) { return s->x->accumulate ? s->x->accumulate : s->chosen; }

void wf_session_set_micro_batches(WfSession *s, int k)
{
    if (k < 1 || (k != wf_session_micro_batches(s) && (s->x->accumulate || k > MOST_MICRO)))
        wf_fail_at(s->ctx, WF_E_STEP_FIXED, NULL, "Compile it with --micro-batch auto.",
                   "a step of %d micro-batches: this one was compiled for %d", k, wf_session_micro_batches(s));
    if (k != wf_session_micro_batches(s) && s->micro && !s->torn)
        wf_fail(s->ctx, WF_E_STEP_ORDER, "the number of micro-batches changes between steps only, and %d of this one are done", s->micro);
    s->chosen = s->x->accumulate ? s->chosen : k;
}

double wf_session_loss(WfSession *s)
{
    WfProgramKind kind = s->now ? s->now->kind : WF_PROG_STEP;
    for (int k = 0; k < s->x->program[kind].n_outputs; k++)
        if (s->x->program[kind].outputs[k].role == WF_XOUT_LOSS) {
            WfTensor t;
            wf_session_output(s, kind, k, &t);
            return scalar_of(&t);
        }
    return NAN;
}

bool wf_session_metric(WfSession *s, WfProgramKind kind, const char *name, double *out)
{
    const WfExeProgram *p = &s->x->program[kind];
    for (int k = 0; k < p->n_outputs; k++)
        if (p->outputs[k].role == WF_XOUT_METRIC && !strcmp(p->outputs[k].name, name)) {
            WfTensor t;
            wf_session_output(s, kind, k, &t);
            *out = scalar_of(&t);
            return t.data != NULL;
        }
    return false;
}

int64_t wf_exe_eval(const WfExe *x, WfDim d, const int64_t *symbols)
{
    int64_t v;
    if (wf_elit(x->exprs, d, &v))
        return v;
    int n = wf_esym_count(x->exprs);
    int64_t values[1024] = {0};
    if (n > 1024)
        n = 1024;
    for (int i = 0; i < x->n_symbols; i++) {
        WfDim sym;
        int id = wf_sym_find(x->exprs, x->symbols[i].name, &sym) ? wf_esym_id(x->exprs, sym) : -1;
        if (id >= 0 && id < 1024)
            values[id] = symbols[i];
    }
    if (!wf_eeval(x->exprs, d, values, &v))
        wf_fail(x->ctx, WF_E_INPUT_SIZE, "a size is too large");
    return v;
}
