/* base: what every room stands on, and nothing about graphs.
 *
 * Errors. Inside the library a failure is *raised*: wf_fail() records one diagnostic in the context and leaves
 * through the nearest wf_guard(), which returns the status. Everything the compiler allocates lives in arenas, and
 * other resources (descriptors, mappings, foreign handles) are registered with wf_defer(), so that leaving early
 * releases them. Code that must not leave early (worker threads, C callbacks) returns a status instead.
 * Whoever first decides that something is an error reports it; others only let it pass. */
#ifndef WF_BASE_H
#define WF_BASE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "weft.h" /* weft_status and its codes */

#define WF_NORETURN __attribute__((noreturn))
#define WF_PRINTF(f, a) __attribute__((format(printf, f, a)))
#define WF_LEN(a) (sizeof(a) / sizeof((a)[0]))

/* ---- the seam: every allocation, file and clock call of Weft goes through here --------------------------------- */

/* Test hook: makes the n-th call (1-based, counted from now) of a kind fail; 0 switches off. `sticky` makes all later
 * ones fail too. */
typedef enum { WF_SEAM_ALLOC, WF_SEAM_OPEN, WF_SEAM_READ, WF_SEAM_WRITE, WF_SEAM_SYNC, WF_SEAM_RENAME, WF_SEAM_MAP,
               WF_SEAM_KINDS } WfSeam;
void wf_seam_fail_at(WfSeam kind, int64_t n, bool sticky);
int64_t wf_seam_count(WfSeam kind); /* calls of that kind so far in this process */

void *wf_sys_alloc(size_t size);                 /* zeroed; NULL on failure */
void *wf_sys_realloc(void *p, size_t size);      /* not zeroed */
void wf_sys_free(void *p);
void *wf_sys_map(size_t size, bool huge);        /* private anonymous pages, zero; NULL on failure */
void wf_sys_unmap(void *p, size_t size);
void wf_sys_forget(const void *p, size_t size);  /* whole pages in a file mapping: may leave memory, come back when read */
double wf_now(void);                             /* monotonic seconds */
double wf_process_start(void);                   /* on the same clock: when this process was started by the kernel */

/* ---- arenas ---------------------------------------------------------------------------------------------------- */

typedef struct WfArena WfArena;
typedef struct WfCtx WfCtx;
WfArena *wf_arena_new(WfCtx *ctx);               /* raises WEFT_ERR_MEMORY, as every call below may */
/* Leaving early does not free an arena of wf_arena_new (its owner, or at the latest wf_ctx_free, does). A scratch
 * arena is also freed when the guard around its creation fails; freeing it by hand before that is fine. */
WfArena *wf_arena_scratch(WfCtx *ctx);
void wf_arena_free(WfArena *a);                  /* NULL is fine */
/* Calls release(p) when the arena is freed, last registered first. On failure releases p now and raises. */
void wf_arena_at_free(WfArena *a, void (*release)(void *), void *p);
WfCtx *wf_arena_ctx(const WfArena *a);
size_t wf_arena_bytes(const WfArena *a);         /* taken from the allocator so far */
void *wf_arena_alloc(WfArena *a, size_t size);   /* zeroed, 16-byte aligned */
void *wf_arena_grow(WfArena *a, void *old, size_t old_size, size_t new_size);
char *wf_arena_strdup(WfArena *a, const char *s);
char *wf_arena_strndup(WfArena *a, const char *s, size_t n);
char *wf_arena_printf(WfArena *a, const char *fmt, ...) WF_PRINTF(2, 3);
char *wf_arena_vprintf(WfArena *a, const char *fmt, va_list ap);
#define WF_NEW(arena, T) ((T *)wf_arena_alloc((arena), sizeof(T)))
#define WF_NEWN(arena, T, n) ((T *)wf_arena_alloc((arena), wf_mul_size((n), sizeof(T))))

/* Growable array in an arena: struct { T *at; int n, cap; }. WF_PUSH evaluates `item` once. */
#define WF_VEC(T) struct { T *at; int n, cap; }
#define WF_PUSH(arena, v, item)                                                                                       \
    do {                                                                                                              \
        if ((v)->n == (v)->cap)                                                                                       \
            (v)->at = wf_vec_grow((arena), (v)->at, &(v)->cap, sizeof(*(v)->at));                                     \
        (v)->at[(v)->n++] = (item);                                                                                   \
    } while (0)
void *wf_vec_grow(WfArena *a, void *at, int *cap, size_t item);

/* ---- checked arithmetic: sizes from files and graphs ----------------------------------------------------------- */

bool wf_add_ok(int64_t a, int64_t b, int64_t *out);      /* false on overflow */
bool wf_mul_ok(int64_t a, int64_t b, int64_t *out);
size_t wf_mul_size(size_t n, size_t size);               /* SIZE_MAX on overflow, which no allocation grants */

/* ---- context, diagnostics ------------------------------------------------------------------------------------- */

/* What can go wrong: one table of kinds (errors.list) with a stable code each (W0101, ...), a status and what `weft explain`
 * says. Where a kind is asked for, a weft_status stands for itself: a failure without a code, for tests and examples. */
enum {
#define WF_ERROR(kind, number, status, title, text) kind = number,
#include "base/errors.list"
#undef WF_ERROR
};
typedef struct {
    int kind;                /* 0 ends the table */
    weft_status status;
    const char *code, *title, *text;
} WfErrorKind;
extern const WfErrorKind wf_error_table[];       /* in the order of the codes */
const WfErrorKind *wf_error_find(int kind);      /* NULL for a status, and for what is no kind */

