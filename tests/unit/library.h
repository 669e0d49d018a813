/* For tests of the public interface: calls that must succeed, and calls that must be refused with a message. Include after cmocka. r:
 * any pointer to a struct with a `ctx`. */
#ifndef LIBRARY_H
#define LIBRARY_H

#include <string.h>

#include "weft.h"

#define ok(r, s)                   succeeded((r)->ctx, s)
#define refused(r, s, want, part)  failed((r)->ctx, s, want, part)

static inline void succeeded(weft_context *ctx, weft_status s)
{
    if (s != WEFT_OK)
        print_message("%s\n  %s\n", weft_message(ctx), weft_place(ctx));
    assert_int_equal(s, WEFT_OK);
}

static inline void failed(weft_context *ctx, weft_status s, weft_status want, const char *part)
{
    assert_int_equal(s, want);
    if (!strstr(weft_message(ctx), part))
        fail_msg("\"%s\" is not in: %s", part, weft_message(ctx));
}

#endif
