/* The C compiler. Each kernel is compiled to an object of its own, so that equal loop nests of one model or of several
 * compile once: objects are cached by the hash of text, flags and compiler version. Two compiler processes run at a
 * time; the objects are then linked into one shared object. Compilers are started by posix_spawn, never a bare fork,
 * since the host may hold locks or MPI state. A compiler that fails is passed over for the next that is there, with a
 * warning: an old one may lack the instruction set. */
#include "emit/emit.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

#define PARALLEL 2
#ifdef WEFT_SANITIZE_FLAGS
#define LEVEL "-O1" /* instrumented text takes three times as long to compile */
#else
#define LEVEL "-O2"
#endif

typedef struct {
    WfCtx *ctx;
    WfArena *a;
    char *dir;               /* scratch folder */
    const char *cc;
    const char *march;
    char *version;
    const char *cache_dir;
    int running, damaged; /* damaged: entries of the cache */
    const char *first_damaged;
    struct { pid_t pid; int k; char *log, *cached; } run[PARALLEL]; /* oldest first */
} Cc;

static const char install[] = "Install gcc (apt-get install gcc) or name a compiler in WEFT_CC; a step from `weft compile` "
                              "(.weft) needs none.";

/* The text is vectors already: the compiler's own vectoriser would only cost time. Loops over lanes are to be unrolled; as loops
 * they go through memory. */
static const char *const flags[] = {"-std=gnu11", LEVEL, "-fpeel-loops", "-fno-tree-vectorize", "-fno-tree-slp-vectorize",
                                    "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=fast", "-fwrapv", "-fPIC", "-w",
                                    "-Wno-psabi", "-fno-asynchronous-unwind-tables",
#ifdef WEFT_SANITIZE_FLAGS
                                    WEFT_SANITIZE_FLAGS, "-fno-sanitize-recover=all", "-g1",
#endif
                                    NULL};

/* Waits for compilers that still run and removes the scratch folder, which holds files only. */
static void clean_up(void *p)
{
    Cc *c = p;
    for (; c->running; c->running--)
        while (waitpid(c->run[c->running - 1].pid, NULL, 0) < 0 && errno == EINTR)
            ;
    if (!wf_env("WEFT_KEEP_C"))
        wf_remove_folder(c->dir);
}

