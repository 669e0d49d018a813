/* Where a node comes from: the user's line in the recorded Python stack, and the module path. A stack is text
 * as Python prints it, outermost frame first; the frame wanted is the innermost one that is not PyTorch's
 * own. */
#include "import/private.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_SOURCES = 1 << 20, MAX_CODE = 200 };

static bool is_torch(const char *file, size_t n)
{
    static const char *const parts[] = {"/torch/", "/_dynamo/"};
    if (!n || file[0] == '<' || (n > 6 && !strncmp(file, "torch/", 6)))
        return true;
    for (size_t p = 0; p < WF_LEN(parts); p++)
        for (size_t i = 0, k = strlen(parts[p]); i + k <= n; i++)
            if (!strncmp(file + i, parts[p], k))
                return true;
    return false;
}

typedef struct {
    const char *file, *code;
    size_t file_n, code_n;
    int line;
} Frame;

/* Reads one frame at p ("File "x", line 3, in f\n    code"); NULL when there is none. */
static const char *frame(const char *p, Frame *f)
{
    p = strstr(p, "File \"");
    if (!p)
        return NULL;
    memset(f, 0, sizeof *f);
    f->file = p + 6;
    const char *q = strchr(f->file, '"');
    if (!q)
        return NULL;
    f->file_n = (size_t)(q - f->file);
    if (!strncmp(q, "\", line ", 8))
        f->line = (int)strtol(q + 8, NULL, 10);
    const char *nl = strchr(q, '\n');
    if (!nl)
        return q + strlen(q);
    for (nl++; *nl == ' ' || *nl == '\t'; nl++) {}
    if (strncmp(nl, "File \"", 6)) {
        f->code = nl;
        f->code_n = strcspn(nl, "\n");
        nl += f->code_n;
    }
    return nl;
}

/* The path of the innermost module: "L__self__,,M;L__self__a,a,Linear" gives "a". */
static const char *module_path(Imp *m, const char *stack)
{
    const char *last = strrchr(stack, ';');
    last = last ? last + 1 : stack;
    const char *a = strchr(last, ','), *b = a ? strchr(a + 1, ',') : NULL;
    if (!b || !strncmp(last, "_empty_nn_module", 16))
        return "";
    return wf_arena_strndup(m->a, a + 1, (size_t)(b - a - 1));
}

uint32_t imp_source(Imp *m, const json_t *node)
{
    const json_t *meta = imp_opt(m, node, "metadata", JSON_OBJECT);
    const json_t *trace = meta ? json_object_get(meta, "stack_trace") : NULL;
    const json_t *stack = meta ? json_object_get(meta, "nn_module_stack") : NULL;
    Frame f, best = {0};
    bool user = false;
    for (const char *p = json_string_value(trace); p && (p = frame(p, &f));)
        if (!is_torch(f.file, f.file_n)) {
            best = f;
            user = true;
        } else if (!user) {
            best = f;
        }
    const char *module = json_is_string(stack) ? module_path(m, json_string_value(stack)) : "";
    if (!best.file && !*module)
        return 0;
    if (best.code_n > MAX_CODE)
        best.code_n = MAX_CODE;
    while (best.code_n && ((unsigned char)best.code[best.code_n] & 0xc0) == 0x80)
        best.code_n--; /* do not cut a character */
    WfSource s = {.line = best.line, .module = module};
    s.file = best.file ? wf_arena_strndup(m->a, best.file, best.file_n) : NULL;
    s.code = best.code_n ? wf_arena_strndup(m->a, best.code, best.code_n) : NULL;
    const char *key =
        wf_arena_printf(m->a, "%s\n%d\n%s\n%s", s.file ? s.file : "", s.line, s.code ? s.code : "", module);
    int64_t id;
    if (wf_map_get(m->source_ids, key, &id))
        return (uint32_t)id;
    if (m->sources.n >= MAX_SOURCES)
        return 0;
    id = m->sources.n;
    WF_PUSH(m->a, &m->sources, s);
    wf_map_put(m->source_ids, key, id);
    return (uint32_t)id;
}

char *imp_place(Imp *m, const char *op, const char *name, uint32_t source)
{
    WfStr s = {.arena = m->a};
    wf_str_puts(&s, "at ");
    if (name && *name)
        wf_str_printf(&s, "%%%.80s = ", name);
    wf_str_printf(&s, "%.120s", op);
    wf_print_source(&m->sources.at[source], &s);
    return s.at;
}
