/* What training data teach, kept: a run writes its recipe beside its weights, with the categories that `auto` found in their order,
 * and predictions with these weights take it from there, so that a word stays the number that the model learned. */
#include <jansson.h>
#include <string.h>

#include "data/private.h"

/* ---- writing ---- */

static void put(const WfOpening *op, WfStr *s, const json_t *v)
{
    const char *key;
    const json_t *item;
    int n = 0;
    if (json_is_string(v)) {
        if (!wf_yaml_quote(json_string_value(v), s))
            wf_fail_at(op->ctx, WF_E_RECIPE, op->recipe, NULL, "recipe: text that is not UTF-8");
    } else if (json_is_array(v)) {
        wf_str_putc(s, '[');
        for (size_t i = 0; i < json_array_size(v); i++) {
            wf_str_puts(s, i ? ", " : "");
            put(op, s, json_array_get(v, i));
        }
        wf_str_putc(s, ']');
    } else if (json_is_object(v)) {
        wf_str_putc(s, '{');
        json_object_foreach((json_t *)(uintptr_t)v, key, item)
        {
            wf_str_puts(s, n++ ? ", " : "");
            wf_yaml_quote(key, s);
            wf_str_puts(s, ": ");
            put(op, s, item);
        }
        wf_str_putc(s, '}');
    } else if (json_is_real(v)) {
        wf_str_float(s, json_real_value(v));
    } else if (json_is_integer(v)) {
        wf_str_printf(s, "%lld", (long long)json_integer_value(v));
    } else {
        wf_str_puts(s, json_is_null(v) ? "null" : json_is_true(v) ? "true" : "false");
    }
}

void wf_categories_print(const WfMap *m, int most, WfStr *out)
{
    for (int i = 0; i < wf_map_count(m) && i < most; i++) {
        size_t n;
        int64_t value;
        const char *name = wf_map_at(m, i, &n, &value);
        wf_str_puts(out, i ? ", " : "");
        wf_yaml_quote(wf_arena_strndup(out->arena, name, n), out);
    }
    if (wf_map_count(m) > most)
        wf_str_printf(out, ", and %d more", wf_map_count(m) - most);
}

static const WfCsvColumn *column_of(const WfRecipe *r, const char *name)
{
    for (int i = 0; i < r->columns.n; i++)
        if (!strcmp(r->columns.at[i].name, name))
            return &r->columns.at[i];
    return NULL;
}

static void put_categories(WfStr *s, const WfRecipe *r, const json_t *v)
{
    const char *name;
    const json_t *list;
    int n = 0;
    wf_str_putc(s, '{');
    json_object_foreach((json_t *)(uintptr_t)v, name, list)
    {
        const WfCsvColumn *c = column_of(r, name);
        wf_str_puts(s, n++ ? ", " : "");
        wf_yaml_quote(name, s);
        wf_str_puts(s, ": [");
        if (c)
            wf_categories_print(c->categories, INT32_MAX, s);
        wf_str_putc(s, ']');
    }
    wf_str_putc(s, '}');
}

static void put_classes(WfStr *s, const WfStrings *names)
{
    wf_str_puts(s, "  classes: [");
    for (int i = 0; i < names->n; i++) {
        wf_str_puts(s, i ? ", " : "");
        wf_yaml_quote(names->at[i], s);
    }
    wf_str_puts(s, "]\n");
}

char *wf_recipe_learned(const WfOpening *op)
{
    const WfClasses *c = op->classes;
    bool put_them = c->names.n > 0;
    WfStr s = {.arena = op->a};
    const char *input, *key;
    json_t *of, *v;
    wf_str_puts(&s, "# The recipe of this run, with the categories and classes that its training data made. weft run takes it from here.\n");
    json_object_foreach((json_t *)op->tree, input, of)
    {
        wf_yaml_quote(input, &s);
        wf_str_puts(&s, ":\n");
        json_object_foreach(of, key, v)
        {
            wf_str_printf(&s, "  %s: ", key);
            if (!strcmp(key, "categories"))
                put_categories(&s, wf_recipe_of(op, input), v);
            else
                put(op, &s, v);
            wf_str_putc(&s, '\n');
        }
        if (put_them && !strcmp(input, c->input)) {
            put_them = false;
            if (!json_object_get(of, "classes"))
                put_classes(&s, &c->names);
        }
    }
    if (put_them) {
        wf_yaml_quote(c->input, &s);
        wf_str_puts(&s, ":\n");
        put_classes(&s, &c->names);
    }
    return s.at;
}

/* ---- reading ---- */

/* The recipe beside --weights, a file or a folder; NULL: there is none. */
static char *beside(WfArena *a, const char *weights)
{
    if (!weights)
        return NULL;
    const char *slash = strrchr(weights, '/');
    int n = wf_is_folder(weights) ? (int)strlen(weights) : slash ? (int)(slash - weights) : 0;
    char *path = wf_arena_printf(a, "%.*s%s" WF_RECIPE_FILE, n, weights, n ? "/" : "");
    return wf_file_exists(path) ? path : NULL;
}

/* Gives inputs without a list of classes, and `auto` columns, what the recipe at `path` has for them. */
static void take_learned(WfOpening *op, const char *path)
{
    WfOpening other = {.ctx = op->ctx, .a = op->a, .use = op->use, .inputs = op->inputs, .n = op->n};
    uint64_t hash;
    wf_recipe_read(&other, path, &hash);
    for (int i = 0; i < other.recipes.n; i++) {
        const WfRecipe *from = &other.recipes.at[i];
        WfRecipe *r = (WfRecipe *)(uintptr_t)wf_recipe_of(op, from->input);
        if (!from->classes.n || r->classes.n)
            continue;
        if (r == &wf_recipe_none) {
            WF_PUSH(op->a, &op->recipes, (WfRecipe){.input = from->input});
            r = &op->recipes.at[op->recipes.n - 1];
        }
        r->classes = from->classes;
        wf_log(op->ctx, WF_LOG_INFO, "data: the classes of input %s are those of %s, beside the weights", from->input, path);
    }
    for (int i = 0; i < op->recipes.n; i++) {
        WfRecipe *r = &op->recipes.at[i];
        for (int k = 0; k < r->columns.n; k++) {
            WfCsvColumn *c = &r->columns.at[k];
            const WfCsvColumn *found = column_of(wf_recipe_of(&other, r->input), c->name);
            if (!c->text || c->closed || !found || !found->closed)
                continue;
            c->categories = found->categories;
            c->closed = true;
            wf_log(op->ctx, WF_LOG_INFO, "data: the categories of column %s are those of %s, beside the weights", c->name, path);
        }
    }
}

void wf_recipe_open(WfOpening *op, const WfOptions *o, uint64_t *hash)
{
    bool none = o->recipe && !strcmp(o->recipe, "none");
    char *kept = op->use == WF_DATA_PREDICT && !none ? beside(op->a, o->weights) : NULL;
    if (o->recipe && !none)
        wf_recipe_read(op, o->recipe, hash);
    if (kept && o->recipe)
        take_learned(op, kept);
    if (!kept || o->recipe)
        return;
    wf_log(op->ctx, WF_LOG_INFO, "data: the recipe is %s, beside the weights (--recipe none: without)", kept);
    wf_recipe_read(op, kept, hash);
    for (int i = 0; i < op->recipes.n; i++) /* it was not written for these data: they may be no pictures */
        wf_recipe_forget(&op->recipes.at[i], WF_USE_CLASSES);
}
