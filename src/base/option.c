/* Options: every setting of Weft is one row of one table, which gives its name, type, range, default, help and where it
 * lies in WfOptions. The command line, weft_set(), the banner that shows where each value came from, the help text and
 * the key of an executable are all read from it, so they cannot drift apart. Numbers are read in the C locale, whatever
 * the host program set. Rules between options stand in usage.c. */
#include <fnmatch.h>
#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/inner.h"

#define AT(field) offsetof(WfOptions, field)
#define PLAN true
#define SCALAR false /* read at run time or outside the step: the same compiled step serves all values */
#define ANY -INFINITY, INFINITY, 3
#define FROM(lo) (lo), INFINITY, 2
#define ABOVE(lo) (lo), INFINITY, 3
#define COUNT(lo) (lo), 9007199254740992.0, 0 /* 2^53: exact as double */
#define NO_RANGE 0, 0, 0

const WfOptionRow wf_option_table[] = {
    /* model */
    {"loss", WF_OPTION_ENUM, WF_GROUP_MODEL, PLAN, AT(loss), "none",
     "none|cross_entropy|nll|mse|l1|smooth_l1|huber|bce|bce_with_logits|kl_div", NO_RANGE,
     "loss of the model's first output; none: that output is the loss already"},
    {"target", WF_OPTION_STRING, WF_GROUP_MODEL, PLAN, AT(target), "", "NAME", NO_RANGE,
     "name of the input that holds the loss's target (default: y)"},
    {"reduction", WF_OPTION_ENUM, WF_GROUP_MODEL, PLAN, AT(reduction), "mean", "mean|sum|batchmean", NO_RANGE,
     "how the loss is reduced; batchmean: kl_div only"},
    {"label-smoothing", WF_OPTION_FLOAT, WF_GROUP_MODEL, PLAN, AT(label_smoothing), "0", "X", 0, 1, 0,
     "cross_entropy: share of the target spread over all classes"},
    {"ignore-index", WF_OPTION_INT, WF_GROUP_MODEL, PLAN, AT(ignore_index), "-100", "N", -9007199254740992.0,
     9007199254740992.0, 0, "cross_entropy, nll: target value that counts for nothing"},
    {"loss-weights", WF_OPTION_STRING, WF_GROUP_MODEL, PLAN, AT(loss_weights), "", "FILE", NO_RANGE,
     "cross_entropy, nll, bce, bce_with_logits: safetensors file with one tensor, the weights"},
    {"pos-weight", WF_OPTION_STRING, WF_GROUP_MODEL, PLAN, AT(pos_weight), "", "FILE", NO_RANGE,
     "bce_with_logits: safetensors file with one tensor, what positive targets weigh"},
    {"soft-target", WF_OPTION_BOOL, WF_GROUP_MODEL, PLAN, AT(soft_target), "false", "", NO_RANGE,
     "cross_entropy: the target is a probability of each class, not a class"},
    {"log-target", WF_OPTION_BOOL, WF_GROUP_MODEL, PLAN, AT(log_target), "false", "", NO_RANGE,
     "kl_div: the target is given as logarithms"},
    {"beta", WF_OPTION_FLOAT, WF_GROUP_MODEL, PLAN, AT(beta), "1", "X", FROM(0),
     "smooth_l1: where the square turns into a line"},
    {"delta", WF_OPTION_FLOAT, WF_GROUP_MODEL, PLAN, AT(delta), "1", "X", ABOVE(0),
     "huber: where the square turns into a line"},
    {"predictions", WF_OPTION_INT, WF_GROUP_MODEL, PLAN, AT(predictions), "-1", "N", -1, 4096, 0,
     "output of forward, from 0, that --loss is of and that counts as predictions (default: 0; without --loss, what the model's own loss "
     "is of)"},
    {"weights", WF_OPTION_STRING, WF_GROUP_MODEL, SCALAR, AT(weights), "", "FILE", NO_RANGE,
     "start from these weights instead of the model's: safetensors, an index of several (*.index.json), or the folder of a "
     "model.safetensors"},
    {"strict", WF_OPTION_BOOL, WF_GROUP_MODEL, SCALAR, AT(strict), "true", "", NO_RANGE,
     "ask of files of weights and optimiser state that they hold the model's tensors, all and no others; what is missing stays as it "
     "is, what is more is left out, and both are listed"},
    {"accept-lost-stopgrad", WF_OPTION_BOOL, WF_GROUP_MODEL, PLAN, AT(accept_lost_stopgrad), "false", "", NO_RANGE,
     "train although the export dropped a detach or no_grad"},

    /* optimiser */
    {"optimizer", WF_OPTION_ENUM, WF_GROUP_OPTIMISER, PLAN, AT(optimizer), "adamw", "sgd|adam|adamw|rmsprop|adagrad",
     NO_RANGE, "torch.optim's optimiser of that name"},
    {"lr", WF_OPTION_FLOAT, WF_GROUP_OPTIMISER, SCALAR, AT(hyper.lr), "0.001", "X", FROM(0),
     "learning rate (rmsprop and adagrad: 0.01)"},
    {"betas", WF_OPTION_FLOATS, WF_GROUP_OPTIMISER, PLAN, AT(hyper.beta1), "0.9,0.999", "X,Y", 0, 1, 2,
     "adam, adamw: decay of the first and the second moment"},
    {"eps", WF_OPTION_FLOAT, WF_GROUP_OPTIMISER, PLAN, AT(hyper.eps), "1e-08", "X", FROM(0),
     "added to the denominator (adagrad: 1e-10)"},
    {"weight-decay", WF_OPTION_FLOAT, WF_GROUP_OPTIMISER, PLAN, AT(hyper.weight_decay), "0", "X", FROM(0),
     "decay of the weights (adamw: decoupled, 0.01)"},
    {"momentum", WF_OPTION_FLOAT, WF_GROUP_OPTIMISER, PLAN, AT(hyper.momentum), "0", "X", FROM(0), "sgd, rmsprop"},
    {"dampening", WF_OPTION_FLOAT, WF_GROUP_OPTIMISER, PLAN, AT(hyper.dampening), "0", "X", ANY, "sgd, of momentum"},
    {"nesterov", WF_OPTION_BOOL, WF_GROUP_OPTIMISER, PLAN, AT(hyper.nesterov), "false", "", NO_RANGE,
     "sgd: Nesterov's momentum"},
    {"amsgrad", WF_OPTION_BOOL, WF_GROUP_OPTIMISER, PLAN, AT(hyper.amsgrad), "false", "", NO_RANGE,
     "adam, adamw: the largest second moment so far"},
    {"maximize", WF_OPTION_BOOL, WF_GROUP_OPTIMISER, PLAN, AT(hyper.maximize), "false", "", NO_RANGE,
     "go up the gradient"},
    {"alpha", WF_OPTION_FLOAT, WF_GROUP_OPTIMISER, PLAN, AT(hyper.alpha), "0.99", "X", 0, 1, 0,
     "rmsprop: decay of the squared gradient"},
    {"centered", WF_OPTION_BOOL, WF_GROUP_OPTIMISER, PLAN, AT(hyper.centered), "false", "", NO_RANGE,
     "rmsprop: divide by the estimated variance"},
    {"lr-decay", WF_OPTION_FLOAT, WF_GROUP_OPTIMISER, PLAN, AT(hyper.lr_decay), "0", "X", FROM(0),
     "adagrad: decay of the learning rate"},
    {"initial-accumulator-value", WF_OPTION_FLOAT, WF_GROUP_OPTIMISER, PLAN, AT(hyper.initial_accumulator), "0", "X",
     FROM(0), "adagrad: start of the squared sum"},
    {"param-group", WF_OPTION_GROUPS, WF_GROUP_OPTIMISER, PLAN, AT(groups), "", "GLOB:NAME=X,...", NO_RANGE,
     "other values for parameters whose name matches, e.g. '*.bias:weight-decay=0'; betas=X/Y; repeatable, the first "
     "match counts"},
    {"optimizer-state", WF_OPTION_STRING, WF_GROUP_OPTIMISER, SCALAR, AT(optimizer_state), "", "FILE", NO_RANGE,
     "go on from an optimiser's state (safetensors, docs/exchange.md); bias corrections and schedule continue at its step"},
    {"schedule", WF_OPTION_ENUM, WF_GROUP_SCHEDULE, SCALAR, AT(schedule), "constant",
     "constant|linear|cosine|step|one-cycle", NO_RANGE, "course of the learning rate"},
    {"warmup-steps", WF_OPTION_INT, WF_GROUP_SCHEDULE, SCALAR, AT(warmup_steps), "0", "N", COUNT(0),
     "raise the learning rate linearly over the first N steps"},
    {"min-lr", WF_OPTION_FLOAT, WF_GROUP_SCHEDULE, SCALAR, AT(min_lr), "0", "X", FROM(0),
     "linear, cosine: where the learning rate ends"},
    {"step-size", WF_OPTION_INT, WF_GROUP_SCHEDULE, SCALAR, AT(step_size), "none", "N", COUNT(1),
     "step: steps between two cuts"},
    {"gamma", WF_OPTION_FLOAT, WF_GROUP_SCHEDULE, SCALAR, AT(gamma), "0.1", "X", ABOVE(0), "step: factor of a cut"},
    {"max-lr", WF_OPTION_FLOAT, WF_GROUP_SCHEDULE, SCALAR, AT(max_lr), "none", "X", ABOVE(0),
     "one-cycle: the peak (default: lr)"},
    {"pct-start", WF_OPTION_FLOAT, WF_GROUP_SCHEDULE, SCALAR, AT(pct_start), "0.3", "X", 0, 1, 0,
     "one-cycle: share of the steps that rise"},
    {"total-steps", WF_OPTION_INT, WF_GROUP_SCHEDULE, SCALAR, AT(total_steps), "auto", "N", COUNT(1),
     "length of the schedule (default: the length of the training)"},
    {"clip-norm", WF_OPTION_FLOAT, WF_GROUP_OPTIMISER, PLAN, AT(clip_norm), "none", "X", ABOVE(0),
     "limit of the gradients' norm, as clip_grad_norm_"},
    {"clip-value", WF_OPTION_FLOAT, WF_GROUP_OPTIMISER, PLAN, AT(clip_value), "none", "X", ABOVE(0),
     "limit of each gradient element, as clip_grad_value_"},
    {"update", WF_OPTION_ENUM, WF_GROUP_OPTIMISER, PLAN, AT(update), "late", "late|early", NO_RANGE,
     "early: update each parameter as soon as its gradient is there (less memory; no retry of a step)"},

    /* run */
    {"steps", WF_OPTION_INT, WF_GROUP_LOOP, SCALAR, AT(steps), "none", "N", COUNT(1), "train for N steps"},
    {"epochs", WF_OPTION_INT, WF_GROUP_LOOP, SCALAR, AT(epochs), "none", "N", COUNT(1),
     "train for N passes over the data (default: 1, when no steps are given)"},
    {"batch-size", WF_OPTION_INT, WF_GROUP_RUN, SCALAR, AT(batch_size), "auto", "N", 1, 1 << 30, 0,
     "samples in a step, or in a micro-batch of it (default: the export's)"},
    {"accumulate", WF_OPTION_INT, WF_GROUP_RUN, PLAN, AT(accumulate), "1", "K", 1, 65536, 0,
     "micro-batches in a step: their mean gradient is reduced, clipped and applied once"},
    {"micro-batch", WF_OPTION_STRING, WF_GROUP_RUN, SCALAR, AT(micro_batch), "", "N|auto", NO_RANGE,
     "a step takes batch-size rows in micro-batches of N, which divides it; auto: of as many rows as the memory available "
     "allows when the step begins (under elastic: as accumulate says)"},
    {"loss-norm", WF_OPTION_ENUM, WF_GROUP_RUN, PLAN, AT(loss_norm), "mean", "mean|tokens", NO_RANGE,
     "mean: of the means of all micro-batches and processes; tokens: one mean over all that their losses count"},
    {"seed", WF_OPTION_INT, WF_GROUP_RUN, SCALAR, AT(seed), "0", "N", COUNT(0), "of shuffling and of random ops"},
    {"threads", WF_OPTION_INT, WF_GROUP_RUN, SCALAR, AT(threads), "auto", "N", 1, 1024, 0,
     "threads of a step (default: all cores); results do not depend on it"},
    {"nproc", WF_OPTION_INT, WF_GROUP_RUN, PLAN, AT(nproc), "1", "N", 1, 65536, 0, "processes of this training"},
    {"device", WF_OPTION_STRING, WF_GROUP_RUN, PLAN, AT(device), "cpu", "DEVICE", NO_RANGE,
     "where a step's memory lies: cpu (wherever the system puts it) or core:N (bound to the memory of core N)"},
    {"grad-reduce", WF_OPTION_ENUM, WF_GROUP_RUN, PLAN, AT(grad_reduce), "mean", "mean|sum", NO_RANGE,
     "several processes: what becomes of their gradients"},
    {"buffers", WF_OPTION_ENUM, WF_GROUP_RUN, PLAN, AT(buffers), "rank0", "rank0|mean|none|sync", NO_RANGE,
     "several processes: buffers that a step changes are taken from rank 0, or averaged, before every step; sync: as rank0, "
     "and batch norms take the statistics of all ranks' batches together"},
    {"group", WF_OPTION_STRINGS, WF_GROUP_RUN, PLAN, AT(rank_groups), "", "NAME=R,R/R,R", NO_RANGE,
     "several processes: which ranks a group that the model names is made of: tp=0,1/2,3 are two groups of two (ranges too: "
     "0-1/2-3); repeatable. dp and PyTorch's 0 are all ranks"},
    {"bucket-mb", WF_OPTION_FLOAT, WF_GROUP_RUN, PLAN, AT(bucket_mb), "-1", "X", FROM(-1),
     "several processes: size of the buckets that gradients travel in (-1: the planner's choice, 0: each on its own)"},
    {"overlap", WF_OPTION_BOOL, WF_GROUP_RUN, PLAN, AT(overlap), "true", "", NO_RANGE,
     "several processes: send gradients while others are still computed"},
    {"init-sync", WF_OPTION_BOOL, WF_GROUP_RUN, SCALAR, AT(init_sync), "true", "", NO_RANGE,
     "several processes: all start from rank 0's weights and buffers"},
    {"check-replicas", WF_OPTION_INT, WF_GROUP_LOOP, SCALAR, AT(check_replicas), "none", "N", COUNT(1),
     "several processes: compare their weights every N steps"},
    {"check-finite", WF_OPTION_BOOL, WF_GROUP_RUN, SCALAR, AT(check_finite), "false", "", NO_RANGE,
     "stop at the first step whose loss or gradient is not finite"},
    {"deterministic", WF_OPTION_ENUM, WF_GROUP_RUN, PLAN, AT(deterministic), "fixed", "fixed|elastic", NO_RANGE,
     "fixed: the same bits on the same number of processes; elastic: on 1, 2, 4, .. processes with the same nproc x accumulate"},

    /* data */
    {"data", WF_OPTION_STRINGS, WF_GROUP_DATA, SCALAR, AT(data), "", "[NAME=]FILE", NO_RANGE,
     "training data: safetensors, .npz, .npy, IDX, tables (.csv, .tsv), tokens (.bin), text (.txt), a folder of pictures; NAME: "
     "the model input that it feeds (x,y=FILE: tokens and those that follow, pictures and classes); a glob or a folder for many "
     "files; repeatable (docs/data.md)"},
    {"eval-data", WF_OPTION_STRINGS, WF_GROUP_LOOP, SCALAR, AT(eval_data), "", "[NAME=]FILE", NO_RANGE,
     "data to evaluate with after every epoch, as --data; repeatable"},
    {"recipe", WF_OPTION_STRING, WF_GROUP_DATA, SCALAR, AT(recipe), "", "FILE", NO_RANGE,
     "YAML file: what is done to the data of each input (scale, mean and std, crop, flip, one-hot, columns, ...; docs/data.md); weft run and "
     "eval: by default that beside --weights; none: without"},
    {"shuffle", WF_OPTION_BOOL, WF_GROUP_LOOP, SCALAR, AT(shuffle), "true", "", NO_RANGE,
     "visit the samples in another order in each epoch"},
    {"last-batch", WF_OPTION_ENUM, WF_GROUP_RUN, PLAN, AT(last_batch), "drop", "drop|pad|short", NO_RANGE,
     "samples that do not fill an epoch's last step: left out; a step filled up with rows that count for nothing; a step of "
     "fewer rows, for exports with a dynamic batch size"},

    {"metrics", WF_OPTION_STRING, WF_GROUP_DATA, SCALAR, AT(metrics), "", "NAME,...", NO_RANGE,
     "what evaluations compute: loss, perplexity, accuracy, top5 (any number), f1 (mean over the classes), mse, mae (default: the "
     "loss, and accuracy where there are classes)"},
    {"best-metric", WF_OPTION_STRING, WF_GROUP_LOOP, SCALAR, AT(best_metric), "", "NAME", NO_RANGE,
     "what best.safetensors is the best of (default: accuracy where there is one, else the loss)"},
    {"early-stop", WF_OPTION_INT, WF_GROUP_LOOP, SCALAR, AT(early_stop), "none", "N", COUNT(1),
     "stop after N evaluations in a row that were not the best"},

    /* sampling */
    {"sample", WF_OPTION_INT, WF_GROUP_SAMPLE, SCALAR, AT(sample), "none", "N", COUNT(1),
     "print N bytes drawn from a model of bytes, instead of predictions of data"},
    {"prompt", WF_OPTION_STRING, WF_GROUP_SAMPLE, SCALAR, AT(prompt), "", "TEXT", NO_RANGE,
     "what the sample begins with (default: a new line)"},
    {"temperature", WF_OPTION_FLOAT, WF_GROUP_SAMPLE, SCALAR, AT(temperature), "1", "X", FROM(0),
     "scores are divided by it; 0: always the likeliest byte"},
    {"top-k", WF_OPTION_INT, WF_GROUP_SAMPLE, SCALAR, AT(top_k), "none", "N", COUNT(1), "draw from the N likeliest bytes only"},

    /* output */
    {"config", WF_OPTION_STRING, WF_GROUP_OUTPUT, SCALAR, AT(config), "", "FILE", NO_RANGE,
     "take options from this YAML file (`lr: 3e-4`; `model: FILE` too); flags overrule it"},
    {"print-config", WF_OPTION_BOOL, WF_GROUP_OUTPUT, SCALAR, AT(print_config), "false", "", NO_RANGE,
     "print all options and where each comes from, as such a file, and stop"},
    {"dry-run", WF_OPTION_BOOL, WF_GROUP_LOOP, SCALAR, AT(dry_run), "false", "", NO_RANGE,
     "weft train: compile, read the data, print what would run and its memory, and stop; nothing is written to --out"},
    {"out", WF_OPTION_STRING, WF_GROUP_OUTPUT, SCALAR, AT(out), "", "PATH", NO_RANGE, "where results go; also -o. A file of the same kind is replaced, as a whole; others, and what is read, are left alone. weft train: a new or "
     "empty folder"},
    {"log-every", WF_OPTION_INT, WF_GROUP_LOOP, SCALAR, AT(log_every), "10", "N", COUNT(1), "steps between lines"},
    {"checkpoint-every", WF_OPTION_INT, WF_GROUP_LOOP, SCALAR, AT(checkpoint_every), "none", "N", COUNT(1),
     "write a checkpoint to OUT/checkpoints every N steps, at the end, and on Ctrl-C"},
    {"keep-checkpoints", WF_OPTION_INT, WF_GROUP_LOOP, SCALAR, AT(keep_checkpoints), "3", "N", COUNT(1),
     "checkpoints that are kept, the newest ones"},
    {"resume", WF_OPTION_STRING, WF_GROUP_LOOP, SCALAR, AT(resume), "", "PATH", NO_RANGE,
     "go on from the newest whole checkpoint of this folder (--out of an earlier run; without one, from step 0)"},
    {"save-optimizer", WF_OPTION_BOOL, WF_GROUP_LOOP, SCALAR, AT(save_optimizer), "false", "", NO_RANGE,
     "write the optimiser's state at the end, too, to OUT/optimizer.safetensors (for --optimizer-state and tools/state.py)"},
    {"tensorboard", WF_OPTION_BOOL, WF_GROUP_LOOP, SCALAR, AT(tensorboard), "true", "", NO_RANGE,
     "write an event file for TensorBoard to OUT, beside metrics.jsonl"},
    {"json", WF_OPTION_BOOL, WF_GROUP_JSON, SCALAR, AT(json), "false", "", NO_RANGE,
     "results, and an error that ends it, as a JSON object on stdout"},
    {"no-weights", WF_OPTION_BOOL, WF_GROUP_STEP, SCALAR, AT(no_weights), "false", "", NO_RANGE,
     "leave the initial weights out of the compiled step"},

    /* compile */
    {"isa", WF_OPTION_ENUM, WF_GROUP_COMPILE, PLAN, AT(isa), "auto", "auto|v3|v4|v3,v4|amx", NO_RANGE,
     "instruction set: v3 (AVX2), v4 (AVX-512), the better that is there, or both; the bits are the same. amx: v4, and large products on "
     "AMX tiles, with bits of their own; faster where no other program uses the core"},
    {"cache", WF_OPTION_BOOL, WF_GROUP_COMPILE, SCALAR, AT(cache), "true", "", NO_RANGE,
     "use compiled kernels of earlier runs"},
    {"cache-dir", WF_OPTION_STRING, WF_GROUP_CACHE, SCALAR, AT(cache_dir), "", "PATH", NO_RANGE,
     "where compiled kernels are kept"},
    {"dump-dir", WF_OPTION_STRING, WF_GROUP_COMPILE, SCALAR, AT(dump_dir), "", "PATH", NO_RANGE,
     "write the graph after every pass"},
    {"forward-only", WF_OPTION_BOOL, WF_GROUP_COMPILE, PLAN, AT(forward_only), "false", "", NO_RANGE,
     "compile the evaluation form alone, for weft run"},
    {"halves", WF_OPTION_ENUM, WF_GROUP_HOST, PLAN, AT(halves), "none", "none|both|forward|backward", NO_RANGE,
     "two programs instead of a step, forward and backward, for a host that differentiates (weft_run_forward); weft graph, weft opt: "
     "forward or backward says which to show"},
    {"after", WF_OPTION_STRING, WF_GROUP_GRAPH, SCALAR, AT(after), "", "PASS", NO_RANGE,
     "show the graph after this pass"},
    {"eval", WF_OPTION_BOOL, WF_GROUP_FORM, SCALAR, AT(eval), "false", "", NO_RANGE,
     "the evaluation form instead of the training step"},
    {"reduce", WF_OPTION_BOOL, WF_GROUP_BENCH, SCALAR, AT(reduce), "true", "", NO_RANGE,
     "reduce gradients in every second step, to compare; replicas drift"},
    {"machine", WF_OPTION_BOOL, WF_GROUP_BENCH, SCALAR, AT(machine_bench), "false", "", NO_RANGE,
     "measure this machine for the planner"},
    {"micro", WF_OPTION_BOOL, WF_GROUP_FORM, SCALAR, AT(micro), "false", "", NO_RANGE,
     "with --accumulate, the form of all micro-batches but a step's last"},
    {"run", WF_OPTION_STRING, WF_GROUP_PASS, SCALAR, AT(run), "", "PASS", NO_RANGE,
     "the pass to run; print: none"},
    {NULL, 0, 0, false, 0, NULL, NULL, 0, 0, 0, NULL},
};
_Static_assert(WF_LEN(wf_option_table) - 1 <= WF_OPTION_ROWS, "WF_OPTION_ROWS is too small");

