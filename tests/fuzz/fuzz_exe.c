/* Compiled steps: the whole file, and its exe.json alone (a checksum keeps most damage to the file from
 * getting far). What loads must have sizes that can be evaluated, buffers in range and names where they are
 * needed. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "exe/exe.h"
#include "seeds.h"

typedef struct {
    WfCtx *ctx;
    const uint8_t *data;
    size_t size;
    const char *path; /* NULL: exe.json alone */
} Job;

static void evaluate(const WfExe *x)
{
    int64_t symbols[64] = {0};
    for (int i = 0; i < x->n_symbols && i < 64; i++)
        symbols[i] = x->symbols[i].lo;
    for (int k = 0; k < WF_PROGRAMS && x->n_symbols <= 64; k++)
        for (int i = 0; i < x->program[k].n_bufs; i++)
            wf_exe_eval(x, x->program[k].bufs[i].bytes, symbols);
}

static void load_it(void *arg)
{
    Job *j = arg;
    WfArena *a = wf_arena_scratch(j->ctx);
    if (j->path)
        evaluate(wf_exe_load(j->ctx, a, j->path));
    else
        evaluate(wf_exe_parse(j->ctx, a, j->data, j->size, "input"));
    wf_arena_free(a);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    WfCtx *ctx = wf_ctx_new();
    Job j = {.ctx = ctx, .data = data, .size = size};
    char path[64];
    int fd = -1;
    if (size > 4 && !memcmp(data, "PK", 2)) { /* as a file: an anonymous one */
        fd = memfd_create("weft-fuzz", MFD_CLOEXEC);
        if (fd < 0 || write(fd, data, size) != (ssize_t)size)
            abort();
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        j.path = path;
    }
    wf_guard(ctx, load_it, &j);
    wf_ctx_free(ctx);
    if (fd >= 0)
        close(fd);
    return 0;
}

/* A step by hand: y = kernel(x, w) for a symbolic batch, a library call, a copy into the state. */
static WfExe *example(WfCtx *ctx, WfArena *a)
{
    static WfExeSymbol symbols[1];
    static WfExeInput inputs[3];
    static WfExeBuf bufs[4];
    static WfExeOperand operands[3][3];
    static WfExeCall calls[3];
    static WfExeOutput outputs[2];
    static WfExeGroup groups[1];
    static const char *also[] = {"tied.w"};
    static const WfExeCheck checks[] = {{"at %y", "x", 0, 4}};
    WfExe *x = WF_NEW(a, WfExe);
    x->ctx = ctx;
    x->ranks = 1;
    x->core = -1;
    x->arena = a;
    x->exprs = wf_exprs_new(ctx, a);
    WfDim s = wf_sym(x->exprs, "s0", 1, 64), bytes = wf_emul(x->exprs, s, 16);
    symbols[0] = (WfExeSymbol){.name = "s0", .lo = 1, .hi = 64, .factor = 1};
    inputs[0] = (WfExeInput){.role = WF_XIN_USER, .name = "x", .dtype = WF_F32, .rank = 2, .shape = {s, 4}};
    inputs[1] = (WfExeInput){.role = WF_XIN_PARAM,
                             .name = "w",
                             .dtype = WF_F32,
                             .rank = 1,
                             .shape = {4},
                             .trainable = true,
                             .aliases = also,
                             .n_aliases = 1};
    inputs[2] = (WfExeInput){.role = WF_XIN_STATE,
                             .name = "w.m",
                             .dtype = WF_F32,
                             .rank = 1,
                             .shape = {4},
                             .of = "w",
                             .fill = 0.5};
    for (int i = 0; i < 4; i++)
        bufs[i] = (WfExeBuf){.place = i % 2 ? WF_PLACE_SLAB : WF_PLACE_INPUT,
                             .dtype = WF_F32,
                             .rank = 2,
                             .shape = {s, 4},
                             .stride = {4, 1},
                             .bytes = bytes,
                             .input = i % 2 ? -1 : i / 2,
                             .last = 2,
                             .same_as = -1,
                             .name = "y"};
    for (int i = 0; i < 3; i++) {
        for (int k = 0; k < 3; k++)
            operands[i][k] = (WfExeOperand){.buf = k, .rank = 2, .shape = {s, 4}, .stride = {4, 1}};
        calls[i] = (WfExeCall){.kind = (WfCallKind)i,
                               .symbol = i < 2 ? "gemm" : NULL,
                               .n = i < 2 ? 3 : 2,
                               .operand = operands[i],
                               .tiles = s,
                               .elements = bytes,
                               .workspace = -1,
                               .name = "%y",
                               .where = "net.py:3",
                               .checks = checks,
                               .n_checks = 1};
    }
    outputs[0] = (WfExeOutput){WF_XOUT_LOSS, "loss", 1, 0};
    outputs[1] = (WfExeOutput){WF_XOUT_UPDATE, "w", 3, 1};
    groups[0] = (WfExeGroup){.optimizer = "sgd", .lr = 0.1, .lr_scale = 1};
    x->signature = x->options = "";
    x->symbols = symbols, x->n_symbols = 1;
    x->inputs = inputs, x->n_inputs = 3;
    x->groups = groups, x->n_groups = 1;
    for (int k = 0; k < WF_PROGRAMS; k++)
        x->program[k] = (WfExeProgram){calls, 3, 2, bufs, 4, outputs, 2};
    return x;
}

static bool write_seed(WfCtx *ctx, int i, const char *path)
{
    static const uint8_t object[64] = {0x7f, 'E', 'L', 'F'};
    WfExe *x = example(ctx, ctx->arena);
    if (i > 3)
        return false;
    x->object[0] = object;
    x->object_size[0] = sizeof object;
    wf_exe_save(ctx, x, path);
    if (i == 0)
        return true;
    WfFile *f = wf_file_map(ctx, ctx->arena, path); /* the others: exe.json alone */
    const WfZipEntry *e = wf_zip_find(wf_zip_open(ctx, ctx->arena, f, WF_ZIP_CHECK), "exe.json");
    uint8_t *copy = wf_arena_alloc(ctx->arena, e->size);
    memcpy(copy, e->at, e->size);
    wf_write_file(ctx, path, copy, e->size);
    return true;
}

void fuzz_seeds(void (*add)(const void *data, size_t size))
{
    seeds_from_files(write_seed, add);
}
