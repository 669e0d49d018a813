/* Reading a command line through the option table, the rules between options, and the help text. */
#include <stdlib.h>
#include <string.h>

#include "base/base.h"

/* ---- the command line ---- */

/* Files first: flags overrule them, wherever they stand. */
static void load_files(WfCtx *ctx, WfOptions *o, int argc, char *const *argv, WfStrings *words)
{
    for (int i = 0; i < argc && strcmp(argv[i], "--"); i++) {
        if (!strncmp(argv[i], "--config=", 9))
            wf_options_load(ctx, o, argv[i] + 9, words);
        else if (!strcmp(argv[i], "--config") && i + 1 < argc)
            wf_options_load(ctx, o, argv[++i], words);
    }
}

void wf_options_parse(WfCtx *ctx, WfOptions *o, int argc, char *const *argv, WfStrings *words)
{
    bool ended = false;
    WfStrings of_file = {0};
    load_files(ctx, o, argc, argv, &of_file);
    for (int i = 0; i < argc; i++) {
        char *arg = argv[i];
        if (!strcmp(arg, "-o"))
            arg = "--out";
        if (ended || arg[0] != '-' || !strcmp(arg, "-") || !strcmp(arg, "-h") || !strcmp(arg, "--help")) {
            WF_PUSH(o->arena, words, arg);
            continue;
        }
        if (!strcmp(arg, "--")) {
            ended = true;
            continue;
        }
        if (arg[1] != '-')
            wf_fail_at(ctx, WF_E_OPTION_UNKNOWN, NULL, "options are written --name value", "unknown option \"%.60s\"", arg);
        const char *equals = strchr(arg, '=');
        char *name = equals ? wf_arena_strndup(o->arena, arg + 2, (size_t)(equals - arg) - 2) : arg + 2;
        const WfOptionRow *row = wf_option_find(name);
        if (!row && !strncmp(name, "no-", 3))
            row = wf_option_find(name + 3);
        if (equals)
            wf_options_set(ctx, o, name, equals + 1);
        else if (!row || row->kind == WF_OPTION_BOOL)
            wf_options_set(ctx, o, name, "true"); /* an unknown name is reported there */
        else if (i + 1 == argc)
            wf_fail_at(ctx, WF_E_OPTION_NO_VALUE, NULL, row->help, "option %s: its value is missing", name);
        else
            wf_options_set(ctx, o, name, argv[++i]);
    }
    for (int i = 0; i < of_file.n && (i || !words->n); i++)
        WF_PUSH(o->arena, words, of_file.at[i]);
}

void wf_options_env(WfCtx *ctx, WfOptions *o)
{
    static const char *const rows[][2] = {{"WEFT_THREADS", "threads"}, {"WEFT_ISA", "isa"}, {"WEFT_DUMP_DIR", "dump-dir"}};
    for (size_t i = 0; i < WF_LEN(rows); i++) {
        const char *v = wf_env(rows[i][0]);
        if (v && *v)
            wf_options_set_from(ctx, o, rows[i][1], v, WF_FROM_ENV);
    }
}

/* ---- rules between options ---- */

#define BIT(i) (1u << (i))