const WfOptionRow *wf_option_find(const char *name)
{
    for (const WfOptionRow *r = wf_option_table; r->name; r++)
        if (!strcmp(r->name, name))
            return r;
    return NULL;
}

static bool is_hyper(const WfOptionRow *row)
{
    return row->offset >= AT(hyper) && row->offset < AT(hyper) + sizeof(WfHyper);
}

/* The bit of a hyperparameter's row in WfParamGroup.set. */
static unsigned hyper_bit(const WfOptionRow *row)
{
    unsigned bit = 1;
    for (const WfOptionRow *r = wf_option_table; r != row; r++)
        if (is_hyper(r))
            bit <<= 1;
    return bit;
}

/* ---- text -> value ---- */

static void bad_value(WfCtx *ctx, const WfOptionRow *row, const char *value, const char *want) WF_NORETURN;
static void bad_value(WfCtx *ctx, const WfOptionRow *row, const char *value, const char *want)
{
    wf_fail_at(ctx, WF_E_OPTION_VALUE, NULL, row->help, "option %s: \"%.60s\" is not %s", row->name, value, want);
}

static void parse_bool(WfCtx *ctx, const WfOptionRow *row, const char *value, bool *out)
{
    static const char *const yes[] = {"true", "1", "yes", "on"}, *const no[] = {"false", "0", "no", "off"};
    for (size_t i = 0; i < WF_LEN(yes); i++) {
        if (!strcmp(value, yes[i]) || !strcmp(value, no[i])) {
            *out = !strcmp(value, yes[i]);
            return;
        }
    }
    bad_value(ctx, row, value, "true or false");
}

