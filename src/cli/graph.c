/* weft graph: the graph at any stage of the compiler, as text. weft plan: what the step needs, as text. weft compile: a step in a
 * file. */
#include "cli/cli.h"

#include "pipeline.h"
#include "report/report.h"

#include <string.h>

int wf_cli_graph(WfCtx *ctx, const WfOptions *o, const WfStrings *words)
{
    weft_program *p = wf_cli_open(ctx, o, words);
    if (p->loaded)
        wf_fail(ctx, WF_E_STEP_FORM, "a compiled step holds no graph");
    WfStr s = {.arena = p->arena};
    wf_print(wf_compile_until(ctx, p->arena, p->graph, &p->options, o->after, o->eval), &s);
    fputs(s.at, stdout);
    return 0;
}

int wf_cli_plan(WfCtx *ctx, const WfOptions *o, const WfStrings *words)
{
    weft_program *p = wf_cli_open(ctx, o, words);
    WfStr s = {.arena = p->arena};
    if (!p->exe)
        wf_program_compile(p);
    wf_report_plan(ctx, p->exe, &p->options, &s);
    fputs(s.at, stdout);
    weft_program_free(p);
    return 0;
}

int wf_cli_compile(WfCtx *ctx, const WfOptions *o, const WfStrings *words)
{
    if (words->n && !o->out)
        wf_fail(ctx, WF_E_ARGUMENT_MISSING, "name the file to write with -o STEP.weft");
    if (o->out)
        wf_cli_target(ctx, o, words, o->out, WF_TARGET_STEP, NULL);
    weft_program *p = wf_cli_open(ctx, o, words);
    if (!p->exe)
        wf_program_compile(p);
    wf_program_save(p, o->out);
    fprintf(stderr, "%s: compiled in %.2f s%s\n", o->out, p->compile_s,
            p->from_cache ? " (from the cache)" : "");
    return 0;
}
