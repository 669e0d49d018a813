/* Progress of compiling: a line that is rewritten on a terminal, and elsewhere a line after two seconds and then every five, so
 * that nobody stares at silence and no log is flooded. */
#include "cli/cli.h"

#include <string.h>
#include <unistd.h>

enum { QUIET_S = 2, AGAIN_S = 5 };

bool wf_cli_terminal(void)
{
    const char *plain = wf_env("NO_COLOR"), *term = wf_env("TERM");
    return (isatty(2) || wf_env("WEFT_TERMINAL")) && !(plain && *plain) && !(term && !strcmp(term, "dumb"));
}

static struct {
    bool terminal, open;     /* open: a line of the terminal holds something */
    double begun, told, phase_begun;
    char phase[64];
} shown;

static void put(void *user, const char *phase, int done, int of)
{
    double now = wf_now();
    (void)user;
    if (!shown.begun)
        shown.begun = shown.phase_begun = now;
    if (strncmp(shown.phase, phase, sizeof shown.phase - 1)) {
        snprintf(shown.phase, sizeof shown.phase, "%s", phase);
        shown.phase_begun = now;
    }
    bool due = shown.terminal ? now - shown.told > 0.1 : now - shown.begun > QUIET_S && now - shown.told > AGAIN_S;
    if (!due)
        return;
    char text[160], left[40] = "";
    double spent = now - shown.phase_begun;
    if (done > 0 && done < of && spent > 0.5)
        snprintf(left, sizeof left, ", about %.0f s left", spent / done * (of - done));
    if (of)
        snprintf(text, sizeof text, "compiling: %s %d/%d%s", phase, done, of, left);
    else
        snprintf(text, sizeof text, "compiling: %s", phase);
    fprintf(stderr, shown.terminal ? "\r\033[K%s" : "%s\n", text);
    shown.open = shown.terminal;
    shown.told = now;
}

void wf_cli_progress(WfCtx *ctx)
{
    shown.terminal = wf_cli_terminal();
    ctx->progress = put;
}

void wf_cli_progress_end(void)
{
    if (shown.open)
        fputs("\r\033[K", stderr);
    shown.open = false;
}
