/* Imports: the recorded cases against what their case.json says, small exports with in-place writes against
 * PyTorch's results (evaluated by the oracle), files of other kinds, and damaged ones. */
#include <malloc.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>
#include <jansson.h>

#include "grad/grad.h"
#include "import/import.h"
#include "ops/ops.h"
#include "pt2.h"
#include "simplify/simplify.h"

#ifndef WEFT_SOURCE_DIR
#define WEFT_SOURCE_DIR "."
#endif
#define REFS WEFT_SOURCE_DIR "/tests/refs/"

typedef struct Job {
    WfCtx *ctx;
    WfArena *arena;
    const char *name;
    const void *bytes;
    size_t size;
    int nodes;
    const char *code; /* part of a source line */
    bool accept;
    WfModel *model;
} Job;

static void log_line(void *user, WfLogLevel level, const char *line)
{
    (void)user, (void)level;
    fprintf(stderr, "%s\n", line);
}

/* Runs fn and ends the context; the status it gave. Failures of assertions inside fn must not leave it. */
static weft_status run(Job *j, void (*fn)(void *), char *message, size_t n)
{
    j->ctx = wf_ctx_new();
    assert_non_null(j->ctx);
    j->ctx->log = message ? NULL : log_line;
    weft_status s = wf_guard(j->ctx, fn, j);
    if (message)
        snprintf(message, n, "%s | %s | %s", s ? j->ctx->diag.message : "",
                 s && j->ctx->diag.place ? j->ctx->diag.place : "",
                 s && j->ctx->diag.hint ? j->ctx->diag.hint : "");
    else if (s)
        fprintf(stderr, "%s: %s\n  %s\n", j->name, j->ctx->diag.message,
                j->ctx->diag.place ? j->ctx->diag.place : "");
    wf_ctx_free(j->ctx);
    return s;
}

#define CHECK(j, cond) \
    ((cond) ? (void)0 : wf_fail((j)->ctx, WEFT_ERR_INTERNAL, "line %d: %s", __LINE__, #cond))

static const WfInput *input(const WfGraph *g, const char *name)
{
    for (int i = 0; i < g->inputs.n; i++) {
        if (!strcmp(g->inputs.at[i].name, name))
            return &g->inputs.at[i];
        for (int k = 0; k < g->inputs.at[i].n_aliases; k++)
            if (!strcmp(g->inputs.at[i].aliases[k], name))
                return &g->inputs.at[i];
    }
    return NULL;
}

/* ---- the recorded cases ---- */

static void names_have(Job *j, const json_t *list, WfInRole role, int trainable)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        const WfInput *in = input(j->model->graph, json_string_value(json_array_get(list, i)));
        CHECK(j, in && in->role == role);
        CHECK(j, trainable < 0 || in->trainable == (bool)trainable);
        CHECK(j, in->data != NULL);
    }
}

static void check_case(void *arg)
{
    Job *j = arg;
    j->arena = wf_arena_new(j->ctx);
    j->model =
        wf_import_pt2(j->ctx, j->arena, wf_arena_printf(j->arena, REFS "%s/model.pt2", j->name), false);
    WfGraph *g = j->model->graph;
    CHECK(j, j->model->training && g->level == WF_ATEN);
    CHECK(j, g->nodes.n - 1 == j->nodes);
    WfFile *f = wf_file_map(j->ctx, j->arena, wf_arena_printf(j->arena, REFS "%s/case.json", j->name));
    const json_t *c = wf_json_parse(j->ctx, (const char *)f->at, f->size, "case.json"), *list;
    list = json_object_get(c, "inputs");
    size_t k = 0;
    for (int i = 0; i < g->inputs.n; i++)
        if (g->inputs.at[i].role == WF_IN_USER) {
            const char *want = json_string_value(json_object_get(json_array_get(list, k), "name"));
            k++;
            CHECK(j, want && !strcmp(g->inputs.at[i].name, want));
        }
    CHECK(j, k == json_array_size(list));
    names_have(j, json_object_get(c, "trainable"), WF_IN_PARAM, 1);
    names_have(j, json_object_get(c, "frozen"), WF_IN_PARAM, 0);
    names_have(j, json_object_get(c, "buffers"), WF_IN_BUFFER, -1);
    list = json_object_get(c, "tied");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *group = json_array_get(list, i);
        const WfInput *first = input(g, json_string_value(json_array_get(group, 0)));
        CHECK(j, first && first->n_aliases == (int)json_array_size(group) - 1);
        for (size_t n = 0; n < json_array_size(group); n++)
            CHECK(j, input(g, json_string_value(json_array_get(group, n))) == first);
    }
    bool found = false;
    for (int i = 1; i < g->nodes.n; i++) {
        const WfSource *s = &g->sources.at[g->nodes.at[i].source];
        CHECK(j, g->nodes.at[i].op->family == WF_HOP || (s->file && s->line > 0));
        found |= s->code && strstr(s->code, j->code);
    }
    CHECK(j, found);
    WfStr text = {.arena = j->arena};
    wf_print(g, &text);
    WfPassEnv env = {.ctx = j->ctx, .arena = j->arena};
    wf_verify(g, "import");
    g = wf_simplify_functionalize(&env, g);
    wf_verify(g, "functionalize");
    wf_verify(wf_simplify_decompose(&env, g), "decompose");
}

