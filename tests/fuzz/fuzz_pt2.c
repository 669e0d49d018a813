/* PT2 archives: imported, made functional and lowered, or refused. An input is one digit that names a real
 * archive, then the text of its model description, which is put back with a correct checksum; any other input
 * is taken as an archive as it is. */
#include "../unit/pt2.h"
#include "import/import.h"
#include "ops/ops.h"
#include "seeds.h"
#include "simplify/simplify.h"

#ifndef WEFT_SOURCE_DIR
#define WEFT_SOURCE_DIR "."
#endif

static const char *const cases[] = {"linreg_sgd",         "functional/view_chain", "functional/regions",
                                    "functional/dynamic", "functional/buffers",    "lstm_char_adam_clip",
                                    "lenet_sgd_nesterov", "dlrm_tiny_sgd"};

typedef struct {
    WfCtx *ctx;
    const uint8_t *at;
    size_t size;
} Job;

static WfZip *open_case(WfCtx *ctx, WfArena *a, size_t i)
{
    const char *path = wf_arena_printf(a, WEFT_SOURCE_DIR "/tests/refs/%s/model.pt2", cases[i]);
    return wf_zip_open(ctx, a, wf_file_map(ctx, a, path), 0);
}

static void import_it(void *arg)
{
    Job *j = arg;
    WfArena *a = wf_arena_new(j->ctx);
    WfPassEnv env = {.ctx = j->ctx, .arena = a};
    WfGraph *g = wf_import_pt2_bytes(j->ctx, a, j->at, j->size, "input", false)->graph;
    wf_simplify_decompose(&env, wf_simplify_functionalize(&env, g));
}

static void pack_it(void *arg)
{
    Job *j = arg;
    WfArena *a = wf_arena_new(j->ctx);
    WfZip *z = open_case(j->ctx, a, (size_t)(j->at[0] - '0'));
    WfZipEntry *e = entry_ending(z, "models/model.json");
    e->at = j->at + 1;
    e->size = j->size - 1;
    Bytes b = pack_archive(z->at, z->n);
    wf_guard(j->ctx, import_it, &(Job){j->ctx, b.at, b.n});
    free(b.at);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    WfCtx *ctx = wf_ctx_new();
    bool text = size && data[0] >= '0' && data[0] < '0' + (int)WF_LEN(cases);
    wf_guard(ctx, text ? pack_it : import_it, &(Job){ctx, data, size});
    wf_ctx_free(ctx);
    return 0;
}

static void give_seeds(void *arg)
{
    SeedWriter *w = arg;
    WfArena *a = wf_arena_new(w->ctx);
    for (size_t i = 0; i < WF_LEN(cases); i++) {
        WfZip *z = open_case(w->ctx, a, i);
        const WfZipEntry *e = entry_ending(z, "models/model.json");
        uint8_t *text = wf_arena_alloc(a, e->size + 1);
        text[0] = (uint8_t)('0' + i);
        memcpy(text + 1, e->at, e->size);
        w->add(text, e->size + 1);
        if (!i) {
            Bytes b = pack_archive(z->at, z->n);
            w->add(b.at, b.n);
            free(b.at);
        }
    }
}

void fuzz_seeds(void (*add)(const void *data, size_t size))
{
    SeedWriter w = {.ctx = wf_ctx_new(), .add = add};
    if (!w.ctx || wf_guard(w.ctx, give_seeds, &w)) {
        fprintf(stderr, "no seeds: %s\n", w.ctx ? w.ctx->diag.message : "no memory");
        exit(2);
    }
    wf_ctx_free(w.ctx);
}
