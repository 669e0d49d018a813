/* comm: ranks, groups of ranks, collectives between them, and what watches over ranks.
 *
 * A rank is a process. A world is all ranks of one training; every rank opens it once. Two transports stand behind one
 * table of functions (private.h): `local`, ranks of one host that read each other's memory in place, and `mpi`, a
 * plugin per MPI that is opened at run time. What is said here holds for both, to the bit.
 *
 * Order of sums. A sum over n ranks (of the group, in order of rank) is the balanced binary tree
 *
 *     tree(first, n) = n == 1 ? x[first] * scale
 *                             : tree(first, wf_comm_tree_left(n)) + tree(first + left, n - left)     left = (n + 1)
 * / 2
 *
 * element by element; chunks, slices, buckets, threads and arrival change nothing. Halves are equal whenever n is
 * even, so with r ranks of m micro-batches each, r a power of two, the tree over all r * m is the tree over ranks of
 * the trees over micro-batches. f32 and f64 are multiplied and added in their own precision (no fused multiply-add);
 * f16 and bf16 are widened to f32 and rounded once, to nearest even, after the whole tree; integers wrap. `mean` is
 * `sum` with scale 1/n for the caller who gives none. min and max carry a NaN of any rank to the result.
 *
 * Threads. A communication thread of the rank drives what was started, in order per group and independently between
 * groups. A wait helps: when that thread is asleep the waiting one does the work itself. All calls of a world come
 * from one thread at a time.
 *
 * Failures. Every wait has a deadline and names the ranks it waits for and its node. The first failure ends the world:
 * all waits of all ranks of a host raise WEFT_ERR_RANK from then on, within a tenth of a second. A killed rank is
 * noticed at once, a stopped one when its heart has not beaten for `stall` seconds. */
#ifndef WF_COMM_H
#define WF_COMM_H

#include "base/base.h"

typedef struct WfComm WfComm;
typedef struct WfGroup WfGroup;

/* ---- worlds ------------------------------------------------------------------------------------------------------ */

typedef enum { WF_COMM_AUTO, WF_COMM_LOCAL, WF_COMM_MPI } WfCommKind; /* auto: mpi under an MPI launcher or srun on several
                                                                         * hosts, else local */

typedef struct {
    WfCommKind kind;
    int nproc;           /* how many ranks the user asked for; 0: as many as the launcher says. Others are an error */
    double timeout;      /* seconds of one wait; 0: WEFT_COMM_TIMEOUT, else 300 */
    double stall;        /* seconds without a heartbeat (local); 0: WEFT_COMM_STALL, else 30 */
    double start;        /* seconds until all ranks must have opened the world; 0: the smaller of 60 and timeout */
    int threads;         /* threads of this rank; 0: cores of this host / ranks of this host, at least 1 */
    bool unbound;        /* do not bind to cores */
    void (*hopeless)(const char *message, const char *hint); /* called on another thread when MPI cannot start, because ranks of this
                          * host do not come in time, and which would wait for ever: ends the process. Of several ranks one is given a
                          * message. NULL: it waits */
    bool watched;        /* this program takes "watch FD" and calls wf_comm_watch: it is started on a host whose launcher
                          * would kill all ranks before one can say which one was lost */
} WfCommOptions;

/* Opens this rank's end of the world that its launcher describes in the environment: Weft's own (wf_launch), torchrun,
 * Open MPI, MPICH, Slurm; without any a world of one rank. `options` may be NULL. Raises WEFT_ERR_RANK when not all
 * ranks come (naming the missing ones), WEFT_ERR_ENVIRONMENT when the plugin is missing or MPI's world is not the
 * launcher's, WEFT_ERR_USAGE when the launcher's variables contradict each other or need another transport.
 * Closed by wf_comm_close, or when the guard around it fails: then the other ranks are told why and end too, and
 * ctx->diag.told says whether another process (the launcher, the rank that failed first) tells the user, so that this
 * rank need not. */
WfComm *wf_comm_open(WfCtx *ctx, const WfCommOptions *options);
/* The same over a communicator of the host program: `comm` points to its MPI_Comm, which is duplicated and may go on
 * being used. MPI must be initialised; below MPI_THREAD_MULTIPLE nothing moves outside Weft's calls. */
