/* Memory that a process may still take: what the system says, what WEFT_MEMORY says instead, and a control group with a
 * limit, where this process may make one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/base.h"

typedef struct { WfCtx *ctx; int sharing, rank; int64_t step, got; } Ask;

static void do_ask(void *p)
{
    Ask *a = p;
    a->got = wf_memory_available(a->ctx, a->sharing, a->rank, a->step);
}

static int64_t available(int sharing, int rank, int64_t step)
{
    Ask a = {wf_ctx_new(), sharing, rank, step, 0};
    assert_non_null(a.ctx);
    weft_status s = wf_guard(a.ctx, do_ask, &a);
    wf_ctx_free(a.ctx);
    return s == WEFT_OK ? a.got : -(int64_t)s;
}

static void said(void **state)
{
    (void)state;
    setenv("WEFT_MEMORY", "64M/1.5K/2,1G,512", 1);
    assert_int_equal(available(1, 0, 0), 64 << 20);
    assert_int_equal(available(4, 0, 1), 1536); /* a rank's own: not shared */
    assert_int_equal(available(1, 0, 2), 2);
    assert_int_equal(available(1, 0, 77), 2);
    assert_int_equal(available(1, 1, 0), 1 << 30);
    assert_int_equal(available(1, 1, 5), 1 << 30);
    assert_int_equal(available(1, 2, 0), 512);
    assert_int_equal(available(1, 9, 3), 512);
    static const char *const bad[] = {"much", "-1", "1T", "1M,x", "1M;2M", "nan", "1e30"};
    for (size_t i = 0; i < WF_LEN(bad); i++) {
        setenv("WEFT_MEMORY", bad[i], 1);
        if (available(1, 1, 0) != -(int64_t)WEFT_ERR_USAGE)
            fail_msg("WEFT_MEMORY=%s is taken", bad[i]);
    }
    unsetenv("WEFT_MEMORY");
}

static int64_t physical(void) { return (int64_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE); }

static void measured(void **state)
{
    (void)state;
    int64_t all = available(1, 0, 0), half = available(2, 0, 0);
    assert_true(all > 0 && all <= physical());
    assert_true(half > 0 && half <= all / 2 + all / 10); /* others take and give meanwhile */
}

static bool write_to(const char *folder, const char *file, const char *text)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, file);
    FILE *f = fopen(path, "we");
    bool ok = f && fputs(text, f) >= 0;
    return f && !fclose(f) && ok;
}

/* The child enters a group of 64 MB, in which it has taken next to nothing. */
static void in_a_group(void **state)
{
    static const struct { const char *root, *limit; } kinds[] = {{"/sys/fs/cgroup/memory", "memory.limit_in_bytes"},
                                                                 {"/sys/fs/cgroup", "memory.max"}};
    char folder[128];
    (void)state;
    for (size_t i = 0; i < WF_LEN(kinds); i++) {
        snprintf(folder, sizeof folder, "%s/weft-test-%d", kinds[i].root, (int)getpid());
        if (mkdir(folder, 0755))
            continue;
        int status = -1;
        bool limited = write_to(folder, kinds[i].limit, "67108864");
        pid_t child = limited ? fork() : -1;
        if (child == 0) {
            char pid[16];
            snprintf(pid, sizeof pid, "%d", (int)getpid());
            int64_t left = write_to(folder, "cgroup.procs", pid) ? available(1, 0, 0) : 0;
            _exit(left == 0 ? 77 : left > (16 << 20) && left <= (64 << 20) ? 0 : 1);
        }
        if (child > 0)
            waitpid(child, &status, 0);
        rmdir(folder);
        if (child > 0 && WEXITSTATUS(status) != 77) {
            assert_int_equal(status, 0);
            return;
        }
    }
    print_message("no control group can be made here\n");
    skip();
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(said), cmocka_unit_test(measured), cmocka_unit_test(in_a_group)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
