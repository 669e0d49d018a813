/* A row of a depthwise convolution's weight gradient, once per ISA level (isa.h). Each tap's sum over the positions of the row is
 * made in a register, in order; of up to four taps even and odd positions apart, since so few chains of additions leave the
 * multipliers waiting. */
#define TAPS(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7)

/* sums[k][lane] += the sum over p < n of dy[p][lane] x[p][k][lane], VL lanes; the taps of x are `tap` floats apart, positions
 * `step`, those of dy `dy_step`; rows of sums 16. */
INLINE void taps_row(const int K, int64_t n, const float *x, int64_t tap, int64_t step, const float *dy, int64_t dy_step, float *sums)
{
#define DECLARE(i) vf a##i = {0}, b##i = {0};
#define EVEN(i) \
    if (K > i)  \
        a##i += LOAD(x + i * tap) * g;
#define ODD(i) \
    if (K > i) \
        b##i += LOAD(x + step + i * tap) * h;
#define FINISH(i) \
    if (K > i)    \
        STORE(sums + i * 16, LOAD(sums + i * 16) + (K > 4 ? a##i : a##i + b##i));
    TAPS(DECLARE)
    for (; K <= 4 && n >= 2; n -= 2, x += 2 * step, dy += 2 * dy_step) {
        vf g = LOAD(dy), h = LOAD(dy + dy_step);
        TAPS(EVEN)
        TAPS(ODD)
    }
    for (; n > 0; n--, x += step, dy += dy_step) {
        vf g = LOAD(dy);
        TAPS(EVEN)
    }
    TAPS(FINISH)
#undef DECLARE
#undef EVEN
#undef ODD
#undef FINISH
}

typedef void TapsFn(int64_t n, const float *x, int64_t tap, int64_t step, const float *dy, int64_t dy_step, float *sums);

#define TAPS_ROW(i)                                                                                                                  \
    TARGET static void taps_row_##i(int64_t n, const float *x, int64_t tap, int64_t step, const float *dy, int64_t dy_step, float *sums) \
    {                                                                                                                                \
        taps_row(i + 1, n, x, tap, step, dy, dy_step, sums);                                                                         \
    }
TAPS(TAPS_ROW)

TARGET static void depthwise_row(int taps, int64_t n, const float *x, int64_t tap, int64_t step, const float *dy, int64_t dy_step,
                                 float *sums)
{
#define NAME_OF(i) taps_row_##i,
    static TapsFn *const fn[WF_TAPS] = {TAPS(NAME_OF)};
#undef NAME_OF
    for (int lane = 0; lane < 16; lane += VL)
        fn[taps - 1](n, x + lane, tap, step, dy + lane, dy_step, sums + lane);
}
