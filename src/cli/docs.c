/* Everything that the option table and the table of verbs tell in other forms than --help: man pages (roff), completions for
 * bash, zsh and fish, and the generated part of docs/verbs/VERB.md. `weft completion SHELL` prints one of them; `weft docs
 * DIR`, which the build calls, writes all. */
#include "cli/cli.h"

#include <string.h>

static bool takes_value(const WfOptionRow *r) { return r->kind != WF_OPTION_BOOL; }
static bool is_on(const WfOptionRow *r) { return r->kind == WF_OPTION_BOOL && !strcmp(r->fallback, "true"); }
static bool takes_file(const WfOptionRow *r) { return strstr(r->choices, "FILE") || strstr(r->choices, "PATH"); }
static bool has_row(const WfVerb *v, const WfOptionRow *r) { return v->groups & 1u << r->group; }

/* Text with each character of `special` behind `escape`. */
static void put_escaped(WfStr *out, const char *text, const char *special, const char *escape)
{
    for (; *text; text++) {
        if (strchr(special, *text))
            wf_str_puts(out, escape);
        wf_str_putc(out, *text);
    }
}

/* ---- man pages ---- */

static void put_roff(WfStr *out, const char *text)
{
    bool start = true;
    for (; *text; text++) {
        if (start && (*text == '.' || *text == '\''))
            wf_str_puts(out, "\\&");
        start = *text == '\n';
        if (*text == '\\')
            wf_str_puts(out, "\\e");
        else if (*text == '-')
            wf_str_puts(out, "\\-");
        else
            wf_str_putc(out, *text);
    }
}

static void put_roff_options(WfStr *out, const WfVerb *v)
{
    for (int g = 0; g < WF_GROUPS; g++) {
        if (!(v->groups & 1u << g))
            continue;
        wf_str_printf(out, ".SS %s\n", wf_option_group_title((WfOptionGroup)g));
        for (const WfOptionRow *r = wf_option_table; r->name; r++) {
            if ((int)r->group != g)
                continue;
            wf_str_puts(out, ".TP\n\\fB\\-\\-");
            wf_str_puts(out, is_on(r) ? "no\\-" : "");
            put_roff(out, r->name);
            wf_str_puts(out, "\\fR");
            if (takes_value(r)) {
                wf_str_puts(out, " \\fI");
                put_roff(out, wf_option_argument(r));
                wf_str_puts(out, "\\fR");
            }
            wf_str_putc(out, '\n');
            WfStr text = {.arena = out->arena};
            wf_option_meaning(r, &text);
            put_roff(out, text.at);
            wf_str_putc(out, '\n');
        }
    }
}

static void man_verb(WfStr *out, const WfVerb *v)
{
    wf_str_printf(out, ".TH WEFT\\-");
    for (const char *c = v->name; *c; c++)
        wf_str_putc(out, (char)(*c >= 'a' && *c <= 'z' ? *c - 'a' + 'A' : *c));
    wf_str_printf(out, " 1 \"\" \"weft %s\" \"Weft\"\n.SH NAME\nweft\\-%s \\- ", weft_version(), v->name);
    put_roff(out, v->what);
    wf_str_printf(out, "\n.SH SYNOPSIS\n\\fBweft %s\\fR ", v->name);
    put_roff(out, v->usage);
    wf_str_puts(out, "\n.SH EXAMPLES\n.nf\n");
    put_roff(out, v->examples);
    wf_str_puts(out, ".fi\n");
    if (v->groups) {
        wf_str_puts(out, ".SH OPTIONS\n");
        put_roff_options(out, v);
    }
    wf_str_puts(out, ".SH SEE ALSO\n.BR weft (1)\n");
}

static void man_all(WfStr *out)
{
    wf_str_printf(out, ".TH WEFT 1 \"\" \"weft %s\" \"Weft\"\n.SH NAME\nweft \\- train exported PyTorch models without Python\n"
                       ".SH SYNOPSIS\n\\fBweft\\fR \\fIVERB\\fR [\\fIoptions\\fR] [\\fIfiles\\fR]\n.SH DESCRIPTION\n"
                       "Weft compiles the training step of a PyTorch model (.pt2, written by torch.export) ahead of time and runs it "
                       "without Python.\nHuman output goes to stderr, results to stdout.\n.SH VERBS\n",
                  weft_version());
    for (const WfVerb *v = wf_verbs; v->name; v++) {
        wf_str_printf(out, ".TP\n\\fBweft\\-%s\\fR(1)\n", v->name);
        put_roff(out, v->what);
        wf_str_putc(out, '\n');
    }
    wf_str_puts(out, ".SH EXIT STATUS\n0 done, 1 the work failed, 2 wrong usage, 128 + signal when interrupted.\n"
                     "Errors carry a code such as W0254; \\fBweft explain W0254\\fR says more.\n.SH ENVIRONMENT\n");
    for (const WfEnvVar *e = wf_env_table; e->name; e++) {
        wf_str_printf(out, ".TP\n\\fB%s\\fR\n", e->name);
        put_roff(out, e->meaning);
        wf_str_puts(out, " (default: ");
        put_roff(out, e->fallback);
        wf_str_puts(out, ")\n");
    }
    wf_str_puts(out, ".SH SEE ALSO\n");
    for (const WfVerb *v = wf_verbs; v->name; v++)
        wf_str_printf(out, ".BR weft\\-%s (1)%s\n", v->name, v[1].name ? "," : "");
}

