/* Convolutions on channels-last activations: small late layers on the register tile (convolve.c), weight gradients of depthwise ones
 * as sums over lanes (depthwise.c), float64 as plain sums (conv_f64.c), all others through oneDNN, one thread each, which is what follows.
 *
 * Forward and backward-data cut the batch into tiles of a few samples; one primitive for the tile, one for
 * the remainder. The weights are first put into the layout that oneDNN asks for, in a phase of their own. The
 * weight gradient sums over samples: the batch is cut into at most four ranges whose results lie in the
 * workspace in oneDNN's layout, are added in a balanced tree, and are then put into the caller's layout.
 *
 * Every thread has its own stream and memory objects; data pointers are set per call, scratch pads are the
 * caller's. Primitives are made with one OpenMP thread, since they fix their partition when made. oneDNN
 * chooses its instruction set once per process: the first convolution decides it. */
#include <omp.h>
#include <oneapi/dnnl/dnnl.h>
#include <string.h>

#include "kernels/convolve.h"

#if DNNL_VERSION_MAJOR != 2
#error "oneDNN 2 is expected"
#endif

enum { RANGES_MAX = 4, COMBINE_TILES = 8 };

typedef WfConvShape Shape;

typedef struct {
    dnnl_stream_t stream;
    dnnl_memory_t src[2], weights[2], bias[2], dst[2], pad[2], user, own;
} PerThread;

typedef struct {
    Shape shape;
    dnnl_engine_t engine;
    dnnl_primitive_t prim[2], reorder; /* [1]: the remainder */
    dnnl_memory_desc_t src[2], weights, user, bias, dst[2], pad[2];
    size_t weights_bytes, bias_at, range_bytes;
    bool same_layout; /* the caller's weights are already as oneDNN wants them */
    int threads;
    PerThread *at;
} Conv;

/* ---- geometry ----------------------------------------------------------------------------------- */

static bool channels_last(const WfOperand *o)
{
    int64_t stride = o->shape[1];
    if (o->shape[1] != 1 && o->stride[1] != 1)
        return false;
    for (int i = o->rank - 1; i >= 2; i--) {
        if (o->shape[i] != 1 && o->stride[i] != stride)
            return false;
        stride *= o->shape[i];
    }
    return o->shape[0] == 1 || o->stride[0] == stride;
}

static void read_shape(const WfLibDesc *d, Shape *s)
{
    memset(s, 0, sizeof *s);
    s->what = !strcmp(d->kind, "conv_fwd")        ? WF_CONV_FWD
              : !strcmp(d->kind, "conv_bwd_data") ? WF_CONV_DATA
                                                  : WF_CONV_WEIGHT;
    if (s->what == WF_CONV_FWD)
        s->src = 0, s->weights = 1, s->bias = 2, s->dst = 3;
    else if (s->what == WF_CONV_DATA)
        s->dst = 0, s->weights = 1, s->bias = -1, s->src = 2;
    else
        s->src = 0, s->dst = 1, s->weights = 2, s->bias = 3;
    if (s->what == WF_CONV_FWD && d->n == 3)
        s->bias = -1, s->dst = 2;
    s->has_bias = s->bias >= 0 && wf_has(d, s->bias);
    const WfOperand *x = &d->operand[s->src], *w = &d->operand[s->weights], *y = &d->operand[s->dst];
    s->spatial = x->rank - 2;
    s->n = x->shape[0], s->c = x->shape[1], s->o = y->shape[1], s->groups = d->param[0] ? d->param[0] : 1;
    for (int i = 0; i < s->spatial && i < 3; i++) {
        s->in[i] = x->shape[2 + i], s->out[i] = y->shape[2 + i], s->kernel[i] = w->shape[2 + i];
        s->stride[i] = d->param[1 + i] ? d->param[1 + i] : 1;
        s->dilation[i] = d->param[4 + i] ? d->param[4 + i] : 1;
        s->pad[i] = d->param[7 + i];
        s->pad_end[i] =
            (s->out[i] - 1) * s->stride[i] + (s->kernel[i] - 1) * s->dilation[i] + 1 - s->in[i] - s->pad[i];
    }
    for (int i = 0; i < 5; i++)
        s->w_stride[i] = w->stride[i];
    double flops = 2.0 * (double)s->o * (double)s->c / (double)s->groups; /* of one sample */
    for (int i = 0; i < s->spatial && i < 3; i++)
        flops *= (double)(s->out[i] * s->kernel[i]);
    s->tiles = s->what == WF_CONV_WEIGHT ? RANGES_MAX : 16;
    while (s->tiles > 1 && (s->tiles > s->n || flops * (double)s->n / (double)s->tiles < 1e6))
        s->tiles /= 2;
    s->per = s->n ? (s->n + s->tiles - 1) / s->tiles : 1;
    s->tiles = (s->n + s->per - 1) / s->per;
}

