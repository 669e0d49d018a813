/* Datasets: what --data names becomes rows of the model's inputs. A source is [NAME[,NAME]=]PATTERN; a pattern stands for one
 * or more files, whose samples follow one another. Each file is of one format (a row of the table below), which says what
 * fields it has; each input takes the field of its name, from one file or from all that have it, and what a field holds is
 * checked once, when it is opened, against the input. Rows are read when they are asked for, by any thread: small files lie
 * in memory, large ones stay on the disk. */
#include <string.h>
#include <unistd.h>

#include "data/private.h"

enum { NAMES = 8, HEAD = 4096 };

/* The first that knows a file has it: where names decide, before what content says. */
static const WfFormat *const formats[] = {&wf_format_npz, &wf_format_npy, &wf_format_csv, &wf_format_tokens, &wf_format_idx,
                                          &wf_format_safetensors, &wf_format_pictures};

/* ---- messages ---- */

static void put_shape(WfStr *s, WfDtype dtype, int rank, const int64_t *shape, bool any_batch)
{
    wf_str_printf(s, "%s[", wf_dtype_name(dtype));
    for (int i = 0; i < rank; i++) {
        wf_str_puts(s, i ? ", " : "");
        if ((i == 0 && any_batch) || shape[i] < 0)
            wf_str_putc(s, '*');
        else
            wf_str_printf(s, "%lld", (long long)shape[i]);
    }
    wf_str_putc(s, ']');
}

static const char *input_names(const WfOpening *op)
{
    WfStr s = {.arena = op->a};
    for (int i = 0; i < op->n; i++)
        wf_str_printf(&s, "%s%s", i ? ", " : "", op->inputs[i].name);
    return s.n ? s.at : "none";
}

void wf_data_damaged(WfOpening *op, const char *path, const char *kind, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    char *text = wf_arena_vprintf(op->a, fmt, ap);
    va_end(ap);
    wf_fail(op->ctx, WF_E_DATA_FILE, "%s: not a valid %s: %s", path, kind, text);
}

bool wf_data_fault(const WfVisit *v, int kind, const char *path, const char *hint, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    v->fault->kind = kind;
    v->fault->hint = hint;
    snprintf(v->fault->place, sizeof v->fault->place, "%s", path);
    vsnprintf(v->fault->message, sizeof v->fault->message, fmt, ap);
    va_end(ap);
    return false;
}

void wf_data_raise(WfCtx *ctx, const WfDataFault *f)
{
    wf_fail_at(ctx, f->kind, *f->place ? f->place : NULL, f->hint, "%s", f->message);
}

bool wf_data_read(const WfVisit *v, const WfBytes *b, int64_t offset, void *p, size_t n)
{
    int err = wf_bytes_read(b, offset, p, n);
    if (!err)
        return true;
    return wf_data_fault(v, WF_E_IO, wf_bytes_path(b), err == WF_BYTES_CHANGED ? "Leave the data alone while a run uses them." : NULL,
                         "data: cannot read %zu bytes at offset %lld: %s", n, (long long)offset, wf_bytes_error(err));
}

/* ---- fields ---- */

size_t wf_field_sample_bytes(const WfField *f)
{
    size_t n = wf_dtype_size(f->dtype);
    for (int i = 1; i < f->rank; i++)
        n = wf_mul_size(n, (size_t)f->shape[i]);
    return n;
}

bool wf_field_dense(const WfField *f, const WfVisit *v, int64_t first, int64_t count, uint8_t *out)
{
    size_t each = wf_field_sample_bytes(f), n = each * (size_t)count;
    int64_t at = f->start + first * (int64_t)each;
    if (f->bytes)
        return wf_data_read(v, f->bytes, at, out, n);
    if (n)
        memcpy(out, f->memory + at, n);
    return true;
}

/* ---- sources ---- */

typedef struct {
    const char *text;        /* as it was given */
    const char *names[NAMES];
    int n_names;             /* 0: files of named fields */
    WfDataFile *files;
    int n_files;
    bool used, skipped;
} Source;

typedef struct {
    WfOpening op;
    Source *sources;
    int n_sources;
} Opening;

static int name_index(const WfOpening *op, const char *name)
{
    for (int i = 0; i < op->n; i++)
        if (!strcmp(op->inputs[i].name, name))
            return i;
    return -1;
}

