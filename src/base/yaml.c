/* YAML through libyaml's event parser, as a JSON tree. Plain scalars get the types of YAML 1.2's core schema (libyaml
 * itself gives none, and YAML 1.1's are the surprising ones: `no` is text here, `0o17` is fifteen). Refused is what a
 * reader of settings does not expect: anchors, aliases and tags, keys twice, keys that are no scalars, a second
 * document, depth above 32, and numbers that no JSON value can hold. */
#include <errno.h>
#include <jansson.h>
#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

#include "base/inner.h"

enum { DEEPEST = 32 };

/* In an arena: what it holds outlives the frames that a failure leaves. */
typedef struct {
    WfCtx *ctx;
    const char *what, *text;
    yaml_parser_t parser;
    yaml_event_t event;      /* the present one */
    json_t *root;            /* what is read so far; NULL when somebody else owns it */
} Yaml;

static void release(void *p)
{
    Yaml *y = p;
    yaml_event_delete(&y->event);
    yaml_parser_delete(&y->parser);
    json_decref(y->root);
}

static void free_json(void *p) { json_decref(p); }

static void refuse(const Yaml *y, yaml_mark_t at, const char *hint, const char *fmt, ...) WF_NORETURN WF_PRINTF(4, 5);
static void refuse(const Yaml *y, yaml_mark_t at, const char *hint, const char *fmt, ...)
{
    char place[64], text[240];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    snprintf(place, sizeof place, "line %zu, column %zu", at.line + 1, at.column + 1);
    wf_fail_at(y->ctx, WF_E_YAML, place, hint, "%s: %s", y->what, text);
}

static void next(Yaml *y)
{
    yaml_event_delete(&y->event);
    if (yaml_parser_parse(&y->parser, &y->event))
        return;
    const yaml_parser_t *p = &y->parser;
    if (p->error == YAML_MEMORY_ERROR)
        wf_fail(y->ctx, WF_E_MEMORY, "out of memory");
    yaml_mark_t at = p->problem_mark;
    if (p->error == YAML_READER_ERROR) { /* bytes that are no UTF-8 have an offset only */
        at = (yaml_mark_t){0};
        for (size_t i = 0; i < p->problem_offset; i++) {
            at.column = y->text[i] == '\n' ? 0 : at.column + 1;
            at.line += y->text[i] == '\n';
        }
    }
    refuse(y, at, NULL, "not valid YAML: %s%s%s", p->problem ? p->problem : "unreadable", p->context ? " " : "",
           p->context ? p->context : "");
}

static json_t *made(const Yaml *y, json_t *j)
{
    if (!j)
        wf_fail(y->ctx, WF_E_MEMORY, "out of memory");
    return j;
}

/* ---- scalars ---- */

static bool one_of(const char *text, const char *const *words, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!strcmp(text, words[i]))
            return true;
    return false;
}

static size_t digits(const char *t, const char *which) { return strspn(t, which); }

/* [-+]?[0-9]+ | 0o[0-7]+ | 0x[0-9a-fA-F]+; base 0: none of these */
static int integer_base(const char *t)
{
    size_t sign = *t == '-' || *t == '+';
    if (t[0] == '0' && t[1] == 'o' && t[2] && !t[2 + digits(t + 2, "01234567")])
        return 8;
    if (t[0] == '0' && t[1] == 'x' && t[2] && !t[2 + digits(t + 2, "0123456789abcdefABCDEF")])
        return 16;
    return t[sign] && !t[sign + digits(t + sign, "0123456789")] ? 10 : 0;
}

/* [-+]? ( \.[0-9]+ | [0-9]+ ( \.[0-9]* )? ) ( [eE] [-+]? [0-9]+ )? */
static bool is_float(const char *t)
{
    t += *t == '-' || *t == '+';
    size_t whole = digits(t, "0123456789"), part = 0;
    t += whole;
    if (*t == '.') {
        part = digits(++t, "0123456789");
        t += part;
    }
    if (!whole && !part)
        return false;
    if (*t == 'e' || *t == 'E') {
        t++;
        t += *t == '-' || *t == '+';
        size_t n = digits(t, "0123456789");
        if (!n)
            return false;
        t += n;
    }
    return !*t;
}

