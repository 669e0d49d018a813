/* The register tile two vectors wide, in assembly; isa.h includes this. It computes what `tile` there does for one vector, the
 * same chains of fused multiply-adds, with as few instructions around them as there can be: 41 a step for 28 multiply-adds where
 * vectors hold 16 floats, 22 for 12 where they hold 8. What a compiler makes of C takes 58 and 29, and a core whose other
 * hardware thread is busy issues three a cycle for each: it gave 115 GFLOP/s in place of 160. Four steps of k share
 * their additions; with AVX-512 every third row multiplies by a factor in memory, the others load one for two
 * multiply-adds. */

#if VL == 16
#define V_  "%%zmm"
#define B0_ V_ "28"
#define B1_ V_ "29"
#define A_  V_ "30"
#define VECTOR_BYTES "64"
#define PREFETCH_SECOND "prefetcht0 17*64(%[b])\n\t"
#define CLOBBERED                                                                                                   \
    "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12",      \
        "xmm13", "xmm14", "xmm15", "xmm16", "xmm17", "xmm18", "xmm19", "xmm20", "xmm21", "xmm22", "xmm23", "xmm24", \
        "xmm25", "xmm26", "xmm27", "xmm28", "xmm29", "xmm30"
#else
#define V_  "%%ymm"
#define B0_ V_ "12"
#define B1_ V_ "13"
#define A_  V_ "14"
#define VECTOR_BYTES "32"
#define PREFETCH_SECOND
#define CLOBBERED                                                                                              \
    "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", \
        "xmm13", "xmm14"
#endif

/* What F makes of rows 0 to n - 1: number, two accumulators, pointer into a and index from it, way to multiply. */
#define UPTO_1(F, u)  F(0, "0", "1", "%[a0]", "", EMBED, u)
#define UPTO_2(F, u)  UPTO_1(F, u) F(1, "2", "3", "%[a0]", ",%[ld]", LOADED, u)
#define UPTO_3(F, u)  UPTO_2(F, u) F(2, "4", "5", "%[a0]", ",%[ld],2", LOADED, u)
#define UPTO_4(F, u)  UPTO_3(F, u) F(3, "6", "7", "%[a1]", "", EMBED, u)
#define UPTO_5(F, u)  UPTO_4(F, u) F(4, "8", "9", "%[a1]", ",%[ld]", LOADED, u)
#define UPTO_6(F, u)  UPTO_5(F, u) F(5, "10", "11", "%[a1]", ",%[ld],2", LOADED, u)
#define UPTO_7(F, u)  UPTO_6(F, u) F(6, "12", "13", "%[a2]", "", EMBED, u)
#define UPTO_8(F, u)  UPTO_7(F, u) F(7, "14", "15", "%[a2]", ",%[ld]", LOADED, u)
#define UPTO_9(F, u)  UPTO_8(F, u) F(8, "16", "17", "%[a2]", ",%[ld],2", LOADED, u)
#define UPTO_10(F, u) UPTO_9(F, u) F(9, "18", "19", "%[a3]", "", EMBED, u)
#define UPTO_11(F, u) UPTO_10(F, u) F(10, "20", "21", "%[a3]", ",%[ld]", LOADED, u)
#define UPTO_12(F, u) UPTO_11(F, u) F(11, "22", "23", "%[a3]", ",%[ld],2", LOADED, u)
#define UPTO_13(F, u) UPTO_12(F, u) F(12, "24", "25", "%[a4]", "", EMBED, u)
#define UPTO_14(F, u) UPTO_13(F, u) F(13, "26", "27", "%[a4]", ",%[ld]", LOADED, u)

/* Multiplies the row of b by the factor at an address, which would be an instruction of its own in EMBED if it had an
 * index. */
#define LOADED(at, x, y)                              \
    "vbroadcastss " at ", " A_ "\n\t"                 \
    "vfmadd231ps " B0_ ", " A_ ", " V_ x "\n\t"       \
    "vfmadd231ps " B1_ ", " A_ ", " V_ y "\n\t"
#if VL == 16
#define EMBED(at, x, y)                                     \
    "vfmadd231ps " at "%{1to16%}, " B0_ ", " V_ x "\n\t"    \
    "vfmadd231ps " at "%{1to16%}, " B1_ ", " V_ y "\n\t"
#else
#define EMBED(at, x, y) LOADED(at, x, y)
#endif

/* Element (i, p + u) of a: rows of a are ld apart, three of them from a pointer; or its columns are. */
#define IN_ROWS(i, x, y, pointer, index, WAY, u)    WAY(#u "*4(" pointer index ")", x, y)
#define IN_COLUMNS(i, x, y, pointer, index, WAY, u) WAY(#i "*4(%[a0])", x, y)

/* The next row of b; the second-level cache is where b streams from. */
#define NEXT_B                                            \
    "vmovups (%[b]), " B0_ "\n\t"                         \
    "vmovups " VECTOR_BYTES "(%[b]), " B1_ "\n\t"         \
    "prefetcht0 16*" VECTOR_BYTES "(%[b])\n\t"            \
    PREFETCH_SECOND "add %[ldb], %[b]\n\t"