/* NAME=FILE, or NAME,NAME=FILE, when what stands before the first `=` holds no slash. Returns the pattern. */
static const char *split_source(WfOpening *op, Source *s)
{
    const char *equals = strchr(s->text, '=');
    size_t n = equals ? (size_t)(equals - s->text) : 0;
    if (!n || memchr(s->text, '/', n))
        return s->text;
    for (const char *p = s->text; p <= equals; p += strcspn(p, ",=") + 1) {
        char *name = wf_arena_strndup(op->a, p, strcspn(p, ",="));
        if (s->n_names == NAMES)
            wf_fail_at(op->ctx, WF_E_DATA_WHICH, s->text, NULL, "data: more than %d names before the =", NAMES);
        for (int i = 0; i < s->n_names; i++)
            if (!strcmp(s->names[i], name))
                wf_fail_at(op->ctx, WF_E_DATA_TWICE, s->text, NULL, "data: input %s is named twice", name);
        s->names[s->n_names++] = name;
    }
    return equals + 1;
}

static void check_names(WfOpening *op, Source *s)
{
    const char *names[64];
    int n = 0, known = 0;
    for (; n < op->n && n < (int)WF_LEN(names); n++)
        names[n] = op->inputs[n].name;
    for (int i = 0; i < s->n_names; i++) {
        if (name_index(op, s->names[i]) >= 0) {
            known++;
            continue;
        }
        const char *near = wf_nearest(s->names[i], names, n);
        if (op->use != WF_DATA_PREDICT)
            wf_fail_at(op->ctx, WF_E_DATA_NAME, s->text, near ? wf_arena_printf(op->a, "did you mean %s?", near) : NULL,
                       "data: the model has no input %s; its inputs are %s", s->names[i], input_names(op));
    }
    s->skipped = s->n_names && !known;
}

/* Pictures and tokens feed two inputs at once. */
static const char *which_help(WfOpening *op, const Source *s, const WfDataFile *f)
{
    if (op->n == 2 && (f->format->classes || f->format->uses & WF_USE_TOKENS))
        return wf_arena_printf(op->a, "write --data %s,%s=%s", op->inputs[0].name, op->inputs[1].name, s->text);
    return wf_arena_printf(op->a, "write --data %s=%s", op->n == 1 ? op->inputs[0].name : "NAME", s->text);
}

static void open_file(WfOpening *op, Source *s, const char *path, WfDataFile *f)
{
    uint8_t head[HEAD];
    size_t size = 0;
    *f = (WfDataFile){.path = path, .recipe = s->n_names ? wf_recipe_of(op, s->names[0]) : &wf_recipe_none};
    if (!wf_is_folder(path) && !wf_data_is_picture(path)) { /* pictures are opened when they are wanted */
        f->bytes = wf_bytes_open(op->ctx, op->a, path);
        size = wf_bytes_size(f->bytes) < HEAD ? (size_t)wf_bytes_size(f->bytes) : HEAD;
        int err = wf_bytes_read(f->bytes, 0, head, size);
        if (err)
            wf_fail(op->ctx, WF_E_IO, "%s: cannot read: %s", path, wf_bytes_error(err));
    }
    for (size_t i = 0; i < WF_LEN(formats) && !f->format; i++)
        if (formats[i]->knows(f, f->bytes ? head : NULL, size))
            f->format = formats[i];
    if (!f->format)
        wf_fail_at(op->ctx, WF_E_DATA_FILE, path, "docs/data.md lists the formats; convert the file to one of them.",
                   "data: the file is of no known format");
    if (!s->n_names && !f->format->named)
        wf_fail_at(op->ctx, WF_E_DATA_WHICH, path, which_help(op, s, f), "data: %s does not say which input it feeds; the inputs are %s",
                   f->format->name, input_names(op));
    if (f->format->open)
        f->format->open(op, f);
}

static void open_source(WfOpening *op, Source *s, const char *text)
{
    s->text = text;
    const char *pattern = split_source(op, s);
    check_names(op, s);
    if (s->skipped)
        return;
    WfStrings paths = {0};
    wf_data_expand(op, pattern, &paths);
    s->files = WF_NEWN(op->a, WfDataFile, (size_t)paths.n);
    for (; s->n_files < paths.n; s->n_files++)
        open_file(op, s, paths.at[s->n_files], &s->files[s->n_files]);
}

/* ---- columns ---- */

static const char *shape_help(WfOpening *op, const WfDataInput *in, const WfField *f)
{
    if (f->dtype != in->dtype)
        return wf_arena_printf(op->a, "Convert the file, or let a recipe do it: --recipe FILE with the line `%s: {dtype: %s}`.", in->name,
                               wf_dtype_name(in->dtype));
    if (in->help)
        return in->help;
    if (f->rank != in->rank)
        return wf_arena_printf(op->a, "A sample has %d dimension%s in the file, and %d in the model: reshape the array, or export the model for such samples.",
                               f->rank - 1, f->rank == 2 ? "" : "s", in->rank - 1);
    for (int i = 1; i < in->rank; i++)
        if (in->shape[i] >= 0 && in->shape[i] != f->shape[i])
            return wf_arena_printf(op->a, "Dimension %d (from 0) has %lld in the file and %lld in the model: feed what belongs to it, or export the model "
                                   "for %lld.", i, (long long)f->shape[i], (long long)in->shape[i], (long long)f->shape[i]);
    return NULL;
}

