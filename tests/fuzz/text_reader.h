/* The target of a reader of text that gives a tree of JSON values: PARSE(ctx, text, size, what). */
#ifndef WEFT_FUZZ_TEXT_READER_H
#define WEFT_FUZZ_TEXT_READER_H

#include "seeds.h"

typedef struct { WfCtx *ctx; const char *text; size_t size; } Job;

static void parse_it(void *arg)
{
    Job *j = arg;
    PARSE(j->ctx, j->text, j->size, "input");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    WfCtx *ctx = wf_ctx_new();
    wf_guard(ctx, parse_it, &(Job){ctx, (const char *)data, size});
    wf_ctx_free(ctx);
    return 0;
}

#endif
