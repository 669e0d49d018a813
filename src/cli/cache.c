/* weft cache: what lies in the cache of compiled steps (x/) and kernels (k/), and how to be rid of it. Names
 * are hashes of everything that shapes an entry, so removing one is always safe: it is compiled again when it
 * is needed. */
#include "cli/cli.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

typedef struct {
    WfCtx *ctx;
    const char *root, *prefix; /* prefix of the key; NULL: all */
    bool remove;
    int entries;
    int64_t bytes;
} Cache;

static char *age(WfArena *a, time_t t)
{
    double s = difftime(time(NULL), t);
    return s < 7200     ? wf_arena_printf(a, "%.0f min", s / 60)
           : s < 172800 ? wf_arena_printf(a, "%.0f h", s / 3600)
                        : wf_arena_printf(a, "%.0f days", s / 86400);
}

static void entry(Cache *c, const char *kind, const char *two, const char *name)
{
    struct stat st;
    char *path = wf_arena_printf(c->ctx->arena, "%s/%s/%s/%s", c->root, kind, two, name);
    const char *dot = strrchr(name, '.');
    char *key =
        wf_arena_printf(c->ctx->arena, "%s%.*s", two, (int)(dot ? dot - name : (long)strlen(name)), name);
    if ((c->prefix && strncmp(key, c->prefix, strlen(c->prefix))) || stat(path, &st) || !S_ISREG(st.st_mode))
        return;
    if (c->remove && unlink(path) && errno != ENOENT)
        wf_fail(c->ctx, WF_E_IO, "%s cannot be removed: %s", path, strerror(errno));
    if (!c->remove)
        printf("%s  %-6s %10.3f MB  %s\n", key, kind[0] == 'x' ? "step" : "kernel", (double)st.st_size / 1e6,
               age(c->ctx->arena, st.st_mtime));
    c->entries++;
    c->bytes += st.st_size;
}

static void each(Cache *c, const char *kind, const char *two)
{
    char *path = wf_arena_printf(c->ctx->arena, two ? "%s/%s/%s" : "%s/%s", c->root, kind, two);
    struct dirent **list;
    int n = scandir(path, &list, NULL, alphasort);
    WF_VEC(char *) names = {0};
    for (int i = 0; i < n; i++) {
        if (list[i]->d_name[0] != '.')
            WF_PUSH(c->ctx->arena, &names, wf_arena_strdup(c->ctx->arena, list[i]->d_name));
        free(list[i]);
    }
    if (n >= 0)
        free(list);
    for (int i = 0; i < names.n; i++) {
        if (two)
            entry(c, kind, two, names.at[i]);
        else if (strlen(names.at[i]) == 2)
            each(c, kind, names.at[i]);
    }
    if (two && c->remove)
        rmdir(path); /* stays when something is left in it */
}

int wf_cli_cache(WfCtx *ctx, const WfOptions *o, const WfStrings *words)
{
    Cache c = {.ctx = ctx, .root = wf_cache_dir(ctx, ctx->arena, o)};
    if (words->n < 1 || words->n > 2 || (strcmp(words->at[0], "ls") && strcmp(words->at[0], "rm")))
        wf_fail(ctx, WF_E_ARGUMENT_MISSING,
                "say what to do: weft cache ls [KEY], weft cache rm KEY, weft cache rm all");
    if (!c.root)
        wf_fail(ctx, WF_E_CACHE_FOLDER, "there is no cache folder; name one with --cache-dir or WEFT_CACHE_DIR");
    c.remove = !strcmp(words->at[0], "rm");
    c.prefix = words->n > 1 ? words->at[1] : NULL;
    if (c.remove && !c.prefix)
        wf_fail(ctx, WF_E_ARGUMENT_MISSING, "say which entries: weft cache rm all, or the beginning of a key");
    if (c.remove && !strcmp(c.prefix, "all"))
        c.prefix = NULL;
    each(&c, "x", NULL);
    each(&c, "k", NULL);
    fprintf(stderr, "%s: %d entries %s, %.2f MB\n", c.root, c.entries, c.remove ? "removed" : "in all",
            (double)c.bytes / 1e6);
    return 0;
}
