/* Shared by the files of the room: what a format is, what a recipe holds, how samples are read. */
#ifndef WF_DATA_PRIVATE_H
#define WF_DATA_PRIVATE_H

#include "data/data.h"

enum { WF_MOST_READERS = 16 };

/* ---- recipes (recipe.c) ---- */

typedef enum { WF_TOKENS_AUTO, WF_TOKENS_BYTES, WF_TOKENS_U16, WF_TOKENS_U32 } WfTokens;
typedef enum { WF_CROP_CENTER, WF_CROP_RANDOM } WfCrop;
typedef WF_VEC(double) WfNumbers;
/* What keys are about. */
typedef enum { WF_USE_VALUES = 1, WF_USE_TOKENS = 2, WF_USE_RESIZE = 4, WF_USE_WINDOW = 8, WF_USE_TABLE = 16, WF_USE_CLASSES = 32 } WfUse;

/* A CSV column: how its text becomes a number. */
typedef struct {
    const char *name;
    bool text;           /* a category: its place in `categories`, which grow where the recipe gives none */
    WfMap *categories;
    bool closed;         /* the recipe gives all of them */
    const char *fill;    /* in place of nothing; NULL: nothing is an error */
} WfCsvColumn;

/* What is done to one input. All zero: what its format does by itself. */
typedef struct {
    const char *input;
    WfDtype dtype;       /* values are converted to it, rounded where needed; 0: only without loss */
    bool scaled;
    double scale;
    WfNumbers mean, std;
    int64_t one_hot;     /* classes; 0: no */
    WfTokens tokens;
    int64_t length, stride, vocab;
    int64_t resize[2];   /* height, width; width 0: the shorter side */
    WfCrop crop;
    int64_t padding;
    bool flip;
    WF_VEC(WfCsvColumn) columns;
    WfStrings classes;   /* of pictures: the n-th is number n; none: those of the training data, sorted */
    unsigned given;      /* bit i: key i of the table in recipe.c */
} WfRecipe;
typedef WF_VEC(WfRecipe) WfRecipes;

/* ---- fields: what a format finds in a file ---- */

/* One reading: which sample it is, counted over all files, for random crops and flips; and where failures go. */
typedef struct {
    uint64_t seed;
    int64_t epoch, sample;
    bool random;
    WfDataFault *fault;
} WfVisit;

/* Samples of one shape. read: samples first .. first + count - 1 as dense elements of dtype to `out`, on any thread; false
 * and the fault when that is not possible. */
typedef struct WfField {
    const char *name, *path;
    WfDtype dtype;
    int rank;
    int64_t shape[8];    /* shape[0]: samples */
    bool picture;        /* bytes stand for 0..1; a channel dimension may be added, or all dimensions flattened */
    bool scalar;         /* [n] may also be [n, 1] */
    bool placed;         /* crops and flips are made by the format */
    bool slow;           /* reading is work: worth a thread of its own, however few bytes come out */
    bool (*read)(const struct WfField *f, const WfVisit *v, int64_t first, int64_t count, uint8_t *out);
    WfBytes *bytes;      /* dense data: here, from `start` on, or (bytes NULL) in memory */
    int64_t start;
    const uint8_t *memory;
    void *own;           /* the format's */
} WfField;
/* The read of dense data. */
bool wf_field_dense(const WfField *f, const WfVisit *v, int64_t first, int64_t count, uint8_t *out);
size_t wf_field_sample_bytes(const WfField *f);

/* ---- formats: one row each in dataset.c ---- */

typedef struct {
    const char *path;
    WfBytes *bytes;      /* NULL: a folder */
    const struct WfFormat *format;
    const WfRecipe *recipe; /* of the first name before the =; one that says nothing where there is none */
    void *own;           /* the format's */
} WfDataFile;

typedef struct { const char *input; WfStrings names; } WfClasses; /* of the input that gets their numbers */

typedef struct {
    WfCtx *ctx;
    WfArena *a;          /* of the dataset */
    WfDataUse use;
    bool again;          /* the files were opened, and described, before */
    const WfDataInput *inputs;
    int n;
    WfArena *keep;       /* of what the training data teach (a, unless they are read for that alone) */
    WfClasses *classes;  /* of pictures, once a folder was opened */
    WfRecipes recipes;
    const char *recipe;  /* its path */
    void *tree;          /* it, as JSON */
} WfOpening;
/* Reads --recipe into op->recipes; *hash gets that of its bytes. Raises WEFT_ERR_USAGE naming file and key. */
void wf_recipe_read(WfOpening *op, const char *path, uint64_t *hash);
/* Opens what --recipe says, or what lies beside --weights (learned.c). */
void wf_recipe_open(WfOpening *op, const WfOptions *o, uint64_t *hash);
/* The first `most` categories, quoted, in order. */
void wf_categories_print(const WfMap *m, int most, WfStr *out);
/* The recipe once more, with lists in place of `auto`, and the classes of pictures. */
char *wf_recipe_learned(const WfOpening *op);
const WfRecipe *wf_recipe_of(const WfOpening *op, const char *input); /* wf_recipe_none where there is none */
bool wf_recipe_learns(const WfRecipe *r);  /* does it hold categories that the training data decide? */
const char *wf_recipe_foreign(const WfRecipe *r, unsigned uses);      /* a key of another use; NULL: there is none */

