/* weft.h: train a PyTorch model inside your own program.
 *
 * A *program* is a training step: an exported model (.pt2), a compiled step (.weft), or a graph built node by node.
 * A *session* runs it: it owns the weights, the optimiser state and one slab of planned memory, and allocates nothing
 * while it steps.
 *
 *     weft_context *ctx = weft_context_new(NULL);
 *     weft_program *program;  weft_session *session;  double loss;
 *     weft_open(ctx, "model.pt2", &program);
 *     weft_set(program, "optimizer", "adamw");  weft_set(program, "lr", "3e-4");
 *     weft_session_new(program, &session);
 *     weft_feed(session, "x", &(weft_tensor){WEFT_F32, 2, {128, 784}, x});
 *     weft_feed(session, "y", &(weft_tensor){WEFT_I64, 1, {128}, y});
 *     weft_step(session, &loss);
 *
 * Every call that can fail returns a weft_status; weft_message(), weft_place() and weft_hint() then say what happened,
 * where, and what to do (a NULL handle is WEFT_ERR_USAGE, with nobody to say it). The library keeps no global state, installs no signal handler, prints nothing and never
 * exits. Different contexts may be used from different threads at the same time; one context, with all its programs
 * and sessions, by one thread at a time. All sizes are in elements unless a name says bytes; all times in seconds. */
#ifndef WEFT_H
#define WEFT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define WEFT_API __attribute__((visibility("default")))
#else
#define WEFT_API
#endif

#define WEFT_VERSION_MAJOR 0
#define WEFT_VERSION_MINOR 1
#define WEFT_VERSION_PATCH 0

typedef enum {
    WEFT_OK = 0,
    WEFT_ERR_USAGE = 1,        /* an option or argument is wrong */
    WEFT_ERR_FILE = 2,         /* a file is damaged or not what it should be */
    WEFT_ERR_UNSUPPORTED = 3,  /* the model uses something that Weft cannot compile */
    WEFT_ERR_DATA = 4,         /* a batch has a wrong name, shape, dtype or value */
    WEFT_ERR_IO = 5,           /* the operating system refused: missing file, full disk, permission */
    WEFT_ERR_MEMORY = 6,       /* out of memory */
    WEFT_ERR_ENVIRONMENT = 7,  /* the machine lacks something: compiler, instruction set, library */
    WEFT_ERR_NUMERIC = 8,      /* a value that must be finite is not */
    WEFT_ERR_CANCELLED = 9,    /* stopped on request */
    WEFT_ERR_MISMATCH = 10,    /* results differ from the recorded ones */
    WEFT_ERR_INTERNAL = 11,    /* a bug of Weft; the message says what to report */
    WEFT_ERR_RANK = 12         /* another rank ended, does not answer, or does something else */
} weft_status;

typedef enum { WEFT_F32 = 1, WEFT_F64, WEFT_F16, WEFT_BF16, WEFT_I64, WEFT_I32, WEFT_I16, WEFT_I8, WEFT_U8,
               WEFT_BOOL } weft_dtype;

typedef struct weft_context weft_context;
typedef struct weft_program weft_program;
typedef struct weft_session weft_session;

/* A dense row-major tensor in somebody's memory. */
typedef struct {
    weft_dtype dtype;
    int rank;
    int64_t shape[8];
    void *data;
} weft_tensor;

/* Where the library gets its long-lived memory; `release` is given the size of `alloc`. NULL members: the system's. */
typedef struct {
    void *(*alloc)(void *user, size_t bytes);
    void (*release)(void *user, void *p, size_t bytes);
    void *user;
} weft_allocator;

/* ---- context ---- */

