/* What a run says before its first step: what was chosen and where each value comes from, the model, the memory that the plan
 * takes and that there is, what a step is made of, the data. */
#include "train/loop.h"

#include <string.h>

static void put_mib(WfStr *s, const char *what, int64_t bytes)
{
    double mib = (double)bytes / 1048576.0;
    if (bytes)
        wf_str_printf(s, "%s%s %.*f", s->n && s->at[s->n - 1] != '\n' && s->at[s->n - 1] != ' ' ? ", " : "", what, mib < 1 ? 3 : 1, mib);
}

/* 12345678 as 12,345,678 */
static const char *grouped(WfArena *a, int64_t n)
{
    char digits[32];
    WfStr s = {.arena = a};
    snprintf(digits, sizeof digits, "%lld", (long long)n);
    for (size_t i = 0, k = strlen(digits); i < k; i++) {
        wf_str_putc(&s, digits[i]);
        if ((k - i - 1) % 3 == 0 && i + 1 < k && digits[i] != '-')
            wf_str_putc(&s, ',');
    }
    return s.at;
}

static void put_options(const WfLoop *l, WfStr *s)
{
    const WfOptions *o = l->t->options;
    for (const WfOptionRow *r = wf_option_table; r->name; r++) {
        WfOrigin origin = wf_option_origin(o, r->name);
        if (origin == WF_FROM_DEFAULT)
            continue;
        WfStr value = {.arena = s->arena};
        wf_option_text(o, r, &value);
        wf_str_printf(s, "  %-20s %-30s (%s)\n", r->name, value.at ? value.at : "", wf_origin_name(origin));
    }
}

typedef struct { const char *name; int64_t elements, trainable; int tensors; } Part;
typedef WF_VEC(Part) Parts;
enum { PARTS = 12 };

/* Of a path a.b.c.weight, the part a (depth 1), a.b (2), a.b.c: bytes of the name. */
static size_t part_of(const char *name, int depth)
{
    const char *end = strrchr(name, '.'), *at = name;
    if (!end)
        return 0;
    while (depth-- && at < end)
        at += strcspn(at, ".") + 1;
    return (size_t)((at < end + 1 ? at - 1 : end) - name);
}

static Parts parts_at(const WfExe *x, WfArena *a, int depth)
{
    Parts parts = {0};
    WfMap *by_name = wf_map_new(a);
    for (int i = 0; i < x->n_inputs; i++) {
        const WfExeInput *in = &x->inputs[i];
        int64_t at, n = wf_exe_elements(x, in);
        if (in->role != WF_XIN_PARAM)
            continue;
        const char *name = wf_arena_strndup(a, in->name, part_of(in->name, depth));
        if (!wf_map_get(by_name, name, &at)) {
            wf_map_put(by_name, name, at = parts.n);
            WF_PUSH(a, &parts, ((Part){.name = name}));
        }
        parts.at[at].elements += n;
        parts.at[at].trainable += in->trainable ? n : 0;
        parts.at[at].tensors++;
    }
    return parts;
}

/* The parts of the model as its outermost modules, or those inside of the only one. */
static void put_parts(const WfExe *x, WfStr *s)
{
    Parts parts = parts_at(x, s->arena, 1);
    for (int depth = 2; parts.n == 1 && depth < 8; depth++)
        parts = parts_at(x, s->arena, depth);
    for (int i = 0; parts.n > 1 && i < parts.n && i < PARTS; i++) {
        const Part *q = &parts.at[i];
        const char *trained = q->trainable == q->elements ? "" : !q->trainable ? " (frozen)"
                              : wf_arena_printf(s->arena, " (%s trainable)", grouped(s->arena, q->trainable));
        wf_str_printf(s, "           %-24s %14s in %3d tensor%s%s\n", *q->name ? q->name : "(itself)", grouped(s->arena, q->elements),
                      q->tensors, q->tensors == 1 ? "" : "s", trained);
    }
    if (parts.n > PARTS)
        wf_str_printf(s, "           and %d other modules (weft info)\n", parts.n - PARTS);
}

