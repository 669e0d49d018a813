/* Every operator against PyTorch: the samples of tests/opinfo (inputs, results, gradients; its README says
 * how they were made) and of tests/opinfo_more (recorded by tools/record_ops.py) are built as graphs,
 * differentiated, lowered to primitives, and evaluated by the oracle in double precision. Each sample runs
 * twice: differentiated at level op, where kept composites use their own VJPs, and differentiated after
 * expansion to primitives; so a composite's VJP and the VJP of its decomposition are both held against
 * PyTorch's gradient.
 *
 *   test_ops              all ops, summary of what failed or is unsupported
 *   test_ops NAME...      these ops, every sample in words
 *
 * An op that is not supported must be listed in `unsupported` below; the list may only shrink. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "grad/grad.h"
#include "ops/ops.h"
#ifdef COMPILED /* test_emit.c: the same samples through generated C and library kernels */
#include "pipeline.h"
#include "run/run.h"
#endif

#ifndef WEFT_SOURCE_DIR
#define WEFT_SOURCE_DIR "."
#endif
#define FOLDER WEFT_SOURCE_DIR "/tests/"
#ifdef COMPILED
#define LEVELS 1       /* gradients of composites by their own VJPs */
#ifdef WEFT_SANITIZE_FLAGS
#define SAMPLES 1      /* of each op: compiling with instrumentation takes a second */
#else
#define SAMPLES 2      /* of each op: compiling takes a tenth of a second */
#endif
#define ROUNDING 10.0  /* float32 throughout, where the oracle computes in double */
#else
#define LEVELS 2
#define SAMPLES 1000
#define ROUNDING 1.0
#endif

/* Ops of the samples that Weft does not compile. */
static const char *const unsupported[] = {
#include "ops_unsupported.h"
    NULL};

enum { MAX_TENSORS = 64 };

typedef struct {
    WfCtx *ctx;
    WfArena *arena;
    const WfTensors *file;
    json_t *sample;
    const char *op_name;
    bool by_primitives, verbose;
    WfGraph *g;
    struct {
        const char *key;
        WfVal val;
        double *data;
    } in[MAX_TENSORS];
    int n_in;
    /* what came out */
    bool no_gradient; /* results agree, the backward is unsupported at this level */
    char *wrong;      /* NULL: everything agrees */
} Case;

/* ---- arguments ---- */

static double *doubles(Case *c, const WfTensor *t)
{
    int64_t n = 1;
    for (int i = 0; i < t->rank; i++)
        n *= t->shape[i];
    double *d = WF_NEWN(c->arena, double, (size_t)n + 1);
    for (int64_t i = 0; i < n; i++)
        d[i] = wf_load_f64(t->dtype, (const char *)t->data + (size_t)i * wf_dtype_size(t->dtype));
    return d;
}

static WfVal add_input(Case *c, const char *key)
{
    for (int i = 0; i < c->n_in; i++)
        if (!strcmp(c->in[i].key, key))
            return c->in[i].val;
    const WfTensor *t = wf_tensors_find(c->file, key);
    if (!t || c->n_in == MAX_TENSORS)
        wf_fail(c->ctx, WEFT_ERR_FILE, "tensor %s", key);
    WfDim shape[WF_MAX_RANK];
    for (int i = 0; i < t->rank; i++)
        shape[i] = t->shape[i];
    WfVal v = wf_add_input(c->g, WF_IN_USER, key, t->dtype, t->rank, shape);
    c->in[c->n_in].key = key;
    c->in[c->n_in].val = v;
    c->in[c->n_in++].data = doubles(c, t);
    return v;
}

static double number(const json_t *j)
{
    const char *s = json_string_value(j);
    return !s ? json_number_value(j) : !strcmp(s, "nan") ? NAN : *s == '-' ? -INFINITY : INFINITY;
}

static WfArg argument(Case *c, json_t *j, const WfParam *p);

