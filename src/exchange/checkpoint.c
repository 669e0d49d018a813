/* Checkpoints: OUT/checkpoints/step-N/ holds a file per rank and a MANIFEST, OUT/checkpoints/LATEST the name of the
 * newest. A folder gets its name when everything in it is on the disk, LATEST follows the folder, and old folders go last
 * (first to a name that is no checkpoint's): whenever the machine stops, the newest whole one is there.
 *
 *   rank-R.wfck   "WEFTCKPT", version u32, zero u32, bytes of the header u64; the header (JSON: job, step, rank, and of each
 *                 tensor name, dtype, shape, offset, bytes, xxh3); from the next multiple of 64 on the tensors, each at a
 *                 multiple of 64; xxh3 of everything before the first tensor. Little-endian. Rank 0 writes all that the
 *                 step keeps, the others their buffers, which may differ.
 *   MANIFEST      JSON: where the run stands and what it was given, the files with size and checksum; its xxh3
 *
 * Resuming takes the newest folder whose MANIFEST and tensors match their checksums, and says why it left out newer ones. */
#include "exchange/exchange.h"

#include <dirent.h>
#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

enum { VERSION = 2, PREFIX = 24, ALIGNMENT = 64, HEADER_MOST = 1 << 28, RANKS_MOST = 65536 };
static const char magic[8] = "WEFTCKPT";

typedef struct { uint64_t bytes, hash; } Shard;

