/* The register tile of 32 columns where vectors hold 16 floats, in assembly; isa.h includes this. It computes what `tile` there
 * does, the same chains of fused multiply-adds, with as few instructions around them as there can be. When another program runs
 * on the core's second hardware thread, the two are issued three instructions a cycle each, and a loop that a compiler makes
 * of `tile` (58 instructions for 28 multiply-adds) becomes limited by that: 115 in place of 160 GFLOP/s. Here it is 42:
 * every third row multiplies by a factor from memory, the others load one for two columns of vectors, four steps of k
 * share their additions. */

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

/* Multiplies the row of b in registers 28 and 29 by the factor at an address. An address with an index would be an
 * instruction of its own in EMBED. */
#define EMBED(at, x, y)                                      \
    "vfmadd231ps " at "%{1to16%}, %%zmm28, %%zmm" x "\n\t"   \
    "vfmadd231ps " at "%{1to16%}, %%zmm29, %%zmm" y "\n\t"
#define LOADED(at, x, y)                                     \
    "vbroadcastss " at ", %%zmm30\n\t"                       \
    "vfmadd231ps %%zmm28, %%zmm30, %%zmm" x "\n\t"           \
    "vfmadd231ps %%zmm29, %%zmm30, %%zmm" y "\n\t"

/* Element (i, p + u) of a: rows of a are ld apart, three of them from a pointer; or its columns are. */
#define IN_ROWS(i, x, y, pointer, index, WAY, u)    WAY(#u "*4(" pointer index ")", x, y)
#define IN_COLUMNS(i, x, y, pointer, index, WAY, u) WAY(#i "*4(%[a0])", x, y)

#define NEXT_B                          \
    "vmovups (%[b]), %%zmm28\n\t"       \
    "vmovups 64(%[b]), %%zmm29\n\t"     \
    "prefetcht0 1024(%[b])\n\t"         \
    "prefetcht0 1088(%[b])\n\t"         \
    "add %[ldb], %[b]\n\t"
#define NEXT_ROWS(n)                                        \
    "add $" #n "*4, %[a0]\n\t" "add $" #n "*4, %[a1]\n\t"   \
    "add $" #n "*4, %[a2]\n\t" "add $" #n "*4, %[a3]\n\t"   \
    "add $" #n "*4, %[a4]\n\t"
#define NO_ROWS(n)     ""
#define NEXT_COLUMN    "add %[ld], %[a0]\n\t"
#define NO_COLUMN      ""

#define ZERO(i, x, y, ...)                               \
    "vpxord %%zmm" x ", %%zmm" x ", %%zmm" x "\n\t"      \
    "vpxord %%zmm" y ", %%zmm" y ", %%zmm" y "\n\t"
#define ADD_TO_C(i, x, y, ...)                           \
    "vaddps (%[c]), %%zmm" x ", %%zmm" x "\n\t"          \
    "vaddps 64(%[c]), %%zmm" y ", %%zmm" y "\n\t"        \
    STORE_C(i, x, y)
#define STORE_C(i, x, y, ...)                            \
    "vmovups %%zmm" x ", (%[c])\n\t"                     \
    "vmovups %%zmm" y ", 64(%[c])\n\t"                   \
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
                         : [a0] "+r"(a0), [a1] "+r"(a1), [a2] "+r"(a2), [a3] "+r"(a3), [a4] "+r"(a4),          \
                           [b] "+r"(b), [c] "+r"(c), [k] "+r"(k)                                               \
                         : [ld] "r"(ld * 4), [ldb] "r"(ldb * 4), [ldc] "r"(ldc * 4), [add] "r"((int)add)       \
                         : "memory", "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7",     \
                           "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15", "xmm16",      \
                           "xmm17", "xmm18", "xmm19", "xmm20", "xmm21", "xmm22", "xmm23", "xmm24", "xmm25",    \
                           "xmm26", "xmm27", "xmm28", "xmm29", "xmm30");                                       \
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
WIDE_TILES(7, 6)
WIDE_TILES(8, 7)
WIDE_TILES(9, 8)
WIDE_TILES(10, 9)
WIDE_TILES(11, 10)
WIDE_TILES(12, 11)
WIDE_TILES(13, 12)
WIDE_TILES(14, 13)
