/* Shared by the tests of base: a context, a scratch folder, expected errors, injected failures, random numbers. Failures are
 * injected through the seam: with the n-th allocation, read or mapping failing, for n = 1, 2, ... until nothing fails any
 * more, every call must end in an error and leave nothing behind (the address sanitizer's leak check is the judge). Random
 * tests print their seed when they fail. */
#ifndef BASE_FIXTURE_H
#define BASE_FIXTURE_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <dirent.h>
#include <zlib.h>

#include <cmocka.h>

#include "base/base.h"

static WfCtx *ctx;
static char folder[64];

static inline const char *in_folder(const char *name)
{
    static char path[4][400];
    static int turn;
    char *p = path[turn++ % 4];
    snprintf(p, 400, "%s/%s", folder, name);
    return p;
}

static int setup(void **state)
{
    (void)state;
    snprintf(folder, sizeof(folder), "/tmp/weft-base-XXXXXX");
    ctx = wf_ctx_new();
    return ctx && mkdtemp(folder) ? 0 : -1;
}

static inline int count_files(void)
{
    int n = 0;
    DIR *d = opendir(folder);
    for (struct dirent *e; (e = readdir(d));)
        n += e->d_name[0] != '.';
    closedir(d);
    return n;
}

static int teardown(void **state)
{
    (void)state;
    DIR *d = opendir(folder);
    for (struct dirent *e; d && (e = readdir(d));)
        if (e->d_name[0] != '.')
            unlink(in_folder(e->d_name));
    closedir(d);
    rmdir(folder);
    wf_ctx_free(ctx);
    return 0;
}

/* Runs fn in a guard and expects this code; the message must hold the text. */
static inline void expect(weft_status code, const char *text, void (*fn)(void *), void *arg)
{
    weft_status got = wf_guard(ctx, fn, arg);
    if (got != code || (text && !strstr(ctx->diag.message, text)))
        fail_msg("status %d instead of %d, message: %s (expected: %s)", got, code, ctx->diag.message,
                 text ? text : "any");
}

/* Fails the n-th call of each kind until `fn` comes through, in a context of its own each time. */
static inline void inject(void (*fn)(void *), void *arg, WfSeam kind, int least)
{
    int failures = 0;
    for (int n = 1;; n++) {
        assert_true(n < 10000);
        wf_seam_fail_at(kind, n, n % 2);
        WfCtx *own = wf_ctx_new(), *outer = ctx;
        weft_status st = WEFT_ERR_MEMORY;
        if (own) {
            ctx = own;
            st = wf_guard(ctx, fn, arg);
            if (st)
                assert_non_null(ctx->diag.message);
            ctx = outer;
            wf_ctx_free(own);
        }
        wf_seam_fail_at(kind, 0, false);
        if (!st)
            break;
        failures++;
        assert_true(st == WEFT_ERR_MEMORY || st == WEFT_ERR_IO);
    }
    assert_true(failures >= least);
}

static uint64_t random_state __attribute__((unused));

static inline int below(int n)
{
    random_state = random_state * 6364136223846793005ull + 1442695040888963407ull;
    return (int)((random_state >> 33) % (uint64_t)n);
}

#endif
