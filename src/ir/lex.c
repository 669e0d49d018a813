/* The words of graph text: names, quoted strings, numbers, size expressions, with blanks and comments between
 * them. A mistake is one error with its line and column. */
#include "ir/lex.h"

#include <stdlib.h>
#include <string.h>

void wf_lex_bad(Parser *s, const char *fmt, ...)
{
    int line = 1, col = 1;
    va_list ap;
    for (const char *q = s->text; q < s->p && *q; q++) {
        col = *q == '\n' ? 1 : col + 1;
        line += *q == '\n';
    }
    va_start(ap, fmt);
    char *m = wf_arena_vprintf(s->a, fmt, ap);
    va_end(ap);
    wf_fail_at(s->ctx, WF_E_GRAPH_TEXT, wf_arena_printf(s->a, "%s:%d:%d", s->what, line, col), NULL, "%s", m);
}

void wf_lex_blanks(Parser *s)
{
    for (;;) {
        while (*s->p == ' ' || *s->p == '\t' || *s->p == '\n' || *s->p == '\r')
            s->p++;
        if (*s->p != '#')
            return;
        while (*s->p && *s->p != '\n')
            s->p++;
    }
}

bool wf_lex_eat(Parser *s, const char *token)
{
    wf_lex_blanks(s);
    size_t n = strlen(token);
    if (strncmp(s->p, token, n))
        return false;
    s->p += n;
    return true;
}

void wf_lex_need(Parser *s, const char *token)
{
    if (!wf_lex_eat(s, token))
        wf_lex_bad(s, "'%s' is expected", token);
}

char *wf_lex_word(Parser *s)
{
    wf_lex_blanks(s);
    const char *b = s->p;
    while (name_char(*s->p))
        s->p++;
    if (s->p == b)
        wf_lex_bad(s, "a name is expected");
    return wf_arena_strndup(s->a, b, (size_t)(s->p - b));
}

bool wf_lex_keyword(Parser *s, const char *w)
{
    wf_lex_blanks(s);
    size_t n = strlen(w);
    if (strncmp(s->p, w, n) || name_char(s->p[n]))
        return false;
    s->p += n;
    return true;
}

char *wf_lex_quoted(Parser *s)
{
    WfStr out = {.arena = s->a};
    wf_lex_need(s, "\"");
    wf_str_puts(&out, "");
    while (*s->p && *s->p != '"') {
        if (*s->p != '\\') {
            wf_str_putc(&out, *s->p++);
            continue;
        }
        s->p++;
        if (*s->p == 'n') {
            wf_str_putc(&out, '\n');
        } else if (*s->p == 'x') {
            char hex[3] = {s->p[1], s->p[1] ? s->p[2] : 0, 0};
            wf_str_putc(&out, (char)strtol(hex, NULL, 16));
            s->p += hex[0] && hex[1] ? 2 : 0;
        } else {
            wf_str_putc(&out, *s->p);
        }
        if (*s->p)
            s->p++;
    }
    wf_lex_need(s, "\"");
    return out.at;
}

WfDim wf_lex_dim(Parser *s)
{
    const char *end = s->p;
    wf_lex_blanks(s);
    WfDim d = wf_eparse(s->exprs, s->p, &end);
    if (end == s->p)
        wf_lex_bad(s, "a size is expected");
    s->p = end;
    return d;
}

bool wf_lex_float_ahead(const char *p)
{
    if (*p == '-' || *p == '+')
        p++;
    if ((!strncmp(p, "inf", 3) || !strncmp(p, "nan", 3)) && !name_char(p[3]))
        return true;
    if (*p < '0' || *p > '9')
        return false;
    while (*p >= '0' && *p <= '9')
        p++;
    return *p == '.' || *p == 'e' || *p == 'E';
}

double wf_lex_number(Parser *s)
{
    char *end;
    wf_lex_blanks(s);
    double v = strtod(s->p, &end);
    if (end == s->p)
        wf_lex_bad(s, "a number is expected");
    s->p = end;
    return v;
}
