/* PT2 archives, as torch.export.save writes them: the order of reading. First the container and its version,
 * then the tables of weights, the symbolic sizes, the operators (all missing ones are reported together), the
 * inputs of the signature, the nodes, and the outputs. Parameters that are the same tensor become one input
 * with several names. */
#include "import/private.h"

#include <string.h>

enum { SCHEMA_MAJOR = 8 };

static const char recipe[] = "export the training dialect, without run_decompositions(): "
                             "torch.export.save(torch.export.export(model.train(), args), \"model.pt2\")";

/* ---- inputs ---- */

static const Weight *stored(Imp *m, const char *fqn)
{
    int64_t i;
    if (!wf_map_get(m->by_fqn, fqn, &i))
        bad(m, "'%.120s' has no data in the archive", fqn);
    return &m->weights.at[i];
}

static void set_data(Imp *m, WfInput *in, const Weight *w)
{
    in->data = w->data;
    memcpy(in->strides, w->strides, sizeof in->strides);
    (void)m;
}

/* The graph input that stands for a stored tensor; made at the first of its names. */
static WfVal stored_input(Imp *m, WfGraph *g, const char *fqn, WfInRole role, bool persistent)
{
    const Weight *w = stored(m, fqn);
    int self = (int)(w - m->weights.at);
    if (w->input >= 0)
        return g->inputs.at[w->input].val;
    WfDim shape[WF_MAX_RANK];
    int first = -1, n = 0;
    bool trains = false;
    const char **names = WF_NEWN(m->a, const char *, (size_t)m->weights.n);
    for (int i = 0; i < m->weights.n; i++) {
        Weight *o = &m->weights.at[i];
        bool same = i == self || (role != WF_IN_CONST && imp_same_tensor(w, o));
        if (!same || o->input >= 0)
            continue;
        first = first < 0 ? i : first;
        names[n++] = o->fqn;
        trains |= o->requires_grad;
        o->input = g->inputs.n;
    }
    for (int i = 0; i < w->rank; i++)
        shape[i] = w->sizes[i];
    WfVal v = wf_add_input(g, role, names[0], w->dtype, w->rank, shape);
    WfInput *in = &g->inputs.at[g->inputs.n - 1];
    in->trainable = role == WF_IN_PARAM && trains;
    in->persistent = persistent;
    in->aliases = names + 1;
    in->n_aliases = n - 1;
    set_data(m, in, w);
    return v;
}

/* The file describes a stored tensor twice, in the graph and in the table; they must agree. */
static void check_stored(Imp *m, Scope *s, const char *arg, WfVal v, const char *fqn)
{
    WfDim shape[WF_MAX_RANK];
    int rank;
    bool contiguous;
    WfDtype t = imp_meta(m, imp_get(m, s->tensor_values, arg, JSON_OBJECT), &rank, shape, &contiguous);
    const WfValue *x = wf_value(s->g, v);
    if (x->dtype != t || x->rank != rank || memcmp(x->shape, shape, (size_t)rank * sizeof *shape))
        bad(m, "the model and its table of weights disagree about the type or shape of '%.120s'", fqn);
    wf_value(s->g, v)->contiguous = contiguous;
}

static const char *arg_name(Imp *m, const json_t *spec)
{
    return imp_tensor_name(m, imp_get(m, spec, "arg", JSON_OBJECT));
}

static void user_input(Imp *m, Scope *s, const json_t *spec)
{
    const json_t *v;
    const char *tag = imp_tag(m, imp_get(m, spec, "arg", JSON_OBJECT), &v);
    if (!strcmp(tag, "as_none"))
        return;
    if (strcmp(tag, "as_tensor"))
        imp_fail(m, WF_E_MODEL_FORM, "pass it as a tensor, or give it a default value in forward",
                 "the model takes an input that is no tensor (%.40s)", tag);
    imp_tensor_input(m, s, v);
}

static void one_input(Imp *m, Scope *s, const char *kind, const json_t *spec)
{
    WfVal v;
    const char *fqn;
    if (!strcmp(kind, "parameter")) {
        fqn = imp_string(m, spec, "parameter_name");
        v = stored_input(m, s->g, fqn, WF_IN_PARAM, true);
    } else if (!strcmp(kind, "buffer")) {
        fqn = imp_string(m, spec, "buffer_name");
        v = stored_input(m, s->g, fqn, WF_IN_BUFFER, imp_bool(m, spec, "persistent", true));
    } else if (!strcmp(kind, "tensor_constant")) {
        fqn = imp_string(m, spec, "tensor_constant_name");
        v = stored_input(m, s->g, fqn, WF_IN_CONST, false);
    } else if (!strcmp(kind, "user_input")) {
        user_input(m, s, spec);
        return;
    } else if (!strcmp(kind, "constant_input")) {
        return; /* a Python value that was fixed by the export */
    } else {
        unsupported(m, "the model takes an input of kind '%.40s'", kind);
    }
    const char *arg = arg_name(m, spec);
    check_stored(m, s, arg, v, fqn);
    imp_define(m, s, arg, v);
}

