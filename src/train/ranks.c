/* Several ranks in one training: before step 1 they compare what they are about to do, each takes its share of every
 * batch, and they stop at the same step. */
#include "train/train.h"

#include <string.h>

/* Options that may differ between ranks: where things lie, how a rank uses its host, what is shown. */
static bool own(const char *name)
{
    static const char *const names[] = {"threads", "cache", "cache-dir", "dump-dir", "out", "log-every", "json", "data",
                                        "eval-data", "recipe", "weights", "nproc", "resume", "keep-checkpoints"};
    for (size_t i = 0; i < WF_LEN(names); i++)
        if (!strcmp(names[i], name))
            return true;
    return false;
}

/* What all ranks must have in common, a line each. */
static void describe(const WfTraining *t, const WfDataset *d, int64_t batch, WfStr *s)
{
    wf_str_printf(s, "the model (signature %.16s)\n", t->exe->signature ? t->exe->signature : "none");
    wf_str_printf(s, "the instruction set %s\n", wf_isa_name(t->exe->isa));
    wf_str_printf(s, "%lld training samples\n", (long long)d->samples);
    wf_str_printf(s, "batches of %lld\n", (long long)batch);
    wf_str_printf(s, "a recipe of hash %016llx\n", (unsigned long long)d->recipe);
    for (int i = 0; i < d->n; i++)
        wf_str_printf(s, "input %s as %s in the file\n", d->columns[i].input->name, wf_dtype_name(d->columns[i].dtype));
    wf_str_printf(s, "a step of %d calls\n", t->exe->program[WF_PROG_STEP].n_calls);
    for (int i = 0; i < t->exe->program[WF_PROG_STEP].n_calls; i++) {
        const WfExeCall *c = &t->exe->program[WF_PROG_STEP].calls[i];
        if (c->kind == WF_CALL_START || c->kind == WF_CALL_WAIT)
            wf_str_printf(s, "%s %s at call %d\n", c->kind == WF_CALL_START ? "start" : "wait", c->name, i);
    }
}

/* The first line in which two texts differ, as each has it. */
static void first_difference(WfArena *a, const char *x, const char *y, char **in_x, char **in_y)
{
    while (*x && *y) {
        size_t n = strcspn(x, "\n"), m = strcspn(y, "\n");
        if (n != m || memcmp(x, y, n))
            break;
        x += n + (x[n] == '\n');
        y += m + (y[m] == '\n');
    }
    *in_x = wf_arena_strndup(a, x, strcspn(x, "\n"));
    *in_y = wf_arena_strndup(a, y, strcspn(y, "\n"));
}

/* Raises on all ranks when their texts differ, naming the first line that does. */
static void compare(WfCtx *ctx, WfComm *comm, WfArena *a, const WfStr *s, const char *what)
{
    enum { TEXT = 1 << 16 };
    int size = wf_comm_size(comm), rank = wf_comm_rank(comm);
    uint64_t mine = wf_hash64(s->at, s->n, 0), *all = WF_NEWN(a, uint64_t, (size_t)size);
    wf_comm_exchange(comm, &mine, sizeof mine, all, 0, what);
    bool same = true;
    for (int r = 1; r < size; r++)
        same &= all[r] == all[0];
    if (!same) { /* everyone knows it: the texts themselves say what differs */
        char *text = WF_NEWN(a, char, TEXT), *texts = WF_NEWN(a, char, (size_t)TEXT * (size_t)size), *x, *y;
        memcpy(text, s->at, s->n < TEXT - 1 ? s->n : TEXT - 1);
        wf_comm_exchange(comm, text, TEXT, texts, 0, what);
        int other = 1;
        while (all[other] == all[0])
            other++;
        if (rank && all[rank] != all[0])
            other = rank;
        first_difference(a, texts, texts + (size_t)other * TEXT, &x, &y);
        wf_fail_at(ctx, WF_E_RANKS_DISAGREE, NULL, "Start all ranks with the same model, data and options.",
                   "the ranks do not agree: rank 0 has %s, rank %d has %s", *x ? x : "less", other, *y ? y : "less");
    }
}

void wf_ranks_compare(WfCtx *ctx, WfComm *comm, const WfOptions *o, const uint8_t *model, size_t model_size)
{
    WfArena *a = wf_arena_scratch(ctx);
    WfStr s = {.arena = a};
    if (model)
        wf_str_printf(&s, "a model file of %zu bytes of graph (hash %016llx)\n", model_size,
                      (unsigned long long)wf_hash64(model, model_size, 0));
    else
        wf_str_puts(&s, "a compiled step\n");
    wf_str_printf(&s, "a processor of x86-64-v%d\n", wf_isa_level());
    for (const WfOptionRow *r = wf_option_table; r->name; r++) {
        if (own(r->name))
            continue;
        wf_str_printf(&s, "--%s ", r->name);
        wf_option_text(o, r, &s);
        wf_str_putc(&s, '\n');
    }
    compare(ctx, comm, a, &s, "the agreement on model and options");
    wf_arena_free(a);
}

void wf_ranks_agree(WfTraining *t, const WfDataset *d, int64_t batch)
{
    if (!t->comm)
        return;
    WfArena *a = wf_arena_scratch(t->ctx);
    WfStr s = {.arena = a};
    describe(t, d, batch, &s);
    compare(t->ctx, t->comm, a, &s, "the agreement on the step");
    wf_arena_free(a);
    if (t->options->init_sync)
        wf_session_sync(t->session);
    else
        wf_session_compare(t->session, true);
}

int wf_ranks_here(const WfTraining *t) { return t->comm ? wf_comm_local_size(t->comm) : 1; }

void wf_ranks_check_cancel(WfTraining *t)
{
    if (!t->comm || wf_comm_size(t->comm) == 1) {
        wf_check_cancel(t->ctx);
        return;
    }
    int32_t stop = t->ctx->cancel && *t->ctx->cancel;
    WfCommOp op = {.kind = WF_ALL_REDUCE, .op = WF_COMM_MAX, .dtype = WF_I32, .send = &stop, .recv = &stop, .count = 1,
                   .node = "the start of a step", .step = wf_session_steps(t->session) + 1};
    wf_comm_run(t->comm, wf_comm_world(t->comm), &op);
    if (stop) {
        wf_comm_stop(t->comm); /* the first to leave must not look like a failure to one that is still in the reduction */
        wf_fail(t->ctx, WF_E_CANCELLED, "stopped on request");
    }
}
