/* Tables of text: CSV (commas) and TSV (tabs), quoted as RFC 4180 says: a field that begins with a quote ends with one, and
 * holds delimiters, line ends and, doubled, quotes. The first row names the columns. The file is read twice, piece by piece:
 * once to count rows and check that each has as many fields as the first, once for each input to read its columns into a
 * dense table in memory. Text becomes numbers without regard to the locale. */
#include <errno.h>
#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "data/private.h"

enum { PIECE = 1 << 17, FIELD_MOST = 1 << 20, COLUMNS_MOST = 1 << 16, SHOWN = 20 };

typedef struct {
    WfStrings names;
    WfMap *by_name;
    int64_t rows;
    char delimiter;
} Table;

/* ---- fields, one after the other ---- */

typedef struct {
    WfOpening *op;
    const WfBytes *bytes;
    const char *path;
    char delimiter;
    uint8_t *piece;
    size_t at, filled;
    int64_t offset;      /* of what comes after the piece */
    int64_t line, start; /* where the reader is; where the record began */
    WfStr field;
} Scanner;

typedef enum { AFTER_FIELD, AFTER_RECORD, AFTER_FILE } After;

static char *line_of(const Scanner *s) { return wf_arena_printf(s->op->a, "%s: line %lld", s->path, (long long)s->start); }

static void WF_NORETURN WF_PRINTF(2, 3) bad(const Scanner *s, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    char *text = wf_arena_vprintf(s->op->a, fmt, ap);
    va_end(ap);
    wf_fail_at(s->op->ctx, WF_E_TABLE, line_of(s), NULL, "data: %s", text);
}

static int peek(Scanner *s)
{
    if (s->at == s->filled) {
        int64_t left = wf_bytes_size(s->bytes) - s->offset;
        wf_check_cancel(s->op->ctx);
        s->filled = left < PIECE ? (size_t)left : PIECE;
        s->at = 0;
        int err = wf_bytes_read(s->bytes, s->offset, s->piece, s->filled);
        if (err)
            wf_fail(s->op->ctx, WF_E_IO, "%s: cannot read: %s", s->path, wf_bytes_error(err));
        s->offset += (int64_t)s->filled;
        if (!s->filled)
            return -1;
    }
    return s->piece[s->at];
}

static int take(Scanner *s)
{
    int c = peek(s);
    if (c >= 0)
        s->at++;
    s->line += c == '\n';
    return c;
}

static Scanner begin(WfOpening *op, WfArena *scratch, const WfDataFile *f, char delimiter)
{
    Scanner s = {.op = op, .bytes = f->bytes, .path = f->path, .delimiter = delimiter, .line = 1, .start = 1,
                 .piece = wf_arena_alloc(scratch, PIECE), .field = {.arena = scratch}};
    if (peek(&s) == 0xef && s.filled >= 3 && s.piece[1] == 0xbb && s.piece[2] == 0xbf)
        s.at = 3; /* the mark that some programs put before UTF-8 */
    return s;
}

/* Reads a field into s->field and says what stands behind it. */
static After next(Scanner *s)
{
    int c = peek(s);
    bool quoted = c == '"';
    s->field.n = 0;
    wf_str_puts(&s->field, "");
    if (quoted)
        take(s);
    for (;;) {
        c = take(s);
        if (c < 0 && quoted)
            bad(s, "a quoted field does not end");
        if (quoted && c == '"') {
            if (peek(s) != '"') {
                quoted = false;
                if ((c = peek(s)) >= 0 && c != s->delimiter && c != '\n' && c != '\r')
                    bad(s, "something stands between the end of a quoted field and the next delimiter");
                continue;
            }
            c = take(s);
        } else if (!quoted && c == s->delimiter) {
            return AFTER_FIELD;
        } else if (!quoted && (c == '\n' || c < 0 || (c == '\r' && (peek(s) == '\n' || peek(s) < 0)))) {
            if (c == '\r')
                c = take(s);
            return c < 0 || peek(s) < 0 ? AFTER_FILE : AFTER_RECORD;
        }
        if (!c)
            bad(s, "a field holds a zero byte: is this text?");
        if (s->field.n >= FIELD_MOST)
            bad(s, "a field is longer than %d bytes: is a quote missing?", FIELD_MOST);
        wf_str_putc(&s->field, (char)c);
    }
}

