/* Reading an executable. The file is not trusted: types, counts and indices are checked before use,
 * expressions are parsed again, and a wrong file is one clear error. (Its kernels are code and are run: load
 * only what you compiled.) */
#include "exe/private.h"

#include <string.h>

typedef struct {
    WfCtx *ctx;
    WfArena *a;
    WfExe *x;
    const char *path;
} Load;

static WF_NORETURN void bad(Load *l, const char *what)
{
    wf_fail_at(l->ctx, WF_E_STEP_DAMAGED, l->path, "Compile it again with weft compile.",
               "not a usable compiled step: %s", what);
}

static json_t *field(Load *l, json_t *o, const char *key)
{
    json_t *v = json_object_get(o, key);
    if (!v)
        bad(l, wf_arena_printf(l->a, "'%s' is missing", key));
    return v;
}

static json_t *list(Load *l, json_t *o, const char *key, size_t most)
{
    json_t *v = field(l, o, key);
    if (!json_is_array(v) || json_array_size(v) > most)
        bad(l, wf_arena_printf(l->a, "'%s' is no list of sensible length", key));
    return v;
}

static int64_t integer(Load *l, json_t *v, int64_t lo, int64_t hi, const char *key)
{
    if (!json_is_integer(v) || json_integer_value(v) < lo || json_integer_value(v) > hi)
        bad(l, wf_arena_printf(l->a, "'%s' is out of range", key));
    return json_integer_value(v);
}

#define INT(o, key, lo, hi) integer(l, field(l, o, key), lo, hi, key)

static double number(Load *l, json_t *o, const char *key)
{
    json_t *v = field(l, o, key);
    if (!json_is_number(v))
        bad(l, wf_arena_printf(l->a, "'%s' is no number", key));
    return json_number_value(v);
}

static bool truth(Load *l, json_t *o, const char *key)
{
    return json_is_true(field(l, o, key));
}

static const char *string(Load *l, json_t *v) /* NULL for null */
{
    if (!v || json_is_null(v))
        return NULL;
    if (!json_is_string(v))
        bad(l, "text is expected");
    return wf_arena_strdup(l->a, json_string_value(v));
}

static const char *need_string(Load *l, json_t *o, const char *key)
{
    const char *s = string(l, field(l, o, key));
    if (!s)
        bad(l, wf_arena_printf(l->a, "'%s' is empty", key));
    return s;
}

static WfDtype dtype(Load *l, json_t *o)
{
    const char *s = need_string(l, o, "dtype");
    WfDtype t = wf_dtype_parse(s);
    if (!t)
        bad(l, "unknown dtype");
    return t;
}

static WfDim dim(Load *l, json_t *v)
{
    if (json_is_integer(v))
        return wf_econst(l->x->exprs, json_integer_value(v));
    const char *s = string(l, v), *end;
    if (!s)
        bad(l, "a size is missing");
    WfDim d = wf_eparse(l->x->exprs, s, &end);
    if (*end)
        bad(l, "a size does not parse");
    return d;
}

static int dims(Load *l, json_t *v, WfDim *out)
{
    if (!json_is_array(v) || json_array_size(v) > WF_EXE_RANK)
        bad(l, "a shape has too many dimensions");
    for (size_t i = 0; i < json_array_size(v); i++)
        out[i] = dim(l, json_array_get(v, i));
    return (int)json_array_size(v);
}

void wf_exe_sizes(const WfExeSymbol *s, int64_t *lo, int64_t *hi)
{
    if (!wf_mul_ok(s->lo, s->factor, lo) || !wf_add_ok(*lo, s->plus, lo))
        *lo = 0;
    if (!wf_mul_ok(s->hi, s->factor, hi) || !wf_add_ok(*hi, s->plus, hi))
        *hi = INT64_MAX;
}

int64_t wf_exe_usual(const WfExeSymbol *s)
{
    enum { SOME = 32 };
    int64_t v = s->hint ? s->hint : (SOME - s->plus) / s->factor, size;
    v = v < s->lo ? s->lo : v > s->hi ? s->hi : v;
    return wf_mul_ok(v, s->factor, &size) && wf_add_ok(size, s->plus, &size) ? size : SOME;
}