typedef struct {
    weft_status code;
    int kind;       /* one of the table, or the status */
    char *message;  /* one sentence: what, and what was expected */
    char *place;    /* "at %relu = ...   from net.py:31  x = ..." or "file: offset 12", may be NULL */
    char *hint;     /* what to do, may be NULL */
    bool told;      /* another process (the launcher, another rank) tells the user */
} WfDiag;

typedef enum { WF_LOG_ERROR, WF_LOG_WARN, WF_LOG_INFO, WF_LOG_DEBUG } WfLogLevel;
typedef void (*WfLogFn)(void *user, WfLogLevel level, const char *line);

struct WfCtx {
    WfArena *arena;            /* lives as long as the context */
    WfDiag diag;               /* the last failure */
    WfLogFn log;               /* NULL: silent */
    void *log_user;
    void (*progress)(void *user, const char *phase, int done, int of); /* of long work; of 0: not counted. NULL: silent */
    void *progress_user;
    struct WfGuard *guard;     /* innermost guard */
    volatile int *cancel;      /* set to non-zero (by a signal handler of the program) to stop long work; may be NULL */
    void *(*alloc)(void *user, size_t size); /* the embedder's allocator; NULL: the system's */
    void (*release)(void *user, void *p, size_t size);
    void *alloc_user;
    struct WfCtxOwn *own;      /* private to base: defer stack, arenas, spare text */
};
WfCtx *wf_ctx_new(void);       /* NULL when out of memory */
void wf_ctx_free(WfCtx *ctx);

/* Codes as words ("usage", "file", ...), as `--json` prints them. */
const char *wf_status_name(weft_status code);

/* Runs fn(arg); returns WEFT_OK, or the code of what it raised. Guards nest. Resources deferred inside a guard that
 * fails are released in reverse order; on success they pass to the outer guard (or stay until wf_ctx_free). */
weft_status wf_guard(WfCtx *ctx, void (*fn)(void *arg), void *arg);
typedef struct WfDefer WfDefer;
/* When there is no memory to register p, releases it at once and raises. */
WfDefer *wf_defer(WfCtx *ctx, void (*release)(void *), void *p);
void wf_defer_run(WfDefer *d);     /* releases now, once; NULL is fine */
void wf_defer_keep(WfDefer *d);    /* forgets it: somebody else owns the resource now */

/* Without a guard around it a failure cannot leave: it is logged and the process aborts (a bug of the caller).
 * The arguments may point into the present ctx->diag. */
void wf_fail(WfCtx *ctx, int kind, const char *fmt, ...) WF_NORETURN WF_PRINTF(3, 4);
/* With place and hint (either may be NULL; both are copied). */
void wf_fail_at(WfCtx *ctx, int kind, const char *place, const char *hint, const char *fmt, ...) WF_NORETURN
    WF_PRINTF(5, 6);
void wf_reraise(WfCtx *ctx, weft_status code) WF_NORETURN; /* after cleaning up behind a failed guard */
void wf_bug(WfCtx *ctx, const char *file, int line, const char *what) WF_NORETURN;
#define WF_ASSERT(ctx, cond) ((cond) ? (void)0 : wf_bug((ctx), __FILE__, __LINE__, #cond))
void wf_log(WfCtx *ctx, WfLogLevel level, const char *fmt, ...) WF_PRINTF(3, 4);
void wf_progress(WfCtx *ctx, const char *phase, int done, int of);
void wf_check_cancel(WfCtx *ctx);  /* raises WEFT_ERR_CANCELLED when *cancel is set */

/* ---- strings, maps -------------------------------------------------------------------------------------------- */

typedef struct { WfArena *arena; char *at; size_t n, cap; } WfStr;   /* always NUL-terminated once written */
void wf_str_putc(WfStr *s, char c);
void wf_str_puts(WfStr *s, const char *text);
void wf_str_putn(WfStr *s, const char *text, size_t n);
void wf_str_printf(WfStr *s, const char *fmt, ...) WF_PRINTF(2, 3);
void wf_str_vprintf(WfStr *s, const char *fmt, va_list ap);
void wf_str_float(WfStr *s, double v);  /* in any locale; shortest text that reads back to the same double; inf, -inf, nan */

/* Map from strings or from 64-bit keys to 64-bit values. Keys are copied; iteration is in order of insertion. */
typedef struct WfMap WfMap;
WfMap *wf_map_new(WfArena *a);
bool wf_map_get(const WfMap *m, const char *key, int64_t *out);      /* out may be NULL */
void wf_map_put(WfMap *m, const char *key, int64_t value);           /* replaces */
bool wf_map_get_bytes(const WfMap *m, const void *key, size_t n, int64_t *out);
void wf_map_put_bytes(WfMap *m, const void *key, size_t n, int64_t value);
int wf_map_count(const WfMap *m);
const void *wf_map_at(const WfMap *m, int i, size_t *n, int64_t *value); /* i-th in order of insertion */
const char *wf_nearest(const char *word, const char *const *words, int n); /* spelling help; NULL if none is near */

/* ---- dtypes --------------------------------------------------------------------------------------------------- */