WfComm *wf_comm_open_mpi(WfCtx *ctx, const WfCommOptions *options, void *comm);
/* The plugin that drives "openmpi" or "mpich": in WEFT_PLUGIN_DIR, beside the library or program that holds this code, beside
 * the program, or where an installation puts plugins; NULL: there is none. */
const char *wf_comm_plugin(WfArena *a, const char *which);
/* All ranks have agreed to stop, each by raising WEFT_ERR_CANCELLED: waits until all know it. From now on leaving the guard is leaving
 * in order, and is told by rank 0 or the launcher alone. The world can still be used. */
void wf_comm_stop(WfComm *c);
/* Leaves in order: waits (with the deadline) until all ranks are here, unless the world has failed. NULL is fine. */
void wf_comm_close(WfComm *c);
int wf_comm_rank(const WfComm *c);
int wf_comm_size(const WfComm *c);
int wf_comm_local_size(const WfComm *c);   /* ranks of the world on this host */
int wf_comm_threads(const WfComm *c);      /* threads that this rank should use */
/* "rank 0 of 2, launched by torchrun (RANK), transport local, cores 0-1, 1 thread" */
const char *wf_comm_describe(const WfComm *c);
/* Binds the calling thread to the i-th of this rank's cores; nothing when the world is not bound. */
void wf_comm_bind_thread(const WfComm *c, int i);

/* How many ranks the environment announces, and who launched them ("torchrun", "Open MPI", ...; NULL: nobody, 1 rank).
 * Needs no world: for refusing --nproc under a launcher, and for choosing whether to launch. */
int wf_comm_announced(const char **launcher);

/* ---- groups, memory ---------------------------------------------------------------------------------------------- */

enum { WF_COMM_MAX_GROUPS = 64, WF_COMM_MAX_LOCAL = 256, WF_COMM_INFLIGHT = 1024 };

WfGroup *wf_comm_world(WfComm *c);
/* The group of these ranks (of the world, ascending). Every rank of the world calls it, in the same order of groups
 * and with the same name and ranks; those that are no members get NULL. Asking again for a name gives the same
 * group. */
WfGroup *wf_comm_group(WfComm *c, const char *name, const int *ranks, int n);
int wf_group_rank(const WfGroup *g);       /* of this process in the group */
int wf_group_size(const WfGroup *g);

/* Memory for buffers that are sent and received, zero, 64-byte aligned (huge pages where the system has them); every
 * rank of the world calls it, sizes may differ. `local` maps it into all ranks: collectives on it copy nothing more
 * than they must. Other memory is sent too, through staging copies. Lives until the world is closed. */
void *wf_comm_arena(WfComm *c, size_t bytes);

/* ---- collectives ------------------------------------------------------------------------------------------------- */

/* What one rank contributes to one collective. With n ranks in the group and this rank the r-th:
 *   all_reduce      send[count] -> recv[count]
 *   broadcast       recv[count] of `root` -> recv[count] of all (send is not read)
 *   all_gather      send[counts[r]] -> recv[sum of counts], blocks in order of rank
 *   reduce_scatter  send[sum of counts] -> recv[counts[r]], the r-th block of the reduction
 *   all_to_all      block p of send (counts[p] elements) -> rank p, whose block r of recv (recv_counts[r]) it becomes
 * `counts` and `recv_counts` NULL: all blocks have `count` elements. Counts must agree between ranks; kind, dtype,
 * op and total sizes are compared and a difference is an error that names both nodes. Sums, means and scales:
 * floats; sum, min, max: also integers; bool: min (and), max (or). In place: all_reduce send == recv; all_gather
 * send == its block of recv; reduce_scatter recv == its block of send. Other overlaps are refused.
 * Buffers, counts and `node` must stay, and send and recv must not be touched, until the wait. */
typedef struct {
    WfCollective kind;
    WfCommReduce op;
    WfDtype dtype;
    const void *send;
    void *recv;
    int64_t count;
    const int64_t *counts, *recv_counts;
    int root;            /* rank in the group */
    double scale;        /* multiplies each contribution as it is read, rounded to f32 unless f64; 0 means none */
    const char *node;    /* for messages and the flight recorder: "%reduced" */
    int64_t step;
} WfCommOp;

typedef uint64_t WfTicket;
/* Never blocks. Raises WEFT_ERR_USAGE for what this rank alone can see is wrong. */
WfTicket wf_comm_start(WfComm *c, WfGroup *g, const WfCommOp *op);
/* Until that collective is complete on this rank: recv holds the result and send may be reused. Each ticket is waited
 * for once, in any order. Raises WEFT_ERR_RANK. */
