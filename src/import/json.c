/* Typed access to the file's JSON. Every value is asked for with the type that is needed; what is missing or
 * of another type ends the import with a sentence that says where. */
#include "import/private.h"

#include <string.h>

void imp_fail(Imp *m, int kind, const char *hint, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    char *text = wf_arena_vprintf(m->a, fmt, ap);
    va_end(ap);
    wf_fail_at(m->ctx, kind, m->place, hint, "%s: %s", m->path, text);
}

static const char *type_name(json_type t)
{
    static const char *const names[] = {"an object", "a list", "a text", "an integer",
                                        "a number",  "true",   "false",  "null"};
    return (size_t)t < WF_LEN(names) ? names[t] : "a value";
}

const json_t *imp_opt(Imp *m, const json_t *o, const char *key, json_type type)
{
    if (!json_is_object(o))
        bad(m, "damaged model description: an object with '%s' is missing", key);
    const json_t *v = json_object_get(o, key);
    if (!v || json_is_null(v))
        return NULL;
    bool fits = json_typeof(v) == type || (type == JSON_TRUE && json_is_boolean(v)) ||
                (type == JSON_REAL && json_is_number(v));
    if (!fits)
        bad(m, "damaged model description: '%s' is %s instead of %s", key, type_name(json_typeof(v)),
            type_name(type));
    return v;
}

const json_t *imp_get(Imp *m, const json_t *o, const char *key, json_type type)
{
    const json_t *v = imp_opt(m, o, key, type);
    if (!v)
        bad(m, "damaged model description: '%s' is missing", key);
    return v;
}

const char *imp_string(Imp *m, const json_t *o, const char *key)
{
    return json_string_value(imp_get(m, o, key, JSON_STRING));
}

int64_t imp_int(Imp *m, const json_t *o, const char *key)
{
    return json_integer_value(imp_get(m, o, key, JSON_INTEGER));
}

bool imp_bool(Imp *m, const json_t *o, const char *key, bool fallback)
{
    const json_t *v = imp_opt(m, o, key, JSON_TRUE);
    return v ? json_is_true(v) : fallback;
}

const char *imp_tag(Imp *m, const json_t *u, const json_t **value)
{
    if (!json_is_object(u) || json_object_size(u) != 1)
        bad(m, "damaged model description: a value with one kind is expected");
    void *it = json_object_iter((json_t *)u);
    *value = json_object_iter_value(it);
    return json_object_iter_key(it);
}

const char *imp_tensor_name(Imp *m, const json_t *v)
{
    return imp_string(m, v, "name");
}
