/* What a plugin for one MPI offers to the MPI transport. Plugins are compiled apart (src/comm/mpi/plugin.c, once per
 * MPI, with that MPI's compiler settings) and opened at run time, so the library itself knows no mpi.h. All
 * functions return NULL, or a text that says what went wrong and stays valid until the next call. No function blocks
 * except open and close. Calls of one world never overlap. */
#ifndef WF_COMM_PLUGIN_H
#define WF_COMM_PLUGIN_H

#include <stdbool.h>
#include <stddef.h>

enum { WF_MPI_ABI = 2 };
typedef enum { WF_MPI_SINGLE, WF_MPI_FUNNELED, WF_MPI_SERIALIZED, WF_MPI_MULTIPLE } WfMpiLevel;

typedef struct WfMpiWorld WfMpiWorld; /* of the plugin */
typedef struct {
    int rank, size, local_rank, local_size, largest_tag;
    WfMpiLevel level;
    bool ours;                        /* MPI was initialised here, so close finalises it */
} WfMpiInfo;

typedef struct WfMpiPlugin {
    int abi;
    const char *name;                 /* "Open MPI 4.1.4" */
    size_t request_size;              /* of an MPI_Request; arrays of requests are `request_size * n` bytes */
    /* host_comm: NULL for the whole world, or points to the host program's MPI_Comm. info->local_size is what the
     * launcher said, with local_rank; 0: MPI is asked, which takes seconds where many ranks share a core. */
    const char *(*open)(void *host_comm, WfMpiWorld **out, WfMpiInfo *info);
    const char *(*send)(WfMpiWorld *w, const void *p, size_t bytes, int peer, int tag, void *request);
    const char *(*recv)(WfMpiWorld *w, void *p, size_t bytes, int peer, int tag, void *request); /* peer -1: any */
    /* Tests n requests: `which` gets the indices of those that have completed now, `got` the bytes received. */
    const char *(*test)(WfMpiWorld *w, int n, void *requests, int *completed, int *which, size_t *got);
    void (*cancel)(WfMpiWorld *w, void *request);
    void (*close)(WfMpiWorld *w, bool orderly); /* not orderly: nothing that needs another rank's help */
} WfMpiPlugin;

typedef const WfMpiPlugin *(*WfMpiPluginFn)(void); /* the symbol "wf_mpi_plugin" */

#endif