void wf_comm_wait(WfComm *c, WfTicket t);
/* Whether the wait would return at once. Does nothing for the collective itself: the communication thread does. */
bool wf_comm_done(const WfComm *c, WfTicket t);
/* start and wait in one, without waking the communication thread: for what cannot overlap anything. */
void wf_comm_run(WfComm *c, WfGroup *g, const WfCommOp *op);

/* The order of sums, for whoever mirrors it (micro-batches): how many of n leaves are on the left. */
static inline int wf_comm_tree_left(int n) { return (n + 1) / 2; }

/* Seconds of one all_reduce (f32, sum, in place) of that many bytes at `buffer` (memory like that of the real buffers;
 * its values are lost), the mean of `rounds` after one that warms up. Every member calls it and gets the same
 * number, the largest of all. */
double wf_comm_measure(WfComm *c, WfGroup *g, void *buffer, size_t bytes, int rounds);

/* Seconds that each further one adds when four are started at once (buffer: 4 * bytes): what their bytes take, and what the
 * link cannot hide of their latency. */
double wf_comm_measure_next(WfComm *c, WfGroup *g, void *buffer, size_t bytes, int rounds);

/* ---- control plane: small things, apart from the data ------------------------------------------------------------ */

/* Gathers `bytes` of every rank of the world into all[size * bytes], in order of rank. `timeout` 0: the world's.
 * `what` stands in messages: "agreement on the plan". */
void wf_comm_exchange(WfComm *c, const void *mine, size_t bytes, void *all, double timeout, const char *what);
/* The blob of `root` on every rank, of any size; the others' blob and bytes are not read. Root gets its own back. */
const void *wf_comm_share(WfComm *c, WfArena *a, int root, const void *blob, size_t *bytes, const char *what);

/* ---- flight recorder --------------------------------------------------------------------------------------------- */

typedef enum { WF_FLIGHT_NONE, WF_FLIGHT_COMPUTING, WF_FLIGHT_STARTED, WF_FLIGHT_WAITING, WF_FLIGHT_DONE } WfFlight;
/* What this rank is at, in memory that survives it: a few stores. Collectives record themselves. */
void wf_comm_mark(WfComm *c, WfFlight state, const char *node, int64_t step);
/* Names the first rank in the folder of its run, so that the report below finds the world by it until the world is closed. Other
 * ranks, and those of Weft's launcher, which has done it, need not. Raises WEFT_ERR_IO. */
void wf_comm_trace(WfComm *c, const char *dir);
/* What the ranks of running worlds of this host are at, one a line, and which are behind: of the world that `where`
 * names (pid of the launcher or a rank, or the folder of a run) or of all (NULL). Raises WEFT_ERR_USAGE if none. */
void wf_comm_hang_report(WfCtx *ctx, const char *where, WfStr *out);
/* What the watcher does: returns when the ranks that share the memory `fd` have ended; raises WEFT_ERR_RANK, before that, when one has
 * ended out of order. */
void wf_comm_watch(WfCtx *ctx, int fd);

/* ---- launcher ---------------------------------------------------------------------------------------------------- */

typedef struct {
    int nproc;
    char *const *argv;               /* of every rank; the program is this process's own (/proc/self/exe) */
    const char *program;             /* NULL: /proc/self/exe */
    volatile int *interrupt;         /* signal number to pass on, set by the program's handler; may be NULL */
    double grace;                    /* seconds between SIGTERM and SIGKILL; 0: 5 */
    double stall;                    /* as in WfCommOptions */
    const char *out;                 /* folder for the trace that `weft hang` reads, and for rank-N.log, what rank N writes to
                                      * stderr; NULL: neither */
} WfLaunch;

/* Starts the ranks, watches over them and returns the exit code: 0, or 128 + signal when interrupted. A rank that
 * fails ends all others within the grace; then one error is raised that names rank, pid, what happened, node and
 * step, and is also written to TORCHELASTIC_ERROR_FILE if that is set. No rank outlives the launcher, however that
 * ends. Ranks are in process groups of their own: a terminal's Ctrl-C reaches them once, through the launcher. */
int wf_launch(WfCtx *ctx, const WfLaunch *l);

#endif
