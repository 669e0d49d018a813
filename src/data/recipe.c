/* Recipes: a YAML file that says, for inputs of the model by name, what is done to their data beyond what the format does by
 * itself. The keys are rows of one table; each belongs to a use, and a format says which uses mean something to it. */
#include <jansson.h>
#include <math.h>
#include <string.h>

#include "data/private.h"

typedef enum { KIND_NUMBER, KIND_WHOLE, KIND_NUMBERS, KIND_BOOL, KIND_DTYPE, KIND_WORD, KIND_SIZE, KIND_COLUMNS, KIND_CLASSES, KIND_CATEGORIES,
               KIND_FILL } Kind;

typedef struct {
    const char *name;
    Kind kind;
    WfUse use;
    size_t offset;       /* in WfRecipe */
    double lo, hi;       /* of numbers, both allowed */
    const char *words[4];
} Key;

#define AT(field) offsetof(WfRecipe, field)
#define ANY -1e300, 1e300
static const Key keys[] = {
    {"scale", KIND_NUMBER, WF_USE_VALUES, AT(scale), ANY, {0}},
    {"mean", KIND_NUMBERS, WF_USE_VALUES, AT(mean), ANY, {0}},
    {"std", KIND_NUMBERS, WF_USE_VALUES, AT(std), 1e-300, 1e300, {0}},
    {"dtype", KIND_DTYPE, WF_USE_VALUES, AT(dtype), ANY, {0}},
    {"one_hot", KIND_WHOLE, WF_USE_VALUES, AT(one_hot), 1, 1 << 24, {0}},
    {"tokens", KIND_WORD, WF_USE_TOKENS, AT(tokens), ANY, {"bytes", "u16", "u32"}},
    {"length", KIND_WHOLE, WF_USE_TOKENS, AT(length), 1, 1 << 30, {0}},
    {"stride", KIND_WHOLE, WF_USE_TOKENS, AT(stride), 1, 1 << 30, {0}},
    {"vocab", KIND_WHOLE, WF_USE_TOKENS, AT(vocab), 1, 4294967296.0, {0}},
    {"resize", KIND_SIZE, WF_USE_RESIZE, AT(resize), 1, 16384, {0}},
    {"crop", KIND_WORD, WF_USE_WINDOW, AT(crop), ANY, {"center", "random"}},
    {"padding", KIND_WHOLE, WF_USE_WINDOW, AT(padding), 0, 4096, {0}},
    {"flip", KIND_BOOL, WF_USE_WINDOW, AT(flip), ANY, {0}},
    {"columns", KIND_COLUMNS, WF_USE_TABLE, AT(columns), ANY, {0}},
    {"categories", KIND_CATEGORIES, WF_USE_TABLE, AT(columns), ANY, {0}},
    {"fill", KIND_FILL, WF_USE_TABLE, AT(columns), ANY, {0}},
    {"classes", KIND_CLASSES, WF_USE_CLASSES, AT(classes), ANY, {0}},
};

const WfRecipe wf_recipe_none;

const WfRecipe *wf_recipe_of(const WfOpening *op, const char *input)
{
    for (int i = 0; i < op->recipes.n; i++)
        if (!strcmp(op->recipes.at[i].input, input))
            return &op->recipes.at[i];
    return &wf_recipe_none;
}

bool wf_recipe_learns(const WfRecipe *r)
{
    bool any = false;
    for (int i = 0; i < r->columns.n; i++)
        any |= r->columns.at[i].text && !r->columns.at[i].closed;
    return any;
}

void wf_recipe_forget(WfRecipe *r, unsigned uses)
{
    for (size_t i = 0; i < WF_LEN(keys); i++)
        if (uses & keys[i].use)
            r->given &= ~(1u << i);
}

const char *wf_recipe_foreign(const WfRecipe *r, unsigned uses)
{
    for (size_t i = 0; i < WF_LEN(keys); i++)
        if (r->given & 1u << i && !(uses & keys[i].use))
            return keys[i].name;
    return NULL;
}

