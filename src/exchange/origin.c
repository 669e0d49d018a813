/* What a run was given, kept in its checkpoints: options of the model, the optimiser and the schedule may change when it goes on,
 * but not without a word. Options that shape the plan are those of the executable, whatever the command line says. */
#include "exchange/exchange.h"

#include <jansson.h>
#include <string.h>

/* Options that name files, or how the same numbers are computed. */
static bool told(const WfOptionRow *r)
{
    static const char *const not[] = {"weights", "strict", "optimizer-state", "loss-weights", "pos-weight", "accept-lost-stopgrad", "update"};
    bool in = r->group == WF_GROUP_MODEL || r->group == WF_GROUP_OPTIMISER || r->group == WF_GROUP_SCHEDULE;
    for (size_t i = 0; i < WF_LEN(not); i++)
        in &= strcmp(r->name, not[i]) != 0;
    return in;
}

static const char *text_of(const WfRun *t, WfArena *a, const WfOptionRow *r)
{
    WfStr s = {.arena = a};
    if (r->plan)
        return wf_exe_option(t->exe, a, r->name);
    wf_option_text(t->options, r, &s);
    return s.at ? s.at : "";
}

void wf_origin_print(const WfRun *t, WfStr *out)
{
    int n = 0;
    wf_str_puts(out, "\"options\": {");
    for (const WfOptionRow *r = wf_option_table; r->name; r++)
        if (told(r)) {
            wf_str_printf(out, "%s\"%s\": ", n++ ? ", " : "", r->name);
            if (!wf_yaml_quote(text_of(t, out->arena, r), out))
                wf_str_puts(out, "\"\"");
        }
    wf_str_puts(out, "}, ");
}

void wf_origin_compare(const WfRun *t, const WfJson *was)
{
    WfArena *a = wf_arena_scratch(t->ctx);
    WfStr all = {.arena = a};
    for (const WfOptionRow *r = wf_option_table; r->name; r++) {
        const char *before = json_string_value(json_object_get(was, r->name)), *now = told(r) ? text_of(t, a, r) : NULL;
        if (before && now && strcmp(before, now))
            wf_str_printf(&all, "%s%s was %s, now %s", all.n ? "; " : "", r->name, *before ? before : "not given", *now ? now : "not given");
    }
    if (all.n)
        wf_log(t->ctx, WF_LOG_WARN, "the run goes on with other options: %s", all.at);
    wf_arena_free(a);
}