static WfArg list_argument(Case *c, json_t *items, const WfParam *p)
{
    size_t n = json_array_size(items);
    WfArg a = {.kind = p->type == WF_T_TENSORS  ? WF_ARG_TENSORS
                       : p->type == WF_T_FLOATS ? WF_ARG_FLOATS
                       : p->type == WF_T_BOOLS  ? WF_ARG_BOOLS
                                                : WF_ARG_INTS,
               .n = (int)n};
    a.ints = wf_arena_alloc(c->arena, (n + 1) * 8);
    for (size_t i = 0; i < n; i++) {
        WfArg e = argument(c, json_array_get(items, i), p);
        switch (a.kind) {
        case WF_ARG_TENSORS:
            a.vals[i] = e.kind == WF_ARG_TENSOR ? e.val : 0;
            break;
        case WF_ARG_FLOATS:
            a.floats[i] = e.kind == WF_ARG_FLOAT ? e.f : (double)e.i;
            break;
        case WF_ARG_BOOLS:
            a.bools[i] = e.b;
            break;
        default:
            a.ints[i] = e.i;
            break;
        }
    }
    return a;
}

static WfArg argument(Case *c, json_t *j, const WfParam *p)
{
    WfArg a = {0};
    json_t *x;
    if ((x = json_object_get(j, "tensor"))) {
        a.kind = WF_ARG_TENSOR;
        a.val = add_input(c, json_string_value(x));
    } else if ((x = json_object_get(j, "int"))) {
        a.kind = WF_ARG_INT;
        a.i = wf_econst(c->g->exprs, json_integer_value(x));
    } else if ((x = json_object_get(j, "float"))) {
        a.kind = WF_ARG_FLOAT;
        a.f = number(x);
    } else if ((x = json_object_get(j, "bool"))) {
        a.kind = WF_ARG_BOOL;
        a.b = json_is_true(x);
    } else if ((x = json_object_get(j, "str"))) {
        a.kind = WF_ARG_STRING;
        a.s = json_string_value(x);
    } else if ((x = json_object_get(j, "dtype"))) {
        a.kind = WF_ARG_DTYPE;
        a.dtype = wf_dtype_parse(json_string_value(x));
    } else if ((x = json_object_get(j, "list"))) {
        a = list_argument(c, x, p);
    }
    return a;
}

static const WfOp *functional_of(Case *c, const WfOp *op)
{
    const WfSchema *s = wf_schema_of(op);
    if (op->functional && (s->mutates || op->mutated_args))
        return wf_op_find(op->functional);
    if (!s->mutates)
        return op;
    const char *dot = strchr(s->name + 5, '.');
    size_t n = dot ? (size_t)(dot - s->name) : strlen(s->name);
    if (s->name[n - 1] != '_')
        return NULL;
    return wf_op_find(wf_arena_printf(c->arena, "%.*s%s", (int)n - 1, s->name, dot ? dot : ""));
}

/* ---- comparison ---- */

static void complain(Case *c, const char *fmt, ...)
{
    va_list ap;
    if (c->wrong)
        return;
    va_start(ap, fmt);
    c->wrong = wf_arena_vprintf(c->arena, fmt, ap);
    va_end(ap);
}

static void compare(Case *c, const WfOracle *o, WfVal v, const char *key, const char *what, double rtol,
                    double atol)
{
    const WfTensor *t = wf_tensors_find(c->file, key);
    const WfValue *x = wf_value(o->g, v);
    bool same = t && x->rank == t->rank && x->dtype == t->dtype;
    for (int i = 0; same && i < t->rank; i++)
        same = wf_oracle_dim(o, x->shape[i]) == t->shape[i];
    if (!same) {
        complain(c, "%s is %s, expected %s of another shape", what, wf_shape_text(o->g, v),
                 t ? wf_dtype_name(t->dtype) : "nothing");
        return;
    }
    double *want = doubles(c, t), *got = o->val[v], largest = 0;
    rtol *= ROUNDING;
    atol *= ROUNDING;
    if (t->dtype == WF_BF16 || t->dtype == WF_F16)
        rtol = atol = 0.01;
    for (int64_t i = 0, n = wf_oracle_numel(o, v); ROUNDING > 1 && i < n; i++)
        largest = isfinite(want[i]) && fabs(want[i]) > largest ? fabs(want[i]) : largest;
    atol += ROUNDING > 1 ? 1e-6 * largest : 0; /* cancellation in sums of large terms */
    for (int64_t i = 0, n = wf_oracle_numel(o, v); i < n; i++) {
        bool ok = isnan(want[i]) ? isnan(got[i])
                                 : want[i] == got[i] || fabs(want[i] - got[i]) <= atol + rtol * fabs(want[i]);
        if (!ok) {
            complain(c, "%s[%lld] is %.9g, expected %.9g", what, (long long)i, got[i], want[i]);
            return;
        }
    }
}