static int64_t remainder_of(const Shape *s)
{
    return s->n - (s->tiles - 1) * s->per;
}

/* ---- oneDNN ------------------------------------------------------------------------------------- */

static dnnl_format_tag_t activations(const Shape *s)
{
    return s->spatial == 1 ? dnnl_nwc : s->spatial == 2 ? dnnl_nhwc : dnnl_ndhwc;
}

static int weight_dims(const Shape *s, dnnl_dims_t dims, dnnl_dims_t strides)
{
    int n = 0;
    if (s->groups > 1) {
        dims[n] = s->groups;
        strides[n++] = s->o / s->groups * s->w_stride[0];
    }
    dims[n] = s->o / s->groups, strides[n++] = s->w_stride[0];
    dims[n] = s->c / s->groups, strides[n++] = s->w_stride[1];
    for (int i = 0; i < s->spatial; i++)
        dims[n] = s->kernel[i], strides[n++] = s->w_stride[2 + i];
    return n;
}

/* oneDNN's instruction set follows the plan's level; false when another level was fixed before. */
static bool choose_isa(const WfLibDesc *d)
{
    static int fixed; /* the level of the first caller */
    int level = wf_vec(d)->level, none = 0;
    if (__atomic_compare_exchange_n(&fixed, &none, level, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
        dnnl_set_max_cpu_isa(level == 4 ? dnnl_cpu_isa_avx512_core : dnnl_cpu_isa_avx2);
        return true;
    }
    return none == level;
}

static bool describe(const Shape *s, dnnl_engine_t engine, int64_t samples, dnnl_primitive_desc_t *out)
{
    dnnl_memory_desc_t src, weights, bias, dst, *b = s->has_bias ? &bias : NULL;
    dnnl_dims_t sd = {samples, s->c}, dd = {samples, s->o}, wd, ws, bd = {s->o}, dilation = {0};
    for (int i = 0; i < s->spatial; i++)
        sd[2 + i] = s->in[i], dd[2 + i] = s->out[i], dilation[i] = s->dilation[i] - 1;
    int wn = weight_dims(s, wd, ws);
    dnnl_convolution_desc_t c;
    dnnl_primitive_attr_t attr;
    if (dnnl_memory_desc_init_by_tag(&src, s->spatial + 2, sd, dnnl_f32, activations(s)) ||
        dnnl_memory_desc_init_by_tag(&dst, s->spatial + 2, dd, dnnl_f32, activations(s)) ||
        dnnl_memory_desc_init_by_tag(&weights, wn, wd, dnnl_f32, dnnl_format_tag_any) ||
        dnnl_memory_desc_init_by_tag(&bias, 1, bd, dnnl_f32, dnnl_a))
        return false;
    dnnl_status_t st;
    if (s->what == WF_CONV_FWD)
        st = dnnl_dilated_convolution_forward_desc_init(&c, dnnl_forward_training, dnnl_convolution_direct,
                                                        &src, &weights, b, &dst, s->stride, dilation, s->pad,
                                                        s->pad_end);
    else if (s->what == WF_CONV_DATA)
        st = dnnl_dilated_convolution_backward_data_desc_init(&c, dnnl_convolution_direct, &src, &weights,
                                                              &dst, s->stride, dilation, s->pad, s->pad_end);
    else
        st = dnnl_dilated_convolution_backward_weights_desc_init(
            &c, dnnl_convolution_direct, &src, &weights, b, &dst, s->stride, dilation, s->pad, s->pad_end);
    if (st || dnnl_primitive_attr_create(&attr))
        return false;
    int threads = omp_get_max_threads();
    omp_set_num_threads(1);
    dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user);
    st = dnnl_primitive_desc_create(out, &c, attr, engine, NULL);
    omp_set_num_threads(threads);
    dnnl_primitive_attr_destroy(attr);
    return st == dnnl_success;
}

