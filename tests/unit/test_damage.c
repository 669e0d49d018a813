/* 2,000 seeded damages of checkpoints: resuming takes the newest that is whole, with exactly its state, or says that there is none
 * and changes nothing; never a crash, never half a state, never a damaged one. SEED chooses others. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "case_run.h"
#include "folder.h"

enum { DAMAGES = 2000, STEPS = 3, FILES = 1 + 2 * STEPS, LARGEST = 1 << 16 };

typedef struct { char path[300]; uint8_t at[LARGEST]; size_t size; int step; } Kept;

static uint64_t seed;

static uint64_t next(void)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return seed;
}

static size_t below(size_t n) { return n ? next() % n : 0; }

static void put(const Kept *k, const uint8_t *at, size_t size)
{
    FILE *f = fopen(k->path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(at, 1, size, f), size);
    fclose(f);
}

static void keep(Kept *k, const char *folder, const char *name, int step)
{
    snprintf(k->path, sizeof k->path, "%s/checkpoints/%s", folder, name);
    k->step = step;
    FILE *f = fopen(k->path, "rb");
    assert_non_null(f);
    k->size = fread(k->at, 1, LARGEST, f);
    fclose(f);
    assert_true(k->size && k->size < LARGEST);
}

/* True when the file is another one now. */
static bool damage(const Kept *k)
{
    static uint8_t b[LARGEST + 256];
    size_t n = k->size, at = below(n);
    memcpy(b, k->at, n);
    switch (below(6)) {
    case 0:
        n = at;
        break;
    case 1:
        b[at] ^= (uint8_t)(1u << below(8));
        break;
    case 2:
        for (size_t i = at; i < n && i < at + 8; i++)
            b[i] = (uint8_t)next();
        break;
    case 3:
        for (size_t i = 0, more = 1 + below(100); i < more; i++)
            b[n++] = (uint8_t)next();
        break;
    case 4: /* a digit: numbers in the JSON */
        for (size_t i = 0; i < n && (b[at] < '0' || b[at] > '9'); i++)
            at = (at + 1) % n;
        b[at] = (uint8_t)('0' + below(10));
        break;
    default: { /* a stretch from elsewhere in it */
        size_t from = below(n), length = 1 + below(64);
        for (size_t i = 0; i < length && at + i < n && from + i < n; i++)
            b[at + i] = k->at[from + i];
    }
    }
    put(k, b, n);
    return n != k->size || memcmp(b, k->at, n) != 0;
}

static void damaged_checkpoints_are_left_out(void **state)
{
    static const char *const sgd[] = {"optimizer", "sgd", "lr", "0.1", NULL};
    static Kept files[FILES];
    char dir[256];
    uint64_t hash[STEPS + 1];
    int counts[STEPS + 1] = {0}, changed = 0, harmless = 0;
    Run r;
    (void)state;
    seed = strtoull(getenv("SEED") ? getenv("SEED") : "1", NULL, 10) * 0xd1342543de82ef95u + 1;
    printf("# seed %s, %d damages\n", getenv("SEED") ? getenv("SEED") : "1", DAMAGES);
    snprintf(dir, sizeof dir, "%.200s/weft-damage-XXXXXX", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
    assert_non_null(mkdtemp(dir));
    open_case(&r, "linreg_sgd", sgd);
    hash[0] = 0;
    for (int t = 1; t <= STEPS; t++) {
        must(&r, step_case(&r, t, NULL));
        must(&r, weft_checkpoint(r.session, dir, STEPS));
        hash[t] = state_hash(&r);
    }
    keep(&files[0], dir, "LATEST", 0);
    for (int t = 1; t <= STEPS; t++) {
        char name[64];
        snprintf(name, sizeof name, "step-%d/MANIFEST", t);
        keep(&files[2 * t - 1], dir, name, t);
        snprintf(name, sizeof name, "step-%d/rank-0.wfck", t);
        keep(&files[2 * t], dir, name, t);
    }
    for (int i = 0; i < DAMAGES; i++) {
        bool whole[STEPS + 1] = {false, true, true, true}, hit[FILES] = {false};
        for (int k = 0, n = 1 + (int)below(3); k < n; k++) {
            size_t f = below(FILES);
            if (hit[f])
                continue;
            hit[f] = true;
            bool other = damage(&files[f]);
            changed += other;
            whole[files[f].step] &= !other;
        }
        int64_t got = -2, want = -1;
        for (int t = 1; t <= STEPS; t++)
            want = whole[t] ? t : want;
        uint64_t before = state_hash(&r);
        weft_status s = weft_resume(r.session, dir, &got);
        /* a change of what means nothing, as the bytes between tensors, may pass: the state is the checkpoint's */
        bool fine = s == WEFT_OK && (got == want || (got > want && got <= STEPS));
        harmless += fine && got > want;
        if (!fine || state_hash(&r) != (got < 0 ? before : hash[got]))
            fail_msg("damage %d: status %d, step %lld instead of %lld: %s", i, s, (long long)got, (long long)want, weft_message(r.ctx));
        counts[got < 0 ? 0 : got]++;
        for (int f = 0; f < FILES; f++)
            if (hit[f])
                put(&files[f], files[f].at, files[f].size);
    }
    printf("# %d files changed; resumed from step 3, 2, 1, none: %d, %d, %d, %d; harmless: %d\n", changed, counts[3], counts[2],
           counts[1], counts[0], harmless);
    assert_true(changed > DAMAGES && counts[2] > DAMAGES / 8 && counts[1] > 0 && harmless < DAMAGES / 10); /* they did harm */
    weft_context_free(r.ctx);
    assert_int_equal(remove_all(dir), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(damaged_checkpoints_are_left_out)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
