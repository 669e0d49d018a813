/* What the files of comm share: the layout of a world's shared memory, a collective in flight, and the table of
 * functions that a transport is. A further transport (NCCL) is a file that fills such a table. */
#ifndef WF_COMM_PRIVATE_H
#define WF_COMM_PRIVATE_H

#include "comm/comm.h"

#include <pthread.h>
#include <stdatomic.h>

enum {
    LINE = 64,
    NODE_TEXT = 96,
    INLINE_BYTES = 16384,    /* local: contributions up to this size travel inside the group's own cells */
    WF_COMM_MAX_RANKS = 4096,
    STAGE_BYTES = 512 << 10, /* local: chunk of a buffer outside the arena; there are two per rank and group */
};

#define WF_WORLD_MAGIC UINT64_C(0x31646c726f776677) /* "wfworld1" */

/* ---- shared memory of the ranks of one host ------------------------------------------------------------------------- */

/* Where a rank is: written by its own main thread only. `seq` is odd while it writes. */
typedef struct {
    _Atomic uint32_t seq, state;
    _Atomic int64_t step;
    _Atomic uint64_t time;           /* CLOCK_MONOTONIC, ns: the same for all processes of a host */
    _Atomic uint64_t started, done;  /* collectives */
    _Atomic uint64_t node[NODE_TEXT / 8]; /* text; words, since others read while it changes */
} WfFlightCell;

/* What a rank publishes about itself. */
typedef struct {
    _Alignas(LINE) _Atomic uint32_t bell;  /* futex: rung when something that it waits for has happened */
    _Atomic uint32_t asleep;               /* threads of it that sleep on the bell */
    _Alignas(LINE) _Atomic int32_t pid;    /* 0: not here yet */
    _Atomic int32_t rank;                  /* of the world: over several hosts not the number of the cell */
    _Atomic uint32_t leaving;              /* it is in wf_comm_close */
    _Atomic int32_t alive;                 /* a descriptor of it, of a pipe that nobody else writes: its end is the rank's; 0: none */
    _Atomic uint64_t beat;                 /* ns of its last heartbeat; 0: none yet */
    WfFlightCell flight;
} WfRankCell;

/* The first failure of the world; `state` 1 while it is written, 2 when it can be read. */
typedef struct {
    _Atomic uint32_t state;
    int32_t culprit, reporter;             /* ranks; -1: none, the launcher */
    uint32_t own;                          /* the culprit reports an error of its own */
    char message[1024], place[512], hint[512];
} WfFailure;

/* Barriers of a group count arrivals; each n-th completes a phase. */
typedef struct {
    _Alignas(LINE) _Atomic uint64_t count, phase;
    _Alignas(LINE) _Atomic uint32_t state; /* 0 free, 1 being taken, 2 named */
    char name[64];
    uint64_t members;                      /* hash of the ranks */
} WfGroupCell;

/* One side of a collective as the others see it; two per member, by parity of the sequence number. */
typedef struct {
    uint32_t kind, op, dtype, root;
    uint64_t agree;                        /* hash of the counts that all must share */
    int64_t count;                         /* elements that must be equal everywhere, or -1 */
    uint64_t bytes;                        /* of its send buffer */
    int64_t send, recv;                    /* offset in the world's file; -1: private memory */
    double scale;
    int64_t step;
    char node[NODE_TEXT];
} WfSide;

typedef struct {
    _Alignas(LINE) _Atomic uint64_t phase; /* barriers that this member has come to: names who is missing */
    _Alignas(LINE) WfSide side[2];
} WfMemberCell;

typedef struct {
    uint64_t magic, bytes;
    int32_t size, launcher;                /* ranks in this memory; pid of the launcher or 0 */
    _Atomic int32_t watcher;               /* pid of the process that tells of ranks that have ended; 0: they do */
    int32_t world;                         /* ranks of the world: more than `size` where it has several hosts */
    uint64_t ranks, groups, members, displs, inlines, stages; /* offsets of the tables */
    char what[64];                         /* for the hang report: "weft train" */
    _Alignas(LINE) WfFailure failure;
} WfWorldHead;