/* Reads all of text[0..n) as a number; false when it is none. Neither NaN nor infinity is a number here. */
static bool read_number(const char *text, size_t n, bool whole, double *out, int64_t *integer)
{
    char copy[64], *end;
    if (n == 0 || n >= sizeof copy || strchr(" \t\n", text[0]))
        return false;
    memcpy(copy, text, n);
    copy[n] = 0;
    if (whole) {
        *integer = strtoll(copy, &end, 10);
        *out = (double)*integer;
        return *end == 0 && end != copy;
    }
    locale_t c = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    if (c == (locale_t)0)
        return false;
    *out = strtod_l(copy, &end, c);
    freelocale(c);
    return *end == 0 && end != copy && isfinite(*out);
}

static void check_range(WfCtx *ctx, const WfOptionRow *row, const char *value, double v)
{
    bool low = row->open & 1 ? v <= row->lo : v < row->lo, high = row->open & 2 ? v >= row->hi : v > row->hi;
    if (!low && !high)
        return;
    char lo[40] = "", hi[40] = "";
    if (isfinite(row->lo))
        snprintf(lo, sizeof lo, " %s %g", row->open & 1 ? "above" : "at least", row->lo);
    if (isfinite(row->hi))
        snprintf(hi, sizeof hi, "%s %s %g", *lo ? " and" : "", row->open & 2 ? "below" : "at most", row->hi);
    wf_fail_at(ctx, WF_E_OPTION_RANGE, NULL, row->help, "option %s: %.60s is out of range; it must be%s%s", row->name, value,
               lo, hi);
}

