/* Private to cli: case folders, docs/cases.md. */
#ifndef WF_CLI_CASE_H
#define WF_CLI_CASE_H

#include "cli/cli.h"

#include <jansson.h>

/* Sets the options that the case in folder `dir` was recorded with, but for the number of ranks. Raises WEFT_ERR_FILE or
 * WEFT_ERR_USAGE. */
void wf_case_options(WfCtx *ctx, WfArena *a, const json_t *json, const char *dir, WfOptions *o);

#endif
