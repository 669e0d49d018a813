/* Data-parallel cases of weft verify: the process that the user started launches the ranks, each compares what is its own,
 * rank 0 puts their findings together, and the user's process reads them from a file. */
#include "cli/verify.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct {
    char name[32], where[128];
    double tolerance, worst;
    int compared, failed;
} Finding;

void wf_verify_put_together(VerifyCase *c)
{
    Finding mine[VERIFY_GROUPS], *all = WF_NEWN(c->a, Finding, (size_t)(VERIFY_GROUPS * c->ranks));
    memset(mine, 0, sizeof mine);
    for (int i = 0; i < c->n_groups; i++) {
        const VerifyGroup *g = &c->groups[i];
        snprintf(mine[i].name, sizeof mine[i].name, "%s", g->name);
        snprintf(mine[i].where, sizeof mine[i].where, "%s", g->where ? g->where : "");
        mine[i].tolerance = g->tolerance, mine[i].worst = g->worst;
        mine[i].compared = g->compared, mine[i].failed = g->failed;
    }
    wf_comm_exchange(c->comm, mine, sizeof mine, all, 0, "the findings of the ranks");
    c->n_groups = 0;
    for (int i = 0; i < VERIFY_GROUPS * c->ranks; i++) {
        const Finding *f = &all[i];
        char name[32];
        snprintf(name, sizeof name, "%s", f->name);
        if (!*name)
            continue;
        char *own = strstr(name, ".rank"); /* "buffer1.rank2": what each rank has for itself is one group */
        if (own)
            *own = 0;
        VerifyGroup *g = wf_verify_group(c, name, f->tolerance);
        if (f->worst > g->worst || !g->where || (f->failed && !g->failed))
            g->where = wf_arena_printf(c->a, "%s (rank %d)", f->where, i / VERIFY_GROUPS);
        g->worst = f->worst > g->worst ? f->worst : g->worst;
        g->compared += f->compared;
        g->failed |= f->failed != 0;
    }
}

/* The command line of the ranks: this case, the options given, and a file for the findings. */
static char **rank_command(VerifyCase *c, const char *file)
{
    const WfCliProcess *p = &wf_cli_process;
    char **argv = WF_NEWN(c->a, char *, (size_t)p->argc + 8);
    int n = 0;
    argv[n++] = p->argv[0];
    argv[n++] = "verify";
    for (int i = 2; i < p->argc; i++) {
        bool word = false;
        for (int k = 0; k < c->words->n; k++)
            word |= c->words->at[k] == p->argv[i];
        if (!word && strcmp(p->argv[i], "--json") && strcmp(p->argv[i], "--"))
            argv[n++] = p->argv[i];
    }
    argv[n++] = "--json";
    argv[n++] = "--out";
    argv[n++] = (char *)file;
    argv[n++] = "--";
    argv[n++] = (char *)c->dir;
    return argv;
}

static void remove_file(void *path) { unlink(path); }

void wf_verify_by_ranks(VerifyCase *c)
{
    const char *dir = wf_env("TMPDIR"), *key;
    char *file = wf_arena_printf(c->a, "%s/weft-verify-XXXXXX", dir && *dir ? dir : "/tmp");
    int fd = mkstemp(file);
    if (fd < 0)
        wf_fail(c->ctx, WF_E_SCRATCH, "no file can be made in %s", dir && *dir ? dir : "/tmp");
    close(fd);
    WfDefer *cleanup = wf_defer(c->ctx, remove_file, file);
    int code = wf_cli_launch(c->ctx, c->ranks, rank_command(c, file), NULL);
    if (code)
        wf_fail(c->ctx, WF_E_CANCELLED, "stopped on request");
    WfFile *f = wf_file_map(c->ctx, c->a, file);
    json_t *found = (json_t *)wf_json_parse(c->ctx, (const char *)f->at, f->size, file), *o;
    json_object_foreach(json_object_get(found, "groups"), key, o) {
        VerifyGroup *g = wf_verify_group(c, key, wf_verify_number(o, "tolerance", 0));
        g->worst = wf_verify_number(o, "worst", 0);
        g->compared = (int)wf_verify_number(o, "compared", 0);
        g->failed = !json_is_true(json_object_get(o, "ok"));
        g->where = wf_arena_strdup(c->a, json_string_value(json_object_get(o, "at")));
    }
    wf_defer_run(cleanup);
}