static void parse_number(WfCtx *ctx, const WfOptionRow *row, const char *value, void *field)
{
    bool whole = row->kind == WF_OPTION_INT;
    double v = 0;
    int64_t integer = 0;
    if (!wf_option_word(row, value)) {
        if (!read_number(value, strlen(value), whole, &v, &integer))
            bad_value(ctx, row, value, whole ? "a whole number" : "a number");
        check_range(ctx, row, value, v);
    }
    if (whole)
        *(int64_t *)field = integer;
    else
        *(double *)field = v;
}

/* Two numbers, separated by a comma or (where commas separate options) by a slash. */
static void parse_pair(WfCtx *ctx, const WfOptionRow *row, const char *value, double *out)
{
    size_t n = strcspn(value, ",/");
    int64_t unused;
    double v[2];
    if (!value[n] || !read_number(value, n, false, &v[0], &unused) ||
        !read_number(value + n + 1, strlen(value + n + 1), false, &v[1], &unused))
        bad_value(ctx, row, value, "two numbers, such as 0.9,0.999");
    check_range(ctx, row, value, v[0]);
    check_range(ctx, row, value, v[1]);
    memcpy(out, v, sizeof v);
}

static void parse_enum(WfCtx *ctx, const WfOptionRow *row, const char *value, int *out)
{
    size_t n = strlen(value);
    int i = 0;
    for (const char *c = row->choices; c; i++) {
        const char *bar = strchr(c, '|');
        if (n == (bar ? (size_t)(bar - c) : strlen(c)) && !memcmp(c, value, n)) {
            *out = i;
            return;
        }
        c = bar ? bar + 1 : NULL;
    }
    wf_fail_at(ctx, WF_E_OPTION_VALUE, NULL, row->help, "option %s: \"%.60s\" is not one of %s", row->name, value,
               row->choices);
}