static const dnnl_memory_desc_t *query(dnnl_primitive_desc_t pd, dnnl_query_t what)
{
    return dnnl_primitive_desc_query_md(pd, what, 0);
}

static const dnnl_memory_desc_t *weights_of(const Shape *s, dnnl_primitive_desc_t pd)
{
    return query(pd, s->what == WF_CONV_WEIGHT ? dnnl_query_diff_weights_md : dnnl_query_weights_md);
}

static size_t up64(size_t n)
{
    return (n + 63) / 64 * 64;
}

/* The two primitive descriptions of a call; true on success. [1] is left NULL when there is no remainder. */
static bool describe_both(const Shape *s, dnnl_engine_t engine, dnnl_primitive_desc_t pd[2])
{
    pd[0] = pd[1] = NULL;
    if (!describe(s, engine, s->per, &pd[0]))
        return false;
    if (remainder_of(s) == s->per || describe(s, engine, remainder_of(s), &pd[1]))
        return true;
    dnnl_primitive_desc_destroy(pd[0]);
    return false;
}

static bool is_f64(const WfLibDesc *d) { return d->operand[0].dtype == WF_F64; }

static void sizes(const WfLibDesc *d, size_t *workspace, size_t *scratch)
{
    Shape s;
    dnnl_engine_t engine;
    dnnl_primitive_desc_t pd[2];
    read_shape(d, &s);
    if (is_f64(d) || !s.n)
        return;
    if (wf_depthwise_takes(&s)) {
        wf_depthwise_sizes(d, &s, workspace);
        return;
    }
    if (wf_convolve_takes(d, &s)) {
        wf_convolve_sizes(d, &s, workspace, scratch);
        return;
    }
    choose_isa(d);
    if (dnnl_engine_create(&engine, dnnl_cpu, 0))
        return;
    if (describe_both(&s, engine, pd)) {
        size_t bytes = up64(dnnl_memory_desc_get_size(weights_of(&s, pd[0])));
        *workspace = s.what == WF_CONV_WEIGHT ? (size_t)s.tiles * (bytes + up64((size_t)s.o * 4)) : bytes;
        for (int i = 0; i < 2 && pd[i]; i++) {
            size_t pad = dnnl_memory_desc_get_size(query(pd[i], dnnl_query_scratchpad_md));
            *scratch = pad > *scratch ? pad : *scratch;
            dnnl_primitive_desc_destroy(pd[i]);
        }
        *scratch += 64;
    }
    dnnl_engine_destroy(engine);
}

