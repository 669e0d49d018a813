/* Finds and opens the plugin of the MPI that launched this process, or that the host program runs. It is never closed:
 * MPI cannot be taken out of a process again. */
#include "comm/plugin.h"

#include "comm/private.h"

#include <dlfcn.h>
#include <string.h>
#include <unistd.h>

/* The MPI that the host program runs: both answer this call, with their names. */
static bool loaded_is_openmpi(void)
{
    char text[9000] = "";
    int n = 0;
    int (*version)(char *, int *) = NULL;
    *(void **)&version = dlsym(RTLD_DEFAULT, "MPI_Get_library_version");
    if (version)
        version(text, &n);
    return strstr(text, "Open MPI") != NULL;
}

const char *wf_comm_plugin(WfArena *a, const char *which)
{
    static const char *const below[] = {"", "/weft", "/../lib/weft", "/../lib/x86_64-linux-gnu/weft", "/.."};
    char name[64], folders[3][4096] = {{0}};
    Dl_info here;
    snprintf(name, sizeof name, "libweft-mpi-%s.so", which);
    if (wf_env("WEFT_PLUGIN_DIR"))
        snprintf(folders[0], sizeof folders[0], "%s", wf_env("WEFT_PLUGIN_DIR"));
    if (dladdr((void *)(uintptr_t)wf_mpi_open, &here) && here.dli_fname)
        snprintf(folders[1], sizeof folders[1], "%s", here.dli_fname);
    ssize_t n = readlink("/proc/self/exe", folders[2], sizeof folders[2] - 1);
    folders[2][n > 0 ? n : 0] = 0;
    for (int i = 0; i < 3; i++) {
        char *slash = strrchr(folders[i], '/');
        if (i && slash)
            *slash = 0;
        for (size_t k = 0; folders[i][0] && k < (i ? WF_LEN(below) : 1); k++) {
            char *path = wf_arena_printf(a, "%s%s/%s", folders[i], below[k], name);
            if (access(path, R_OK) == 0)
                return path;
        }
    }
    return NULL;
}

/* Raises with what the loader said. */
static void *find_plugin(WfComm *c, const char *which)
{
    const char *path = wf_comm_plugin(c->arena, which);
    if (!path)
        wf_fail_at(c->ctx, WF_E_MPI, NULL,
                   "Build Weft where that MPI's headers are installed, or name the folder of the plugin by WEFT_PLUGIN_DIR.",
                   "libweft-mpi-%s.so, which drives this MPI, is not found", which);
    void *library = dlopen(path, RTLD_NOW | RTLD_GLOBAL); /* global: components of Open MPI that are loaded later look for its symbols */
    if (!library)
        wf_fail(c->ctx, WF_E_MPI, "%s cannot be loaded: %s", path, dlerror());
    return library;
}

static const char *plugin_name(const WfLaunchInfo *info, void *host_comm)
{
    bool openmpi = info->by == WF_BY_OPENMPI || info->by == WF_BY_PMIX ||
                   (info->by == WF_BY_SLURM && wf_env("PMIX_RANK"));
    if (host_comm)
        openmpi = loaded_is_openmpi();
    else if (info->by == WF_BY_NOBODY)
        openmpi = true;
    return openmpi ? "openmpi" : "mpich";
}

const WfMpiPlugin *wf_find_plugin(WfComm *c, const WfLaunchInfo *info, void *host_comm)
{
    WfMpiPluginFn get = NULL;
    void *library = find_plugin(c, plugin_name(info, host_comm));
    *(void **)&get = dlsym(library, "wf_mpi_plugin");
    const WfMpiPlugin *p = get ? get() : NULL;
    if (!p || p->abi != WF_MPI_ABI)
        wf_fail(c->ctx, WF_E_MPI, "the MPI plugin belongs to another version of Weft");
    return p;
}
