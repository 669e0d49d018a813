/* The compiler half of the public interface: models, graphs built by hand, the cache of compiled steps. A cache entry is
 * a compiled step without weights, keyed by everything that shapes it; it is written atomically, so that concurrent
 * writers cannot harm each other, and a damaged one is compiled again with a warning. */
#include "api/api.h"

#include "emit/emit.h"
#include "import/import.h"
#include "ops/ops.h"
#include "pipeline.h"

#include <dlfcn.h>
#include <string.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

const char *wf_cache_dir(WfCtx *ctx, WfArena *a, const WfOptions *o)
{
    (void)ctx;
    if (!o->cache)
        return NULL;
    if (o->cache_dir)
        return o->cache_dir;
    if (wf_env("WEFT_CACHE_DIR"))
        return wf_env("WEFT_CACHE_DIR");
    if (wf_env("XDG_CACHE_HOME"))
        return wf_arena_printf(a, "%s/weft", wf_env("XDG_CACHE_HOME"));
    return wf_env("HOME") ? wf_arena_printf(a, "%s/.cache/weft", wf_env("HOME")) : NULL;
}

void wf_program_open_model(weft_program *p, const char *path)
{
    wf_ops_init();
    WfModel *m = wf_import_pt2(p->ctx, p->arena, path, true);
    p->graph = m->graph;
    p->identity = m->json;
    p->identity_size = m->json_size;
    if (!m->training && !p->options.accept_lost_stopgrad)
        p->build = m; /* refused when it is to be trained; see wf_program_compile */
}

static void add_text(WfSha *h, const char *s) { wf_sha_add(h, s ? s : "", s ? strlen(s) + 1 : 1); }

/* What names a compiled step: model, options, this build, compiler, instruction set. */
static void key_of(weft_program *p, char hex[65])
{
    WfSha *h = wf_sha_new(p->ctx, p->arena);
    WfStr o = {.arena = p->arena};
    struct stat st;
    const char *all[WF_MAX_COMPILERS], *cc = wf_compilers(p->arena, all, WF_MAX_COMPILERS) ? all[0] : "none";
    wf_sha_add(h, p->identity, p->identity_size);
    for (int i = 0; i < p->graph->inputs.n; i++) { /* the weight table: ties are not in the graph's JSON */
        const WfInput *in = &p->graph->inputs.at[i];
        add_text(h, in->name);
        for (int k = 0; k < in->n_aliases; k++)
            add_text(h, in->aliases[k]);
        wf_sha_add(h, &in->trainable, sizeof in->trainable);
    }
    wf_options_key(&p->options, &o);
    add_text(h, o.at);
    if (p->options.nproc > 1) { /* what chooses the buckets */
        wf_sha_add(h, &p->options.machine.flops, 2 * sizeof(double));
        wf_sha_add(h, &p->options.machine.link[p->options.link], sizeof(WfLink));
    }
    const char *const files[] = {p->options.loss_weights, p->options.pos_weight};
    for (size_t i = 0; i < WF_LEN(files); i++) /* what the step takes from them, not where they lie, decides */
        if (files[i]) {
            WfFile *f = wf_file_map(p->ctx, p->arena, files[i]);
            wf_sha_add(h, f->at, f->size);
        }
    add_text(h, weft_version());
    Dl_info self; /* this build: the file that holds this code */
    if ((dladdr((void *)(uintptr_t)weft_version, &self) && self.dli_fname && !stat(self.dli_fname, &st)) ||
        !stat("/proc/self/exe", &st)) {
        wf_sha_add(h, &st.st_size, sizeof st.st_size);
        wf_sha_add(h, &st.st_mtim, sizeof st.st_mtim);
    }
    add_text(h, cc);
    if (strchr(cc, '/') ? !stat(cc, &st) : !stat(wf_arena_printf(p->arena, "/usr/bin/%s", cc), &st)) {
        wf_sha_add(h, &st.st_size, sizeof st.st_size);
        wf_sha_add(h, &st.st_mtime, sizeof st.st_mtime);
    }
    int isa = wf_isa_level();
    wf_sha_add(h, &isa, sizeof isa);
    wf_sha_hex(h, hex);
}

