/* A second device: memory that is bound to a core. Training there gives the bits of training in the processor's memory; and
 * a value that lies on one device is not handed to a call that is placed on the other, which is named. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <hwloc.h>

#include "case_run.h"

static void open_on(Run *r, const char *device, const char *nproc)
{
    open_case(r, "lenet_sgd_nesterov",
              (const char *const[]){"device", device, "nproc", nproc, "threads", "2", NULL});
}

/* The name of the first trainable parameter. */
static const char *first_parameter(const Run *r)
{
    const WfExe *x = r->program->exe;
    for (int i = 0; i < x->n_inputs; i++)
        if (x->inputs[i].role == WF_XIN_PARAM && x->inputs[i].trainable)
            return x->inputs[i].name;
    fail_msg("no parameter");
    return NULL;
}

/* Is the page at p bound to the memory of that core, as the system says? */
static bool bound(const void *p, int core)
{
    hwloc_topology_t t;
    hwloc_membind_policy_t policy = HWLOC_MEMBIND_DEFAULT;
    assert_int_equal(hwloc_topology_init(&t), 0);
    assert_int_equal(hwloc_topology_load(t), 0);
    hwloc_bitmap_t set = hwloc_bitmap_alloc();
    assert_int_equal(hwloc_get_area_membind(t, p, 1, set, &policy, HWLOC_MEMBIND_BYNODESET), 0);
    hwloc_obj_t c = hwloc_get_obj_by_type(t, HWLOC_OBJ_CORE, (unsigned)core);
    bool same = policy == HWLOC_MEMBIND_BIND && c && hwloc_bitmap_isequal(set, c->nodeset);
    hwloc_bitmap_free(set);
    hwloc_topology_destroy(t);
    return same;
}

static void same_bits(void **state)
{
    (void)state;
    Run cpu, core;
    open_on(&cpu, "cpu", "1");
    open_on(&core, "core:0", "1");
    for (int t = 1; t <= 3; t++) {
        double a = 0, b = 1;
        must(&cpu, step_case(&cpu, t, &a));
        must(&core, step_case(&core, t, &b));
        assert_true(a == b);
    }
    assert_true(state_hash(&cpu) == state_hash(&core));
    const WfSession *s = core.session->run;
    assert_int_equal(wf_core_at(s->state), 0);
    assert_int_equal(wf_core_at(s->slab[1].at), 0);
    assert_int_equal(wf_core_at(s->slab[1].at + s->slab[1].size - 1), 0);
    assert_null(s->slab[0].at);
    assert_true(bound(s->state, 0) && bound(s->slab[1].at, 0));
    assert_int_equal(wf_core_at(cpu.session->run->state), -1);
    assert_false(bound(cpu.session->run->state, 0));
    const void *was = s->state;
    weft_context_free(core.ctx);
    assert_int_equal(wf_core_at(was), -1); /* it is nobody's any more */
    weft_context_free(cpu.ctx);
}

static void refused(Run *r, weft_status s, const char *a, const char *b)
{
    const char *m = weft_message(r->ctx);
    assert_int_equal(s, WEFT_ERR_USAGE);
    if (!m || !strchr(m, '%') || !strstr(m, a) || !strstr(m, b))
        fail_msg("the message is: %s", m ? m : "none");
}

/* Memory of the host handed to a step on a core, and of a core to a step on the processor. */
static void foreign_memory(void **state)
{
    (void)state;
    Run core, cpu;
    double loss;
    weft_tensor w;
    open_on(&core, "core:0", "1");
    open_on(&cpu, "cpu", "1");
    must(&core, step_case(&core, 1, &loss));
    must(&cpu, step_case(&cpu, 1, &loss));
    uint64_t before = state_hash(&core);
    const char *name = first_parameter(&core);
    must(&core, weft_parameter(core.session, name, &w));
    weft_tensor pinned = w, host = w;
    size_t bytes = sizeof(float);
    for (int d = 0; d < w.rank; d++)
        bytes *= (size_t)w.shape[d];
    host.data = aligned_alloc(64, (bytes + 63) / 64 * 64);
    memcpy(host.data, w.data, bytes);
    must(&core, weft_parameter_replace(core.session, name, &host));
    refused(&core, step_case(&core, 2, &loss), "is placed on core:0, but its operand", "lies on cpu");
    assert_true(strstr(weft_message(core.ctx), name) != NULL);
    assert_true(state_hash(&core) == before);
    must(&core, weft_parameter_replace(core.session, name, &pinned));
    must(&core, step_case(&core, 2, &loss));
    must(&cpu, weft_parameter_replace(cpu.session, name, &pinned));
    refused(&cpu, step_case(&cpu, 2, &loss), "is placed on cpu, but its operand", "lies on core:0");
    weft_context_free(cpu.ctx);
    weft_context_free(core.ctx);
    free(host.data);
}

