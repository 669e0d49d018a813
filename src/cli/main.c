/* The program: finds the verb, reads its options, runs it inside a guard, and turns what was raised into one
 * message and an exit code: 0 done, 1 the work failed, 2 wrong usage, 128 + signal when it was interrupted.
 */
#include "cli/cli.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define G(name) (1u << WF_GROUP_##name)
enum {
    PREDICT_GROUPS = G(MODEL) | G(RUN) | G(DATA) | G(OUTPUT) | G(COMPILE) | G(CACHE),
    COMPILE_GROUPS = G(MODEL) | G(OPTIMISER) | G(RUN) | G(OUTPUT) | G(COMPILE) | G(CACHE) | G(HOST),
    TRAIN_GROUPS = (COMPILE_GROUPS & ~G(HOST)) | G(SCHEDULE) | G(LOOP) | G(DATA)
};

const WfVerb wf_verbs[] = {
    {"train", "MODEL --data FILE [--out DIR]",
     "train a model; MODEL is a .pt2 export or a compiled .weft step",
     "  weft train model.pt2 --data train.safetensors --optimizer adamw --lr 3e-4 --epochs 3 --out run/\n"
     "  weft train model.pt2 --loss cross_entropy --data x=images.gz --data y=labels.gz --eval-data "
     "test.safetensors\n",
     TRAIN_GROUPS, wf_cli_train},
    {"verify", "CASE... [--json]", "replay recorded PyTorch runs: forward, gradients, optimiser steps",
     "  weft verify tests/refs/mlp_mnist_adamw\n",
     G(OUTPUT) | G(JSON) | G(COMPILE) | G(CACHE) | G(RUN), wf_cli_verify},
    {"compile", "MODEL.pt2 -o STEP.weft", "compile ahead of time; training STEP.weft needs no compiler",
     "  weft compile model.pt2 --loss cross_entropy --optimizer adamw -o step.weft\n", COMPILE_GROUPS | G(STEP),
     wf_cli_compile},
    {"run", "MODEL [--weights FILE] (--data FILE --out FILE | --sample N)",
     "predict: the evaluation form over all rows of the data; or sample text from a model of bytes",
     "  weft run model.pt2 --weights run/best.safetensors --data x.safetensors --out y.safetensors\n"
     "  weft run step.weft --data x=images.gz --out y.safetensors\n"
     "  weft run gpt.pt2 --weights run/best.safetensors --prompt 'And ' --sample 500 --temperature 0.8\n",
     PREDICT_GROUPS | G(SAMPLE), wf_cli_run},
    {"eval", "MODEL [--weights FILE] --data FILE [--metrics NAME,...]",
     "metrics of the evaluation form over all rows of the data, on stdout",
     "  weft eval model.pt2 --loss cross_entropy --weights run/best.safetensors --data test.safetensors --metrics loss,top5,f1\n"
     "  weft eval model.pt2 --data test.safetensors --json\n",
     PREDICT_GROUPS | G(JSON), wf_cli_eval},
    {"export", "MODEL.pt2 [--weights FILE] -o OUT.pt2|.onnx|.safetensors",
     "write trained weights back into the export, for torch.export.load; the evaluation form as ONNX; or all weights in one file",
     "  weft export model.pt2 --weights run/best.safetensors -o trained.pt2\n"
     "  weft export model.pt2 --weights run/best.safetensors -o model.onnx\n"
     "  weft export model.pt2 --weights shards/ -o whole.safetensors\n",
     G(MODEL) | G(OUTPUT), wf_cli_export},
    {"plan", "MODEL", "memory, largest buffers and calls of a step, before running it",
     "  weft plan model.pt2 --loss cross_entropy --optimizer adamw --batch-size 64\n", TRAIN_GROUPS,
     wf_cli_plan},
    {"info", "FILE", "what a .pt2, .weft or .safetensors file holds, and which of its ops are supported",
     "  weft info model.pt2\n  weft info model.pt2 --loss cross_entropy\n  weft info run/final.safetensors\n", G(MODEL), wf_cli_info},
    {"graph", "MODEL.pt2 [--after=PASS] [--eval]", "print the graph at any stage",
     "  weft graph model.pt2\n  weft graph model.pt2 --after=grad/step --loss cross_entropy\n", COMPILE_GROUPS | G(GRAPH) | G(FORM),
     wf_cli_graph},
    {"opt", "--run=PASS FILE.ir", "run one pass over graph text (docs/ir.md) and print what comes out",
     "  weft opt --run=fuse/group x.ir\n  weft opt --run=print x.ir\n", COMPILE_GROUPS | G(PASS) | G(FORM), wf_cli_opt},
    {"ops", "[WORD...]", "list the operators: last level, family, gradient, schema",
     "  weft ops\n  weft ops conv pool\n", 0, wf_cli_ops},
    {"env", "", "list the environment variables that Weft reads, and their values", "  weft env\n", 0,
     wf_cli_env},
    {"bench", "MODEL --data FILE [--no-reduce] | --machine",
     "time the steps of a training, or measure this machine and the link between ranks for the planner",
     "  weft bench model.pt2 --data train.safetensors --nproc 2 --steps 50\n  weft bench --machine\n"
     "  mpirun -n 2 weft bench --machine\n",
     TRAIN_GROUPS | G(BENCH), wf_cli_bench},
    {"hang", "[PID | DIR]", "where each rank of a running training is, and who is behind; of all worlds of this host, or of one",
     "  weft hang\n  weft hang 4711\n  weft hang run/\n", 0, wf_cli_hang},
    {"doctor", "", "try out what a training needs of this machine, line by line: ok, warn or fail", "  weft doctor\n",
     G(CACHE) | G(COMPILE), wf_cli_doctor},
    {"explain", "[CODE...]", "what an error's code means, what it usually comes from, what to do; without one: all codes",
     "  weft explain W0254\n  weft explain\n", 0, wf_cli_explain},
    {"completion", "bash|zsh|fish", "print the completion of a shell; make install puts them into place",
     "  weft completion bash >~/.local/share/bash-completion/completions/weft\n", 0, wf_cli_completion},
    {"cache", "ls [KEY] | rm KEY | rm all", "list or remove compiled steps and kernels",
     "  weft cache ls\n  weft cache rm 3fa9\n  weft cache rm all\n", 1u << WF_GROUP_COMPILE, wf_cli_cache},
    {0}};