typedef struct { weft_program *p; const char *path, *cache; const WfExe *x; const WfFile *entry; } Cached;

static void load_entry(void *v)
{
    Cached *c = v;
    wf_log(c->p->ctx, WF_LOG_DEBUG, "reading %s", c->path);
    c->entry = wf_file_map(c->p->ctx, c->p->arena, c->path);
    c->x = wf_exe_open(c->p->ctx, c->p->arena, c->entry);
}

static void store_entry(void *v)
{
    Cached *c = v;
    char *dir = wf_arena_strdup(c->p->arena, c->path);
    *strrchr(dir, '/') = 0;
    wf_mkdirs(c->p->ctx, dir);
    wf_exe_save(c->p->ctx, c->x, c->path);
}

static void compile(void *v)
{
    Cached *c = v;
    c->x = wf_compile(c->p->ctx, c->p->arena, c->p->graph, &c->p->options, c->cache);
}

/* With the kernel cache; when that cannot be read, written or linked, without. */
static const WfExe *compile_with(weft_program *p, const char *cache)
{
    Cached c = {.p = p, .cache = cache};
    weft_status s = wf_guard(p->ctx, compile, &c);
    if (cache && (s == WEFT_ERR_IO || s == WEFT_ERR_ENVIRONMENT)) {
        char *why = wf_arena_strdup(p->arena, p->ctx->diag.message);
        c.cache = NULL;
        if (wf_guard(p->ctx, compile, &c) == WEFT_OK) {
            wf_log(p->ctx, WF_LOG_WARN, "the kernel cache cannot be used: %s", why);
            return c.x;
        }
    }
    if (s != WEFT_OK)
        wf_reraise(p->ctx, s);
    return c.x;
}

/* The file of the cache that holds the step, whether or not it is there; NULL without a cache. */
static const char *entry_path(weft_program *p, const char *cache)
{
    char hex[65];
    if (!cache || !p->identity)
        return NULL;
    key_of(p, hex);
    return wf_arena_printf(p->arena, "%s/x/%.2s/%s.weft", cache, hex, hex + 2);
}

bool wf_program_cached(weft_program *p)
{
    const char *cache = wf_cache_dir(p->ctx, p->arena, &p->options), *path;
    wf_machine_load(p->ctx, p->arena, cache, &p->options.machine);
    path = entry_path(p, cache);
    return path && wf_file_exists(path);
}

void wf_program_compile(weft_program *p)
{
    double t = wf_now();
    p->entry = NULL;
    if (p->build && !p->options.accept_lost_stopgrad)
        wf_fail_at(p->ctx, WF_E_STOPGRAD_LOST, p->path,
                   "Export again with torch.export.export(model.train(), inputs) and save that, without "
                   "run_decompositions(); or say --accept-lost-stopgrad if the model has no detach and no no_grad.",
                   "this export was decomposed, which loses detach and no_grad, so gradients may be wrong");
    const char *cache = wf_cache_dir(p->ctx, p->arena, &p->options);
    Cached c = {.p = p};
    if (p->options.nproc > 1)
        wf_machine_load(p->ctx, p->arena, cache, &p->options.machine);
    c.path = entry_path(p, cache);
    if (c.path && wf_file_exists(c.path) && !p->options.dump_dir) { /* dumps are made by compiling */
        if (wf_guard(p->ctx, load_entry, &c) == WEFT_OK) {
            p->exe = c.x;
            p->from_cache = true;
            p->compile_s = wf_now() - t;
            wf_program_warn(p);
            p->entry = c.entry;
            return;
        }
        wf_log(p->ctx, WF_LOG_WARN, "the cached step is damaged and is compiled again: %s", p->ctx->diag.message);
    }
    p->exe = compile_with(p, cache);
    p->compile_s = wf_now() - t;
    wf_program_warn(p);
    c.x = p->exe;
    if (c.path && wf_guard(p->ctx, store_entry, &c) == WEFT_OK)
        p->entry = wf_file_map(p->ctx, p->arena, c.path);
    else if (c.path)
        wf_log(p->ctx, WF_LOG_WARN, "the compiled step could not be cached: %s", p->ctx->diag.message);
}