static void cases(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int nodes;
        const char *code;
    } table[] = {{"linreg_sgd", 3, "mse_loss"},
                 {"mlp_mnist_adamw", 5, "cross_entropy"},
                 {"lenet_sgd_nesterov", 14, "return"},
                 {"resnet_tiny_bn_sgd", 30, "s.l2(s.l1("},
                 {"gpt_tiny_adamw", 47, "s.wte(idx)"},
                 {"hf_gpt2_dict_out", 123, "="},
                 {"llama_tiny_clip", 136, "="},
                 {"bert_tiny_mask", 71, "attention_mask"},
                 {"vit_tiny_groups", 40, "s.cls.expand"},
                 {"lstm_char_adam_clip", 8, "="},
                 {"gru_bidir_sgd", 6, "="},
                 {"convnext_tiny_adamw", 30, "F.layer_norm"},
                 {"mobilenet_tiny_sgd", 44, "="},
                 {"unet_tiny_adam", 36, "avg_pool2d"},
                 {"dlrm_tiny_sgd", 21, "torch.bmm"},
                 {"moe_tiny_adamw", 48, "index_add"},
                 {"gcn_index_add_adam", 32, "scatter_add_"},
                 {"dynamic_batch_mlp", 14, "new_zeros"},
                 {"stopgrad_inplace_vq", 35, "detach()"},
                 {"dropout_p01_statistical", 3, "F.dropout"}};
    int failed = 0;
    for (size_t i = 0; i < WF_LEN(table); i++) {
        Job j = {.name = table[i].name, .nodes = table[i].nodes, .code = table[i].code};
        failed += run(&j, check_case, NULL, 0) != WEFT_OK;
    }
    assert_int_equal(failed, 0);
}

static void check_dynamic(void *arg)
{
    Job *j = arg;
    j->arena = wf_arena_new(j->ctx);
    WfGraph *g = wf_import_pt2(j->ctx, j->arena, REFS "dynamic_batch_mlp/model.pt2", false)->graph;
    int64_t lo, hi;
    CHECK(j, wf_esym_count(g->exprs) == 1);
    wf_esym_range(g->exprs, 0, &lo, &hi);
    CHECK(j, lo == 2 && hi == 64);
    CHECK(j, wf_value(g, input(g, "x")->val)->shape[0] == wf_esym_at(g->exprs, 0));
    CHECK(j, wf_value(g, input(g, "y")->val)->shape[0] == wf_esym_at(g->exprs, 0));
}

static void symbols(void **state)
{
    (void)state;
    Job j = {.name = "dynamic"};
    assert_int_equal(run(&j, check_dynamic, NULL, 0), WEFT_OK);
}

/* ---- writes, views and regions against PyTorch ---- */