static volatile int cancelled;
static volatile int signal_seen;

static void on_signal(int s)
{
    if (signal_seen) /* asked twice: leave at once */
        _exit(128 + s);
    signal_seen = s;
    cancelled = 1;
}

static void put_log(void *user, WfLogLevel level, const char *line)
{
    static const char *const levels[] = {"error", "warn", "info", "debug"};
    const char *least = wf_env("WEFT_LOG");
    int limit = WF_LOG_INFO;
    (void)user;
    wf_cli_progress_end();
    for (int i = 0; least && i < 4; i++)
        limit = strcmp(levels[i], least) ? limit : i;
    if ((int)level <= limit)
        fprintf(stderr, "%s%s\n",
                level == WF_LOG_WARN    ? "warning: "
                : level == WF_LOG_ERROR ? "error: "
                                        : "",
                line);
}

static void overall_help(FILE *out)
{
    fprintf(out,
            "weft compiles the training step of a PyTorch model and runs it without Python.\n\n"
            "  weft train model.pt2 --data train.safetensors --optimizer adamw --lr 3e-4 --out run/\n\n");
    for (const WfVerb *v = wf_verbs; v->name; v++)
        fprintf(out, "  weft %-8s %-46s %s\n", v->name, v->usage, v->what);
    fprintf(out, "\nweft VERB --help says more.\n");
}

static void verb_help(WfCtx *ctx, const WfVerb *v)
{
    WfStr s = {.arena = ctx->arena};
    wf_options_help(&s, v->groups);
    printf("%s\nusage: weft %s %s\n%s.\n%s", v->examples, v->name, v->usage, v->what, s.at ? s.at : "");
}