/* The bytes of a step that no cache holds. */
static const WfFile *scratch_entry(weft_program *p)
{
    const char *dir = wf_env("TMPDIR");
    char *path = wf_arena_printf(p->arena, "%s/weft-%d-shared.weft", dir && *dir ? dir : "/tmp", (int)getpid());
    wf_exe_save(p->ctx, p->exe, path);
    const WfFile *f = wf_file_map(p->ctx, p->arena, path);
    unlink(path);
    return f;
}

void wf_program_compile_together(weft_program *p, WfComm *comm)
{
    bool first = wf_comm_rank(comm) == 0;
    if (first && !p->exe)
        wf_program_compile(p);
    if (wf_comm_size(comm) == 1)
        return;
    const WfFile *entry = !first ? NULL : p->entry ? p->entry : scratch_entry(p);
    WfFile f = {.path = wf_arena_strdup(p->arena, "the step that rank 0 compiled"), .size = entry ? entry->size : 0};
    f.at = wf_comm_share(comm, p->arena, 0, entry ? entry->at : NULL, &f.size, "the compiled step");
    if (!first)
        p->exe = wf_exe_open(p->ctx, p->arena, &f);
}

bool wf_program_weight(void *program, const char *name, void *to, size_t bytes)
{
    weft_program *p = program;
    for (int i = 0; i < p->graph->inputs.n; i++) {
        const WfInput *in = &p->graph->inputs.at[i];
        const WfValue *v = wf_value(p->graph, in->val);
        if (!in->data || strcmp(in->name, name))
            continue;
        size_t item = wf_dtype_size(v->dtype), done = 0;
        int64_t at[WF_MAX_RANK] = {0}, n = (int64_t)(bytes / item), dense = 1;
        bool plain = true;
        for (int d = v->rank - 1; d >= 0; d--) {
            plain &= v->shape[d] == 1 || in->strides[d] == dense;
            dense *= v->shape[d];
        }
        if (dense != n)
            return false;
        if (plain) {
            memcpy(to, in->data, bytes);
            if (p->path) /* a mapped file: the weight has its final place now */
                wf_sys_forget(in->data, bytes);
            return true;
        }
        for (int64_t k = 0; k < n; k++) { /* any strides, in row-major order of the shape */
            int64_t from = 0;
            for (int d = 0; d < v->rank; d++)
                from += at[d] * in->strides[d];
            memcpy((uint8_t *)to + done, (const uint8_t *)in->data + from * (int64_t)item, item);
            done += item;
            for (int d = v->rank - 1; d >= 0 && ++at[d] == v->shape[d]; d--)
                at[d] = 0;
        }
        return true;
    }
    return false;
}

void wf_program_save(weft_program *p, const char *path)
{
    WfExe x = *p->exe;
    const WfTensors *own = x.weights; /* constants that the compiler made */
    if (!p->options.no_weights && !p->loaded) {
        WfTensors *w = WF_NEW(p->arena, WfTensors);
        w->at = WF_NEWN(p->arena, WfTensor, (size_t)x.n_inputs + 1);
        for (int i = 0; i < x.n_inputs; i++) {
            const WfExeInput *in = &x.inputs[i];
            WfTensor *t = &w->at[w->n];
            if (in->role != WF_XIN_PARAM && in->role != WF_XIN_BUFFER && in->role != WF_XIN_CONST)
                continue;
            *t = (WfTensor){.name = in->name, .dtype = in->dtype, .rank = in->rank, .bytes = wf_dtype_size(in->dtype)};
            for (int d = 0; d < in->rank; d++) {
                t->shape[d] = in->shape[d];
                t->bytes *= (size_t)in->shape[d];
            }
            t->data = wf_arena_alloc(p->arena, t->bytes);
            const WfTensor *made = own ? wf_tensors_find(own, in->name) : NULL;
            if (made)
                memcpy((void *)t->data, made->data, t->bytes);
            else
                wf_program_weight(p, in->name, (void *)t->data, t->bytes);
            w->n++;
        }
        x.weights = w;
    } else if (p->options.no_weights && p->loaded) {
        x.weights = NULL;
    }
    wf_exe_save(p->ctx, &x, path);
}