/* ---- docs/verbs ---- */

static void markdown(WfStr *out, const WfVerb *v)
{
    wf_str_printf(out, "%c%s.\n\n```\nweft %s%s%s\n```\n\nExamples:\n\n```\n%s```\n", v->what[0] >= 'a' ? v->what[0] - 32 : v->what[0],
                  v->what + 1, v->name, *v->usage ? " " : "", v->usage, v->examples);
    for (int g = 0; g < WF_GROUPS; g++) {
        if (!(v->groups & 1u << g))
            continue;
        wf_str_printf(out, "\n### %s\n\n| option | meaning |\n|---|---|\n", wf_option_group_title((WfOptionGroup)g));
        for (const WfOptionRow *r = wf_option_table; r->name; r++) {
            if ((int)r->group != g)
                continue;
            wf_str_printf(out, "| `--%s%s%s", is_on(r) ? "no-" : "", r->name, takes_value(r) ? " " : "");
            if (takes_value(r))
                put_escaped(out, wf_option_argument(r), "|", "\\");
            wf_str_puts(out, "` | ");
            WfStr text = {.arena = out->arena};
            wf_option_meaning(r, &text);
            put_escaped(out, text.at, "|<*", "\\");
            wf_str_puts(out, " |\n");
        }
    }
}

/* ---- completions ---- */

static void put_words(WfStr *out, const char *choices)
{
    for (; *choices; choices++)
        wf_str_putc(out, *choices == '|' ? ' ' : *choices);
}

static void bash(WfStr *out)
{
    wf_str_puts(out, "# bash completion of weft, made from its option table\n_weft() {\n"
                     "    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} options=\n"
                     "    COMPREPLY=()\n    [ \"$cur\" = = ] && cur=\n"
                     "    [ \"$prev\" = = ] && prev=${COMP_WORDS[COMP_CWORD-2]}\n"
                     "    [ \"${COMP_WORDS[COMP_CWORD]}\" = = ] && prev=${COMP_WORDS[COMP_CWORD-1]}\n"
                     "    if [ \"$COMP_CWORD\" -eq 1 ]; then\n        COMPREPLY=($(compgen -W \"");
    for (const WfVerb *v = wf_verbs; v->name; v++)
        wf_str_printf(out, "%s ", v->name);
    wf_str_puts(out, "--help --version\" -- \"$cur\"))\n        return\n    fi\n    case $prev in\n");
    for (const WfOptionRow *r = wf_option_table; r->name; r++) {
        if (!takes_value(r))
            continue;
        wf_str_printf(out, "    --%s) ", r->name);
        if (r->kind == WF_OPTION_ENUM) {
            wf_str_puts(out, "COMPREPLY=($(compgen -W \"");
            put_words(out, r->choices);
            wf_str_puts(out, "\" -- \"$cur\")); return ;;\n");
        } else if (takes_file(r)) {
            wf_str_puts(out, "COMPREPLY=($(compgen -f -- \"${cur#*=}\")); return ;;\n");
        } else {
            wf_str_puts(out, "return ;;\n");
        }
    }
    wf_str_puts(out, "    esac\n    case ${COMP_WORDS[1]} in\n");
    for (const WfVerb *v = wf_verbs; v->name; v++) {
        wf_str_printf(out, "    %s) options=\"--help", v->name);
        for (const WfOptionRow *r = wf_option_table; r->name; r++)
            if (has_row(v, r))
                wf_str_printf(out, " --%s%s", is_on(r) ? "no-" : "", r->name);
        wf_str_puts(out, "\" ;;\n");
    }
    wf_str_puts(out, "    esac\n    case $cur in\n    -*) COMPREPLY=($(compgen -W \"$options\" -- \"$cur\")) ;;\n"
                     "    *) COMPREPLY=($(compgen -f -- \"$cur\")) ;;\n    esac\n}\ncomplete -o filenames -F _weft weft\n");
}