WEFT_API const char *weft_version(void);
/* allocator may be NULL; it is copied. NULL when out of memory. */
WEFT_API weft_context *weft_context_new(const weft_allocator *allocator);
/* Frees the context and every program and session made with it. */
WEFT_API void weft_context_free(weft_context *ctx);
/* The last failure of this context, "" if there was none. Valid until the next call with this context. */
WEFT_API const char *weft_message(const weft_context *ctx);
WEFT_API const char *weft_place(const weft_context *ctx);
WEFT_API const char *weft_hint(const weft_context *ctx);
/* The stable code of the last failure's kind, such as "W0254" (`weft explain W0254` says more); "" if there was none. */
WEFT_API const char *weft_code(const weft_context *ctx);
WEFT_API const char *weft_status_name(weft_status status);
/* Receives progress and warnings, one line each, without a newline. NULL (the start value): silence. */
WEFT_API void weft_on_log(weft_context *ctx, void (*fn)(void *user, int level, const char *line), void *user);
/* A flag that the caller may set from anywhere (a signal handler, another thread) to end long work early. */
WEFT_API void weft_cancel_flag(weft_context *ctx, volatile int *flag);

/* ---- programs ---- */

/* Opens a .pt2 export or a compiled .weft step (told apart by content). libweft-run opens only the latter. */
WEFT_API weft_status weft_open(weft_context *ctx, const char *path, weft_program **out);
/* Sets one option by its command-line name without dashes ("lr", "loss", "clip-norm", ...), before the first session
 * of the program. A compiled step accepts only options that do not change its plan (lr, seed, threads, ...). "lr" may
 * also be set between steps, for all sessions of the program: the caller's loop may follow a schedule of its own so. With option
 * `schedule` (and total-steps, warmup-steps, ..) every step sets it. Options of weft train's own loop (data, epochs, ...) are
 * refused. */
WEFT_API weft_status weft_set(weft_program *program, const char *option, const char *value);
/* Compiles now (weft_session_new does it otherwise) and writes the step to a file that libweft-run trains. */
WEFT_API weft_status weft_compile(weft_program *program);
WEFT_API weft_status weft_save_compiled(weft_program *program, const char *path);
WEFT_API void weft_program_free(weft_program *program);
/* What `weft plan` prints: memory, largest buffers, time line, micro-batches. Compiles the program if that has not happened. The
 * text is the program's, valid until its next text. */
WEFT_API weft_status weft_plan_text(weft_program *program, const char **out);
/* What `weft graph --after=PASS` prints: the training step's graph (eval = 1: the evaluation form's) after a pass ("grad/step"), or,
 * with after = NULL, as it was opened. Not for compiled steps. Valid as weft_plan_text's. */
WEFT_API weft_status weft_graph_text(weft_program *program, const char *after, int eval, const char **out);

/* Builds a graph node by node, as an alternative to weft_open. A value is a positive number; 0 means failure, and the
 * failure is kept until weft_graph_finish, which returns it. Shapes of inputs may hold -1 for a size that is the same
 * symbol wherever `symbol` (e.g. "batch") is named; "batch,length" names those of several, in order. */
typedef int32_t weft_value;
WEFT_API weft_status weft_graph_new(weft_context *ctx, weft_program **out);
WEFT_API weft_value weft_graph_input(weft_program *g, const char *name, weft_dtype dtype, int rank,
                                     const int64_t *shape, const char *symbol);
/* A trainable parameter or (trainable = 0) a buffer; `initial` is copied. */
WEFT_API weft_value weft_graph_parameter(weft_program *g, const char *name, const weft_tensor *initial, int trainable);
/* One node: `op` is a name of `weft ops` ("aten.linear", "aten.add.Tensor"), `args` the arguments in the text form of
 * docs/ir.md with %N for value N, e.g. "%1, %2, %3" or "%4, [0, 1], keepdim=True". `name` names the result, `where`
 * is source information for messages; either may be NULL. Returns the first result; further ones follow it. */
WEFT_API weft_value weft_graph_node(weft_program *g, const char *op, const char *args, const char *name,
                                    const char *where);
/* Of a program with option `halves`: backward returns the gradient of this input, too. */
WEFT_API weft_status weft_graph_wants(weft_program *g, weft_value input);
/* The first output is the loss when no `loss` option is set. */
WEFT_API weft_status weft_graph_output(weft_program *g, weft_value value, const char *name);
WEFT_API weft_status weft_graph_finish(weft_program *g);

/* ---- sessions ---- */