typedef enum { WF_F32 = 1, WF_F64, WF_F16, WF_BF16, WF_I64, WF_I32, WF_I16, WF_I8, WF_U8, WF_BOOL, WF_DTYPES } WfDtype;
size_t wf_dtype_size(WfDtype t);
const char *wf_dtype_name(WfDtype t);            /* "f32", "i64", "bool", ... (the graph text's names) */
WfDtype wf_dtype_parse(const char *name);        /* 0 if unknown; also takes PyTorch's "float32", "int64", ... */
bool wf_dtype_is_float(WfDtype t);
bool wf_dtype_is_int(WfDtype t);                 /* signed or unsigned integers, not bool */
double wf_load_f64(WfDtype t, const void *p);    /* one element of dtype t as double (i64 above 2^53 rounds) */
int64_t wf_load_i64(WfDtype t, const void *p);   /* floats truncate; beyond int64 they saturate, nan gives 0 */
/* Floats: rounded once, to nearest even, overflow to infinity. Integers: truncated to int64, then wrapped. Bool: != 0. */
void wf_store_f64(WfDtype t, void *p, double v);
void wf_store_i64(WfDtype t, void *p, int64_t v); /* floats rounded once; integers wrap; bool: != 0 */

/* ---- files ---------------------------------------------------------------------------------------------------- */

typedef struct { const uint8_t *at; size_t size; char *path; } WfFile;  /* a file mapped read-only (or read whole) */
WfFile *wf_file_map(WfCtx *ctx, WfArena *a, const char *path);   /* raises WEFT_ERR_IO with path and reason */
/* A file that another file names: `name` is a plain file name in `folder` (raises WEFT_ERR_FILE otherwise, and for a link that
 * leads out of the folder, or what is no regular file). */
WfFile *wf_file_map_in(WfCtx *ctx, WfArena *a, const char *folder, const char *name);
/* A regular file that is read at any offset, from any thread, without a mapping: what was read is no memory of this process,
 * and a file that changes meanwhile is an error. Small ones are read whole when they are opened. Lives as long as the
 * arena. Raises WEFT_ERR_IO: no such file, no regular file, not readable. */
typedef struct WfBytes WfBytes;
enum { WF_BYTES_CHANGED = -1 };
WfBytes *wf_bytes_open(WfCtx *ctx, WfArena *a, const char *path);
int64_t wf_bytes_size(const WfBytes *b);
const char *wf_bytes_path(const WfBytes *b);
/* n bytes at the offset to p. Raises nothing: 0, an errno, or WF_BYTES_CHANGED; wf_bytes_error says it in words. */
int wf_bytes_read(const WfBytes *b, int64_t offset, void *p, size_t n);
const char *wf_bytes_error(int error);
/* A regular file of at most `most` bytes, whole, on any thread; the caller frees it (wf_sys_free). NULL and *error. */
uint8_t *wf_bytes_load(const char *path, size_t most, size_t *n, int *error);
/* All of it at once, for a parser of headers; mapped as long as `a` lives where it is not in memory. */
WfFile *wf_bytes_view(WfCtx *ctx, WfArena *a, const WfBytes *b);
/* Atomic writing: a temporary name beside `path`, synced, renamed by commit. Leaving early removes the temporary. */
typedef struct WfOut WfOut;
WfOut *wf_out_open(WfCtx *ctx, const char *path);
void wf_out_write(WfOut *o, const void *p, size_t n);
void wf_out_commit(WfOut *o);                    /* fsync, rename, fsync of the folder */
void wf_write_file(WfCtx *ctx, const char *path, const void *p, size_t n);
void wf_mkdirs(WfCtx *ctx, const char *path);    /* like mkdir -p */
void wf_rename(WfCtx *ctx, const char *from, const char *to);    /* a file or folder; the new name is durable */
void wf_sync_folder(WfCtx *ctx, const char *path);               /* makes the names in it durable */
/* Removes the temporaries that killed writers of `path` left beside it. For files that nobody else writes now. */
void wf_remove_unfinished(const char *path);
bool wf_remove_folder(const char *path);         /* with the files in it, no folders; false when something is left */
bool wf_file_exists(const char *path);
bool wf_is_folder(const char *path);

/* ---- formats -------------------------------------------------------------------------------------------------- */

/* ZIP archives, untrusted: entries are looked up through the central directory, sizes and offsets checked against the
 * file, duplicate and absolute names refused. Stored entries are read in place; deflated ones are refused, or listed with
 * WF_ZIP_DEFLATED. WF_ZIP_CHECK compares the checksums of the stored ones. */
typedef struct {
    const char *name;
    const uint8_t *at;       /* the content; of a deflated entry its `packed` bytes */
    size_t size, packed;     /* packed 0: stored */
    uint32_t crc;
} WfZipEntry;
typedef struct { WfZipEntry *at; int n; } WfZip;
enum { WF_ZIP_CHECK = 1, WF_ZIP_DEFLATED = 2 };
void wf_zip_need_stored(WfCtx *ctx, const WfZip *z, const char *path); /* raises what WF_ZIP_DEFLATED had let pass */
WfZip *wf_zip_open(WfCtx *ctx, WfArena *a, const WfFile *f, unsigned how);
/* The first n bytes of an entry's content, at most its size, to `out`. All of it: the checksum is compared. `what` names the
 * archive in errors. */
void wf_zip_read(WfCtx *ctx, const WfZipEntry *e, const char *what, void *out, size_t n);
const WfZipEntry *wf_zip_find(const WfZip *z, const char *name);    /* NULL if absent */
/* Writes stored entries, each payload 64-byte aligned, times zeroed: same input, same bytes. */
void wf_zip_write(WfCtx *ctx, const char *path, const WfZipEntry *entries, int n);
/* Writes the archive `f`, which wf_zip_open took, with other contents for some entries: each names an entry of f and has its
 * size. All other bytes stay as they are, checksums excepted. `path` may be f's own. */