#define NEXT_ROWS(n)                                        \
    "add $" #n "*4, %[a0]\n\t" "add $" #n "*4, %[a1]\n\t"   \
    "add $" #n "*4, %[a2]\n\t" "add $" #n "*4, %[a3]\n\t"   \
    "add $" #n "*4, %[a4]\n\t"
#define NO_ROWS(n)     ""
#define NEXT_COLUMN    "add %[ld], %[a0]\n\t"
#define NO_COLUMN      ""

#define ZERO(i, x, y, ...)                                        \
    "vxorps %%xmm" x ", %%xmm" x ", %%xmm" x "\n\t"               \
    "vxorps %%xmm" y ", %%xmm" y ", %%xmm" y "\n\t"
#define ADD_TO_C(i, x, y, ...)                                    \
    "vaddps (%[c]), " V_ x ", " V_ x "\n\t"                       \
    "vaddps " VECTOR_BYTES "(%[c]), " V_ y ", " V_ y "\n\t"       \
    STORE_C(i, x, y)
#define STORE_C(i, x, y, ...)                                     \
    "vmovups " V_ x ", (%[c])\n\t"                                \
    "vmovups " V_ y ", " VECTOR_BYTES "(%[c])\n\t"                \
    "add %[ldc], %[c]\n\t"

#define WIDE_TILE(name, n, ELEMENT, ADVANCE, COLUMN)                                                           \
    TARGET static void name(int64_t k, const float *a, int64_t ld, const float *b, int64_t ldb, float *c,      \
                            int64_t ldc, bool add)                                                             \
    {                                                                                                          \
        const float *a0 = a, *a1 = a + 3 * ld, *a2 = a + 6 * ld, *a3 = a + 9 * ld, *a4 = a + 12 * ld;          \
        for (int i = 0; i < n; i++) { /* there when the sums are done */                                       \
            __builtin_prefetch(c + i * ldc, 1);                                                                \
            __builtin_prefetch(c + i * ldc + VL, 1);                                                           \
        }                                                                                                      \
        __asm__ volatile(UPTO_##n(ZERO, 0)                                                                     \
                         "sub $4, %[k]\n\t"                                                                    \
                         "jl 2f\n\t"                                                                           \
                         ".p2align 5\n"                                                                        \
                         "1:\n\t"                                                                              \
                         NEXT_B UPTO_##n(ELEMENT, 0) COLUMN NEXT_B UPTO_##n(ELEMENT, 1) COLUMN                 \
                         NEXT_B UPTO_##n(ELEMENT, 2) COLUMN NEXT_B UPTO_##n(ELEMENT, 3) COLUMN ADVANCE(4)      \
                         "sub $4, %[k]\n\t"                                                                    \
                         "jge 1b\n"                                                                            \
                         "2:\n\t"                                                                              \
                         "add $4, %[k]\n\t"                                                                    \
                         "jz 4f\n"                                                                             \
                         "3:\n\t"                                                                              \
                         NEXT_B UPTO_##n(ELEMENT, 0) COLUMN ADVANCE(1)                                         \
                         "dec %[k]\n\t"                                                                        \
                         "jnz 3b\n"                                                                            \
                         "4:\n\t"                                                                              \
                         "test %[add], %[add]\n\t"                                                             \
                         "jz 5f\n\t"                                                                           \
                         UPTO_##n(ADD_TO_C, 0)                                                                 \
                         "jmp 6f\n"                                                                            \
                         "5:\n\t"                                                                              \
                         UPTO_##n(STORE_C, 0)                                                                  \
                         "6:\n\t"                                                                              \
                         "vzeroupper\n\t"                                                                      \
                         : [a0] "+r"(a0), [a1] "+r"(a1), [a2] "+r"(a2), [a3] "+r"(a3), [a4] "+r"(a4),          \
                           [b] "+r"(b), [c] "+r"(c), [k] "+r"(k)                                               \
                         : [ld] "r"(ld * 4), [ldb] "r"(ldb * 4), [ldc] "r"(ldc * 4), [add] "r"((int)add)       \
                         : "memory", "cc", CLOBBERED);                                                         \
    }
#define WIDE_TILES(n, i)                                  \
    WIDE_TILE(r2_##i, n, IN_ROWS, NEXT_ROWS, NO_COLUMN)   \
    WIDE_TILE(c2_##i, n, IN_COLUMNS, NO_ROWS, NEXT_COLUMN)

WIDE_TILES(1, 0)
WIDE_TILES(2, 1)
WIDE_TILES(3, 2)
WIDE_TILES(4, 3)
WIDE_TILES(5, 4)
WIDE_TILES(6, 5)
#if MR > 6
WIDE_TILES(7, 6)
WIDE_TILES(8, 7)
WIDE_TILES(9, 8)
WIDE_TILES(10, 9)
WIDE_TILES(11, 10)
WIDE_TILES(12, 11)
WIDE_TILES(13, 12)
WIDE_TILES(14, 13)
#endif
