/* A small mutating driver for the fuzz targets, with libFuzzer's interface: each target defines
 * LLVMFuzzerTestOneInput, so that it also links with -fsanitize=fuzzer. It replays every file of the corpus, then
 * mutates them (bit flips, interesting integers, copied, removed and spliced ranges, decimal numbers in text) until
 * the time is over and at least 2,000 were tried (-damages=N). A target may bring valid inputs of its own (fuzz_seeds in fuzz.h). No coverage guides it; what
 * finds bugs is the sanitizer build and a corpus of valid files.
 *
 *     fuzz_json [-max_total_time=SECONDS] [-damages=N] [-seed=N] [FILE|FOLDER]...
 *
 * The input of the running test lies in the mapped file crash-TARGET (in build/logs where that exists), so that a crash
 * leaves what caused it; the file is removed at the end. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "fuzz.h"

enum { INPUT_BYTES = 1 << 16, SEED_SLOTS = 4096 };

typedef struct {
    uint8_t *at;
    size_t size;
} Seed;

static Seed seeds[SEED_SLOTS];
static int seed_count;
static uint64_t state = 0x9e3779b97f4a7c15u;

static uint64_t next(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

static size_t below(size_t n)
{
    return n ? next() % n : 0;
}

static void add_file(const char *path)
{
    FILE *f = fopen(path, "rb");
    if (!f || seed_count == SEED_SLOTS)
        return (void)(f && fclose(f));
    uint8_t *data = malloc(INPUT_BYTES);
    size_t size = data ? fread(data, 1, INPUT_BYTES, f) : 0;
    fclose(f);
    if (data)
        seeds[seed_count++] = (Seed){data, size};
}

static void add(const char *path)
{
    struct stat st;
    if (stat(path, &st) != 0)
        return;
    if (!S_ISDIR(st.st_mode)) {
        add_file(path);
        return;
    }
    DIR *dir = opendir(path);
    for (struct dirent *e; dir && (e = readdir(dir));) {
        char name[4096];
        if (e->d_name[0] == '.' || snprintf(name, sizeof name, "%s/%s", path, e->d_name) >= (int)sizeof name)
            continue;
        add(name);
    }
    if (dir)
        closedir(dir);
}

static void add_bytes(const void *data, size_t size)
{
    uint8_t *copy = seed_count < SEED_SLOTS && size <= INPUT_BYTES ? malloc(size + 1) : NULL;
    if (!copy)
        return;
    if (size)
        memcpy(copy, data, size);
    seeds[seed_count++] = (Seed){copy, size};
}

static void mutate_number(uint8_t *b, size_t n)
{
    /* Replaces the digits of one decimal number in place: sizes and offsets in text headers are where parsers fall. */
    size_t start = below(n);
    for (size_t k = 0; k < n; k++) {
        size_t i = (start + k) % n;
        if (b[i] < '0' || b[i] > '9')
            continue;
        for (; i < n && b[i] >= '0' && b[i] <= '9'; i++)
            b[i] = below(3) ? (uint8_t)('0' + below(10)) : '9';
        return;
    }
}

static size_t mutate(uint8_t *b, size_t n)
{
    static const uint64_t odd[] = {0, 1, 0x7f, 0x80, 0xff, 0x7fff, 0xffff, 0x7fffffff, 0x80000000u, 0xffffffffu,
                                   INT64_MAX, UINT64_MAX, (uint64_t)1 << 62, 8, 64, 4096};
    int rounds = 1 + (int)below(6);
    for (int r = 0; r < rounds; r++) {
        size_t i = below(n), len = 1 + below(n < 64 ? n : 64);
        if (i + len > n)
            len = n - i;
        switch (below(8)) {
        case 0:
            if (n)
                b[i] ^= (uint8_t)(1u << below(8));
            break;
        case 1:
            if (n)
                b[i] = (uint8_t)next();
            break;
        case 2: {
            size_t width = (size_t)1 << below(4);
            uint64_t v = odd[below(sizeof odd / sizeof odd[0])];
            if (i + width <= n)
                memcpy(b + i, &v, width);
            break;
        }
        case 3: /* remove */
            memmove(b + i, b + i + len, n - i - len);
            n -= len;
            break;
        case 4: /* repeat */
            if (n + len <= INPUT_BYTES && len) {
                memmove(b + i + len, b + i, n - i);
                n += len;
            }
            break;
        case 5: /* cut */
            n = below(8) ? n : below(n + 1);
            break;
        case 6: { /* splice with another seed */
            const Seed *s = seed_count ? &seeds[below((size_t)seed_count)] : NULL;
            if (s && s->size && n) {
                size_t from = below(s->size), m = s->size - from < len ? s->size - from : len;
                memcpy(b + i, s->at + from, i + m <= n ? m : n - i);
            }
            break;
        }
        default:
            mutate_number(b, n);
        }
    }
    return n;
}

int main(int argc, char **argv)
{
    double limit = 10;
    uint64_t least = 2000, damages = 0;
    const char *seed = "0";
    for (int i = 1; i < argc; i++) {
        if (!strncmp(argv[i], "-max_total_time=", 16))
            limit = atof(argv[i] + 16);
        else if (!strncmp(argv[i], "-damages=", 9))
            least = strtoull(argv[i] + 9, NULL, 10);
        else if (!strncmp(argv[i], "-seed=", 6))
            state ^= strtoull(seed = argv[i] + 6, NULL, 10) * 0xd1342543de82ef95u + 1;
        else if (argv[i][0] != '-')
            add(argv[i]);
    }
    if (fuzz_seeds)
        fuzz_seeds(add_bytes);
    const char *name = strrchr(argv[0], '/') ? strrchr(argv[0], '/') + 1 : argv[0];
    char crash[512];
    snprintf(crash, sizeof crash, "%scrash-%s", access("build/logs", W_OK) == 0 ? "build/logs/" : "", name);
    FILE *keep = fopen(crash, "w+b");
    uint8_t *b = MAP_FAILED;
    if (keep && ftruncate(fileno(keep), INPUT_BYTES) == 0)
        b = mmap(NULL, INPUT_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fileno(keep), 0);
    if (b == MAP_FAILED) {
        fprintf(stderr, "%s: cannot be written\n", crash);
        return 2;
    }
    int replayed = 0;
    uint64_t runs = 0;
    time_t end = time(NULL) + (time_t)limit;
    while (time(NULL) < end || replayed < seed_count || damages < least) {
        size_t n = 0;
        if (replayed < seed_count) {
            n = seeds[replayed].size;
            memcpy(b, seeds[replayed++].at, n);
        } else {
            if (seed_count) {
                const Seed *s = &seeds[below((size_t)seed_count)];
                memcpy(b, s->at, n = s->size);
            } else {
                for (n = below(256); n < 256 && below(200); n++)
                    b[n] = (uint8_t)next();
            }
            n = mutate(b, n);
            damages++;
        }
        /* An exact-size copy, so that the sanitizer sees a read one past the end. */
        uint8_t *exact = malloc(n ? n : 1);
        if (!exact)
            return 2;
        memcpy(exact, b, n);
        LLVMFuzzerTestOneInput(exact, n);
        free(exact);
        runs++;
    }
    munmap(b, INPUT_BYTES);
    fclose(keep);
    remove(crash);
    printf("%s: seed %s: %llu runs, %llu of them damaged files, of %d valid ones; no crash\n", name, seed, (unsigned long long)runs,
           (unsigned long long)damages, seed_count);
    return 0;
}
