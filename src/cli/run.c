/* weft run: predictions. An export is compiled in its evaluation form alone; a compiled step has that form
 * inside. */
#include "cli/cli.h"

#include "train/train.h"

static void put_byte(void *user, uint8_t byte)
{
    (void)user;
    putchar(byte);
    fflush(stdout);
}

int wf_cli_run(WfCtx *ctx, const WfOptions *o, const WfStrings *words)
{
    if (o->sample && (o->data.n || o->out))
        wf_fail(ctx, WEFT_ERR_USAGE, "--sample prints a text: leave --data and --out away");
    if (!o->sample && !o->data.n)
        wf_fail(ctx, WEFT_ERR_USAGE, "name the data with --data FILE.safetensors or --data INPUT=FILE");
    if (!o->sample && !o->out)
        wf_fail(ctx, WEFT_ERR_USAGE, "name the file to write with --out FILE.safetensors");
    if (o->nproc > 1)
        wf_fail_at(ctx, WEFT_ERR_USAGE, NULL, "Models whose ranks speak with each other are evaluated by weft train --eval-data.",
                   "weft run is one process; --nproc has no meaning for it");
    weft_program *p = wf_cli_open(ctx, o, words);
    if (!p->loaded)
        p->options.forward_only = p->options.accept_lost_stopgrad = true; /* gradients do not matter here */
    if (!p->exe)
        wf_program_compile(p);
    if (!p->exe->program[WF_PROG_EVAL].n_outputs)
        wf_fail_at(ctx, WEFT_ERR_USAGE, words->at[0], NULL,
                   "this step was compiled without its evaluation form");
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