/* An option that only some losses or optimisers or schedules know. `of` is the row that decides. */
static const struct {
    const char *name, *of;
    unsigned allowed;
} only[] = {
    {"reduction", "loss", ~BIT(WF_LOSS_NONE)},
    {"target", "loss", ~BIT(WF_LOSS_NONE)},
    {"label-smoothing", "loss", BIT(WF_LOSS_CROSS_ENTROPY)},
    {"ignore-index", "loss", BIT(WF_LOSS_CROSS_ENTROPY) | BIT(WF_LOSS_NLL)},
    {"loss-weights", "loss",
     BIT(WF_LOSS_CROSS_ENTROPY) | BIT(WF_LOSS_NLL) | BIT(WF_LOSS_BCE) | BIT(WF_LOSS_BCE_WITH_LOGITS)},
    {"pos-weight", "loss", BIT(WF_LOSS_BCE_WITH_LOGITS)},
    {"soft-target", "loss", BIT(WF_LOSS_CROSS_ENTROPY)},
    {"log-target", "loss", BIT(WF_LOSS_KL_DIV)},
    {"beta", "loss", BIT(WF_LOSS_SMOOTH_L1)},
    {"delta", "loss", BIT(WF_LOSS_HUBER)},
    {"betas", "optimizer", BIT(WF_OPTIM_ADAM) | BIT(WF_OPTIM_ADAMW)},
    {"eps", "optimizer", ~BIT(WF_OPTIM_SGD)},
    {"momentum", "optimizer", BIT(WF_OPTIM_SGD) | BIT(WF_OPTIM_RMSPROP)},
    {"dampening", "optimizer", BIT(WF_OPTIM_SGD)},
    {"nesterov", "optimizer", BIT(WF_OPTIM_SGD)},
    {"amsgrad", "optimizer", BIT(WF_OPTIM_ADAM) | BIT(WF_OPTIM_ADAMW)},
    {"alpha", "optimizer", BIT(WF_OPTIM_RMSPROP)},
    {"centered", "optimizer", BIT(WF_OPTIM_RMSPROP)},
    {"lr-decay", "optimizer", BIT(WF_OPTIM_ADAGRAD)},
    {"initial-accumulator-value", "optimizer", BIT(WF_OPTIM_ADAGRAD)},
    {"min-lr", "schedule", BIT(WF_SCHEDULE_LINEAR) | BIT(WF_SCHEDULE_COSINE)},
    {"step-size", "schedule", BIT(WF_SCHEDULE_STEP)},
    {"gamma", "schedule", BIT(WF_SCHEDULE_STEP)},
    {"max-lr", "schedule", BIT(WF_SCHEDULE_ONE_CYCLE)},
    {"pct-start", "schedule", BIT(WF_SCHEDULE_ONE_CYCLE)},
    {"warmup-steps", "schedule", ~BIT(WF_SCHEDULE_ONE_CYCLE)},
};

static void check_only(WfCtx *ctx, const WfOptions *o)
{
    for (size_t i = 0; i < WF_LEN(only); i++) {
        const WfOptionRow *of = wf_option_find(only[i].of);
        int value = *(const int *)((const char *)o + of->offset);
        if (wf_option_origin(o, only[i].name) == WF_FROM_DEFAULT || only[i].allowed & BIT(value))
            continue;
        WfStr text = {.arena = o->arena};
        wf_option_text(o, of, &text);
        wf_fail_at(ctx, WF_E_OPTION_MEANINGLESS, NULL, wf_option_find(only[i].name)->help, "option %s has no meaning for %s %s",
                   only[i].name, only[i].of, text.at);
    }
}

static void check_optimizer(WfCtx *ctx, const WfOptions *o)
{
    for (int i = -1; i < o->groups.n; i++) {
        WfHyper h = i < 0 ? o->hyper : wf_options_hyper(o, o->groups.at[i].pattern);
        if (h.nesterov && (h.momentum <= 0 || h.dampening != 0))
            wf_fail(ctx, WF_E_OPTION_CONFLICT, "option nesterov needs momentum above 0 and no dampening");
    }
    if (o->update == WF_UPDATE_EARLY && o->clip_norm > 0)
        wf_fail_at(ctx, WF_E_OPTION_CONFLICT, NULL, "use clip-value, or leave update at late",
                   "update early cannot be used with clip-norm, which needs all gradients before the first update");
}

static void check_schedule(WfCtx *ctx, const WfOptions *o)
{
    if (o->steps && o->epochs)
        wf_fail(ctx, WF_E_OPTION_CONFLICT, "options steps and epochs are both given; one of them ends the training");
    if (o->schedule == WF_SCHEDULE_STEP && !o->step_size)
        wf_fail(ctx, WF_E_OPTION_CONFLICT, "schedule step needs the option step-size");
    if (o->min_lr > o->hyper.lr)
        wf_fail(ctx, WF_E_OPTION_CONFLICT, "option min-lr (%g) is above lr (%g)", o->min_lr, o->hyper.lr);
    int64_t total = o->total_steps ? o->total_steps : o->steps;
    bool ends = o->schedule == WF_SCHEDULE_LINEAR || o->schedule == WF_SCHEDULE_COSINE;
    if (ends && total && o->warmup_steps >= total)
        wf_fail(ctx, WF_E_OPTION_CONFLICT, "option warmup-steps (%lld) leaves nothing of the schedule's %lld steps",
                (long long)o->warmup_steps, (long long)total);
}

