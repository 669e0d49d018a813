/* Private to grad. */
#ifndef WF_GRAD_PRIVATE_H
#define WF_GRAD_PRIVATE_H

#include "grad/grad.h"

/* What is to be differentiated for a loss (rank 0), and what it is reported as. */
typedef struct {
    WfVal loss;   /* of this micro-batch, as reported */
    WfVal sum;    /* its share of the step's loss, which is the sum of all shares over the sum of all weights */
    WfVal weight; /* 0: the micro-batch is the step, and `sum` is the loss */
    WfVal any;    /* has it any row that counts? A bool; 0: it always has */
} WfLossShare;

/* The loss of option loss-norm and last-batch. Raises WEFT_ERR_UNSUPPORTED, naming the node and the user's line, where they
 * need a mean over samples and it is none. */
WfLossShare wf_grad_loss(WfPassEnv *env, WfGraph *g, WfVal loss);
/* A micro-batch without samples (`any`, 0: there is none) changes no buffers: UPDATE outputs keep the old value then. */
void wf_grad_guard_buffers(WfGraph *g, WfVal any);

/* By value: does a wanted value lead to it, past nothing that stops gradients? */
bool *wf_grad_needed(WfGraph *g, const WfVal *wrt, int n);
/* For halves: the cotangent of every differentiable output becomes an input, the gradient of every wanted input an output. */
void wf_grad_ends(WfGraph *g);

/* The first node that takes statistics over samples (batch norm in training); NULL: none does. */
const WfNode *wf_grad_mixed(WfGraph *g);
/* Warns of a node: in the executable, which may come from a cache when it is used; without one now. */
void wf_grad_warn(WfPassEnv *env, WfGraph *g, const char *what, const WfNode *n);

#endif