void wf_zip_replace(WfCtx *ctx, const char *path, const WfFile *f, const WfZipEntry *entries, int n);

/* JSON (jansson behind a thin face that raises). Numbers keep 64-bit integers exact. */
typedef struct json_t WfJson;
WfJson *wf_json_parse(WfCtx *ctx, const char *text, size_t n, const char *what); /* released with the guard */
/* The same, with the handle that releases the value early: a tree takes ten times its text. */
WfJson *wf_json_load(WfCtx *ctx, const char *text, size_t n, const char *what, WfDefer **defer);
/* YAML as the same kind of tree, released with the guard: plain scalars as in YAML 1.2's core schema, no text at all is null.
 * Raises WEFT_ERR_FILE with line and column, also for anchors, aliases, tags, keys twice, a second document, depth above 32. */
WfJson *wf_yaml_parse(WfCtx *ctx, const char *text, size_t n, const char *what);
bool wf_yaml_quote(const char *text, WfStr *out); /* as double-quoted YAML; false: it is no UTF-8 */

/* safetensors: one file of named tensors. Header checked: sizes, overlaps, dtype. Tensors lie in the file, or in a copy where it
 * does not align them; _index leaves those where they are, too. */
typedef struct { const char *name; WfDtype dtype; int rank; int64_t shape[8]; const void *data; size_t bytes; } WfTensor;
typedef struct { WfTensor *at; int n; WfMap *by_name; char *path; } WfTensors;
WfTensors *wf_safetensors_open(WfCtx *ctx, WfArena *a, const char *path);
WfTensors *wf_safetensors_index(WfCtx *ctx, WfArena *a, const uint8_t *p, size_t n, const char *what);
WfTensors *wf_safetensors_parse(WfCtx *ctx, WfArena *a, const uint8_t *p, size_t n, const char *what);
const WfTensor *wf_tensors_find(const WfTensors *t, const char *name);
void wf_safetensors_write(WfCtx *ctx, const char *path, const WfTensor *t, int n); /* tensors sorted by name */
/* What stands in front of the one tensor t's bytes in its file, which follow it: for writing it piece by piece. */
void wf_safetensors_head(WfCtx *ctx, const WfTensor *t, WfStr *out);
const uint8_t *wf_safetensors_bytes(WfCtx *ctx, WfArena *a, const WfTensor *t, int n, size_t *size); /* the same bytes */
/* MNIST's IDX format, plain or gzip-compressed. One tensor named "". */
WfTensor *wf_idx_open(WfCtx *ctx, WfArena *a, const char *path);
WfTensor *wf_idx_parse(WfCtx *ctx, WfArena *a, const uint8_t *p, size_t n, const char *what);

/* ---- small matrices: row-major, double; what is read is written over ------------------------------------------------ */

/* x = a^-1, log |det a| and its sign; a[n, n]. A singular a has an x that is not finite, log_det -inf and sign 0. */
void wf_matrix_inverse(int64_t n, double *a, double *x, double *log_det, double *sign);
/* The lower factor in a's place, from its lower half; NaN from where on a is not positive definite. */
void wf_matrix_cholesky(int64_t n, double *a);
/* Eigenvalues[n], ascending, and eigenvectors, the columns of x[n, n], of a symmetric a. */
void wf_matrix_eigh(int64_t n, double *a, double *values, double *x);
/* a[m, n] = q[m, k] r[k, n], k the smaller of m and n; signs as LAPACK's geqrf. */
void wf_matrix_qr(int64_t m, int64_t n, double *a, double *q, double *r);
enum { WF_MATRIX_INVERSE, WF_MATRIX_CHOLESKY, WF_MATRIX_EIGH, WF_MATRIX_QR };
/* One of these, of a[m, n] (m = n but for QR): results in the order in which the functions above name them. */
void wf_matrix(int what, int64_t m, int64_t n, double *a, double *const *results);

/* Minus the logarithm of the probability that `frames` steps spell `count` labels (each in 0..classes - 1); logp of step t
 * and class c lies at t * stride + c. grad, laid out alike: exp(logp) - (share of the paths through (t, c)), which is the
 * gradient at what log_softmax was taken of, and PyTorch's; NaN where no path spells the labels (inf). `work` has
 * wf_ctc_work numbers. */
double wf_ctc(int64_t frames, int64_t classes, int64_t stride, const double *logp, int64_t count, const int64_t *labels,
              int64_t blank, double *grad, double *work);
size_t wf_ctc_work(int64_t frames, int64_t classes, int64_t count);

/* ---- hashes --------------------------------------------------------------------------------------------------- */

typedef struct WfSha WfSha;
WfSha *wf_sha_new(WfCtx *ctx, WfArena *a);
void wf_sha_add(WfSha *h, const void *p, size_t n);
void wf_sha_hex(WfSha *h, char out[65]);         /* finishes */
uint64_t wf_hash64(const void *p, size_t n, uint64_t seed); /* xxh3 */

/* ---- environment variables: one table, printed by `weft env` --------------------------------------------------- */

typedef struct { const char *name, *meaning, *fallback; } WfEnvVar;
extern const WfEnvVar wf_env_table[];            /* ends with a NULL name */
const char *wf_env(const char *name);            /* NULL if unset; the name must be in the table */

