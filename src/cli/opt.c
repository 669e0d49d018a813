/* weft opt: one pass over graph text. This is how passes are tested (tests/ir), and how one looks at a dump
 * again. */
#include "cli/cli.h"

#include "ops/ops.h"
#include "pipeline.h"

#include <string.h>

int wf_cli_opt(WfCtx *ctx, const WfOptions *o, const WfStrings *words)
{
    if (words->n != 1 || !o->run)
        wf_fail(ctx, WF_E_ARGUMENT_MISSING, "name a pass and a file: weft opt --run=PASS x.ir");
    wf_ops_init();
    WfFile *f = wf_file_map(ctx, ctx->arena, words->at[0]);
    const char *text = wf_arena_strndup(ctx->arena, (const char *)f->at, f->size);
    if (strlen(text) != f->size)
        wf_fail_at(ctx, WF_E_GRAPH_TEXT, words->at[0], NULL, "this is no graph text");
    WfGraph *g = wf_parse(ctx, ctx->arena, text, words->at[0]);
    wf_verify(g, "reading");
    if (strcmp(o->run, "print"))
        g = wf_run_pass(ctx, ctx->arena, g, o, o->run);
    WfStr s = {.arena = ctx->arena};
    wf_print(g, &s);
    fputs(s.at, stdout);
    return 0;
}