static void do_prepare(void *p)
{
    int64_t none = 0;
    wf_session_prepare(((Run *)p)->session->run, WF_PROG_STEP, &none);
}

/* What a collective sends, or a kernel writes, planned on the other device. */
static void planned_apart(void **state)
{
    (void)state;
    for (int kind = 0; kind < 2; kind++) {
        Run r;
        open_on(&r, "core:0", "2");
        WfExeProgram *p = (WfExeProgram *)&r.program->exe->program[WF_PROG_STEP];
        int call = 0, moved = 0;
        while (call < p->n_calls && p->calls[call].kind != (kind ? WF_CALL_KERNEL : WF_CALL_START))
            call++;
        assert_true(call < p->n_calls);
        WfExeBuf *b = &p->bufs[p->calls[call].operand[p->calls[call].n - 1].buf];
        assert_int_equal(b->device, 1);
        for (int i = 0; i < p->n_bufs; i++) /* a bucket and what lies in it */
            if (&p->bufs[i] == b || (b->inside < 0 && p->bufs[i].inside == b - p->bufs)) {
                p->bufs[i].device = 0;
                moved++;
            }
        assert_true(moved > 0);
        refused(&r, wf_guard((WfCtx *)r.ctx, do_prepare, &r), "is placed on core:0, but its operand", "lies on cpu");
        if (!kind) { /* the kernels that write into the bucket move with it: the collective is the first that does not fit */
            for (int c = 0; c < p->n_calls; c++)
                p->calls[c].device &= p->calls[c].kind == WF_CALL_START || p->calls[c].kind == WF_CALL_WAIT;
            for (int i = 0; i < p->n_bufs; i++)
                p->bufs[i].device = 0;
            refused(&r, wf_guard((WfCtx *)r.ctx, do_prepare, &r), p->calls[call].name, "lies on cpu");
        }
        weft_context_free(r.ctx);
    }
}

static void no_such_device(void **state)
{
    (void)state;
    Run r = {.ctx = weft_context_new(NULL)};
    must(&r, weft_open(r.ctx, REFS "lenet_sgd_nesterov/model.pt2", &r.program));
    must(&r, weft_set(r.program, "device", "core:65000"));
    assert_int_equal(weft_session_new(r.program, &r.session), WEFT_ERR_USAGE);
    assert_non_null(strstr(weft_message(r.ctx), "device core:65000 does not exist: this machine has"));
    weft_context_free(r.ctx);
}

/* A batch of fewer rows is filled up, which wants more room on the device; what was fed is fed again afterwards, from the caller's memory. */
static void fewer_rows(void **state)
{
    (void)state;
    Run cpu, core;
    weft_tensor a, b;
    open_case(&cpu, "mlp_mnist_adamw", (const char *const[]){"threads", "2", NULL});
    open_case(&core, "mlp_mnist_adamw", (const char *const[]){"device", "core:0", "threads", "2", NULL});
    for (int rows = 2; rows <= 4; rows += 2) {
        feed_rows(&cpu, 1, rows, "x");
        feed_rows(&core, 1, rows, "x");
        for (int k = 0; k < 2; k++) { /* again, with what is fed */
            must(&cpu, weft_predict(cpu.session, &a));
            must(&core, weft_predict(core.session, &b));
            assert_true(a.shape[0] == rows && b.shape[0] == rows && a.shape[1] == b.shape[1]);
            assert_memory_equal(a.data, b.data, (size_t)(rows * a.shape[1]) * sizeof(float));
        }
    }
    weft_context_free(cpu.ctx);
    weft_context_free(core.ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(same_bits), cmocka_unit_test(foreign_memory), cmocka_unit_test(fewer_rows),
                                       cmocka_unit_test(planned_apart), cmocka_unit_test(no_such_device)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
