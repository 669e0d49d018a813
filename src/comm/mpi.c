/* The MPI transport: not here yet. */
#include "comm/private.h"

void wf_mpi_open(WfComm *c, const WfLaunchInfo *info, void *host_comm)
{
    (void)host_comm;
    wf_fail_at(c->ctx, WEFT_ERR_UNSUPPORTED, NULL, "Start it as: weft train --nproc N, or set WEFT_COMM=local on one host.",
               "ranks over MPI are not supported yet (launched by %s)", info->name);
}
