/* cli: the program `weft`, one file per verb. */
#ifndef WF_CLI_H
#define WF_CLI_H

#include "api/api.h"

typedef struct {
    const char *name;
    const char *usage;           /* after "weft NAME " */
    const char *what;            /* one line */
    const char *examples;        /* lines of the verb's help, before its options */
    unsigned groups;             /* option groups it takes: bit mask of WfOptionGroup */
    int (*run)(WfCtx *ctx, const WfOptions *o, const WfStrings *words); /* exit code; may raise */
} WfVerb;
extern const WfVerb wf_verbs[];  /* ends with a NULL name */

int wf_cli_verify(WfCtx *ctx, const WfOptions *o, const WfStrings *words);
int wf_cli_graph(WfCtx *ctx, const WfOptions *o, const WfStrings *words);
int wf_cli_compile(WfCtx *ctx, const WfOptions *o, const WfStrings *words);
int wf_cli_train(WfCtx *ctx, const WfOptions *o, const WfStrings *words);
int wf_cli_run(WfCtx *ctx, const WfOptions *o, const WfStrings *words);
int wf_cli_eval(WfCtx *ctx, const WfOptions *o, const WfStrings *words);
int wf_cli_export(WfCtx *ctx, const WfOptions *o, const WfStrings *words);
int wf_cli_info(WfCtx *ctx, const WfOptions *o, const WfStrings *words);
int wf_cli_plan(WfCtx *ctx, const WfOptions *o, const WfStrings *words);
int wf_cli_opt(WfCtx *ctx, const WfOptions *o, const WfStrings *words);
int wf_cli_ops(WfCtx *ctx, const WfOptions *o, const WfStrings *words);
int wf_cli_env(WfCtx *ctx, const WfOptions *o, const WfStrings *words);
int wf_cli_hang(WfCtx *ctx, const WfOptions *o, const WfStrings *words);
/* Times steps of training, on whatever ranks there are. */
int wf_cli_bench_steps(WfCtx *ctx, const WfOptions *o, const WfStrings *words);
int wf_cli_bench(WfCtx *ctx, const WfOptions *o, const WfStrings *words);
int wf_cli_cache(WfCtx *ctx, const WfOptions *o, const WfStrings *words);

int wf_cli_doctor(WfCtx *ctx, const WfOptions *o, const WfStrings *words);
int wf_cli_completion(WfCtx *ctx, const WfOptions *o, const WfStrings *words);
int wf_cli_watch(WfCtx *ctx, const WfOptions *o, const WfStrings *words);
int wf_cli_docs(WfCtx *ctx, const WfOptions *o, const WfStrings *words);
int wf_cli_explain(WfCtx *ctx, const WfOptions *o, const WfStrings *words);
/* May a line of stderr be rewritten? */
bool wf_cli_terminal(void);
/* From now on compiling shows its progress; the second ends its line. */
void wf_cli_progress(WfCtx *ctx);
void wf_cli_progress_end(void);
/* The error on stderr: code, message, place, what to do. */
void wf_cli_report(const WfDiag *d);
/* The same for programs, on stdout: {"error": {"code": "W0258", "status": "data", "message": .., "place": .., "help": ..}}. */
void wf_cli_report_json(WfCtx *ctx, const WfDiag *d);

/* What main was started with, and where its handler leaves the number of a signal. */
typedef struct { int argc; char **argv; volatile int *signal; } WfCliProcess;
extern WfCliProcess wf_cli_process;

/* Did a launcher start this process as one of several ranks? */
bool wf_cli_is_rank(void);
/* Joins the world that the launcher describes, and sets nproc and threads accordingly; NULL when nobody launched this. */
WfComm *wf_cli_join(WfCtx *ctx, WfOptions *o);
WfLinkKind wf_cli_link(const WfComm *c);
/* Starts nproc ranks of this program with that command line and waits for them: their exit code. out: the run's folder,
 * for `weft hang`; may be NULL. */
int wf_cli_launch(WfCtx *ctx, int nproc, char *const *argv, const char *out);

/* What a verb writes to --out, or beside it. */
typedef enum { WF_TARGET_PREDICTIONS, WF_TARGET_EXPORT, WF_TARGET_STEP, WF_TARGET_ONNX, WF_TARGET_ONNX_DATA,
               WF_TARGET_WEIGHTS } WfTarget;
/* Raises WEFT_ERR_USAGE unless `out` is new, empty or of this kind, and nothing that the command reads. tensor: one that it will
 * hold, of safetensors. Before the work begins. */
void wf_cli_target(WfCtx *ctx, const WfOptions *o, const WfStrings *words, const char *out, WfTarget kind, const char *tensor);

/* weft info of a folder: the files of a run, its checkpoints. False: path is none. */
bool wf_cli_checkpoints(WfCtx *ctx, const char *path);
/* Opens words[0] and gives it the options. */
weft_program *wf_cli_open(WfCtx *ctx, const WfOptions *o, const WfStrings *words);

#endif
