/* The option table: defaults of each optimiser, what is refused and with which words, command lines, groups, text. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/base.h"

typedef struct {
    WfCtx *ctx;
    WfOptions o;
    WfStrings words;
    const char *name, *value;
    char *const *argv;
    int argc;
} Fixture;

static void do_init(void *p)
{
    Fixture *f = p;
    wf_options_init(f->ctx, f->ctx->arena, &f->o);
}

static void do_set(void *p)
{
    Fixture *f = p;
    wf_options_set(f->ctx, &f->o, f->name, f->value);
}

static void do_check(void *p)
{
    Fixture *f = p;
    wf_options_check(f->ctx, &f->o);
}

static void do_parse(void *p)
{
    Fixture *f = p;
    wf_options_parse(f->ctx, &f->o, f->argc, f->argv, &f->words);
}

static int setup(void **state)
{
    Fixture *f = calloc(1, sizeof *f);
    f->ctx = wf_ctx_new();
    *state = f;
    return wf_guard(f->ctx, do_init, f);
}

static int teardown(void **state)
{
    Fixture *f = *state;
    wf_ctx_free(f->ctx);
    free(f);
    return 0;
}

static void set(Fixture *f, const char *name, const char *value)
{
    f->name = name;
    f->value = value;
    if (wf_guard(f->ctx, do_set, f) != WEFT_OK)
        fail_msg("%s %s: %s", name, value, f->ctx->diag.message);
}

static void refuse(Fixture *f, const char *name, const char *value, const char *message, const char *hint)
{
    f->name = name;
    f->value = value;
    assert_int_equal(wf_guard(f->ctx, do_set, f), WEFT_ERR_USAGE);
    if (message)
        assert_string_equal(f->ctx->diag.message, message);
    if (hint)
        assert_string_equal(f->ctx->diag.hint, hint);
}

static void do_load(void *p)
{
    Fixture *f = p;
    wf_options_load(f->ctx, &f->o, f->value, &f->words);
}

/* The options of a settings file with that text. */
static weft_status load(Fixture *f, const char *text)
{
    static char path[] = "/tmp/weft-option-XXXXXX";
    static int fd = -1;
    if (fd < 0)
        fd = mkstemp(path);
    assert_true(fd >= 0 && ftruncate(fd, 0) == 0 && pwrite(fd, text, strlen(text), 0) == (ssize_t)strlen(text));
    f->value = path;
    weft_status s = wf_guard(f->ctx, do_load, f);
    unlink(path);
    fd = -1;
    strcpy(path + sizeof path - 7, "XXXXXX");
    return s;
}

static void refuse_file(Fixture *f, const char *text, int kind, const char *message)
{
    assert_true(load(f, text) != WEFT_OK);
    assert_int_equal(f->ctx->diag.kind, kind);
    assert_non_null(strstr(f->ctx->diag.message, message));
    assert_true(!strncmp(f->ctx->diag.place, "/tmp/weft-option-", 17) || strstr(f->ctx->diag.message, "/tmp/weft-option-"));
}