static bool check_operands(const WfLibDesc *d, const Shape *s, char *why, size_t size)
{
    const WfOperand *x = &d->operand[s->src], *w = &d->operand[s->weights], *y = &d->operand[s->dst];
    int rank = s->spatial + 2;
    WfDtype t = is_f64(d) ? WF_F64 : WF_F32;
    if (rank < 3 || rank > 5)
        return wf_refuse(why, size, "x has %d dimensions, expected 3 to 5", rank);
    if (!wf_want(d, s->src, "x", t, rank, why, size) ||
        !wf_want(d, s->weights, "w", t, rank, why, size) ||
        !wf_want(d, s->dst, "y", t, rank, why, size))
        return false;
    if (y->shape[0] != s->n)
        return wf_refuse(why, size, "the batch differs between x and y");
    if (s->groups < 1 || s->c % s->groups || s->o % s->groups || w->shape[0] != s->o ||
        w->shape[1] != s->c / s->groups)
        return wf_refuse(why, size, "w does not fit the channels and groups");
    for (int i = 0; i < s->spatial; i++) {
        int64_t reach = s->in[i] + 2 * s->pad[i] - (s->kernel[i] - 1) * s->dilation[i] - 1;
        if (s->stride[i] < 1 || s->dilation[i] < 1 || s->pad[i] < 0 || reach < 0 ||
            s->out[i] != reach / s->stride[i] + 1)
            return wf_refuse(why, size, "spatial dimension %d of y does not fit x, w and the parameters", i);
    }
    if (!channels_last(x) || !channels_last(y))
        return wf_refuse(why, size, "%s is not dense channels-last: copy it", channels_last(x) ? "y" : "x");
    int64_t count = 1, reach = 0;
    for (int i = 0; i < rank; i++) {
        count *= w->shape[i];
        reach += (w->shape[i] - 1) * w->stride[i];
        if (w->stride[i] < 0)
            return wf_refuse(why, size, "w has a negative stride");
    }
    if (reach + 1 != count)
        return wf_refuse(why, size, "w has gaps: copy it to a dense layout");
    if (s->has_bias && (!wf_want(d, s->bias, "bias", t, 1, why, size) ||
                        d->operand[s->bias].shape[0] != s->o || !wf_dense(&d->operand[s->bias])))
        return wf_refuse(why, size, "bias is not a dense %s[O]", wf_dtype_name(t));
    return true;
}

static bool accepts(const WfLibDesc *d, char *why, size_t size)
{
    Shape s;
    if (d->n < 3 || d->n > 4)
        return wf_refuse(why, size, "%s takes 3 or 4 operands", d->kind);
    read_shape(d, &s);
    if (!check_operands(d, &s, why, size))
        return false;
    if (is_f64(d) || !s.n || wf_depthwise_takes(&s) || wf_convolve_takes(d, &s))
        return true;
    if (!choose_isa(d))
        return wf_refuse(why, size, "oneDNN already runs at another ISA level in this process");
    dnnl_engine_t engine;
    dnnl_primitive_desc_t pd[2];
    if (dnnl_engine_create(&engine, dnnl_cpu, 0))
        return wf_refuse(why, size, "oneDNN has no engine");
    bool ok = describe_both(&s, engine, pd);
    if (!ok)
        wf_refuse(why, size, "oneDNN has no implementation for these shapes");
    for (int i = 0; ok && i < 2 && pd[i]; i++) {
        const char *info = NULL;
        dnnl_primitive_desc_query(pd[i], dnnl_query_impl_info_str, 0, &info);
        if (info && !strncmp(info, "ref", 3))
            wf_refuse(why, size, "slow: oneDNN has only %s for this convolution", info);
        dnnl_primitive_desc_destroy(pd[i]);
    }
    dnnl_engine_destroy(engine);
    return ok;
}

/* ---- making and releasing ----------------------------------------------------------------------- */

static void release(void *p)
{
    Conv *c = p;
    for (int t = 0; c->at && t < c->threads; t++) {
        PerThread *at = &c->at[t];
        dnnl_memory_t *all[] = {at->src, at->weights, at->bias, at->dst, at->pad};
        for (size_t i = 0; i < WF_LEN(all); i++)
            for (int j = 0; j < 2; j++)
                if (all[i][j])
                    dnnl_memory_destroy(all[i][j]);
        if (at->user)
            dnnl_memory_destroy(at->user);
        if (at->own)
            dnnl_memory_destroy(at->own);
        if (at->stream)
            dnnl_stream_destroy(at->stream);
    }
    for (int i = 0; i < 2; i++)
        if (c->prim[i])
            dnnl_primitive_destroy(c->prim[i]);
    if (c->reorder)
        dnnl_primitive_destroy(c->reorder);
    if (c->engine)
        dnnl_engine_destroy(c->engine);
    wf_sys_free(c->at);
    wf_sys_free(c);
}

