/* Private to ir: graph text while it is read. lex.c reads words and numbers, parse.c what they mean. */
#ifndef WF_IR_LEX_H
#define WF_IR_LEX_H

#include "ir/ir_private.h"

typedef struct {
    WfCtx *ctx;
    WfArena *a;
    const char *text, *p, *what; /* the whole, where reading stands in it, its name in messages */
    WfExprs *exprs;
    WfVal (*find)(void *user, const char *name);
    void *user;
    int nesting;
    WF_VEC(WfSource) sources; /* entry 0: none */
} Parser;

/* Raises WEFT_ERR_FILE with the line and column at which reading stands. */
WF_NORETURN void wf_lex_bad(Parser *s, const char *fmt, ...) WF_PRINTF(2, 3);
/* Each of these skips blanks and comments first, and raises when it finds something else. */
void wf_lex_blanks(Parser *s);
bool wf_lex_eat(Parser *s, const char *token); /* false, and nothing read, when something else stands there */
void wf_lex_need(Parser *s, const char *token);
char *wf_lex_word(Parser *s);
bool wf_lex_keyword(Parser *s, const char *w); /* as wf_lex_eat, whole words only */
char *wf_lex_quoted(Parser *s);
WfDim wf_lex_dim(Parser *s); /* a size expression */
double wf_lex_number(Parser *s);
/* A number as int or float: a float has a point, an exponent, or is inf or nan. Skips nothing. */
bool wf_lex_float_ahead(const char *p);

static inline bool name_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.';
}

#endif
