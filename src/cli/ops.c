/* weft ops: every operator that Weft knows, with the levels at which it may stand, its family and its schema.
 */
#include "cli/cli.h"

#include "emit/emit.h"
#include "ops/ops.h"

#include <string.h>

static const char *const families[] = {"composite", "pointwise", "source", "view",   "gather",
                                       "reduce",    "library",   "nest",   "control"};

int wf_cli_ops(WfCtx *ctx, const WfOptions *o, const WfStrings *words)
{
    int shown = 0;
    (void)o;
    wf_ops_init();
    for (int i = 0; i < wf_op_count(); i++) {
        const WfOp *op = wf_op_at(i);
        const WfSchema *s = wf_schema_of(op);
        bool wanted = words->n == 0;
        for (int w = 0; w < words->n; w++)
            wanted |= strstr(s->name, words->at[w]) != NULL;
        if (!wanted)
            continue;
        int last = WF_FUNC;
        for (int l = WF_OP; l <= WF_PRIM; l++)
            last = wf_admits((WfLevel)l, op) ? l : last;
        printf("%-5s %-9s %s %s\n", s->mutates ? "aten" : wf_level_name((WfLevel)last), families[op->family],
               op->vjp ? "grad" : "-   ", op->schema);
        shown++;
    }
    if (!shown)
        wf_fail(ctx, WF_E_NO_SUCH_OP, "no op has a name that holds '%s'", words->at[0]);
    return 0;
}

int wf_cli_env(WfCtx *ctx, const WfOptions *o, const WfStrings *words)
{
    const char *cc[WF_MAX_COMPILERS];
    int n = wf_compilers(ctx->arena, cc, WF_MAX_COMPILERS);
    (void)o, (void)words;
    for (const WfEnvVar *v = wf_env_table; v->name; v++) {
        const char *now = wf_env(v->name);
        printf("%-26s %s\n%-26s   %s%s\n", v->name, v->meaning, "",
               now ? "= " : "not set: ", now ? now : v->fallback);
    }
    printf("\nC compilers, in the order in which they are tried:%s\n", n ? "" : " none");
    for (int i = 0; i < n; i++)
        printf("  %s\n", cc[i]);
    return 0;
}
