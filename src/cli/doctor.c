/* weft doctor: what a training needs of this machine, tried out, one line each: ok, warn (something will be slower or is not
 * possible, such as several hosts) or fail (no training). One paste for a report of trouble. */
#include "cli/cli.h"

#include "emit/emit.h"

#include <sched.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

typedef enum { OK, WARN, FAIL } Verdict;
typedef struct {
    WfCtx *ctx;
    const WfOptions *o;
    int failed;
} Doctor;

static void WF_PRINTF(4, 5) tell(Doctor *d, Verdict v, const char *what, const char *fmt, ...)
{
    static const char *const words[] = {"ok", "warn", "fail"};
    va_list ap;
    printf("%-5s %-12s ", words[v], what);
    va_start(ap, fmt);
    vprintf(fmt, ap);
    va_end(ap);
    putchar('\n');
    d->failed += v == FAIL;
}

static void processor(Doctor *d)
{
    char line[256], name[160] = "unknown";
    FILE *f = fopen("/proc/cpuinfo", "re");
    while (f && fgets(line, sizeof line, f))
        if (!strncmp(line, "model name", 10) && strchr(line, ':')) {
            snprintf(name, sizeof name, "%.150s", strchr(line, ':') + 2);
            name[strcspn(name, "\n")] = 0;
            break;
        }
    if (f)
        fclose(f);
    int isa = wf_isa_level();
    if (isa)
        tell(d, OK, "processor", "%s: kernels for %s%s", name, wf_isa_name(isa),
             isa == WF_ISA_LEVEL_AMX ? ", which --isa amx asks for" : "");
    else
        tell(d, FAIL, "processor", "%s has no AVX2 and FMA, which Weft's kernels need", name);
    cpu_set_t set;
    long online = sysconf(_SC_NPROCESSORS_ONLN), mine = sched_getaffinity(0, sizeof set, &set) ? online : CPU_COUNT(&set);
    tell(d, OK, "cores", "%ld of %ld may be used", mine, online);
}

static void memory(Doctor *d)
{
    double mib = (double)wf_memory_available(d->ctx, 1, 0, 0) / 1048576.0;
    tell(d, mib < 512 ? WARN : OK, "memory", "%.0f MiB available%s", mib, mib < 512 ? ": enough for small models only" : "");
    static const struct { int which; const char *name, *flag; rlim_t least; const char *why; } limits[] = {
        {RLIMIT_AS, "addresses", "-v", RLIM_INFINITY, "Weft maps files and shared memory"},
        {RLIMIT_FSIZE, "file size", "-f", RLIM_INFINITY, "checkpoints and weights may be cut"},
        {RLIMIT_NOFILE, "open files", "-n", 256, "data of many files and ranks need more"},
        {RLIMIT_NPROC, "processes", "-u", 64, "ranks and threads need more"}};
    int odd = 0;
    for (size_t i = 0; i < WF_LEN(limits); i++) {
        struct rlimit r;
        if (getrlimit((__rlimit_resource_t)limits[i].which, &r) || r.rlim_cur == RLIM_INFINITY || r.rlim_cur >= limits[i].least)
            continue;
        tell(d, WARN, "limit", "%s (ulimit %s) is %llu: %s", limits[i].name, limits[i].flag, (unsigned long long)r.rlim_cur, limits[i].why);
        odd++;
    }
    if (!odd)
        tell(d, OK, "limits", "none that matters");
    struct statvfs fs;
    if (statvfs("/dev/shm", &fs))
        tell(d, WARN, "/dev/shm", "is not there: some MPIs need it for ranks of one host");
    else
        tell(d, (double)fs.f_bavail * (double)fs.f_frsize < 64e6 ? WARN : OK, "/dev/shm", "%.0f MiB free",
             (double)fs.f_bavail * (double)fs.f_frsize / 1048576.0);
}

typedef struct { Doctor *d; const char *path; } Try;

static void try_compiler(void *p)
{
    Doctor *d = ((Try *)p)->d;
    const WfKernelSource k = {"weft_doctor", "", "int weft_doctor(int x) { return x + 1; }\n"};
    const uint8_t *object;
    size_t size;
    int n, isa = wf_isa_level();
    wf_compile_kernels(d->ctx, d->ctx->arena, &k, 1, isa ? (isa < 4 ? 3 : 4) : 3, NULL, &object, &size, &n);
}