static void read_symbols(Load *l, json_t *j)
{
    WfExe *x = l->x;
    json_t *a = list(l, j, "symbols", 64);
    x->n_symbols = (int)json_array_size(a);
    x->symbols = WF_NEWN(l->a, WfExeSymbol, (size_t)x->n_symbols + 1);
    for (int i = 0; i < x->n_symbols; i++) {
        json_t *o = json_array_get(a, (size_t)i);
        WfExeSymbol *s = &x->symbols[i];
        s->name = need_string(l, o, "name");
        s->lo = INT(o, "lo", INT64_MIN, INT64_MAX);
        s->hi = INT(o, "hi", INT64_MIN, INT64_MAX);
        s->input = (int)INT(o, "input", 0, 1 << 24);
        s->dim = (int)INT(o, "dim", 0, WF_EXE_RANK - 1);
        s->factor = INT(o, "factor", 1, INT64_MAX);
        s->plus = INT(o, "plus", INT64_MIN / 2, INT64_MAX / 2);
        s->hint = INT(o, "hint", 0, INT64_MAX);
        wf_sym(x->exprs, s->name, s->lo, s->hi);
    }
}

static void read_inputs(Load *l, json_t *j)
{
    WfExe *x = l->x;
    json_t *a = list(l, j, "inputs", 1 << 20);
    x->n_inputs = (int)json_array_size(a);
    x->inputs = WF_NEWN(l->a, WfExeInput, (size_t)x->n_inputs + 1);
    for (int i = 0; i < x->n_inputs; i++) {
        json_t *o = json_array_get(a, (size_t)i), *also = list(l, o, "also", 4096);
        WfExeInput *in = &x->inputs[i];
        in->role = (WfExeRole)INT(o, "role", 0, WF_XIN_COTANGENT);
        in->name = need_string(l, o, "name");
        in->dtype = dtype(l, o);
        in->rank = dims(l, field(l, o, "shape"), in->shape);
        in->trainable = truth(l, o, "trainable");
        in->persistent = truth(l, o, "persistent");
        in->used = truth(l, o, "used");
        in->predicts = truth(l, o, "predicts");
        in->fill = number(l, o, "fill");
        in->of = string(l, field(l, o, "of"));
        in->n_aliases = (int)json_array_size(also);
        in->aliases = WF_NEWN(l->a, const char *, (size_t)in->n_aliases + 1);
        for (int k = 0; k < in->n_aliases; k++)
            if (!(in->aliases[k] = string(l, json_array_get(also, (size_t)k))))
                bad(l, "an alias is empty");
    }
    for (int i = 0; i < x->n_symbols; i++)
        if (x->symbols[i].input >= x->n_inputs || x->symbols[i].dim >= x->inputs[x->symbols[i].input].rank)
            bad(l, "a symbol names no input");
}

