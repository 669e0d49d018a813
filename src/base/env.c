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
    { NULL, NULL, NULL },
};

const char *wf_env(const char *name)
{
    for (const WfEnvVar *v = wf_env_table; v->name; v++)
        if (!strcmp(v->name, name))
            return getenv(name);
    return NULL;
}
