/* Environment variables: one table of all that Weft reads, so that `weft env` can print them and nothing else
 * is read behind the user's back. This is the only file that calls getenv. */
#include <stdlib.h>
#include <string.h>

#include "base/base.h"

const WfEnvVar wf_env_table[] = {
    { "WEFT_CACHE_DIR", "folder of compiled kernels and steps", "$XDG_CACHE_HOME/weft" },
    { "WEFT_PROFILE", "set: the time of every call of a step is measured and reported when the session ends", "off" },
    { "WEFT_KEEP_C", "set: the folder with the generated C and the compiler's messages is kept", "off" },
    { "WEFT_CC", "C compiler for kernels", "gcc, then clang, then cc" },
    { "WEFT_THREADS", "threads of a session", "the number of cores this process may use" },
    { "WEFT_ISA", "instruction set of kernels: v3 (AVX2) or v4 (AVX-512)", "the best that this machine has" },
    { "WEFT_LOG", "least level to log: error, warn, info, debug", "info" },
    { "WEFT_DUMP_DIR", "folder for the graph after every pass", "no dumps" },
    { "WEFT_MPI_PLUGIN", "path of the MPI plugin", "beside the library, by the launcher's MPI" },
    { "WEFT_RANK", "rank, when Weft's own launcher started this process", "0" },
    { "WEFT_WORLD_SIZE", "number of ranks, likewise", "1" },
    { "WEFT_RENDEZVOUS", "where the ranks of one job meet, likewise", "none" },
    { "OMPI_COMM_WORLD_RANK", "set by Open MPI's launcher", "not under Open MPI" },
    { "OMPI_COMM_WORLD_SIZE", "set by Open MPI's launcher", "not under Open MPI" },
    { "OMPI_COMM_WORLD_LOCAL_RANK", "set by Open MPI's launcher", "not under Open MPI" },
    { "PMI_RANK", "set by MPICH's launcher", "not under MPICH" },
    { "PMI_SIZE", "set by MPICH's launcher", "not under MPICH" },
    { "MPI_LOCALRANKID", "set by MPICH's launcher", "not under MPICH" },
    { "SLURM_PROCID", "set by Slurm", "not under Slurm" },
    { "SLURM_NTASKS", "set by Slurm", "not under Slurm" },
    { "SLURM_LOCALID", "set by Slurm", "not under Slurm" },
    { "XDG_CACHE_HOME", "the user's cache folder", "$HOME/.cache" },
    { "HOME", "the user's folder", "/tmp" },
    { "TMPDIR", "folder for temporary files", "/tmp" },
    { "PATH", "where programs are looked for", "/usr/bin:/bin" },
    { "NO_COLOR", "when set and not empty: no colour", "colour on terminals" },
    { "TERM", "kind of terminal; dumb: no colour, no progress line", "dumb" },
    { "COLUMNS", "width of the terminal", "asked from the terminal, else 80" },
    { NULL, NULL, NULL },
};

const char *wf_env(const char *name)
{
    for (const WfEnvVar *v = wf_env_table; v->name; v++)
        if (!strcmp(v->name, name))
            return getenv(name);
    return NULL;
}