/* ---- one sample ---- */

static WfGraph *build(Case *c, WfVal *out, int *n_out, WfVal *wrt, WfVal *grad, int *n_wrt, bool with_grad)
{
    const WfOp *op = functional_of(c, wf_op_find(c->op_name));
    c->g = wf_graph_new(c->ctx, c->arena, NULL, c->by_primitives ? WF_PRIM : WF_OP);
    c->n_in = 0;
    if (!op)
        wf_fail(c->ctx, WEFT_ERR_UNSUPPORTED, "no functional form");
    const WfSchema *s = wf_schema_of(op);
    json_t *args = json_object_get(c->sample, "args"), *kwargs = json_object_get(c->sample, "kwargs");
    WfArg a[64] = {0};
    for (int i = 0; i < s->n_params; i++) {
        json_t *j = (size_t)i < json_array_size(args) ? json_array_get(args, (size_t)i)
                                                      : json_object_get(kwargs, s->params[i].name);
        if (j)
            a[i] = argument(c, j, &s->params[i]);
    }
    wf_emit_args(c->g, op, a, out, n_out);
    json_t *outputs = json_object_get(c->sample, "outputs"), *grads = json_object_get(c->sample, "grads"),
           *want;
    const char *key;
    WfVal of[WF_MAX_RESULTS], cot[WF_MAX_RESULTS];
    int n_of = 0;
    for (size_t i = 0; i < json_array_size(outputs) && (int)i < *n_out; i++) {
        json_t *k = json_object_get(json_array_get(outputs, i), "cotangent");
        if (k && !json_is_null(k) && out[i]) {
            of[n_of] = out[i];
            cot[n_of++] = add_input(c, json_string_value(k));
        }
    }
    *n_wrt = 0;
    json_object_foreach(grads, key, want) if (json_is_string(want) && with_grad) wrt[(*n_wrt)++] =
        add_input(c, key);
    if (*n_wrt)
        wf_grad_backward_many(c->g, of, cot, n_of, wrt, *n_wrt, grad);
    return c->g;
}

/* Complex numbers are pairs of reals from import on, which also chooses what to do with them: only ops that
 * are made for pairs are tested with them here. */
static bool is_complex(const char *name, json_t *sample)
{
    static const char *const made_for[] = {"fft", "view_as_real", "aten.real", NULL};
    json_t *arg;
    size_t i;
    for (int k = 0; made_for[k]; k++)
        if (strstr(name, made_for[k]))
            return false;
    json_array_foreach(json_object_get(sample, "args"), i, arg)
    {
        const char *t = json_string_value(json_object_get(arg, "dtype"));
        json_t *first = json_array_get(json_object_get(arg, "list"), 0);
        const char *u = json_string_value(json_object_get(first, "dtype"));
        if ((t && !strncmp(t, "complex", 7)) || (u && !strncmp(u, "complex", 7)))
            return true;
    }
    return false;
}

/* Places where PyTorch's f32 result is itself further from the exact one than the tolerances, or holds no
 * value. */
static bool undefined_result(const char *op, int i, json_t *sample)
{
    json_t *args = json_object_get(sample, "args"), *fourth = json_array_get(args, 3);
    if (i > 0 && strstr(op, "embedding_bag"))
        return true; /* bookkeeping of PyTorch's own backward */
    /* total_weight is not written without reduction */
    return i == 1 && !strcmp(op, "aten.nll_loss_forward.default") &&
           json_integer_value(json_object_get(fourth, "int")) == 0;
}

static double loose(const char *op)
{
    return !strcmp(op, "aten.addbmm.default") || strstr(op, "conv_transpose3d") || strstr(op, "upsample_") ||
                   !strcmp(op, "aten.grid_sampler.default")
               ? 1e-5
               : 1e-6; /* sums that cancel, f32 positions */
}

/* of gradients: logcumsumexp's samples lie near 10^4, where float32 keeps two digits of exp(x - y) */
static double gradient_rtol(const char *op)
{
    return !strcmp(op, "aten.logcumsumexp.default") ? 0.05 : 1e-4;
}

