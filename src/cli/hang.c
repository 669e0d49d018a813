/* weft hang: what the ranks of running trainings are at, read from their flight recorders without disturbing
 * them. */
#include "cli/cli.h"

#include "comm/comm.h"

int wf_cli_hang(WfCtx *ctx, const WfOptions *o, const WfStrings *words)
{
    WfStr out = {.arena = ctx->arena};
    (void)o;
    if (words->n > 1)
        wf_fail(ctx, WF_E_ARGUMENT_MISSING,
                "name one process or one folder of a run, or nothing for all worlds of this host");
    wf_comm_hang_report(ctx, words->n ? words->at[0] : NULL, &out);
    fputs(out.at, stdout);
    return 0;
}