/* Everything whose failure means that oneDNN is out of memory or broken; false on failure. */
static bool build(Conv *c)
{
    Shape *s = &c->shape;
    dnnl_primitive_desc_t pd[2], move;
    if (dnnl_engine_create(&c->engine, dnnl_cpu, 0) || !describe_both(s, c->engine, pd))
        return false;
    bool ok = true;
    int threads = omp_get_max_threads();
    omp_set_num_threads(1);
    for (int i = 0; i < 2 && pd[i]; i++) {
        c->src[i] = *query(pd[i], s->what == WF_CONV_DATA ? dnnl_query_diff_src_md : dnnl_query_src_md);
        c->dst[i] = *query(pd[i], s->what == WF_CONV_FWD ? dnnl_query_dst_md : dnnl_query_diff_dst_md);
        c->pad[i] = *query(pd[i], dnnl_query_scratchpad_md);
        ok = ok && !dnnl_primitive_create(&c->prim[i], pd[i]);
    }
    c->weights = *weights_of(s, pd[0]);
    dnnl_dims_t dims, strides;
    int n = weight_dims(s, dims, strides);
    ok = ok && !dnnl_memory_desc_init_by_strides(&c->user, n, dims, dnnl_f32, strides) &&
         !dnnl_memory_desc_init_by_tag(&c->bias, 1, (dnnl_dims_t){s->o}, dnnl_f32, dnnl_a);
    /* Both shapes must agree on the weights' layout; a remainder that wants another one is made again to
     * match. */
    if (ok && pd[1] && !dnnl_memory_desc_equal(&c->weights, weights_of(s, pd[1])))
        ok = false;
    c->same_layout = ok && dnnl_memory_desc_equal(&c->weights, &c->user);
    bool out = s->what == WF_CONV_WEIGHT;
    if (ok && (out || !c->same_layout)) {
        ok = !dnnl_reorder_primitive_desc_create(&move, out ? &c->weights : &c->user, c->engine,
                                                 out ? &c->user : &c->weights, c->engine, NULL) &&
             !dnnl_primitive_create(&c->reorder, move);
        dnnl_primitive_desc_destroy(move);
    }
    omp_set_num_threads(threads);
    for (int i = 0; i < 2 && pd[i]; i++)
        dnnl_primitive_desc_destroy(pd[i]);
    return ok;
}

static bool build_thread(Conv *c, PerThread *t)
{
    bool ok = !dnnl_stream_create(&t->stream, c->engine, dnnl_stream_default_flags) &&
              !dnnl_memory_create(&t->user, &c->user, c->engine, DNNL_MEMORY_NONE) &&
              !dnnl_memory_create(&t->own, &c->weights, c->engine, DNNL_MEMORY_NONE);
    for (int i = 0; ok && i < 2 && c->prim[i]; i++)
        ok = !dnnl_memory_create(&t->src[i], &c->src[i], c->engine, DNNL_MEMORY_NONE) &&
             !dnnl_memory_create(&t->weights[i], &c->weights, c->engine, DNNL_MEMORY_NONE) &&
             !dnnl_memory_create(&t->bias[i], &c->bias, c->engine, DNNL_MEMORY_NONE) &&
             !dnnl_memory_create(&t->dst[i], &c->dst[i], c->engine, DNNL_MEMORY_NONE) &&
             !dnnl_memory_create(&t->pad[i], &c->pad[i], c->engine, DNNL_MEMORY_NONE);
    return ok;
}

