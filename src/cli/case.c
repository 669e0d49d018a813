/* What a case's file says of how it was trained, as options. */
#include "cli/case.h"

#include <string.h>

typedef struct {
    WfCtx *ctx;
    WfArena *a;
    const json_t *json;
    const char *dir;
} Given;

static void set(Given *c, WfOptions *o, const char *name, const char *fmt, ...) WF_PRINTF(4, 5);
static void set(Given *c, WfOptions *o, const char *name, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    wf_options_set(c->ctx, o, name, wf_arena_vprintf(c->a, fmt, ap));
    va_end(ap);
}

static char *lower(WfArena *a, const char *s)
{
    char *r = wf_arena_strdup(a, s);
    for (char *p = r; *p; p++)
        *p = (char)(*p >= 'A' && *p <= 'Z' ? *p + 32 : *p == '_' ? '-' : *p);
    return r;
}

static char *value_text(Given *c, json_t *v)
{
    if (json_is_array(v) && json_array_size(v) == 2) /* the form that a group's settings allow, too */
        return wf_arena_printf(c->a, "%.17g/%.17g", json_number_value(json_array_get(v, 0)),
                               json_number_value(json_array_get(v, 1)));
    if (json_is_boolean(v))
        return json_is_true(v) ? "true" : "false";
    return wf_arena_printf(c->a, "%.17g", json_number_value(v));
}

static void optimiser_options(Given *c, WfOptions *o)
{
    json_t *opt = json_object_get(c->json, "optimizer"), *v, *clip = json_object_get(c->json, "grad_clip_norm"), *g;
    const char *key, *type = json_string_value(json_object_get(opt, "type"));
    size_t i;
    if (!type)
        wf_fail(c->ctx, WF_E_CASE, "%s/case.json: optimizer.type is missing", c->dir);
    set(c, o, "optimizer", "%s", lower(c->a, type));
    json_object_foreach(opt, key, v) {
        const WfOptionRow *row = wf_option_find(lower(c->a, key));
        if (!strcmp(key, "type") || json_is_null(v) || !row)
            continue;
        if (json_is_boolean(v) && json_is_false(v))
            continue;
        wf_options_set(c->ctx, o, lower(c->a, key), value_text(c, v));
    }
    if (json_is_number(clip))
        set(c, o, "clip-norm", "%.17g", json_number_value(clip));
    json_array_foreach(json_object_get(c->json, "param_groups"), i, g) {
        size_t k;
        json_t *p;
        WfStr kv = {.arena = c->a};
        json_object_foreach(g, key, v)
            if (strcmp(key, "params") && !json_is_null(v))
                wf_str_printf(&kv, "%s%s=%s", kv.n ? "," : "", lower(c->a, key), value_text(c, v));
        json_array_foreach(json_object_get(g, "params"), k, p)
            if (kv.n)
                set(c, o, "param-group", "%s:%s", json_string_value(p), kv.at);
    }
}

/* {"tp": [[0, 1], [2, 3]]} */
static void group_options(Given *c, WfOptions *o)
{
    const char *name;
    json_t *sets, *set, *rank;
    size_t i, k;
    json_object_foreach(json_object_get(c->json, "groups"), name, sets) {
        WfStr s = {.arena = c->a};
        wf_str_printf(&s, "%s=", name);
        json_array_foreach(sets, i, set)
            json_array_foreach(set, k, rank)
                wf_str_printf(&s, "%s%lld", k ? "," : i ? "/" : "", (long long)json_integer_value(rank));
        wf_options_set(c->ctx, o, "group", s.at);
    }
}

void wf_case_options(WfCtx *ctx, WfArena *a, const json_t *json, const char *dir, WfOptions *o)
{
    Given c = {ctx, a, json, dir};
    const json_t *micro = json_object_get(json, "grad_accumulation");
    optimiser_options(&c, o);
    group_options(&c, o);
    if (json_is_integer(micro))
        set(&c, o, "accumulate", "%lld", (long long)json_integer_value(micro));
}
