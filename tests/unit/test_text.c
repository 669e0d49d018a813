/* The text form of graphs: for every recorded case and every pass of the pipeline, in training and in
 * evaluation form, print, parse and print again give the same bytes; and what the parser says of wrong text.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "import/import.h"
#include "ops/ops.h"
#include "pipeline.h"

typedef struct {
    WfCtx *ctx;
    WfArena *arena;
    const char *path, *after, *text, *optimizer;
    bool eval;
    char *first, *second, *signature[2];
} Round;

/* Models that speak between ranks name what a case of theirs declares: how many there are, and its groups. */
static void set_ranks(Round *r, WfOptions *o)
{
    char *file = wf_arena_printf(r->arena, "%.*s/case.json", (int)(strrchr(r->path, '/') - r->path), r->path);
    if (!wf_file_exists(file))
        return;
    WfFile *f = wf_file_map(r->ctx, r->arena, file);
    json_t *j = (json_t *)wf_json_parse(r->ctx, (const char *)f->at, f->size, file), *sets, *set, *rank;
    json_t *ranks = json_object_get(j, "data_parallel");
    const char *name;
    size_t i, k;
    if (ranks)
        wf_options_set(r->ctx, o, "nproc", wf_arena_printf(r->arena, "%d", (int)json_integer_value(ranks)));
    json_object_foreach(json_object_get(j, "groups"), name, sets) {
        WfStr s = {.arena = r->arena};
        wf_str_printf(&s, "%s=", name);
        json_array_foreach(sets, i, set)
            json_array_foreach(set, k, rank)
                wf_str_printf(&s, "%s%d", k ? "," : i ? "/" : "", (int)json_integer_value(rank));
        wf_options_set(r->ctx, o, "group", s.at);
    }
}

/* The graph after a pass, printed, parsed and printed again. */
static void round_trip(void *v)
{
    Round *r = v;
    WfOptions o;
    WfStr first = {.arena = r->arena}, second = {.arena = r->arena};
    char hex[65];
    wf_options_init(r->ctx, r->arena, &o);
    wf_options_set(r->ctx, &o, "optimizer", r->optimizer);
    set_ranks(r, &o);
    WfModel *m = wf_import_pt2(r->ctx, r->arena, r->path, true);
    WfGraph *g = wf_compile_until(r->ctx, r->arena, m->graph, &o, r->after, r->eval);
    wf_print(g, &first);
    r->first = first.at;
    wf_signature(g, hex);
    r->signature[0] = wf_arena_strdup(r->arena, hex);
    WfGraph *again = wf_parse(r->ctx, r->arena, first.at, "text");
    wf_print(again, &second);
    r->second = second.at;
    wf_signature(again, hex);
    r->signature[1] = wf_arena_strdup(r->arena, hex);
}

static void show_difference(const char *a, const char *b)
{
    size_t i = 0, line = 0;
    for (; a[i] && a[i] == b[i]; i++)
        line = a[i] == '\n' ? i + 1 : line;
    print_message("  first:  %.*s\n  second: %.*s\n", (int)strcspn(a + line, "\n"), a + line,
                  (int)strcspn(b + line, "\n"), b + line);
}

static int bad_rounds(const char *path, const char *optimizer)
{
    int bad = 0;
    for (int eval = 0; eval < 2; eval++)
        for (int k = -1; k < 0 || wf_pipeline[k].name; k++) {
            const char *after = k < 0 ? "" : wf_pipeline[k].name;
            if (k >= 0 && wf_pipeline[k].when && !wf_pipeline[k].when(&(WfPassEnv){.eval = eval}))
                continue;
            WfCtx *ctx = wf_ctx_new();
            Round r = {.ctx = ctx, .path = path, .after = after, .eval = eval, .optimizer = optimizer};
            r.arena = wf_arena_new(ctx);
            weft_status s = wf_guard(ctx, round_trip, &r);
            if (s != WEFT_OK && s != WEFT_ERR_UNSUPPORTED) {
                print_message("%s after '%s' (%s): %s\n  %s\n", path, after, eval ? "evaluation" : "training",
                              ctx->diag.message, ctx->diag.place ? ctx->diag.place : "");
                bad++;
            } else if (s == WEFT_OK &&
                       (strcmp(r.first, r.second) || strcmp(r.signature[0], r.signature[1]))) {
                print_message("%s after '%s' (%s): another %s\n", path, after,
                              eval ? "evaluation" : "training",
                              strcmp(r.first, r.second) ? "text" : "signature");
                show_difference(r.first, r.second);
                bad++;
            }
            wf_ctx_free(ctx);
        }
    return bad;
}

