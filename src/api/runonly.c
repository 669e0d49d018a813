/* What libweft-run says where libweft would compile. */
#ifdef WEFT_RUN_ONLY
#include "api/api.h"

static WF_NORETURN void no_compiler(weft_program *p)
{
    wf_fail_at(p->ctx, WF_E_RUN_ONLY, p->path, "Compile it with weft compile -o step.weft, or link libweft.",
               "libweft-run opens compiled steps only");
}

void wf_program_open_model(weft_program *p, const char *path) { (void)path; no_compiler(p); }
void wf_program_compile(weft_program *p) { no_compiler(p); }
void wf_program_compile_together(weft_program *p, WfComm *comm) { (void)comm; no_compiler(p); }
void wf_program_save(weft_program *p, const char *path) { (void)path; no_compiler(p); }

bool wf_program_weight(void *program, const char *name, void *to, size_t bytes)
{
    (void)program, (void)name, (void)to, (void)bytes;
    return false;
}
#endif