static void zsh(WfStr *out)
{
    wf_str_puts(out, "#compdef weft\n# zsh completion of weft, made from its option table\n_weft() {\n  local -a verbs\n  verbs=(\n");
    for (const WfVerb *v = wf_verbs; v->name; v++) {
        wf_str_printf(out, "    '%s:", v->name);
        put_escaped(out, v->what, ":", "\\");
        wf_str_puts(out, "'\n");
    }
    wf_str_puts(out, "  )\n  if (( CURRENT == 2 )); then\n    _describe verb verbs\n    return\n  fi\n"
                     "  local verb=$words[2]\n  shift words\n  (( CURRENT-- ))\n  case $verb in\n");
    for (const WfVerb *v = wf_verbs; v->name; v++) {
        wf_str_printf(out, "  %s) _arguments", v->name);
        for (const WfOptionRow *r = wf_option_table; r->name; r++) {
            if (!has_row(v, r))
                continue;
            bool many = r->kind == WF_OPTION_STRINGS || r->kind == WF_OPTION_GROUPS;
            wf_str_printf(out, " \\\n    '%s--%s%s%s[", many ? "*" : "", is_on(r) ? "no-" : "", r->name, takes_value(r) ? "=" : "");
            WfStr text = {.arena = out->arena};
            put_escaped(&text, r->help, "[]:", "\\");
            for (const char *c = text.at; *c; c++)
                if (*c == '\'')
                    wf_str_puts(out, "'\\''");
                else
                    wf_str_putc(out, *c);
            wf_str_putc(out, ']');
            if (r->kind == WF_OPTION_ENUM) {
                wf_str_puts(out, ":value:(");
                put_words(out, r->choices);
                wf_str_putc(out, ')');
            } else if (takes_value(r)) {
                wf_str_puts(out, takes_file(r) ? ":file:_files" : ":value: ");
            }
            wf_str_putc(out, '\'');
        }
        wf_str_puts(out, " '--help[say what the verb takes]' '*:file:_files' ;;\n");
    }
    wf_str_puts(out, "  esac\n}\n_weft \"$@\"\n");
}

static void fish(WfStr *out)
{
    wf_str_puts(out, "# fish completion of weft, made from its option table\n");
    for (const WfVerb *v = wf_verbs; v->name; v++) {
        wf_str_printf(out, "complete -c weft -n __fish_use_subcommand -f -a %s -d '", v->name);
        put_escaped(out, v->what, "'\\", "\\");
        wf_str_puts(out, "'\n");
    }
    for (const WfOptionRow *r = wf_option_table; r->name; r++) {
        wf_str_puts(out, "complete -c weft -n '__fish_seen_subcommand_from");
        for (const WfVerb *v = wf_verbs; v->name; v++)
            if (has_row(v, r))
                wf_str_printf(out, " %s", v->name);
        wf_str_printf(out, "' -l %s%s", is_on(r) ? "no-" : "", r->name);
        if (r->kind == WF_OPTION_ENUM) {
            wf_str_puts(out, " -x -a '");
            put_words(out, r->choices);
            wf_str_putc(out, '\'');
        } else if (takes_value(r)) {
            wf_str_puts(out, takes_file(r) ? " -r" : " -x");
        }
        wf_str_puts(out, " -d '");
        put_escaped(out, r->help, "'\\", "\\");
        wf_str_puts(out, "'\n");
    }
}

/* ---- the verbs ---- */

static const struct { const char *name, *file; void (*put)(WfStr *out); } shells[] = {
    {"bash", "bash/weft", bash}, {"zsh", "zsh/_weft", zsh}, {"fish", "fish/weft.fish", fish}};

int wf_cli_completion(WfCtx *ctx, const WfOptions *o, const WfStrings *words)
{
    (void)o;
    for (size_t i = 0; words->n == 1 && i < WF_LEN(shells); i++) {
        if (strcmp(words->at[0], shells[i].name))
            continue;
        WfStr out = {.arena = ctx->arena};
        shells[i].put(&out);
        fputs(out.at, stdout);
        return 0;
    }
    wf_fail(ctx, WF_E_ARGUMENT_MISSING, "name a shell: bash, zsh or fish");
}

static void write_to(WfCtx *ctx, const char *folder, const char *name, const WfStr *s)
{
    char *path = wf_arena_printf(ctx->arena, "%s/%s", folder, name), *slash = strrchr(path, '/');
    *slash = 0;
    wf_mkdirs(ctx, path);
    *slash = '/';
    wf_write_file(ctx, path, s->at, s->n);
}

int wf_cli_docs(WfCtx *ctx, const WfOptions *o, const WfStrings *words)
{
    (void)o;
    if (words->n != 1)
        wf_fail(ctx, WF_E_ARGUMENT_MISSING, "name one folder to write to");
    const char *folder = words->at[0];
    for (size_t i = 0; i < WF_LEN(shells); i++) {
        WfStr s = {.arena = ctx->arena};
        shells[i].put(&s);
        write_to(ctx, folder, shells[i].file, &s);
    }
    WfStr all = {.arena = ctx->arena};
    man_all(&all);
    write_to(ctx, folder, "man1/weft.1", &all);
    for (const WfVerb *v = wf_verbs; v->name; v++) {
        WfStr man = {.arena = ctx->arena}, page = {.arena = ctx->arena};
        man_verb(&man, v);
        markdown(&page, v);
        write_to(ctx, folder, wf_arena_printf(ctx->arena, "man1/weft-%s.1", v->name), &man);
        write_to(ctx, folder, wf_arena_printf(ctx->arena, "verbs/%s.md", v->name), &page);
    }
    return 0;
}
