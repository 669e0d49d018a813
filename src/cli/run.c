/* weft run: predictions. weft eval: metrics. An export is compiled in its evaluation form alone; a compiled step has that form
 * inside. */
#include "cli/cli.h"

#include "train/train.h"

#include <math.h>
#include <string.h>

static void put_byte(void *user, uint8_t byte)
{
    (void)user;
    putchar(byte);
    fflush(stdout);
}

/* The program in its evaluation form: the predictions alone, or with the loss. */
static weft_program *open_evaluation(WfCtx *ctx, const WfOptions *o, const WfStrings *words, const char *verb, bool loss)
{
    if (o->sample && (o->data.n || o->out))
        wf_fail(ctx, WF_E_OPTION_MEANINGLESS, "--sample prints a text: leave --data and --out away");
    if (!o->sample && !o->data.n)
        wf_fail(ctx, WF_E_ARGUMENT_MISSING, "name the data with --data FILE.safetensors or --data INPUT=FILE");
    if (o->nproc > 1)
        wf_fail_at(ctx, WF_E_OPTION_MEANINGLESS, NULL, "Models whose ranks speak with each other are evaluated by weft train --eval-data.",
                   "weft %s is one process; --nproc has no meaning for it", verb);
    weft_program *p = wf_cli_open(ctx, o, words);
    if (!p->loaded)
        p->options.forward_only = p->options.accept_lost_stopgrad = true; /* gradients do not matter here */
    p->options.eval = loss;
    if (!p->exe)
        wf_program_compile(p);
    if (!p->exe->program[WF_PROG_EVAL].n_outputs)
        wf_fail_at(ctx, WF_E_STEP_FORM, words->at[0], NULL,
                   "this step was compiled without its evaluation form");
    return p;
}

int wf_cli_run(WfCtx *ctx, const WfOptions *o, const WfStrings *words)
{
    if (!o->sample && o->data.n && !o->out)
        wf_fail(ctx, WF_E_ARGUMENT_MISSING, "name the file to write with --out FILE.safetensors");
    if (o->out && !o->sample)
        wf_cli_target(ctx, o, words, o->out, WF_TARGET_PREDICTIONS, "predictions");
    weft_program *p = open_evaluation(ctx, o, words, "run", false);
    weft_session *s = wf_start(p);
    WfTraining t = {.ctx = ctx, .arena = p->arena, .exe = p->exe, .session = s->run, .options = &p->options};
    if (o->sample) {
        fputs(o->prompt ? o->prompt : "", stdout);
        wf_sample(&t, put_byte, NULL);
        putchar('\n');
        weft_program_free(p);
        return 0;
    }
    double start = wf_now();
    int64_t rows = wf_predict(&t, o->out);
    fprintf(stderr, "%s: predictions of %lld samples in %.2f s\n", o->out, (long long)rows, wf_now() - start);
    weft_program_free(p);
    return 0;
}

static bool has_loss(const weft_program *p)
{
    const WfExeProgram *e = &p->exe->program[WF_PROG_EVAL];
    for (int k = 0; k < e->n_outputs; k++)
        if (e->outputs[k].role == WF_XOUT_LOSS)
            return true;
    return false;
}

int wf_cli_eval(WfCtx *ctx, const WfOptions *o, const WfStrings *words)
{
    weft_program *p = open_evaluation(ctx, o, words, "eval", true);
    weft_session *s = wf_start(p);
    WfTraining t = {.ctx = ctx, .arena = p->arena, .exe = p->exe, .session = s->run, .options = &p->options};
    int n;
    WfDataInput *in = wf_train_inputs(p->arena, p->exe, &n);
    WfDataset *d = wf_dataset_open(ctx, p->arena, o, WF_DATA_PREDICT, in, n);
    double start = wf_now();
    WfMetrics *m = wf_evaluate(&t, d);
    WfStr text = {.arena = p->arena};
    if (o->json)
        wf_str_printf(&text, "{\"samples\": %lld", (long long)d->samples);
    int shown = 0;
    for (int i = 0; i < wf_metrics_count(m); i++) {
        double v = wf_metrics_value(m, i);
        if (!isfinite(v) && !o->metrics && !(has_loss(p) && !strcmp(wf_metrics_name(m, i), "loss")))
            continue;
        shown++;
        wf_str_printf(&text, o->json ? ", \"%s\": " : "%-12s ", wf_metrics_name(m, i));
        if (o->json && !isfinite(v))
            wf_str_puts(&text, "null");
        else
            wf_str_float(&text, v);
        wf_str_puts(&text, o->json ? "" : "\n");
    }
    if (!shown)
        wf_fail_at(ctx, WF_E_METRIC, NULL, "Name the loss that the model was trained with, as --loss cross_entropy.",
                   "there is nothing to compute: the model gives predictions, and no loss is named");
    printf("%s%s", text.at ? text.at : "", o->json ? "}\n" : "");
    fprintf(stderr, "%lld samples in %.2f s\n", (long long)d->samples, wf_now() - start);
    weft_program_free(p);
    return 0;
}