/* Adds the samples of one file to the column; all must have its type and shape. */
static void add_part(WfOpening *op, WfColumn *c, const WfField *f)
{
    WfColumn this = {.input = c->input, .feed = WF_NEW(op->a, WfFeed)};
    const WfDataInput *in = c->input;
    bool fits = wf_feed_choose(op, in, f, &this);
    if (!fits) {
        WfStr have = {.arena = op->a}, want = {.arena = op->a};
        put_shape(&have, f->dtype, f->rank, f->shape, false);
        put_shape(&want, in->dtype, in->rank, in->shape, true);
        wf_fail_at(op->ctx, WF_E_DATA_SHAPE, f->path, shape_help(op, in, f), "data: input %s expects %s, but the file holds %s", in->name, want.at, have.at);
    }
    if (!c->feed) {
        this.path = f->path;
        this.dtype = f->dtype;
        this.shape[0] = 0;
        *c = this;
    }
    if (f->dtype != c->dtype || this.rank != c->rank || memcmp(this.shape + 1, c->shape + 1, (size_t)(c->rank - 1) * sizeof *c->shape) ||
        this.feed->reshape != c->feed->reshape || memcmp(this.feed->in, c->feed->in, sizeof this.feed->in)) {
        WfStr have = {.arena = op->a}, want = {.arena = op->a};
        put_shape(&have, f->dtype, this.rank, this.shape, true);
        put_shape(&want, c->dtype, c->rank, c->shape, true);
        wf_fail_at(op->ctx, WF_E_DATA_SHAPE, f->path, NULL, "data: input %s: this file holds %s, and %s holds %s", in->name, have.at, c->path,
                   want.at);
    }
    WF_PUSH(op->a, &c->feed->parts, ((WfPart){*f, c->shape[0]}));
    if (!wf_add_ok(c->shape[0], f->shape[0], &c->shape[0]))
        wf_fail_at(op->ctx, WF_E_DATA_COUNT, f->path, NULL, "data: input %s has too many samples", in->name);
}

static void no_data(Opening *o, const char *input)
{
    WfStr have = {.arena = o->op.a};
    for (int i = 0; i < o->n_sources; i++)
        for (int k = 0; k < o->sources[i].n_files && !o->sources[i].n_names; k++)
            if (o->sources[i].files[k].format->names)
                o->sources[i].files[k].format->names(&o->op, &o->sources[i].files[k], &have);
    wf_fail_at(o->op.ctx, WF_E_DATA_MISSING, NULL, "name the file: --data NAME=FILE", "data: input %s has no data%s%s", input,
               have.n ? "; the files hold " : "", have.n ? have.at : "");
}

/* A key that means nothing to the format would be obeyed by nobody. */
static void check_recipe(WfOpening *op, const WfDataInput *in, const WfFormat *format, int place)
{
    const WfRecipe *r = wf_recipe_of(op, in->name);
    const char *key = wf_recipe_foreign(r, place > 0 ? format->more : format->uses);
    if (key)
        wf_fail_at(op->ctx, WF_E_RECIPE, op->recipe,
                   wf_recipe_foreign(r, format->uses) ? NULL : "Write it under the first name of --data NAME,NAME=FILE.",
                   "recipe: %s.%s means nothing to %s", in->name, key, format->name);
}

/* The samples for one input: of the sources that name it; where none does, of all files that have a field of its name. */
static void open_column(Opening *o, const WfDataInput *in, WfColumn *c)
{
    WfOpening *op = &o->op;
    bool named = false;
    c->input = in;
    for (int pass = 0; pass < 2 && !named; pass++)
        for (int i = 0; i < o->n_sources; i++) {
            Source *s = &o->sources[i];
            int place = -1;
            for (int k = 0; k < s->n_names && place < 0; k++)
                place = strcmp(s->names[k], in->name) ? -1 : k;
            if (s->skipped || (pass ? s->n_names > 0 : place < 0))
                continue;
            named |= place >= 0;
            for (int k = 0; k < s->n_files; k++) {
                WfField f = {.path = s->files[k].path, .read = wf_field_dense};
                const WfFormat *format = s->files[k].format;
                if (!format->field(op, &s->files[k], in, place, s->n_names, &f))
                    continue;
                check_recipe(op, in, format, place);
                s->used = true;
                add_part(op, c, &f);
            }
        }
    if (!c->feed)
        no_data(o, in->name);
}

