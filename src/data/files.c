/* Which files a pattern stands for. A name that exists is itself, a folder its files, and anything else with *, ? or [ a glob;
 * files are sorted by name, byte by byte, so that every rank and every run sees the same order. */
#include <dirent.h>
#include <errno.h>
#include <glob.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "data/private.h"

bool wf_data_ends_with(const char *path, const char *extension)
{
    size_t n = strlen(path), m = strlen(extension);
    return n > m && !strcasecmp(path + n - m, extension);
}

static int by_name(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

static void close_folder(void *d) { closedir(d); }

void wf_data_list(WfCtx *ctx, WfArena *a, const char *path, WfStrings *files, WfStrings *folders)
{
    DIR *d = opendir(path);
    if (!d)
        wf_fail(ctx, WF_E_IO, "%s: cannot open: %s", path, strerror(errno));
    WfDefer *closing = wf_defer(ctx, close_folder, d);
    for (struct dirent *e; (e = readdir(d));) {
        if (e->d_name[0] == '.')
            continue;
        char *name = wf_arena_printf(a, "%s%s%s", path, path[strlen(path) - 1] == '/' ? "" : "/", e->d_name);
        bool known = e->d_type == DT_REG || e->d_type == DT_DIR; /* a link is looked behind */
        if (known ? e->d_type == DT_DIR : wf_is_folder(name))
            WF_PUSH(a, folders, name);
        else
            WF_PUSH(a, files, name);
    }
    wf_defer_run(closing);
    if (files->n)
        qsort(files->at, (size_t)files->n, sizeof *files->at, by_name);
    if (folders->n)
        qsort(folders->at, (size_t)folders->n, sizeof *folders->at, by_name);
}

static void free_glob(void *g) { globfree(g); }

static void expand_glob(WfOpening *op, const char *pattern, WfStrings *out)
{
    glob_t *g = WF_NEW(op->a, glob_t);
    int rc = glob(pattern, GLOB_NOSORT, NULL, g);
    WfDefer *freeing = wf_defer(op->ctx, free_glob, g);
    if (rc == GLOB_NOSPACE)
        wf_fail(op->ctx, WF_E_MEMORY, "out of memory");
    if (rc)
        wf_fail(op->ctx, WF_E_IO, "%s: no file fits the pattern", pattern);
    for (size_t i = 0; i < g->gl_pathc; i++)
        WF_PUSH(op->a, out, wf_arena_strdup(op->a, g->gl_pathv[i]));
    qsort(out->at, (size_t)out->n, sizeof *out->at, by_name);
    wf_defer_run(freeing);
}

void wf_data_expand(WfOpening *op, const char *pattern, WfStrings *out)
{
    if (!wf_file_exists(pattern) && strpbrk(pattern, "*?[")) {
        expand_glob(op, pattern, out);
        return;
    }
    WfStrings folders = {0};
    if (wf_is_folder(pattern)) {
        wf_data_list(op->ctx, op->a, pattern, out, &folders);
        if (!folders.n && !out->n)
            wf_fail(op->ctx, WF_E_DATA_COUNT, "%s: the folder is empty", pattern);
        if (!folders.n)
            return;
        out->n = 0; /* a folder of folders is one thing: classes of images */
    }
    WF_PUSH(op->a, out, wf_arena_strdup(op->a, pattern));
}