typedef struct { weft_program *p; const char *after; bool eval; const char *text; } Stage;

static void do_graph_text(void *v)
{
    Stage *g = v;
    weft_program *p = g->p;
    if (p->loaded)
        wf_fail(p->ctx, WF_E_STEP_FORM, "a compiled step holds no graph");
    WfStr s = wf_program_text(p);
    wf_print(wf_compile_until(p->ctx, p->text, p->graph, &p->options, g->after, g->eval), &s);
    g->text = s.at;
}

weft_status weft_graph_text(weft_program *program, const char *after, int eval, const char **out)
{
    Stage g = {.p = program, .after = after, .eval = eval};
    weft_status r = program && out ? wf_guard(program->ctx, do_graph_text, &g) : WEFT_ERR_USAGE;
    if (r == WEFT_OK)
        *out = g.text;
    return r;
}

/* ---- graphs built node by node ---- */

typedef struct { WF_VEC(WfVal) values; weft_status failed; bool done; int outputs; } Build;

typedef struct {
    weft_program *p;
    WfCtx *ctx;
    const char *name, *symbol, *op, *args, *where;
    weft_dtype dtype;
    int rank, trainable;
    const int64_t *shape;
    const weft_tensor *initial;
    weft_value result;
    WfVal output;
} Node;

static Build *build_of(weft_program *g) { return g->build; }

static weft_value add_value(weft_program *p, WfVal v)
{
    WF_PUSH(p->arena, &build_of(p)->values, v);
    return build_of(p)->values.n;
}

static void do_new(void *v)
{
    Node *n = v;
    WfArena *a = wf_arena_new(n->ctx);
    weft_program *p = WF_NEW(a, weft_program);
    wf_ops_init();
    p->ctx = n->ctx;
    p->arena = a;
    wf_options_init(n->ctx, a, &p->options);
    wf_options_env(n->ctx, &p->options);
    p->graph = wf_graph_new(n->ctx, a, NULL, WF_ATEN);
    p->build = WF_NEW(a, Build);
    n->p = p;
}

weft_status weft_graph_new(weft_context *ctx, weft_program **out)
{
    Node n = {.ctx = (WfCtx *)ctx};
    weft_status r = ctx && out ? wf_guard(n.ctx, do_new, &n) : WEFT_ERR_USAGE;
    if (r == WEFT_OK)
        *out = n.p;
    return r;
}

static void not_built(void *v)
{
    weft_program *p = v;
    wf_fail(p->ctx, WF_E_LIBRARY_CALL, "this program is not being built: it is finished, or was opened from a file");
}

static weft_status being_built(weft_program *p)
{
    return !p ? WEFT_ERR_USAGE : build_of(p) ? WEFT_OK : wf_guard(p->ctx, not_built, p);
}

/* Runs one building step unless an earlier one failed; the failure is kept. */
static weft_value building(weft_program *p, void (*fn)(void *), Node *n)
{
    if (being_built(p) != WEFT_OK)
        return 0;
    Build *b = build_of(p);
    n->p = p;
    n->ctx = p->ctx;
    if (b->failed != WEFT_OK)
        return 0;
    b->failed = wf_guard(p->ctx, fn, n);
    return b->failed == WEFT_OK ? n->result : 0;
}