static void read_call(Load *l, json_t *o, WfExeCall *c, int n_bufs)
{
    json_t *ops = list(l, o, "operands", 8192), *params = list(l, o, "params", 32),
           *fp = list(l, o, "fparams", 8);
    json_t *checks = list(l, o, "checks", 4096);
    c->kind = (WfCallKind)INT(o, "kind", 0, WF_CALL_WAIT);
    c->symbol = string(l, field(l, o, "symbol"));
    if (!c->symbol && c->kind != WF_CALL_COPY && c->kind != WF_CALL_WAIT)
        bad(l, "a call has no name");
    c->n = (int)json_array_size(ops);
    if ((c->kind == WF_CALL_COPY && c->n != 2) || (c->kind == WF_CALL_LIB && c->n > 16))
        bad(l, "a call has a wrong number of operands");
    c->operand = WF_NEWN(l->a, WfExeOperand, (size_t)c->n + 1);
    for (int i = 0; i < c->n; i++) {
        json_t *p = json_array_get(ops, (size_t)i);
        if (!json_is_array(p) || json_array_size(p) != 4)
            bad(l, "an operand is malformed");
        c->operand[i].buf =
            (int)integer(l, json_array_get(p, 0), c->kind == WF_CALL_LIB ? -2 : 0, n_bufs - 1, "buf");
        c->operand[i].offset = dim(l, json_array_get(p, 1));
        c->operand[i].rank = dims(l, json_array_get(p, 2), c->operand[i].shape);
        if (dims(l, json_array_get(p, 3), c->operand[i].stride) != c->operand[i].rank)
            bad(l, "an operand is malformed");
    }
    c->tiles = dim(l, field(l, o, "tiles"));
    c->elements = dim(l, field(l, o, "elements"));
    for (size_t i = 0; i < json_array_size(params); i++)
        c->param[i] = integer(l, json_array_get(params, i), INT64_MIN, INT64_MAX, "params");
    for (size_t i = 0; i < json_array_size(fp); i++)
        c->fparam[i] = json_number_value(json_array_get(fp, i));
    c->workspace = (int)INT(o, "workspace", -1, n_bufs - 1);
    c->device = (int)INT(o, "device", 0, l->x->core >= 0);
    c->follows = truth(l, o, "follows");
    c->seconds = number(l, o, "seconds");
    c->growth = number(l, o, "growth");
    c->name = string(l, field(l, o, "name"));
    c->where = string(l, field(l, o, "where"));
    c->module = string(l, field(l, o, "module"));
    c->n_checks = (int)json_array_size(checks);
    WfExeCheck *check = WF_NEWN(l->a, WfExeCheck, (size_t)c->n_checks + 1);
    c->checks = check;
    for (int i = 0; i < c->n_checks; i++) {
        json_t *k = json_array_get(checks, (size_t)i);
        if (!json_is_array(k) || json_array_size(k) != 4)
            bad(l, "a check is malformed");
        check[i] = (WfExeCheck){string(l, json_array_get(k, 0)), string(l, json_array_get(k, 1)), dim(l, json_array_get(k, 2)),
                                dim(l, json_array_get(k, 3))};
    }
}

static void read_pairs(Load *l, const WfExeProgram *p)
{
    for (int i = 0; i < p->n_calls; i++) {
        const WfExeCall *c = &p->calls[i];
        const int64_t *t = c->param;
        if (c->kind != WF_CALL_START && c->kind != WF_CALL_WAIT)
            continue;
        if (t[WF_TRAVEL_KIND] < 0 || t[WF_TRAVEL_KIND] >= WF_COLLECTIVES || t[WF_TRAVEL_OP] < 0 ||
            t[WF_TRAVEL_OP] >= WF_COMM_REDUCTIONS || t[WF_TRAVEL_ROOT] < 0 || t[WF_TRAVEL_ROOT] > INT32_MAX ||
            t[WF_TRAVEL_TO_ROOT] < 0 || t[WF_TRAVEL_TO_ROOT] > 1 || c->n != (wf_in_place(t[WF_TRAVEL_KIND]) ? 1 : 2))
            bad(l, "a collective is malformed");
        for (int k = 0; k < c->n; k++)
            if (p->bufs[c->operand[k].buf].place != WF_PLACE_ARENA)
                bad(l, "what travels lies in no arena");
        if (c->kind == WF_CALL_WAIT && (t[WF_TRAVEL_START] < 0 || t[WF_TRAVEL_START] >= i ||
                                        p->calls[t[WF_TRAVEL_START]].kind != WF_CALL_START))
            bad(l, "a wait has no start");
    }
    int call;
    const char *wrong = wf_exe_check_pairs(p, &call);
    if (wrong)
        bad(l, wf_arena_printf(l->a, "call %d: %s", call, wrong));
}

