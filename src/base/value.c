/* Options as text: a value as text that sets it again, and the key of an executable, which is all values that shape the plan. */
#include <stdlib.h>
#include <string.h>

#include "base/inner.h"

bool wf_option_word(const WfOptionRow *row, const char *value)
{
    return strchr("an", row->fallback[0]) && row->fallback[0] && !strcmp(value, row->fallback);
}

static void put_enum(WfStr *out, const char *choices, int i)
{
    const char *c = choices;
    while (i-- > 0 && strchr(c, '|'))
        c = strchr(c, '|') + 1;
    wf_str_putn(out, c, strcspn(c, "|"));
}

void wf_option_text(const WfOptions *o, const WfOptionRow *row, WfStr *out)
{
    const void *field = (const char *)o + row->offset;
    switch (row->kind) {
    case WF_OPTION_BOOL:
        wf_str_puts(out, *(const bool *)field ? "true" : "false");
        break;
    case WF_OPTION_INT:
        if (*(const int64_t *)field == 0 && wf_option_word(row, row->fallback))
            wf_str_puts(out, row->fallback);
        else
            wf_str_printf(out, "%lld", (long long)*(const int64_t *)field);
        break;
    case WF_OPTION_FLOAT:
        if (*(const double *)field == 0 && wf_option_word(row, row->fallback))
            wf_str_puts(out, row->fallback);
        else
            wf_str_float(out, *(const double *)field);
        break;
    case WF_OPTION_FLOATS:
        wf_str_float(out, ((const double *)field)[0]);
        wf_str_putc(out, ',');
        wf_str_float(out, ((const double *)field)[1]);
        break;
    case WF_OPTION_ENUM:
        put_enum(out, row->choices, *(const int *)field);
        break;
    case WF_OPTION_STRING:
        wf_str_puts(out, *(char *const *)field ? *(char *const *)field : "");
        break;
    case WF_OPTION_STRINGS:
        for (int i = 0; i < ((const WfStrings *)field)->n; i++)
            wf_str_printf(out, "%s%s", i ? " " : "", ((const WfStrings *)field)->at[i]);
        break;
    case WF_OPTION_GROUPS:
        for (int i = 0; i < o->groups.n; i++)
            wf_str_printf(out, "%s%s:%s", i ? " " : "", o->groups.at[i].pattern, o->groups.at[i].text);
        break;
    }
}

void wf_options_key(const WfOptions *o, WfStr *out)
{
    for (const WfOptionRow *r = wf_option_table; r->name; r++) {
        if (!r->plan)
            continue;
        wf_str_printf(out, "%s=", r->name);
        wf_option_text(o, r, out);
        wf_str_putc(out, '\n');
    }
    if (o->forward_only && o->eval)
        wf_str_puts(out, "forward-only=with the loss\n");
    if (wf_options_any_micro(o))
        wf_str_puts(out, "micro-batch=any\n");
}

int64_t wf_options_micro(const WfOptions *o)
{
    if (!o->micro_batch)
        return -1;
    return strcmp(o->micro_batch, "auto") ? strtoll(o->micro_batch, NULL, 10) : 0;
}

/* Under elastic the micro-batches are the leaves of the tree that sums follow: how many there are is part of the bits. */
bool wf_options_any_micro(const WfOptions *o)
{
    return o->micro_batch && wf_option_origin(o, "accumulate") == WF_FROM_DEFAULT && o->deterministic != WF_DETERMINISTIC_ELASTIC;
}
