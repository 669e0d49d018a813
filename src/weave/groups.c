/* Which ranks a collective's group is made of is said by the user; that it fits what the program says is checked here. */
#include "weave/weave.h"

#include <string.h>

/* "0-1/2-3": ranks 0 .. world - 1 in sets of n, as an example of what to type. */
static char *example(WfArena *a, int64_t world, int64_t n)
{
    WfStr s = {.arena = a};
    for (int64_t at = 0; at + n <= world && at < 3 * n; at += n)
        wf_str_printf(&s, n > 1 ? "%s%lld-%lld" : "%s%lld", at ? "/" : "", (long long)at, (long long)(at + n - 1));
    if (world > 3 * n)
        wf_str_puts(&s, "/..");
    return s.at;
}

static void unknown(WfGraph *g, const WfNode *n, const char *name, int64_t world, int64_t size) WF_NORETURN;
static void unknown(WfGraph *g, const WfNode *n, const char *name, int64_t world, int64_t size)
{
    bool fits = size > 0 && world % size == 0;
    wf_fail_at(g->ctx, WF_E_RANK_GROUP, wf_node_place(g, n),
               wf_arena_printf(g->arena, "Say which ranks it is made of: --group %s=%s%s", name,
                               example(g->arena, world, fits ? size : world), fits ? "" : ", if it is all of them"),
               "%s: the model names the group \"%s\", which is not declared", n->schema->name, name);
}

static void other_size(WfGraph *g, const WfNode *n, const char *name, int64_t is, int64_t size, bool all) WF_NORETURN;
static void other_size(WfGraph *g, const WfNode *n, const char *name, int64_t is, int64_t size, bool all)
{
    wf_fail_at(g->ctx, WF_E_RANK_GROUP, wf_node_place(g, n),
               all ? wf_arena_printf(g->arena, "The model was exported for %lld: start it with --nproc %lld, or export it again.",
                                     (long long)size, (long long)size)
                   : "Declare the group as the model was exported, or export it again.",
               "%s: the model says that group \"%s\" has %lld rank%s, but it has %lld", n->schema->name, name,
               (long long)size, size == 1 ? "" : "s", (long long)is);
}

void wf_weave_groups(WfPassEnv *env, WfGraph *g)
{
    const WfOptions *o = env->options;
    WfRankGroup *known = WF_NEWN(g->arena, WfRankGroup, (size_t)o->rank_groups.n + 1);
    for (int i = 0; i < o->rank_groups.n; i++) {
        known[i] = wf_rank_group(env->ctx, g->arena, o->rank_groups.at[i], o->nproc);
        for (int k = 0; k < i; k++)
            if (!strcmp(known[k].name, known[i].name))
                wf_fail(env->ctx, WF_E_RANK_GROUP, "--group: %s is declared twice", known[i].name);
    }
    for (int i = 1; i < g->nodes.n; i++) {
        const WfNode *n = wf_node(g, (WfNodeId)i);
        if (!n->op->start && !n->op->travel)
            continue;
        const char *name = wf_arg(n, "group")->s;
        const WfArg *says = wf_arg(n, "group_size"), *splits = wf_arg(n, "input_splits"), *root = wf_arg(n, "root");
        int64_t size = splits ? splits->n : 0, is = strcmp(name, "dp") ? 0 : o->nproc, at;
        if (says)
            wf_elit(g->exprs, says->i, &size);
        for (int k = 0; k < o->rank_groups.n; k++)
            is = strcmp(known[k].name, name) ? is : known[k].size;
        if (!is)
            unknown(g, n, name, o->nproc, size);
        if (size && size != is)
            other_size(g, n, name, is, size, !strcmp(name, "dp"));
        if (root && wf_elit(g->exprs, root->i, &at) && at >= is)
            wf_fail_node(g, n, WF_E_RANK_GROUP, "its root is rank %lld of group \"%s\", which has %lld", (long long)at, name,
                         (long long)is);
    }
}