/* Passes over empty lines. False: nothing follows. */
static bool next_record(Scanner *s)
{
    while (peek(s) == '\n' || peek(s) == '\r')
        take(s);
    s->start = s->line;
    return peek(s) >= 0;
}

/* ---- opening ---- */

static bool knows_csv(const WfDataFile *f, const uint8_t *head, size_t size)
{
    (void)size;
    return head && (wf_data_ends_with(f->path, ".csv") || wf_data_ends_with(f->path, ".tsv") || f->recipe->columns.n);
}

static void open_csv(WfOpening *op, WfDataFile *f)
{
    Table *t = f->own = WF_NEW(op->a, Table);
    WfArena *scratch = wf_arena_scratch(op->ctx);
    t->delimiter = wf_data_ends_with(f->path, ".tsv") ? '\t' : ',';
    t->by_name = wf_map_new(op->a);
    Scanner s = begin(op, scratch, f, t->delimiter);
    if (!next_record(&s))
        bad(&s, "the file is empty; its first row must name the columns");
    for (After after = AFTER_FIELD; after == AFTER_FIELD;) {
        after = next(&s);
        if (wf_map_get(t->by_name, s.field.at, NULL))
            bad(&s, "two columns are called \"%.60s\"", s.field.at);
        if (t->names.n == COLUMNS_MOST)
            bad(&s, "there are more than %d columns", COLUMNS_MOST);
        wf_map_put(t->by_name, s.field.at, t->names.n);
        WF_PUSH(op->a, &t->names, wf_arena_strdup(op->a, s.field.at));
    }
    while (next_record(&s)) {
        int fields = 1;
        for (; next(&s) == AFTER_FIELD; fields++)
            ;
        if (fields != t->names.n)
            bad(&s, "the row has %d field%s, and the first row names %d columns", fields, fields == 1 ? "" : "s", t->names.n);
        t->rows++;
    }
    wf_arena_free(scratch);
}

/* ---- text to numbers ---- */

static bool is_missing(const char *text)
{
    static const char *const words[] = {"", "NA", "N/A", "NaN", "nan", "null", "NULL", "None"};
    for (size_t i = 0; i < WF_LEN(words); i++)
        if (!strcmp(text, words[i]))
            return true;
    return false;
}

/* Blanks around a number mean nothing. */
static char *trim(char *text)
{
    while (*text == ' ' || *text == '\t')
        text++;
    size_t n = strlen(text);
    while (n && (text[n - 1] == ' ' || text[n - 1] == '\t'))
        text[--n] = 0;
    return text;
}

static bool read_float(const char *text, locale_t c, double *out)
{
    char *end;
    size_t plain = strspn(text, "+-.0123456789eE"); /* no nan, no inf, no hexadecimal numbers */
    if (!*text || text[plain])
        return false;
    *out = strtod_l(text, &end, c);
    return !*end && isfinite(*out);
}

/* Whole numbers, also written as 3.0. */
static bool read_whole(const char *text, locale_t c, WfDtype dtype, int64_t *out)
{
    char *end;
    double x;
    uint8_t bytes[8];
    errno = 0;
    *out = strtoll(text, &end, 10);
    if (errno || *end || end == text) {
        if (!read_float(text, c, &x) || x != floor(x) || fabs(x) > 9007199254740992.0)
            return false;
        *out = (int64_t)x;
    }
    wf_store_i64(dtype, bytes, *out);
    return wf_load_i64(dtype, bytes) == *out;
}

typedef struct {
    Scanner *s;
    locale_t locale;
    WfArena *scratch;
    WfDtype dtype;
    const char *input;   /* of the model */
    bool learn;          /* categories that are new get the next number */
} Parser;

