/* The plugin for the MPI whose headers it is compiled with: point-to-point messages of bytes on a
 * communicator of its own, nothing else. Errors come back as texts; MPI's own reaction to them (ending the
 * program) is switched off for this communicator. */
#include "comm/plugin.h"

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct WfMpiWorld {
    MPI_Comm comm;
    bool ours;
    char text[MPI_MAX_ERROR_STRING + 64];
    MPI_Status *status;
    int n_status;
};

static char open_text[MPI_MAX_ERROR_STRING + 64];

static const char *told(char *text, size_t size, int rc)
{
    char words[MPI_MAX_ERROR_STRING] = "";
    int n = 0;
    if (rc == MPI_SUCCESS)
        return NULL;
    MPI_Error_string(rc, words, &n);
    snprintf(text, size, "MPI says: %s", words);
    return text;
}

static const char *told_world(WfMpiWorld *w, int rc)
{
    return told(w->text, sizeof w->text, rc);
}

static int local_ranks(WfMpiWorld *w, WfMpiInfo *info)
{
    MPI_Comm host;
    int rc = MPI_Comm_split_type(w->comm, MPI_COMM_TYPE_SHARED, info->rank, MPI_INFO_NULL, &host);
    if (rc != MPI_SUCCESS)
        return rc;
    MPI_Comm_rank(host, &info->local_rank);
    MPI_Comm_size(host, &info->local_size);
    return MPI_Comm_free(&host);
}

static const char *open_world(void *host_comm, WfMpiWorld **out, WfMpiInfo *info)
{
    int on = 0, off = 0, level = MPI_THREAD_SINGLE, rc = MPI_SUCCESS, found = 0, *bound = NULL;
    MPI_Finalized(&off);
    if (off)
        return "MPI has been finalised in this process already; it cannot be started twice";
    MPI_Initialized(&on);
    if (!on && host_comm)
        return "the host program hands over a communicator, but has not initialised MPI";
    if (!on)
        rc = MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &level);
    else
        rc = MPI_Query_thread(&level);
    if (rc != MPI_SUCCESS)
        return told(open_text, sizeof open_text, rc);
    WfMpiWorld *w = calloc(1, sizeof *w);
    if (!w)
        return "out of memory";
    w->ours = info->ours = !on;
    if (w->ours)
        w->comm = MPI_COMM_WORLD; /* nobody else sends there */
    else
        rc = MPI_Comm_dup(host_comm ? *(MPI_Comm *)host_comm : MPI_COMM_WORLD, &w->comm);
    if (rc == MPI_SUCCESS)
        rc = MPI_Comm_set_errhandler(w->comm, MPI_ERRORS_RETURN);
    if (rc == MPI_SUCCESS && w->ours) /* where errors of calls without a communicator go: MPI_Testsome */
        MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    if (rc != MPI_SUCCESS) {
        free(w);
        return told(open_text, sizeof open_text, rc);
    }
    MPI_Comm_rank(w->comm, &info->rank);
    MPI_Comm_size(w->comm, &info->size);
    MPI_Comm_get_attr(w->comm, MPI_TAG_UB, &bound, &found);
    info->largest_tag = found && bound ? *bound : 32767;
    info->level = level == MPI_THREAD_MULTIPLE     ? WF_MPI_MULTIPLE
                  : level == MPI_THREAD_SERIALIZED ? WF_MPI_SERIALIZED
                  : level == MPI_THREAD_FUNNELED   ? WF_MPI_FUNNELED
                                                   : WF_MPI_SINGLE;
    if (info->local_size < 1)
        rc = local_ranks(w, info);
    *out = w;
    return told_world(w, rc);
}

static const char *post_send(WfMpiWorld *w, const void *p, size_t bytes, int peer, int tag, void *request)
{
    return told_world(w, MPI_Isend(p, (int)bytes, MPI_BYTE, peer, tag, w->comm, request));
}

static const char *post_recv(WfMpiWorld *w, void *p, size_t bytes, int peer, int tag, void *request)
{
    return told_world(
        w, MPI_Irecv(p, (int)bytes, MPI_BYTE, peer < 0 ? MPI_ANY_SOURCE : peer, tag, w->comm, request));
}

static const char *test(WfMpiWorld *w, int n, void *requests, int *completed, int *which, size_t *got)
{
    if (n > w->n_status) {
        MPI_Status *more = realloc(w->status, (size_t)n * sizeof *more);
        if (!more)
            return "out of memory";
        w->status = more;
        w->n_status = n;
    }
    *completed = 0;
    int rc = MPI_Testsome(n, requests, completed, which, w->status);
    if (*completed == MPI_UNDEFINED)
        *completed = 0;
    for (int i = 0; i < *completed && rc == MPI_ERR_IN_STATUS; i++)
        if (w->status[i].MPI_ERROR != MPI_SUCCESS && w->status[i].MPI_ERROR != MPI_ERR_PENDING)
            return told_world(w, w->status[i].MPI_ERROR);
    for (int i = 0; i < *completed; i++) {
        int count = 0;
        MPI_Get_count(&w->status[i], MPI_BYTE, &count);
        got[i] = count == MPI_UNDEFINED ? 0 : (size_t)count;
    }
    return told_world(w, rc);
}

static void cancel(WfMpiWorld *w, void *request)
{
    (void)w;
    MPI_Request *r = request;
    if (*r == MPI_REQUEST_NULL)
        return;
    MPI_Cancel(r);
    MPI_Wait(r, MPI_STATUS_IGNORE);
}

static void close_world(WfMpiWorld *w, bool orderly)
{
    if (orderly) {
        if (w->ours)
            MPI_Finalize();
        else
            MPI_Comm_free(&w->comm);
    }
    free(w->status);
    free(w);
}

#if defined(OPEN_MPI)
#define TEXT(x)   #x
#define NUMBER(x) TEXT(x)
#define MPI_NAME \
    "Open MPI " NUMBER(OMPI_MAJOR_VERSION) "." NUMBER(OMPI_MINOR_VERSION) "." NUMBER(OMPI_RELEASE_VERSION)
#elif defined(MPICH_VERSION)
#define MPI_NAME "MPICH " MPICH_VERSION
#else
#define MPI_NAME "an MPI"
#endif

__attribute__((visibility("default"))) const WfMpiPlugin *wf_mpi_plugin(void)
{
    static const WfMpiPlugin plugin = {WF_MPI_ABI, MPI_NAME,  sizeof(MPI_Request),
                                       open_world, post_send, post_recv,
                                       test,       cancel,    close_world};
    return &plugin;
}