static void parse_group(WfCtx *ctx, WfOptions *o, const WfOptionRow *row, const char *value);

/* Reads `value` into `field`, which has the type that the row's kind says. */
static void parse_field(WfCtx *ctx, WfOptions *o, const WfOptionRow *row, const char *value, void *field)
{
    switch (row->kind) {
    case WF_OPTION_BOOL:
        parse_bool(ctx, row, value, field);
        break;
    case WF_OPTION_INT:
    case WF_OPTION_FLOAT:
        parse_number(ctx, row, value, field);
        break;
    case WF_OPTION_FLOATS:
        parse_pair(ctx, row, value, field);
        break;
    case WF_OPTION_ENUM:
        parse_enum(ctx, row, value, field);
        break;
    case WF_OPTION_STRING:
        *(char **)field = *value ? wf_arena_strdup(o->arena, value) : NULL;
        break;
    case WF_OPTION_STRINGS:
        if (!*value)
            bad_value(ctx, row, value, row->choices);
        WF_PUSH(o->arena, (WfStrings *)field, wf_arena_strdup(o->arena, value));
        break;
    case WF_OPTION_GROUPS:
        parse_group(ctx, o, row, value);
        break;
    }
}

/* GLOB:name=value,... with the names of the hyperparameter rows. */
static void parse_group(WfCtx *ctx, WfOptions *o, const WfOptionRow *row, const char *value)
{
    const char *colon = strrchr(value, ':');
    if (!colon || colon == value || !colon[1])
        bad_value(ctx, row, value, "GLOB:NAME=X,..., such as '*.bias:weight-decay=0'");
    WfParamGroup g = {.pattern = wf_arena_strndup(o->arena, value, (size_t)(colon - value)),
                      .text = wf_arena_strdup(o->arena, colon + 1)};
    char *words = wf_arena_strdup(o->arena, g.text), *save = NULL;
    for (char *word = strtok_r(words, ",", &save); word; word = strtok_r(NULL, ",", &save)) {
        char *equals = strchr(word, '=');
        if (!equals)
            bad_value(ctx, row, value, "GLOB:NAME=X,...");
        *equals = 0;
        const WfOptionRow *r = wf_option_find(word);
        if (!r || !is_hyper(r))
            wf_fail(ctx, WF_E_PARAM_GROUP, "option param-group: \"%.60s\" is no setting of a parameter group", word);
        parse_field(ctx, o, r, equals + 1, (char *)&g.hyper + (r->offset - AT(hyper)));
        g.set |= hyper_bit(r);
    }
    WF_PUSH(o->arena, &o->groups, g);
}

