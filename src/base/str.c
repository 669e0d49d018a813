/* Strings that grow in an arena, numbers as text, and spelling help. Growth doubles; when the string is the
 * last thing in its arena it grows in place. Nothing here depends on the locale of the host program. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/inner.h"

/* Room for n more bytes and the NUL. */
static void reserve(WfStr *s, size_t n)
{
    if (n >= SIZE_MAX - s->n - 1)
        wf_fail(wf_arena_ctx(s->arena), WF_E_MEMORY, "a text is too long for this machine's memory");
    size_t need = s->n + n + 1;
    if (need <= s->cap)
        return;
    size_t cap = s->cap < 64 ? 64 : s->cap <= SIZE_MAX / 2 ? s->cap * 2 : SIZE_MAX;
    if (cap < need)
        cap = need;
    s->at = wf_arena_grow(s->arena, s->at, s->cap, cap);
    s->cap = cap;
}

void wf_str_putn(WfStr *s, const char *text, size_t n)
{
    reserve(s, n);
    if (n)
        memcpy(s->at + s->n, text, n);
    s->n += n;
    s->at[s->n] = 0;
}

void wf_str_putc(WfStr *s, char c)
{
    wf_str_putn(s, &c, 1);
}

void wf_str_puts(WfStr *s, const char *text)
{
    wf_str_putn(s, text, strlen(text));
}

void wf_str_vprintf(WfStr *s, const char *fmt, va_list ap)
{
    va_list again;
    va_copy(again, ap);
    reserve(s, 40);
    int n = vsnprintf(s->at + s->n, s->cap - s->n, fmt, ap);
    if (n >= 0 && (size_t)n >= s->cap - s->n) {
        reserve(s, (size_t)n);
        n = vsnprintf(s->at + s->n, s->cap - s->n, fmt, again);
    }
    va_end(again);
    if (n > 0)
        s->n += (size_t)n;
    s->at[s->n] = 0;
}

void wf_str_printf(WfStr *s, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    wf_str_vprintf(s, fmt, ap);
    va_end(ap);
}

void wf_str_float(WfStr *s, double v)
{
    if (isnan(v)) {
        wf_str_puts(s, "nan");
        return;
    }
    if (isinf(v)) {
        wf_str_puts(s, v < 0 ? "-inf" : "inf");
        return;
    }
    char text[48];
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(text, sizeof(text), "%.*g", digits, v);
        if (strtod(text, NULL) == v) /* same locale on both ways */
            break;
    }
    bool point = false;
    for (const char *p = text; *p; p++) {
        if (strchr("0123456789+-e", *p))
            wf_str_putc(s, *p);
        else if (!point) { /* the locale's decimal point, perhaps several bytes */
            wf_str_putc(s, '.');
            point = true;
        }
    }
}

/* Edits (insert, delete, replace, swap neighbours) from a to b, ignoring case; words are at most MAX long. */
enum { MAX_WORD = 63 };

static int lower(char c)
{
    return c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : (unsigned char)c;
}

static int edits(const char *a, int na, const char *b, int nb)
{
    int row[3][MAX_WORD + 1];
    for (int j = 0; j <= nb; j++)
        row[0][j] = j;
    for (int i = 1; i <= na; i++) {
        int *now = row[i % 3], *up = row[(i + 2) % 3], *up2 = row[(i + 1) % 3];
        now[0] = i;
        for (int j = 1; j <= nb; j++) {
            int best = up[j - 1] + (lower(a[i - 1]) != lower(b[j - 1]));
            if (up[j] + 1 < best)
                best = up[j] + 1;
            if (now[j - 1] + 1 < best)
                best = now[j - 1] + 1;
            if (i > 1 && j > 1 && lower(a[i - 1]) == lower(b[j - 2]) && lower(a[i - 2]) == lower(b[j - 1]) &&
                up2[j - 2] + 1 < best)
                best = up2[j - 2] + 1;
            now[j] = best;
        }
    }
    return row[na % 3][nb];
}

const char *wf_nearest(const char *word, const char *const *words, int n)
{
    size_t len = strlen(word);
    if (len == 0 || len > MAX_WORD)
        return NULL;
    const char *found = NULL;
    int best = (int)len / 3 + 2; /* a third of the letters may be wrong, and always one */
    for (int i = 0; i < n; i++) {
        size_t other = strlen(words[i]);
        if (other == 0 || other > MAX_WORD)
            continue;
        int d = edits(word, (int)len, words[i], (int)other);
        if (d < best && d < (int)len && d < (int)other) {
            best = d;
            found = words[i];
        }
    }
    return found;
}
