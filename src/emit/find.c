/* Which C compiler compiles kernels: the one that WEFT_CC names, else the first of cc, gcc, clang, gcc-NN and clang-NN
 * (newest first) that PATH has. Nothing is started here; one that turns out not to work is passed over for the next
 * (cc.c). Sanitizer builds use the compiler that built them, whose runtime the program holds. */
#include "emit/emit.h"

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { NEWEST = 40, OLDEST_GCC = 9, OLDEST_CLANG = 12 };

typedef struct {
    WfArena *a;
    const char **out;
    ino_t file[WF_MAX_COMPILERS];
    int n, max;
} Found;

static bool known(const Found *f, ino_t file)
{
    for (int i = 0; i < f->n; i++)
        if (f->file[i] == file)
            return true;
    return false;
}

/* The first file of that name in PATH that may be executed, unless it is known already (cc is often gcc's name). */
static void look_for(Found *f, const char *name)
{
    const char *path = wf_env("PATH");
    path = path ? path : "/usr/bin:/bin";
    while (*path && f->n < f->max) {
        size_t n = strcspn(path, ":");
        char *full = n ? wf_arena_printf(f->a, "%.*s/%s", (int)n, path, name) : NULL;
        struct stat st;
        if (full && !access(full, X_OK) && !stat(full, &st) && S_ISREG(st.st_mode)) {
            if (!known(f, st.st_ino)) {
                f->file[f->n] = st.st_ino;
                f->out[f->n++] = full;
            }
            return;
        }
        path += n + (path[n] == ':');
    }
}

int wf_compilers(WfArena *a, const char **out, int max)
{
    static const char *const names[] = {"cc", "gcc", "clang"};
    Found f = {.a = a, .out = out, .max = max < WF_MAX_COMPILERS ? max : WF_MAX_COMPILERS};
    const char *named = wf_env("WEFT_CC");
    if (named && *named) {
        out[0] = named;
        return 1;
    }
#ifdef WEFT_SANITIZE_CC
    out[f.n++] = WEFT_SANITIZE_CC;
    return f.n;
#endif
    for (size_t i = 0; i < WF_LEN(names); i++)
        look_for(&f, names[i]);
    for (int v = NEWEST; v >= OLDEST_GCC; v--)
        look_for(&f, wf_arena_printf(a, "gcc-%d", v));
    for (int v = NEWEST; v >= OLDEST_CLANG; v--)
        look_for(&f, wf_arena_printf(a, "clang-%d", v));
    return f.n;
}