static double *dense(Job *j, WfDtype t, int rank, const int64_t *shape, const int64_t *strides,
                     const void *data)
{
    int64_t n = 1;
    for (int i = 0; i < rank; i++)
        n *= shape[i];
    double *out = WF_NEWN(j->arena, double, (size_t)n + 1);
    for (int64_t e = 0; e < n; e++) {
        int64_t at = 0, rest = e;
        for (int i = rank - 1; i >= 0; i--) {
            at += rest % shape[i] * strides[i];
            rest /= shape[i];
        }
        out[e] = wf_load_f64(t, (const char *)data + (size_t)at * wf_dtype_size(t));
    }
    return out;
}

static double *of_file(Job *j, const WfTensor *t)
{
    int64_t strides[8], n = 1;
    for (int i = t->rank - 1; i >= 0; i--) {
        strides[i] = n;
        n *= t->shape[i];
    }
    return dense(j, t->dtype, t->rank, t->shape, strides, t->data);
}

static double *start_value(Job *j, const WfGraph *g, const WfInput *in, const WfTensors *file)
{
    const WfValue *v = wf_value(g, in->val);
    int64_t shape[8];
    if (in->role == WF_IN_USER)
        return of_file(j, wf_tensors_find(file, wf_arena_printf(j->arena, "in.%s", in->name)));
    for (int i = 0; i < v->rank; i++)
        CHECK(j, wf_elit(g->exprs, v->shape[i], &shape[i]));
    return dense(j, v->dtype, v->rank, shape, in->strides, in->data);
}

static void compare(Job *j, const WfOracle *o, WfVal v, const WfTensor *t, const char *what)
{
    const double *want = of_file(j, t), *got = o->val[v];
    int64_t n = wf_oracle_numel(o, v), m = 1;
    for (int i = 0; i < t->rank; i++)
        m *= t->shape[i];
    if (n != m || wf_value(o->g, v)->dtype != t->dtype)
        wf_fail(j->ctx, WEFT_ERR_INTERNAL, "%s is %s", what, wf_shape_text(o->g, v));
    for (int64_t i = 0; i < n; i++)
        if (!(fabs(got[i] - want[i]) <= 1e-5 + 1e-4 * fabs(want[i])))
            wf_fail(j->ctx, WEFT_ERR_INTERNAL, "%s[%lld] is %.9g, expected %.9g", what, (long long)i, got[i],
                    want[i]);
}

static const char *key_of(Job *j, const WfOutput *o)
{
    switch (o->role) {
    case WF_OUT_USER:
        return wf_arena_printf(j->arena, "out.%s", o->name);
    case WF_OUT_GRAD:
        return wf_arena_printf(j->arena, "grad.%s", o->name);
    case WF_OUT_UPDATE:
        return wf_arena_printf(j->arena, "after.%s", o->name);
    default:
        return NULL;
    }
}

