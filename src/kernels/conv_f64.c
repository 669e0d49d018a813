/* Convolutions in float64, which oneDNN does not have: the plain sums, in one fixed order. A tile of the forward and of
 * the data gradient is a row of positions of a sample, one of the weight gradient an output channel, so that no two
 * tiles write the same number. Models in float64 are checked with, not trained with: this is meant to be right. */
#include "kernels/convolve.h"

typedef struct {
    WfConvShape s; /* with three spatial dims: missing ones have size 1 */
    int64_t cg, og; /* channels of a group */
} Conv64;

typedef struct { int64_t at[3]; } Place;

static int64_t flat(const int64_t size[3], int64_t sample, Place p)
{
    return ((sample * size[0] + p.at[0]) * size[1] + p.at[1]) * size[2] + p.at[2];
}

/* The k-th tap of the kernel: its place, and its offset in the weights. */
static Place tap(const WfConvShape *s, int64_t k, int64_t *offset)
{
    Place t;
    for (int i = 2; i >= 0; k /= s->kernel[i--])
        t.at[i] = k % s->kernel[i];
    *offset = t.at[0] * s->w_stride[2] + t.at[1] * s->w_stride[3] + t.at[2] * s->w_stride[4];
    return t;
}

/* Where output position p reads the input through a tap; false: in the padding. */
static bool input_of(const WfConvShape *s, Place p, Place tap, Place *q)
{
    for (int i = 0; i < 3; i++) {
        q->at[i] = p.at[i] * s->stride[i] - s->pad[i] + tap.at[i] * s->dilation[i];
        if (q->at[i] < 0 || q->at[i] >= s->in[i])
            return false;
    }
    return true;
}

/* Which output position reads input position q through a tap; false: none. */
static bool output_of(const WfConvShape *s, Place q, Place tap, Place *p)
{
    for (int i = 0; i < 3; i++) {
        int64_t far = q.at[i] + s->pad[i] - tap.at[i] * s->dilation[i];
        p->at[i] = far / s->stride[i];
        if (far < 0 || far % s->stride[i] || p->at[i] >= s->out[i])
            return false;
    }
    return true;
}

static int64_t taps(const WfConvShape *s) { return s->kernel[0] * s->kernel[1] * s->kernel[2]; }

static void forward_at(const Conv64 *c, int64_t sample, Place p, const double *x, const double *w, const double *b, double *y)
{
    const WfConvShape *s = &c->s;
    y += flat(s->out, sample, p) * s->o;
    for (int64_t o = 0; o < s->o; o++)
        y[o] = b ? b[o] : 0;
    for (int64_t k = 0; k < taps(s); k++) {
        int64_t offset;
        Place q, t = tap(s, k, &offset);
        if (!input_of(s, p, t, &q))
            continue;
        const double *from = x + flat(s->in, sample, q) * s->c;
        for (int64_t o = 0; o < s->o; o++) {
            const double *row = w + o * s->w_stride[0] + offset, *of = from + o / c->og * c->cg;
            double sum = 0;
            for (int64_t i = 0; i < c->cg; i++)
                sum += of[i] * row[i * s->w_stride[1]];
            y[o] += sum;
        }
    }
}

static void data_at(const Conv64 *c, int64_t sample, Place q, const double *dy, const double *w, double *dx)
{
    const WfConvShape *s = &c->s;
    dx += flat(s->in, sample, q) * s->c;
    for (int64_t i = 0; i < s->c; i++)
        dx[i] = 0;
    for (int64_t k = 0; k < taps(s); k++) {
        int64_t offset;
        Place p, t = tap(s, k, &offset);
        if (!output_of(s, q, t, &p))
            continue;
        const double *from = dy + flat(s->out, sample, p) * s->o;
        for (int64_t i = 0; i < s->c; i++) {
            int64_t first = i / c->cg * c->og;
            const double *column = w + first * s->w_stride[0] + i % c->cg * s->w_stride[1] + offset;
            double sum = 0;
            for (int64_t o = 0; o < c->og; o++)
                sum += from[first + o] * column[o * s->w_stride[0]];
            dx[i] += sum;
        }
    }
}

/* The weight gradient of output channel o. */
static void weight_of(const Conv64 *c, int64_t o, const double *x, const double *dy, double *dw, double *db)
{
    const WfConvShape *s = &c->s;
    int64_t positions = s->out[0] * s->out[1] * s->out[2];
    const double *from = x + o / c->og * c->cg;
    double bias = 0;
    for (int64_t k = 0; k < taps(s); k++) {
        int64_t offset;
        Place q, t = tap(s, k, &offset);
        double *row = dw + o * s->w_stride[0] + offset;
        for (int64_t i = 0; i < c->cg; i++)
            row[i * s->w_stride[1]] = 0;
        for (int64_t at = 0; at < s->n * positions; at++) {
            int64_t rest = at % positions;
            Place p = {{rest / (s->out[1] * s->out[2]), rest / s->out[2] % s->out[1], rest % s->out[2]}};
            if (!input_of(s, p, t, &q))
                continue;
            double d = dy[at * s->o + o];
            const double *of = from + flat(s->in, at / positions, q) * s->c;
            for (int64_t i = 0; i < c->cg; i++)
                row[i * s->w_stride[1]] += d * of[i];
        }
    }
    for (int64_t at = 0; db && at < s->n * positions; at++)
        bias += dy[at * s->o + o];
    if (db)
        db[o] = bias;
}

static void run(const WfLib *lib, int phase, int64_t tile, void *const *operand, void *workspace, void *scratch, int thread)
{
    const Conv64 *c = lib->self;
    const WfConvShape *s = &c->s;
    double *x = operand[s->src], *w = operand[s->weights], *y = operand[s->dst], *b = s->has_bias ? operand[s->bias] : NULL;
    (void)phase, (void)workspace, (void)scratch, (void)thread;
    if (s->what == WF_CONV_WEIGHT) {
        weight_of(c, tile, x, y, w, b);
        return;
    }
    const int64_t *size = s->what == WF_CONV_FWD ? s->out : s->in;
    for (int64_t i = 0; i < size[1] * size[2]; i++) {
        Place at = {{tile % size[0], i / size[2], i % size[2]}};
        if (s->what == WF_CONV_FWD)
            forward_at(c, tile / size[0], at, x, w, b, y);
        else
            data_at(c, tile / size[0], at, y, w, x);
    }
}

void wf_conv_f64_create(WfArena *arena, const WfConvShape *s, WfLib *lib)
{
    Conv64 *c = WF_NEW(arena, Conv64);
    c->s = *s;
    for (int i = s->spatial; i < 3; i++) {
        c->s.in[i] = c->s.out[i] = c->s.kernel[i] = c->s.stride[i] = c->s.dilation[i] = 1;
        c->s.pad[i] = 0;
        c->s.w_stride[2 + i] = 0;
    }
    c->cg = s->c / s->groups;
    c->og = s->o / s->groups;
    lib->self = c;
    lib->run = run;
    lib->tiles[lib->n_phases++] = s->what == WF_CONV_WEIGHT ? s->o : s->n * (s->what == WF_CONV_FWD ? s->out[0] : s->in[0]);
}
