/* weft info of a run: its checkpoints, as their MANIFESTs tell, newest first. Whether they are whole shows when they are read. */
#include "cli/cli.h"

#include "train/train.h"

#include <jansson.h>
#include <string.h>

typedef struct { WfCtx *ctx; const char *folder; int64_t step; } One;

static void put_one(void *v)
{
    const One *o = v;
    WfArena *a = o->ctx->arena;
    char *path = wf_arena_printf(a, "%s/step-%lld/MANIFEST", o->folder, (long long)o->step);
    WfFile *f = wf_file_map(o->ctx, a, path);
    const uint8_t *end = memrchr(f->at, '}', f->size);
    json_t *j = (json_t *)wf_json_parse(o->ctx, (const char *)f->at, end ? (size_t)(end - f->at) + 1 : f->size, path), *file;
    json_int_t ranks = 0, bytes = 0, best_step = 0, samples = 0;
    const char *weft = "?", *metric = "";
    size_t i;
    json_unpack(j, "{s:I, s:I, s:s, s:s, s:I}", "ranks", &ranks, "samples", &samples, "weft", &weft, "best_metric", &metric, "best_step",
                &best_step);
    json_array_foreach(json_object_get(j, "files"), i, file)
        bytes += json_integer_value(json_object_get(file, "bytes"));
    printf("checkpoint step-%-10lld %.2f MB of %lld rank%s, %lld training samples", (long long)o->step, (double)bytes / 1e6, (long long)ranks,
           ranks == 1 ? "" : "s", (long long)samples);
    if (*metric)
        printf(", best %s at step %lld", metric, (long long)best_step);
    printf(", weft %s\n", weft);
}

bool wf_cli_checkpoints(WfCtx *ctx, const char *path)
{
    WfArena *a = ctx->arena;
    static const char *const files[] = {"final.safetensors", "best.safetensors", "optimizer.safetensors", WF_RECIPE_FILE, "metrics.jsonl"};
    const char *slash = strrchr(path, '/');
    size_t n = strlen(path);
    int64_t *steps;
    if (n > 5 && !strcmp(path + n - 5, ".wfck"))
        wf_fail_at(ctx, WF_E_NOT_PT2, NULL, "weft info lists the checkpoints of the run's folder, and weft train --resume goes on from one.",
                   "%s: this is one rank's part of a checkpoint", slash ? slash + 1 : path);
    if (!wf_is_folder(path))
        return false;
    char *inner = wf_train_path(a, path, "checkpoints");
    const char *folder = wf_file_exists(inner) ? inner : path;
    int count = wf_checkpoint_list(a, folder, &steps), found = 0;
    for (size_t i = 0; i < WF_LEN(files); i++)
        if (wf_file_exists(wf_train_path(a, path, files[i])) && ++found)
            printf("file       %s\n", wf_train_path(a, path, files[i]));
    for (int i = 0; i < count; i++) {
        One o = {ctx, folder, steps[i]};
        if (wf_guard(ctx, put_one, &o) != WEFT_OK)
            printf("checkpoint step-%-10lld damaged: %s\n", (long long)steps[i], ctx->diag.message);
    }
    if (!count && !found)
        wf_fail_at(ctx, WF_E_ARGUMENT_MISSING, NULL, "Name a file, or the --out of a training.", "%s: the folder holds neither results nor checkpoints of a run",
                   path);
    return true;
}