static void check(Case *c, const WfOracle *o, const WfVal *map, const WfVal *out, int n_out,
                  const WfVal *grad, bool with_grad)
{
    json_t *outputs = json_object_get(c->sample, "outputs"), *grads = json_object_get(c->sample, "grads"),
           *want;
    const char *key;
    int i = 0;
    if (json_is_true(json_object_get(c->sample, "shape_only")))
        return;
    for (; i < (int)json_array_size(outputs); i++) {
        json_t *t = json_object_get(json_array_get(outputs, (size_t)i), "tensor");
        if (i >= n_out || !out[i])
            complain(c, "result %d is missing", i);
        else if (t && !undefined_result(c->op_name, i, c->sample))
            compare(c, o, map[out[i]], json_string_value(t), wf_arena_printf(c->arena, "result %d", i), 1e-5,
                    loose(c->op_name));
    }
    const WfOp *op = wf_op_find(c->op_name);
    json_object_foreach(json_object_get(c->sample, "mutated"), key, want)
    {
        /* the value after the call: result 0 of an in-place op, or what the functional form returns last */
        if (json_is_string(want)) {
            WfVal v = op->functional && i < n_out ? out[i++] : out[0];
            compare(c, o, map[v], json_string_value(want), "the new value of an argument", 1e-5, 1e-6);
        }
    }
    i = 0;
    json_object_foreach(grads, key, want) if (json_is_string(want) && with_grad)
    {
        WfVal d = grad[i++];
        const char *what = wf_arena_printf(c->arena, "the gradient of %s", key);
        if (d) {
            compare(c, o, map[d], json_string_value(want), what, gradient_rtol(c->op_name), 1e-5);
            continue;
        }
        const WfTensor *t = wf_tensors_find(c->file, json_string_value(want));
        double *w = doubles(c, t);
        int64_t n = (int64_t)(t->bytes / wf_dtype_size(t->dtype));
        for (int64_t j = 0; j < n; j++)
            if (w[j] != 0)
                complain(c, "%s is missing", what);
    }
}

/* Kept composites (with a VJP and a decomposition) whose gradient some sample has compared at both levels. */
static bool compared[2048];

static void note_composites(const WfGraph *g)
{
    for (int i = 1; i < g->nodes.n; i++)
        for (int k = 0; g->nodes.at[i].op->decompose && k < wf_op_count(); k++)
            if (wf_op_at(k) == g->nodes.at[i].op)
                compared[k] = true;
}

#ifdef COMPILED
/* Constants that building the graph made. */
static bool constant_of(void *graph, const char *name, void *to, size_t bytes)
{
    const WfGraph *g = graph;
    for (int i = 0; i < g->inputs.n; i++)
        if (!strcmp(g->inputs.at[i].name, name) && g->inputs.at[i].data) {
            memcpy(to, g->inputs.at[i].data, bytes);
            return true;
        }
    return false;
}

/* What the oracle would hold, computed by a compiled step: the outputs of p, in o->val. */
static void run_compiled(Case *c, WfGraph *p, WfOracle *o)
{
    WfOptions options;
    wf_options_init(c->ctx, c->arena, &options);
    WfVal *outs = WF_NEWN(c->arena, WfVal, (size_t)p->outputs.n + 1);
    for (int i = 0; i < p->outputs.n; i++)
        outs[i] = p->outputs.at[i].val;
    WfExe *x = wf_compile(c->ctx, c->arena, p, &options, getenv("XDG_CACHE_HOME"));
    WfSession *s = wf_session_new(c->ctx, x, 2, 0, (WfWeightSource){constant_of, p});
    for (int i = 0; i < x->n_inputs; i++)
        for (int k = 0; k < c->n_in; k++) {
            const WfTensor *t = wf_tensors_find(c->file, c->in[k].key);
            WfTensor copy = *t;
            if (strcmp(x->inputs[i].name, c->in[k].key) || x->inputs[i].role != WF_XIN_USER)
                continue;
            copy.data = wf_arena_alloc(c->arena, t->bytes + 64); /* memory of its own, as a caller's is */
            memcpy((void *)copy.data, t->data, t->bytes);
            wf_session_feed(s, c->in[k].key, &copy);
        }
    wf_session_forward(s, false);
    o->val = WF_NEWN(c->arena, double *, (size_t)p->values.n + 1);
    for (int i = 0; i < p->outputs.n; i++) {
        WfTensor t;
        wf_session_output(s, WF_PROG_STEP, i, &t);
        if (t.data)
            o->val[outs[i]] = doubles(c, &t);
    }
    wf_session_free(s);
}
#endif