/* ---- offsets: places buffers with lifetimes in one slab ---------------------------------------------------------- */

typedef struct { int64_t size; int first, last; int64_t offset; } WfPackItem;   /* live in steps first..last inclusive */
/* Sets every item's offset (multiples of `align`), returns the slab size. Deterministic. O(n^2) worst case. */
int64_t wf_pack(WfArena *a, WfPackItem *items, int n, int64_t align);

/* ---- threads --------------------------------------------------------------------------------------------------- */

/* A team of n members; the caller of wf_team_run is member 0, and has its own floating-point mode back afterwards (in a run
 * it is: round to nearest, denormals kept). `mode` (may be NULL) is called on a member before its first run, on the caller
 * around every run: it makes its argument the number of threads that libraries may use for this one, and returns what it was.
 * One run at a time. */
typedef struct WfTeam WfTeam;
typedef int (*WfThreadMode)(int threads);
typedef void (*WfTeamFn)(void *arg, int thread, int n);
WfTeam *wf_team_new(WfCtx *ctx, int n, WfThreadMode mode);
/* A team whose members are the host program's own threads (NULL: threads of its own): `run` calls body(data) on n of them, with
 * the caller as number 0, `index` and `count` say which of how many. When there are fewer, the caller does it alone. */
typedef struct {
    void (*run)(int n, void (*body)(void *), void *data);
    int (*index)(void), (*count)(void);
} WfHostThreads;
WfTeam *wf_team_of_host(WfCtx *ctx, int n, WfThreadMode mode, const WfHostThreads *host);
void wf_team_run(WfTeam *t, WfTeamFn fn, void *arg);  /* returns when all members have returned from fn */
void wf_team_alone(WfTeam *t, WfTeamFn fn, void *arg); /* by the caller only, as the single member */
void wf_team_barrier(WfTeam *t);                      /* inside a run: until every member is here */
void wf_team_free(WfTeam *t);                         /* NULL is fine */

/* ---- what ranks do together: compiled by the one half of Weft, done by the other ------------------------------------ */

typedef enum { WF_ALL_REDUCE, WF_ALL_GATHER, WF_REDUCE_SCATTER, WF_ALL_TO_ALL, WF_BROADCAST, WF_BARRIER,
               WF_COLLECTIVES } WfCollective;
typedef enum { WF_COMM_SUM, WF_COMM_MEAN, WF_COMM_MIN, WF_COMM_MAX, WF_COMM_REDUCTIONS } WfCommReduce;

/* A named group of ranks: --group NAME=0,1/2,3 (ranges too: 0-1/2-3). Every set of ranks is a group of its own; a
 * collective of the name is one of each set, since all ranks run one program. */
typedef struct {
    const char *name;
    int n_sets, size;    /* sets, ranks in each */
    int *ranks;          /* n_sets * size, ascending in each set */
} WfRankGroup;
/* Reads the text of --group for a world of that many ranks. Raises WEFT_ERR_USAGE: no such text, a name that has a
 * meaning already, sets of different sizes, a rank that is in no set, in two, or not of the world. */
WfRankGroup wf_rank_group(WfCtx *ctx, WfArena *a, const char *text, int64_t world);
void wf_rank_group_text(const WfRankGroup *g, WfStr *out);     /* as --group takes it */

/* ---- the machine ------------------------------------------------------------------------------------------------- */

typedef enum { WF_LINK_LOCAL, WF_LINK_MPI, WF_LINKS } WfLinkKind;
/* Seconds of a bucket beyond its bytes, by itself and behind another that is under way; bytes per second of large ones. */
typedef struct { double latency, next, rate; } WfLink;
typedef struct {
    double flops, bytes;     /* of one core, per second: multiplications and additions in products; memory traffic */
    WfLink link[WF_LINKS];
    bool measured;
} WfMachine;
void wf_machine_default(WfMachine *m);
/* From dir/machine.json; the defaults where it is missing (dir may be NULL) or, with a warning, cannot be read. */
void wf_machine_load(WfCtx *ctx, WfArena *a, const char *dir, WfMachine *m);
void wf_machine_save(WfCtx *ctx, WfArena *a, const char *dir, const WfMachine *m);
/* Bytes of memory that this process may still take: what the system says (MemAvailable) or the tightest control group above
 * it leaves, v2 or v1, shared by `sharing` processes that ask at the same time; WEFT_MEMORY takes its place (rank, and step
 * from 0, choose the entry). Raises WEFT_ERR_USAGE when that variable is no list of sizes. */
int64_t wf_memory_available(WfCtx *ctx, int sharing, int rank, int64_t step);
/* The size in an environment variable, as 64M; `otherwise` where it is not set. Raises WEFT_ERR_USAGE for what is none. */
int64_t wf_env_size(WfCtx *ctx, const char *name, int64_t otherwise);

/* The core whose memory a step is placed in: -1 for "cpu" (or NULL), N for "core:N". Raises WEFT_ERR_USAGE for other text. */
int wf_device_core(WfCtx *ctx, const char *text);

/* ---- options: one table for the command line, weft_set, the help text and the key of an executable ---------------- */

typedef enum { WF_LOSS_NONE, WF_LOSS_CROSS_ENTROPY, WF_LOSS_NLL, WF_LOSS_MSE, WF_LOSS_L1, WF_LOSS_SMOOTH_L1,
               WF_LOSS_HUBER, WF_LOSS_BCE, WF_LOSS_BCE_WITH_LOGITS, WF_LOSS_KL_DIV } WfLoss;
