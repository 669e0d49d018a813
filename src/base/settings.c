/* Options in a file: --config reads them, --print-config writes them. The file is a YAML mapping from the names of the option
 * table to values; a repeatable option takes a list. What is written leaves out, as comments, whatever nobody chose, so that
 * the file says what it was written for and later defaults count. Errors name the file. */
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"

enum { LARGEST = 1 << 20 };

typedef struct {
    WfCtx *ctx;
    WfOptions *o;
    const char *path, *name, *value;
} Setting;

static void set_one(void *p)
{
    Setting *s = p;
    wf_options_set_from(s->ctx, s->o, s->name, s->value, WF_FROM_FILE);
}

/* What the table says of a value is right, but does not know the file. */
static void set(Setting *s, const char *value)
{
    s->value = value;
    if (wf_guard(s->ctx, set_one, s) != WEFT_OK)
        wf_fail_at(s->ctx, s->ctx->diag.kind, s->path, s->ctx->diag.hint, "%s", s->ctx->diag.message);
}

static void refuse(const Setting *s, const char *want) WF_NORETURN;
static void refuse(const Setting *s, const char *want)
{
    const WfOptionRow *row = wf_option_find(s->name);
    wf_fail_at(s->ctx, WF_E_CONFIG_VALUE, s->path, row ? row->help : NULL, "option %s: the file holds no %s", s->name, want);
}

/* One value as the command line would have it. Text must be written as text: a number would come back in another form. */
static const char *text_of(Setting *s, const WfOptionRow *row, const json_t *v)
{
    bool number = row->kind == WF_OPTION_INT || row->kind == WF_OPTION_FLOAT || row->kind == WF_OPTION_FLOATS;
    bool text = row->kind == WF_OPTION_STRING || row->kind == WF_OPTION_STRINGS || row->kind == WF_OPTION_GROUPS ||
                row->kind == WF_OPTION_ENUM;
    if (json_is_string(v))
        return json_string_value(v);
    if (json_is_boolean(v) && row->kind == WF_OPTION_BOOL)
        return json_is_true(v) ? "true" : "false";
    if (json_is_integer(v) && (number || text)) /* a whole number has one form */
        return wf_arena_printf(s->o->arena, "%lld", (long long)json_integer_value(v));
    if (json_is_real(v) && number) {
        WfStr out = {.arena = s->o->arena};
        wf_str_float(&out, json_real_value(v));
        return out.at;
    }
    if (json_is_object(v))
        wf_fail_at(s->ctx, WF_E_CONFIG_VALUE, s->path, "Every option is a line of its own: `optimizer: adamw`, and below it `lr: 1e-3`.",
                   "option %s: a settings file is flat, and this is a mapping inside it", s->name);
    refuse(s, text ? "text in quotes for it" : row->kind == WF_OPTION_BOOL ? "true or false for it" : "number for it");
}

static void pair(Setting *s, const WfOptionRow *row, const json_t *v)
{
    if (json_array_size(v) != 2)
        refuse(s, "two numbers for it");
    const char *a = text_of(s, row, json_array_get(v, 0)), *b = text_of(s, row, json_array_get(v, 1));
    set(s, wf_arena_printf(s->o->arena, "%s,%s", a, b));
}

static void unknown(const Setting *s) WF_NORETURN;
static void unknown(const Setting *s)
{
    const char *names[WF_OPTION_ROWS + 1];
    int n = 0;
    for (const WfOptionRow *r = wf_option_table; r->name; r++)
        names[n++] = r->name;
    names[n++] = "model";
    const char *near = wf_nearest(s->name, names, n);
    wf_fail_at(s->ctx, WF_E_CONFIG_KEY, s->path,
               near ? wf_arena_printf(s->o->arena, "did you mean %s?", near)
                    : "`weft train --print-config` writes a file with all keys",
               "unknown key \"%.60s\"", s->name);
}

static void take(Setting *s, const json_t *v, WfStrings *words)
{
    const WfOptionRow *row = wf_option_find(s->name);
    if (!strcmp(s->name, "model")) {
        if (!json_is_string(v))
            refuse(s, "file name for it");
        WF_PUSH(s->o->arena, words, wf_arena_strdup(s->o->arena, json_string_value(v)));
        return;
    }
    if (!row)
        unknown(s);
    if (!strcmp(s->name, "config") || !strcmp(s->name, "print-config"))
        wf_fail_at(s->ctx, WF_E_CONFIG_VALUE, s->path, "Say it on the command line.", "the key %s has no meaning inside a file",
                   s->name);
    bool list = row->kind == WF_OPTION_STRINGS || row->kind == WF_OPTION_GROUPS;
    if (json_is_null(v)) /* `key:` leaves the default */
        return;
    if (json_is_array(v) && list) {
        for (size_t i = 0; i < json_array_size(v); i++)
            set(s, text_of(s, row, json_array_get(v, i)));
        return;
    }
    if (json_is_array(v) && row->kind == WF_OPTION_FLOATS) {
        pair(s, row, v);
        return;
    }
    set(s, text_of(s, row, v));
}