static uint64_t up(uint64_t n) { return (n + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT; }

static void WF_NORETURN WF_PRINTF(3, 4) bad(WfCtx *ctx, const char *path, const char *fmt, ...)
{
    char text[256];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    wf_fail(ctx, WF_E_CHECKPOINT_DAMAGED, "%s: %s", path, text);
}

/* ---- writing ------------------------------------------------------------------------------------ */

/* The tensors that a rank's file holds; returns how many. */
static int collect(const WfRun *t, int rank, WfTensor *out)
{
    int n = 0;
    for (int i = 0; i < t->exe->n_inputs; i++) {
        const WfExeInput *in = &t->exe->inputs[i];
        bool whole = in->role == WF_XIN_PARAM || in->role == WF_XIN_STATE;
        if ((in->role == WF_XIN_BUFFER || (whole && !rank)) && wf_session_tensor(t->session, in->name, &out[n]))
            out[n++].name = in->name;
    }
    return n;
}

static WfTensor *room_for_tensors(const WfRun *t, WfArena *a)
{
    return WF_NEWN(a, WfTensor, (size_t)t->exe->n_inputs + 1);
}

static const char zeros[ALIGNMENT];

static void put_zeros(WfOut *o, uint64_t n) { wf_out_write(o, zeros, n); }

static Shard write_shard(const WfRun *t, const char *path, const char *job, int64_t step, int rank)
{
    WfArena *a = wf_arena_scratch(t->ctx);
    WfTensor *at = room_for_tensors(t, a);
    int n = collect(t, rank, at);
    WfStr h = {.arena = a};
    uint64_t offset = 0;
    wf_str_putn(&h, zeros, PREFIX); /* filled in below */
    wf_str_printf(&h, "{\"job\": \"%s\", \"step\": %lld, \"rank\": %d, \"tensors\": [", job, (long long)step, rank);
    for (int i = 0; i < n; i++) {
        json_t *name = json_string(at[i].name);
        char *quoted = name ? json_dumps(name, JSON_ENCODE_ANY) : NULL;
        json_decref(name);
        if (!quoted)
            wf_fail(t->ctx, WF_E_MEMORY, "out of memory");
        wf_str_printf(&h, "%s\n{\"name\": %s, \"dtype\": \"%s\", \"shape\": [", i ? "," : "", quoted, wf_dtype_name(at[i].dtype));
        free(quoted);
        for (int k = 0; k < at[i].rank; k++)
            wf_str_printf(&h, "%s%lld", k ? ", " : "", (long long)at[i].shape[k]);
        wf_str_printf(&h, "], \"offset\": %llu, \"bytes\": %zu, \"xxh3\": \"%016llx\"}", (unsigned long long)offset,
                      at[i].bytes, (unsigned long long)wf_hash64(at[i].data, at[i].bytes, 0));
        offset += up(at[i].bytes);
    }
    wf_str_puts(&h, "]}\n");
    uint32_t words[2] = {VERSION, 0};
    uint64_t size = h.n - PREFIX, start = up(h.n);
    memcpy(h.at, magic, 8), memcpy(h.at + 8, words, 8), memcpy(h.at + 16, &size, 8);
    Shard s = {start + offset + 8, wf_hash64(h.at, h.n, 0)};
    WfOut *o = wf_out_open(t->ctx, path);
    wf_out_write(o, h.at, h.n);
    put_zeros(o, start - h.n);
    for (int i = 0; i < n; i++) {
        wf_out_write(o, at[i].data, at[i].bytes);
        put_zeros(o, up(at[i].bytes) - at[i].bytes);
    }
    wf_out_write(o, &s.hash, 8);
    wf_out_commit(o);
    wf_arena_free(a);
    return s;
}

static void number(WfStr *s, const char *key, double v)
{
    wf_str_printf(s, "\"%s\": ", key);
    if (isfinite(v))
        wf_str_float(s, v);
    else
        wf_str_puts(s, "null");
    wf_str_puts(s, ", ");
}

static void write_manifest(const WfRun *t, const char *path, const WfMark *m, const Shard *shards, int ranks)
{
    WfArena *a = wf_arena_scratch(t->ctx);
    WfStr s = {.arena = a};
    char sum[32];
    wf_str_printf(&s, "{\"format\": %d, \"step\": %lld, \"ranks\": %d, \"model\": \"%s\", \"samples\": %lld, \"step_rows\": %lld, \"epoch_steps\": %lld, \"steps_before\": %lld, ",
                  VERSION, (long long)m->step, ranks, t->exe->signature, (long long)m->samples, (long long)m->step_rows,
                  (long long)m->epoch_steps, (long long)m->before);
    wf_str_printf(&s, "\"seed\": %lld, \"shuffle\": %s, \"isa\": \"%s\", \"weft\": \"%s\", \"evaluated\": %s, \"evaluation_due\": %s, ",
                  (long long)t->options->seed, t->options->shuffle ? "true" : "false",
                  wf_isa_name(wf_session_isa(t->session)), weft_version(), m->evaluated ? "true" : "false",
                  m->evaluation_due ? "true" : "false");
    wf_str_printf(&s, "\"job\": \"%s\", \"total\": %lld, \"data\": \"%016llx\", \"recipe\": \"%016llx\", ", m->job, (long long)m->total,
                  (unsigned long long)m->data, (unsigned long long)m->recipe);
    wf_origin_print(t, &s);
    number(&s, "best", m->best);
    wf_str_printf(&s, "\"best_metric\": \"%s\", \"best_step\": %lld, \"stale\": %lld, ", m->best_metric ? m->best_metric : "",
                  (long long)m->best_step, (long long)m->stale);
    for (int r = 0; m->micro_batch && r < ranks; r++)
        wf_str_printf(&s, "%s%lld%s", r ? ", " : "\"micro_batch\": [", (long long)m->micro_batch[r], r + 1 < ranks ? "" : "], ");
    wf_str_puts(&s, "\"files\": [");
    for (int r = 0; r < ranks; r++)
        wf_str_printf(&s, "%s\n{\"name\": \"rank-%d.wfck\", \"bytes\": %llu, \"xxh3\": \"%016llx\"}", r ? "," : "", r,
                      (unsigned long long)shards[r].bytes, (unsigned long long)shards[r].hash);
    wf_str_puts(&s, "]}\n");
    snprintf(sum, sizeof sum, "%016llx\n", (unsigned long long)wf_hash64(s.at, s.n, 0));
    wf_str_puts(&s, sum);
    wf_write_file(t->ctx, path, s.at, s.n);
    wf_arena_free(a);
}

/* N of "step-N"; -1: another name. */
static int64_t step_of(const char *name)
{
    char *end;
    if (strncmp(name, "step-", 5) || name[5] < '0' || name[5] > '9')
        return -1;
    errno = 0;
    long long n = strtoll(name + 5, &end, 10);
    return *end || errno ? -1 : n;
}

int wf_checkpoint_list(WfArena *a, const char *folder, int64_t **steps)
{
    WF_VEC(int64_t) v = {0};
    DIR *d = opendir(folder);
    for (struct dirent *e; d && (e = readdir(d));)
        if (step_of(e->d_name) >= 0)
            WF_PUSH(a, &v, step_of(e->d_name));
    if (d)
        closedir(d);
    for (int i = 1; i < v.n; i++)
        for (int k = i; k > 0 && v.at[k] > v.at[k - 1]; k--) {
            int64_t x = v.at[k];
            v.at[k] = v.at[k - 1], v.at[k - 1] = x;
        }
    *steps = v.at;
    return v.n;
}

static char *step_path(WfArena *a, const char *folder, int64_t step)
{
    return wf_arena_printf(a, "%s/step-%lld", folder, (long long)step);
}

/* Removes checkpoints beyond the newest `keep`, and what earlier runs left unfinished: a folder is one run's. */
static void prune(const WfRun *t, const char *folder, int keep)
{
    WfArena *a = wf_arena_scratch(t->ctx);
    int64_t *steps;
    for (int i = keep, n = wf_checkpoint_list(a, folder, &steps); i < n; i++) {
        char *trash = wf_arena_printf(a, "%s/trash-%lld", folder, (long long)steps[i]);
        if (!rename(step_path(a, folder, steps[i]), trash))
            wf_remove_folder(trash);
    }
    DIR *d = opendir(folder);
    for (struct dirent *e; d && (e = readdir(d));) {
        bool unfinished = !strncmp(e->d_name, "step-", 5) && strstr(e->d_name, ".tmp.");
        if (unfinished || !strncmp(e->d_name, "trash-", 6))
            wf_remove_folder(wf_arena_printf(a, "%s/%s", folder, e->d_name));
    }
    if (d)
        closedir(d);
    wf_remove_unfinished(wf_arena_printf(a, "%s/LATEST", folder));
    wf_arena_free(a);
}

static void check_space(const WfRun *t, const char *folder)
{
    struct statvfs fs;
    uint64_t need = (uint64_t)wf_session_state_bytes(t->session) + (1 << 20);
    if (!statvfs(folder, &fs) && (uint64_t)fs.f_bavail * fs.f_frsize < need)
        wf_fail_at(t->ctx, WF_E_DISK_SPACE, folder, "Free some space and go on with --resume; earlier checkpoints are untouched.",
                   "a checkpoint needs %.1f MB, and the disk has %.1f MB left", (double)need / 1048576.0,
                   (double)fs.f_bavail * (double)fs.f_frsize / 1048576.0);
}

static void remove_unfinished(void *path) { wf_remove_folder(path); }

/* A name for a run that no other has. */
static void name_job(const WfRun *t, char job[33])
{
    uint8_t random[16];
    if (getentropy(random, sizeof random))
        wf_fail(t->ctx, WF_E_IO, "the system gives no random numbers: %s", strerror(errno));
    for (size_t i = 0; i < sizeof random; i++)
        snprintf(job + 2 * i, 3, "%02x", random[i]);
}

/* What rank 0 tells the others of a checkpoint that is begun. */
typedef struct { char name[64], job[33]; } Begun;

void wf_checkpoint_save(const WfRun *t, WfMark *m)
{
    int rank = t->comm ? wf_comm_rank(t->comm) : 0, ranks = t->comm ? wf_comm_size(t->comm) : 1;
    WfArena *a = wf_arena_scratch(t->ctx);
    char *folder = wf_arena_printf(a, "%s/checkpoints", t->folder), *temp;
    Begun mine_begun = {0}, *begun = WF_NEWN(a, Begun, (size_t)ranks);
    Shard *shards = WF_NEWN(a, Shard, (size_t)ranks);
    WfDefer *unfinished = NULL;
    snprintf(mine_begun.name, sizeof mine_begun.name, "step-%lld.tmp.%ld", (long long)m->step, (long)getpid());
    if (!rank && !*m->job)
        name_job(t, m->job);
    memcpy(mine_begun.job, m->job, sizeof m->job);
    if (!rank) {
        temp = wf_arena_printf(a, "%s/%s", folder, mine_begun.name);
        wf_mkdirs(t->ctx, folder);
        prune(t, folder, INT32_MAX);
        check_space(t, folder);
        wf_remove_folder(temp);
        wf_mkdirs(t->ctx, temp);
        unfinished = wf_defer(t->ctx, remove_unfinished, temp);
    }
    begun[0] = mine_begun;
    if (ranks > 1)
        wf_comm_exchange(t->comm, &mine_begun, sizeof mine_begun, begun, 0, "the checkpoint");
    temp = wf_arena_printf(a, "%s/%s", folder, begun[0].name);
    if (rank && !wf_file_exists(temp))
        wf_fail_at(t->ctx, WF_E_CHECKPOINT_FOLDER, temp, "Name a folder that all hosts share.", "rank %d does not see the checkpoint's folder",
                   rank);
    Shard mine = write_shard(t, wf_arena_printf(a, "%s/rank-%d.wfck", temp, rank), begun[0].job, m->step, rank);
    shards[0] = mine;
    if (ranks > 1)
        wf_comm_exchange(t->comm, &mine, sizeof mine, shards, 0, "the checkpoint");
    if (!rank) {
        char *final = step_path(a, folder, m->step), *trash = wf_arena_printf(a, "%s/trash-%lld", folder, (long long)m->step);
        write_manifest(t, wf_arena_printf(a, "%s/MANIFEST", temp), m, shards, ranks);
        wf_sync_folder(t->ctx, temp);
        if (!rename(final, trash)) /* a damaged one that resuming had left out */
            wf_remove_folder(trash);
        wf_rename(t->ctx, temp, final);
        wf_defer_keep(unfinished);
        char *latest = wf_arena_printf(a, "step-%lld\n", (long long)m->step);
        wf_write_file(t->ctx, wf_arena_printf(a, "%s/LATEST", folder), latest, strlen(latest));
        prune(t, folder, t->keep);
    }
    wf_arena_free(a);
}

/* ---- reading ------------------------------------------------------------------------------------ */

/* Tensors of a rank's file, each checked against its checksum. `want`: size and checksum of the MANIFEST, `job`: its run. */
static WfTensor *read_shard(WfCtx *ctx, WfArena *a, const char *path, Shard want, const char *job, int64_t step, int rank, int *n)
{
    WfFile *f = wf_file_map(ctx, a, path);
    uint64_t size = 0, hash = 0;
    uint32_t version = 0;
    if (f->size != want.bytes || f->size < PREFIX + 8)
        bad(ctx, path, "it has %zu bytes, the MANIFEST says %llu", f->size, (unsigned long long)want.bytes);
    memcpy(&version, f->at + 8, 4), memcpy(&size, f->at + 16, 8), memcpy(&hash, f->at + f->size - 8, 8);
    if (memcmp(f->at, magic, 8) || version != VERSION)
        bad(ctx, path, "it is no checkpoint of this version of Weft");
    if (size > HEADER_MOST || PREFIX + size > f->size - 8 || up(PREFIX + size) > f->size - 8)
        bad(ctx, path, "its header reaches beyond its end");
    if (wf_hash64(f->at, PREFIX + size, 0) != hash)
        bad(ctx, path, "the checksum of its header does not match");
    WfDefer *release;
    json_t *j = wf_json_load(ctx, (const char *)f->at + PREFIX, size, path, &release), *list, *item;
    json_int_t at_step, at_rank;
    const char *of;
    if (!json_unpack(j, "{s:s}", "job", &of) && strcmp(of, job))
        bad(ctx, path, "it is of another run (%.32s) than the MANIFEST (%.32s)", of, job);
    if (hash != want.hash)
        bad(ctx, path, "it is not the file that the MANIFEST speaks of");
    if (json_unpack(j, "{s:I, s:I, s:o}", "step", &at_step, "rank", &at_rank, "tensors", &list) || !json_is_array(list) ||
        at_step != step || at_rank != rank)
        bad(ctx, path, "its header is not that of rank %d at step %lld", rank, (long long)step);
    uint64_t start = up(PREFIX + size), room = f->size - 8 - start;
    WfTensor *t = WF_NEWN(a, WfTensor, json_array_size(list) + 1);
    size_t i;
    json_array_foreach(list, i, item)
    {
        const char *name, *dtype, *sum;
        json_t *shape;
        json_int_t offset, bytes;
        if (json_unpack(item, "{s:s, s:s, s:o, s:I, s:I, s:s}", "name", &name, "dtype", &dtype, "shape", &shape, "offset",
                        &offset, "bytes", &bytes, "xxh3", &sum) || !json_is_array(shape) || json_array_size(shape) > 8)
            bad(ctx, path, "tensor %zu of its header is incomplete", i);
        if (offset < 0 || bytes < 0 || (uint64_t)offset > room || (uint64_t)bytes > room - (uint64_t)offset)
            bad(ctx, path, "tensor %s lies beyond its end", name);
        t[i] = (WfTensor){.name = wf_arena_strdup(a, name), .dtype = wf_dtype_parse(dtype), .rank = (int)json_array_size(shape),
                          .data = f->at + start + offset, .bytes = (size_t)bytes};
        for (int k = 0; k < t[i].rank; k++)
            t[i].shape[k] = json_integer_value(json_array_get(shape, (size_t)k));
        if (wf_hash64(t[i].data, t[i].bytes, 0) != strtoull(sum, NULL, 16))
            bad(ctx, path, "the checksum of tensor %s does not match", name);
    }
    *n = (int)json_array_size(list);
    wf_defer_run(release);
    return t;
}

typedef struct {
    const WfRun *t;
    WfArena *a;
    const char *folder;
    int64_t step;
    WfMark *mark;
    Shard *shards;
    int ranks;
    const char *model;
    const json_t *options;
    json_int_t seed;
    bool shuffle;
    WfTensor *shared; /* of rank 0's file, on rank 0: read when it is checked */
    int n_shared;
} Candidate;

/* The MANIFEST of c->step. */
static void read_manifest(Candidate *c)
{
    WfCtx *ctx = c->t->ctx;
    char *path = wf_arena_printf(c->a, "%s/step-%lld/MANIFEST", c->folder, (long long)c->step);
    WfFile *f = wf_file_map(ctx, c->a, path);
    char sum[17] = {0};
    if (f->size < 18 || f->at[f->size - 18] != '\n')
        bad(ctx, path, "it is not whole");
    memcpy(sum, f->at + f->size - 17, 16);
    if (wf_hash64(f->at, f->size - 17, 0) != strtoull(sum, NULL, 16))
        bad(ctx, path, "its checksum does not match");
    json_t *j = wf_json_parse(ctx, (const char *)f->at, f->size - 17, path), *files, *item, *options, *best = NULL;
    json_int_t format, step, ranks, samples, rows, epoch, total, before = 0, best_step = 0, stale = 0;
    const char *model, *job, *data, *recipe, *watched = "";
    int shuffle, evaluated, due;
    if (json_unpack(j, "{s:I, s:I, s:I, s:s, s:I, s:I, s:I, s?I, s:I, s:b, s:b, s:b, s?o, s?s, s?I, s?I, s:s, s:I, s:s, s:s, s:o, s:o}", "format", &format, "step", &step,
                    "ranks", &ranks, "model", &model, "samples", &samples, "step_rows", &rows, "epoch_steps", &epoch, "steps_before", &before, "seed", &c->seed, "shuffle",
                    &shuffle, "evaluated", &evaluated, "evaluation_due", &due, "best", &best, "best_metric", &watched, "best_step", &best_step, "stale", &stale, "job", &job, "total", &total, "data", &data, "recipe", &recipe, "options", &options, "files", &files) ||
        strlen(job) >= sizeof c->mark->job ||
        format != VERSION || step != c->step || before < 0 || stale < 0 || ranks < 1 || ranks > RANKS_MOST || json_array_size(files) != (size_t)ranks)
        bad(ctx, path, "it is no MANIFEST of step %lld and of this version of Weft", (long long)c->step);
    c->shards = WF_NEWN(c->a, Shard, (size_t)ranks);
    c->ranks = (int)ranks;
    c->model = wf_arena_strdup(c->a, model);
    c->options = json_is_object(options) ? options : NULL;
    c->shuffle = shuffle;
    *c->mark = (WfMark){.step = step, .samples = samples, .step_rows = rows, .epoch_steps = epoch, .before = before, .total = total, .data = strtoull(data, NULL, 16), .recipe = strtoull(recipe, NULL, 16), .evaluated = evaluated, .evaluation_due = due,
                        .best = best && json_is_number(best) ? json_number_value(best) : -INFINITY, .best_step = best_step, .stale = stale,
                        .best_metric = *watched ? wf_arena_strdup(c->t->arena, watched) : NULL};
    memcpy(c->mark->job, job, strlen(job) + 1);
    size_t i;
    json_array_foreach(files, i, item)
    {
        json_int_t bytes;
        const char *hash;
        if (json_unpack(item, "{s:I, s:s}", "bytes", &bytes, "xxh3", &hash) || bytes < 0)
            bad(ctx, path, "its list of files is incomplete");
        c->shards[i] = (Shard){(uint64_t)bytes, strtoull(hash, NULL, 16)};
    }
}

static WfTensor *shard_of(Candidate *c, WfArena *a, int rank, int *n)
{
    char *path = wf_arena_printf(a, "%s/step-%lld/rank-%d.wfck", c->folder, (long long)c->step, rank);
    return read_shard(c->t->ctx, a, path, c->shards[rank], c->mark->job, c->step, rank, n);
}

/* Reads everything once: what is damaged shows before anything changes. */
static void check(void *v)
{
    Candidate *c = v;
    read_manifest(c);
    c->shared = shard_of(c, c->a, 0, &c->n_shared);
    for (int r = 1; r < c->ranks; r++) {
        WfArena *a = wf_arena_scratch(c->t->ctx);
        int n;
        shard_of(c, a, r, &n);
        wf_arena_free(a);
    }
}

/* Does the checkpoint belong to this training? */
static void compare(const Candidate *c, const WfMark *now)
{
    const WfRun *t = c->t;
    char *place = step_path(c->a, c->folder, c->step);
    if (strcmp(c->model, t->exe->signature ? t->exe->signature : ""))
        wf_fail_at(t->ctx, WF_E_CHECKPOINT_OTHER, place, "Resume with the model that the run began with.",
                   "the checkpoint is of another model");
    if (c->seed != (json_int_t)t->options->seed)
        wf_fail_at(t->ctx, WF_E_CHECKPOINT_OTHER, place, "Resume with the same --seed.",
                   "the run draws random numbers and visits its samples in another order (seed %lld, not %lld)", (long long)c->seed,
                   (long long)t->options->seed);
    if (!now->samples) /* the caller's own loop visits the data */
        return;
    if (!c->mark->samples)
        wf_fail_at(t->ctx, WF_E_CHECKPOINT_OTHER, place, "Go on with the program that wrote it.",
                   "the checkpoint was written by a program that visits the data itself");
    if (c->mark->samples != now->samples)
        wf_fail_at(t->ctx, WF_E_CHECKPOINT_OTHER, place, "Resume with the data that the run began with.",
                   "the run began with %lld training samples, and there are %lld", (long long)c->mark->samples,
                   (long long)now->samples);
    if (c->mark->recipe != now->recipe)
        wf_fail_at(t->ctx, WF_E_CHECKPOINT_OTHER, place, "Resume with the recipe that the run began with, or begin anew with --weights.",
                   "the recipe is another one than the run began with");
    if (c->mark->data != now->data)
        wf_fail_at(t->ctx, WF_E_CHECKPOINT_OTHER, place,
                   "Resume with the data that the run began with. To train on with other data, begin a new run with its weights: --weights, "
                   "--optimizer-state.",
                   "the training data are other ones than the run began with, although as many");
    if (c->mark->step_rows != now->step_rows)
        wf_fail_at(t->ctx, WF_E_CHECKPOINT_OTHER, place, "Batch size, --accumulate and ranks must make the same number of rows.",
                   "a step of the run had %lld rows (all ranks and micro-batches together), and now has %lld",
                   (long long)c->mark->step_rows, (long long)now->step_rows);
    if (c->mark->epoch_steps != now->epoch_steps)
        wf_fail_at(t->ctx, WF_E_CHECKPOINT_OTHER, place, "Resume with the same --last-batch.",
                   "an epoch of the run has %lld steps, and now has %lld", (long long)c->mark->epoch_steps,
                   (long long)now->epoch_steps);
    if (c->shuffle != t->options->shuffle)
        wf_fail_at(t->ctx, WF_E_CHECKPOINT_OTHER, place, "Resume with the same --shuffle.", "the run visits its samples in another order (%s)",
                   c->shuffle ? "shuffled" : "not shuffled");
}

/* Copies a rank's file into the session; rank 0's was read when it was checked. */
static void restore(Candidate *c, int rank)
{
    const WfRun *t = c->t;
    WfArena *a = wf_arena_scratch(t->ctx);
    int n = c->n_shared;
    WfTensor *have = rank ? shard_of(c, a, rank, &n) : c->shared, *mine = room_for_tensors(t, a);
    int want = collect(t, rank, mine);
    WfMap *by_name = wf_map_new(a);
    for (int i = 0; i < n; i++)
        wf_map_put(by_name, have[i].name, i);
    bool *used = WF_NEWN(a, bool, (size_t)n + 1);
    for (int i = 0; i < want; i++) {
        int64_t k;
        if (wf_map_get(by_name, mine[i].name, &k))
            used[k] = true;
    }
    for (int k = 0; k < n; k++)
        if (!used[k]) /* another optimiser: its state would be dropped in silence */
            wf_fail_at(t->ctx, WF_E_CHECKPOINT_OTHER, step_path(a, c->folder, c->step),
                       "Resume with the model, optimiser and options that the run began with.",
                       "the checkpoint holds %s, which this training has not", have[k].name);
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < want; i++) {
            int64_t k;
            const WfTensor *x = wf_map_get(by_name, mine[i].name, &k) ? &have[k] : NULL;
            if (!x || x->dtype != mine[i].dtype || x->bytes != mine[i].bytes)
                wf_fail_at(t->ctx, WF_E_CHECKPOINT_OTHER, step_path(a, c->folder, c->step),
                           "Resume with the model, optimiser and options that the run began with.",
                           "the checkpoint has no %s[%zu bytes] %s", wf_dtype_name(mine[i].dtype), mine[i].bytes, mine[i].name);
            if (pass)
                memcpy((void *)(uintptr_t)mine[i].data, x->data, x->bytes);
        }
    wf_arena_free(a);
}

