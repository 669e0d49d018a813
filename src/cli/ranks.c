/* Several ranks behind one command. The process that the user typed compiles the step into the cache, starts the ranks
 * and watches over them; a rank is the same program with the same command line, which finds in its environment that it
 * is one (ours, or that of mpirun, srun or torchrun). */
#include "cli/cli.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

WfCliProcess wf_cli_process;

bool wf_cli_is_rank(void)
{
    const char *launcher = NULL;
    wf_comm_announced(&launcher);
    return launcher != NULL;
}

/* The main thread is in MPI and does not come back. */
static void cannot_start(const char *message, const char *hint)
{
    if (*wf_cli_process.signal) /* the launcher ends all, since another rank has spoken */
        _exit(128 + *wf_cli_process.signal);
    if (message)
        wf_cli_report(&(WfDiag){.kind = WF_E_RANKS_MISSING, .message = (char *)message, .hint = (char *)hint});
    _exit(1);
}

WfComm *wf_cli_join(WfCtx *ctx, WfOptions *o)
{
    if (!wf_cli_is_rank())
        return NULL;
    WfCommOptions c = {.nproc = wf_option_origin(o, "nproc") == WF_FROM_DEFAULT ? 0 : (int)o->nproc, .threads = (int)o->threads,
                       .watched = true, .hopeless = cannot_start};
    WfComm *comm = wf_comm_open(ctx, &c);
    o->nproc = wf_comm_size(comm);
    o->link = wf_cli_link(comm);
    if (!o->threads)
        o->threads = wf_comm_threads(comm);
    return comm;
}

WfLinkKind wf_cli_link(const WfComm *c) { return strstr(wf_comm_describe(c), "transport mpi") ? WF_LINK_MPI : WF_LINK_LOCAL; }

int wf_cli_watch(WfCtx *ctx, const WfOptions *o, const WfStrings *words)
{
    (void)o;
    if (words->n != 1)
        wf_fail(ctx, WF_E_ARGUMENT_MISSING, "weft starts this itself, with a descriptor");
    wf_comm_watch(ctx, atoi(words->at[0]));
    return 0;
}

int wf_cli_launch(WfCtx *ctx, int nproc, char *const *argv, const char *out)
{
    WfLaunch l = {.nproc = nproc, .argv = argv, .interrupt = wf_cli_process.signal, .out = out};
    int code = wf_launch(ctx, &l);
    wf_check_cancel(ctx); /* ranks that a signal stopped leave the last word to the launcher, as one process has it */
    return code;
}
