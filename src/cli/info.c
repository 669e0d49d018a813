/* weft info: what a file holds. An export's operators are counted from its JSON, so that a model with
 * unsupported ones is described too; the rest comes from the importer, which believes nothing. */
#include "cli/cli.h"

#include "import/import.h"
#include "ops/ops.h"
#include "pipeline.h"
#include "simplify/simplify.h"
#include "weave/weave.h"

#include <jansson.h>
#include <string.h>

static void put_tensor(const char *kind, const char *name, const char *type)
{
    printf("%-10s %-40s %s\n", kind, name, type);
}

static char *tensor_type(WfArena *a, const WfTensor *t)
{
    WfStr s = {.arena = a};
    wf_str_printf(&s, "%s[", wf_dtype_name(t->dtype));
    for (int d = 0; d < t->rank; d++)
        wf_str_printf(&s, "%s%lld", d ? ", " : "", (long long)t->shape[d]);
    wf_str_putc(&s, ']');
    return s.at;
}

/* ---- safetensors ---- */

static void info_tensors(WfCtx *ctx, const char *path)
{
    WfTensors *t = wf_safetensors_open(ctx, ctx->arena, path);
    int64_t bytes = 0;
    for (int i = 0; i < t->n; i++) {
        put_tensor("tensor", t->at[i].name, tensor_type(ctx->arena, &t->at[i]));
        bytes += (int64_t)t->at[i].bytes;
    }
    printf("safetensors: %d tensors, %.2f MB\n", t->n, (double)bytes / 1e6);
}

/* ---- compiled steps ---- */

static void info_exe(WfCtx *ctx, const char *path)
{
    static const char *const roles[] = {"param", "buffer", "const", "input", "state", "scalar", "accum", "cotangent", "saved"};
    static const char *const outs[] = {"output", "loss", "update", "grad", "metric", "saved"};
    WfExe *x = wf_exe_load(ctx, ctx->arena, path);
    for (int i = 0; i < x->n_inputs; i++) {
        const WfExeInput *in = &x->inputs[i];
        WfStr s = {.arena = ctx->arena};
        wf_str_printf(&s, "%s[", wf_dtype_name(in->dtype));
        for (int d = 0; d < in->rank; d++) {
            wf_str_puts(&s, d ? ", " : "");
            wf_eprint(x->exprs, in->shape[d], &s);
        }
        wf_str_puts(&s, in->role == WF_XIN_PARAM && !in->trainable ? "] frozen" : "]");
        put_tensor(roles[in->role], in->name, s.at);
    }
    for (int i = 0; i < x->n_symbols; i++)
        printf("%-10s %-40s %lld to %lld\n", "dynamic", x->symbols[i].name, (long long)x->symbols[i].lo,
               (long long)x->symbols[i].hi);
    for (int k = 0; k < WF_PROGRAMS; k++)
        for (int i = 0; i < x->program[k].n_outputs; i++)
            if (x->program[k].outputs[i].role != WF_XOUT_UPDATE &&
                x->program[k].outputs[i].role != WF_XOUT_GRAD)
                put_tensor(outs[x->program[k].outputs[i].role], x->program[k].outputs[i].name,
                           k == WF_PROG_STEP ? "training" : k == WF_PROG_EVAL ? "evaluation" : "micro-batch");
    printf("compiled step: %d calls in training, %d in evaluation; kernels for%s%s; weights %s\n",
           x->program[WF_PROG_STEP].n_calls, x->program[WF_PROG_EVAL].n_calls,
           x->object[0] ? " x86-64-v3" : "", x->object[1] ? " x86-64-v4" : "",
           x->weights ? "inside" : "not inside");
    if (x->ranks > 1)
        printf("ranks      %d\n", x->ranks);
    for (int i = 0; i < x->n_rank_groups; i++) {
        WfStr s = {.arena = ctx->arena};
        wf_rank_group_text(&x->rank_groups[i], &s);
        printf("group      %s\n", s.at);
    }
    if (x->core >= 0)
        printf("device     core:%d\n", x->core);
    if (!x->accumulate)
        printf("accumulate any number of micro-batches in a step, %d calls each\n", x->program[WF_PROG_MICRO].n_calls);
    if (x->accumulate > 1)
        printf("accumulate %d micro-batches in a step, %d calls each\n", x->accumulate, x->program[WF_PROG_MICRO].n_calls);
    if (x->n_groups)
        printf("optimizer  %s, lr %g, %d group%s\n", x->groups[0].optimizer, x->groups[0].lr, x->n_groups,
               x->n_groups == 1 ? "" : "s");
}

/* ---- exports ---- */

typedef struct {
    WfMap *count;
} Ops;