static void run_at(Case *c, bool with_grad)
{
    WfVal out[WF_MAX_RESULTS] = {0}, wrt[MAX_TENSORS], grad[MAX_TENSORS] = {0};
    int n_out = 0, n_wrt = 0;
    WfGraph *g = build(c, out, &n_out, wrt, grad, &n_wrt, with_grad);
    for (int i = 0; i < n_out; i++)
        if (out[i])
            wf_add_output(g, WF_OUT_USER, "y", out[i], -1);
    for (int i = 0; i < n_wrt; i++)
        if (grad[i])
            wf_add_output(g, WF_OUT_GRAD, "d", grad[i], 0);
    WfGraph *p = wf_graph_like(g, WF_PRIM);
    WfVal *map = WF_NEWN(c->arena, WfVal, (size_t)g->values.n);
    wf_graph_copy(g, p, map);
    const double **inputs = WF_NEWN(c->arena, const double *, (size_t)g->inputs.n + 1);
    for (int i = 0; i < c->n_in; i++) /* ops may have added constants in between */
        inputs[wf_value(g, c->in[i].val)->index] = c->in[i].data;
    WfOracle o = {.g = p, .arena = c->arena};
#ifdef COMPILED
    run_compiled(c, p, &o);
#else
    wf_oracle_run(&o, inputs);
#endif
    check(c, &o, map, out, n_out, grad, with_grad);
    if (n_wrt && !c->wrong)
        note_composites(g);
}

/* Where a composite's own VJP is not that of its primitives: the maximum of a window passes its gradient to
 * the first of its ties (by primitives they share it), and these two are finite where a derivative of their
 * parts is not. */
static bool own_gradient(const char *op)
{
    return strstr(op, "max_pool") || strstr(op, "binary_cross_entropy.") || strstr(op, "linalg_vector_norm");
}

static void with_gradient(void *arg)
{
    run_at(arg, true);
}
static void without_gradient(void *arg)
{
    run_at(arg, false);
}

/* Returns NULL, or what is wrong; *skipped: the reason for which nothing could be compared. */
static char *run_sample(Case *c, char **skipped)
{
    *skipped = NULL;
    for (int level = 0; level < LEVELS; level++) {
        c->by_primitives = level == 1;
        c->wrong = NULL;
        bool plain = level == 1 && own_gradient(c->op_name);
        weft_status s = wf_guard(c->ctx, plain ? without_gradient : with_gradient, c);
        if (s == WEFT_ERR_UNSUPPORTED && level == 1 && !*skipped)
            s = wf_guard(c->ctx, without_gradient, c); /* kept composites may have no other gradient */
        if (s == WEFT_ERR_UNSUPPORTED)
            *skipped = wf_arena_strdup(c->arena, c->ctx->diag.message);
        else if (s)
            return wf_arena_printf(c->arena, "%s: %s %s", level ? "primitives" : "op", c->ctx->diag.message,
                                   c->ctx->diag.place ? c->ctx->diag.place : "");
        if (c->wrong)
            return wf_arena_printf(c->arena, "%s: %s", level ? "primitives" : "op", c->wrong);
        if (*skipped)
            return NULL;
    }
    return NULL;
}

/* ---- one op ---- */

typedef struct {
    int pass, fail, skip, untried;
    char *reason;
} Tally;