WEFT_API weft_status weft_session_new(weft_program *program, weft_session **out);
WEFT_API void weft_session_free(weft_session *session);
/* Inputs in the order of the export, a target that option `loss` adds last; NULL beyond the last name. weft_input: dtype, rank and
 * shape of input i (data NULL); a size that batches choose is -1. */
WEFT_API int weft_input_count(const weft_session *session);
WEFT_API const char *weft_input_name(const weft_session *session, int i);
WEFT_API weft_status weft_input(weft_session *session, int i, weft_tensor *out);
/* Hands in one input of the next step. The memory is read during weft_step, weft_forward, weft_predict or weft_evaluate and stays the
 * caller's. batch NULL: takes back what was handed in. */
WEFT_API weft_status weft_feed(weft_session *session, const char *input, const weft_tensor *batch);
/* Of what is fed next, only the first `rows` rows are samples, the others padding without a share in loss and gradient: for
 * one weft_step, weft_micro or weft_forward, of a program with option last-batch=pad. With last-batch=short fewer rows are
 * fed instead, and 0 here means: none of the rows fed is a sample. */
WEFT_API weft_status weft_rows(weft_session *session, int rows);
/* Forward, backward, update. loss may be NULL. On failure the weights and the state are those of before the step.
 * With option `accumulate` K, weft_step takes the last of K micro-batches, and the loss is the mean over them (and over
 * the ranks). */
WEFT_API weft_status weft_step(weft_session *session, double *loss);
/* Before it, K - 1 times: forward and backward of a micro-batch, whose gradients are kept for the step. loss: of this
 * micro-batch; may be NULL. When it or weft_step fails on its data, the step begins again with its first micro-batch;
 * buffers (of batch norm) keep what finished micro-batches wrote. */
WEFT_API weft_status weft_micro(weft_session *session, double *loss);
/* Of a program with option micro-batch: how many micro-batches the steps to come have (1 before the first call). Between
 * steps only; no compilation. */
WEFT_API weft_status weft_micro_batches(weft_session *session, int count);
/* The forward part alone, in training form (eval = 0) or evaluation form (1); changes no state. */
WEFT_API weft_status weft_forward(weft_session *session, int eval, double *loss);
/* Output leaf i of the last step or forward; borrowed until the next one. In the evaluation form the last one may be named
 * "predictions": what the loss scores. Names are NULL beyond the last. */
WEFT_API int weft_output_count(const weft_session *session);
WEFT_API const char *weft_output_name(const weft_session *session, int i);
WEFT_API weft_status weft_output(weft_session *session, int i, weft_tensor *out);
/* The predictions for what was fed, in the evaluation form, as `weft run` writes them: what the loss scores; of a model without a loss its
 * first output. Inputs that they do not depend on (labels) are not read, and need not be fed. A batch may have fewer rows than the
 * export's, where that is fixed: it is filled up in memory of the session, and out has the rows of what was fed. out is borrowed
 * until the next run. */
WEFT_API weft_status weft_predict(weft_session *session, weft_tensor *out);
/* Metrics of the last step: "loss" (of its last micro-batch), "mean_loss" (with accumulate or ranks), "loss_count" (what
 * it is the mean over, with loss-norm=tokens or last-batch=pad or short), "grad_norm", "lr", "step",
 * "step_s", "slab_bytes", "state_bytes". */
WEFT_API weft_status weft_metric(weft_session *session, const char *name, double *out);

/* Evaluation over any number of batches: begin; then for each feed it and weft_evaluate, which runs the evaluation form (loss: of
 * this batch, padding with it; may be NULL; weft_rows says how many rows count); then end, which adds up the ranks that the session
 * joined (each calls it). A batch may have fewer rows than the export's, where that is fixed: it is filled up in memory of the
 * session, and the rows that were fed count. metrics: "loss,accuracy,f1", what `weft eval --metrics` takes; NULL: the loss, and
 * accuracy where there are classes. */