typedef struct {
    int fd;
    size_t bytes;
    WfWorldHead *head;
    bool borrowed;                         /* not this struct's to close */
} WfShared;

/* ---- what ranks write to stderr: OUT/rank-N.log ---- */
typedef struct WfTee WfTee;
WfTee *wf_tee_open(WfCtx *ctx, WfArena *a, const char *out, int rank); /* raises; closed with the arena */
int wf_tee_write_end(const WfTee *t);    /* for the rank to inherit as its stderr */
int wf_tee_read_end(const WfTee *t);     /* -1: all was read */
void wf_tee_started(WfTee *t);           /* the rank has its end */
void wf_tee_read(WfTee *t);              /* what is there now; never waits */

static inline WfRankCell *wf_cell(const WfShared *s, int i)
{
    return (WfRankCell *)((char *)s->head + s->head->ranks) + i;
}

/* The file of a world (an anonymous one: it vanishes with the last process that holds it), and a mapping of it.
 * Raise. */
void wf_shared_create(WfCtx *ctx, int ranks, bool collectives, WfShared *out); /* else for failures and the recorder only */
void wf_shared_attach(WfCtx *ctx, int fd, int ranks, WfShared *out); /* ranks 0: as many as it says */
void wf_shared_close(WfShared *s);
bool wf_failed(const WfShared *s);
/* Records the first failure and wakes all ranks; false when there was one already. Texts may be NULL. */
bool wf_fail_world(const WfShared *s, int culprit, int reporter, bool own, const char *message, const char *place,
                   const char *hint);
/* The same of a rank that is lost: what it did ("has ended"), and where it was. pid: it may have ended before it said its own. */
bool wf_fail_lost(const WfShared *s, WfRankCell *cell, int pid, int reporter, const char *what);
void wf_wait_failure(const WfShared *s); /* until a failure that is being written can be read; bounded */
void wf_ring(WfRankCell *cell);
uint64_t wf_ns(void);
void wf_futex_wait(_Atomic uint32_t *word, uint32_t value, double seconds);
void wf_futex_wake(_Atomic uint32_t *word);

typedef struct { uint32_t state; int64_t step; uint64_t time, started, done; char node[NODE_TEXT]; } WfFlightView;
void wf_flight_write(WfFlightCell *f, uint32_t state, const char *node, int64_t step);
void wf_flight_read(const WfFlightCell *f, WfFlightView *out);
/* "computing %mm (step 7)", for messages */
void wf_flight_text(const WfFlightView *v, char *out, size_t size);
/* The text that says of a rank that does not come where it is. */
void wf_rank_text(const WfRankCell *cell, char *out, size_t size);
/* Names this process in the run's folder, for `weft hang DIR`. */
void wf_write_trace(WfCtx *ctx, const char *dir);
void wf_remove_trace(const char *dir);
void wf_error_file(const char *message, const char *place, const char *hint, bool root);

/* Silence of a rank as a watcher may count it: time in which the watcher did not run itself (a paused container, a stopped
 * job) says nothing about others. `tick` before each round of looking. */
typedef struct { uint64_t looked, since; } WfWatch;
void wf_watch_tick(WfWatch *w);
double wf_watch_silence(const WfWatch *w, const WfRankCell *cell); /* seconds; 0 without a first heartbeat */

/* ---- groups, collectives in flight ------------------------------------------------------------------------------- */

typedef struct WfFlying WfFlying;

struct WfGroup {
    WfComm *comm;
    char *name;
    int id, rank, n;
    int *ranks;                            /* of the world */
    WfFlying *queue[2 * WF_COMM_INFLIGHT]; /* ring: in the order in which they were started; NULL: done before the head */
    _Atomic uint32_t head, tail;           /* done by the driver, added by the caller */
    uint64_t seq;                          /* collectives that were posted */
    uint64_t phase;                        /* local: barriers that this rank has come to */
    WfGroupCell *cell;
    WfGroup *next;
};