/* The next name of a list "a,b,.."; the last one stands for all that follow. */
static char *next_symbol(WfArena *a, const char **list)
{
    size_t n = strcspn(*list, ",");
    char *name = wf_arena_printf(a, "%.*s", (int)n, *list);
    *list += (*list)[n] ? n + 1 : 0;
    return name;
}

static void do_input(void *v)
{
    Node *n = v;
    WfDim shape[WF_MAX_RANK];
    const char *symbols = n->symbol;
    if (n->rank < 0 || n->rank > WF_MAX_RANK || (n->rank && !n->shape) || !n->name || n->dtype < WEFT_F32 || n->dtype > WEFT_BOOL)
        wf_fail(n->ctx, WF_E_LIBRARY_CALL, "an input needs a name, a dtype and at most %d dimensions", WF_MAX_RANK);
    for (int i = 0; i < n->rank; i++) {
        if (n->shape[i] < -1 || (n->shape[i] == -1 && !n->symbol))
            wf_fail(n->ctx, WF_E_LIBRARY_CALL, "input %s: a size of -1 needs a symbol", n->name);
        shape[i] = n->shape[i] == -1 ? wf_sym(n->p->graph->exprs, next_symbol(n->p->arena, &symbols), 1, INT64_MAX) : n->shape[i];
    }
    n->result = add_value(n->p, wf_add_input(n->p->graph, WF_IN_USER, n->name, (WfDtype)n->dtype, n->rank, shape));
}

weft_value weft_graph_input(weft_program *g, const char *name, weft_dtype dtype, int rank, const int64_t *shape,
                            const char *symbol)
{
    Node n = {.name = name, .dtype = dtype, .rank = rank, .shape = shape, .symbol = symbol};
    return building(g, do_input, &n);
}

static void do_wants(void *v)
{
    Node *n = v;
    Build *b = build_of(n->p);
    const WfInput *in = n->result < 1 || n->result > b->values.n ? NULL : wf_input_of(n->p->graph, b->values.at[n->result - 1]);
    if (!in || !wf_dtype_is_float(wf_dtype_of(n->p->graph, in->val)))
        wf_fail(n->ctx, WF_E_LIBRARY_CALL, "value %d is no input with real numbers", n->result);
    n->p->graph->inputs.at[in - n->p->graph->inputs.at].trainable = true;
}

weft_status weft_graph_wants(weft_program *g, weft_value input)
{
    Node n = {.result = input};
    building(g, do_wants, &n);
    return g && build_of(g) ? build_of(g)->failed : WEFT_ERR_USAGE;
}

static void do_parameter(void *v)
{
    Node *n = v;
    const weft_tensor *t = n->initial;
    WfGraph *g = n->p->graph;
    if (!n->name || !t || t->rank < 0 || t->rank > 8 || t->dtype < WEFT_F32 || t->dtype > WEFT_BOOL || !t->data)
        wf_fail(n->ctx, WF_E_LIBRARY_CALL, "a parameter needs a name and an initial value");
    size_t bytes = wf_dtype_size((WfDtype)t->dtype);
    for (int d = 0; d < t->rank; d++)
        bytes = wf_mul_size(bytes, (size_t)t->shape[d]);
    WfVal x = wf_add_input(g, n->trainable ? WF_IN_PARAM : WF_IN_BUFFER, n->name, (WfDtype)t->dtype, t->rank, t->shape);
    WfInput *in = &g->inputs.at[g->inputs.n - 1];
    in->trainable = n->trainable;
    in->persistent = true;
    void *copy = wf_arena_alloc(n->p->arena, bytes ? bytes : 1);
    memcpy(copy, t->data, bytes);
    in->data = copy;
    for (int64_t d = t->rank - 1, s = 1; d >= 0; s *= t->shape[d--])
        in->strides[d] = s;
    n->result = add_value(n->p, x);
}

weft_value weft_graph_parameter(weft_program *g, const char *name, const weft_tensor *initial, int trainable)
{
    Node n = {.name = name, .initial = initial, .trainable = trainable};
    return building(g, do_parameter, &n);
}