static void check_norm(WfCtx *ctx, const WfOptions *o)
{
    bool tokens = o->loss_norm == WF_NORM_TOKENS, uneven = o->last_batch != WF_LAST_DROP;
    if (tokens && o->reduction == WF_REDUCE_SUM)
        wf_fail_at(ctx, WF_E_OPTION_CONFLICT, NULL, "leave reduction at mean",
                   "option loss-norm: tokens divides by what a mean counts, but reduction sum counts nothing");
    if ((tokens || uneven) && o->grad_reduce == WF_GRADS_SUM)
        wf_fail_at(ctx, WF_E_OPTION_CONFLICT, NULL, "leave grad-reduce at mean",
                   "option %s divides by a count over all processes, which grad-reduce sum does not",
                   tokens ? "loss-norm tokens" : "last-batch");
    if (uneven && o->buffers == WF_BUFFERS_SYNC)
        wf_fail_at(ctx, WF_E_OPTION_CONFLICT, NULL, "leave last-batch at drop",
                   "option buffers: sync takes statistics of all rows of a step, also of those that last-batch does not count");
}

static void check_micro(WfCtx *ctx, const WfOptions *o)
{
    if (!o->micro_batch)
        return;
    char *end;
    long long n = strtoll(o->micro_batch, &end, 10);
    bool number = o->micro_batch[0] >= '0' && o->micro_batch[0] <= '9' && !*end && n >= 1 && n <= 1 << 30;
    if (!number && strcmp(o->micro_batch, "auto"))
        wf_fail_at(ctx, WF_E_OPTION_VALUE, NULL, wf_option_find("micro-batch")->help, "option micro-batch: \"%.60s\" is neither a "
                   "number of rows nor auto", o->micro_batch);
    if (number && wf_option_origin(o, "accumulate") != WF_FROM_DEFAULT)
        wf_fail(ctx, WF_E_OPTION_CONFLICT, "options micro-batch and accumulate both say how many micro-batches a step has");
    if (!number || o->deterministic != WF_DETERMINISTIC_ELASTIC)
        return;
    if (!o->batch_size)
        wf_fail_at(ctx, WF_E_OPTION_CONFLICT, NULL, "Say also how many rows a step of one process has, with batch-size.",
                   "option micro-batch: under deterministic elastic the micro-batches are what sums are made of, and their number "
                   "is part of the step");
    if (o->batch_size % n)
        wf_fail(ctx, WF_E_MICRO_BATCH, "--micro-batch %lld: a step of %lld rows cannot be taken in micro-batches of that size", n,
                (long long)o->batch_size);
}

/* How many micro-batches a process adds up in a step. */
static int64_t leaves(const WfOptions *o)
{
    int64_t rows = wf_options_micro(o);
    return o->accumulate == 1 && rows > 0 && o->batch_size ? o->batch_size / rows : o->accumulate;
}

void wf_options_settle(WfOptions *o)
{
    if (o->deterministic != WF_DETERMINISTIC_ELASTIC || wf_options_micro(o) <= 0)
        return;
    o->accumulate = leaves(o);
    o->batch_size = wf_options_micro(o);
}

void wf_options_check(WfCtx *ctx, const WfOptions *o)
{
    if (o->reduction == WF_REDUCE_BATCHMEAN && o->loss != WF_LOSS_KL_DIV)
        wf_fail(ctx, WF_E_OPTION_MEANINGLESS, "reduction batchmean exists for the loss kl_div only");
    if (o->soft_target && wf_option_origin(o, "ignore-index") != WF_FROM_DEFAULT)
        wf_fail(ctx, WF_E_OPTION_CONFLICT, "option ignore-index names a class, but with soft-target the target holds probabilities");
    check_only(ctx, o);
    check_optimizer(ctx, o);
    check_schedule(ctx, o);
    check_norm(ctx, o);
    check_micro(ctx, o);
    wf_device_core(ctx, o->device);
    int64_t own = leaves(o), all = o->nproc * own;
    if (o->deterministic == WF_DETERMINISTIC_ELASTIC && ((all & (all - 1)) || (own & (own - 1))))
        wf_fail_at(ctx, WF_E_OPTION_CONFLICT, NULL, "Choose nproc and accumulate among 1, 2, 4, 8, ...",
                   "option deterministic: elastic adds up in a binary tree, but %lld processes of %lld micro-batches are no "
                   "power of two",
                   (long long)o->nproc, (long long)own);
}