static void count_ops(Ops *o, json_t *graph, int depth)
{
    size_t i, k;
    json_t *node, *in;
    if (depth > 32)
        return;
    json_array_foreach(json_object_get(graph, "nodes"), i, node)
    {
        const char *target = json_string_value(json_object_get(node, "target"));
        int64_t n = 0;
        if (!target)
            continue;
        wf_map_get(o->count, target, &n);
        wf_map_put(o->count, target, n + 1);
        json_array_foreach(json_object_get(node, "inputs"), k, in)
        {
            json_t *sub = json_object_get(json_object_get(in, "arg"), "as_graph");
            if (sub)
                count_ops(o, json_object_get(sub, "graph"), depth + 1);
        }
    }
}

static void put_ops(WfCtx *ctx, Ops *o)
{
    int kinds = wf_map_count(o->count), supported = 0;
    for (int i = 0; i < wf_map_count(o->count); i++) {
        size_t n;
        int64_t times;
        const char *name = wf_map_at(o->count, i, &n, &times);
        name = wf_arena_strndup(ctx->arena, name, n);
        bool known = wf_import_knows(name);
        supported += known;
        name += !strncmp(name, "torch.ops.", 10) ? 10 : 0;
        printf("%-10s %-40s %lld time%s%s\n", "op", name, (long long)times, times == 1 ? "" : "s",
               known ? "" : "  NOT SUPPORTED");
    }
    printf("operators  %d of %d kinds are supported\n", supported, kinds);
}

/* Groups of ranks that the model's collectives name: what --group is to declare, but for 0, which is all ranks. */
static void put_groups(WfCtx *ctx, WfGraph *g)
{
    WfMap *seen = wf_map_new(ctx->arena);
    for (int i = 1; i < g->nodes.n; i++) {
        const WfArg *name = wf_arg(wf_node(g, (WfNodeId)i), "group_name");
        const WfArg *size = wf_arg(wf_node(g, (WfNodeId)i), "group_size");
        int64_t n = 0;
        if (!name || name->kind != WF_ARG_STRING || (wf_map_get(seen, name->s, &n) && (n || !size)))
            continue;
        if (size && size->kind == WF_ARG_INT)
            wf_elit(g->exprs, size->i, &n);
        wf_map_put(seen, name->s, n);
    }
    for (int i = 0; i < wf_map_count(seen); i++) {
        size_t length;
        int64_t n;
        const char *name = wf_map_at(seen, i, &length, &n);
        put_tensor("group", wf_arena_strndup(ctx->arena, name, length),
                   length == 1 && *name == '0' ? "all ranks"
                   : n                         ? wf_arena_printf(ctx->arena, "of %lld ranks", (long long)n)
                                               : "of any size");
    }
}

/* Parameters by module: the name without its last part. */
static void put_modules(WfCtx *ctx, WfGraph *g)
{
    WfMap *sizes = wf_map_new(ctx->arena);
    for (int i = 0; i < g->inputs.n; i++) {
        const WfInput *in = &g->inputs.at[i];
        const char *dot = strrchr(in->name, '.');
        int64_t n = 0, have = 0;
        if (in->role != WF_IN_PARAM || !wf_elit(g->exprs, wf_numel(g, in->val), &n))
            continue;
        const char *module = wf_arena_strndup(ctx->arena, in->name, dot ? (size_t)(dot - in->name) : 0);
        wf_map_get(sizes, module, &have);
        wf_map_put(sizes, module, have + n);
    }
    for (int i = 0; i < wf_map_count(sizes); i++) {
        size_t length;
        int64_t n;
        const char *name = wf_map_at(sizes, i, &length, &n);
        put_tensor("module", length ? wf_arena_strndup(ctx->arena, name, length) : "(the model itself)",
                   wf_arena_printf(ctx->arena, "%lld parameters", (long long)n));
    }
}

static void put_graph(WfCtx *ctx, WfGraph *g)
{
    static const char *const roles[] = {"param", "buffer", "const", "input", "state", "scalar", "accum", "cotangent", "saved"};
    int64_t weights = 0, trainable = 0, n;
    for (int i = 0; i < g->inputs.n; i++) {
        const WfInput *in = &g->inputs.at[i];
        const char *type = wf_shape_text(g, in->val);
        if (in->role == WF_IN_PARAM && !in->trainable)
            type = wf_arena_printf(ctx->arena, "%s frozen", type);
        for (int k = 0; k < in->n_aliases; k++)
            type = wf_arena_printf(ctx->arena, "%s, also %s", type, in->aliases[k]);
        put_tensor(roles[in->role], in->name, type);
        if (in->role == WF_IN_PARAM && wf_elit(g->exprs, wf_numel(g, in->val), &n)) {
            weights += n;
            trainable += in->trainable ? n : 0;
        }
    }
    for (int i = 0; i < g->outputs.n; i++)
        if (g->outputs.at[i].role == WF_OUT_USER && g->outputs.at[i].val)
            put_tensor("output", g->outputs.at[i].name, wf_shape_text(g, g->outputs.at[i].val));
    for (int i = 0; i < wf_esym_count(g->exprs); i++) {
        int64_t lo, hi;
        wf_esym_range(g->exprs, i, &lo, &hi);
        if (hi == INT64_MAX)
            printf("%-10s %-40s %lld and more\n", "dynamic", wf_esym_name(g->exprs, i), (long long)lo);
        else
            printf("%-10s %-40s %lld to %lld\n", "dynamic", wf_esym_name(g->exprs, i), (long long)lo,
                   (long long)hi);
    }
    put_groups(ctx, g);
    put_modules(ctx, g);
    printf("parameters %.3f M, %.3f M of them trainable\n", (double)weights / 1e6, (double)trainable / 1e6);
}