static void check_functional(void *arg)
{
    Job *j = arg;
    WfPassEnv env = {.ctx = j->ctx};
    env.arena = j->arena = wf_arena_new(j->ctx);
    WfTensors *file = wf_safetensors_open(
        j->ctx, j->arena, wf_arena_printf(j->arena, REFS "functional/%s/expected.safetensors", j->name));
    WfGraph *g = wf_import_pt2(j->ctx, j->arena,
                               wf_arena_printf(j->arena, REFS "functional/%s/model.pt2", j->name), false)
                     ->graph;
    g = wf_simplify_functionalize(&env, g);
    wf_verify(g, "functionalize");
    g = wf_simplify_prim(&env, wf_grad_joint(&env, wf_simplify_decompose(&env, g)));
    wf_verify(g, "prim");
    int64_t symbols[8];
    const double **in = WF_NEWN(j->arena, const double *, (size_t)g->inputs.n + 1);
    for (int i = 0; i < g->inputs.n; i++) {
        const WfValue *v = wf_value(g, g->inputs.at[i].val);
        in[i] = start_value(j, g, &g->inputs.at[i], file);
        const WfTensor *t = wf_tensors_find(file, wf_arena_printf(j->arena, "in.%s", g->inputs.at[i].name));
        for (int d = 0; t && d < v->rank; d++)
            if (wf_esym_id(g->exprs, v->shape[d]) >= 0)
                symbols[wf_esym_id(g->exprs, v->shape[d])] = t->shape[d];
    }
    WfOracle o = {.g = g, .arena = j->arena, .symbols = symbols};
    wf_oracle_run(&o, in);
    int seen = 0;
    for (int i = 0; i < g->outputs.n; i++) {
        const char *key = key_of(j, &g->outputs.at[i]);
        const WfTensor *t = key ? wf_tensors_find(file, key) : NULL;
        if (!key)
            continue;
        if (!t)
            wf_fail(j->ctx, WEFT_ERR_INTERNAL, "%s is not expected", key);
        compare(j, &o, g->outputs.at[i].val, t, key);
        seen++;
    }
    for (int i = 0; i < file->n;
         i++) { /* outputs and gradients are all there; what was not updated is unchanged */
        const WfTensor *t = &file->at[i];
        bool here = !strncmp(t->name, "in.", 3) || !strncmp(t->name, "after.", 6);
        for (int k = 0; !here && k < g->outputs.n; k++) {
            const char *key = key_of(j, &g->outputs.at[k]);
            here = key && !strcmp(key, t->name);
        }
        if (!here)
            wf_fail(j->ctx, WEFT_ERR_INTERNAL, "%s is missing", t->name);
        if (strncmp(t->name, "after.", 6))
            continue;
        bool updated = false;
        const WfInput *n = input(g, t->name + 6);
        CHECK(j, n);
        for (int k = 0; k < g->outputs.n; k++)
            updated |= g->outputs.at[k].role == WF_OUT_UPDATE && !strcmp(g->outputs.at[k].name, n->name);
        if (!updated) {
            const double *a = of_file(j, t), *b = start_value(j, g, n, file);
            for (int64_t e = 0; e < wf_oracle_numel(&o, n->val); e++)
                if (a[e] != b[e])
                    wf_fail(j->ctx, WEFT_ERR_INTERNAL, "%s was not updated", n->name);
        }
    }
    CHECK(j, seen > 1);
}

static void functional(void **state)
{
    (void)state;
    static const char *const names[] = {"slice_write", "view_chain",    "copy_of_reshape", "diagonal_write",
                                        "buffers",     "detached",      "meta_writes",     "clamp_weight",
                                        "regions",     "no_grad_write", "dynamic",         "outputs",
                                        "images"};
    int failed = 0;
    for (size_t i = 0; i < WF_LEN(names); i++) {
        Job j = {.name = names[i]};
        failed += run(&j, check_functional, NULL, 0) != WEFT_OK;
    }
    assert_int_equal(failed, 0);
}

/* ---- files that are something else ---- */

static void import_bytes(void *arg)
{
    Job *j = arg;
    j->arena = wf_arena_new(j->ctx);
    WfPassEnv env = {.ctx = j->ctx, .arena = j->arena};
    WfModel *m = wf_import_pt2_bytes(j->ctx, j->arena, j->bytes, j->size, "model.pt2", j->accept);
    WfStr text = {.arena = j->arena};
    wf_print(m->graph, &text);
    WfGraph *g = wf_simplify_functionalize(&env, m->graph);
    wf_simplify_decompose(&env, g);
}

static void replace(Bytes *b, const char *from, const char *to)
{
    Bytes out = {0};
    size_t n = strlen(from);
    for (size_t i = 0; i < b->n;)
        if (i + n <= b->n && !memcmp(b->at + i, from, n)) {
            put(&out, to, strlen(to));
            i += n;
        } else {
            put(&out, b->at + i++, 1);
        }
    free(b->at);
    *b = out;
}

