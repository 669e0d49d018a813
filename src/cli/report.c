/* What the program says when something went wrong: one error with its code, where it is (down to the line of Python that
 * the export recorded), what to do; and `weft explain`, which says more about a code. */
#include "cli/cli.h"

#include <stdlib.h>
#include <string.h>

enum { TEXT_WIDTH = 100 };

/* Lines after the first one begin below it. */
static void put_lines(FILE *out, const char *text, int indent)
{
    for (; *text; text++) {
        fputc(*text, out);
        if (*text == '\n' && text[1])
            fprintf(out, "%*s", indent, "");
    }
    fputc('\n', out);
}

/* A place is "at NODE  from FILE:LINE  CODE  (module NAME)", of which all but the node may be missing, or plain text. */
static void put_place(const char *place)
{
    const char *from = strncmp(place, "at ", 3) ? NULL : strstr(place, "  from ");
    if (!from) {
        fputs("  --> ", stderr);
        put_lines(stderr, strncmp(place, "at %", 4) ? place : place + 3, 6);
        return;
    }
    const char *file = from + 7, *code = strstr(file, "  "), *module = NULL;
    for (const char *m = strstr(file, "  (module "); m; m = strstr(m + 1, "  (module "))
        module = m;
    int file_n = (int)(code ? code - file : (long)strlen(file));
    fprintf(stderr, "  --> %.*s (from %.*s", (int)(from - place - 3), place + 3, file_n, file);
    if (module)
        fprintf(stderr, ", in %.*s", (int)strcspn(module + 10, ")"), module + 10);
    fputs(")\n", stderr);
    if (code && code != module) {
        int line_n = 0;
        while (line_n < file_n && strchr("0123456789", file[file_n - 1 - line_n]))
            line_n++;
        fprintf(stderr, "%5.*s |   %.*s\n", line_n, file + file_n - line_n,
                (int)(module ? module - code : (long)strlen(code)) - 2, code + 2);
    }
}

void wf_cli_report(const WfDiag *d)
{
    const WfErrorKind *k = wf_error_find(d->kind);
    wf_cli_progress_end();
    if (k)
        fprintf(stderr, "error[%s]: ", k->code);
    else
        fputs("error: ", stderr);
    fprintf(stderr, "%s\n", d->message ? d->message : "unknown");
    if (d->place)
        put_place(d->place);
    if (d->hint) {
        fputs("  = help: ", stderr);
        put_lines(stderr, d->hint, 10);
    }
    if (k)
        fprintf(stderr, "  = note: weft explain %s\n", k->code);
}

static void put_member(WfStr *s, const char *key, const char *text)
{
    wf_str_printf(s, "%s\"%s\": ", s->at[s->n - 1] == '{' ? "" : ", ", key);
    if (!text || !wf_yaml_quote(text, s))
        wf_str_puts(s, "null");
}

void wf_cli_report_json(WfCtx *ctx, const WfDiag *d)
{
    const WfErrorKind *k = wf_error_find(d->kind);
    WfStr s = {.arena = ctx->arena};
    wf_str_puts(&s, "{\"error\": {");
    put_member(&s, "code", k ? k->code : NULL);
    put_member(&s, "status", wf_status_name(d->code));
    put_member(&s, "message", d->message);
    put_member(&s, "place", d->place);
    put_member(&s, "help", d->hint);
    printf("%s}}\n", s.at);
}

/* ---- weft explain ---- */

static void put_text(const char *text)
{
    int column = 0;
    for (size_t n; *text; text += n) {
        n = strcspn(text, " \n");
        if (column + (int)n > TEXT_WIDTH) {
            putchar('\n');
            column = 0;
        }
        column += printf("%s%.*s", column ? " " : "", (int)n, text);
        if (text[n] == '\n') { /* what follows is to be typed as it stands */
            size_t line = strcspn(text + n + 1, "\n");
            printf("\n%.*s", (int)line, text + n + 1);
            n += line + 1;
            n += text[n] == '\n';
            column = TEXT_WIDTH;
        }
        n += text[n] == ' ';
    }
    putchar('\n');
}

static const WfErrorKind *find(WfCtx *ctx, const char *word)
{
    const char *digits = word + (*word == 'W' || *word == 'w');
    char *end;
    long number = strtol(digits, &end, 10);
    const WfErrorKind *k = *end || end == digits || number < 100 || number > 9999 ? NULL : wf_error_find((int)number);
    if (k)
        return k;
    const char *codes[1024];
    int n = 0;
    for (const WfErrorKind *row = wf_error_table; row->kind && n < 1024; row++)
        codes[n++] = row->code;
    const char *near = wf_nearest(word, codes, n);
    wf_fail_at(ctx, WF_E_CODE_UNKNOWN, NULL,
               near ? wf_arena_printf(ctx->arena, "Did you mean %s? `weft explain` lists all codes.", near)
                    : "`weft explain` lists all codes.",
               "no error has the code %.40s", word);
}

int wf_cli_explain(WfCtx *ctx, const WfOptions *o, const WfStrings *words)
{
    (void)o;
    for (const WfErrorKind *k = wf_error_table; k->kind && !words->n; k++)
        printf("%s  %-12s %s\n", k->code, wf_status_name(k->status), k->title);
    for (int i = 0; i < words->n; i++) {
        const WfErrorKind *k = find(ctx, words->at[i]);
        printf("%s%s: %s (%s)\n\n", i ? "\n" : "", k->code, k->title, wf_status_name(k->status));
        put_text(k->text);
    }
    return 0;
}