static double to_double(const Yaml *y, const char *text)
{
    locale_t c = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    if (c == (locale_t)0)
        wf_fail(y->ctx, WF_E_MEMORY, "out of memory");
    double v = strtod_l(text, NULL, c);
    freelocale(c);
    return v;
}

static json_t *plain(const Yaml *y, const char *t)
{
    static const char *const nulls[] = {"", "~", "null", "Null", "NULL"}, *const yes[] = {"true", "True", "TRUE"},
                      *const no[] = {"false", "False", "FALSE"},
                      *const wild[] = {".inf", ".Inf", ".INF", ".nan", ".NaN", ".NAN"};
    yaml_mark_t at = y->event.start_mark;
    if (one_of(t, nulls, WF_LEN(nulls)))
        return json_null();
    if (one_of(t, yes, WF_LEN(yes)) || one_of(t, no, WF_LEN(no)))
        return json_boolean(one_of(t, yes, WF_LEN(yes)));
    int base = integer_base(t);
    if (base) {
        errno = 0;
        long long v = strtoll(base == 10 ? t : t + 2, NULL, base);
        if (errno)
            refuse(y, at, "Put it in quotes if it is text.", "%.60s is beyond 64-bit integers", t);
        return made(y, json_integer(v));
    }
    size_t sign = *t == '-' || *t == '+';
    double v = is_float(t) ? to_double(y, t) : one_of(t + sign, wild, WF_LEN(wild)) ? NAN : 0;
    if (!isfinite(v))
        refuse(y, at, "Put it in quotes if it is text.", "%.60s is no finite number", t);
    return made(y, is_float(t) ? json_real(v) : json_string(t));
}

/* The text of the present event, which must be a scalar. */
static const char *scalar(const Yaml *y)
{
    const char *text = (const char *)y->event.data.scalar.value;
    if (strlen(text) != y->event.data.scalar.length)
        refuse(y, y->event.start_mark, NULL, "a zero byte in text");
    return text;
}

/* ---- trees ---- */

static void check_marks(const Yaml *y)
{
    const yaml_event_t *e = &y->event;
    const yaml_char_t *anchor = NULL, *tag = NULL;
    if (e->type == YAML_SCALAR_EVENT) {
        anchor = e->data.scalar.anchor;
        tag = e->data.scalar.tag;
    } else if (e->type == YAML_SEQUENCE_START_EVENT) {
        anchor = e->data.sequence_start.anchor;
        tag = e->data.sequence_start.tag;
    } else if (e->type == YAML_MAPPING_START_EVENT) {
        anchor = e->data.mapping_start.anchor;
        tag = e->data.mapping_start.tag;
    }
    if (anchor || e->type == YAML_ALIAS_EVENT)
        refuse(y, e->start_mark, "Write the value out; put text that begins with & or * in quotes.",
               "anchors and aliases are not taken");
    if (tag)
        refuse(y, e->start_mark, "Leave the tag away; put text that begins with ! in quotes.", "tags are not taken");
}

static json_t *value(Yaml *y, int depth, json_t *into, const char *key);

static void mapping(Yaml *y, int depth, json_t *into)
{
    for (next(y); y->event.type != YAML_MAPPING_END_EVENT; next(y)) {
        check_marks(y);
        if (y->event.type != YAML_SCALAR_EVENT)
            refuse(y, y->event.start_mark, NULL, "a key must be a word, not a list or a mapping");
        yaml_mark_t at = y->event.start_mark;
        WfArena *a = wf_arena_scratch(y->ctx);
        char *key = wf_arena_strdup(a, scalar(y));
        if (json_object_get(into, key))
            refuse(y, at, NULL, "the key \"%.80s\" stands there twice", key);
        next(y);
        value(y, depth, into, key);
        wf_arena_free(a);
    }
}

