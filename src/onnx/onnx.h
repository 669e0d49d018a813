/* onnx: the evaluation form as a model of ONNX's standard operators. */
#ifndef WF_ONNX_H
#define WF_ONNX_H

#include "ir/ir.h"

/* Where the values of parameters, buffers and constants come from: dense, in the dtype of the graph; NULL: unknown name. They
 * live as long as the arena of the graph. */
typedef struct {
    const void *(*fn)(void *user, const char *name, size_t bytes);
    void (*beside)(void *user, const char *path); /* called before anything is written when a second file will be; may raise */
    int64_t limit;           /* bytes of a model from which on its weights go into a second file; WF_ONNX_MOST at most */
    void *user;
} WfOnnxData;

enum { WF_ONNX_MOST = INT32_MAX - 4096 }; /* of a protobuf */
#define WF_ONNX_DATA ".data"              /* the second file's name ends so */
enum { WF_ONNX_MARK = 64 };
extern const char wf_onnx_mark[WF_ONNX_MARK]; /* its first bytes */

/* Writes a graph of level func, the evaluation form, as an ONNX file (opset 18) with one output, `predictions`: inputs under their
 * names, symbolic sizes as dim_param, weights as initializers, beyond the limit in `path`.data. The graph's other outputs are
 * dropped. Raises WF_E_ONNX for a node without an ONNX form, naming it and its Python line. */
void wf_onnx_write(WfCtx *ctx, WfGraph *g, WfOnnxData data, const char *path);

#endif
