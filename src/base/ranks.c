/* Named groups of ranks, as the command line says them. */
#include "base/inner.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_RANKS = 65536 };

static void bad(WfCtx *ctx, const char *text, const char *fmt, ...) WF_NORETURN WF_PRINTF(3, 4);
static void bad(WfCtx *ctx, const char *text, const char *fmt, ...)
{
    char why[256];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(why, sizeof why, fmt, ap);
    va_end(ap);
    wf_fail_at(ctx, WF_E_RANK_GROUP, NULL, "NAME=RANKS/RANKS/.., such as tp=0,1/2,3 or dp2=0-3: each set of ranks is a group.",
               "--group %.80s: %s", text, why);
}

static bool word(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.' ||
           c == '-' || c == ':';
}

static int rank_at(WfCtx *ctx, const char *text, const char **at, int64_t world)
{
    char *end;
    if (**at < '0' || **at > '9')
        bad(ctx, text, "a rank is expected at \"%.20s\"", *at);
    long r = strtol(*at, &end, 10);
    if (r < 0 || r >= world)
        bad(ctx, text, "there is no rank %ld among %lld", r, (long long)world);
    *at = end;
    return (int)r;
}

WfRankGroup wf_rank_group(WfCtx *ctx, WfArena *a, const char *text, int64_t world)
{
    WfRankGroup g = {.n_sets = 1};
    size_t name = strcspn(text, "=");
    if (!text[name] || !name || name >= 50)
        bad(ctx, text, "a name and '=' are expected first");
    for (size_t i = 0; i < name; i++)
        if (!word(text[i]))
            bad(ctx, text, "'%c' may not stand in a name", text[i]);
    g.name = wf_arena_strndup(a, text, name);
    if (!strcmp(g.name, "dp") || !strcmp(g.name, "0"))
        bad(ctx, text, "%s is all ranks already", g.name);
    if (world < 1 || world > MOST_RANKS)
        bad(ctx, text, "%lld ranks are too many", (long long)world);
    bool *seen = WF_NEWN(a, bool, (size_t)world);
    g.ranks = WF_NEWN(a, int, (size_t)world);
    int n = 0, begun = 0;
    for (const char *at = text + name + 1;; at++) {
        int first = rank_at(ctx, text, &at, world), last = first;
        if (*at == '-') {
            at++;
            last = rank_at(ctx, text, &at, world);
        }
        if (last < first || (n > begun && g.ranks[n - 1] >= first))
            bad(ctx, text, "the ranks of a set ascend");
        for (int r = first; r <= last; r++) {
            if (seen[r])
                bad(ctx, text, "rank %d stands in it twice", r);
            seen[r] = true;
            g.ranks[n++] = r;
        }
        if (*at && *at != ',' && *at != '/')
            bad(ctx, text, "',' or '/' is expected at \"%.20s\"", at);
        if (*at == ',')
            continue;
        g.size = g.size ? g.size : n;
        if (n - begun != g.size)
            bad(ctx, text, "its sets have %d and %d ranks, but all ranks run one program", g.size, n - begun);
        begun = n;
        if (!*at)
            break;
        g.n_sets++;
    }
    for (int r = 0; r < world; r++)
        if (!seen[r])
            bad(ctx, text, "rank %d is in no set, but all ranks run one program", r);
    return g;
}

void wf_rank_group_text(const WfRankGroup *g, WfStr *out)
{
    wf_str_printf(out, "%s=", g->name);
    for (int i = 0; i < g->n_sets * g->size; i++)
        wf_str_printf(out, "%s%d", !i ? "" : i % g->size ? "," : "/", g->ranks[i]);
}