static void read_program(Load *l, json_t *o, WfExeProgram *p)
{
    WfExe *x = l->x;
    json_t *calls = list(l, o, "calls", 1 << 20), *bufs = list(l, o, "bufs", 1 << 21),
           *outs = list(l, o, "outputs", 1 << 20);
    p->n_calls = (int)json_array_size(calls);
    p->n_bufs = (int)json_array_size(bufs);
    p->n_outputs = (int)json_array_size(outs);
    p->commit = (int)INT(o, "commit", 0, p->n_calls);
    p->bufs = WF_NEWN(l->a, WfExeBuf, (size_t)p->n_bufs + 1);
    p->calls = WF_NEWN(l->a, WfExeCall, (size_t)p->n_calls + 1);
    p->outputs = WF_NEWN(l->a, WfExeOutput, (size_t)p->n_outputs + 1);
    for (int i = 0; i < p->n_bufs; i++) {
        json_t *b = json_array_get(bufs, (size_t)i);
        WfExeBuf *f = &p->bufs[i];
        f->place = (WfPlace)INT(b, "place", 0, WF_PLACE_FRAME);
        f->dtype = dtype(l, b);
        f->rank = dims(l, field(l, b, "shape"), f->shape);
        if (dims(l, field(l, b, "stride"), f->stride) != f->rank)
            bad(l, "a buffer is malformed");
        f->bytes = dim(l, field(l, b, "bytes"));
        int among = f->place == WF_PLACE_GIVEN ? p->n_outputs : f->place == WF_PLACE_FRAME ? x->n_saved : x->n_inputs;
        f->input = (int)INT(b, "input", f->place == WF_PLACE_SLAB || f->place == WF_PLACE_ARENA ? -1 : 0, among - 1);
        f->first = (int)INT(b, "first", -1, p->n_calls);
        f->last = (int)INT(b, "last", -1, p->n_calls);
        f->same_as = (int)INT(b, "same_as", -1, i - 1);
        f->inside = (int)INT(b, "inside", -1, f->place == WF_PLACE_ARENA ? p->n_bufs - 1 : -1);
        f->at = dim(l, field(l, b, "at"));
        f->device = (int)INT(b, "device", 0, x->core >= 0);
        f->name = string(l, field(l, b, "name"));
    }
    for (int i = 0; i < p->n_calls; i++)
        read_call(l, json_array_get(calls, (size_t)i), &p->calls[i], p->n_bufs);
    for (int i = 0; i < p->n_calls; i++)
        if (p->calls[i].follows &&
            (p->calls[i].kind != WF_CALL_KERNEL || i == 0 || i == p->commit || p->calls[i - 1].kind != WF_CALL_LIB))
            bad(l, "a call follows what it cannot follow");
    for (int i = 0; i < p->n_bufs; i++)
        if (p->bufs[i].inside >= 0 &&
            (p->bufs[p->bufs[i].inside].place != WF_PLACE_ARENA || p->bufs[p->bufs[i].inside].inside >= 0))
            bad(l, "a buffer lies in something that is no bucket");
    read_pairs(l, p);
    for (int i = 0; i < p->n_outputs; i++) {
        json_t *e = json_array_get(outs, (size_t)i);
        p->outputs[i].role = (WfExeOutRole)INT(e, "role", 0, WF_XOUT_SAVED);
        p->outputs[i].name = string(l, field(l, e, "name"));
        p->outputs[i].buf = (int)INT(e, "buf", -1, p->n_bufs - 1);
        p->outputs[i].input = (int)INT(e, "input", 0, x->n_inputs ? x->n_inputs - 1 : 0);
    }
}

static void read_groups(Load *l, json_t *j)
{
    WfExe *x = l->x;
    json_t *a = list(l, j, "groups", 1 << 16);
    x->n_groups = (int)json_array_size(a);
    x->groups = WF_NEWN(l->a, WfExeGroup, (size_t)x->n_groups + 1);
    for (int i = 0; i < x->n_groups; i++) {
        json_t *o = json_array_get(a, (size_t)i);
        x->groups[i] = (WfExeGroup){.optimizer = need_string(l, o, "optimizer"),
                                    .lr = number(l, o, "lr"),
                                    .betas = {number(l, o, "beta1"), number(l, o, "beta2")},
                                    .eps = number(l, o, "eps"),
                                    .weight_decay = number(l, o, "weight_decay"),
                                    .momentum = number(l, o, "momentum"),
                                    .dampening = number(l, o, "dampening"),
                                    .alpha = number(l, o, "alpha"),
                                    .lr_decay = number(l, o, "lr_decay"),
                                    .nesterov = truth(l, o, "nesterov"),
                                    .amsgrad = truth(l, o, "amsgrad"),
                                    .maximize = truth(l, o, "maximize"),
                                    .centered = truth(l, o, "centered"),
                                    .lr_scale = number(l, o, "lr_scale")};
    }
}