/* ---- what it costs ---- */

typedef struct {
    WfCtx *ctx;
    WfGraph *g;
    const WfOptions *o;
    bool eval;
    double flops;
} Cost;

static void cost(void *v)
{
    Cost *c = v;
    WfGraph *g = wf_compile_until(c->ctx, c->ctx->arena, c->g, c->o, "simplify/prim", c->eval);
    c->flops = wf_weave_flops(g, wf_weave_usual(g));
}

/* For the sizes of the export's example. A step needs a loss, which the options may name. */
static void put_flops(WfCtx *ctx, WfGraph *g, const WfOptions *o)
{
    Cost forward = {ctx, g, o, true, 0}, step = {ctx, g, o, false, 0};
    if (wf_guard(ctx, cost, &forward) == WEFT_OK)
        printf("forward    %.3f MFLOP in products, for the sizes of the example\n", forward.flops / 1e6);
    else
        printf("forward    %s\n", ctx->diag.message);
    if (wf_guard(ctx, cost, &step) == WEFT_OK)
        printf("step       %.3f MFLOP in products\n", step.flops / 1e6);
    else
        printf("step       %s\n", ctx->diag.message);
}

typedef struct {
    WfCtx *ctx;
    const char *path;
    WfModel *m;
} Import;
static void import(void *v)
{
    Import *i = v;
    i->m = wf_import_pt2(i->ctx, i->ctx->arena, i->path, true);
}

static int info_export(WfCtx *ctx, const WfOptions *options, const char *path)
{
    Import m = {ctx, path, NULL};
    Ops o = {wf_map_new(ctx->arena)};
    wf_ops_init();
    weft_status s = wf_guard(ctx, import, &m);
    if (s != WEFT_OK && (s != WEFT_ERR_UNSUPPORTED || ctx->diag.kind == WF_E_NOT_EXPORT || ctx->diag.kind == WF_E_ZIP_STORED))
        wf_reraise(ctx, s);
    WfZip *z = wf_zip_open(ctx, ctx->arena, wf_file_map(ctx, ctx->arena, path), 0);
    for (int i = 0; i < z->n; i++) {
        const char *name = strstr(z->at[i].name, "/models/");
        size_t n = strlen(z->at[i].name);
        if (!name || n < 5 || strcmp(z->at[i].name + n - 5, ".json"))
            continue;
        json_t *j = (json_t *)wf_json_parse(ctx, (const char *)z->at[i].at, z->at[i].size, path);
        count_ops(&o, json_object_get(json_object_get(j, "graph_module"), "graph"), 0);
    }
    if (m.m)
        put_graph(ctx, m.m->graph);
    put_ops(ctx, &o);
    if (m.m) {
        put_flops(ctx, m.m->graph, options);
        bool evaluates = wf_simplify_evaluates(m.m->graph) != NULL;
        printf("export of PyTorch %s%s%s\n", *m.m->torch_version ? m.m->torch_version : "?",
               !m.m->training ? ", decomposed: no_grad and detach may be lost" : evaluates ? "" : ", for training",
               evaluates ? ", in evaluation mode: call model.train() before torch.export.export" : "");
        return 0;
    }
    wf_reraise(ctx, s);
}

int wf_cli_info(WfCtx *ctx, const WfOptions *o, const WfStrings *words)
{
    if (words->n != 1)
        wf_fail(ctx, WF_E_ARGUMENT_MISSING, "name one file: a .pt2 export, a .weft step, a .safetensors file, or the folder of a run");
    const char *path = words->at[0];
    size_t n = strlen(path);
    if (wf_cli_checkpoints(ctx, path))
        return 0;
    if (n > 5 && !strcmp(path + n - 5, ".onnx"))
        wf_fail_at(ctx, WF_E_NOT_PT2, NULL, "Netron shows it, and onnxruntime runs it.", "%s: this is an ONNX model, which Weft writes but does not read",
                   path);
    WfFile *f = wf_file_map(ctx, ctx->arena, path);
    if (f->size < 4 || memcmp(f->at, "PK\3\4", 4)) {
        info_tensors(ctx, words->at[0]);
        return 0;
    }
    WfZip *z = wf_zip_open(ctx, ctx->arena, f, WF_ZIP_DEFLATED);
    if (!wf_zip_find(z, "exe.json"))
        return info_export(ctx, o, words->at[0]);
    info_exe(ctx, words->at[0]);
    return 0;
}