typedef struct {
    WfCtx *ctx;
    const WfVerb *verb;
    int argc;
    char **argv;
    int code;
    bool json;           /* an error is a result, too */
} Main;

/* A flag that the verb never looks at would be believed to count; a settings file may serve several verbs. */
static void check_flags(WfCtx *ctx, const WfVerb *v, const WfOptions *o)
{
    for (const WfOptionRow *r = wf_option_table; r->name; r++) {
        if (v->groups & 1u << r->group || wf_option_origin(o, r->name) != WF_FROM_FLAG)
            continue;
        WfStr takers = {.arena = ctx->arena};
        for (const WfVerb *w = wf_verbs; w->name; w++)
            if (w->groups & 1u << r->group)
                wf_str_printf(&takers, "%s%s", takers.n ? ", " : "", w->name);
        wf_fail_at(ctx, WF_E_OPTION_MEANINGLESS, NULL, wf_arena_printf(ctx->arena, "It belongs to weft %s; weft %s --help lists the options here.",
                                                                       takers.at, v->name),
                   "weft %s has no option --%s", v->name, r->name);
    }
}

static void run_verb(void *p)
{
    Main *m = p;
    WfOptions o;
    WfStrings words = {0};
    for (int i = 2; i < m->argc && strcmp(m->argv[i], "--"); i++)
        if (!strcmp(m->argv[i], "--help") || !strcmp(m->argv[i], "-h")) {
            verb_help(m->ctx, m->verb);
            return;
        }
    for (int i = 2; i < m->argc; i++) /* also where the options cannot be read */
        m->json |= m->verb->groups & G(JSON) && !strcmp(m->argv[i], "--json");
    wf_options_init(m->ctx, m->ctx->arena, &o);
    wf_options_env(m->ctx, &o);
    wf_options_parse(m->ctx, &o, m->argc - 2, m->argv + 2, &words);
    check_flags(m->ctx, m->verb, &o);
    m->json |= m->verb->groups & G(JSON) && o.json;
    wf_options_check(m->ctx, &o);
    if (o.dry_run && m->verb->run != wf_cli_train)
        wf_fail_at(m->ctx, WF_E_OPTION_MEANINGLESS, NULL, "weft plan says what a step needs without running it.",
                   "--dry-run belongs to weft train");
    if (o.print_config) {
        WfStr text = {.arena = m->ctx->arena};
        wf_options_print(m->ctx, &o, m->verb->groups, &words, &text);
        fputs(text.at ? text.at : "", stdout);
        return;
    }
    wf_options_settle(&o);
    m->code = m->verb->run(m->ctx, &o, &words);
}

static int exit_code(weft_status s)
{
    if (s == WEFT_ERR_CANCELLED && signal_seen)
        return 128 + signal_seen;
    return s == WEFT_ERR_USAGE ? 2 : 1;
}

/* What shapes the plan of a compiled step cannot be chosen any more; saying what it was compiled with is
 * fine. */
static void check_plan(WfCtx *ctx, const WfOptions *o, const WfExe *x)
{
    for (const WfOptionRow *r = wf_option_table; r->name; r++) {
        WfStr line = {.arena = ctx->arena}, all = {.arena = ctx->arena};
        if (!r->plan || !strcmp(r->name, "isa") || wf_option_origin(o, r->name) == WF_FROM_DEFAULT)
            continue;
        wf_str_printf(&line, "\n%s=", r->name);
        wf_option_text(o, r, &line);
        wf_str_putc(&line, '\n');
        wf_str_printf(&all, "\n%s", x->options);
        if (!strstr(all.at, line.at))
            wf_fail_at(ctx, WF_E_STEP_FIXED, NULL, "Compile the model again with this option.",
                       "option %s shapes the plan, and this step was compiled with another value", r->name);
    }
}