void imp_signature(Imp *m, Scope *s, const json_t *graph, const json_t *signature)
{
    const json_t *specs = imp_get(m, signature, "input_specs", JSON_ARRAY);
    const json_t *inputs = imp_get(m, graph, "inputs", JSON_ARRAY);
    if (json_array_size(specs) != json_array_size(inputs))
        bad(m, "the signature and the graph disagree about the number of inputs");
    for (size_t i = 0; i < json_array_size(specs); i++) {
        const json_t *spec;
        const char *kind = imp_tag(m, json_array_get(specs, i), &spec);
        one_input(m, s, kind, spec);
    }
    for (int i = 0; i < m->weights.n;
         i++) { /* parameters that the graph never mentions: kept for checkpoints */
        const Weight *w = &m->weights.at[i];
        if (w->input < 0 && !strncmp(w->file, "weights/", 8))
            stored_input(m, s->g, w->fqn, w->is_param ? WF_IN_PARAM : WF_IN_BUFFER, true);
    }
}

/* ---- outputs ---- */

static void update(Imp *m, Scope *s, const json_t *spec, const char *key)
{
    const char *fqn = imp_string(m, spec, key);
    const Weight *w = stored(m, fqn);
    if (w->input < 0)
        bad(m, "'%.120s' is updated, but is no input", fqn);
    WfVal v = imp_tensor(m, s, arg_name(m, spec)), to = s->g->inputs.at[w->input].val;
    const WfValue *x = wf_value(s->g, v), *y = wf_value(s->g, to);
    if (!wf_same_shape(s->g, v, to) || x->dtype != y->dtype)
        bad(m, "the new value of '%.120s' has another type or shape", fqn);
    wf_add_output(s->g, WF_OUT_UPDATE, s->g->inputs.at[w->input].name, v, w->input);
}

void imp_outputs(Imp *m, Scope *s, const json_t *graph, const json_t *signature)
{
    const json_t *specs = imp_get(m, signature, "output_specs", JSON_ARRAY), *spec, *v;
    int leaf = 0;
    (void)graph;
    for (size_t i = 0; i < json_array_size(specs); i++) {
        const char *kind = imp_tag(m, json_array_get(specs, i), &spec);
        if (!strcmp(kind, "user_output") || !strcmp(kind, "loss_output")) {
            const json_t *arg = imp_get(m, spec, "arg", JSON_OBJECT);
            const char *name = wf_arena_printf(m->a, "%d", leaf++);
            if (!strcmp(kind, "loss_output"))
                wf_add_output(s->g, WF_OUT_USER, name, imp_tensor(m, s, imp_tensor_name(m, arg)), 0);
            else if (!strcmp(imp_tag(m, arg, &v), "as_tensor"))
                wf_add_output(s->g, WF_OUT_USER, name, imp_tensor(m, s, imp_tensor_name(m, v)), 0);
        } else if (!strncmp(kind, "gradient_to_", 12)) {
            imp_fail(m, WF_E_BACKWARD_INSIDE, recipe, "the file already holds a backward pass");
        } else if (strcmp(kind, "buffer_mutation") && strcmp(kind, "parameter_mutation") &&
                   strcmp(kind, "user_input_mutation")) {
            unsupported(m, "the model has an output of kind '%.40s'", kind);
        }
    }
    for (size_t i = 0; i < json_array_size(specs); i++) {
        const char *kind = imp_tag(m, json_array_get(specs, i), &spec);
        if (!strcmp(kind, "buffer_mutation"))
            update(m, s, spec, "buffer_name");
        else if (!strcmp(kind, "parameter_mutation"))
            update(m, s, spec, "parameter_name");
    }
    if (!s->g->outputs.n)
        bad(m, "the model returns no tensor");
}

/* ---- the whole ---- */

