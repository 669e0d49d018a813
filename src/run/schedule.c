/* The course of the learning rate, as a closed formula of the step, so that a resumed run needs no history. The formulas
 * are those of torch.optim.lr_scheduler where PyTorch has the schedule; step t (from 1) is its `last_epoch` t - 1:
 *
 *   constant   lr
 *   linear     LinearLR(start_factor=1, end_factor=min_lr/lr, total_iters=T)
 *   cosine     CosineAnnealingLR(T_max=T, eta_min=min_lr), in its closed form
 *   step       StepLR(step_size, gamma)
 *   one-cycle  OneCycleLR(max_lr, total_steps=T, pct_start, anneal_strategy="cos", div_factor=25,
 *              final_div_factor=1e4, cycle_momentum=False)
 *
 * Warm-up of W steps multiplies by t / W for t <= W, as LambdaLR(lambda e: (e + 1) / W); the schedule proper begins at
 * step W + 1 and has T - W steps. Its first step is thus not wasted on a rate of zero. */
#include "run/run.h"

#include <math.h>

static const double PI = 3.14159265358979323846;

static double cosine_between(double from, double to, double share)
{
    return to + (from - to) / 2 * (cos(PI * share) + 1);
}

/* e: 0-based step, total: all steps. */
static double one_cycle(const WfOptions *o, double base, int64_t e, int64_t total)
{
    /* A parameter group's peak scales as its lr does; the general group's is max_lr itself. */
    double peak = !(o->max_lr > 0) ? base : o->hyper.lr > 0 ? o->max_lr * (base / o->hyper.lr) : o->max_lr;
    double initial = peak / 25, last = initial / 1e4;
    double top = o->pct_start * (double)total - 1, end = (double)total - 1;
    if ((double)e <= top)
        return top > 0 ? cosine_between(initial, peak, (double)e / top) : peak;
    return end > top ? cosine_between(peak, last, ((double)e - top) / (end - top)) : last;
}

double wf_schedule_lr_from(const WfOptions *o, double base, int64_t step, int64_t total)
{
    if (o->total_steps > 0)
        total = o->total_steps;
    int64_t warm = o->schedule == WF_SCHEDULE_ONE_CYCLE ? 0 : o->warmup_steps;
    if (step <= warm)
        return base * (double)step / (double)warm;
    int64_t e = step - 1 - warm, n = total - warm;
    if (n < 1)
        n = 1;
    int64_t inside = e < n ? e : n; /* after its end a schedule stays where it ended */
    double floor_lr = o->hyper.lr > 0 ? o->min_lr * (base / o->hyper.lr) : o->min_lr;
    switch (o->schedule) {
    case WF_SCHEDULE_CONSTANT:
        break;
    case WF_SCHEDULE_LINEAR:
        return base + (floor_lr - base) * ((double)inside / (double)n);
    case WF_SCHEDULE_COSINE:
        return cosine_between(base, floor_lr, (double)inside / (double)n);
    case WF_SCHEDULE_STEP:
        return o->step_size > 0 ? base * pow(o->gamma, (double)(e / o->step_size)) : base;
    case WF_SCHEDULE_ONE_CYCLE:
        return one_cycle(o, base, e < n ? e : n - 1, n);
    }
    return base;
}

double wf_schedule_lr(const WfOptions *o, int64_t step, int64_t total)
{
    return wf_schedule_lr_from(o, o->hyper.lr, step, total);
}