static void settings_files(void **state)
{
    Fixture *f = *state;
    set(f, "threads", "2"); /* a flag before; the parser sets the file first */
    assert_int_equal(load(f, "lr: 3e-4\nbetas: [0.5, 0.75]\nbatch-size: 16\nshuffle: false\nloss: cross_entropy\nmicro-batch: 8\n"
                             "data: [a.npy, \"b\"]\nparam-group: ['*.bias:lr=0']\nmodel: m.pt2\nsteps:\nclip-norm: none\n"),
                     WEFT_OK);
    assert_true(f->o.hyper.lr == 3e-4 && f->o.hyper.beta1 == 0.5 && f->o.hyper.beta2 == 0.75 && f->o.batch_size == 16);
    assert_true(!f->o.shuffle && f->o.loss == WF_LOSS_CROSS_ENTROPY && f->o.steps == 0 && f->o.clip_norm == 0);
    assert_string_equal(f->o.micro_batch, "8");
    assert_int_equal(f->o.data.n, 2);
    assert_string_equal(f->o.data.at[1], "b");
    assert_int_equal(f->o.groups.n, 1);
    assert_int_equal(f->words.n, 1);
    assert_string_equal(f->words.at[0], "m.pt2");
    assert_int_equal(wf_option_origin(&f->o, "lr"), WF_FROM_FILE);
    assert_int_equal(wf_option_origin(&f->o, "steps"), WF_FROM_DEFAULT);
    set(f, "data", "c.npy"); /* a flag's list replaces the file's, and grows */
    set(f, "data", "d.npy");
    assert_int_equal(f->o.data.n, 2);
    assert_string_equal(f->o.data.at[0], "c.npy");
    /* characters that YAML reads in ways of its own come back */
    assert_int_equal(load(f, "target: \"a\\u0085b\\u2028\\x7f\\t\\ufeff \\u00e9\\u0142\\U0001F642'\\\"\"\n"), WEFT_OK);
    assert_string_equal(f->o.target, "a\302\205b\342\200\250\177\t\357\273\277 \303\251\305\202\360\237\231\202'\"");
    WfStr printed = {.arena = f->ctx->arena};
    WfStrings none = {0};
    wf_options_print(f->ctx, &f->o, 1u << WF_GROUP_MODEL, &none, &printed);
    set(f, "target", "other");
    assert_int_equal(load(f, printed.at), WEFT_OK);
    assert_string_equal(f->o.target, "a\302\205b\342\200\250\177\t\357\273\277 \303\251\305\202\360\237\231\202'\"");
    refuse_file(f, "lrr: 1\n", WF_E_CONFIG_KEY, "unknown key \"lrr\"");
    assert_string_equal(f->ctx->diag.hint, "did you mean lr?");
    refuse_file(f, "no-shuffle: true\n", WF_E_CONFIG_KEY, "unknown key");
    refuse_file(f, "lr: -1\n", WF_E_OPTION_RANGE, "option lr: -1 is out of range");
    refuse_file(f, "lr: [1]\n", WF_E_CONFIG_VALUE, "option lr: the file holds no number");
    refuse_file(f, "lr: {a: 1}\n", WF_E_CONFIG_VALUE, "option lr: a settings file is flat");
    refuse_file(f, "steps: 1.5\n", WF_E_OPTION_VALUE, "not a whole number");
    refuse_file(f, "shuffle: 1\n", WF_E_CONFIG_VALUE, "no true or false");
    refuse_file(f, "out: 1.5\n", WF_E_CONFIG_VALUE, "no text in quotes");
    refuse_file(f, "betas: [0.9]\n", WF_E_CONFIG_VALUE, "two numbers");
    refuse_file(f, "data: {x: a}\n", WF_E_CONFIG_VALUE, "option data: a settings file is flat");
    refuse_file(f, "model: 3\n", WF_E_CONFIG_VALUE, "no file name");
    refuse_file(f, "just words\n", WF_E_CONFIG_VALUE, "no mapping");
    refuse_file(f, "a: [1\n", WF_E_YAML, "not valid YAML");
}

static void refuse_check(Fixture *f, const char *message)
{
    assert_int_equal(wf_guard(f->ctx, do_check, f), WEFT_ERR_USAGE);
    assert_string_equal(f->ctx->diag.message, message);
}

static void defaults_are_pytorchs(void **state)
{
    /* torch.optim.X([p]).defaults of torch 2.15.0 */
    static const struct {
        const char *name;
        double lr, eps, weight_decay;
    } want[] = {{"sgd", 1e-3, 1e-8, 0}, {"adam", 1e-3, 1e-8, 0}, {"adamw", 1e-3, 1e-8, 1e-2},
                {"rmsprop", 1e-2, 1e-8, 0}, {"adagrad", 1e-2, 1e-10, 0}};
    Fixture *f = *state;
    for (size_t i = 0; i < WF_LEN(want); i++) {
        set(f, "optimizer", want[i].name);
        assert_true(f->o.hyper.lr == want[i].lr);
        assert_true(f->o.hyper.eps == want[i].eps);
        assert_true(f->o.hyper.weight_decay == want[i].weight_decay);
        assert_true(f->o.hyper.beta1 == 0.9 && f->o.hyper.beta2 == 0.999 && f->o.hyper.alpha == 0.99);
        assert_true(f->o.hyper.momentum == 0 && f->o.hyper.dampening == 0 && !f->o.hyper.nesterov);
    }
    assert_int_equal(f->o.ignore_index, -100);
    assert_int_equal(f->o.predictions, -1);
    assert_int_equal(f->o.batch_size, 0);
    assert_true(f->o.clip_norm == 0 && f->o.delta == 1 && f->o.beta == 1);
    assert_true(f->o.cache && !f->o.no_weights && f->o.shuffle && !f->o.json);
}

static void what_was_set_stays(void **state)
{
    Fixture *f = *state;
    set(f, "weight-decay", "0.1");
    set(f, "lr", "3e-4");
    set(f, "optimizer", "rmsprop");
    assert_true(f->o.hyper.weight_decay == 0.1 && f->o.hyper.lr == 3e-4);
    assert_int_equal(wf_option_origin(&f->o, "lr"), WF_FROM_FLAG);
    assert_int_equal(wf_option_origin(&f->o, "eps"), WF_FROM_DEFAULT);
}