static void put_model(const WfLoop *l, WfStr *s)
{
    const WfExe *x = l->t->exe;
    int64_t all = 0, trainable = 0;
    int tensors = 0, inputs = 0;
    const char *dtype = NULL;
    for (int i = 0; i < x->n_inputs; i++) {
        const WfExeInput *in = &x->inputs[i];
        int64_t n = wf_exe_elements(x, in);
        if (in->role != WF_XIN_PARAM)
            continue;
        all += n;
        trainable += in->trainable ? n : 0;
        tensors++;
        dtype = dtype && strcmp(dtype, wf_dtype_name(in->dtype)) ? "mixed" : wf_dtype_name(in->dtype);
    }
    wf_str_printf(s, "model      %s parameters (%s trainable) in %d tensors, %s\n", grouped(s->arena, all), grouped(s->arena, trainable),
                  tensors, dtype ? dtype : "-");
    put_parts(x, s);
    wf_str_puts(s, "inputs     ");
    for (int i = 0; i < l->n_inputs; i++) {
        const WfColumn *c = &l->data->columns[i];
        wf_str_printf(s, "%s%s %s[%lld", inputs++ ? ", " : "", c->input->name, wf_dtype_name(c->input->dtype), (long long)l->batch);
        for (int d = 1; d < c->rank; d++)
            wf_str_printf(s, ", %lld", (long long)c->shape[d]);
        wf_str_putc(s, ']');
    }
    wf_str_putc(s, '\n');
}

/* Which output the loss is of, where there are several and so another might be meant. */
static void put_loss(const WfLoop *l, WfStr *s)
{
    const WfExe *x = l->t->exe;
    const WfExeProgram *p = &x->program[WF_PROG_EVAL];
    const char *loss = wf_exe_option(l->t->exe, l->t->arena, "loss"), *chosen = wf_exe_option(l->t->exe, l->t->arena, "predictions");
    bool own = !*loss || !strcmp(loss, "none");
    int outputs = 0;
    const WfExeBuf *of = NULL;
    for (int i = 0; i < p->n_outputs; i++) {
        const WfExeOutput *o = &p->outputs[i];
        bool named = o->role == WF_XOUT_USER && !strcmp(o->name, own ? "0" : "predictions");
        outputs += o->role == WF_XOUT_USER && strcmp(o->name, "predictions");
        of = named && o->buf >= 0 ? &p->bufs[o->buf] : of;
    }
    if (outputs < 2)
        return;
    bool first = own || *chosen == '-' || !*chosen;
    wf_str_printf(s, "loss       %s output %s of %d", own ? "is" : wf_arena_printf(s->arena, "%s of", loss), first ? "0" : chosen, outputs);
    for (int d = 0; of && d < of->rank; d++) {
        wf_str_puts(s, d ? ", " : wf_arena_printf(s->arena, ", %s[", wf_dtype_name(of->dtype)));
        int64_t size;
        wf_str_puts(s, wf_elit(x->exprs, of->shape[d], &size) ? wf_arena_printf(s->arena, "%lld", (long long)size) : "*");
    }
    wf_str_printf(s, "%s%s\n", of && of->rank ? "]" : "", own ? "" : first ? ", the first; --predictions N takes another" : "");
}