weft_program *wf_cli_open(WfCtx *ctx, const WfOptions *o, const WfStrings *words)
{
    if (words->n < 1)
        wf_fail(ctx, WF_E_ARGUMENT_MISSING, "name a model: a .pt2 export or a compiled .weft step");
    if (words->n > 1)
        wf_fail_at(ctx, WF_E_ARGUMENT_EXTRA, NULL, "Options are written --name value.",
                   "one model is taken at a time, but after %s there is also %s", words->at[0], words->at[1]);
    weft_program *p = wf_open(ctx, words->at[0]);
    p->options = *o;
    if (p->loaded)
        check_plan(ctx, o, p->exe);
    else
        wf_program_open_model(p, words->at[0]);
    return p;
}

/* Results that stdout did not take are a failure of the verb; a reader that has left (`| head`) is none. */
static int flush_results(int code)
{
    errno = 0;
    bool lost = fflush(stdout) || ferror(stdout);
    struct pollfd out = {.fd = STDOUT_FILENO, .events = POLLOUT};
    if (!lost || errno == EPIPE || (poll(&out, 1, 0) == 1 && out.revents & POLLERR))
        return code;
    char message[200];
    snprintf(message, sizeof message, "stdout: cannot write all results%s%s", errno ? ": " : "", errno ? strerror(errno) : "");
    wf_cli_report(&(WfDiag){.kind = WF_E_RESULTS_LOST, .message = message,
                            .hint = "Free some space, and run the command again."});
    return code ? code : 1;
}

int main(int argc, char **argv)
{
    if (argc < 2 || !strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") || !strcmp(argv[1], "help")) {
        overall_help(argc < 2 ? stderr : stdout);
        return argc < 2 ? 2 : flush_results(0);
    }
    if (!strcmp(argv[1], "--version")) {
        printf("weft %s\n", weft_version());
        return flush_results(0);
    }
    const char *names[32];
    int n = 0;
    static const WfVerb docs = {"docs", "DIR", "write man pages, completions and pages of the verbs", "  weft docs build/docs\n", 0,
                                wf_cli_docs}; /* for the build */
    static const WfVerb watch = {"watch", "FD", "watch over the ranks of a host", "  weft watch 3\n", 0, wf_cli_watch}; /* for wf_comm */
    const WfVerb *verb = !strcmp(argv[1], docs.name) ? &docs : !strcmp(argv[1], watch.name) ? &watch : NULL;
    for (const WfVerb *v = wf_verbs; v->name; v++) {
        names[n++] = v->name;
        if (!strcmp(v->name, argv[1]))
            verb = v;
    }
    if (!verb) {
        const char *near = wf_nearest(argv[1], names, n);
        char message[120], hint[120] = "weft --help lists the verbs.";
        snprintf(message, sizeof message, "weft has no verb '%.60s'", argv[1]);
        if (near)
            snprintf(hint, sizeof hint, "Did you mean %s?", near);
        wf_cli_report(&(WfDiag){.kind = WF_E_VERB_UNKNOWN, .message = message, .hint = hint});
        return 2;
    }
    WfCtx *ctx = wf_ctx_new();
    if (!ctx) {
        wf_cli_report(&(WfDiag){.kind = WF_E_MEMORY, .message = "out of memory"});
        return 1;
    }
    ctx->log = put_log;
    ctx->cancel = &cancelled;
    struct sigaction sa = {.sa_handler = on_signal};
    sigaction(SIGINT, &sa, NULL);
    sigaction(SIGTERM, &sa, NULL);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN); /* a limit on file sizes is an error of the write, as a full disk is */
    wf_cli_progress(ctx);
    wf_cli_process = (WfCliProcess){argc, argv, &signal_seen};
    Main m = {ctx, verb, argc, argv, 0, false};
    weft_status s = wf_guard(ctx, run_verb, &m);
    if (s != WEFT_OK) {
        if (m.json)
            wf_cli_report_json(ctx, &ctx->diag);
        else if (!ctx->diag.told)
            wf_cli_report(&ctx->diag);
        m.code = exit_code(s);
    }
    m.code = flush_results(m.code);
    wf_ctx_free(ctx);
    return m.code;
}