/* Imports the case with `from` replaced in one entry; the message it fails with. */
static weft_status with_change(const char *name, const char *tail, const char *from, const char *to,
                               bool accept, char *message, size_t n)
{
    WfCtx *ctx = wf_ctx_new();
    WfArena *a = wf_arena_new(ctx);
    WfZip *z = wf_zip_open(ctx, a, wf_file_map(ctx, a, wf_arena_printf(a, REFS "%s/model.pt2", name)), WF_ZIP_CHECK);
    WfZipEntry *e = entry_ending(z, tail);
    assert_non_null(e);
    Bytes b = {0};
    put(&b, e->at, e->size);
    if (from)
        replace(&b, from, to);
    else
        b.n = 0, put(&b, to, strlen(to));
    e->at = b.at;
    e->size = b.n;
    Bytes file = pack_archive(z->at, z->n);
    Job j = {.name = name, .bytes = file.at, .size = file.n, .accept = accept};
    weft_status s = run(&j, import_bytes, message, n);
    free(file.at);
    free(b.at);
    wf_ctx_free(ctx);
    return s;
}

static void refusals(void **state)
{
    (void)state;
    char m[8192];
    static const struct {
        const char *tail, *from, *to, *says;
    } table[] = {
        {"model.json", "\"TRAINING\"", "\"ATEN\"", "was decomposed"},
        {"model.json", "\"major\": 8", "\"major\": 9", "schema version 9"},
        {"model.json", "aten.linear.default", "aten.fancy.default", "aten.fancy.default"},
        {"model.json", "\"as_tensor\": {\"name\": \"linear\"}", "\"as_tensor\": {\"name\": \"x\"}",
         "defined twice"},
        {"archive_format", NULL, "zip", "does not say"},
        {"archive_version", NULL, "1", "newer"},
        {"byteorder", NULL, "big", "little-endian"},
        {"weights_config.json", "\"use_pickle\": false", "\"use_pickle\": true", "pickle"},
        {"weights_config.json", "\"sizes\": [{\"as_int\": 1}, {\"as_int\": 4}]",
         "\"sizes\": [{\"as_int\": 2}, {\"as_int\": 4}]", "does not fit"},
        {"weights_config.json", "\"sizes\": [{\"as_int\": 1}, {\"as_int\": 4}]",
         "\"sizes\": [{\"as_int\": 1}, {\"as_int\": 3}]", "disagree"},
        {"weights_config.json", "\"dtype\": 7", "\"dtype\": 10", "complex64"},
        {"weights_config.json", "\"storage_offset\": {\"as_int\": 0}",
         "\"storage_offset\": {\"as_int\": 9000000}", "does not fit into its data"},
        {"weights_config.json", "\"strides\": [", "\"strides\": [{\"as_int\": 1}, ", "strides"},
    };
    for (size_t i = 0; i < WF_LEN(table); i++) {
        weft_status s =
            with_change("linreg_sgd", table[i].tail, table[i].from, table[i].to, false, m, sizeof m);
        if (s == WEFT_OK || s == WEFT_ERR_INTERNAL || !strstr(m, table[i].says))
            fail_msg("change %zu: status %d, %s", i, s, m);
    }
    assert_int_equal(with_change("linreg_sgd", "model.json", "\"TRAINING\"", "\"ATEN\"", true, m, sizeof m),
                     WEFT_OK);
}

static void foreign(void **state)
{
    (void)state;
    static const struct {
        const char *entry, *says;
    } table[] = {{"serialized_exported_program.json", "2.7"},
                 {"model/data/weights/model.pt", "pickled weights"},
                 {"m/constants.pkl", "TorchScript"},
                 {"m/data.pkl", "checkpoint"},
                 {"x/y", "no exported model"}};
    char m[4096];
    for (size_t i = 0; i < WF_LEN(table); i++) {
        WfZipEntry e = {.name = table[i].entry, .at = (const uint8_t *)"{}", .size = 2};
        Bytes b = pack_archive(&e, 1);
        Job j = {.bytes = b.at, .size = b.n};
        weft_status s = run(&j, import_bytes, m, sizeof m);
        free(b.at);
        if (s == WEFT_OK || !strstr(m, table[i].says))
            fail_msg("%s: %s", table[i].entry, m);
    }
    Job j = {.bytes = "weft", .size = 4};
    assert_int_not_equal(run(&j, import_bytes, m, sizeof m), WEFT_OK);
    assert_non_null(strstr(m, "not a .pt2"));
}

/* ---- damage ---- */

static uint64_t seed = 0x9e3779b97f4a7c15u;

static uint64_t next(void)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    return seed ^= seed << 17;
}