WEFT_API weft_status weft_evaluate_begin(weft_session *session, const char *metrics);
WEFT_API weft_status weft_evaluate(weft_session *session, double *loss);
WEFT_API weft_status weft_evaluate_end(weft_session *session);
/* Name and value of metric i of the evaluation that ended last; NaN: there was nothing to compute it from. NULL beyond the last. */
WEFT_API const char *weft_evaluated(const weft_session *session, int i, double *value);

/* ---- two halves ---- */

/* For a host that differentiates by itself, such as PyTorch's autograd. A program with option `halves` set to `both` has no step and no loss:
 * weft_run_forward computes the model's outputs and keeps in a *frame* what backward will need; weft_run_backward takes the
 * frame and the cotangents of the outputs, and gives the gradients of the inputs that have one: trainable parameters, and
 * what weft_graph_wants named. All memory is the caller's: inputs (weights, too) are read where they lie, outputs and
 * gradients are written where the caller wants them; nothing is allocated while a half runs, but for sizes seen first.
 * Frames are independent of one another: several forwards may come before their backwards, in any order, a backward may be
 * run again, and a frame that is not needed any more is simply freed.
 *
 * What goes in and out are ports, numbered within their kind. Inputs: parameters, buffers and arguments, in this order of the
 * model's; of a built graph in order of creation. An input's memory is dense, row-major and aligned to its elements. Where the model
 * writes into an input (a batch norm's statistics), weft_run_forward does, once, after everything else has succeeded. */
typedef enum { WEFT_INPUTS, WEFT_OUTPUTS, WEFT_COTANGENTS, WEFT_GRADIENTS,
               WEFT_READ,       /* inputs that backward reads; it takes NULL for the others */
               WEFT_WRITTEN     /* inputs that forward writes */ } weft_ports;
WEFT_API int weft_port_count(const weft_session *session, weft_ports ports);      /* -1: no such kind */
/* Of outputs and cotangents "0", "1", ..: the number of the output. Of a gradient and of what is read or written: the input's. NULL: there
 * is no port i. */
WEFT_API const char *weft_port_name(const weft_session *session, weft_ports ports, int i);
/* Dtype and shape; data is NULL. `sizes`: the value of every symbolic size, in the order of weft_size_name; NULL when there are
 * none. */
WEFT_API weft_status weft_port(weft_session *session, weft_ports ports, int i, const int64_t *sizes, weft_tensor *out);
WEFT_API int weft_size_count(const weft_session *session);
WEFT_API const char *weft_size_name(const weft_session *session, int i);
/* Size of a frame, which is aligned to 64 bytes; 0: nothing is kept, and the frame may be NULL. */
WEFT_API weft_status weft_frame_bytes(weft_session *session, const int64_t *sizes, size_t *out);
/* inputs, outputs: a pointer for every port of that kind. An input that is NULL is the session's own parameter or buffer. `seed`
 * is of dropout and the like; backward uses the same. */
WEFT_API weft_status weft_run_forward(weft_session *session, const int64_t *sizes, uint64_t seed, void *const *inputs,
                                      void *const *outputs, void *frame);
/* The inputs must hold what they held in forward (but for those that forward has written itself). */
WEFT_API weft_status weft_run_backward(weft_session *session, const int64_t *sizes, void *const *inputs,
                                       void *const *cotangents, void *const *gradients, void *frame);

/* ---- ranks ---- */

/* Processes that train one model together. mpi_comm: address of the caller's MPI_Comm, whose ranks they are; it is
 * duplicated, and the caller goes on using MPI (which must be initialised) beside Weft. NULL: as the launcher's environment
 * says (mpirun, srun, torchrun). Every rank opens it. The first failure of a rank ends the calls of all others with
 * WEFT_ERR_RANK, which names it. */
typedef struct weft_world weft_world;
WEFT_API weft_status weft_world_open(weft_context *ctx, void *mpi_comm, weft_world **out);
WEFT_API int weft_world_rank(const weft_world *world);   /* -1: closed */
WEFT_API int weft_world_size(const weft_world *world);
/* A rank's share of its host's cores: what option `threads` should be. */
WEFT_API int weft_world_threads(const weft_world *world);
/* Waits for all ranks. Sessions that joined must not step any more. NULL is fine. */
WEFT_API weft_status weft_world_close(weft_world *world);
/* weft_compile by rank 0 for all ranks, which take the step from it: one compiles, or reads its cache. Every rank calls it before it makes
 * the session, in a context that both share. Ranks whose models or options differ compile by themselves (weft_join then says so),
 * and so do all where rank 0 fails: each has its own error. */