struct WfFlying {
    WfCommOp op;
    WfGroup *group;
    int64_t *displs;                       /* prefix sums of counts, n + 1; recv_displs for all_to_all */
    int64_t *recv_displs;
    size_t size;                           /* of an element */
    size_t send_bytes, recv_bytes;
    double scale;
    bool scaled, posted;
    uint64_t seq;
    uint32_t generation;
    _Atomic uint32_t state;
    /* local */
    int64_t send_at, recv_at;
    uint64_t target;
    int mode, chunk, chunks;
    bool last, summed;                     /* no work left but a barrier; staged all_reduce: the chunk is summed */
    /* mpi */
    struct WfMpiOp *mpi;
};
enum { WF_FLYING_FREE, WF_FLYING_QUEUED, WF_FLYING_DONE };
typedef enum { WF_BLOCKED, WF_MOVED, WF_FINISHED } WfProgress;

/* A transport. `post` and `progress` run on whichever thread drives, one at a time; a failure of their own is recorded
 * by wf_fail_world. Everything else runs on the caller's thread and may raise. */
typedef struct {
    const char *name;
    void *(*arena)(WfComm *c, size_t bytes);
    void (*group)(WfComm *c, WfGroup *g);                /* prepares a new group */
    void (*start)(WfComm *c, WfFlying *f);               /* caller's thread: what needs memory */
    void (*post)(WfComm *c, WfFlying *f);                /* its turn has come in its group */
    WfProgress (*progress)(WfComm *c, WfFlying *f);
    void (*missing)(WfComm *c, const WfFlying *f, bool *ranks); /* which members it waits for */
    void (*leave)(WfComm *c, bool failed);
    double poll;                                         /* seconds between two looks; 0: peers ring the bell */
    bool (*ahead)(const WfFlying *f);                    /* may the next of its group begin? NULL: one at a time */
} WfTransport;

/* Mapped part of the world's file: all ranks' pieces of one arena. */
typedef struct { char *at; int64_t offset; size_t bytes; } WfSegment;

struct WfComm {
    WfCtx *ctx;
    WfArena *arena;
    WfDefer *defer;
    WfCommOptions options;
    const WfTransport *transport;
    void *state;                           /* of the transport */
    int rank, size, local_rank, local_size;
    const char *launcher;                  /* NULL: none */
    const char *launcher_var;
    bool launched;
    int launcher_pid;
    char *describe;
    int watcher;                           /* process that this rank has started; 0: none */
    int alive[2];                          /* pipe, as in the cell */
    char *trace;                           /* folder of the run that names this rank; NULL: none */
    int threads;
    struct WfBinding *binding;
    bool together;                         /* `shared` holds all ranks of the world, and what they have come to */
    WfShared shared;                       /* of this host's ranks; mpi: for failures and the recorder only */
    WfRankCell *cell;                      /* of this rank, in `shared` */
    WfRankCell **cell_of;                  /* of each rank of the world; NULL: it is on another host */
    WfWatch watch;
    int *peer_fd;                          /* pidfds of this host's ranks, without a launcher of ours */
    WfGroup *groups, *world, *control;
    int n_groups;
    WfSegment segment[64];
    int n_segments;
    int64_t data_used;
    WfFlying *flying;                      /* the pool */
    uint32_t free_list[WF_COMM_INFLIGHT], n_free;
    int64_t *displ_pool;
    /* driving */
    pthread_t thread;
    bool threaded, running, closed, orderly; /* running: the thread is */
    bool stopped;                /* all ranks agreed to */
    _Atomic uint32_t quit, driver;         /* driver: somebody drives */
    _Atomic uint32_t helping;              /* the caller is in a wait and drives itself */
    _Atomic uint32_t park, parked;         /* futex of the communication thread without work */
    _Atomic uint32_t unlocks;              /* futex of a caller who waits for the driver */
    _Atomic int32_t pending;
    bool crowded;                          /* more ranks than cores */
    int spins;
};

