/* What a run shows: the progress line, rewritten in place on a terminal (ten times a second at most, cut to its width by
 * leaving out what matters least), a line of its own every --log-every steps elsewhere, without a control character; the line
 * of an evaluation; the summary at the end. Rates are means over the steps since the line before, without evaluations and
 * checkpoints; the first step, which touches all memory for the first time, counts for nothing where there are others. */
#include "train/loop.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

enum { FIELDS = 8, WIDE = 200 };

/* Columns of the terminal behind stderr; COLUMNS counts where the system does not know. */
static int width(void)
{
    struct winsize w;
    const char *columns = wf_env("WEFT_TERMINAL") ? wf_env("WEFT_TERMINAL") : wf_env("COLUMNS");
    if (!ioctl(2, TIOCGWINSZ, &w) && w.ws_col > 0)
        return w.ws_col;
    int n = columns ? atoi(columns) : 0;
    return n > 10 ? n : 80;
}

static void put_grouped(char *out, size_t size, double v)
{
    if (v < 1000)
        snprintf(out, size, v < 10 ? "%.2f" : v < 100 ? "%.1f" : "%.0f", v);
    else if (v < 1e6)
        snprintf(out, size, "%lld,%03lld", (long long)v / 1000, (long long)v % 1000);
    else
        snprintf(out, size, "%lld,%03lld,%03lld", (long long)v / 1000000, (long long)v / 1000 % 1000, (long long)v % 1000);
}

static void put_duration(char *out, size_t size, double s)
{
    long long n = s < 0 || !isfinite(s) ? 0 : s > 3.6e8 ? 360000000 : (long long)(s + 0.5);
    snprintf(out, size, "%lld:%02lld:%02lld", n / 3600, n / 60 % 60, n % 60);
}

/* Tokens of a sample, where the model reads sequences of whole numbers: its first input of rank 2; else 0. */
static int64_t tokens(const WfLoop *l)
{
    for (int i = 0; i < l->n_inputs; i++) {
        const WfColumn *c = &l->data->columns[i];
        if (l->inputs[i].rank == 2 && wf_dtype_is_int(c->input->dtype))
            return c->sample_elements;
        if (wf_dtype_is_float(c->input->dtype))
            return 0;
    }
    return 0;
}

static void put_rate(const WfLoop *l, char *out, size_t size, double ms)
{
    char rate[40];
    double samples = (double)(l->batch * l->ranks * l->micro) / ms * 1e3;
    put_grouped(rate, sizeof rate, samples * (double)(tokens(l) ? tokens(l) : 1));
    snprintf(out, size, "%s %s/s", rate, tokens(l) ? "tok" : "samples");
}

/* The fields in their order, without those that do not fit into `columns`: what matters least goes first. */
static void join(char text[FIELDS][64], int columns, char *out, size_t size)
{
    static const int least[] = {6, 3, 2, 5, 4, 7}; /* memory, lr, norm, time, rate, time left */
    bool gone[FIELDS] = {0};
    for (size_t k = 0;; k++) {
        size_t n = 0;
        for (int i = 0; i < FIELDS; i++)
            n += gone[i] ? 0 : strlen(text[i]) + (i ? 2 : 0);
        if ((int)n < columns || k == WF_LEN(least))
            break;
        gone[least[k]] = true;
    }
    *out = 0;
    for (int i = 0; i < FIELDS; i++)
        if (!gone[i])
            snprintf(out + strlen(out), size - strlen(out), "%s%s", i ? "  " : "", text[i]);
    if ((int)strlen(out) >= columns)
        out[columns > 1 ? columns - 1 : 0] = 0;
}