static int walk(const char *folder, int *seen)
{
    int bad = 0;
    struct dirent **list;
    int n = scandir(folder, &list, NULL, alphasort);
    for (int i = 0; i < n; i++) {
        char path[1024];
        size_t k = strlen(list[i]->d_name);
        snprintf(path, sizeof path, "%s/%s", folder, list[i]->d_name);
        if (list[i]->d_name[0] != '.' && list[i]->d_type == DT_DIR)
            bad += walk(path, seen);
        if (k > 4 && !strcmp(list[i]->d_name + k - 4, ".pt2"))
            bad += bad_rounds(path, ++*seen % 2 ? "adamw" : "sgd");
        free(list[i]);
    }
    if (n >= 0)
        free(list);
    return bad;
}

static void every_pass_round_trips(void **state)
{
    (void)state;
    int seen = 0, bad = walk(WEFT_SOURCE_DIR "/tests/refs", &seen);
    assert_true(seen >= 20);
    assert_int_equal(bad, 0);
}

/* ---- the parser alone ---- */

static void parse(void *v)
{
    Round *r = v;
    WfStr first = {.arena = r->arena};
    wf_print(wf_parse(r->ctx, r->arena, r->text, "t"), &first);
    r->first = first.at;
}

static void expect(const char *text, const char *place, const char *message)
{
    WfCtx *ctx = wf_ctx_new();
    Round r = {.ctx = ctx, .text = text};
    wf_ops_init();
    r.arena = wf_arena_new(ctx);
    weft_status s = wf_guard(ctx, parse, &r);
    if (message) {
        assert_int_equal(s, WEFT_ERR_FILE);
        assert_non_null(strstr(ctx->diag.message, message));
        assert_string_equal(ctx->diag.place, place);
    } else {
        if (s != WEFT_OK)
            print_message("%s\n", ctx->diag.message);
        assert_int_equal(s, WEFT_OK);
        assert_string_equal(r.first, text);
    }
    wf_ctx_free(ctx);
}

static void text_is_kept(void **state)
{
    (void)state;
    expect("graph op {\n}\n", NULL, NULL);
    expect("graph aten {\n"
           "  symbol s0 in [2, inf]\n"
           "  input %w : f32[3, 4] strided = param \"w\" frozen also \"tied.w\"\n"
           "  input %b_2 : f32[3] = buffer \"b\\\"\\\\\\n\" transient\n"
           "  input %b : f32[8*s0+1, 4] = user \"x\"\n"
           "  %y : f32[8*s0+1, 3] = aten.linear(%b, %w, %b_2) no_grad  # net.py:31\n"
           "  %c : f32[8*s0+1, 3] = aten.clamp(%y, max=inf)  # a b:c.py:7\n"
           "  output user \"0\" %c\n"
           "}\n",
           NULL, NULL);
    expect("graph joint {\n"
           "  input %p : f32[2, 3] @(1,0) = param \"p\"\n"
           "  input %s : f32[2, 3] = state \"p.m\" of \"p\" fill 0.5\n"
           "  %t : f32[2, 3] = prim.add(%p, %s)\n"
           "  output update \"p.m\" %t\n"
           "  output grad \"p\" None\n"
           "}\n",
           NULL, NULL);
}

static void mistakes_are_named(void **state)
{
    (void)state;
    expect("graph foo {}", "t:1:10", "'foo' is no level");
    expect("graph op {\n  %a : f32[] = prim.neg(%b)\n}", "t:2:27", "there is no value %b");
    expect("graph op {\n  input %a : f32[] = user \"a\"\n  %b : f32[2] = prim.neg(%a)\n}", "t:3:29",
           "is written with another type");
    expect("graph op {\n  %a : f32[] = prim.nothing()\n}", "t:2:28", "no op is called prim.nothing");
    expect("graph op {\n  input %a : f32[2] @(1) = user \"a\"\n}", "t:2:24", "no permutation");
    expect("graph op {", "t:1:11", "'}' is expected");
    expect("graph op {} x", "t:1:13", "something follows");
    expect("graph op {\n  input %a : f32[] = user \"a\"\n  input %a : f32[] = user \"b\"\n}", "t:3:30",
           "defined twice");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_is_kept),
        cmocka_unit_test(mistakes_are_named),
        cmocka_unit_test(every_pass_round_trips),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