/* ---- defaults ---- */

/* PyTorch 2.x's defaults where the table's are not those of this optimiser. */
static const char *default_text(const WfOptionRow *row, WfOptim optimizer)
{
    if (!strcmp(row->name, "lr") && (optimizer == WF_OPTIM_RMSPROP || optimizer == WF_OPTIM_ADAGRAD))
        return "0.01";
    if (!strcmp(row->name, "eps") && optimizer == WF_OPTIM_ADAGRAD)
        return "1e-10";
    if (!strcmp(row->name, "weight-decay") && optimizer == WF_OPTIM_ADAMW)
        return "0.01";
    return row->fallback;
}

static void default_hypers(WfCtx *ctx, WfOptions *o)
{
    for (const WfOptionRow *r = wf_option_table; r->name; r++)
        if (is_hyper(r) && o->origin[r - wf_option_table] == WF_FROM_DEFAULT)
            parse_field(ctx, o, r, default_text(r, o->optimizer), (char *)o + r->offset);
}

void wf_options_init(WfCtx *ctx, WfArena *a, WfOptions *o)
{
    memset(o, 0, sizeof *o);
    o->arena = a;
    for (const WfOptionRow *r = wf_option_table; r->name; r++)
        if (r->kind != WF_OPTION_STRINGS && r->kind != WF_OPTION_GROUPS)
            parse_field(ctx, o, r, r->fallback, (char *)o + r->offset);
    default_hypers(ctx, o);
    wf_machine_default(&o->machine);
}