typedef enum { WF_REDUCE_MEAN, WF_REDUCE_SUM, WF_REDUCE_BATCHMEAN } WfReduction;
typedef enum { WF_OPTIM_SGD, WF_OPTIM_ADAM, WF_OPTIM_ADAMW, WF_OPTIM_RMSPROP, WF_OPTIM_ADAGRAD } WfOptim;
typedef enum { WF_SCHEDULE_CONSTANT, WF_SCHEDULE_LINEAR, WF_SCHEDULE_COSINE, WF_SCHEDULE_STEP,
               WF_SCHEDULE_ONE_CYCLE } WfSchedule;
typedef enum { WF_GRADS_MEAN, WF_GRADS_SUM } WfGradReduce;
typedef enum { WF_NORM_MEAN, WF_NORM_TOKENS } WfLossNorm;
typedef enum { WF_LAST_DROP, WF_LAST_PAD, WF_LAST_SHORT } WfLastBatch;
typedef enum { WF_BUFFERS_RANK0, WF_BUFFERS_MEAN, WF_BUFFERS_NONE, WF_BUFFERS_SYNC } WfBuffers;
typedef enum { WF_UPDATE_LATE, WF_UPDATE_EARLY } WfUpdate;
typedef enum { WF_HALVES_NONE, WF_HALVES_BOTH, WF_HALVES_FORWARD, WF_HALVES_BACKWARD } WfHalves;
typedef enum { WF_ISA_AUTO, WF_ISA_V3, WF_ISA_V4, WF_ISA_V3_V4, WF_ISA_AMX } WfIsa;
typedef enum { WF_DETERMINISTIC_FIXED, WF_DETERMINISTIC_ELASTIC } WfDeterministic;
typedef enum { WF_FROM_DEFAULT, WF_FROM_ENV, WF_FROM_FILE, WF_FROM_FLAG } WfOrigin;

/* What an optimiser applies to one parameter, with PyTorch's meanings. */
typedef struct {
    double lr, beta1, beta2, eps, weight_decay, momentum, dampening, alpha, lr_decay, initial_accumulator;
    bool nesterov, amsgrad, maximize, centered;
} WfHyper;

/* --param-group PATTERN:key=value,...: other hyperparameters for the parameters whose name the glob matches. */
typedef struct WfParamGroup WfParamGroup;
typedef WF_VEC(char *) WfStrings;

enum { WF_OPTION_ROWS = 128 };
typedef struct {
    WfArena *arena;                   /* owns the strings */
    unsigned char origin[WF_OPTION_ROWS]; /* WfOrigin of each row of the table */
    /* model */
    WfLoss loss;
    WfReduction reduction;
    char *target, *loss_weights, *pos_weight, *weights, *optimizer_state; /* NULL: not given */
    double label_smoothing, beta, delta;
    int64_t ignore_index, predictions; /* predictions: output leaf, -1: chosen by the compiler */
    bool log_target, soft_target, accept_lost_stopgrad, strict;
    /* optimiser */
    WfOptim optimizer;
    WfHyper hyper;
    WF_VEC(WfParamGroup) groups;
    WfSchedule schedule;
    int64_t warmup_steps, step_size, total_steps; /* 0: not given */
    double min_lr, gamma, max_lr, pct_start;      /* max_lr 0: lr */
    double clip_norm, clip_value;     /* 0: off */
    WfUpdate update;
    /* run */
    int64_t steps, epochs, batch_size, threads;   /* 0: not given; batch_size 0: the export's, threads 0: all cores */
    int64_t seed, nproc, log_every;
    int64_t accumulate;               /* micro-batches in a step */
    char *micro_batch;                /* rows of one, or "auto"; NULL: not given */
    bool check_finite;
    WfDeterministic deterministic;
    WfLossNorm loss_norm;
    /* ranks */
    WfGradReduce grad_reduce;
    WfBuffers buffers;
    double bucket_mb;                 /* -1: the planner chooses, 0: no buckets */
    bool overlap, init_sync;
    int64_t check_replicas;           /* steps; 0: never */
    WfStrings rank_groups;            /* texts for wf_rank_group */
    char *device;                     /* text for wf_device_core */
    /* data */
    WfStrings data, eval_data;        /* FILE or NAME[,NAME]=FILE */
    char *recipe;                     /* NULL: not given */
    bool shuffle;
    WfLastBatch last_batch;
    /* sampling */
    char *prompt;
    int64_t sample, top_k;            /* bytes; 0: none. 0: all */
    double temperature;
    /* output */
    char *out, *resume, *metrics, *best_metric;   /* NULL: not given */
    int64_t early_stop;               /* evaluations; 0: never */
    int64_t checkpoint_every;         /* steps; 0: never */
    int64_t keep_checkpoints;
    bool json, no_weights, save_optimizer, tensorboard, dry_run, print_config;
    char *config;
    /* compile */
    WfIsa isa;
    bool cache;
    char *cache_dir, *dump_dir, *after, *run;
    WfHalves halves;
    bool eval, micro, forward_only, machine_bench, reduce;
    /* not of the table: what is known of the machine and of the link between the ranks */
    WfMachine machine;
    WfLinkKind link;
} WfOptions;

struct WfParamGroup {
    char *pattern;       /* fnmatch glob on parameter names */
    char *text;          /* "key=value,...", as given */
    WfHyper hyper;       /* meaningful where `set` says so */
    unsigned set;        /* bit i: the i-th hyperparameter row of the table is given */
};