/* Where the checkpoints of --resume are: in it, or in its folder `checkpoints`. */
static char *folder_of(WfArena *a, const char *resume)
{
    char *inner = wf_arena_printf(a, "%s/checkpoints", resume);
    return wf_file_exists(inner) ? inner : wf_arena_strdup(a, resume);
}

bool wf_checkpoint_load(const WfRun *t, WfMark *m)
{
    int rank = t->comm ? wf_comm_rank(t->comm) : 0, ranks = t->comm ? wf_comm_size(t->comm) : 1;
    WfArena *a = wf_arena_scratch(t->ctx);
    WfMark found = {0};
    Candidate c = {.t = t, .a = a, .folder = folder_of(a, t->folder), .step = -1, .mark = &found};
    int64_t *steps, chosen = -1, *all = WF_NEWN(a, int64_t, (size_t)ranks);
    for (int i = 0, n = rank ? 0 : wf_checkpoint_list(a, c.folder, &steps); i < n && chosen < 0; i++) {
        c.step = steps[i];
        weft_status s = wf_guard(t->ctx, check, &c);
        if (s == WEFT_OK)
            chosen = c.step;
        else if (s == WEFT_ERR_MEMORY || s == WEFT_ERR_CANCELLED)
            wf_reraise(t->ctx, s);
        else
            wf_log(t->ctx, WF_LOG_WARN, "step-%lld is left out: %s", (long long)c.step, t->ctx->diag.message);
    }
    all[0] = chosen;
    if (ranks > 1) {
        wf_comm_exchange(t->comm, &chosen, sizeof chosen, all, 0, "the checkpoint to resume from");
        chosen = all[0];
    }
    if (chosen >= 0) {
        c.step = chosen;
        if (rank)
            read_manifest(&c);
        compare(&c, m);
        if (!rank) {
            wf_origin_compare(t, c.options);
            restore(&c, 0);
        }
        wf_session_sync(t->session);
        if (rank && rank < c.ranks)
            restore(&c, rank);
        wf_session_set_step(t->session, found.before + chosen);
        bool other = t->options->schedule != WF_SCHEDULE_CONSTANT && !t->options->total_steps && found.total != m->total;
        if (other && !rank)
            wf_log(t->ctx, WF_LOG_WARN, "the schedule was one of %lld steps and is now one of %lld (--total-steps keeps it)", (long long)found.total,
                   (long long)m->total);
        found.total = m->total;
        *m = found;
    }
    wf_arena_free(a);
    return chosen >= 0;
}