void wf_options_read(WfCtx *ctx, WfOptions *o, const char *text, size_t n, const char *path, WfStrings *words)
{
    json_t *root = wf_yaml_parse(ctx, text, n, path);
    Setting s = {.ctx = ctx, .o = o, .path = wf_arena_strdup(o->arena, path)};
    if (!json_is_object(root) && !json_is_null(root))
        wf_fail_at(ctx, WF_E_CONFIG_VALUE, path, "It is made of lines such as `lr: 3e-4`.", "the file is no mapping from options to values");
    const char *key;
    json_t *v;
    json_object_foreach(root, key, v)
    {
        s.name = key;
        take(&s, v, words);
    }
}

void wf_options_load(WfCtx *ctx, WfOptions *o, const char *path, WfStrings *words)
{
    WfArena *a = wf_arena_scratch(ctx);
    WfFile *f = wf_file_map(ctx, a, path);
    if (f->size > LARGEST)
        wf_fail_at(ctx, WF_E_CONFIG_VALUE, path, "It is made of lines such as `lr: 3e-4`.", "%zu bytes are no settings file", f->size);
    wf_options_read(ctx, o, (const char *)f->at, f->size, path, words);
    wf_arena_free(a);
}

/* ---- writing ---- */

static void put_text(WfCtx *ctx, const char *text, WfStr *out)
{
    if (!wf_yaml_quote(text, out))
        wf_fail(ctx, WF_E_CONFIG_VALUE, "a value is not UTF-8 text, which a settings file needs: %.60s", text);
}

static void put_list(WfCtx *ctx, const WfOptions *o, const WfOptionRow *row, WfStr *out)
{
    const WfStrings *texts = (const WfStrings *)((const char *)o + row->offset);
    int n = row->kind == WF_OPTION_GROUPS ? o->groups.n : texts->n;
    wf_str_putc(out, '[');
    for (int i = 0; i < n; i++) {
        wf_str_puts(out, i ? ", " : "");
        put_text(ctx, row->kind == WF_OPTION_GROUPS ? wf_arena_printf(out->arena, "%s:%s", o->groups.at[i].pattern, o->groups.at[i].text)
                                                    : texts->at[i], out);
    }
    wf_str_putc(out, ']');
}

const char *wf_origin_name(WfOrigin origin)
{
    static const char *const names[] = {"default", "environment", "file", "flag"};
    return names[origin];
}

void wf_options_print(WfCtx *ctx, const WfOptions *o, unsigned groups, const WfStrings *words, WfStr *out)
{
    if (words->n) {
        wf_str_puts(out, "model: ");
        put_text(ctx, words->at[0], out);
        wf_str_puts(out, "\n");
    }
    for (int g = 0; g < WF_GROUPS; g++) {
        if (!(groups & 1u << g))
            continue;
        wf_str_printf(out, "\n# %s\n", wf_option_group_title((WfOptionGroup)g));
        for (const WfOptionRow *r = wf_option_table; r->name; r++) {
            WfOrigin origin = (WfOrigin)o->origin[r - wf_option_table];
            if ((int)r->group != g || !strcmp(r->name, "config") || !strcmp(r->name, "print-config"))
                continue;
            size_t start = out->n;
            wf_str_printf(out, "%s%s: ", origin == WF_FROM_DEFAULT ? "# " : "", r->name);
            if (r->kind == WF_OPTION_STRINGS || r->kind == WF_OPTION_GROUPS)
                put_list(ctx, o, r, out);
            else if (r->kind == WF_OPTION_STRING)
                put_text(ctx, *(char *const *)((const char *)o + r->offset) ? *(char *const *)((const char *)o + r->offset) : "", out);
            else if (r->kind == WF_OPTION_FLOATS) {
                wf_str_putc(out, '[');
                wf_option_text(o, r, out);
                wf_str_putc(out, ']');
            } else
                wf_option_text(o, r, out);
            size_t n = out->n - start;
            wf_str_printf(out, "%*s# %s\n", n < 40 ? (int)(40 - n) : 1, "", wf_origin_name(origin));
        }
    }
}
