/* weft export: the weights of a training in a form that others read. What is written follows from the name of the file. */
#include "cli/cli.h"

#include "import/import.h"
#include "onnx/onnx.h"
#include "pipeline.h"

#include <string.h>

static bool ends(const char *s, const char *tail)
{
    size_t n = strlen(s), t = strlen(tail);
    return n >= t && !strcmp(s + n - t, tail);
}

static bool kept(const WfInput *in) { return in->role == WF_IN_PARAM || (in->role == WF_IN_BUFFER && in->persistent); }

/* The model's tensors under all their names, those of --weights where it has them, dense. */
static WfTensors *values_of(weft_program *p)
{
    WfCtx *ctx = p->ctx;
    WfArena *a = p->arena;
    WfGraph *g = p->graph;
    WfWanted *w = WF_NEWN(a, WfWanted, (size_t)g->inputs.n + 1);
    WfTensors *all = WF_NEW(a, WfTensors);
    int n = 0, names = 0;
    for (int i = 0; i < g->inputs.n; i++) {
        const WfInput *in = &g->inputs.at[i];
        const WfValue *v = wf_value(g, in->val);
        if (!kept(in))
            continue;
        w[n] = (WfWanted){.name = in->name, .aliases = in->aliases, .n_aliases = in->n_aliases, .dtype = v->dtype, .rank = v->rank};
        memcpy(w[n++].shape, v->shape, (size_t)v->rank * sizeof *v->shape);
        names += 1 + in->n_aliases;
    }
    if (p->options.weights) {
        WfTensors *file = wf_weights_open(ctx, a, p->options.weights);
        wf_weights_fit(ctx, file, w, n, p->options.strict, "weights");
        wf_weights_tell(ctx, file, w, n);
    }
    all->by_name = wf_map_new(a);
    all->at = WF_NEWN(a, WfTensor, (size_t)names + 1);
    for (int i = 0; i < n; i++) {
        WfTensor t = {.name = w[i].name, .dtype = w[i].dtype, .rank = w[i].rank, .bytes = wf_dtype_size(w[i].dtype)};
        for (int d = 0; d < t.rank; d++) {
            t.shape[d] = w[i].shape[d];
            t.bytes = wf_mul_size(t.bytes, (size_t)t.shape[d]);
        }
        void *data = wf_arena_alloc(a, t.bytes);
        if (w[i].from)
            wf_weights_copy(&w[i], data);
        else
            wf_program_weight(p, w[i].name, data, t.bytes);
        t.data = data;
        for (int k = 0; k <= w[i].n_aliases; k++) {
            t.name = k ? w[i].aliases[k - 1] : w[i].name;
            wf_map_put(all->by_name, t.name, all->n);
            all->at[all->n++] = t;
        }
    }
    return all;
}

/* ---- ONNX: the evaluation form, before anything is taken apart ---- */

typedef struct { weft_program *p; const WfTensors *values; const WfOptions *options; const WfStrings *words; const char *beside; } Source;

static const void *value_of(void *user, const char *name, size_t bytes)
{
    Source *s = user;
    const WfTensor *t = wf_tensors_find(s->values, name);
    if (t)
        return t->bytes == bytes ? t->data : NULL;
    void *data = wf_arena_alloc(s->p->arena, bytes);
    return wf_program_weight(s->p, name, data, bytes) ? data : NULL;
}

static void beside(void *user, const char *path)
{
    Source *s = user;
    wf_cli_target(s->p->ctx, s->options, s->words, path, WF_TARGET_ONNX_DATA, NULL);
    s->beside = path;
}

/* The second file that it took, or NULL. */
static const char *export_onnx(weft_program *p, const WfTensors *values, const WfOptions *o, const WfStrings *words)
{
    WfOptions to = p->options;
    Source s = {p, values, o, words, NULL};
    WfOnnxData data = {value_of, beside, wf_env_size(p->ctx, "WEFT_ONNX_LIMIT", WF_ONNX_MOST), &s};
    data.limit = data.limit < WF_ONNX_MOST ? data.limit : WF_ONNX_MOST;
    to.accept_lost_stopgrad = true;
    wf_onnx_write(p->ctx, wf_compile_until(p->ctx, p->arena, p->graph, &to, "simplify/functionalize", true), data, o->out);
    return s.beside;
}

int wf_cli_export(WfCtx *ctx, const WfOptions *o, const WfStrings *words)
{
    if (!o->out || !(ends(o->out, ".pt2") || ends(o->out, ".onnx") || ends(o->out, ".safetensors")))
        wf_fail_at(ctx, WF_E_ARGUMENT_MISSING, NULL, "For example -o trained.pt2, -o model.onnx, or -o weights.safetensors.",
                   "the name of the file to write says what it is to hold, but %s",
                   o->out ? "it ends in neither .pt2, .onnx nor .safetensors" : "there is no --out");
    weft_program *p = wf_cli_open(ctx, o, words);
    if (p->loaded)
        wf_fail_at(ctx, WF_E_EXPORT_SOURCE, NULL, "Name the .pt2 that it was compiled from.",
                   "%s: a compiled step holds no export that could be written", words->at[0]);
    WfTensors *values = values_of(p);
    wf_cli_target(ctx, o, words, o->out, ends(o->out, ".pt2") ? WF_TARGET_EXPORT : ends(o->out, ".onnx") ? WF_TARGET_ONNX : WF_TARGET_WEIGHTS,
                  values->n ? values->at[0].name : "");
    const char *second = NULL;
    if (ends(o->out, ".pt2"))
        wf_pt2_rewrite(ctx, words->at[0], values, o->out);
    else if (ends(o->out, ".onnx"))
        second = export_onnx(p, values, o, words);
    else
        wf_safetensors_write(ctx, o->out, values->at, values->n);
    fprintf(stderr, "%s: %d tensors%s%s%s%s%s\n", o->out, values->n, o->weights ? " from " : ", those of the export",
            o->weights ? o->weights : "", second ? "; the weights are in " : "", second ? second : "", second ? ": keep it beside the model" : "");
    weft_program_free(p);
    return 0;
}