/* ---- reading ---- */

typedef struct {
    WfCtx *ctx;
    WfArena *a;
    const char *path;
    const WfDataInput *inputs;
    int n;
    const Key *key;
    const char *input;
} Reading;

static void WF_NORETURN WF_PRINTF(2, 3) wrong(const Reading *r, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    char *text = wf_arena_vprintf(r->a, fmt, ap);
    va_end(ap);
    wf_fail_at(r->ctx, WF_E_RECIPE, r->path, "docs/data.md lists the keys.", "recipe: %s%s%s: %s", r->input, r->key ? "." : "",
               r->key ? r->key->name : "", text);
}

static const char *kind_of(const json_t *v)
{
    static const char *const names[] = {"a mapping", "a list", "text", "a whole number", "a number", "true", "false", "null"};
    return names[json_typeof(v)];
}

static double number(const Reading *r, const json_t *v)
{
    if (!json_is_number(v))
        wrong(r, "a number is needed, not %s", kind_of(v));
    double x = json_number_value(v);
    if (!(x >= r->key->lo && x <= r->key->hi))
        wrong(r, "%g is out of range; %g to %g are allowed", x, r->key->lo, r->key->hi);
    return x;
}

static int64_t whole(const Reading *r, const json_t *v)
{
    if (!json_is_integer(v))
        wrong(r, "a whole number is needed, not %s", kind_of(v));
    return (int64_t)number(r, v);
}

static const char *text(const Reading *r, const json_t *v)
{
    if (!json_is_string(v))
        wrong(r, "text is needed, not %s", kind_of(v));
    return wf_arena_strdup(r->a, json_string_value(v));
}

static void numbers(const Reading *r, const json_t *v, WfNumbers *out)
{
    size_t n = json_is_array(v) ? json_array_size(v) : 1;
    for (size_t i = 0; i < n; i++)
        WF_PUSH(r->a, out, number(r, json_is_array(v) ? json_array_get(v, i) : v));
    if (!n)
        wrong(r, "the list is empty");
}

static void word(const Reading *r, const json_t *v, int first, int *out)
{
    const char *have = text(r, v);
    int n = 0;
    for (; n < 4 && r->key->words[n]; n++)
        if (!strcmp(have, r->key->words[n])) {
            *out = n + first;
            return;
        }
    wrong(r, "\"%.40s\" is none of %s, %s%s%s", have, r->key->words[0], r->key->words[1], n > 2 ? ", " : "", n > 2 ? r->key->words[2] : "");
}

static WfCsvColumn *column_of(const Reading *r, WfRecipe *out, const char *name)
{
    for (int i = 0; i < out->columns.n; i++)
        if (!strcmp(out->columns.at[i].name, name))
            return &out->columns.at[i];
    const char *names[64];
    int n = 0;
    for (; n < out->columns.n && n < (int)WF_LEN(names); n++)
        names[n] = out->columns.at[n].name;
    const char *near = wf_nearest(name, names, n);
    wrong(r, "%s is not one of the columns%s%s%s", name, near ? " (did you mean " : "", near ? near : "", near ? "?)" : "");
}

static void read_columns(const Reading *r, const json_t *v, WfRecipe *out)
{
    if (!json_is_array(v) || !json_array_size(v))
        wrong(r, "a list of names is needed");
    for (size_t i = 0; i < json_array_size(v); i++) {
        WfCsvColumn c = {.name = text(r, json_array_get(v, i))};
        for (int k = 0; k < out->columns.n; k++)
            if (!strcmp(out->columns.at[k].name, c.name))
                wrong(r, "%s is there twice", c.name);
        WF_PUSH(r->a, &out->columns, c);
    }
}