static void unknown_option(WfCtx *ctx, const char *name) WF_NORETURN;
static void unknown_option(WfCtx *ctx, const char *name)
{
    static const struct { const char *other, *name; } called[] = { /* by other programs */
        {"learning-rate", "lr"}, {"learning_rate", "lr"}, {"wd", "weight-decay"}, {"lr-scheduler", "schedule"}, {"scheduler", "schedule"},
        {"lr-scheduler-type", "schedule"}, {"warmup", "warmup-steps"}, {"max-steps", "steps"}, {"iterations", "steps"}, {"num-epochs", "epochs"},
        {"num-train-epochs", "epochs"}, {"max-epochs", "epochs"}, {"bs", "batch-size"}, {"b", "batch-size"}, {"train-data", "data"},
        {"val-data", "eval-data"}, {"valid-data", "eval-data"}, {"validation-data", "eval-data"}, {"output", "out"}, {"output-dir", "out"},
        {"save-steps", "checkpoint-every"}, {"logging-steps", "log-every"}, {"gradient-accumulation-steps", "accumulate"},
        {"grad-accum", "accumulate"}, {"max-grad-norm", "clip-norm"}, {"grad-clip", "clip-norm"}, {"gpus", "nproc"}, {"num-threads", "threads"},
        {"num-processes", "nproc"}, {"nproc-per-node", "nproc"}, {"opt", "optimizer"}, {"optim", "optimizer"}, {"criterion", "loss"},
        {"loss-output", "predictions"}, {"output-index", "predictions"}, {"resume-from-checkpoint", "resume"}, {"checkpoint", "resume"},
        {"patience", "early-stop"}, {"load", "weights"}, {"pretrained", "weights"}, {"label", "target"}, {"labels", "target"},
        {"beta1", "betas"}, {"beta2", "betas"}, {"random-seed", "seed"}};
    for (size_t i = 0; i < WF_LEN(called); i++)
        if (!strcmp(name, called[i].other))
            wf_fail_at(ctx, WF_E_OPTION_UNKNOWN, NULL, wf_arena_printf(wf_arena_scratch(ctx), "it is called %s here", called[i].name),
                       "unknown option \"%.60s\"", name);
    const char *names[WF_OPTION_ROWS];
    int n = 0;
    for (const WfOptionRow *r = wf_option_table; r->name; r++)
        names[n++] = r->name;
    const char *near = wf_nearest(name, names, n);
    char hint[120];
    snprintf(hint, sizeof hint, "did you mean %s?", near ? near : "");
    wf_fail_at(ctx, WF_E_OPTION_UNKNOWN, NULL, near ? hint : "`weft train --help` lists all options", "unknown option \"%.60s\"",
               name);
}