static void nonsense_is_refused(void **state)
{
    Fixture *f = *state;
    refuse(f, "lrr", "1", "unknown option \"lrr\"", "did you mean lr?");
    refuse(f, "lr", "-1", "option lr: -1 is out of range; it must be at least 0", NULL);
    refuse(f, "lr", "nan", "option lr: \"nan\" is not a number", NULL);
    refuse(f, "lr", "inf", "option lr: \"inf\" is not a number", NULL);
    refuse(f, "lr", "1e-3x", "option lr: \"1e-3x\" is not a number", NULL);
    refuse(f, "lr", "", "option lr: \"\" is not a number", NULL);
    refuse(f, "lr", "0,1", "option lr: \"0,1\" is not a number", NULL);
    refuse(f, "batch-size", "0", "option batch-size: 0 is out of range; it must be at least 1 and at most 1.07374e+09",
           NULL);
    refuse(f, "batch-size", "1.5", "option batch-size: \"1.5\" is not a whole number", NULL);
    refuse(f, "steps", "99999999999999999999", NULL, NULL);
    refuse(f, "threads", "0", "option threads: 0 is out of range; it must be at least 1 and at most 1024", NULL);
    refuse(f, "threads", "1025", NULL, NULL);
    refuse(f, "betas", "0.9", "option betas: \"0.9\" is not two numbers, such as 0.9,0.999", NULL);
    refuse(f, "betas", "0.9,1", "option betas: 0.9,1 is out of range; it must be at least 0 and below 1", NULL);
    refuse(f, "optimizer", "adan", "option optimizer: \"adan\" is not one of sgd|adam|adamw|rmsprop|adagrad", NULL);
    refuse(f, "json", "maybe", "option json: \"maybe\" is not true or false", NULL);
    refuse(f, "clip-norm", "0", "option clip-norm: 0 is out of range; it must be above 0", NULL);
    refuse(f, "clip-norm", "auto", NULL, NULL);
    refuse(f, "param-group", "weight-decay=0", NULL, NULL);
    refuse(f, "param-group", "*.bias:seed=3", "option param-group: \"seed\" is no setting of a parameter group", NULL);
    refuse(f, "param-group", "*.bias:lr=-3", "option lr: -3 is out of range; it must be at least 0", NULL);
    assert_int_equal(f->o.groups.n, 0);
    set(f, "clip-norm", "none");
    set(f, "batch-size", "auto");
}

static void options_must_fit_together(void **state)
{
    Fixture *f = *state;
    set(f, "momentum", "0.9");
    refuse_check(f, "option momentum has no meaning for optimizer adamw");
    set(f, "optimizer", "sgd");
    assert_int_equal(wf_guard(f->ctx, do_check, f), WEFT_OK);
    set(f, "nesterov", "true");
    set(f, "dampening", "0.5");
    refuse_check(f, "option nesterov needs momentum above 0 and no dampening");
    set(f, "dampening", "0");
    set(f, "steps", "3");
    set(f, "epochs", "3");
    refuse_check(f, "options steps and epochs are both given; one of them ends the training");
    set(f, "steps", "none");
    set(f, "label-smoothing", "0.1");
    refuse_check(f, "option label-smoothing has no meaning for loss none");
    set(f, "loss", "cross_entropy");
    set(f, "soft-target", "true");
    set(f, "ignore-index", "3");
    refuse_check(f, "option ignore-index names a class, but with soft-target the target holds probabilities");
    set(f, "soft-target", "false");
    set(f, "schedule", "step");
    refuse_check(f, "schedule step needs the option step-size");
    set(f, "step-size", "3");
    set(f, "clip-norm", "1");
    set(f, "update", "early");
    refuse_check(f, "update early cannot be used with clip-norm, which needs all gradients before the first update");
    set(f, "update", "late");
    set(f, "deterministic", "elastic");
    set(f, "nproc", "3");
    refuse_check(f, "option deterministic: elastic adds up in a binary tree, but 3 processes of 1 micro-batches are no power "
                    "of two");
    set(f, "nproc", "4");
    assert_int_equal(wf_guard(f->ctx, do_check, f), WEFT_OK);
    set(f, "nproc", "1");
    set(f, "deterministic", "fixed");
    assert_int_equal(wf_guard(f->ctx, do_check, f), WEFT_OK);
}