static WfVal by_number(void *user, const char *name)
{
    Build *b = build_of(user);
    char *end;
    long i = strtol(name, &end, 10);
    return *end || i < 1 || i > b->values.n ? 0 : b->values.at[i - 1];
}

/* "net.py:31  x = self.fc(x)" or any other text. */
static WfSource source_of(WfArena *a, const char *where)
{
    const char *code = strstr(where, "  "), *end = code ? code : where + strlen(where), *colon = end;
    while (colon > where && colon[-1] >= '0' && colon[-1] <= '9')
        colon--;
    if (colon == end || colon - where < 2 || colon[-1] != ':')
        return (WfSource){.file = wf_arena_strdup(a, where)};
    return (WfSource){.file = wf_arena_printf(a, "%.*s", (int)(colon - 1 - where), where), .line = (int)strtol(colon, NULL, 10),
                      .code = code ? wf_arena_strdup(a, code + 2) : NULL};
}

static void do_node(void *v)
{
    Node *n = v;
    WfGraph *g = n->p->graph;
    if (!n->op || !n->args)
        wf_fail(n->ctx, WF_E_LIBRARY_CALL, "a node needs an op and arguments; those of an op without any are \"\"");
    const WfOp *op = wf_op_find(n->op);
    WfArg args[64];
    if (!op) {
        const char **names = WF_NEWN(n->p->arena, const char *, (size_t)wf_op_count());
        for (int i = 0; i < wf_op_count(); i++)
            names[i] = wf_schema_of(wf_op_at(i))->name;
        const char *near = wf_nearest(n->op, names, wf_op_count());
        wf_fail_at(n->ctx, WF_E_OP_UNKNOWN, n->where, near ? wf_arena_printf(n->p->arena, "Did you mean %s?", near) : NULL,
                   "no op is called %s", n->op);
    }
    wf_parse_args(g, op, n->args, by_number, n->p, args);
    if (n->where) {
        WfSource s = source_of(n->p->arena, n->where);
        WF_PUSH(g->arena, &g->sources, s);
        g->source = (uint32_t)g->sources.n - 1;
    }
    WfVal out[WF_MAX_RESULTS];
    int n_out = 0;
    wf_emit_args(g, op, args, out, &n_out);
    g->source = 0;
    if (n->name && n_out)
        wf_name_value(g, out[0], n->name);
    for (int i = 0; i < n_out; i++) {
        weft_value r = add_value(n->p, out[i]);
        n->result = i ? n->result : r;
    }
}

weft_value weft_graph_node(weft_program *g, const char *op, const char *args, const char *name, const char *where)
{
    Node n = {.op = op, .args = args, .name = name, .where = where};
    return building(g, do_node, &n);
}

static void do_output(void *v)
{
    Node *n = v;
    Build *b = build_of(n->p);
    if (n->result < 1 || n->result > b->values.n)
        wf_fail(n->ctx, WF_E_LIBRARY_CALL, "there is no value %d", n->result);
    const char *name = wf_arena_printf(n->p->arena, "%d", b->outputs++);
    wf_add_output(n->p->graph, WF_OUT_USER, name, b->values.at[n->result - 1], 0);
}

weft_status weft_graph_output(weft_program *g, weft_value value, const char *name)
{
    Node n = {.result = value, .name = name};
    building(g, do_output, &n);
    return g && build_of(g) ? build_of(g)->failed : WEFT_ERR_USAGE;
}

static void do_finish(void *v)
{
    weft_program *g = v;
    WfStr s = {.arena = g->arena};
    wf_print(g->graph, &s);
    g->identity = (const uint8_t *)s.at;
    g->identity_size = s.n;
    g->build = NULL;
}

weft_status weft_graph_finish(weft_program *g)
{
    weft_status r = being_built(g);
    if (r == WEFT_OK)
        r = build_of(g)->failed;
    return r == WEFT_OK ? wf_guard(g->ctx, do_finish, g) : r;
}