static void read_classes(const Reading *r, const json_t *v, WfStrings *out)
{
    if (!json_is_array(v) || !json_array_size(v))
        wrong(r, "a list of the names of class folders is needed");
    for (size_t i = 0; i < json_array_size(v); i++) {
        const json_t *item = json_array_get(v, i);
        char *name = json_is_integer(item) ? wf_arena_printf(r->a, "%lld", (long long)json_integer_value(item))
                                           : wf_arena_strdup(r->a, text(r, item));
        if (wf_class_number(out, name) >= 0)
            wrong(r, "%s is there twice", name);
        WF_PUSH(r->a, out, name);
    }
}

/* {column: [first, second, ..]} or {column: auto}. */
static void read_categories(const Reading *r, const json_t *v, WfRecipe *out)
{
    const char *name;
    json_t *list;
    if (!json_is_object(v))
        wrong(r, "a mapping from columns to lists of categories, or to auto, is needed");
    json_object_foreach((json_t *)(uintptr_t)v, name, list)
    {
        WfCsvColumn *c = column_of(r, out, name);
        c->text = true;
        c->categories = wf_map_new(r->a);
        c->closed = json_is_array(list);
        if (!c->closed && (!json_is_string(list) || strcmp(json_string_value(list), "auto")))
            wrong(r, "%s: a list of categories or auto is needed", name);
        for (size_t i = 0; c->closed && i < json_array_size(list); i++) {
            const json_t *item = json_array_get(list, i);
            const char *category = json_is_integer(item) ? wf_arena_printf(r->a, "%lld", (long long)json_integer_value(item)) : text(r, item);
            if (wf_map_get(c->categories, category, NULL))
                wrong(r, "%s: %s is there twice", name, category);
            wf_map_put(c->categories, category, (int64_t)i);
        }
    }
}

static const char *fill_text(const Reading *r, const json_t *v)
{
    WfStr s = {.arena = r->a};
    if (json_is_string(v))
        return text(r, v);
    if (!json_is_number(v))
        wrong(r, "a number or a category is needed, not %s", kind_of(v));
    wf_str_float(&s, json_number_value(v));
    return s.at;
}

/* One value for all columns, or {column: value}. */
static void read_fill(const Reading *r, const json_t *v, WfRecipe *out)
{
    const char *name;
    json_t *value;
    if (!json_is_object(v))
        for (int i = 0; i < out->columns.n; i++)
            out->columns.at[i].fill = fill_text(r, v);
    else
        json_object_foreach((json_t *)(uintptr_t)v, name, value)
            column_of(r, out, name)->fill = fill_text(r, value);
}

static void read_key(const Reading *r, const json_t *v, WfRecipe *out)
{
    void *at = (char *)out + r->key->offset;
    if (!strcmp(r->key->name, "scale"))
        out->scaled = true;
    switch (r->key->kind) {
    case KIND_NUMBER:
        *(double *)at = number(r, v);
        break;
    case KIND_WHOLE:
        *(int64_t *)at = whole(r, v);
        break;
    case KIND_NUMBERS:
        numbers(r, v, at);
        break;
    case KIND_BOOL:
        if (!json_is_boolean(v))
            wrong(r, "true or false is needed, not %s", kind_of(v));
        *(bool *)at = json_is_true(v);
        break;
    case KIND_DTYPE:
        if (!(*(WfDtype *)at = wf_dtype_parse(text(r, v))))
            wrong(r, "%s is no type", json_string_value(v));
        break;
    case KIND_WORD: /* of tokens, 0 is "as the format says" */
        word(r, v, r->key->use == WF_USE_TOKENS, at);
        break;
    case KIND_SIZE:
        if (json_is_array(v) && json_array_size(v) != 2)
            wrong(r, "one number or [height, width] is needed");
        out->resize[0] = whole(r, json_is_array(v) ? json_array_get(v, 0) : v);
        out->resize[1] = json_is_array(v) ? whole(r, json_array_get(v, 1)) : 0;
        break;
    case KIND_COLUMNS:
        read_columns(r, v, out);
        break;
    case KIND_CLASSES:
        read_classes(r, v, at);
        break;
    case KIND_CATEGORIES:
        read_categories(r, v, out);
        break;
    case KIND_FILL:
        read_fill(r, v, out);
        break;
    }
}