/* ---- running ------------------------------------------------------------------------------------ */

static void set(dnnl_memory_t m, const void *p)
{
    dnnl_memory_set_data_handle(m, (void *)(uintptr_t)p);
}

static void move_weights(const Conv *c, PerThread *t, void *user, void *own)
{
    bool out = c->shape.what == WF_CONV_WEIGHT;
    set(t->user, user);
    set(t->own, own);
    dnnl_exec_arg_t args[] = {{DNNL_ARG_FROM, out ? t->own : t->user}, {DNNL_ARG_TO, out ? t->user : t->own}};
    dnnl_primitive_execute(c->reorder, t->stream, 2, args);
}

static void convolve(const Conv *c, int64_t tile, void *const *operand, char *workspace, char *scratch,
                     PerThread *t)
{
    const Shape *s = &c->shape;
    int i = tile + 1 == s->tiles && c->prim[1] ? 1 : 0;
    int64_t x_size = s->c, y_size = s->o;
    for (int j = 0; j < s->spatial; j++)
        x_size *= s->in[j], y_size *= s->out[j];
    set(t->src[i], (float *)operand[s->src] + tile * s->per * x_size);
    set(t->dst[i], (float *)operand[s->dst] + tile * s->per * y_size);
    set(t->pad[i], (void *)(((uintptr_t)scratch + 63) & ~(uintptr_t)63));
    char *range = workspace + (size_t)tile * c->range_bytes;
    set(t->weights[i], s->what == WF_CONV_WEIGHT ? range : c->same_layout ? operand[s->weights] : workspace);
    if (s->has_bias)
        set(t->bias[i], s->what == WF_CONV_WEIGHT ? (void *)(range + c->bias_at) : operand[s->bias]);
    dnnl_exec_arg_t args[] = {
        {s->what == WF_CONV_DATA ? DNNL_ARG_DIFF_SRC : DNNL_ARG_SRC, t->src[i]},
        {s->what == WF_CONV_FWD ? DNNL_ARG_DST : DNNL_ARG_DIFF_DST, t->dst[i]},
        {s->what == WF_CONV_WEIGHT ? DNNL_ARG_DIFF_WEIGHTS : DNNL_ARG_WEIGHTS, t->weights[i]},
        {DNNL_ARG_SCRATCHPAD, t->pad[i]},
        {s->what == WF_CONV_WEIGHT ? DNNL_ARG_DIFF_BIAS : DNNL_ARG_BIAS, t->bias[i]},
    };
    dnnl_primitive_execute(c->prim[i], t->stream, s->has_bias ? 5 : 4, args);
}

/* Adds one slice of the ranges' results into the first: (0+1)+(2+3). */
static void combine(const Conv *c, int64_t tile, char *workspace)
{
    size_t all = c->range_bytes / 64, first = all * (size_t)tile / COMBINE_TILES * 16;
    size_t last = all * (size_t)(tile + 1) / COMBINE_TILES * 16;
    wf_conv_add_ranges(c->shape.tiles, (int64_t)(c->range_bytes / sizeof(float)), (int64_t)(last - first), (float *)workspace + first);
}

static void run(const WfLib *lib, int phase, int64_t tile, void *const *operand, void *workspace,
                void *scratch, int thread)
{
    const Conv *c = lib->self;
    const Shape *s = &c->shape;
    PerThread *t = &c->at[thread];
    if (s->what != WF_CONV_WEIGHT) {
        if (phase == 0 && !c->same_layout)
            move_weights(c, t, operand[s->weights], workspace);
        else
            convolve(c, tile, operand, workspace, scratch, t);
        return;
    }
    if (phase == 0) {
        convolve(c, tile, operand, workspace, scratch, t);
    } else if (phase == 1 && s->tiles > 1) {
        combine(c, tile, workspace);
    } else {
        move_weights(c, t, operand[s->weights], workspace);
        if (s->has_bias)
            memcpy(operand[s->bias], (char *)workspace + c->bias_at, (size_t)s->o * sizeof(float));
    }
}

