/* Writing an executable: a zip of exe.json, the shared objects and, if they are there, the weights as safetensors.
 * Expressions are written as text over the symbols' names. Same executable, same bytes. */
#include "exe/private.h"

#include <string.h>

static json_t *dim(const WfExe *x, WfDim d)
{
    int64_t v;
    if (wf_elit(x->exprs, d, &v))
        return json_integer(v);
    WfStr s = {.arena = x->arena};
    wf_eprint(x->exprs, d, &s);
    return json_string(s.at);
}

static json_t *dims(const WfExe *x, int n, const WfDim *d)
{
    json_t *a = json_array();
    for (int i = 0; i < n; i++)
        json_array_append_new(a, dim(x, d[i]));
    return a;
}

static json_t *text(const char *s) { return s ? json_string(s) : json_null(); }

static json_t *input(const WfExe *x, const WfExeInput *in)
{
    json_t *also = json_array();
    for (int i = 0; i < in->n_aliases; i++)
        json_array_append_new(also, json_string(in->aliases[i]));
    return json_pack("{si so ss so sb sb so sf so sb sb}", "role", in->role, "name", text(in->name), "dtype",
                     wf_dtype_name(in->dtype), "shape", dims(x, in->rank, in->shape), "trainable", in->trainable,
                     "persistent", in->persistent, "also", also, "fill", in->fill, "of", text(in->of), "used", in->used,
                     "predicts", in->predicts);
}

static json_t *buffer(const WfExe *x, const WfExeBuf *b)
{
    return json_pack("{si ss so so so si si si si so si so si}", "place", b->place, "dtype", wf_dtype_name(b->dtype), "shape",
                     dims(x, b->rank, b->shape), "stride", dims(x, b->rank, b->stride), "bytes", dim(x, b->bytes),
                     "input", b->input, "first", b->first, "last", b->last, "same_as", b->same_as, "name",
                     text(b->name), "inside", b->inside, "at", dim(x, b->at), "device", b->device);
}

static json_t *operand(const WfExe *x, const WfExeOperand *o)
{
    return json_pack("[i o o o]", o->buf, dim(x, o->offset), dims(x, o->rank, o->shape), dims(x, o->rank, o->stride));
}

static json_t *call(const WfExe *x, const WfExeCall *c)
{
    json_t *ops = json_array(), *params = json_array(), *fparams = json_array(), *checks = json_array();
    for (int i = 0; i < c->n; i++)
        json_array_append_new(ops, operand(x, &c->operand[i]));
    for (int i = 0; c->kind != WF_CALL_KERNEL && c->kind != WF_CALL_COPY && i < 32; i++)
        json_array_append_new(params, json_integer(c->param[i]));
    for (int i = 0; c->kind == WF_CALL_LIB && i < 8; i++)
        json_array_append_new(fparams, json_real(c->fparam[i]));
    for (int i = 0; i < c->n_checks; i++)
        json_array_append_new(checks, json_pack("[o o o o]", text(c->checks[i].where), text(c->checks[i].input), dim(x, c->checks[i].lo),
                                                dim(x, c->checks[i].hi)));
    return json_pack("{si so so so so so so si so so so so sb sf sf si}", "kind", c->kind, "symbol", text(c->symbol), "operands", ops,
                     "tiles", dim(x, c->tiles), "elements", dim(x, c->elements), "params", params, "fparams", fparams,
                     "workspace", c->workspace, "name", text(c->name), "where", text(c->where), "module", text(c->module), "checks", checks,
                     "follows", c->follows, "seconds", c->seconds, "growth", c->growth, "device", c->device);
}

static json_t *program(const WfExe *x, const WfExeProgram *p)
{
    json_t *calls = json_array(), *bufs = json_array(), *outs = json_array();
    for (int i = 0; i < p->n_calls; i++)
        json_array_append_new(calls, call(x, &p->calls[i]));
    for (int i = 0; i < p->n_bufs; i++)
        json_array_append_new(bufs, buffer(x, &p->bufs[i]));
    for (int i = 0; i < p->n_outputs; i++)
        json_array_append_new(outs, json_pack("{si so si si}", "role", p->outputs[i].role, "name",
                                              text(p->outputs[i].name), "buf", p->outputs[i].buf, "input",
                                              p->outputs[i].input));
    return json_pack("{so si so so}", "calls", calls, "commit", p->commit, "bufs", bufs, "outputs", outs);
}