void wf_recipe_forget(WfRecipe *r, unsigned uses);                    /* that keys of these uses were given: nobody need obey them */
int wf_class_number(const WfStrings *classes, const char *name);      /* -1: there is none of that name */

typedef struct WfFormat {
    const char *name;    /* for messages */
    bool named;          /* its fields have names, so that a file can feed several inputs without NAME= */
    bool classes;        /* what its second field means is decided by the training data */
    unsigned uses, more; /* recipe keys that mean something to it: for the first name before the =, for others */
    /* Is the file of this format? head: its first bytes, `size` of them (NULL: a folder). */
    bool (*knows)(const WfDataFile *f, const uint8_t *head, size_t size);
    void (*open)(WfOpening *op, WfDataFile *f);  /* reads headers, once; may be NULL */
    /* The field for an input: the place-th of NAME,NAME=FILE of names_n; place -1: without names. False: there is none of
     * that name. */
    bool (*field)(WfOpening *op, WfDataFile *f, const WfDataInput *in, int place, int names_n, WfField *out);
    void (*names)(WfOpening *op, WfDataFile *f, WfStr *out); /* lists its fields, for messages; may be NULL */
} WfFormat;
extern const WfFormat wf_format_safetensors, wf_format_idx, wf_format_npy, wf_format_npz, wf_format_tokens,
    wf_format_csv, wf_format_pictures;
extern const WfRecipe wf_recipe_none;

/* The files that a pattern stands for: itself, a folder's files, or a glob's, sorted; a folder of folders is one. */
void wf_data_expand(WfOpening *op, const char *pattern, WfStrings *out);
/* What a folder holds, hidden names excepted, sorted. */
void wf_data_list(WfCtx *ctx, WfArena *a, const char *path, WfStrings *files, WfStrings *folders);
bool wf_data_is_picture(const char *path); /* by its name */
bool wf_data_ends_with(const char *path, const char *extension); /* in either case */

/* ---- messages ---- */

void WF_NORETURN wf_data_damaged(WfOpening *op, const char *path, const char *kind, const char *fmt, ...) WF_PRINTF(4, 5);
/* Fills a fault; returns false. */
bool wf_data_fault(const WfVisit *v, int kind, const char *path, const char *hint, const char *fmt, ...) WF_PRINTF(5, 6);
bool wf_data_read(const WfVisit *v, const WfBytes *b, int64_t offset, void *p, size_t n); /* wf_bytes_read with a fault */

/* ---- random numbers (order.c) ---- */

uint64_t wf_mix(uint64_t x);  /* the finaliser of SplitMix64 */

/* ---- pictures (decode.c, resample.c): on any thread; memory by wf_sys_alloc ---- */

/* JPEG or PNG to RGB, 3 bytes a pixel, which the caller frees; NULL, and *why, when it is damaged or too large. */
uint8_t *wf_picture_decode(const uint8_t *p, size_t n, int *w, int *h, char *why, size_t room);
/* To out_w x out_h pixels of `channels` bytes. False: there is no memory for it. */
bool wf_picture_resize(const uint8_t *in, int w, int h, int channels, uint8_t *out, int out_w, int out_h);

/* ---- conversions (convert.c) ---- */

typedef enum {
    WF_CONVERT_NONE,
    WF_CONVERT_SCALE,    /* pictures, u8 to f32: divided by 255 */
    WF_CONVERT_WIDEN,    /* an integer type to one that holds all its values */
    WF_CONVERT_COMPUTE,  /* by float32: scale, mean, std, any type to any */
    WF_CONVERT_ONE_HOT
} WfConvert;
typedef enum { WF_RESHAPE_NONE, WF_RESHAPE_CHANNEL, WF_RESHAPE_FLATTEN, WF_RESHAPE_COLUMN } WfReshape;

/* How the samples of one file become an input's. */
typedef struct WfPart {
    WfField field;
    int64_t first;       /* its first sample, counted over all files */
} WfPart;
typedef struct WfFeed {
    WF_VEC(WfPart) parts;
    const WfRecipe *recipe;
    WfDtype from, to;
    WfConvert convert;
    WfReshape reshape;
    bool window;         /* crop or flip of a [c, h, w] sample of the file */
    int64_t in[3], out[3];
    int64_t raw_elements, elements; /* of a sample in the file, after crop and flip, and of the input */
    int64_t channels, inner;        /* of mean and std: element e has channel e / inner % channels */
    float scaled[256];
    uint64_t seed;
    bool random;
} WfFeed;

/* Chooses how; false when nothing leads from the field to the input. Fills c's rank and shape, shape[0] excepted. */
bool wf_feed_choose(WfOpening *op, const WfDataInput *in, const WfField *f, WfColumn *c);
void wf_feed_describe(const WfFeed *f, WfStr *out);
/* One sample of the file, dense, to one of the input. */
bool wf_feed_convert(const WfFeed *f, const WfVisit *v, const uint8_t *raw, uint8_t *spare, uint8_t *out);
/* Where a crop of h x w begins in a picture of in_h x in_w (negative: in the padding), and whether it is mirrored. */
void wf_crop_place(const WfRecipe *r, const WfVisit *v, int64_t in_h, int64_t in_w, int64_t h, int64_t w, int64_t *top,
                   int64_t *left, bool *mirror);

#endif