static void try_folder(void *p)
{
    Try *t = p;
    char *file = wf_arena_printf(t->d->ctx->arena, "%s/weft-doctor-%d", t->path, (int)getpid());
    wf_mkdirs(t->d->ctx, t->path);
    wf_write_file(t->d->ctx, file, "ok", 2);
    unlink(file);
}

static void compiler(Doctor *d)
{
    const char *cc[WF_MAX_COMPILERS], *cache = wf_cache_dir(d->ctx, d->ctx->arena, d->o), *tmp = wf_env("TMPDIR");
    int n = wf_compilers(d->ctx->arena, cc, WF_MAX_COMPILERS);
    Try scratch = {d, tmp && *tmp ? tmp : "/tmp"}, kept = {d, cache};
    bool works = wf_guard(d->ctx, try_folder, &scratch) == WEFT_OK;
    if (works)
        tell(d, OK, "scratch", "%s can be written", scratch.path);
    else
        tell(d, FAIL, "scratch", "%s; set TMPDIR", d->ctx->diag.message);
    if (!n)
        tell(d, FAIL, "compiler", "none is found (cc, gcc, clang, WEFT_CC): only steps of `weft compile` can be trained");
    else if (works && wf_guard(d->ctx, try_compiler, &scratch) != WEFT_OK)
        tell(d, FAIL, "compiler", "%s", d->ctx->diag.message);
    else if (works)
        tell(d, OK, "compiler", "%s compiles and links a kernel%s", cc[0], n > 1 ? "; there are others" : "");
    if (!cache)
        tell(d, WARN, "cache", "there is no folder for it: every run compiles anew; set --cache-dir, WEFT_CACHE_DIR or HOME");
    else if (wf_guard(d->ctx, try_folder, &kept) == WEFT_OK)
        tell(d, OK, "cache", "%s can be written", cache);
    else
        tell(d, WARN, "cache", "%s: every run compiles anew", d->ctx->diag.message);
}

static bool in_path(Doctor *d, const char *program)
{
    const char *path = wf_env("PATH");
    for (const char *at = path; at && *at; at += strcspn(at, ":"), at += *at == ':')
        if (!access(wf_arena_printf(d->ctx->arena, "%.*s/%s", (int)strcspn(at, ":"), at, program), X_OK))
            return true;
    return false;
}

static void mpi(Doctor *d)
{
    static const struct { const char *which, *name, *start; } all[] = {{"openmpi", "Open MPI", "mpirun.openmpi"}, {"mpich", "MPICH", "mpirun.mpich"}};
    int found = 0;
    for (size_t i = 0; i < WF_LEN(all); i++) {
        const char *plugin = wf_comm_plugin(d->ctx->arena, all[i].which);
        bool starts = in_path(d, all[i].start) || in_path(d, "mpirun");
        if (!plugin)
            continue;
        found++;
        tell(d, starts ? OK : WARN, "MPI", "%s: the plugin is there, mpirun %s", all[i].name, starts ? "too" : "is not in PATH");
    }
    if (!found)
        tell(d, WARN, "MPI", "no plugin is found: ranks on one host (--nproc) only");
}

int wf_cli_doctor(WfCtx *ctx, const WfOptions *o, const WfStrings *words)
{
    Doctor d = {.ctx = ctx, .o = o};
    int set = 0;
    if (words->n)
        wf_fail(ctx, WF_E_ARGUMENT_EXTRA, "weft doctor takes no words, but there is %s", words->at[0]);
    tell(&d, OK, "version", "weft %s, compiled by %s", weft_version(),
#ifdef __clang__
         __VERSION__
#else
         "gcc " __VERSION__
#endif
    );
    processor(&d);
    memory(&d);
    compiler(&d);
    mpi(&d);
    for (const WfEnvVar *v = wf_env_table; v->name; v++)
        if (!strncmp(v->name, "WEFT_", 5) && wf_env(v->name)) {
            tell(&d, OK, "environment", "%s=%s", v->name, wf_env(v->name));
            set++;
        }
    if (!set)
        tell(&d, OK, "environment", "none of Weft's variables is set (weft env lists them)");
    return d.failed ? 1 : 0;
}