static void groups_match_by_glob(void **state)
{
    Fixture *f = *state;
    set(f, "param-group", "*.bias:weight-decay=0,betas=0.5/0.6");
    set(f, "param-group", "enc.*:lr=0.5,amsgrad=true");
    WfHyper h = wf_options_hyper(&f->o, "enc.0.bias");
    assert_true(h.weight_decay == 0 && h.beta1 == 0.5 && h.beta2 == 0.6 && h.lr == 1e-3 && !h.amsgrad);
    h = wf_options_hyper(&f->o, "enc.0.weight");
    assert_true(h.weight_decay == 0.01 && h.lr == 0.5 && h.amsgrad);
    h = wf_options_hyper(&f->o, "head.weight");
    assert_memory_equal(&h, &f->o.hyper, sizeof h);
}

static void command_lines(void **state)
{
    Fixture *f = *state;
    char *argv[] = {"train", "--lr=0.5", "model.pt2", "--data", "x=a.gz", "--data", "y=b.gz", "--json", "--no-weights",
                    "--no-cache", "-o", "run", "--loss", "mse", "--", "--odd"};
    f->argv = argv;
    f->argc = (int)WF_LEN(argv);
    assert_int_equal(wf_guard(f->ctx, do_parse, f), WEFT_OK);
    assert_int_equal(f->words.n, 3);
    assert_string_equal(f->words.at[1], "model.pt2");
    assert_string_equal(f->words.at[2], "--odd");
    assert_true(f->o.hyper.lr == 0.5 && f->o.json && f->o.no_weights && !f->o.cache && f->o.loss == WF_LOSS_MSE);
    assert_int_equal(f->o.data.n, 2);
    assert_string_equal(f->o.data.at[1], "y=b.gz");
    assert_string_equal(f->o.out, "run");

    char *missing[] = {"--lr"};
    f->argv = missing;
    f->argc = 1;
    assert_int_equal(wf_guard(f->ctx, do_parse, f), WEFT_ERR_USAGE);
    assert_string_equal(f->ctx->diag.message, "option lr: its value is missing");
    char *unknown[] = {"--no-lr"};
    f->argv = unknown;
    assert_int_equal(wf_guard(f->ctx, do_parse, f), WEFT_ERR_USAGE);
    char *single[] = {"-x"};
    f->argv = single;
    assert_int_equal(wf_guard(f->ctx, do_parse, f), WEFT_ERR_USAGE);
}

static void put_all(void *p)
{
    Fixture *f = p;
    WfOptions again;
    wf_options_init(f->ctx, f->ctx->arena, &again);
    for (const WfOptionRow *r = wf_option_table; r->name; r++) {
        WfStr text = {.arena = f->ctx->arena};
        wf_option_text(&f->o, r, &text);
        if (text.n)
            wf_options_set(f->ctx, &again, r->name, text.at);
        WfStr second = {.arena = f->ctx->arena};
        wf_option_text(&again, r, &second);
        assert_string_equal(text.n ? text.at : "", second.n ? second.at : "");
    }
    WfStr key = {.arena = f->ctx->arena}, other = {.arena = f->ctx->arena};
    wf_options_key(&f->o, &key);
    wf_options_key(&again, &other);
    assert_string_equal(key.at, other.at);
    assert_non_null(strstr(key.at, "optimizer=sgd\n"));
    assert_null(strstr(key.at, "lr=0.3\n"));
}

static void text_sets_the_same_value(void **state)
{
    Fixture *f = *state;
    set(f, "lr", "0.3");
    set(f, "optimizer", "sgd");
    set(f, "param-group", "*.bias:momentum=0.25");
    set(f, "threads", "7");
    set(f, "seed", "123456789012345");
    assert_int_equal(wf_guard(f->ctx, put_all, f), WEFT_OK);
}

static void put_help(void *p)
{
    Fixture *f = p;
    WfStr help = {.arena = f->ctx->arena};
    wf_options_help(&help, ~0u);
    for (const WfOptionRow *r = wf_option_table; r->name; r++)
        assert_non_null(strstr(help.at, r->name));
    for (char *line = help.at, *end; (end = strchr(line, '\n')); line = end + 1)
        assert_true(end - line <= 120);
    assert_null(strstr(help.at, "do not several")); /* the verb follows "not" */
    assert_non_null(strstr(help.at, "several processes: do not send"));
    if (getenv("SHOW_HELP"))
        fputs(help.at, stderr);
}

static void help_names_everything(void **state)
{
    assert_int_equal(wf_guard(((Fixture *)*state)->ctx, put_help, *state), WEFT_OK);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(defaults_are_pytorchs), TEST(what_was_set_stays), TEST(nonsense_is_refused),
        TEST(options_must_fit_together), TEST(groups_match_by_glob), TEST(command_lines),
        TEST(text_sets_the_same_value), TEST(help_names_everything), TEST(settings_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