/* Of an empty batch the gradients of the weights are zeros, and there is nothing else to compute. */
typedef struct {
    Shape shape;
    size_t weights_bytes, bias_bytes;
} Empty;

static void run_empty(const WfLib *lib, int phase, int64_t tile, void *const *operand, void *workspace, void *scratch, int thread)
{
    const Empty *e = lib->self;
    const Shape *s = &e->shape;
    (void)phase, (void)tile, (void)workspace, (void)scratch, (void)thread;
    if (s->what != WF_CONV_WEIGHT)
        return;
    memset(operand[s->weights], 0, e->weights_bytes);
    if (s->has_bias)
        memset(operand[s->bias], 0, e->bias_bytes);
}

static void create_empty(WfArena *arena, const WfLibDesc *d, const Shape *s, WfLib *lib)
{
    Empty *e = WF_NEW(arena, Empty);
    const WfOperand *w = &d->operand[s->weights];
    e->shape = *s;
    e->weights_bytes = e->bias_bytes = wf_dtype_size(w->dtype);
    for (int i = 0; i < w->rank; i++)
        e->weights_bytes *= (size_t)w->shape[i];
    e->bias_bytes *= (size_t)s->o;
    lib->self = e;
    lib->run = run_empty;
    lib->tiles[lib->n_phases++] = 1;
}

static void create(WfCtx *ctx, WfArena *arena, const WfLibDesc *d, int threads, WfLib *lib)
{
    Shape s;
    read_shape(d, &s);
    if (!s.n) {
        create_empty(arena, d, &s, lib);
        return;
    }
    if (is_f64(d)) {
        wf_conv_f64_create(arena, &s, lib);
        return;
    }
    if (wf_depthwise_takes(&s)) {
        wf_depthwise_create(arena, d, &s, lib);
        return;
    }
    if (wf_convolve_takes(d, &s)) {
        wf_convolve_create(arena, d, &s, lib);
        return;
    }
    Conv *c = wf_sys_alloc(sizeof *c);
    if (!c)
        wf_fail(ctx, WF_E_MEMORY, "out of memory for a convolution");
    wf_arena_at_free(arena, release, c);
    c->threads = threads < 1 ? 1 : threads;
    c->at = wf_sys_alloc((size_t)c->threads * sizeof *c->at);
    if (!c->at)
        wf_fail(ctx, WF_E_MEMORY, "out of memory for a convolution");
    read_shape(d, &c->shape);
    bool ok = build(c);
    for (int i = 0; ok && i < c->threads; i++)
        ok = build_thread(c, &c->at[i]);
    if (!ok)
        wf_fail(ctx, WF_E_LIBRARY, "oneDNN could not make a %s", d->kind);
    c->weights_bytes = dnnl_memory_desc_get_size(&c->weights);
    c->bias_at = up64(c->weights_bytes);
    c->range_bytes = c->bias_at + up64((size_t)c->shape.o * 4);
    lib->self = c;
    lib->run = run;
    if (c->shape.what != WF_CONV_WEIGHT && !c->same_layout)
        lib->tiles[lib->n_phases++] = 1;
    lib->tiles[lib->n_phases++] = c->shape.tiles;
    if (c->shape.what == WF_CONV_WEIGHT && c->shape.tiles > 1)
        lib->tiles[lib->n_phases++] = COMBINE_TILES;
    if (c->shape.what == WF_CONV_WEIGHT)
        lib->tiles[lib->n_phases++] = 1;
}

const WfKind wf_kind_conv_fwd = {"conv_fwd", accepts, sizes, create};
const WfKind wf_kind_conv_bwd_data = {"conv_bwd_data", accepts, sizes, create};
const WfKind wf_kind_conv_bwd_weight = {"conv_bwd_weight", accepts, sizes, create};
