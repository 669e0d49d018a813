/* Private to weft verify: a case that is replayed, and what was found. */
#ifndef WF_CLI_VERIFY_H
#define WF_CLI_VERIFY_H

#include "cli/case.h"

enum { VERIFY_GROUPS = 16 };

typedef struct {
    const char *name;        /* "grad", "param1", ... */
    double tolerance, worst; /* worst relative difference found */
    char *where;
    int compared;
    bool failed;
} VerifyGroup;

typedef struct {
    WfCtx *ctx;
    WfArena *a;
    json_t *json;
    const char *dir;
    WfComm *comm;            /* data parallel cases: this process is one of the ranks */
    int rank, ranks;
    const WfStrings *words;
    const WfTensors *inputs, *expected;
    weft_session *s;
    VerifyGroup groups[VERIFY_GROUPS];
    int n_groups;
    double *scratch;
} VerifyCase;

/* The group of that name, made when there is none yet. */
VerifyGroup *wf_verify_group(VerifyCase *c, const char *name, double tolerance);
/* The number of that key; `otherwise` when there is none. */
double wf_verify_number(json_t *o, const char *key, double otherwise);

/* On the ranks of a case: rank 0 gets what the others found, the worst of each group, and on which rank. */
void wf_verify_put_together(VerifyCase *c);
/* In the process that the user started: has the ranks replay the case, and takes their findings. */
void wf_verify_by_ranks(VerifyCase *c);

#endif
