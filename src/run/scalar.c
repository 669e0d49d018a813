/* Run-time scalars: what the update kernels read besides tensors. They are computed in double from a group's
 * hyperparameters, the step number t (1 for the first) and the learning rate, as torch.optim does in Python, and
 * stored as float32, for float64 parameters as they are. One row a name; grad/step asks for them by these names. */
#include "run/private.h"

#include <math.h>

typedef double (*Formula)(const WfExeGroup *g, double lr, double t);

static double lr(const WfExeGroup *g, double r, double t) { (void)g, (void)t; return r; }
static double minus_lr(const WfExeGroup *g, double r, double t) { (void)g, (void)t; return -r; }
static double decay(const WfExeGroup *g, double r, double t) { (void)t; return 1 - r * g->weight_decay; }
static double weight_decay(const WfExeGroup *g, double r, double t) { (void)r, (void)t; return g->weight_decay; }
static double beta1(const WfExeGroup *g, double r, double t) { (void)r, (void)t; return g->betas[0]; }
static double one_minus_beta1(const WfExeGroup *g, double r, double t) { (void)r, (void)t; return 1 - g->betas[0]; }
static double beta2(const WfExeGroup *g, double r, double t) { (void)r, (void)t; return g->betas[1]; }
static double one_minus_beta2(const WfExeGroup *g, double r, double t) { (void)r, (void)t; return 1 - g->betas[1]; }
static double eps(const WfExeGroup *g, double r, double t) { (void)r, (void)t; return g->eps; }
/* Adam: -lr / (1 - beta1^t), and the root of 1 - beta2^t */
static double adam_step(const WfExeGroup *g, double r, double t) { return -r / (1 - pow(g->betas[0], t)); }
static double adam_root(const WfExeGroup *g, double r, double t) { (void)r; return sqrt(1 - pow(g->betas[1], t)); }
static double momentum(const WfExeGroup *g, double r, double t) { (void)r, (void)t; return g->momentum; }
/* the first step copies the gradient into the buffer: no dampening */
static double undamped(const WfExeGroup *g, double r, double t) { (void)r; return t <= 1 ? 1 : 1 - g->dampening; }
static double alpha(const WfExeGroup *g, double r, double t) { (void)r, (void)t; return g->alpha; }
static double one_minus_alpha(const WfExeGroup *g, double r, double t) { (void)r, (void)t; return 1 - g->alpha; }
/* Adagrad: -lr / (1 + (t - 1) lr_decay) */
static double adagrad_step(const WfExeGroup *g, double r, double t) { return -r / (1 + (t - 1) * g->lr_decay); }

static const struct { const char *name; Formula f; } rows[] = {
    {"lr", lr}, {"minus_lr", minus_lr}, {"decay", decay}, {"weight_decay", weight_decay}, {"beta1", beta1},
    {"one_minus_beta1", one_minus_beta1}, {"beta2", beta2}, {"one_minus_beta2", one_minus_beta2}, {"eps", eps},
    {"adam_step", adam_step}, {"adam_root", adam_root}, {"momentum", momentum}, {"undamped", undamped},
    {"alpha", alpha}, {"one_minus_alpha", one_minus_alpha}, {"adagrad_step", adagrad_step},
};

bool wf_scalar_value(const char *name, const WfExeGroup *g, double lr_now, int64_t t, double *out)
{
    for (size_t i = 0; i < WF_LEN(rows); i++)
        if (!strcmp(rows[i].name, name)) {
            *out = rows[i].f(g, lr_now, (double)t);
            return true;
        }
    return false;
}