typedef enum { WF_OPTION_BOOL, WF_OPTION_INT, WF_OPTION_FLOAT, WF_OPTION_FLOATS, WF_OPTION_STRING, WF_OPTION_STRINGS,
               WF_OPTION_ENUM, WF_OPTION_GROUPS } WfOptionKind; /* FLOATS: two numbers */
/* What belongs together in the help, and is taken by the same verbs. SCHEDULE and LOOP: what the loop of weft train does; HOST: what only
 * a program that holds the library asks for. */
typedef enum { WF_GROUP_MODEL, WF_GROUP_OPTIMISER, WF_GROUP_SCHEDULE, WF_GROUP_RUN, WF_GROUP_LOOP, WF_GROUP_DATA, WF_GROUP_SAMPLE,
               WF_GROUP_OUTPUT, WF_GROUP_JSON, WF_GROUP_COMPILE, WF_GROUP_CACHE, WF_GROUP_STEP, WF_GROUP_GRAPH, WF_GROUP_FORM,
               WF_GROUP_PASS, WF_GROUP_BENCH, WF_GROUP_HOST, WF_GROUPS } WfOptionGroup;
typedef struct {
    const char *name;
    WfOptionKind kind;
    WfOptionGroup group;
    bool plan;              /* changes the compiled step; a compiled step refuses other values */
    size_t offset;          /* of the field in WfOptions */
    const char *fallback;   /* default as text; a word where a number is expected stands for "not given" (0) */
    const char *choices;    /* enums: "a|b|c" in order of the C enum; otherwise how the help names the value */
    double lo, hi;          /* range of numbers; `open` bit 0: lo is excluded, bit 1: hi is */
    unsigned open;
    const char *help;
} WfOptionRow;
extern const WfOptionRow wf_option_table[];   /* ends with a NULL name */

void wf_options_init(WfCtx *ctx, WfArena *a, WfOptions *o);    /* every value its default */
/* Raises WEFT_ERR_USAGE: unknown name (with the nearest one), text that is no value, value out of range. Setting
 * `optimizer` moves the hyperparameters that nobody set to that optimiser's defaults. "no-NAME" sets a bool to its
 * contrary. Repeatable options append. */
void wf_options_set(WfCtx *ctx, WfOptions *o, const char *name, const char *value);
void wf_options_set_from(WfCtx *ctx, WfOptions *o, const char *name, const char *value, WfOrigin origin);
/* Takes what environment variables stand for options: WEFT_THREADS, WEFT_ISA, WEFT_DUMP_DIR. Raises WEFT_ERR_USAGE. */
void wf_options_env(WfCtx *ctx, WfOptions *o);
/* The file of --config: options by their names, and `model`, which is added to `words`. Raises WEFT_ERR_IO, _FILE, _USAGE with
 * the file's name. */
void wf_options_load(WfCtx *ctx, WfOptions *o, const char *path, WfStrings *words);
void wf_options_read(WfCtx *ctx, WfOptions *o, const char *text, size_t n, const char *path, WfStrings *words); /* its text */
/* A file that --config takes: what was chosen, with its origin; defaults as comments. */
void wf_options_print(WfCtx *ctx, const WfOptions *o, unsigned groups, const WfStrings *words, WfStr *out);
/* Rules between options, after all are set: a hyperparameter that the optimiser has not, steps and epochs, ... */
void wf_options_check(WfCtx *ctx, const WfOptions *o);
/* For a program that divides steps into micro-batches itself: under elastic, micro-batch N of batch-size B is accumulate B / N of
 * batch-size N. After wf_options_check. */
void wf_options_settle(WfOptions *o);
/* Reads --name value, --name=value, --flag, --no-flag, -o FILE; `--` ends options. What the file of --config says is overruled
 * by flags; a repeatable option's flags replace all of the file's. Fills `words` with what is left, in order. `--help` and `-h` are left in `words`. */
void wf_options_parse(WfCtx *ctx, WfOptions *o, int argc, char *const *argv, WfStrings *words);
const WfOptionRow *wf_option_find(const char *name);           /* NULL if unknown */
WfOrigin wf_option_origin(const WfOptions *o, const char *name);
const char *wf_origin_name(WfOrigin origin);
const char *wf_option_group_title(WfOptionGroup group);
void wf_option_text(const WfOptions *o, const WfOptionRow *row, WfStr *out); /* the value, as text that sets it again */
/* --micro-batch: its rows, 0 for auto, -1 when not given; and whether the number of micro-batches in a step is therefore left
 * to run time. */
int64_t wf_options_micro(const WfOptions *o);
bool wf_options_any_micro(const WfOptions *o);
void wf_options_key(const WfOptions *o, WfStr *out);           /* all plan-shaping values, canonical, one a line */
const char *wf_option_argument(const WfOptionRow *row);         /* how its value is named behind it */
void wf_option_meaning(const WfOptionRow *row, WfStr *out);      /* its help in one sentence, with choices and default */
void wf_options_help(WfStr *out, unsigned groups);             /* option lines of the groups in the bit mask */
WfHyper wf_options_hyper(const WfOptions *o, const char *parameter); /* of the first matching group, or the general ones */

/* ---- integer expressions: symbolic dimensions and index arithmetic ----------------------------------------------- */

