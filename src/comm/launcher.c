/* Who started this process, and as which rank: read from the environment, since each launcher leaves its own
 * variables. Weft's own comes first, then torchrun (whose variables a user sets on purpose), the MPI
 * launchers, and srun at last, because mpirun inside a Slurm job sees Slurm's variables too. */
#include "comm/private.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The variable as a number that is not negative; -1 when unset or something else. */
static int number(const char *name)
{
    const char *text = wf_env(name);
    char *end;
    if (!text || !*text)
        return -1;
    long v = strtol(text, &end, 10);
    return *end || v < 0 || v > 1 << 24 ? -1 : (int)v;
}

static const char *word(const char *name)
{
    const char *text = wf_env(name);
    return text ? text : "";
}

/* "RANK/SIZE/DESCRIPTOR/PID" */
static bool by_weft(WfLaunchInfo *o)
{
    const char *text = wf_env("WEFT_WORLD");
    if (!text || sscanf(text, "%d/%d/%d/%d", &o->rank, &o->size, &o->fd, &o->launcher_pid) != 4)
        return false;
    o->local_rank = o->rank;
    o->local_size = o->size;
    o->by = WF_BY_WEFT;
    o->name = "weft";
    o->variable = "WEFT_WORLD";
    return true;
}

static bool by_torchrun(WfLaunchInfo *o)
{
    o->rank = number("RANK");
    o->size = number("WORLD_SIZE");
    if (o->rank < 0 || o->size < 1)
        return false;
    o->local_rank = number("LOCAL_RANK");
    o->local_size = number("LOCAL_WORLD_SIZE");
    snprintf(o->key, sizeof o->key, "torch-%.40s-%.40s-%.10s", word("MASTER_PORT"),
             word("TORCHELASTIC_RUN_ID"), word("TORCHELASTIC_RESTART_COUNT"));
    o->by = WF_BY_TORCHRUN;
    o->name = "torchrun";
    o->variable = "RANK";
    return true;
}

static bool by_openmpi(WfLaunchInfo *o)
{
    o->rank = number("OMPI_COMM_WORLD_RANK");
    o->size = number("OMPI_COMM_WORLD_SIZE");
    if (o->rank < 0 || o->size < 1)
        return false;
    o->local_rank = number("OMPI_COMM_WORLD_LOCAL_RANK");
    o->local_size = number("OMPI_COMM_WORLD_LOCAL_SIZE");
    snprintf(o->key, sizeof o->key, "ompi-%.80s-%d", word("PMIX_NAMESPACE"),
             *word("PMIX_NAMESPACE") ? 0 : (int)getppid());
    o->by = WF_BY_OPENMPI;
    o->name = "Open MPI";
    o->variable = "OMPI_COMM_WORLD_RANK";
    return true;
}

/* Hydra names no job: its proxy, the parent of all ranks of a host, stands for it. A rank that is told its place in PMI's
 * variables but not on its host is srun's (--mpi=pmi2). */
static bool by_mpich(WfLaunchInfo *o)
{
    o->rank = number("PMI_RANK");
    o->size = number("PMI_SIZE");
    if (o->rank < 0 || o->size < 1 || (number("MPI_LOCALRANKID") < 0 && number("SLURM_STEP_ID") >= 0))
        return false;
    o->local_rank = number("MPI_LOCALRANKID");
    o->local_size = number("MPI_LOCALNRANKS");
    snprintf(o->key, sizeof o->key, "mpich-%d", (int)getppid());
    o->by = WF_BY_MPICH;
    o->name = "MPICH";
    o->variable = "PMI_RANK";
    return true;
}

/* "4(x2),1": four ranks on each of two hosts, one on the third. The entry of host `node`; -1: there is none. */
static int tasks_of_node(const char *text, int node)
{
    while (*text) {
        char *end;
        long tasks = strtol(text, &end, 10), hosts = 1;
        if (end == text || tasks < 1 || tasks > 1 << 24)
            return -1;
        if (!strncmp(end, "(x", 2))
            hosts = strtol(end + 2, &end, 10);
        if (node < hosts)
            return (int)tasks;
        node -= (int)hosts;
        text = end + strspn(end, "),");
        if (text == end)
            return -1;
    }
    return -1;
}

static bool by_slurm(WfLaunchInfo *o)
{
    int node = number("SLURM_NODEID"); /* a step has a small number; what else srun runs (a batch script) has a huge one or none */
    o->rank = number("SLURM_PROCID");
    o->size = number("SLURM_STEP_NUM_TASKS");
    if (o->size < 1 && number("SLURM_STEP_ID") >= 0)
        o->size = number("SLURM_NTASKS");
    if (o->rank < 0 || o->size < 1)
        return false;
    o->local_rank = number("SLURM_LOCALID");
    o->local_size = tasks_of_node(word("SLURM_STEP_TASKS_PER_NODE"), node < 0 ? 0 : node);
    if (o->local_size < 1)
        o->local_size = tasks_of_node(word("SLURM_TASKS_PER_NODE"), node < 0 ? 0 : node);
    snprintf(o->key, sizeof o->key, "slurm-%.40s-%.40s", word("SLURM_JOB_ID"), word("SLURM_STEP_ID"));
    o->by = WF_BY_SLURM;
    o->name = "srun";
    o->variable = "SLURM_PROCID";
    o->speaks_mpi = wf_env("PMI_RANK") || wf_env("PMIX_RANK");
    return true;
}

/* A PMIx launcher that is not Open MPI's mpirun says the rank but not the size: MPI itself is asked. */
static bool by_pmix(WfLaunchInfo *o)
{
    o->rank = number("PMIX_RANK");
    o->size = 0;
    if (o->rank < 0)
        return false;
    o->local_rank = o->local_size = -1;
    snprintf(o->key, sizeof o->key, "pmix-%.100s", word("PMIX_NAMESPACE"));
    o->by = WF_BY_PMIX;
    o->name = "a PMIx launcher";
    o->variable = "PMIX_RANK";
    return true;
}

void wf_launch_info(WfCtx *ctx, WfLaunchInfo *o)
{
    *o = (WfLaunchInfo){.fd = -1};
    bool found = by_weft(o) || by_torchrun(o) || by_openmpi(o) || by_mpich(o) || by_slurm(o) || by_pmix(o);
    if (!found) {
        *o = (WfLaunchInfo){.size = 1, .local_size = 1, .fd = -1};
        return;
    }
    bool guessed = o->local_size < 1 || o->local_rank < 0;
    if (guessed && o->by == WF_BY_TORCHRUN) { /* set by hand: one host is meant */
        o->local_rank = o->rank;
        o->local_size = o->size;
    }
    if (ctx && o->by != WF_BY_PMIX && o->rank >= o->size)
        wf_fail_at(ctx, WF_E_LAUNCHER, NULL,
                   "Start the program through one launcher, or unset its variables.",
                   "%s says rank %d of %d ranks (%s)", o->name, o->rank, o->size, o->variable);
    if (ctx && o->local_size > 0 && o->local_rank >= o->local_size)
        wf_fail_at(ctx, WF_E_LAUNCHER, NULL,
                   "Start the program through one launcher, or unset its variables.",
                   "%s says rank %d of %d ranks on this host", o->name, o->local_rank, o->local_size);
}

int wf_comm_announced(const char **launcher)
{
    WfLaunchInfo info;
    wf_launch_info(NULL, &info);
    *launcher = info.by == WF_BY_NOBODY ? NULL : info.name;
    return info.size < 1 ? 1 : info.size;
}