/* Starts argv with its messages going to `log`. */
static pid_t start(Cc *c, char *const *argv, const char *log)
{
    posix_spawn_file_actions_t fa;
    pid_t pid = -1;
    posix_spawn_file_actions_init(&fa);
    posix_spawn_file_actions_addopen(&fa, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&fa, 1, log, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    posix_spawn_file_actions_adddup2(&fa, 1, 2);
    int rc = posix_spawnp(&pid, argv[0], &fa, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&fa);
    if (rc)
        wf_fail_at(c->ctx, WF_E_COMPILER_MISSING, NULL, install, "the C compiler '%s' cannot be started: %s", argv[0],
                   strerror(rc));
    return pid;
}

static void finish(Cc *c, pid_t pid, const char *log)
{
    int st;
    while (waitpid(pid, &st, 0) < 0)
        if (errno != EINTR)
            wf_fail(c->ctx, WF_E_COMPILER_FAILED, "the C compiler was lost: %s", strerror(errno));
    if (WIFEXITED(st) && WEXITSTATUS(st) == 0)
        return;
    char *said = "";
    if (wf_file_exists(log)) {
        WfFile *f = wf_file_map(c->ctx, c->a, log);
        said = wf_arena_strndup(c->a, (const char *)f->at, f->size < 600 ? f->size : 600);
        for (size_t n = strlen(said); n && said[n - 1] == '\n'; n--)
            said[n - 1] = 0;
    }
    const char *keep = wf_env("WEFT_KEEP_C");
    wf_fail_at(c->ctx, WF_E_COMPILER_FAILED, keep ? log : NULL, "Set WEFT_CC to gcc 9 or later, or clang 12 or later.",
               "the C compiler '%s' failed on a generated kernel: %s", c->cc, said);
}

static char *version_of(Cc *c)
{
    char *argv[] = {(char *)c->cc, "--version", NULL};
    char *log = wf_arena_printf(c->a, "%s/version", c->dir);
    finish(c, start(c, argv, log), log);
    WfFile *f = wf_file_map(c->ctx, c->a, log);
    return wf_arena_strndup(c->a, (const char *)f->at, f->size);
}

static void key_of(Cc *c, const WfKernelSource *k, char hex[65])
{
    WfSha *h = wf_sha_new(c->ctx, c->a);
    wf_sha_add(h, c->version, strlen(c->version) + 1);
    wf_sha_add(h, c->march, strlen(c->march) + 1);
    for (int i = 0; flags[i]; i++)
        wf_sha_add(h, flags[i], strlen(flags[i]) + 1);
    wf_sha_add(h, k->name, strlen(k->name) + 1);
    wf_sha_add(h, k->prelude, strlen(k->prelude) + 1);
    wf_sha_add(h, k->text, strlen(k->text) + 1);
    wf_sha_hex(h, hex);
}

static pid_t compile_one(Cc *c, const WfKernelSource *k, const char *src, const char *obj, const char *log)
{
    WfStr s = {.arena = c->a};
    wf_str_puts(&s, k->prelude);
    wf_str_printf(&s, "__attribute__((visibility(\"default\")))\n%s", k->text);
    wf_write_file(c->ctx, src, s.at, s.n);
    char *argv[32];
    int n = 0;
    argv[n++] = (char *)c->cc;
    for (int i = 0; flags[i]; i++)
        argv[n++] = (char *)flags[i];
    argv[n++] = (char *)c->march;
    argv[n++] = "-c";
    argv[n++] = (char *)src;
    argv[n++] = "-o";
    argv[n++] = (char *)obj;
    argv[n] = NULL;
    return start(c, argv, log);
}

static void link_all(Cc *c, char *const *objs, int n, const char *out)
{
    char **argv = WF_NEWN(c->a, char *, (size_t)n + 16);
    char *log = wf_arena_printf(c->a, "%s/link.log", c->dir);
    int k = 0;
    argv[k++] = (char *)c->cc;
    argv[k++] = "-shared";
    argv[k++] = "-s";
    argv[k++] = "-o";
    argv[k++] = (char *)out;
    for (int i = 0; i < n; i++)
        argv[k++] = objs[i];
    argv[k++] = "-lm";
#ifdef WEFT_SANITIZE_FLAGS
    argv[k++] = WEFT_SANITIZE_FLAGS;
#endif
    argv[k] = NULL;
    finish(c, start(c, argv, log), log);
}

/* A cached object ends with the SHA-256 of what is before it, in hexadecimal (linkers read past it): a damaged one is
 * compiled again. */
static void hash_of(Cc *c, const uint8_t *at, size_t size, char hex[65])
{
    WfSha *h = wf_sha_new(c->ctx, c->a);
    wf_sha_add(h, at, size);
    wf_sha_hex(h, hex);
}

static void keep_object(Cc *c, const char *from, const char *to)
{
    WfFile *f = wf_file_map(c->ctx, c->a, from);
    WfStr s = {.arena = c->a};
    char hex[65];
    hash_of(c, f->at, f->size, hex);
    wf_str_putn(&s, (const char *)f->at, f->size);
    wf_str_puts(&s, hex);
    wf_write_file(c->ctx, to, s.at, s.n);
}

static bool usable(Cc *c, const char *cached)
{
    if (!wf_file_exists(cached))
        return false;
    WfFile *f = wf_file_map(c->ctx, c->a, cached);
    char hex[65];
    bool whole = f->size >= 64;
    if (whole) {
        hash_of(c, f->at, f->size - 64, hex);
        whole = !memcmp(hex, f->at + f->size - 64, 64);
    }
    if (!whole && !c->damaged++)
        c->first_damaged = cached;
    return whole;
}

/* Waits for the oldest compiler and keeps its object. */
static void wait_oldest(Cc *c, char *const *objs)
{
    pid_t pid = c->run[0].pid;
    int k = c->run[0].k;
    char *log = c->run[0].log, *cached = c->run[0].cached;
    memmove(c->run, c->run + 1, sizeof *c->run * (PARALLEL - 1));
    c->running--;
    finish(c, pid, log);
    if (cached)
        keep_object(c, objs[k], cached);
}

static void compile_all(Cc *c, const WfKernelSource *k, int n, char **objs, int *n_compiled)
{
    for (int i = 0; i < n; i++) {
        char hex[65], *cached = NULL;
        wf_progress(c->ctx, "kernels", i - c->running, n);
        if (c->cache_dir) {
            key_of(c, &k[i], hex);
            objs[i] = cached = wf_arena_printf(c->a, "%s/k/%.2s/%s.o", c->cache_dir, hex, hex + 2);
            if (usable(c, cached))
                continue;
            wf_mkdirs(c->ctx, wf_arena_printf(c->a, "%s/k/%.2s", c->cache_dir, hex));
        }
        objs[i] = wf_arena_printf(c->a, "%s/%d.o", c->dir, i);
        if (c->running == PARALLEL)
            wait_oldest(c, objs);
        wf_check_cancel(c->ctx);
        char *log = wf_arena_printf(c->a, "%s/%d.log", c->dir, i);
        pid_t pid = compile_one(c, &k[i], wf_arena_printf(c->a, "%s/%d.c", c->dir, i), objs[i], log);
        c->run[c->running].pid = pid;
        c->run[c->running].k = i;
        c->run[c->running].log = log;
        c->run[c->running++].cached = cached;
        ++*n_compiled;
    }
    while (c->running) {
        wait_oldest(c, objs);
        wf_progress(c->ctx, "kernels", n - c->running, n);
    }
    if (c->damaged)
        wf_log(c->ctx, WF_LOG_WARN, "cached kernels were damaged and are compiled again: %d, the first %s", c->damaged,
               c->first_damaged);
}

typedef struct {
    WfCtx *ctx;
    WfArena *a;
    const WfKernelSource *k;
    int n, isa;
    const char *cache_dir, *cc;
    const uint8_t **object;
    size_t *size;
    int *n_compiled;
} Task;

static void with_one_compiler(void *p)
{
    Task *t = p;
    Cc *c = WF_NEW(t->a, Cc);
    const char *scratch = wf_env("TMPDIR");
    char *tmp = wf_arena_printf(t->a, "%s/weft-cc-XXXXXX", scratch && *scratch ? scratch : "/tmp");
    c->ctx = t->ctx;
    c->a = t->a;
    c->cc = t->cc;
    c->march = t->isa >= 4 ? "-march=x86-64-v4" : "-march=x86-64-v3";
    c->cache_dir = t->cache_dir;
    if (!mkdtemp(tmp))
        wf_fail(t->ctx, WF_E_SCRATCH, "no scratch folder '%s' can be made: %s", tmp, strerror(errno));
    c->dir = tmp;
    WfDefer *cleanup = wf_defer(t->ctx, clean_up, c);
    c->version = version_of(c);
    char **objs = WF_NEWN(t->a, char *, (size_t)t->n + 1);
    *t->n_compiled = 0;
    compile_all(c, t->k, t->n, objs, t->n_compiled);
    char *out = wf_arena_printf(t->a, "%s/kernels.so", c->dir);
    link_all(c, objs, t->n, out);
    WfFile *f = wf_file_map(t->ctx, t->a, out);
    uint8_t *copy = wf_arena_alloc(t->a, f->size);
    memcpy(copy, f->at, f->size);
    *t->object = copy;
    *t->size = f->size;
    wf_defer_run(cleanup);
}

void wf_compile_kernels(WfCtx *ctx, WfArena *a, const WfKernelSource *k, int n, int isa, const char *cache_dir,
                        const uint8_t **object, size_t *size, int *n_compiled)
{
    const char *cc[WF_MAX_COMPILERS];
    int n_cc = wf_compilers(a, cc, WF_MAX_COMPILERS);
    Task t = {ctx, a, k, n, isa, cache_dir, NULL, object, size, n_compiled};
    WfDiag first = {0};
    if (!n_cc)
        wf_fail_at(ctx, WF_E_COMPILER_MISSING, NULL, install,
                   "no C compiler was found: PATH has no cc, gcc, clang, gcc-NN or clang-NN");
    for (int i = 0; i < n_cc; i++) {
        t.cc = cc[i];
        weft_status s = wf_guard(ctx, with_one_compiler, &t);
        if (s == WEFT_OK)
            return;
        if (s != WEFT_ERR_ENVIRONMENT)
            wf_reraise(ctx, s);
        wf_check_cancel(ctx); /* a signal to the group ends the compiler, too */
        if (!i) /* the first failure is reported when none works */
            first = (WfDiag){.kind = ctx->diag.kind, .message = wf_arena_strdup(a, ctx->diag.message),
                             .place = ctx->diag.place ? wf_arena_strdup(a, ctx->diag.place) : NULL,
                             .hint = ctx->diag.hint ? wf_arena_strdup(a, ctx->diag.hint) : NULL};
        if (i + 1 < n_cc)
            wf_log(ctx, WF_LOG_WARN, "%s does not compile the kernels, %s is tried", cc[i], cc[i + 1]);
    }
    wf_fail_at(ctx, first.kind, first.place, first.hint, "%s", first.message);
}