/* What the file says of its own form. */
static void check_version(Imp *m, const json_t *j, WfModel *model, bool accept)
{
    const json_t *version = imp_get(m, j, "schema_version", JSON_OBJECT);
    int64_t major = imp_int(m, version, "major");
    const json_t *torch = json_object_get(j, "torch_version");
    model->torch_version = wf_arena_strdup(m->a, json_is_string(torch) ? json_string_value(torch) : "");
    model->schema_minor = (int)imp_int(m, version, "minor");
    if (major != SCHEMA_MAJOR)
        imp_fail(m, WF_E_PT2_VERSION, "load and save it with the PyTorch that this Weft was made for",
                 "the export has schema version %lld (PyTorch %.40s); Weft reads %d", (long long)major,
                 model->torch_version, SCHEMA_MAJOR);
    const json_t *verifiers = json_object_get(j, "verifiers"), *dialect = json_object_get(j, "dialect");
    for (size_t i = 0; i < json_array_size(verifiers); i++) {
        const char *v = json_string_value(json_array_get(verifiers, i));
        model->training |= v && !strcmp(v, "TRAINING");
    }
    model->training |= json_is_string(dialect) && !strcmp(json_string_value(dialect), "TRAINING");
    if (!model->training && !accept)
        imp_fail(m, WF_E_STOPGRAD_LOST, recipe,
                 "the export was decomposed, which loses torch.no_grad() and detach(): "
                 "gradients may be wrong (--accept-lost-stopgrad takes it all the same)");
}

static void check_no_objects(Imp *m, const json_t *graph)
{
    const json_t *objects = imp_opt(m, graph, "custom_obj_values", JSON_OBJECT);
    if (objects && json_object_size(objects))
        imp_fail(m, WF_E_PICKLE, NULL, "the model holds custom objects, which Weft cannot read");
}

static WfModel *import(WfCtx *ctx, WfArena *a, const WfFile *f, bool accept)
{
    wf_ops_init();
    Imp *m = WF_NEW(a, Imp);
    m->ctx = ctx;
    m->a = a;
    m->path = f->path;
    m->e = wf_exprs_new(ctx, a);
    m->source_ids = wf_map_new(a);
    WF_PUSH(a, &m->sources, (WfSource){0});
    imp_open(m, f);
    WfModel *model = WF_NEW(a, WfModel);
    model->path = f->path;
    const WfZipEntry *e = imp_entry(m, "models/%s.json", m->name);
    model->json = e->at;
    model->json_size = e->size;
    WfDefer *parsed;
    const json_t *j = wf_json_load(ctx, (const char *)e->at, e->size, m->path, &parsed);
    if (!json_is_object(j) || !json_object_get(j, "graph_module"))
        bad(m, "the archive's model description is of an unknown form");
    check_version(m, j, model, accept);
    const json_t *module = imp_get(m, j, "graph_module", JSON_OBJECT);
    const json_t *graph = imp_get(m, module, "graph", JSON_OBJECT);
    const json_t *signature = imp_get(m, module, "signature", JSON_OBJECT);
    check_no_objects(m, graph);
    imp_check_ops(m, graph);
    const json_t *ranges = imp_opt(m, j, "range_constraints", JSON_OBJECT);
    if (ranges)
        imp_symbols(m, ranges);
    imp_weights(m);
    imp_check_overlaps(m);
    m->top = wf_graph_new(ctx, a, m->e, WF_ATEN);
    Scope s;
    imp_scope(m, &s, m->top, graph);
    imp_signature(m, &s, graph, signature);
    imp_nodes(m, &s, graph);
    m->place = NULL;
    imp_outputs(m, &s, graph, signature);
    for (int i = 0; i < m->graphs.n; i++) {
        WfGraph *g = m->graphs.at[i];
        g->sources.at = m->sources.at;
        g->sources.n = g->sources.cap = m->sources.n;
        g->source = 0;
    }
    model->graph = m->top;
    wf_defer_run(parsed); /* whatever the graph keeps was copied */
    return model;
}

WfModel *wf_import_pt2(WfCtx *ctx, WfArena *a, const char *path, bool accept_lost_stopgrad)
{
    return import(ctx, a, wf_file_map(ctx, a, path), accept_lost_stopgrad);
}

WfModel *wf_import_pt2_bytes(WfCtx *ctx, WfArena *a, const void *at, size_t size, const char *what,
                             bool accept_lost_stopgrad)
{
    WfFile f = {.at = at, .size = size, .path = wf_arena_strdup(a, what)};
    return import(ctx, a, &f, accept_lost_stopgrad);
}