static size_t below(size_t n)
{
    return n ? next() % n : 0;
}

/* Replaces a number, a name, a letter or a stretch of JSON text. */
static void damage(Bytes *b)
{
    static const char *const numbers[] = {"-1",
                                          "0",
                                          "1",
                                          "2",
                                          "3",
                                          "7",
                                          "9",
                                          "999",
                                          "4294967296",
                                          "9223372036854775807",
                                          "-9223372036854775807",
                                          "1.5",
                                          "null",
                                          "true",
                                          "[]",
                                          "{}",
                                          "\"x\""};
    for (int round = 1 + (int)below(3); round > 0 && b->n; round--) {
        size_t i = below(b->n), j;
        switch (below(5)) {
        case 0:
        case 1: /* a number becomes another */
            while (i < b->n && !(b->at[i] >= '0' && b->at[i] <= '9'))
                i++;
            for (j = i; j < b->n && b->at[j] >= '0' && b->at[j] <= '9';)
                j++;
            break;
        case 2: /* a word becomes empty or another word */
            while (i < b->n && b->at[i] != '"')
                i++;
            for (j = ++i; j < b->n && b->at[j] != '"';)
                j++;
            break;
        case 3: /* a list or object loses what is in it */
            while (i < b->n && b->at[i] != '[')
                i++;
            for (j = ++i; j < b->n && b->at[j] != ']';)
                j++;
            break;
        default:
            j = i + 1;
        }
        if (i >= b->n || j > b->n)
            continue;
        Bytes out = {0};
        put(&out, b->at, i);
        const char *w = numbers[below(WF_LEN(numbers))];
        if (below(4))
            put(&out, w, strlen(w));
        put(&out, b->at + j, b->n - j);
        free(b->at);
        *b = out;
    }
}

/* ---- damage that keeps the JSON's form: values change, so that the rules of ops meet them ---- */

typedef struct {
    json_t *at[1 << 16];
    int n;
} Leaves;

static void collect(json_t *v, Leaves *l)
{
    const char *key;
    json_t *x;
    size_t i;
    if (l->n < (int)WF_LEN(l->at))
        l->at[l->n++] = v;
    if (json_is_object(v)) {
        json_object_foreach(v, key, x)
        {
            if (strcmp(key, "metadata") && strcmp(key, "signature"))
                collect(x, l);
        }
    }
    json_array_foreach(v, i, x) collect(x, l);
}

static void mutate(json_t *v, const Leaves *l)
{
    static const json_int_t numbers[] = {-1,
                                         0,
                                         1,
                                         2,
                                         3,
                                         4,
                                         5,
                                         6,
                                         7,
                                         8,
                                         9,
                                         12,
                                         16,
                                         100,
                                         -2,
                                         -3,
                                         -100,
                                         INT64_MAX,
                                         INT64_MIN,
                                         INT64_MAX / 2,
                                         (json_int_t)1 << 32,
                                         (json_int_t)1 << 31};
    const json_t *other = l->at[below((size_t)l->n)];
    if (json_is_integer(v)) {
        json_integer_set(v, numbers[below(WF_LEN(numbers))]);
    } else if (json_is_real(v)) {
        json_real_set(v, below(2) ? -1.5 : 1e300);
    } else if (json_is_string(v)) {
        for (int k = 0; k < 100 && !json_is_string(other); k++)
            other = l->at[below((size_t)l->n)];
        if (json_is_string(other)) {
            char *copy = strdup(json_string_value(other));
            json_string_set(v, copy);
            free(copy);
        }
    } else if (json_is_array(v) && json_array_size(v)) {
        size_t i = below(json_array_size(v));
        if (below(2))
            json_array_remove(v, i);
        else
            json_array_append_new(v, json_deep_copy(json_array_get(v, i)));
    } else if (json_is_object(v) && json_object_size(v) == 1 && json_is_object(other) &&
               json_object_size(other) == 1) {
        json_t *copy = json_deep_copy(other); /* another kind of value */
        json_object_clear(v);
        json_object_update(v, copy);
        json_decref(copy);
    }
}