static void open_sources(Opening *o, const WfStrings *data)
{
    o->n_sources = data->n;
    o->sources = WF_NEWN(o->op.a, Source, (size_t)data->n);
    for (int i = 0; i < data->n; i++)
        open_source(&o->op, &o->sources[i], data->at[i]);
}

/* Does the meaning of an input's data depend on other data: the order of categories, the numbers of classes? */
static bool learns(const Opening *o, const WfDataInput *in)
{
    for (int i = 0; i < o->n_sources; i++)
        for (int k = 1; k < o->sources[i].n_names && o->sources[i].n_files; k++)
            if (!strcmp(o->sources[i].names[k], in->name) && o->sources[i].files[0].format->classes)
                return true;
    return wf_recipe_learns(wf_recipe_of(&o->op, in->name));
}

/* For evaluation data the training data decide: they are opened for it once more, and forgotten. */
static void learn(const Opening *o, const WfStrings *data)
{
    WfArena *scratch = wf_arena_scratch(o->op.ctx);
    Opening training = {.op = o->op};
    training.op.a = scratch;
    training.op.use = WF_DATA_TRAIN;
    training.op.again = true;
    open_sources(&training, data);
    for (int i = 0; i < o->op.n; i++)
        if (learns(o, &o->op.inputs[i]))
            open_column(&training, &o->op.inputs[i], WF_NEW(scratch, WfColumn));
    wf_arena_free(scratch);
}

WfDataset *wf_dataset_open(WfCtx *ctx, WfArena *a, const WfOptions *o, WfDataUse use, const WfDataInput *inputs, int n)
{
    Opening all = {.op = {.ctx = ctx, .a = a, .keep = a, .use = use, .inputs = inputs, .n = n, .classes = WF_NEW(a, WfClasses)}};
    WfDataset *d = WF_NEW(a, WfDataset);
    bool taught = true;
    long cores = o->threads ? o->threads : sysconf(_SC_NPROCESSORS_ONLN);
    d->ctx = ctx;
    d->n = n;
    d->readers = cores < 1 ? 1 : cores < WF_MOST_READERS ? (int)cores : WF_MOST_READERS;
    d->columns = WF_NEWN(a, WfColumn, (size_t)n);
    wf_recipe_open(&all.op, o, &d->recipe);
    open_sources(&all, use == WF_DATA_EVAL ? &o->eval_data : &o->data);
    for (int i = 0; i < n && use == WF_DATA_EVAL && taught; i++)
        taught = !learns(&all, &inputs[i]);
    if (!taught)
        learn(&all, &o->data);
    for (int i = 0; i < n; i++) {
        WfColumn *c = &d->columns[i];
        open_column(&all, &inputs[i], c);
        c->feed->seed = (uint64_t)o->seed;
        c->feed->random = use == WF_DATA_TRAIN;
        d->slow |= c->feed->parts.at[0].field.slow;
        if (i > 0 && c->shape[0] != d->samples)
            wf_fail_at(ctx, WF_E_DATA_COUNT, c->path, inputs[i].help, "data: input %s has %lld samples, but input %s has %lld",
                       inputs[i].name, (long long)c->shape[0], inputs[0].name, (long long)d->samples);
        d->samples = c->shape[0];
        if (d->samples == 0)
            wf_fail_at(ctx, WF_E_DATA_COUNT, c->path, NULL, "data: input %s has no samples", inputs[i].name);
    }
    for (int i = 0; i < all.n_sources; i++)
        if (!all.sources[i].used && !all.sources[i].skipped)
            wf_fail_at(ctx, WF_E_DATA_WHICH, all.sources[i].text, NULL, "data: the file feeds no input");
    if (use == WF_DATA_TRAIN && (all.op.tree || all.op.classes->names.n))
        d->learned = wf_recipe_learned(&all.op);
    return d;
}

void wf_dataset_describe(const WfDataset *d, WfStr *out)
{
    for (int i = 0; i < d->n; i++) {
        const WfColumn *c = &d->columns[i];
        wf_str_printf(out, "%s: ", c->input->name);
        put_shape(out, c->input->dtype, c->rank, c->shape, false);
        wf_str_printf(out, " from %s", c->path);
        if (c->feed->parts.n > 1)
            wf_str_printf(out, " and %d more", c->feed->parts.n - 1);
        wf_feed_describe(c->feed, out);
        wf_str_putc(out, '\n');
    }
}
