/* Connectionist temporal classification (Graves et al., 2006) of one sequence: the probability of all paths that spell
 * the labels, by the forward and backward variables in logarithms, in double precision. */
#include "base/base.h"

#include <math.h>

static double log_add(double a, double b)
{
    double m = a > b ? a : b;
    return m == -INFINITY ? m : m + log1p(exp((a > b ? b : a) - m));
}

double wf_ctc(int64_t frames, int64_t classes, int64_t stride, const double *logp, int64_t count, const int64_t *labels,
              int64_t blank, double *grad, double *work)
{
    int64_t n = 2 * count + 1; /* labels with a blank before, between and behind */
    double *alpha = work, *beta = work + frames * n, *row = beta + 2 * n;
#define LABEL(s)    ((s) % 2 ? labels[(s) / 2] : blank)
#define LOGP(t, s)  logp[(t) * stride + LABEL(s)]
#define JUMPS(s)    ((s) % 2 && (s) > 1 && LABEL(s) != LABEL((s) - 2)) /* over the blank before s */
    for (int64_t t = 0; t < frames; t++)
        for (int64_t s = 0; s < n; s++) {
            double *now = alpha + t * n, *before = now - n, v = s < 2 && t == 0 ? 0 : -INFINITY;
            if (t) {
                v = before[s];
                v = s > 0 ? log_add(v, before[s - 1]) : v;
                v = JUMPS(s) ? log_add(v, before[s - 2]) : v;
            }
            now[s] = v + LOGP(t, s);
        }
    const double *last = alpha + (frames ? frames - 1 : 0) * n;
    double total = frames ? last[n - 1] : count ? -INFINITY : 0;
    if (frames && n > 1)
        total = log_add(total, last[n - 2]);
    double *now = beta, *after = beta + n;
    for (int64_t t = frames - 1; t >= 0; t--) {
        for (int64_t c = 0; c < classes; c++)
            row[c] = -INFINITY;
        for (int64_t s = 0; s < n; s++) {
            double v = s > n - 3 && t == frames - 1 ? 0 : -INFINITY;
            if (t < frames - 1) {
                v = after[s];
                v = s + 1 < n ? log_add(v, after[s + 1]) : v;
                v = s + 2 < n && JUMPS(s + 2) ? log_add(v, after[s + 2]) : v;
            }
            now[s] = v + LOGP(t, s);
            row[LABEL(s)] = log_add(row[LABEL(s)], alpha[t * n + s] + now[s]);
        }
        for (int64_t c = 0; c < classes; c++) {
            double p = logp[t * stride + c];
            grad[t * stride + c] = exp(p) - exp(row[c] - p - total);
        }
        double *swap = now;
        now = after, after = swap;
    }
    return -total;
}

size_t wf_ctc_work(int64_t frames, int64_t classes, int64_t count)
{
    return (size_t)((frames + 2) * (2 * count + 1) + classes);
}