static void change_values(Bytes *b)
{
    json_t *j = json_loadb((const char *)b->at, b->n, 0, NULL);
    Leaves *l = calloc(1, sizeof *l);
    json_t *from = json_object_get(json_object_get(json_object_get(j, "graph_module"), "graph"), "nodes");
    from = from && below(4) ? from : j;
    for (int k = (int)below(3); k >= 0; k--) {
        l->n = 0;
        collect(from, l); /* again: some may be gone */
        mutate(l->at[below((size_t)l->n)], l);
    }
    char *text = json_dumps(j, JSON_COMPACT);
    b->n = 0;
    put(b, text, strlen(text));
    free(text);
    free(l);
    json_decref(j);
}

static void damaged_case(const char *name, int rounds)
{
    WfCtx *ctx = wf_ctx_new();
    WfArena *a = wf_arena_new(ctx);
    char m[4096];
    WfFile *f = wf_file_map(ctx, a, wf_arena_printf(a, REFS "%s/model.pt2", name));
    WfZip *z = wf_zip_open(ctx, a, f, WF_ZIP_CHECK);
    for (int i = 0; i < rounds; i++) {
        WfZipEntry *e = entry_ending(z, below(4) ? "models/model.json" : "model_weights_config.json"),
                   saved = *e;
        Bytes b = {0}, file;
        put(&b, e->at, e->size);
        if (below(8)) {
            if (below(4))
                change_values(&b);
            else
                damage(&b);
            e->at = b.at;
            e->size = b.n;
            file = pack_archive(z->at, z->n);
            *e = saved;
        } else { /* any byte of the file, or its end */
            file = (Bytes){0};
            put(&file, f->at, below(4) ? f->size : below(f->size));
            for (int k = (int)below(4); k >= 0 && file.n; k--)
                file.at[below(file.n)] ^= (uint8_t)(1u << below(8));
        }
        Job j = {.name = name, .bytes = file.at, .size = file.n};
        weft_status s = run(&j, import_bytes, m, sizeof m);
        if (s == WEFT_ERR_INTERNAL)
            fprintf(stderr, "%s, round %d: %s\n", name, i, m);
        free(file.at);
        free(b.at);
    }
    wf_ctx_free(ctx);
}

static void damage_is_an_error(void **state)
{
    (void)state;
    const char *rounds = getenv("WEFT_TEST_ROUNDS");
    int n = rounds ? atoi(rounds) : 200;
    damaged_case("linreg_sgd", n);
    damaged_case("dynamic_batch_mlp", n);
    damaged_case("stopgrad_inplace_vq", n);
    damaged_case("functional/view_chain", n);
    damaged_case("functional/images", n);
}

/* ---- what an import leaves in memory ---- */

static void *page_alloc(void *user, size_t bytes)
{
    (void)user;
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

static void page_release(void *user, void *p, size_t bytes)
{
    (void)user;
    munmap(p, bytes);
}

/* With Weft's own memory elsewhere, the heap holds what jansson took: the parsed model must be gone. (A sanitizer's heap
 * reports nothing here, but finds whatever still points into the tree.) */
static void the_parsed_text_is_freed(void **state)
{
    (void)state;
    const weft_allocator own = {page_alloc, page_release, NULL};
    weft_context *ctx = weft_context_new(&own);
    weft_program *p;
    assert_int_equal(weft_open(ctx, REFS "linreg_sgd/model.pt2", &p), WEFT_OK); /* tables that are made once */
    size_t before = mallinfo2().uordblks;
    assert_int_equal(weft_open(ctx, REFS "hf_gpt2_dict_out/model.pt2", &p), WEFT_OK);
    size_t after = mallinfo2().uordblks;
    assert_true(after < before + 16384); /* the tree takes more than a megabyte */
    weft_context_free(ctx);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {cmocka_unit_test(cases),      cmocka_unit_test(symbols),
                                       cmocka_unit_test(functional), cmocka_unit_test(refusals),
                                       cmocka_unit_test(foreign),    cmocka_unit_test(damage_is_an_error),
                                       cmocka_unit_test(the_parsed_text_is_freed)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