/* A value >= 0 is that literal; a value < 0 is -(1 + id) of an expression in a WfExprs table (negative constants are
 * expressions too: -1 to -128 are their own handles, wf_econst makes the others). Every expression is kept in
 * canonical form, a sum of products with integer coefficients over atoms (symbols, floor divisions, remainders,
 * minima, maxima), and each form exists once: equal polynomials are equal WfDim values. Simplification uses the
 * symbols' ranges, so a result is equal to what was asked for under every assignment within the ranges for which that
 * has a value (no division by zero in it). A coefficient that leaves int64, a form of more than 4096 terms, and
 * division by the constant 0 raise WEFT_ERR_UNSUPPORTED. */
typedef int64_t WfDim;
typedef struct WfExprs WfExprs;
WfExprs *wf_exprs_new(WfCtx *ctx, WfArena *a);   /* lives as long as the arena */

/* The symbol of that name, lo <= symbol <= hi (INT64_MIN, INT64_MAX: unbounded). Names are identifiers, also with dots
 * inside; not "min" or "max". Asking for a name again gives the same symbol; with another range it raises
 * WEFT_ERR_USAGE, since canonical forms already depend on the first one. */
WfDim wf_sym(WfExprs *e, const char *name, int64_t lo, int64_t hi);
/* A loop variable: 0 <= symbol < below, where below may depend on earlier symbols. */
WfDim wf_sym_bounded(WfExprs *e, const char *name, WfDim below);
bool wf_sym_find(const WfExprs *e, const char *name, WfDim *out);
int wf_esym_count(const WfExprs *e);             /* ids are 0 .. count-1, in order of creation */
WfDim wf_esym_at(const WfExprs *e, int id);
int wf_esym_id(const WfExprs *e, WfDim d);       /* -1 if d is not a plain symbol */
const char *wf_esym_name(const WfExprs *e, int id);
void wf_esym_range(const WfExprs *e, int id, int64_t *lo, int64_t *hi);
/* A usual value of the symbol, for defaults only: nothing is proved from it. 0: none is known. */
void wf_esym_set_hint(WfExprs *e, int id, int64_t value);
int64_t wf_esym_hint(const WfExprs *e, int id);
bool wf_esym_below(const WfExprs *e, int id, WfDim *below); /* false for symbols made by wf_sym */

WfDim wf_econst(WfExprs *e, int64_t v);
WfDim wf_eadd(WfExprs *e, WfDim a, WfDim b);
WfDim wf_esub(WfExprs *e, WfDim a, WfDim b);
WfDim wf_emul(WfExprs *e, WfDim a, WfDim b);
WfDim wf_efloordiv(WfExprs *e, WfDim a, WfDim b); /* as Python's //: towards minus infinity */
WfDim wf_emod(WfExprs *e, WfDim a, WfDim b);      /* as Python's %: the sign of b */
WfDim wf_emin(WfExprs *e, WfDim a, WfDim b);
WfDim wf_emax(WfExprs *e, WfDim a, WfDim b);

bool wf_elit(const WfExprs *e, WfDim d, int64_t *v); /* is it a constant, and which; v may be NULL */
/* Bounds by interval arithmetic (INT64_MIN / INT64_MAX where there is none); true if both are known. */
bool wf_erange(const WfExprs *e, WfDim d, int64_t *lo, int64_t *hi);
/* True when proved for every assignment within the ranges; false means "not proved". */
bool wf_eprove_ge0(WfExprs *e, WfDim d);
bool wf_eprove_lt(WfExprs *e, WfDim a, WfDim b);
bool wf_eprove_le(WfExprs *e, WfDim a, WfDim b);
/* Does the text of d hold the symbol (bounds of loop variables do not count)? `sym` must be a plain symbol. */
bool wf_edepends(const WfExprs *e, WfDim d, WfDim sym);
/* d with `with` for `sym`, simplified; the second form replaces n symbols at once, as if in parallel. `with` must
 * respect the range of the symbol, since simplifications made so far rest on it. */
WfDim wf_esubst(WfExprs *e, WfDim d, WfDim sym, WfDim with);
WfDim wf_esubst_all(WfExprs *e, WfDim d, int n, const WfDim *syms, const WfDim *withs);
/* d = coef * sym + rest with neither depending on sym; false when sym occurs inside an atom or in a higher power. */
bool wf_elinear(WfExprs *e, WfDim d, WfDim sym, WfDim *coef, WfDim *rest);
/* The value for one assignment (indexed by symbol id; symbols that d does not hold are not read). False on division
 * by zero and when a step leaves int64. */
bool wf_eeval(const WfExprs *e, WfDim d, const int64_t *values, int64_t *out);

/* Infix text, the same for equal expressions of different tables: 8*s0+1, (s0//2), (s0%4), min(a,b). wf_eparse reads
 * it (and Python's usual precedence, with blanks) back to the identical WfDim; *end, if not NULL, is set behind the
 * expression. What is no expression, or names an unknown symbol, raises WEFT_ERR_FILE. */
void wf_eprint(const WfExprs *e, WfDim d, WfStr *out);
WfDim wf_eparse(WfExprs *e, const char *text, const char **end);
/* C text over int64_t; `name` gives the C name of a symbol (NULL: its own). Divisions that are provably of
 * non-negative by positive are plain / and %; others, min and max call the functions of wf_expr_c_prelude. */
typedef const char *(*WfSymName)(void *user, int id);
void wf_eprint_c(WfExprs *e, WfDim d, WfStr *out, WfSymName name, void *user);
extern const char wf_expr_c_prelude[];           /* static inline wf_floordiv, wf_mod, wf_min, wf_max; no includes */

#endif