static void put_memory(const WfLoop *l, WfStr *s)
{
    const WfExe *x = l->t->exe;
    int64_t symbols[64] = {0}, rows = l->schedule ? l->schedule->table->rows.at[l->schedule->at].rows : l->batch;
    WfExeMemory m;
    if (x->n_symbols > 64)
        return;
    wf_train_symbols(x, l->data, rows, symbols);
    wf_exe_memory(x, s->arena, WF_PROG_STEP, symbols, &m);
    int64_t state = wf_session_state_bytes(l->t->session), needs = wf_session_needs(l->t->session, WF_PROG_STEP, symbols);
    int64_t available = wf_memory_available(l->t->ctx, wf_ranks_here(l->t), l->rank, l->mark.step) + wf_session_holds(l->t->session);
    wf_str_puts(s, "memory     MiB: ");
    put_mib(s, "weights", m.weights);
    put_mib(s, "buffers", m.buffers);
    put_mib(s, "optimiser", m.optimiser);
    put_mib(s, "gathered gradients", m.gathered);
    put_mib(s, "gradients", m.gradients + m.travelling);
    put_mib(s, "activations", m.activations);
    put_mib(s, "workspace and gaps", needs - m.travelling - m.gradients - m.activations);
    wf_str_printf(s, "\n           planned peak %.1f MiB; state %.1f and a step's %.1f of %.1f MiB available%s\n",
                  (double)(state + needs) / 1048576.0, (double)state / 1048576.0, (double)needs / 1048576.0,
                  (double)available / 1048576.0, needs > available ? ": this may not fit" : "");
}

static void put_batch(const WfLoop *l, WfStr *s)
{
    const WfOptions *o = l->t->options;
    int64_t rows = l->schedule ? l->schedule->table->rows.at[l->schedule->at].rows : l->batch;
    bool automatic = l->schedule && l->schedule->automatic;
    int64_t parts = automatic ? 1 : l->batch / rows;
    wf_str_printf(s, "step       %lld samples = %lld%s x %lld accumulated x %d rank%s; %s steps", (long long)(l->batch * l->micro * l->ranks),
                  (long long)(automatic ? l->batch : rows), automatic ? " (in micro-batches by memory)" : "", (long long)(l->micro * parts),
                  l->ranks, l->ranks > 1 ? "s" : "", grouped(s->arena, l->total));
    wf_str_printf(s, ", %s an epoch\n", grouped(s->arena, l->per_epoch));
    wf_str_printf(s, "data       %s samples%s", grouped(s->arena, l->data->samples), o->shuffle ? ", shuffled" : ", in order");
    wf_str_printf(s, ", seed %lld\n", (long long)o->seed);
    WfStr columns = {.arena = s->arena};
    wf_dataset_describe(l->data, &columns);
    for (const char *at = columns.at; at && *at;) {
        size_t n = strcspn(at, "\n");
        wf_str_printf(s, "           %.*s\n", (int)n, at);
        at += n + (at[n] == '\n');
    }
    if (l->eval)
        wf_str_printf(s, "evaluation %s samples\n", grouped(s->arena, l->eval->samples));
}

void wf_loop_banner(const WfLoop *l)
{
    const WfOptions *o = l->t->options;
    if (l->rank || !l->t->model)
        return;
    WfArena *a = wf_arena_scratch(l->t->ctx);
    WfStr s = {.arena = a};
    int isa = wf_session_isa(l->t->session);
    wf_str_printf(&s, "%s: %s; %d thread%s, %s%s\n", l->t->model, l->t->compiled, wf_session_threads(l->t->session),
                  wf_session_threads(l->t->session) > 1 ? "s" : "", wf_isa_name(isa),
                  o->isa == WF_ISA_AUTO && isa == WF_ISA_LEVEL_V4 && wf_isa_level() == WF_ISA_LEVEL_AMX ? " (it has AMX: --isa amx)" : "");
    put_options(l, &s);
    put_model(l, &s);
    put_loss(l, &s);
    put_memory(l, &s);
    put_batch(l, &s);
    if (l->t->comm)
        wf_str_printf(&s, "ranks      %s\n", wf_comm_describe(l->t->comm));
    if (o->out)
        wf_str_printf(&s, "out        %s%s\n", o->out, o->checkpoint_every ? ", with checkpoints" : "");
    fputs(s.at, stderr);
    wf_arena_free(a);
}
