/* What this machine does, for those who choose by cost: which gradients share a bucket, what a plan is predicted to take.
 * The numbers stand in `machine.json` beside the caches, where `weft bench --machine` puts what it measured; without it
 * they are those of a middling server. Measured numbers never change the bits of a result. */
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"

static const WfMachine middling = {.flops = 100e9, .bytes = 10e9,
                                   .link = {[WF_LINK_LOCAL] = {30e-6, 30e-6, 3e9}, [WF_LINK_MPI] = {100e-6, 30e-6, 1e9}}};
static const char *const links[] = {"local", "mpi"};

void wf_machine_default(WfMachine *m) { *m = middling; }

static bool positive(json_t *o, const char *key, double *out)
{
    json_t *v = json_object_get(o, key);
    if (!json_is_number(v) || !(json_number_value(v) > 0) || !isfinite(json_number_value(v)))
        return false;
    *out = json_number_value(v);
    return true;
}

typedef struct { WfCtx *ctx; WfArena *a; const char *path; WfMachine *m; } Read;

static void read_all(void *p)
{
    Read *r = p;
    WfMachine m = middling;
    WfFile *f = wf_file_map(r->ctx, r->a, r->path);
    json_t *j = (json_t *)wf_json_parse(r->ctx, (const char *)f->at, f->size, r->path);
    positive(j, "flops_per_s", &m.flops);
    positive(j, "bytes_per_s", &m.bytes);
    for (int i = 0; i < WF_LINKS; i++) {
        json_t *l = json_object_get(json_object_get(j, "links"), links[i]);
        WfLink k;
        if (positive(l, "latency_s", &k.latency) && positive(l, "next_s", &k.next) && positive(l, "bytes_per_s", &k.rate))
            m.link[i] = k;
    }
    m.measured = true;
    *r->m = m;
}

void wf_machine_load(WfCtx *ctx, WfArena *a, const char *dir, WfMachine *m)
{
    Read r = {ctx, a, dir ? wf_arena_printf(a, "%s/machine.json", dir) : NULL, m};
    wf_machine_default(m);
    if (r.path && wf_file_exists(r.path) && wf_guard(ctx, read_all, &r) != WEFT_OK)
        wf_log(ctx, WF_LOG_WARN, "what was measured of this machine is not used: %s", ctx->diag.message);
}

void wf_machine_save(WfCtx *ctx, WfArena *a, const char *dir, const WfMachine *m)
{
    WfStr s = {.arena = a};
    wf_str_printf(&s, "{\"flops_per_s\": %.4g, \"bytes_per_s\": %.4g, \"links\": {", m->flops, m->bytes);
    for (int i = 0; i < WF_LINKS; i++)
        wf_str_printf(&s, "%s\"%s\": {\"latency_s\": %.4g, \"next_s\": %.4g, \"bytes_per_s\": %.4g}", i ? ", " : "", links[i],
                      m->link[i].latency, m->link[i].next, m->link[i].rate);
    wf_str_puts(&s, "}}\n");
    wf_mkdirs(ctx, dir);
    wf_write_file(ctx, wf_arena_printf(a, "%s/machine.json", dir), s.at, s.n);
}

int wf_device_core(WfCtx *ctx, const char *text)
{
    char *end = NULL;
    bool core = text && !strncmp(text, "core:", 5) && text[5] >= '0' && text[5] <= '9';
    long n = core ? strtol(text + 5, &end, 10) : -1;
    if ((text && strcmp(text, "cpu") && !core) || (core && (*end || n > 65535)))
        wf_fail_at(ctx, WF_E_OPTION_VALUE, NULL, "cpu, or core:N for the memory of the N-th core.", "option device: \"%.40s\" is no device",
                   text);
    return (int)n;
}