/* ---- help ---- */

enum { HELP_COLUMN = 34, HELP_WIDTH = 110 };

static void put_wrapped(WfStr *out, const char *text, int column)
{
    while (*text) {
        size_t n = strcspn(text, " ");
        if (column + (int)n > HELP_WIDTH) {
            wf_str_printf(out, "\n%*s", HELP_COLUMN, "");
            column = HELP_COLUMN;
        }
        wf_str_putn(out, text, n);
        column += (int)n;
        text += n;
        if (*text == ' ') {
            wf_str_putc(out, *text++);
            column++;
        }
    }
}

/* Long lists of words are told with the meaning. */
static bool long_list(const WfOptionRow *row)
{
    return row->kind == WF_OPTION_ENUM && strlen(row->choices) > HELP_COLUMN - 14;
}

const char *wf_option_argument(const WfOptionRow *row)
{
    return long_list(row) ? "NAME" : row->choices;
}

void wf_option_meaning(const WfOptionRow *row, WfStr *out)
{
    bool on = row->kind == WF_OPTION_BOOL && !strcmp(row->fallback, "true");
    const char *colon = on ? strstr(row->help, ": ") : NULL; /* "several processes: do not ..." */
    int scope = colon ? (int)(colon + 2 - row->help) : 0;
    wf_str_printf(out, "%.*s%s%s", scope, row->help, on ? "do not " : "", row->help + scope);
    if (long_list(row))
        wf_str_printf(out, ": %s", row->choices);
    bool number = row->kind == WF_OPTION_INT || row->kind == WF_OPTION_FLOAT || row->kind == WF_OPTION_FLOATS;
    bool word = row->fallback[0] == 'a' || row->fallback[0] == 'n';
    if (row->kind == WF_OPTION_ENUM || (number && !word && !strstr(row->help, "default")))
        wf_str_printf(out, " (default: %s)", row->fallback);
}

static void put_row(WfStr *out, const WfOptionRow *row)
{
    bool on = row->kind == WF_OPTION_BOOL && !strcmp(row->fallback, "true");
    size_t start = out->n;
    wf_str_printf(out, "  --%s%s", on ? "no-" : "", row->name);
    if (row->kind != WF_OPTION_BOOL)
        wf_str_printf(out, " %s", wf_option_argument(row));
    int column = (int)(out->n - start);
    wf_str_printf(out, "%*s", column < HELP_COLUMN ? HELP_COLUMN - column : 2, "");
    column = column < HELP_COLUMN ? HELP_COLUMN : column + 2;
    WfStr text = {.arena = out->arena};
    wf_option_meaning(row, &text);
    put_wrapped(out, text.at, column);
    wf_str_putc(out, '\n');
}

const char *wf_option_group_title(WfOptionGroup group)
{
    static const char *const titles[WF_GROUPS] = {"Model and loss", "Optimiser", "Schedule", "Run", "Training loop", "Data", "Sampling", "Output",
                                                  "Results", "Compiler", "Cache", "Compiled step", "Graph", "Form", "Pass", "Bench", "For a host program"};
    return titles[group];
}

void wf_options_help(WfStr *out, unsigned groups)
{
    for (int g = 0; g < WF_GROUPS; g++) {
        if (!(groups & BIT(g)))
            continue;
        wf_str_printf(out, "\n%s:\n", wf_option_group_title((WfOptionGroup)g));
        for (const WfOptionRow *r = wf_option_table; r->name; r++)
            if ((int)r->group == g)
                put_row(out, r);
    }
}
