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

/* What is fed, as stand-ins of itself. */
void wf_api_take_fed(weft_session *s);
/* The rows of the first stand-in that has rows (none: 1). *full: the rows of the export where it has more, else 0. */
int64_t wf_api_rows(const weft_session *s, int64_t *full);
/* Moves stand-ins of `given` rows to memory of the session, with room for `rows`. Raises WEFT_ERR_DATA where they have not as many. */
void wf_api_make_room(weft_session *s, int64_t given, int64_t rows);
/* Runs fn, which feeds stand-ins, in a guard; afterwards what the caller fed is fed again. Returns the guard's status. */
weft_status wf_api_run_stood_in(weft_session *s, void (*fn)(void *), void *arg);

#endif
