/* Private to ops: the families, and what their files share. */
#ifndef WF_OPS_PRIVATE_H
#define WF_OPS_PRIVATE_H
#include "ops/ops.h"

#define WF_FAMILY(name) void wf_ops_##name(void);
#include "ops/ops.list"
#undef WF_FAMILY
void wf_ops_inplace(void);

/* True, with the number, when v is a constant fill (through views). */
bool wf_constant(WfGraph *g, WfVal v, double *out);

/* Slow evaluation for the oracle: evaluate.c, evaluate_seq.c. */
#define WF_EVAL(name) void wf_##name##_eval(WfOracle *o, const WfNode *n)
WF_EVAL(full); WF_EVAL(iota); WF_EVAL(size); WF_EVAL(rand);
WF_EVAL(gather); WF_EVAL(scatter); WF_EVAL(argmax); WF_EVAL(argmin);
WF_EVAL(cumsum); WF_EVAL(cumprod); WF_EVAL(sort); WF_EVAL(matmul);
WF_EVAL(conv); WF_EVAL(conv_bwd_data); WF_EVAL(conv_bwd_weight); WF_EVAL(attention);
WF_EVAL(attention_bwd); WF_EVAL(rnn); WF_EVAL(rnn_bwd);
#undef WF_EVAL

/* Shared by activations and losses, without overflow: log(1 + exp(x)), log(sigmoid(x)). */
WfVal wf_softplus(WfGraph *g, WfVal x);
WfVal wf_log_sigmoid(WfGraph *g, WfVal x);

/* torch.matmul of any ranks; x w' + b (b may be 0). Failures name n. */
WfVal wf_matmul_any(WfGraph *g, const WfNode *n, WfVal a, WfVal b);
WfVal wf_linear(WfGraph *g, const WfNode *n, WfVal x, WfVal w, WfVal b);

/* x, in f32 when it is of a 16-bit format: statistics and sums are taken in that. */
WfVal wf_wide(WfGraph *g, WfVal x);
/* nn.normalize: out = y, mean, biased variance over the dimensions of the mask (kept with size 1). */
void wf_normalize(WfGraph *g, WfVal x, WfVal w, WfVal b, uint32_t dims, double eps, WfVal *out);

/* f32 draws of a new stream; x with elements dropped with probability p and the others scaled up. */
WfVal wf_uniform(WfGraph *g, int rank, const WfDim *shape);
WfVal wf_dropout(WfGraph *g, WfVal x, double p);
/* Weights of the four taps of cubic interpolation (Keys 1981, a = -0.75) at `part` of the way from the second. */
void wf_cubic_weights(WfGraph *g, WfVal part, WfVal w[4]);
/* x with dimension dim replaced by weights[out, in] times it. */
WfVal wf_resample(WfGraph *g, WfVal x, int dim, WfVal weights);

/* A row of a family's table: an ATen op that is nothing but its decomposition. */
#define ROW(text, rule)                                                   \
    {                                                                     \
        .schema = "aten." text, .family = WF_COMPOSITE, .decompose = rule \
    }

#endif