void wf_options_set_from(WfCtx *ctx, WfOptions *o, const char *name, const char *value, WfOrigin origin)
{
    const WfOptionRow *row = wf_option_find(name);
    bool contrary = false;
    if (!row && !strncmp(name, "no-", 3)) {
        row = wf_option_find(name + 3);
        contrary = row && row->kind == WF_OPTION_BOOL;
        row = contrary ? row : NULL;
    }
    if (!row)
        unknown_option(ctx, name);
    if (contrary) {
        bool v;
        parse_bool(ctx, row, value, &v);
        value = v ? "false" : "true";
    }
    if (o->origin[row - wf_option_table] < origin) { /* a list is replaced by that of a stronger origin */
        if (row->kind == WF_OPTION_STRINGS)
            ((WfStrings *)((char *)o + row->offset))->n = 0;
        if (row->kind == WF_OPTION_GROUPS)
            o->groups.n = 0;
    }
    parse_field(ctx, o, row, value, (char *)o + row->offset);
    o->origin[row - wf_option_table] = (unsigned char)origin;
    if (!strcmp(row->name, "optimizer"))
        default_hypers(ctx, o);
}

void wf_options_set(WfCtx *ctx, WfOptions *o, const char *name, const char *value)
{
    wf_options_set_from(ctx, o, name, value, WF_FROM_FLAG);
}

WfOrigin wf_option_origin(const WfOptions *o, const char *name)
{
    const WfOptionRow *row = wf_option_find(name);
    return row ? (WfOrigin)o->origin[row - wf_option_table] : WF_FROM_DEFAULT;
}

/* First matching group over the general values. */
WfHyper wf_options_hyper(const WfOptions *o, const char *parameter)
{
    WfHyper h = o->hyper;
    for (int i = 0; i < o->groups.n; i++) {
        const WfParamGroup *g = &o->groups.at[i];
        if (fnmatch(g->pattern, parameter, 0) != 0)
            continue;
        for (const WfOptionRow *r = wf_option_table; r->name; r++) {
            if (!is_hyper(r) || !(g->set & hyper_bit(r)))
                continue;
            size_t at = r->offset - AT(hyper), size = r->kind == WF_OPTION_BOOL     ? sizeof(bool)
                                                     : r->kind == WF_OPTION_FLOATS ? 2 * sizeof(double)
                                                                                   : sizeof(double);
            memcpy((char *)&h + at, (const char *)&g->hyper + at, size);
        }
        break;
    }
    return h;
}
