/* For tests: a session of a recorded case, fed with its steps' inputs. */
#ifndef CASE_RUN_H
#define CASE_RUN_H

#include <string.h>

#include "api/api.h"
#include "run/private.h"

#define REFS WEFT_SOURCE_DIR "/tests/refs/"

typedef struct {
    weft_context *ctx;
    weft_program *program;
    weft_session *session;
    const char *folder;
    WfTensors *inputs;
} Run;

static void must(Run *r, weft_status s)
{
    if (s != WEFT_OK)
        fail_msg("%s: %s", r->folder, weft_message(r->ctx));
}

static void do_inputs(void *p)
{
    Run *r = p;
    WfCtx *c = (WfCtx *)r->ctx;
    r->inputs = wf_safetensors_open(c, c->arena, wf_arena_printf(c->arena, REFS "%s/inputs.safetensors", r->folder));
}

/* options: names and values in turn, then NULL. */
static void open_case(Run *r, const char *folder, const char *const *options)
{
    char path[256];
    *r = (Run){.ctx = weft_context_new(NULL), .folder = folder};
    snprintf(path, sizeof path, REFS "%s/model.pt2", folder);
    must(r, weft_open(r->ctx, path, &r->program));
    for (; *options; options += 2)
        must(r, weft_set(r->program, options[0], options[1]));
    must(r, weft_session_new(r->program, &r->session));
    must(r, wf_guard((WfCtx *)r->ctx, do_inputs, r));
}

/* Feeds the first rows (0: all) of the inputs of step t of the case, from 1; where only is given, of that one. */
static inline void feed_rows(Run *r, int t, int rows, const char *only)
{
    char prefix[16];
    int n = snprintf(prefix, sizeof prefix, "step%d.", t);
    for (int i = 0; i < r->inputs->n; i++) {
        const WfTensor *w = &r->inputs->at[i];
        weft_tensor one = {(weft_dtype)w->dtype, w->rank, {0}, (void *)w->data};
        memcpy(one.shape, w->shape, sizeof one.shape);
        one.shape[0] = rows ? rows : one.shape[0];
        if (!strncmp(w->name, prefix, (size_t)n) && (!only || !strcmp(w->name + n, only)))
            must(r, weft_feed(r->session, w->name + n, &one));
    }
}

static void feed_case(Run *r, int t) { feed_rows(r, t, 0, NULL); }

static weft_status step_case(Run *r, int t, double *loss)
{
    feed_case(r, t);
    return weft_step(r->session, loss);
}

static uint64_t state_hash(const Run *r)
{
    return wf_hash64(r->session->run->state, (size_t)r->session->run->state_bytes, 0);
}

#endif
