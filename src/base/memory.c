/* How much memory a process may still take. The system's own estimate (MemAvailable) knows no limits of containers; those
 * stand in the files of control groups, v2 and v1, of which every group above the process counts. Page cache that a group
 * could give back (inactive_file) is not counted as used. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"

/* The first number of a file; -1: there is none ("max", too). */
static int64_t number_in(const char *path)
{
    FILE *f = fopen(path, "re");
    long long v = -1;
    if (!f)
        return -1;
    if (fscanf(f, "%lld", &v) != 1)
        v = -1;
    fclose(f);
    return v;
}

/* The number behind `key` in a file of lines "key number"; 0: not there. */
static int64_t keyed(const char *path, const char *key)
{
    FILE *f = fopen(path, "re");
    char line[256];
    long long v = 0;
    size_t n = strlen(key);
    while (f && fgets(line, sizeof line, f))
        if (!strncmp(line, key, n) && (line[n] == ' ' || line[n] == ':'))
            v = strtoll(line + n + 1, NULL, 10);
    if (f)
        fclose(f);
    return v;
}

/* What group `path` below `root` and those above it leave, at most `left`. */
static int64_t in_groups(int64_t left, const char *root, char *path, const char *limit, const char *used, const char *inactive)
{
    char file[700];
    for (;;) {
        char *name = file + snprintf(file, sizeof file - 64, "%s%s/", root, path);
        strcpy(name, limit);
        int64_t most = number_in(file);
        strcpy(name, used);
        int64_t now = number_in(file);
        strcpy(name, "memory.stat");
        if (most > 0 && now >= 0 && most - now + keyed(file, inactive) < left)
            left = most - now + keyed(file, inactive);
        char *up = strrchr(path, '/');
        if (!up || !*path)
            return left > 0 ? left : 0;
        *up = 0;
    }
}

static int64_t measured(void)
{
    int64_t left = keyed("/proc/meminfo", "MemAvailable") * 1024;
    FILE *f = fopen("/proc/self/cgroup", "re");
    char line[600];
    left = left > 0 ? left : INT64_MAX;
    while (f && fgets(line, sizeof line, f)) { /* hierarchy:controllers:path */
        char *kind = strchr(line, ':'), *path = kind ? strchr(kind + 1, ':') : NULL;
        if (!path)
            continue;
        *path++ = 0;
        path[strcspn(path, "\n")] = 0;
        if (!kind[1])
            left = in_groups(left, "/sys/fs/cgroup", path, "memory.max", "memory.current", "inactive_file");
        else if (!strcmp(kind + 1, "memory"))
            left = in_groups(left, "/sys/fs/cgroup/memory", path, "memory.limit_in_bytes", "memory.usage_in_bytes",
                             "total_inactive_file");
    }
    if (f)
        fclose(f);
    return left;
}

/* Entry `at` of a list; the last one where there are fewer. */
static const char *entry(const char *list, const char *separators, int64_t at)
{
    for (const char *next; at > 0 && list[strcspn(list, separators)] == separators[0]; at--, list = next)
        next = list + strcspn(list, separators) + 1;
    return list;
}

/* A number and K, M or G; below 0: it is none. *end: behind it. */
static double size_of(const char *text, const char **end)
{
    static const char units[] = "KMG";
    char *after;
    double v = strtod(text, &after);
    const char *unit = after > text && *after ? strchr(units, *after) : NULL;
    for (int i = 0; unit && i <= unit - units; i++)
        v *= 1024;
    *end = after + (unit != NULL);
    return after == text || !(v >= 0) || v > 1e15 ? -1 : v;
}

int64_t wf_env_size(WfCtx *ctx, const char *name, int64_t otherwise)
{
    const char *text = wf_env(name), *end;
    if (!text || !*text)
        return otherwise;
    double v = size_of(text, &end);
    if (v < 0 || *end)
        wf_fail(ctx, WF_E_ENVIRONMENT_VALUE, "%s=%s: a size such as 64M or 1G is expected", name, text);
    return (int64_t)v;
}

int64_t wf_memory_available(WfCtx *ctx, int sharing, int rank, int64_t step)
{
    const char *given = wf_env("WEFT_MEMORY");
    if (!given || !*given)
        return measured() / (sharing > 0 ? sharing : 1);
    const char *end;
    const char *text = entry(entry(given, ",", rank), "/,", step);
    double v = size_of(text, &end);
    if (!(v >= 0) || (*end && *end != ',' && *end != '/'))
        wf_fail(ctx, WF_E_ENVIRONMENT_VALUE, "WEFT_MEMORY=%s: sizes such as 64M or 1G are expected, separated by commas", given);
    return (int64_t)v;
}