static Tally run_op(WfCtx *ctx, const char *folder, const char *name, bool verbose)
{
    Tally t = {0};
    WfArena *a = wf_arena_new(ctx);
    json_error_t e;
    json_t *j = json_load_file(wf_arena_printf(a, FOLDER "%s/%s.json", folder, name), 0, &e), *sample;
    size_t i;
    if (!j) {
        printf("%s: %s\n", name, e.text);
        t.fail = 1;
        return t;
    }
    if (!wf_op_find(name)) {
        t.skip = (int)json_array_size(json_object_get(j, "samples"));
        t.reason = strdup("not registered");
        json_decref(j);
        wf_arena_free(a);
        return t;
    }
    const WfTensors *file =
        wf_safetensors_open(ctx, a, wf_arena_printf(a, FOLDER "%s/%s.safetensors", folder, name));
    json_array_foreach(json_object_get(j, "samples"), i, sample)
    {
        if (is_complex(name, sample))
            continue;
        if (t.pass + t.fail >= SAMPLES) {
            t.untried++;
            continue;
        }
        Case c = {.ctx = ctx, .arena = wf_arena_new(ctx), .file = file, .sample = sample, .op_name = name};
        char *skipped, *wrong = run_sample(&c, &skipped);
        *(wrong ? &t.fail : skipped ? &t.skip : &t.pass) += 1;
        const char *text = wrong ? wrong : skipped;
        if (text && !t.reason)
            t.reason = strdup(text);
        if (verbose)
            printf("  sample %zu: %s%s%s\n", i,
                   wrong     ? "FAIL "
                   : skipped ? "unsupported "
                             : "ok",
                   text ? text : "", verbose && text ? "" : "");
        wf_arena_free(c.arena);
    }
    json_decref(j);
    wf_arena_free(a);
    return t;
}

static bool is_listed(const char *name)
{
    for (int i = 0; unsupported[i]; i++)
        if (!strcmp(unsupported[i], name))
            return true;
    return false;
}

static int only_n;
static char **only;

static void samples_agree(const char *folder)
{
    WfCtx *ctx = wf_ctx_new();
    json_error_t e;
    char path[512];
    snprintf(path, sizeof path, FOLDER "%s/index.json", folder);
    json_t *index = json_load_file(path, 0, &e), *count;
    assert_non_null(index);
    const char *name;
    int ok = 0, failed = 0, missing = 0, unlisted = 0, stale = 0;
    wf_ops_init();
    json_object_foreach(json_object_get(index, "ops"), name, count)
    {
        bool wanted = !only_n;
        for (int i = 0; i < only_n; i++)
            wanted |= strstr(name, only[i]) != NULL;
        if (!wanted)
            continue;
        Tally t = run_op(ctx, folder, name, only_n > 0);
        bool listed = is_listed(name);
        const char *verdict = t.fail ? "FAIL" : t.skip ? "unsupported" : "ok";
        if (t.fail || t.skip || only_n)
            printf("%-12s %s: %d agree, %d fail, %d unsupported%s%s\n", verdict, name, t.pass, t.fail, t.skip,
                   t.reason ? ": " : "", t.reason ? t.reason : "");
        free(t.reason);
        failed += t.fail > 0;
        missing += !t.fail && t.skip;
        ok += !t.fail && !t.skip;
        unlisted += !t.fail && t.skip && !listed;
        if (listed && !t.skip && !t.fail && !t.untried && !strcmp(folder, "opinfo")) {
            printf("%s is supported now: take it off the list\n", name);
            stale++;
        }
    }
    printf("%d ops agree, %d fail, %d unsupported (%d of them unlisted)\n", ok, failed, missing, unlisted);
    json_decref(index);
    wf_ctx_free(ctx);
    assert_int_equal(failed, 0);
    assert_int_equal(unlisted, 0);
    assert_int_equal(stale, 0);
}

static void pytorchs_own_samples(void **state)
{
    (void)state;
    samples_agree("opinfo");
}

static void further_samples(void **state)
{
    (void)state;
    samples_agree("opinfo_more");
}

#ifndef COMPILED
static void every_kept_composite_was_compared(void **state)
{
    (void)state;
    int missing = 0;
    for (int k = 0; !only_n && k < wf_op_count(); k++)
        /* prim.graft's gradient is another one than its value's, which is its purpose */
        if (wf_op_at(k)->vjp && wf_op_at(k)->decompose && !compared[k] &&
            strncmp(wf_op_at(k)->schema, "prim.graft(", 11)) {
            printf("%s: no sample compares its VJP with that of its decomposition\n", wf_op_at(k)->schema);
            missing++;
        }
    assert_int_equal(missing, 0);
}
#endif

int main(int argc, char **argv)
{
    only = argv + 1;
    only_n = argc - 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pytorchs_own_samples), cmocka_unit_test(further_samples),
#ifndef COMPILED
        cmocka_unit_test(every_kept_composite_was_compared),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
