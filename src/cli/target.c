/* The one rule about files that a verb writes to the name that it was given (-o, --out): a file of the same kind is replaced, as a
 * whole, so that a command can be run again; one that the verb reads, or that holds something else, is never touched. */
#include "cli/cli.h"

#include "onnx/onnx.h"

#include <string.h>
#include <sys/stat.h>

typedef struct { WfCtx *ctx; const char *path, *tensor; WfTarget kind; bool same; } Look;

/* Is the file of the kind? */
static void look(void *v)
{
    Look *l = v;
    WfArena *a = l->ctx->arena;
    WfFile *f = wf_file_map(l->ctx, a, l->path);
    bool zip = f->size >= 4 && !memcmp(f->at, "PK\3\4", 4);
    if (l->kind == WF_TARGET_ONNX_DATA) {
        l->same = f->size >= WF_ONNX_MARK && !memcmp(f->at, wf_onnx_mark, WF_ONNX_MARK);
    } else if (l->kind == WF_TARGET_ONNX) { /* protocol buffers have no mark: the first fields that Weft writes, the version and its own name */
        l->same = f->size >= 8 && f->at[0] == 8 && !memcmp(f->at + 2, "\x12\x04weft", 6);
    } else if (l->kind == WF_TARGET_STEP || l->kind == WF_TARGET_EXPORT) {
        WfZip *z = zip ? wf_zip_open(l->ctx, a, f, 0) : NULL;
        bool step = z && wf_zip_find(z, "exe.json"), export = false;
        for (int i = 0; z && i < z->n; i++)
            export |= strstr(z->at[i].name, "/models/") != NULL;
        l->same = l->kind == WF_TARGET_STEP ? step : export && !step;
    } else {
        l->same = wf_tensors_find(wf_safetensors_open(l->ctx, a, l->path), l->tensor) != NULL;
    }
}

static bool same_file(const char *a, const struct stat *b)
{
    struct stat x;
    return a && !stat(a, &x) && x.st_dev == b->st_dev && x.st_ino == b->st_ino;
}

/* What the command reads from that file, or from a folder of files that it lies in; NULL: nothing. */
static const char *reads(WfArena *a, const WfOptions *o, const WfStrings *words, const char *out, const struct stat *st)
{
    const char *const files[] = {o->weights, o->recipe, o->loss_weights, o->pos_weight, o->optimizer_state, o->config};
    static const char *const names[] = {"the weights", "the recipe", "the loss's weights", "the loss's weights", "the optimiser's state",
                                        "the settings"};
    struct stat folder;
    const char *slash = strrchr(out, '/');
    for (int i = 0; i < words->n; i++)
        if (same_file(words->at[i], st))
            return "the model";
    for (size_t i = 0; i < WF_LEN(files); i++)
        if (same_file(files[i], st))
            return names[i];
    if (o->weights && !stat(slash ? wf_arena_strndup(a, out, (size_t)(slash - out) + 1) : ".", &folder) && same_file(o->weights, &folder))
        return "the folder of the weights";
    for (int i = 0; i < o->data.n; i++) {
        const char *equals = strchr(o->data.at[i], '=');
        if (same_file(o->data.at[i], st) || (equals && same_file(equals + 1, st)))
            return "the data";
    }
    return NULL;
}

void wf_cli_target(WfCtx *ctx, const WfOptions *o, const WfStrings *words, const char *out, WfTarget kind, const char *tensor)
{
    static const char *const what[] = {"predictions", "an export (.pt2)", "a compiled step (.weft)", "an ONNX model of Weft's", "the weights of an ONNX model of Weft's",
                                        "weights of this model"};
    const char *slash = strrchr(out, '/');
    char *folder = slash ? wf_arena_strndup(ctx->arena, out, (size_t)(slash - out) + 1) : NULL;
    struct stat st;
    if (folder && !wf_file_exists(folder))
        wf_fail_at(ctx, WF_E_IO, NULL, "Make the folder first.", "%s: there is no folder %s", out, folder);
    if (stat(out, &st))
        return;
    if (S_ISDIR(st.st_mode))
        wf_fail_at(ctx, WF_E_OUT_FILE, NULL, "Name a file.", "%s is a folder", out);
    if (!S_ISREG(st.st_mode)) /* a device or a pipe keeps nothing */
        return;
    const char *read = reads(ctx->arena, o, words, out, &st);
    if (read)
        wf_fail_at(ctx, WF_E_OUT_FILE, NULL, "Choose another name.", "%s would be written over: this command reads %s from there", out, read);
    Look l = {ctx, out, tensor, kind, false};
    weft_status s = st.st_size ? wf_guard(ctx, look, &l) : WEFT_OK;
    if (s == WEFT_ERR_CANCELLED || s == WEFT_ERR_MEMORY)
        wf_reraise(ctx, s);
    if (st.st_size && !l.same)
        wf_fail_at(ctx, WF_E_OUT_FILE, NULL, "Choose another name, or remove it first.",
                   "%s exists and does not hold %s, so it is not written over", out, what[kind]);
}