static void read_rank_groups(Load *l, json_t *j)
{
    WfExe *x = l->x;
    json_t *a = list(l, j, "rank_groups", 64);
    x->ranks = (int)INT(j, "ranks", 1, 65536);
    x->n_rank_groups = (int)json_array_size(a);
    x->rank_groups = WF_NEWN(l->a, WfRankGroup, (size_t)x->n_rank_groups + 1);
    for (int i = 0; i < x->n_rank_groups; i++) {
        const char *text = string(l, json_array_get(a, (size_t)i));
        if (!text)
            bad(l, "a group of ranks is empty");
        x->rank_groups[i] = wf_rank_group(l->ctx, l->a, text, x->ranks);
    }
}

static void read_all(Load *l, json_t *j)
{
    WfExe *x = l->x;
    if (!json_is_object(j))
        bad(l, "exe.json is no object");
    if (INT(j, "format", 0, INT64_MAX) != WF_EXE_FORMAT)
        bad(l, "it was written by another version of Weft");
    x->signature = need_string(l, j, "signature");
    x->options = need_string(l, j, "options");
    x->isa = (int)INT(j, "isa", 0, 5);
    x->has_loss = truth(l, j, "has_loss");
    x->core = (int)INT(j, "core", -1, 65535);
    x->accumulate = (int)INT(j, "accumulate", 0, 65536);
    json_t *w = list(l, j, "warnings", 64);
    x->n_warnings = (int)json_array_size(w);
    x->warnings = WF_NEWN(l->a, const char *, (size_t)x->n_warnings + 1);
    for (int i = 0; i < x->n_warnings; i++)
        if (!(x->warnings[i] = string(l, json_array_get(w, (size_t)i))))
            bad(l, "a warning is empty");
    read_symbols(l, j);
    read_inputs(l, j);
    read_groups(l, j);
    read_rank_groups(l, j);
    json_t *kept = list(l, j, "saved", 1 << 20);
    x->n_saved = (int)json_array_size(kept);
    x->saved = WF_NEWN(l->a, WfExeSaved, (size_t)x->n_saved + 1);
    for (int i = 0; i < x->n_saved; i++)
        x->saved[i].bytes = dim(l, json_array_get(kept, (size_t)i));
    json_t *p = list(l, j, "programs", WF_PROGRAMS);
    if (json_array_size(p) != WF_PROGRAMS)
        bad(l, "a program is missing");
    for (int i = 0; i < WF_PROGRAMS; i++)
        read_program(l, json_array_get(p, (size_t)i), &x->program[i]);
    if (x->accumulate != 1 && !x->program[WF_PROG_MICRO].n_calls)
        bad(l, "the program of its micro-batches is missing");
}

WfExe *wf_exe_parse(WfCtx *ctx, WfArena *a, const uint8_t *json, size_t size, const char *what)
{
    WfExe *x = WF_NEW(a, WfExe);
    Load l = {.ctx = ctx, .a = a, .x = x, .path = what};
    x->ctx = ctx;
    x->arena = a;
    x->exprs = wf_exprs_new(ctx, a);
    read_all(&l, wf_json_parse(ctx, (const char *)json, size, what));
    return x;
}

WfExe *wf_exe_load(WfCtx *ctx, WfArena *a, const char *path)
{
    return wf_exe_open(ctx, a, wf_file_map(ctx, a, path));
}

WfExe *wf_exe_open(WfCtx *ctx, WfArena *a, const WfFile *f)
{
    const char *path = f->path;
    WfZip *z = wf_zip_open(ctx, a, f, WF_ZIP_CHECK);
    const WfZipEntry *e = wf_zip_find(z, "exe.json"), *w = wf_zip_find(z, "weights.safetensors");
    Load l = {.ctx = ctx, .a = a, .path = path};
    if (!e)
        bad(&l, "exe.json is missing");
    WfExe *x = wf_exe_parse(ctx, a, e->at, e->size, path);
    for (int i = 0; i < 2; i++) {
        const WfZipEntry *o = wf_zip_find(z, i ? "kernels.v4.so" : "kernels.v3.so");
        x->object[i] = o ? o->at : NULL;
        x->object_size[i] = o ? o->size : 0;
    }
    if (w)
        x->weights = wf_safetensors_parse(ctx, a, w->at, w->size, path);
    return x;
}
