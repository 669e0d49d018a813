/* Environment variables: one table of all that Weft reads, so that `weft env` can print them and nothing else
 * is read behind the user's back. This is the only file that calls getenv. */
#include <stdlib.h>
#include <string.h>

#include "base/base.h"

const WfEnvVar wf_env_table[] = {
    { "WEFT_CACHE_DIR", "folder of compiled kernels and steps", "$XDG_CACHE_HOME/weft" },
    { "WEFT_PROFILE", "set: the time of every call of a step is measured and reported when the session ends", "off" },
    { "WEFT_KEEP_C", "set: the folder with the generated C and the compiler's messages is kept", "off" },
    { "WEFT_CC", "C compiler for kernels", "the first of cc, gcc, clang, gcc-NN, clang-NN in PATH that works" },
    { "WEFT_THREADS", "threads of a session", "the number of cores this process may use" },
    { "WEFT_ISA", "instruction set of kernels: v3 (AVX2) or v4 (AVX-512)", "the best that this machine has" },
    { "WEFT_LOG", "least level to log: error, warn, info, debug", "info" },
    { "WEFT_DUMP_DIR", "folder for the graph after every pass", "no dumps" },
    { "XDG_CACHE_HOME", "the user's cache folder", "$HOME/.cache" },
    { "HOME", "the user's folder, for the cache", "no cache" },
    { "TMPDIR", "folder for the compiler's scratch files", "/tmp" },
    { "PATH", "where the compiler is looked for", "/usr/bin:/bin" },
    { "NO_COLOR", "when set and not empty: the progress line is not rewritten", "rewritten on terminals" },
    { "TERM", "dumb: the progress line is not rewritten", "rewritten on terminals" },
    { "COLUMNS", "width of the progress line, where the terminal does not tell", "80" },
    { "WEFT_COMM_TIMEOUT", "seconds that a wait for other ranks may take", "300" },
    { "WEFT_COMM_STALL", "seconds after which a rank whose heart does not beat (stopped, swapped out) counts as lost", "30" },
    { "WEFT_MEMORY", "memory for --micro-batch auto instead of what is available: a size for each rank, as 64M,1G; a rank's in successive steps: 64M/32M", "measured" },
    { "WEFT_ONNX_LIMIT", "bytes of an ONNX model from which on its weights go into a second file, as 64M", "2G, where the format ends" },
    { "WEFT_COMM", "transport between ranks: local or mpi", "mpi under an MPI launcher, else local" },
    { "WEFT_PLUGIN_DIR", "folder of libweft-mpi-*.so", "beside libweft or the program" },
    { "WEFT_WORLD", "set by Weft's launcher for its ranks: rank, size, descriptor and process of the launcher", "not launched by it" },
    { "WEFT_TERMINAL", "set by Weft's launcher for its first rank: columns of the terminal that shows its progress", "not launched by it" },
    { "RANK", "torchrun: this process among all", "not launched by it" },
    { "WORLD_SIZE", "torchrun: number of ranks", "not launched by it" },
    { "LOCAL_RANK", "torchrun: this process among those of the host", "not launched by it" },
    { "LOCAL_WORLD_SIZE", "torchrun: ranks on this host", "not launched by it" },
    { "MASTER_ADDR", "torchrun: host of rank 0", "not launched by it" },
    { "MASTER_PORT", "torchrun: tells worlds of one host apart", "not launched by it" },
    { "TORCHELASTIC_RUN_ID", "torchrun: tells worlds of one host apart", "not launched by it" },
    { "TORCHELASTIC_RESTART_COUNT", "torchrun: tells restarts apart", "not launched by it" },
    { "TORCHELASTIC_ERROR_FILE", "torchrun: file that gets the error of a failed rank", "not written" },
    { "OMPI_COMM_WORLD_RANK", "Open MPI's mpirun: this process among all", "not launched by it" },
    { "OMPI_COMM_WORLD_SIZE", "Open MPI's mpirun: number of ranks", "not launched by it" },
    { "OMPI_COMM_WORLD_LOCAL_RANK", "Open MPI's mpirun: this process among those of the host", "not launched by it" },
    { "OMPI_COMM_WORLD_LOCAL_SIZE", "Open MPI's mpirun: ranks on this host", "not launched by it" },
    { "PMIX_RANK", "PMIx launchers (prterun, srun --mpi=pmix): this process among all", "not launched by it" },
    { "PMIX_NAMESPACE", "PMIx launchers: tells worlds of one host apart", "not launched by it" },
    { "PMI_RANK", "MPICH's mpirun: this process among all", "not launched by it" },
    { "PMI_SIZE", "MPICH's mpirun: number of ranks", "not launched by it" },
    { "MPI_LOCALRANKID", "MPICH's mpirun: this process among those of the host", "not launched by it" },
    { "MPI_LOCALNRANKS", "MPICH's mpirun: ranks on this host", "not launched by it" },
    { "SLURM_PROCID", "srun: this process among all", "not launched by it" },
    { "SLURM_NTASKS", "srun: number of ranks", "not launched by it" },
    { "SLURM_STEP_NUM_TASKS", "srun: number of ranks of this step", "not launched by it" },
    { "SLURM_LOCALID", "srun: this process among those of the host", "not launched by it" },
    { "SLURM_NODEID", "srun: this host among those of the step", "the first" },
    { "SLURM_TASKS_PER_NODE", "srun: ranks on each host", "not launched by it" },
    { "SLURM_STEP_TASKS_PER_NODE", "srun: ranks of this step on each host", "not launched by it" },
    { "SLURM_JOB_ID", "srun: tells worlds of one host apart", "not launched by it" },
    { "SLURM_STEP_ID", "srun: tells worlds of one host apart; set: started by srun", "not launched by it" },
    { NULL, NULL, NULL },
};

const char *wf_env(const char *name)
{
    for (const WfEnvVar *v = wf_env_table; v->name; v++)
        if (!strcmp(v->name, name))
            return getenv(name);
    return NULL;
}