/* The value that begins with the present event, put into `into` (under `key`, or behind its last element), or into the root
 * when that is NULL. */
static json_t *value(Yaml *y, int depth, json_t *into, const char *key)
{
    yaml_event_type_t type = y->event.type;
    check_marks(y);
    if (depth > DEEPEST)
        refuse(y, y->event.start_mark, NULL, "deeper than %d levels", DEEPEST);
    json_t *j;
    if (type == YAML_MAPPING_START_EVENT)
        j = made(y, json_object());
    else if (type == YAML_SEQUENCE_START_EVENT)
        j = made(y, json_array());
    else if (y->event.data.scalar.plain_implicit)
        j = plain(y, scalar(y));
    else
        j = made(y, json_string(scalar(y)));
    if (!into)
        y->root = j;
    else if (key ? json_object_set_new(into, key, j) : json_array_append_new(into, j))
        wf_fail(y->ctx, WF_E_MEMORY, "out of memory");
    if (type == YAML_MAPPING_START_EVENT)
        mapping(y, depth + 1, j);
    else if (type == YAML_SEQUENCE_START_EVENT)
        for (next(y); y->event.type != YAML_SEQUENCE_END_EVENT; next(y))
            value(y, depth + 1, j, NULL);
    return j;
}

WfJson *wf_yaml_parse(WfCtx *ctx, const char *text, size_t n, const char *what)
{
    WfArena *a = wf_arena_scratch(ctx);
    Yaml *y = WF_NEW(a, Yaml);
    *y = (Yaml){.ctx = ctx, .what = what, .text = text};
    if (!yaml_parser_initialize(&y->parser))
        wf_fail(ctx, WF_E_MEMORY, "out of memory");
    wf_arena_at_free(a, release, y);
    yaml_parser_set_encoding(&y->parser, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&y->parser, (const unsigned char *)(n ? text : ""), n);
    next(y); /* the stream's start */
    next(y);
    if (y->event.type == YAML_STREAM_END_EVENT) {
        y->root = json_null();
    } else { /* a document */
        next(y);
        value(y, 1, NULL, NULL);
        next(y);
        next(y);
        if (y->event.type != YAML_STREAM_END_EVENT)
            refuse(y, y->event.start_mark, NULL, "a second document; one is taken");
    }
    json_t *root = y->root;
    y->root = NULL;
    wf_defer(ctx, free_json, root);
    wf_arena_free(a);
    return root;
}

/* ---- writing: double-quoted YAML is JSON's text, but for some characters ---- */

/* Characters that YAML folds, takes for line breaks or refuses as they are: DEL, C1 controls, U+2028, U+2029, U+FEFF, U+FFFE,
 * U+FFFF. Does the UTF-8 text at c begin with one? Its code, else 0; *n: bytes of what it begins with. */
static unsigned to_escape(const char *c, size_t *n)
{
    const unsigned char *u = (const unsigned char *)c;
    *n = u[0] < 0x80 ? 1 : u[0] < 0xe0 ? 2 : u[0] < 0xf0 ? 3 : 4;
    unsigned code = *n == 1 ? u[0] : *n == 2 ? (u[0] & 31u) << 6 | (u[1] & 63u) : (u[0] & 15u) << 12 | (u[1] & 63u) << 6 | (u[2] & 63u);
    bool odd = *n < 4 && ((code >= 0x7f && code < 0xa0) || code == 0x2028 || code == 0x2029 || code == 0xfeff || code == 0xfffe || code == 0xffff);
    return odd ? code : 0;
}

bool wf_yaml_quote(const char *text, WfStr *out)
{
    json_t *j = json_string(text);
    char *quoted = j ? json_dumps(j, JSON_ENCODE_ANY) : NULL;
    json_decref(j);
    if (!quoted)
        return false;
    for (const char *c = quoted; *c;) {
        size_t n;
        unsigned code = to_escape(c, &n);
        if (code)
            wf_str_printf(out, "\\u%04X", code);
        else
            wf_str_putn(out, c, n);
        c += n;
    }
    free(quoted);
    return true;
}