static json_t *group(const WfExeGroup *g)
{
    return json_pack("{ss sf sf sf sf sf sf sf sf sf sb sb sb sb sf}", "optimizer", g->optimizer, "lr", g->lr, "beta1",
                     g->betas[0], "beta2", g->betas[1], "eps", g->eps, "weight_decay", g->weight_decay, "momentum",
                     g->momentum, "dampening", g->dampening, "alpha", g->alpha, "lr_decay", g->lr_decay, "nesterov",
                     g->nesterov, "amsgrad", g->amsgrad, "maximize", g->maximize, "centered", g->centered, "lr_scale",
                     g->lr_scale);
}

/* Integers beyond 2^53 in ranges (unbounded) travel as strings through dim's sibling: JSON integers are 64-bit here. */
static json_t *whole(const WfExe *x)
{
    json_t *symbols = json_array(), *inputs = json_array(), *groups = json_array(), *programs = json_array(),
           *warnings = json_array(), *ranks = json_array(), *saved = json_array();
    for (int i = 0; i < x->n_rank_groups; i++) {
        WfStr s = {.arena = x->arena};
        wf_rank_group_text(&x->rank_groups[i], &s);
        json_array_append_new(ranks, json_string(s.at));
    }
    for (int i = 0; i < x->n_symbols; i++)
        json_array_append_new(symbols, json_pack("{ss sI sI si si sI sI sI}", "name", x->symbols[i].name, "lo",
                                                 (json_int_t)x->symbols[i].lo, "hi", (json_int_t)x->symbols[i].hi,
                                                 "input", x->symbols[i].input, "dim", x->symbols[i].dim, "factor",
                                                 (json_int_t)x->symbols[i].factor, "plus",
                                                 (json_int_t)x->symbols[i].plus, "hint",
                                                 (json_int_t)x->symbols[i].hint));
    for (int i = 0; i < x->n_inputs; i++)
        json_array_append_new(inputs, input(x, &x->inputs[i]));
    for (int i = 0; i < x->n_groups; i++)
        json_array_append_new(groups, group(&x->groups[i]));
    for (int i = 0; i < x->n_saved; i++)
        json_array_append_new(saved, dim(x, x->saved[i].bytes));
    for (int i = 0; i < WF_PROGRAMS; i++)
        json_array_append_new(programs, program(x, &x->program[i]));
    for (int i = 0; i < x->n_warnings; i++)
        json_array_append_new(warnings, json_string(x->warnings[i]));
    return json_pack("{si ss ss si so so so so so sb si so so si si}", "format", WF_EXE_FORMAT, "signature",
                     x->signature ? x->signature : "", "options", x->options ? x->options : "", "isa", x->isa, "symbols",
                     symbols, "inputs", inputs, "groups", groups, "saved", saved, "programs", programs, "has_loss", x->has_loss, "accumulate", x->accumulate,
                     "warnings", warnings, "rank_groups", ranks, "ranks", x->ranks, "core", x->core);
}

void wf_exe_warn(WfExe *x, const char *text)
{
    const char **all = WF_NEWN(x->arena, const char *, (size_t)x->n_warnings + 1);
    for (int i = 0; i < x->n_warnings; i++)
        all[i] = x->warnings[i];
    all[x->n_warnings++] = text;
    x->warnings = all;
}

void wf_exe_save(WfCtx *ctx, const WfExe *x, const char *path)
{
    json_t *j = whole(x);
    char *t = j ? json_dumps(j, JSON_COMPACT | JSON_SORT_KEYS | JSON_REAL_PRECISION(17)) : NULL;
    json_decref(j);
    if (!t)
        wf_fail(ctx, WF_E_MEMORY, "out of memory while writing %s", path);
    WfZipEntry e[4];
    int n = 0;
    char *json = wf_arena_strdup(x->arena, t);
    free(t);
    e[n++] = (WfZipEntry){.name = "exe.json", .at = (const uint8_t *)json, .size = strlen(json)};
    for (int i = 0; i < 2; i++)
        if (x->object[i])
            e[n++] = (WfZipEntry){.name = i ? "kernels.v4.so" : "kernels.v3.so", .at = x->object[i],
                                  .size = x->object_size[i]};
    if (x->weights) {
        size_t size;
        const uint8_t *w = wf_safetensors_bytes(ctx, x->arena, x->weights->at, x->weights->n, &size);
        e[n++] = (WfZipEntry){.name = "weights.safetensors", .at = w, .size = size};
    }
    wf_zip_write(ctx, path, e, n);
}
