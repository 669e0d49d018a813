/* What a run writes: the folder --out and metrics.jsonl, which grows by whole lines. */
#include "train/loop.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

double wf_loop_rss_mb(void)
{
    FILE *f = fopen("/proc/self/statm", "r");
    long pages = 0, skip;
    if (!f)
        return 0;
    if (fscanf(f, "%ld %ld", &skip, &pages) != 2)
        pages = 0;
    fclose(f);
    return (double)pages * (double)sysconf(_SC_PAGESIZE) / 1048576.0;
}

void wf_loop_number(WfStr *s, const char *key, double v)
{
    wf_str_printf(s, "%s\"%s\": ", s->n > 1 ? ", " : "", key);
    if (fabs(v) < 9007199254740992.0 && v == floor(v))
        wf_str_printf(s, "%lld", (long long)v);
    else if (isfinite(v))
        wf_str_float(s, v);
    else
        wf_str_puts(s, isnan(v) ? "\"NaN\"" : v > 0 ? "\"Infinity\"" : "\"-Infinity\"");
}

void wf_loop_metrics(WfLoop *l, WfStr *s)
{
    if (!l->metrics)
        return;
    wf_str_puts(s, "}\n");
    if (fwrite(s->at, 1, s->n, l->metrics) != s->n || fflush(l->metrics))
        wf_fail_at(l->t->ctx, WF_E_METRICS, l->t->options->out,
                   "Free some space, remove this folder and start again.",
                   "metrics.jsonl cannot be written: %s", strerror(errno));
}

char *wf_train_path(WfArena *a, const char *out, const char *name)
{
    size_t n = strlen(out);
    return wf_arena_printf(a, "%s%s%s", out, n && out[n - 1] == '/' ? "" : "/", name);
}

const char *const wf_loop_files[] = {"final.safetensors", "best.safetensors", "optimizer.safetensors", WF_RECIPE_FILE, "metrics.jsonl",
                                     "checkpoints",       NULL};

char *wf_loop_path(WfLoop *l, const char *name)
{
    return wf_train_path(l->t->arena, l->t->options->out, name);
}

static bool same_folder(const char *a, const char *b)
{
    struct stat x, y;
    return !stat(a, &x) && !stat(b, &y) && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

/* Lines of steps that are going to be done again are dropped. */
static void keep_metrics(WfLoop *l)
{
    WfArena *a = wf_arena_scratch(l->t->ctx);
    char *path = wf_loop_path(l, "metrics.jsonl");
    if (wf_file_exists(path)) {
        WfFile *f = wf_file_map(l->t->ctx, a, path);
        WfStr s = {.arena = a};
        for (const char *at = (const char *)f->at, *end = at + f->size, *next; at < end; at = next) {
            const char *stop = memchr(at, '\n', (size_t)(end - at)), key[] = "{\"step\": ";
            next = stop ? stop + 1 : end;
            bool whole = stop && (size_t)(next - at) > sizeof key && !memcmp(at, key, sizeof key - 1);
            if (whole && strtoll(at + sizeof key - 1, NULL, 10) <= l->mark.step)
                wf_str_putn(&s, at, (size_t)(next - at));
        }
        wf_write_file(l->t->ctx, path, s.at ? s.at : "", s.n);
    }
    wf_arena_free(a);
}

void wf_train_check_out(WfCtx *ctx, const WfOptions *o)
{
    struct stat st;
    if (!o->out)
        return;
    WfArena *a = wf_arena_scratch(ctx);
    bool ended = wf_file_exists(wf_train_path(a, o->out, "final.safetensors")), resumed = o->resume && same_folder(o->out, o->resume);
    if (!stat(o->out, &st) && !S_ISDIR(st.st_mode))
        wf_fail(ctx, WF_E_OUT_TAKEN, "--out %s is a file; name a folder", o->out);
    if (resumed && ended && !wf_file_exists(wf_train_path(a, o->resume, "checkpoints")))
        wf_fail_at(ctx, WF_E_OUT_TAKEN, o->resume, "Begin with its weights: --weights DIR/final.safetensors and another --out.",
                   "the folder holds a run that ended without checkpoints, so there is nothing to resume, and beginning anew would "
                   "overwrite it");
    if (!resumed && (ended || wf_file_exists(wf_train_path(a, o->out, "metrics.jsonl"))))
        wf_fail_at(ctx, WF_E_OUT_TAKEN, NULL, "Choose another folder, remove this one, or go on with --resume.",
                   "--out %s already holds a run", o->out);
    wf_arena_free(a);
}

/* The best weights so far, of a run that goes on in another folder. */
static void bring_best(WfLoop *l, const char *from)
{
    WfArena *a = wf_arena_scratch(l->t->ctx);
    char *path = wf_train_path(a, from, "best.safetensors");
    if (!wf_file_exists(path)) /* --resume may name the folder of checkpoints itself */
        path = wf_train_path(a, from, "../best.safetensors");
    if (wf_file_exists(path)) {
        WfFile *f = wf_file_map(l->t->ctx, a, path);
        wf_write_file(l->t->ctx, wf_loop_path(l, "best.safetensors"), f->at, f->size);
    } else if (l->mark.step < l->total) {
        wf_log(l->t->ctx, WF_LOG_WARN, "%s holds no best.safetensors: %s/best.safetensors appears when an evaluation is better than that of step %lld",
               from, l->t->options->out, (long long)l->mark.best_step);
    }
    wf_arena_free(a);
}

void wf_loop_open_out(WfLoop *l)
{
    const WfOptions *o = l->t->options;
    if (!o->out || l->rank)
        return;
    wf_train_check_out(l->t->ctx, o); /* once more: it has been a while */
    bool same = o->resume && same_folder(o->out, o->resume);
    wf_mkdirs(l->t->ctx, o->out);
    if (l->t->comm)
        wf_comm_trace(l->t->comm, o->out);
    for (int i = 0; same && wf_loop_files[i]; i++)
        wf_remove_unfinished(wf_loop_path(l, wf_loop_files[i]));
    if (same)
        keep_metrics(l);
    else if (o->resume && l->mark.evaluated)
        bring_best(l, o->resume);
    if (l->data->learned)
        wf_write_file(l->t->ctx, wf_loop_path(l, WF_RECIPE_FILE), l->data->learned, strlen(l->data->learned));
    l->metrics = fopen(wf_loop_path(l, "metrics.jsonl"), same ? "a" : "w");
    if (!l->metrics)
        wf_fail(l->t->ctx, WF_E_METRICS, "%s/metrics.jsonl cannot be made: %s", o->out, strerror(errno));
    if (o->tensorboard)
        l->events = wf_events_open(l->t->ctx, l->t->arena, o->out, l->from);
}
