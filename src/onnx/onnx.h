/* onnx: the evaluation form as a model of ONNX's standard operators. */
#ifndef WF_ONNX_H
#define WF_ONNX_H

#include "ir/ir.h"

/* Where the values of parameters, buffers and constants come from: dense, in the dtype of the graph; NULL: unknown name. They
 * live as long as the arena of the graph. */
typedef struct { const void *(*fn)(void *user, const char *name, size_t bytes); void *user; } WfOnnxData;

/* Writes a graph of level func, the evaluation form, as an ONNX file (opset 18) with one output, `predictions`: inputs under their
 * names, symbolic sizes as dim_param, weights as initializers. The graph's other outputs are dropped. Raises WF_E_ONNX for a
 * node without an ONNX form, naming it and its Python line, and when the file would have more than 2 GB. */
void wf_onnx_write(WfCtx *ctx, WfGraph *g, WfOnnxData data, const char *path);

#endif