void wf_loop_progress(WfLoop *l, double loss, double norm, double lr, double ms)
{
    const WfOptions *o = l->t->options;
    WfShown *w = &l->shown;
    double now = wf_now(), mean, data;
    w->steps++;
    w->ms += ms;
    w->data_ms += l->waited * 1e3;
    if (l->mark.step > l->from + 1)
        w->all_ms += ms;
    if (l->mark.step == l->from + 1)
        w->first_ms = ms;
    bool due = l->t->terminal ? now - w->at > 0.1 : l->mark.step % o->log_every == 0;
    if (l->rank || (!due && l->mark.step != l->total))
        return;
    bool first = w->at == 0 && w->steps > 1; /* the first line leaves the first step out */
    mean = first ? (w->ms - w->first_ms) / (double)(w->steps - 1) : w->ms / (double)w->steps;
    data = w->ms > 0 ? w->data_ms / w->ms * 100 : 0;
    loss = isnan(loss) ? (double)NAN : loss; /* printf shows a sign */
    norm = isnan(norm) ? (double)NAN : norm;
    char text[FIELDS][64], left[40], line[FIELDS * 66];
    int64_t done = l->mark.step - l->from;
    put_duration(left, sizeof left, (done > 1 ? w->all_ms / (double)(done - 1) : ms) / 1e3 * (double)(l->total - l->mark.step));
    snprintf(text[0], 64, "step %lld/%lld", (long long)l->mark.step, (long long)l->total);
    snprintf(text[1], 64, "loss %.4f", loss);
    snprintf(text[2], 64, "gnorm %.3g", norm);
    snprintf(text[3], 64, "lr %.2e", lr);
    put_rate(l, text[4], 64, mean);
    snprintf(text[5], 64, mean < 1 ? "%.3f ms (data %.0f%%)" : mean < 10 ? "%.2f ms (data %.0f%%)" : "%.0f ms (data %.0f%%)", mean, data);
    snprintf(text[6], 64, "mem %.0f MiB", wf_loop_rss_mb());
    snprintf(text[7], 64, "eta %s", left);
    join(text, l->t->terminal ? width() : WIDE, line, sizeof line);
    bool last = l->mark.step == l->total;
    fprintf(stderr, l->t->terminal ? "\r\033[K%s%s" : "%s%s", line, l->t->terminal && !last ? "" : "\n");
    w->line = l->t->terminal && !last;
    w->at = now;
    w->steps = 0;
    w->ms = w->data_ms = 0;
}

void wf_loop_break_line(WfLoop *l)
{
    if (l->shown.line)
        fputc('\n', stderr);
    l->shown.line = false;
}

/* ---- the end ---- */

static void put_files(WfLoop *l, WfStr *s)
{
    for (int i = 0; wf_loop_files[i]; i++)
        if (wf_file_exists(wf_loop_path(l, wf_loop_files[i])))
            wf_str_printf(s, "%s%s", s->n ? ", " : "", wf_loop_path(l, wf_loop_files[i]));
}

void wf_loop_summary(WfLoop *l)
{
    const WfOptions *o = l->t->options;
    int64_t done = l->mark.step - l->from;
    char time[40], rate[80] = "";
    if (l->rank || !l->t->model || !done)
        return;
    wf_loop_break_line(l);
    put_duration(time, sizeof time, wf_now() - l->first_step);
    if (done > 1 && l->shown.all_ms > 0)
        put_rate(l, rate, sizeof rate, l->shown.all_ms / (double)(done - 1));
    fprintf(stderr, "%lld step%s in %s%s%s%s\n", (long long)done, done > 1 ? "s" : "", time, *rate ? ", " : "", rate,
            *rate ? " without the first" : "");
    if (l->mark.evaluated && !isnan(l->best_value))
        fprintf(stderr, "best       step %lld: eval %s %.4f%s\n", (long long)l->mark.best_step, l->mark.best_metric, l->best_value,
                o->out ? " (best.safetensors)" : "");
    if (!o->out) {
        fputs("files      none: without --out nothing is kept\n", stderr);
        return;
    }
    WfArena *a = wf_arena_scratch(l->t->ctx);
    WfStr files = {.arena = a};
    put_files(l, &files);
    fprintf(stderr, "files      %s\n", files.at ? files.at : o->out);
    fprintf(stderr, "next       weft run %s --weights %s --data FILE --out predictions.safetensors\n", l->t->model,
            wf_loop_path(l, wf_file_exists(wf_loop_path(l, "best.safetensors")) ? "best.safetensors" : "final.safetensors"));
    wf_arena_free(a);
}