WEFT_API weft_status weft_compile_together(weft_program *program, weft_world *world);
/* Before the session's first step, on every rank, in a context that both share: compares model, plan and options of the
 * ranks, takes rank 0's weights and state (option `init-sync`), and from then on reduces gradients with the others. The
 * program's option `nproc` must be the world's size before the session is made. weft_step's loss is the mean over ranks. */
WEFT_API weft_status weft_join(weft_session *session, weft_world *world);

/* Weights and buffers under PyTorch's names. */
WEFT_API int weft_parameter_count(const weft_session *session);
WEFT_API const char *weft_parameter_name(const weft_session *session, int i);
/* What parameter i is: WEFT_TRAINABLE, WEFT_BUFFER (else a parameter), WEFT_TRANSIENT (a buffer that PyTorch keeps out of
 * state_dict). */
enum { WEFT_TRAINABLE = 1, WEFT_BUFFER = 2, WEFT_TRANSIENT = 4 };
WEFT_API int weft_parameter_flags(const weft_session *session, int i);
/* Further names of parameter i, when it is tied: k from 0; NULL beyond the last. */
WEFT_API const char *weft_parameter_alias(const weft_session *session, int i, int k);
/* Borrows: out->data points at the live weight, valid for the session's life, to be changed only between steps. */
WEFT_API weft_status weft_parameter(weft_session *session, const char *name, weft_tensor *out);
/* Makes the session train in the caller's memory (64-byte aligned, dense, same shape and dtype): the current value
 * of the caller's memory becomes the weight. The memory must outlive the session, and lie on the step's device (option
 * `device`): another session's parameter on that core, say; otherwise the next step returns WEFT_ERR_USAGE. */
WEFT_API weft_status weft_parameter_replace(weft_session *session, const char *name, const weft_tensor *memory);
/* Gradient of the last step, before clipping; borrowed until the next step. */
WEFT_API weft_status weft_gradient(weft_session *session, const char *name, weft_tensor *out);
/* Weights and persistent buffers as safetensors, written atomically; and back. */
WEFT_API weft_status weft_save(weft_session *session, const char *path);
WEFT_API weft_status weft_load(weft_session *session, const char *path);

/* The optimiser's state: tensor i is what torch.optim calls `kind` ("exp_avg", "momentum_buffer", ..) of the parameter of that name;
 * NULL beyond the last. weft_state borrows as weft_parameter does. How many steps it has done is metric "step"; weft_set_step says so
 * of a state that was copied in (bias corrections and random numbers follow). */
WEFT_API int weft_state_count(const weft_session *session);
WEFT_API const char *weft_state_parameter(const weft_session *session, int i);
WEFT_API const char *weft_state_kind(const weft_session *session, int i);
WEFT_API weft_status weft_state(weft_session *session, int i, weft_tensor *out);
WEFT_API weft_status weft_set_step(weft_session *session, int64_t steps);

/* Checkpoints as `weft train --checkpoint-every` writes them: weights, buffers, optimiser state, number of steps, of all ranks that the
 * session joined (each calls it), in FOLDER/checkpoints/step-N; the newest `keep` stay. The caller's loop keeps its place in the data
 * itself. */
WEFT_API weft_status weft_checkpoint(weft_session *session, const char *folder, int keep);
/* Goes on from the newest whole checkpoint of the folder, also of `weft train`: *step (may be NULL) is how many steps are done, -1
 * when there is none. Damaged ones are left out with a warning; one of another model or optimiser is WEFT_ERR_USAGE. */
WEFT_API weft_status weft_resume(weft_session *session, const char *folder, int64_t *step);

#ifdef __cplusplus
}
#endif
#endif