static void check_keys(Reading *r, json_t *of)
{
    const char *name, *names[WF_LEN(keys)];
    json_t *v;
    r->key = NULL;
    if (!json_is_object(of))
        wrong(r, "a mapping is needed, not %s", kind_of(of));
    for (size_t i = 0; i < WF_LEN(keys); i++)
        names[i] = keys[i].name;
    json_object_foreach(of, name, v)
    {
        bool known = false;
        for (size_t i = 0; i < WF_LEN(keys); i++)
            known |= !strcmp(name, names[i]);
        const char *near = known ? NULL : wf_nearest(name, names, (int)WF_LEN(names));
        if (!known)
            wrong(r, "there is no key %s%s%s%s", name, near ? "; did you mean " : "", near ? near : "", near ? "?" : "");
    }
}

static void read_input(Reading *r, const WfDataInput *in, json_t *of, WfRecipes *out)
{
    WfRecipe recipe = {.input = in->name};
    r->input = in->name;
    check_keys(r, of);
    for (size_t i = 0; i < WF_LEN(keys); i++) { /* in the table's order: columns come before what refers to them */
        json_t *v = json_object_get(of, keys[i].name);
        if (!v)
            continue;
        r->key = &keys[i];
        recipe.given |= 1u << i;
        if (keys[i].use == WF_USE_TABLE && !recipe.columns.n && keys[i].kind != KIND_COLUMNS)
            wrong(r, "list the columns first: columns: [...]");
        read_key(r, v, &recipe);
        if (keys[i].kind == KIND_DTYPE && recipe.dtype != in->dtype)
            wrong(r, "the model's input is %s", wf_dtype_name(in->dtype));
    }
    WF_PUSH(r->a, out, recipe);
}

void wf_recipe_read(WfOpening *op, const char *path, uint64_t *hash)
{
    Reading r = {.ctx = op->ctx, .a = op->a, .path = path, .inputs = op->inputs, .n = op->n};
    const char *name, *names[64];
    json_t *v;
    int n = 0;
    WfBytes *b = wf_bytes_open(op->ctx, op->a, path);
    WfArena *scratch = wf_arena_scratch(op->ctx);
    if (wf_bytes_size(b) > 1 << 20)
        wf_fail_at(op->ctx, WF_E_RECIPE, path, NULL, "recipe: %lld bytes are more than a recipe has", (long long)wf_bytes_size(b));
    const WfFile *f = wf_bytes_view(op->ctx, scratch, b);
    *hash = wf_hash64(f->at, f->size, 0);
    json_t *root = (json_t *)wf_yaml_parse(op->ctx, (const char *)f->at, f->size, path);
    if (!json_is_object(root))
        wf_fail_at(op->ctx, WF_E_RECIPE, path, "docs/data.md has examples.", "recipe: the file is no mapping from inputs to what is done to them");
    for (; n < op->n && n < (int)WF_LEN(names); n++)
        names[n] = op->inputs[n].name;
    json_object_foreach(root, name, v)
    {
        const WfDataInput *in = NULL;
        for (int i = 0; i < op->n; i++)
            in = strcmp(op->inputs[i].name, name) ? in : &op->inputs[i];
        const char *near = in ? NULL : wf_nearest(name, names, n);
        if (in)
            read_input(&r, in, v, &op->recipes);
        else if (op->use != WF_DATA_PREDICT) /* where labels are not asked for */
            wf_fail_at(op->ctx, WF_E_RECIPE, path, near ? wf_arena_printf(op->a, "did you mean %s?", near) : NULL,
                       "recipe: the model has no input %s", name);
    }
    op->recipe = wf_arena_strdup(op->a, path);
    op->tree = root;
    wf_arena_free(scratch);
}