static const char *quoted_name(const Parser *p, const WfCsvColumn *c)
{
    WfStr s = {.arena = p->s->op->a};
    if (c->name[strspn(c->name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_")] == 0 || !wf_yaml_quote(c->name, &s))
        return c->name;
    return s.at;
}

static const char *categories_help(const Parser *p, const WfCsvColumn *c)
{
    const char *name = quoted_name(p, c);
    return wf_arena_printf(p->s->op->a, "Words become numbers where a recipe calls the column categories: %s: {columns: [%s], categories: {%s: auto}}, and "
                           "--data %s=FILE.", p->input, name, name, p->input);
}

static void WF_NORETURN WF_PRINTF(4, 5) value_fault(const Parser *p, const WfCsvColumn *c, const char *help, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    char *text = wf_arena_vprintf(p->s->op->a, fmt, ap);
    va_end(ap);
    wf_fail_at(p->s->op->ctx, WF_E_TABLE, line_of(p->s), help, "data: column %s: %s", c->name, text);
}

static void parse(const Parser *p, WfCsvColumn *c, char *text, uint8_t *out)
{
    double x;
    int64_t whole;
    if (!c->text)
        text = trim(text);
    if (c->text ? !*text : is_missing(text)) {
        if (!c->fill)
            value_fault(p, c, wf_arena_printf(p->s->op->a, "Leave the row out, or say in a recipe what stands for it: fill: {%s: 0} under the "
                                              "input's columns.", quoted_name(p, c)),
                        "the value is missing");
        text = wf_arena_strdup(p->scratch, c->fill);
        double number;
        if (!c->text && !read_float(text, p->locale, &number))
            wf_fail_at(p->s->op->ctx, WF_E_RECIPE, p->s->op->recipe, "Give a number, or call the column categories.",
                       "recipe: fill of column %s: \"%.60s\" is no number", c->name, text);
        if (c->text && c->closed && !wf_map_get(c->categories, text, NULL))
            wf_fail_at(p->s->op->ctx, WF_E_RECIPE, p->s->op->recipe, "Add it to the column's categories.",
                       "recipe: fill of column %s: \"%.60s\" is none of its categories", c->name, text);
    }
    if (c->text) {
        if (!wf_map_get(c->categories, text, &whole)) {
            if (c->closed || !p->learn) {
                WfStr have = {.arena = p->s->op->a};
                wf_categories_print(c->categories, SHOWN, &have);
                wf_fail_at(p->s->op->ctx, WF_E_TABLE, line_of(p->s), "A model knows the categories that it was trained with, and no others.",
                           "data: column %s: \"%.60s\" is no category; there are %s", c->name, text, have.n ? have.at : "none");
            }
            if (!wf_yaml_quote(text, &(WfStr){.arena = p->scratch}))
                wf_fail_at(p->s->op->ctx, WF_E_TABLE, line_of(p->s), "Convert the file, for example by iconv -f latin1 -t utf8.",
                           "data: column %s: the category \"%.60s\" is not UTF-8 text", c->name, text);
            whole = wf_map_count(c->categories);
            wf_map_put(c->categories, text, whole);
        }
        if (wf_dtype_is_float(p->dtype))
            wf_store_f64(p->dtype, out, (double)whole);
        else
            wf_store_i64(p->dtype, out, whole);
    } else if (wf_dtype_is_float(p->dtype)) {
        if (!read_float(text, p->locale, &x))
            value_fault(p, c, categories_help(p, c), "\"%.60s\" is no number", text);
        wf_store_f64(p->dtype, out, x);
    } else {
        if (!read_whole(text, p->locale, p->dtype, &whole))
            value_fault(p, c, categories_help(p, c), "\"%.60s\" is no whole number of type %s", text, wf_dtype_name(p->dtype));
        wf_store_i64(p->dtype, out, whole);
    }
}

static void free_locale(void *c) { freelocale((locale_t)c); }

/* The rows of the columns, dense, at `out`; place[i]: which of them column i of the file is, -1: none. */
static void read_rows(WfOpening *op, const WfDataFile *f, WfCsvColumn *columns, int n, const int *place, const char *input, WfDtype dtype, uint8_t *out)
{
    const Table *t = f->own;
    WfArena *scratch = wf_arena_scratch(op->ctx);
    Scanner s = begin(op, scratch, f, t->delimiter);
    Parser p = {.s = &s, .scratch = scratch, .dtype = dtype, .input = input, .learn = op->use == WF_DATA_TRAIN, .locale = newlocale(LC_ALL_MASK, "C", (locale_t)0)};
    size_t size = wf_dtype_size(dtype);
    if (p.locale == (locale_t)0)
        wf_fail(op->ctx, WF_E_MEMORY, "out of memory");
    WfDefer *freeing = wf_defer(op->ctx, free_locale, p.locale);
    next_record(&s);
    while (next(&s) == AFTER_FIELD)
        ;
    for (int64_t row = 0; row < t->rows && next_record(&s); row++)
        for (int i = 0; i < t->names.n; i++) {
            next(&s);
            if (place[i] >= 0)
                parse(&p, &columns[place[i]], s.field.at, out + ((size_t)row * (size_t)n + (size_t)place[i]) * size);
        }
    wf_defer_run(freeing);
    wf_arena_free(scratch);
}

static int find_column(WfOpening *op, const WfDataFile *f, const char *name)
{
    const Table *t = f->own;
    int64_t at;
    if (wf_map_get(t->by_name, name, &at))
        return (int)at;
    const char *near = wf_nearest(name, (const char *const *)t->names.at, t->names.n);
    wf_fail_at(op->ctx, WF_E_TABLE, f->path, near ? wf_arena_printf(op->a, "did you mean %s?", near) : NULL,
               "data: the file has no column %s", name);
}

static void tell_categories(WfOpening *op, const WfCsvColumn *c)
{
    WfStr s = {.arena = op->a};
    wf_categories_print(c->categories, SHOWN, &s);
    wf_log(op->ctx, WF_LOG_INFO, "data: %d categories of column %s, in order: %s", wf_map_count(c->categories), c->name, s.n ? s.at : "");
}

static bool csv_field(WfOpening *op, WfDataFile *f, const WfDataInput *in, int place, int names_n, WfField *out)
{
    const Table *t = f->own;
    const WfRecipe *r = wf_recipe_of(op, in->name);
    WfCsvColumn *columns = r->columns.at, one = {.name = in->name};
    int n = r->columns.n;
    if (!n && place < 0) {
        if (!wf_map_get(t->by_name, in->name, NULL))
            return false;
        columns = &one;
        n = 1;
    } else if (!n && names_n > 1) {
        wf_fail_at(op->ctx, WF_E_DATA_WHICH, f->path, "In a recipe: columns: [...]", "data: which of the %d columns feed input %s?", t->names.n,
                   in->name);
    } else if (!n) { /* all of them */
        n = t->names.n;
        columns = WF_NEWN(op->a, WfCsvColumn, (size_t)n);
        for (int i = 0; i < n; i++)
            columns[i].name = t->names.at[i];
    }
    int *places = WF_NEWN(op->a, int, (size_t)t->names.n);
    for (int i = 0; i < t->names.n; i++)
        places[i] = -1;
    for (int i = 0; i < n; i++) {
        places[find_column(op, f, columns[i].name)] = i;
        if (columns[i].text && !columns[i].closed && op->use == WF_DATA_PREDICT)
            wf_fail_at(op->ctx, WF_E_RECIPE, op->recipe, "weft train writes it to OUT/" WF_RECIPE_FILE ": name that as --recipe.",
                       "recipe: %s.categories: the order of %s is that of the training data, which predicting does not see", in->name,
                       columns[i].name);
    }
    out->dtype = r->one_hot ? WF_I64 : in->dtype;
    size_t bytes = wf_mul_size((size_t)t->rows, wf_mul_size((size_t)n, wf_dtype_size(out->dtype)));
    int64_t free = wf_memory_available(op->ctx, 1, 0, 0);
    if (bytes > (size_t)free / 2)
        wf_fail_at(op->ctx, WF_E_MEMORY, f->path, "Convert the table to .npy: large ones stay on the disk.",
                   "data: %lld rows of %d columns need %.1f MB, and %.1f MB of memory are left", (long long)t->rows, n,
                   (double)bytes / 1048576.0, (double)free / 1048576.0);
    uint8_t *memory = wf_arena_alloc(op->a, bytes);
    read_rows(op, f, columns, n, places, in->name, out->dtype, memory);
    for (int i = 0; i < n; i++)
        if (columns[i].text && !columns[i].closed && op->use == WF_DATA_TRAIN && !op->again)
            tell_categories(op, &columns[i]);
    out->memory = memory;
    out->rank = n == 1 ? 1 : 2;
    out->shape[0] = t->rows;
    out->shape[1] = n;
    out->scalar = n == 1;
    return true;
}

static void csv_names(WfOpening *op, WfDataFile *f, WfStr *out)
{
    const Table *t = f->own;
    (void)op;
    for (int i = 0; i < t->names.n && i < SHOWN; i++)
        wf_str_printf(out, "%s%s", out->n ? ", " : "", t->names.at[i]);
}

const WfFormat wf_format_csv = {"a table", true, false, WF_USE_VALUES | WF_USE_TABLE, WF_USE_VALUES | WF_USE_TABLE, knows_csv, open_csv, csv_field,
                                csv_names};
