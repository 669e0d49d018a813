/* Calls of the public interface: what they are given, and the guard that they run in. */
#ifndef WF_API_CALL_H
#define WF_API_CALL_H

#include "api/api.h"

#define CTX(p) ((p) ? (p)->ctx : NULL)
#define SESSION_CTX(s) ((s) ? (s)->program->ctx : NULL)

typedef struct {
    WfCtx *ctx;
    void (*fn)(void *);
    const char *needs;       /* what .text is, for a call that needs one; NULL: it needs none */
    bool needs_out;
    weft_program *p;
    weft_session *s;
    const char *text, *value;
    const weft_tensor *in;
    weft_tensor *out;
    int i;
    int64_t steps;
    double number;
    void *result;
} Call;

/* Runs fn(c) in a guard, after the checks that c asks for. ctx is NULL when the caller's handle was: there is nobody to tell more
 * than the status. */
weft_status wf_api_run(WfCtx *ctx, void (*fn)(void *), Call *c);
WfTensor wf_api_tensor_in(const weft_tensor *t);
void wf_api_tensor_out(const WfTensor *t, weft_tensor *out);

#endif