/* Which ranks of `rank` are to be found where; fills the communicator from the environment. */
typedef struct {
    const char *name, *variable;
    int rank, size, local_rank, local_size;
    char key[160];                         /* tells the worlds of one host apart */
    enum { WF_BY_NOBODY, WF_BY_WEFT, WF_BY_TORCHRUN, WF_BY_OPENMPI, WF_BY_MPICH, WF_BY_PMIX, WF_BY_SLURM } by;
    bool speaks_mpi;                       /* srun: with --mpi, so that MPI can start (the MPI launchers always do) */
    int fd, launcher_pid;                  /* by Weft */
} WfLaunchInfo;
void wf_launch_info(WfCtx *ctx, WfLaunchInfo *out); /* ctx NULL: contradictions are passed over */

/* For tests: a local world whose ranks are threads of one process and share one mapping, where a thread sanitizer sees
 * both sides. `shared` stays the caller's. */
WfComm *wf_comm_open_thread(WfCtx *ctx, const WfCommOptions *options, const WfShared *shared, int rank, int size);
void wf_meet(WfComm *c, const WfLaunchInfo *info); /* the ranks of one host share one memory afterwards */
/* Around the start of MPI, which itself waits for ever: options.hopeless is called when ranks of this host do not come. */
typedef struct WfStart WfStart;
WfStart *wf_start_begin(WfComm *c, const WfLaunchInfo *info);
void wf_start_end(WfStart *s);
/* The same by messages, where a transport carries them between hosts. The communication thread does not run yet. */
void wf_meet_by_message(WfComm *c);
void wf_take_cell(WfComm *c, int i); /* of `shared`, for this rank: it has come */
void wf_local_open(WfComm *c, const WfLaunchInfo *info);
void wf_mpi_open(WfComm *c, const WfLaunchInfo *info, void *host_comm);
struct WfMpiPlugin;
const struct WfMpiPlugin *wf_find_plugin(WfComm *c, const WfLaunchInfo *info, void *host_comm); /* raises */
void wf_own_program(char *out, size_t size); /* its path */
void wf_watch_join(WfComm *c); /* before the ranks of a host meet: this one can be watched over */
void wf_watch_start(WfComm *c);
void wf_watch_end(WfComm *c, bool failed);
void wf_engine_open(WfComm *c);  /* from then on collectives can be waited for */
void wf_engine_start(WfComm *c); /* and go on by themselves */
void wf_engine_close(WfComm *c);
WfGroup *wf_group_new(WfComm *c, const char *name, const int *ranks, int n);
/* Looks whether a rank of this host has died or stopped; records the failure. */
void wf_check_peers(WfComm *c);
void wf_raise_failure(WfComm *c) WF_NORETURN;
/* Fails the world because `f` has waited too long: names who is missing and where they are. */
void wf_fail_missing(WfComm *c, const WfFlying *f, double seconds);
void wf_bind_cores(WfComm *c);
void wf_unbind_cores(WfComm *c);
void wf_bind_text(const WfComm *c, WfStr *out);

/* ---- reducing kernels -------------------------------------------------------------------------------------------- */

/* Reduces count elements of n sources (rank order) and writes the result to each of the destinations, which may be the
 * sources themselves. `stream`: past the caches. Any alignment. */
typedef struct {
    WfDtype dtype;
    WfCommReduce op;
    double scale;
    bool scaled, stream;
} WfReduceHow;
typedef void (*WfReduceFn)(const WfReduceHow *how, const void *const *src, int n, size_t count, void *const *dst,
                           int n_dst);
void wf_sum_ranks(const WfReduceHow *how, const void *const *src, int n, size_t count, void *const *dst, int n_dst);
void wf_sum_ranks_v3(const WfReduceHow *how, const void *const *src, int n, size_t count, void *const *dst, int n_dst);
void wf_sum_ranks_v4(const WfReduceHow *how, const void *const *src, int n, size_t count, void *const *dst, int n_dst);
const char *wf_collective_name(WfCollective kind);

#endif
