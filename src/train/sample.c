/* Sampling of text from a model of bytes: the evaluation form runs over a window of what has been said so far, the next
 * byte is drawn from the predictions at the window's last place, and so on. The window is that of the input; until it is
 * full its end is padded, which a model that looks back only does not see, and from then on it moves.
 *
 * Byte i is drawn by a number that comes from (seed, i) alone, so a text can be had again, and a longer sample begins like a
 * shorter one. */
#include "train/train.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { BYTES = 256 };

typedef struct {
    WfTraining *t;
    const WfExe *x;
    int output;
    int64_t batch, context;
    WfTensor *fed, *text; /* by input of the executable; the one that is read */
} Sampler;

static void check_text(Sampler *s, const WfExeInput *in)
{
    if (in->rank != 2 || !wf_dtype_is_int(in->dtype) || !wf_elit(s->x->exprs, in->shape[1], &s->context))
        wf_fail(s->t->ctx, WF_E_SAMPLE, "--sample: input %s is not text: expected integers [batch, context], context being fixed",
                in->name);
}

/* Finds the one input that the predictions read, and makes a batch for it and zeros for the others. */
static void open_inputs(Sampler *s)
{
    s->fed = WF_NEWN(s->t->arena, WfTensor, (size_t)s->x->n_inputs + 1);
    for (int i = 0; i < s->x->n_inputs; i++) {
        const WfExeInput *in = &s->x->inputs[i];
        if (in->role != WF_XIN_USER)
            continue;
        if (in->predicts && s->text)
            wf_fail(s->t->ctx, WF_E_SAMPLE, "--sample: the predictions depend on %s and %s; expected one input, the text",
                    s->text->name, in->name);
        if (in->predicts)
            check_text(s, in);
        s->fed[i] = wf_batch_zeros(s->t, in, s->batch);
        if (in->predicts)
            s->text = &s->fed[i];
    }
    if (!s->text)
        wf_fail(s->t->ctx, WF_E_SAMPLE, "--sample: the predictions depend on no input");
}

static void feed(const Sampler *s, const uint8_t *window, int64_t n)
{
    size_t size = wf_dtype_size(s->text->dtype);
    for (int64_t k = 0; k < s->context; k++)
        wf_store_i64(s->text->dtype, (uint8_t *)(uintptr_t)s->text->data + (size_t)k * size, k < n ? window[k] : 0);
    for (int i = 0; i < s->x->n_inputs; i++)
        if (s->fed[i].name)
            wf_session_feed(s->t->session, s->fed[i].name, &s->fed[i]);
}

/* What the model says of the byte after the first n of the window: BYTES values, more being more likely. */
static void scores(const Sampler *s, int64_t n, double *out)
{
    WfTensor t;
    wf_session_output(s->t->session, WF_PROG_EVAL, s->output, &t);
    int64_t places = 1;
    for (int d = 0; d + 1 < t.rank; d++)
        places *= t.shape[d];
    if (t.rank < 2 || !wf_dtype_is_float(t.dtype) || t.shape[t.rank - 1] != BYTES || places != s->batch * s->context)
        wf_fail(s->t->ctx, WF_E_SAMPLE, "--sample: the predictions are not scores of the %d bytes at each place of the text (--predictions "
                "names another output)", BYTES);
    for (int i = 0; i < BYTES; i++)
        out[i] = wf_load_f64(t.dtype, (uint8_t *)t.data + (size_t)((n - 1) * BYTES + i) * wf_dtype_size(t.dtype));
}

static int downwards(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x < y) - (x > y);
}

/* Draws from softmax(scores / temperature), restricted to the `most` most likely (0: all). u in [0, 1). */
static int draw(const double *score, double temperature, int64_t most, double u)
{
    double best = -INFINITY, least = -INFINITY, sum = 0, p[BYTES], order[BYTES];
    int at = 0;
    for (int i = 0; i < BYTES; i++)
        if (score[i] > best)
            best = score[at = i];
    if (temperature == 0)
        return at;
    memcpy(order, score, sizeof order);
    qsort(order, BYTES, sizeof *order, downwards);
    if (most > 0 && most < BYTES)
        least = order[most - 1];
    for (int i = 0; i < BYTES; i++)
        sum += p[i] = score[i] >= least ? exp((score[i] - best) / temperature) : 0;
    u *= sum;
    for (int i = 0; i < BYTES; i++)
        if (p[i] > 0) {
            at = i;
            if ((u -= p[i]) < 0)
                break;
        }
    return at;
}

/* One text is wanted: the smallest batch, where it may be chosen. */
static int64_t batch_of(const WfTraining *t)
{
    int64_t lo, hi;
    if (t->options->batch_size || !t->exe->n_symbols)
        return wf_exe_batch(t->ctx, t->exe, t->options);
    wf_exe_sizes(&t->exe->symbols[0], &lo, &hi);
    return lo;
}

void wf_sample(WfTraining *t, void (*put)(void *user, uint8_t byte), void *user)
{
    const WfOptions *o = t->options;
    Sampler s = {.t = t, .x = t->exe, .output = wf_exe_predicted(t->ctx, t->exe), .batch = batch_of(t)};
    open_inputs(&s);
    int64_t prompt = o->prompt ? (int64_t)strlen(o->prompt) : 0, n = 0;
    uint8_t *window = WF_NEWN(t->arena, uint8_t, (size_t)s.context + 1);
    if (!prompt)
        window[n++] = '\n'; /* something must stand before the first byte */
    for (int64_t i = prompt > s.context ? prompt - s.context : 0; i < prompt; i++)
        window[n++] = (uint8_t)o->prompt[i];
    for (int64_t i = 0; i < o->sample; i++) {
        double score[BYTES];
        uint64_t key = (uint64_t)i;
        wf_check_cancel(t->ctx);
        feed(&s, window, n);
        wf_session_forward(t->session, true);
        scores(&s, n, score);
        for (int k = 0; k < BYTES; k++)
            if (isnan(score[k]))
                wf_fail(t->ctx, WF_E_NOT_FINITE, "--sample: the predictions are not numbers (nan) after %lld bytes", (long long)i);
        uint8_t byte = (uint8_t)draw(score, o->temperature, o->top_k, (double)(wf_hash64(&key, sizeof key, (uint64_t)o->seed) >> 11) * 0x1p-53);
        put(user, byte);
        if (n == s.context)
            memmove(window, window + 1, (size_t)--n);
        window[n++] = byte;
    }
}
