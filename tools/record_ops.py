#!/usr/bin/env python3
"""Records what PyTorch makes of operator calls: arguments, results, gradients, new values of mutated arguments.

    python tools/record_ops.py tests/opinfo_more

The format is that of tests/opinfo (its README.md). The calls below cover what those samples leave out: ops without a
sample, and modes. A row is (op, [sample, ...]); a sample is a function that returns (args, kwargs). Tensors that need a
gradient are floats made by f(); same script, same numbers.
"""
import json
import os
import sys

import torch
from safetensors.torch import save_file

gen = torch.Generator().manual_seed(7)


def f(*shape, dtype=torch.float32):
    return torch.randn(shape, generator=gen).to(dtype)


def p(*shape):  # in (0, 1)
    return torch.rand(shape, generator=gen) * 0.9 + 0.05


def i(high, *shape, low=0):
    return torch.randint(low, high, shape, generator=gen)


def b(*shape):
    return torch.rand(shape, generator=gen) > 0.4


def t(*values, dtype=None):
    return torch.tensor(values, dtype=dtype)


BF = torch.bfloat16


def rnn_params(sizes, gates, hidden, biases, both):
    out = []
    for width in sizes:
        for _ in range(2 if both else 1):
            out += [f(gates * hidden, width) * 0.4, f(gates * hidden, hidden) * 0.4]
            out += [f(gates * hidden) * 0.2, f(gates * hidden) * 0.2] if biases else []
    return out



def call(*args, **kwargs):
    """Arguments; functions are called when the sample is made."""
    def make(a):
        return [make(x) for x in a] if isinstance(a, list) else a() if callable(a) else a
    return lambda: ([make(a) for a in args], {k: make(v) for k, v in kwargs.items()})


def F(*s):
    return lambda: f(*s)


def I(high, *s):
    return lambda: i(high, *s)


def B(*s):
    return lambda: b(*s)


def Z(*s):  # every third element 0
    def made():
        v = f(*s)
        v.view(-1)[::3] = 0
        return v
    return made


def PAD(label):  # labels with an ignored one
    def made():
        y = label()
        y.view(-1)[1] = -100
        return y
    return made


def tied():  # values with many ties, as after relu
    return torch.relu(torch.round(f(2, 3, 6, 7)))


def spd(n, *batch):  # symmetric, positive definite
    def made():
        a = f(*batch, n, n)
        return a @ a.mT + n * torch.eye(n)
    return made


def logp(*s):
    return lambda: torch.log_softmax(f(*s), -1)


def projected(layers, both, first):  # an LSTM with projections of size 2
    d, total = 1 + both, layers * (1 + both)
    params = [F(*s) for k in range(total) for s in ((16, 3 if k < d else 2 * d), (16, 2), (16,), (16,), (2, 4))]
    x = F(2, 5, 3) if first else F(5, 2, 3)
    return call(x, [F(total, 2, 2), F(total, 2, 4)], params, True, layers, 0.0, False, both, first)


CALLS = [
    ("relu6.default", [call(lambda: f(3, 5) * 5)]),
    ("celu.default", [call(F(3, 5)), call(F(7), 0.7)]),
    ("gelu.default", [call(F(3, 5)), call(F(3, 5), approximate="tanh")]),
    ("softshrink.default", [call(F(20)), call(F(20), 0.2)]),
    ("hardtanh.default", [call(F(20), -0.4, 0.6)]),
    ("softplus.default", [call(lambda: f(20) * 30), call(F(20), 2, 3)]),
    ("elu.default", [call(lambda: f(20) * 60, 1.2, 0.9, 1.1)]),
    ("mish.default", [call(lambda: f(20) * 40)]),
    ("log_sigmoid.default", [call(lambda: f(20) * 40)]),
    ("_prelu_kernel.default", [call(F(3, 4), F(1, 4))]),
    ("rrelu.default", [call(F(20))]),
    ("relu.default", [call(lambda: t(-1.0, 0.0, float("nan"), float("inf"), 2.0))]),
    ("inner.default", [call(F(2, 3), F(4, 3)), call(F(3), F(4, 3)), call(F(2, 5, 3), F(3))]),
    ("ger.default", [call(F(3), F(4))]),
    ("addr.default", [call(F(3, 4), F(3), F(4), beta=0.5, alpha=2)]),
    ("tensordot.default", [call(F(2, 3, 4), F(4, 3, 5), [2, 1], [0, 1]), call(F(2, 3), F(4, 5), [], [])]),
    ("matmul.default", [call(F(3), F(2, 3, 4)), call(F(2, 4, 3), F(3)), call(F(5, 1, 4, 3), F(2, 3, 6)),
                        call(F(4, 3), F(2, 5, 3, 2)), call(F(2, 5, 4, 3), F(3, 2))]),
    ("linear.default", [call(F(2, 5, 3), F(4, 3), F(4)), call(F(3), F(4, 3), F(4)), call(F(2, 3), F(3))]),
    ("baddbmm.default", [call(F(4), F(2, 3, 5), F(2, 5, 4), beta=0, alpha=1.5)]),
    ("cdist.default", [call(F(2, 4, 3), F(2, 5, 3), 2.0), call(F(4, 3), F(5, 3), 1.0), call(F(4, 3), F(4, 3), 3.0)]),
    ("einsum.default", [
        call("...ij,...jk->...ik", [F(5, 1, 2, 3), F(4, 3, 2)]), call("bhqd,bhkd->bhqk", [F(2, 3, 4, 5), F(2, 3, 6, 5)]),
        call("ij,jk,kl->il", [F(2, 3), F(3, 4), F(4, 5)]), call("ij,ij", [F(2, 3), F(2, 3)]), call("ba", [F(2, 3)]),
        call("ii->i", [F(4, 4)]), call("ii", [F(4, 4)]), call("bij,bjk->ik", [F(3, 2, 4), F(3, 4, 5)]),
        call("b i, b i -> b", [F(3, 4), F(3, 4)]), call("ij,jk->ik", [F(1, 3), F(3, 1)]),
        call("nkctv,kvw->nctw", [F(2, 3, 2, 4, 5), F(3, 5, 5)]), call("i,i,i->i", [F(4), F(4), F(4)]),
        call("...,...->...", [F(2, 3), F(3)]), call("ij,kj->k", [F(2, 3), F(4, 3)])]),
    ("softmax.int", [call(I(9, 3, 4), -1, torch.float32), call(lambda: f(3, 4, dtype=BF), 0), call(F(3, 4), 1, torch.float64)]),
    ("log_softmax.int", [call(lambda: f(3, 4, dtype=BF), 1), call(F(), 0)]),
    ("_safe_softmax.default", [call(lambda: torch.where(t([True, False], [True, True]), f(2, 2), -torch.inf), -1),
                               call(lambda: t([-torch.inf, -torch.inf], [1.0, 2.0]), -1)]),
    ("cross_entropy_loss.default", [
        call(F(6, 5), PAD(I(5, 6))), call(F(6, 5), PAD(I(5, 6)), lambda: p(5)), call(F(5), lambda: t(3)[0]),
        call(F(6, 5), PAD(I(5, 6)), lambda: p(5), 1, -100, 0.2), call(F(6, 5), PAD(I(5, 6)), lambda: p(5), 0, -100, 0.2),
        call(F(6, 5), I(5, 6), None, 2, 2, 0.1), call(F(3, 5, 2, 4), PAD(I(5, 3, 2, 4)), lambda: p(5), 1, -100, 0.1),
        call(F(6, 5), lambda: p(6, 5), lambda: p(5), 1, -100, 0.3), call(F(3, 5, 4), lambda: p(3, 5, 4), None, 0),
        call(lambda: f(6, 5, dtype=BF), I(5, 6)), call(F(2, 5), lambda: t(-100, -100), None, 2)]),
    ("nll_loss2d.default", [call(F(2, 5, 3, 4), PAD(I(5, 2, 3, 4)), lambda: p(5))]),
    ("nll_loss2d_forward.default", [call(F(2, 5, 3, 4), PAD(I(5, 2, 3, 4)), lambda: p(5), 1, -100)]),
    ("nll_loss.default", [call(F(4, 5), I(5, 4), None, 2, 1)]),
    ("multi_margin_loss.default", [call(F(4, 5), I(5, 4), 2, 0.5, lambda: p(5), 0)]),
    ("multilabel_margin_loss.default", [call(F(2, 4), lambda: t([2, 0, -1, 1], [-1, 1, 2, 3]), 0)]),
    ("binary_cross_entropy_with_logits.default", [
        call(lambda: f(4, 3) * 30, lambda: p(4, 3)), call(F(4, 3), lambda: p(4, 3), lambda: p(4, 1), lambda: p(3), 2)]),
    ("binary_cross_entropy.default", [call(lambda: t(0.0, 1.0, 0.5, 1.0), lambda: t(0.0, 1.0, 0.25, 0.0), None, 0)]),
    ("l1_loss.default", [call(F(3, 4), F(3, 4), r) for r in (0, 1, 2)]),
    ("smooth_l1_loss.default", [call(F(3, 4), F(3, 4), 1, 0.0), call(F(3, 4), F(3, 4), 0, 0.3)]),
    ("margin_ranking_loss.default", [call(F(6), F(6), lambda: t(1.0, -1.0, 1.0, -1.0, 1.0, 1.0), 0.3, r) for r in (0, 1)]),
    ("poisson_nll_loss.default", [call(F(6), lambda: p(6) * 5, True, True, 1e-8, 1),
                                  call(lambda: p(6), lambda: p(6) * 5, False, False, 1e-8, 0)]),
    ("pairwise_distance.default", [call(F(4, 5), F(4, 5)), call(F(4, 5), F(5), 1.0, 1e-6, True)]),
    ("kl_div.default", [call(F(3, 4), F(3, 4), 2, log_target=True), call(F(3, 4), lambda: t(0.0, 0.2, 0.3, 0.5), 0)]),
    ("triplet_margin_loss.default", [call(F(4, 5), F(4, 5), F(4, 5), 1.0, 2.0, 1e-6, True, 0)]),
    ("linalg_vector_norm.default", [
        *[call(F(3, 4), o, [1]) for o in (0, 0.5, 1, 2, 3, 3.5, float("inf"), -float("inf"))],
        call(lambda: torch.zeros(3, 4), 2, [1]), call(F(3, 4), 2, None, True), call(F(3, 4), 2, [0], dtype=torch.float64)]),
    ("norm.Scalar", [call(F(3, 4)), call(F(3, 4), 1)]),
    ("renorm.default", [call(F(3, 4), 2, 0, 0.7)]),
    ("_weight_norm_interface.default", [call(F(4, 3, 2), lambda: p(4, 1, 1), 0)]),
    ("_weight_norm.default", [call(F(3, 4), lambda: p(1, 4), 1)]),
    ("_fused_rms_norm.default", [call(F(2, 3, 4), [4], F(4), 1e-5)]),
    ("rms_norm.default", [call(F(2, 3, 4), [3, 4], F(3, 4)), call(lambda: f(2, 4, dtype=BF), [4], None, 1e-6)]),
    ("layer_norm.default", [call(F(2, 3, 4), [3, 4], F(3, 4), F(3, 4)), call(lambda: f(3, 8, dtype=BF), [8]),
                            call(F(2, 3), [3], None, F(3))]),
    ("group_norm.default", [call(F(2, 6, 4, 3), 3, F(6), F(6)), call(F(2, 6), 2, F(6), None)]),
    ("batch_norm.default", [
        call(F(3, 4, 5), F(4), F(4), F(4), lambda: p(4), True, 0.3, 1e-5, True),
        call(F(3, 4, 5), F(4), F(4), F(4), lambda: p(4), False, 0.3, 1e-5, True),
        call(F(6, 4), None, None, F(4), lambda: p(4), True, 0.1, 1e-3, True),
        call(F(2, 4, 2, 2, 3), F(4), F(4), None, None, True, 0.1, 1e-5, True)]),
    ("_native_batch_norm_legit.default", [call(F(3, 4, 5), F(4), F(4), F(4), lambda: p(4), True, 0.3, 1e-5)]),
    ("_native_batch_norm_legit_no_training.default", [call(F(3, 4, 5), F(4), F(4), F(4), lambda: p(4), 0.3, 1e-5)]),
    ("native_batch_norm.default", [call(F(3, 4, 5), F(4), F(4), F(4), lambda: p(4), True, 0.3, 1e-5)]),
    ("instance_norm.default", [
        call(F(3, 4, 5), F(4), F(4), F(4), lambda: p(4), True, 0.3, 1e-5, True),
        call(F(3, 4, 5), F(4), F(4), F(4), lambda: p(4), False, 0.3, 1e-5, True)]),
    ("conv1d.default", [call(F(4, 9), F(6, 2, 3), F(6), [2], [1], [2], 2)]),
    ("conv2d.default", [call(F(2, 4, 7, 6), F(8, 1, 3, 2), F(8), [2, 1], [1, 2], [1, 2], 4), call(F(3, 5, 5), F(2, 3, 1, 1))]),
    ("conv1d.padding", [call(F(2, 3, 8), F(4, 3, 4), None, [1], "same", [2])]),
    ("conv3d.padding", [call(F(1, 2, 4, 4, 4), F(2, 2, 2, 3, 2), None, [1, 1, 1], "same"),
                        call(F(1, 2, 4, 4, 4), F(2, 2, 2, 3, 2), F(2), [1, 1, 1], "valid")]),
    ("conv_transpose2d.input", [
        call(F(2, 4, 5, 6), F(4, 3, 3, 2), F(6), [2, 3], [1, 0], [1, 2], 2, [1, 2]), call(F(4, 3, 3), F(4, 2, 2, 2))]),
    ("conv_transpose1d.default", [call(F(2, 3, 5), F(3, 2, 3), None, [2], [2], [2], 1, [3])]),
    ("max_pool2d.default", [call(tied, [3, 2], [2, 2], [1, 1]), call(tied, [2, 2], [], [0, 0], [2, 1]),
                            call(tied, [3, 3], [2, 2], [1, 1], [1, 1], True), call(F(3, 7, 7), [3], [3], [0], [1], True)]),
    ("max_pool2d_with_indices.default", [call(tied, [3, 2], [2, 2], [1, 1], [1, 2], True)]),
    ("max_pool1d.default", [call(lambda: tied()[0], [3], [2], [1])]),
    ("avg_pool2d.default", [call(F(2, 3, 6, 7), [3, 2], [2, 2], [1, 1], True, False), call(F(2, 3, 6, 7), [3, 3], [2, 2], [1, 1], True, True),
                            call(F(3, 6, 7), [2, 2], [], 0, False, True, 3)]),
    ("adaptive_avg_pool2d.default", [call(F(2, 3, 7, 5), [3, 2]), call(F(3, 8, 6), [4, 3]), call(F(2, 3, 7, 5), [1, 1])]),
    ("adaptive_max_pool1d.default", [call(lambda: tied()[0], [3]), call(F(2, 3, 8), [4])]),
    ("adaptive_max_pool3d.default", [call(F(2, 4, 5, 6), [2, 2, 3])]),
    ("upsample_nearest2d.default", [call(F(2, 3, 4, 5), [8, 15]), call(F(2, 3, 4, 5), [3, 7])]),
    ("upsample_nearest2d.vec", [call(F(2, 3, 4, 5), None, [2.0, 3.0]), call(F(2, 3, 4, 5), None, [0.5, 1.5])]),
    ("_upsample_nearest_exact2d.vec", [call(F(2, 3, 4, 5), [6, 7], None)]),
    ("upsample_bilinear2d.default", [call(F(2, 3, 4, 5), [7, 3], False), call(F(2, 3, 4, 5), [8, 10], True)]),
    ("upsample_bilinear2d.vec", [call(F(2, 3, 4, 5), None, False, [2.0, 2.0])]),
    ("_upsample_bilinear2d_aa.default", [call(F(2, 3, 9, 8), [4, 3], False), call(F(2, 3, 4, 5), [8, 9], True)]),
    ("grid_sampler_2d.default", [call(F(2, 3, 5, 4), lambda: f(2, 3, 6, 2) * 0.8, m, q, a)
                                 for m, q, a in ((0, 0, False), (0, 1, True), (0, 2, False), (0, 2, True), (1, 0, False), (1, 1, True))]),
    ("grid_sampler_3d.default", [call(F(2, 2, 3, 4, 3), lambda: f(2, 2, 3, 2, 3) * 0.8, 0, 0, False)]),
    ("affine_grid_generator.default", [call(F(2, 2, 3), [2, 3, 4, 5], True), call(F(2, 3, 4), [2, 3, 4, 5, 2], False)]),
    ("embedding.default", [call(F(7, 4), I(7, 3, 5)), call(F(7, 4), I(7, 9), 2), call(F(7, 1), I(7, 9)), call(F(7, 4), lambda: i(7, 3).int())]),
    ("embedding_bag.padding_idx", [
        call(F(9, 4), I(9, 8), lambda: t(0, 3, 3, 8), False, m, False, None, True, -1) for m in (0, 1, 2)]),
    ("one_hot.default", [call(I(4, 3, 2), 5)]),
    ("scaled_dot_product_attention.default", [
        call(F(2, 4, 5, 3), F(2, 2, 6, 3), F(2, 2, 6, 3), enable_gqa=True),
        call(F(2, 2, 5, 4), F(2, 2, 6, 4), F(2, 2, 6, 4), lambda: torch.cat([torch.zeros(1, 6, dtype=torch.bool), b(4, 6)])),
        call(F(2, 2, 5, 4), F(2, 2, 6, 4), F(2, 2, 6, 3), F(2, 1, 5, 6), scale=0.3),
        call(F(2, 2, 5, 4), F(2, 2, 7, 4), F(2, 2, 7, 4), None, 0.0, True),
        call(F(3, 5, 4), F(3, 6, 4), F(3, 6, 4), lambda: b(3, 5, 6)), call(F(5, 4), F(6, 4), F(6, 4)),
        call(F(2, 3, 2, 5, 4), F(2, 3, 2, 6, 4), F(2, 3, 2, 6, 4), F(2, 3, 2, 5, 6)),
        call(lambda: f(1, 2, 5, 4).double(), lambda: f(1, 2, 5, 4).double(), lambda: f(1, 2, 5, 4).double(), None, 0.0, True),
        call(F(1, 2, 5, 4), F(2, 2, 6, 4), F(2, 1, 6, 4))]),
    ("lstm.input", [
        call(F(5, 2, 3), [F(4, 2, 4), F(4, 2, 4)], lambda: rnn_params([3, 8], 4, 4, True, True), True, 2, 0.0, True, True, False),
        call(F(2, 5, 3), [F(1, 2, 4), F(1, 2, 4)], lambda: rnn_params([3], 4, 4, False, False), False, 1, 0.0, False, False, True)]),
    ("gru.input", [
        call(F(5, 2, 3), F(4, 2, 4), lambda: rnn_params([3, 8], 3, 4, True, True), True, 2, 0.0, True, True, False),
        call(F(2, 5, 3), F(1, 2, 4), lambda: rnn_params([3], 3, 4, False, False), False, 1, 0.0, False, False, True)]),
    ("rnn_relu.input", [call(F(5, 2, 3), F(4, 2, 4), lambda: rnn_params([3, 8], 1, 4, True, True), True, 2, 0.0, True, True, False)]),
    ("rnn_tanh_cell.default", [call(F(2, 3), F(2, 4), F(4, 3), F(4, 4), F(4), F(4)), call(F(2, 3), F(2, 4), F(4, 3), F(4, 4))]),
    ("rnn_relu_cell.default", [call(F(2, 3), F(2, 4), F(4, 3), F(4, 4), F(4), F(4))]),
    ("gru_cell.default", [call(F(2, 3), F(2, 4), F(12, 3), F(12, 4))]),
    ("histc.default", [
        call(lambda: f(40), 7, -1, 1.5), call(lambda: f(3, 9), 5), call(lambda: i(6, 30).float(), 6, 0, 5),
        call(lambda: torch.zeros(4), 3)]),
    ("cumsum.default", [call(I(9, 3, 4), 1, dtype=torch.int32), call(lambda: f(5, dtype=BF), 0), call(I(9, 6), -1, dtype=torch.float64)]),
    ("fake_quantize_per_tensor_affine.tensor_qparams", [
        call(lambda: f(4, 5) * 9, lambda: t(0.07), lambda: t(3, dtype=torch.int32), -128, 127)]),
    ("_fake_quantize_per_tensor_affine_cachemask_tensor_qparams.default", [
        call(lambda: f(4, 5) * 9, lambda: t(0.07), lambda: t(3, dtype=torch.int32), lambda: t(e), 0, 255)
        for e in (1, 0)]),
    ("cummax.default", [call(lambda: i(3, 2, 9).float(), 1), call(lambda: t(1.0, float("nan"), 3.0, 2.0), 0)]),
    ("cummin.default", [call(I(3, 2, 9), -1)]),
    ("diff.default", [call(F(3, 5), 2, 1, F(3, 1), F(3, 2)), call(B(4, 3), 1, 0), call(F(1), 2)]),
    ("linalg_solve_triangular.default", [
        call(lambda: f(2, 4, 4) + 3 * torch.eye(4), F(4, 3), upper=u, left=True, unitriangular=n)
        for u in (False, True) for n in (False, True)] + [
        call(lambda: f(4, 4) + 3 * torch.eye(4), F(2, 3, 4), upper=u, left=False) for u in (False, True)]),
    ("feature_dropout.default", [call(F(2, 3, 4), 0.5, False)]),
    ("native_dropout.default", [call(F(2, 3), 0.0, True)]),
    ("grid_sampler.default", [call(F(2, 3, 5, 4), lambda: f(2, 3, 6, 2) * 0.8, 2, q, a) for q in (0, 1, 2) for a in (False, True)]),
    ("scatter_reduce.two", [call(Z(4, 5), 1, I(5, 4, 3), Z(4, 3), "prod", include_self=s) for s in (True, False)] +
     [call(F(6, 3), 0, I(2, 9, 3), Z(9, 3), "prod", include_self=s) for s in (True, False)]),
    ("median.dim", [call(F(3, 5), 1), call(F(3, 4, 2), -2, True), call(lambda: t(1.0, float("nan"), 0.5), 0)]),
    ("kthvalue.default", [call(F(3, 5), 2), call(F(4, 6), 3, 0, True), call(lambda: i(99, 7), 4)]),
    ("quantile.scalar", [call(F(3, 5), 0.3, 1), call(F(3, 4), 0.7, None, True), call(F(9), 0.5, 0, True),
                         *(call(F(2, 6), 0.45, -1, interpolation=how)
                           for how in ("lower", "higher", "nearest", "midpoint"))]),
    ("chain_matmul.default", [call([F(2, 3), F(3, 4), F(4, 2)]), call([F(2, 3), F(3, 1)])]),
    ("linalg_multi_dot.default", [call([F(3), F(3, 4), F(4, 2), F(2)]), call([F(2, 3), F(3, 4), F(4, 5)])]),
    ("linalg_matrix_power.default", [call(F(3, 3), 5), call(F(2, 3, 3), 2), call(F(2, 2), 0), call(F(2, 2), 1)]),
    ("bilinear.default", [call(F(5, 3), F(5, 4), F(2, 3, 4), F(2)), call(F(2, 3, 3), F(2, 3, 3), F(4, 3, 3))]),
    ("asinh.default", [call(lambda: f(20) * 3), call(lambda: t(0.0, -1e-4, 1e-4, 1e20, -1e10))]),
    ("acosh.default", [call(lambda: p(20) * 5 + 1), call(lambda: t(1.0001, 1e4))]),
    ("atanh.default", [call(lambda: p(20) * 2 - 1), call(lambda: t(0.0, -1e-4, 0.999, -0.999))]),
    ("sinc.default", [call(lambda: f(20) * 3), call(lambda: t(0.0, -1.5, 0.1))]),
    ("deg2rad.default", [call(lambda: f(5) * 90)]),
    ("rad2deg.default", [call(F(5))]),
    ("hypot.default", [call(F(4, 5), F(5)), call(lambda: t(3e30, 3e-30, 1.0), lambda: t(4e30, 4e-30, 0.0))]),
    ("xlogy.Tensor", [call(F(4, 5), lambda: p(5)), call(lambda: t(0.0, 0.0, 2.0), lambda: t(0.0, 3.0, 1.0))]),
    ("special_erfinv.default", [call(lambda: p(9) * 2 - 1)]),
    ("lgamma.default", [call(lambda: p(20) * 5), call(lambda: t(0.5, 1.0, 2.0, 30.0, 1e4, -0.3, -2.6, -7.5))]),
    ("digamma.default", [call(lambda: p(20) * 5 + 0.2), call(lambda: t(1.0, 20.0, 1e4, -0.4, -2.6))]),
    ("polygamma.default", [call(1, lambda: p(9) * 9 + 1), call(0, lambda: p(9) + 1), call(1, lambda: t(-0.4, -2.6))]),
    ("mvlgamma.default", [call(lambda: p(5) + 2, 3)]),
    ("special_ndtr.default", [call(F(9))]),
    ("special_entr.default", [call(lambda: t(0.3, 1.0, 2.5, 0.01))]),
    ("special_xlog1py.default", [call(F(4, 5), lambda: p(5)), call(lambda: t(0.0, 2.0), lambda: t(-1.0, 3.0))]),
    ("copysign.Tensor", [call(F(4, 5), F(5)), call(lambda: t(1.0, -2.0, 0.0, 3.0), lambda: t(0.0, -0.0, -1.0, 2.0))]),
    ("copysign.Scalar", [call(F(7), -2.0)]),
    ("heaviside.default", [call(lambda: t(-1.0, 0.0, 2.0), lambda: t(5.0, 6.0, 7.0)), call(lambda: i(3, 6, low=-1), lambda: t(4))]),
    ("fmax.default", [call(lambda: t(1.0, 2.0, float("nan"), 3.0), lambda: t(1.0, 5.0, 4.0, float("nan"))), call(tied, tied)]),
    ("fmin.default", [call(lambda: t(1.0, 2.0, float("nan"), 3.0), lambda: t(1.0, 5.0, 4.0, float("nan")))]),
    ("logaddexp2.default", [call(F(4, 5), F(5)), call(lambda: t(1e5, -1e5), lambda: t(1e5, -3.0))]),
    ("ldexp.Tensor", [call(F(4, 5), lambda: i(5, 5, low=-4)), call(F(5), F(5))]),
    ("float_power.Tensor_Scalar", [call(lambda: p(5), 2.5), call(lambda: i(9, 5), 2)]),
    ("float_power.Tensor_Tensor", [call(lambda: p(5), F(5))]),
    ("signbit.default", [call(lambda: t(-1.0, 0.0, -0.0, 2.0, float("-inf"))), call(lambda: i(3, 5, low=-3))]),
    ("isclose.default", [call(lambda: t(1.0, 2.0, float("inf"), float("nan")), lambda: t(1.000001, 2.1, float("inf"), float("nan")))]),
    ("logit.default", [call(lambda: p(7), 0.6), call(lambda: p(7), 0.2)]),  # bounds that cross
    ("greater.Scalar", [call(F(5), 0.2)]),
    ("not_equal.Tensor", [call(lambda: i(3, 9), lambda: i(3, 9))]),
    ("arctanh.default", [call(lambda: p(9) - 0.5)]),
    ("divide.Tensor_mode", [call(F(5), F(5), rounding_mode="floor"), call(F(5), F(5), rounding_mode=None)]),
    ("true_divide.Scalar", [call(lambda: i(9, 5), 2)]),
    ("linalg_inv.default", [call(F(3, 3)), call(F(2, 3, 4, 4)), call(F(0, 2, 2))]),
    ("linalg_inv_ex.default", [call(F(3, 3))]),
    ("linalg_det.default", [call(F(3, 3)), call(F(2, 4, 4)), call(F(1, 1))]),
    ("linalg_slogdet.default", [call(F(3, 3)), call(F(2, 4, 4))]),
    ("logdet.default", [call(lambda: torch.eye(4) + 0.1 * f(2, 4, 4))]),
    ("linalg_solve.default", [call(F(3, 3), F(3, 2)), call(F(2, 3, 3), F(2, 3)), call(F(3, 3), F(2, 2, 3), left=False),
                              call(F(2, 1, 3, 3), F(4, 3, 2)), call(F(3, 3), F(3))]),
    ("linalg_cholesky.default", [call(spd(4)), call(spd(3, 2), upper=True)]),
    ("cholesky_solve.default", [call(F(3, 2), lambda: torch.linalg.cholesky(spd(3)())),
                                call(F(3, 2), lambda: torch.linalg.cholesky(spd(3)()).mT.contiguous(), True)]),
    ("cholesky_inverse.default", [call(lambda: torch.linalg.cholesky(spd(3)()))]),
    ("linalg_qr.default", [call(F(3, 3)), call(F(2, 5, 3)), call(F(4, 1))]),
    ("linalg_eigvalsh.default", [call(spd(4)), call(F(2, 3, 3)), call(F(3, 3), "U")]),
    ("linalg_matrix_exp.default", [call(F(3, 3)), call(F(2, 4, 4)), call(F(1, 1))]),
    ("matrix_power.default", [call(F(3, 3), 3), call(F(2, 3, 3), -2)]),
    ("ctc_loss.Tensor", [
        call(logp(6, 3, 5), lambda: i(5, 3, 4, low=1), lambda: t(6, 5, 6), lambda: t(4, 2, 1)),
        call(logp(5, 4), lambda: t(1, 1, 2), lambda: t(5), lambda: t(3), 0, 0),  # one sample, a label twice
        call(logp(4, 2, 3), lambda: t(2, 2, 2, 1), lambda: t(3, 4), lambda: t(3, 1), 0, 2, True)]),  # the first cannot fit
    ("ctc_loss.IntList", [call(logp(6, 2, 4), lambda: i(3, 5), [6, 4], [3, 2], 3), call(logp(3, 1, 4), lambda: i(3, 1, 2), [3], [0], 3, 0)]),
    ("linspace.default", [call(2.0, 5.0, 1), call(3, 8, 4)]),
    ("linspace.Tensor_Scalar", [call(lambda: t(0.5).reshape(()), 4, 6)]),
    ("logspace.default", [call(0.0, 2.0, 5), call(-1, 3, 1), call(1.0, 4.0, 4, 2.0)]),
    ("diff.default", [call(F(3, 4), 0, 1, F(3, 1)), call(F(3, 4), 2, -1, F(3, 1), F(3, 2))]),
    ("tensordot.default", [call(F(2, 3, 4), F(3, 1, 5), [1, 2], [0, 1]), call(F(1, 4), F(4, 3), [0, 1], [1, 0])]),
    ("scaled_dot_product_attention.default", [call(F(4, 3, 8), F(2, 4, 6, 8), F(2, 4, 6, 5)), call(F(2, 2, 3, 8), F(5, 8), F(5, 8))]),
    ("trapezoid.x", [call(F(3, 4), F(4)), call(F(3, 4, 2), F(3, 4, 2), dim=1), call(F(4, 3), F(4), dim=0)]),
    ("trapezoid.dx", [call(F(3, 4)), call(F(3, 4), dx=0.5, dim=0)]),
    ("cumulative_trapezoid.x", [call(F(3, 4), F(4))]),
    ("cov.default", [call(F(3, 5)), call(F(5), correction=0), call(F(1, 5))]),
    ("corrcoef.default", [call(F(3, 5))]),
    ("cross.default", [call(F(2, 3), F(2, 3)), call(F(3, 4), F(3, 1))]),
    ("linalg_cross.default", [call(F(3, 4, 3), F(1, 4, 3)), call(F(3, 3), F(3, 3), dim=0)]),
    ("linalg_vecdot.default", [call(F(2, 3), F(3)), call(F(2, 3), F(2, 3), dim=0)]),
    ("dist.default", [call(F(2, 3), F(3)), call(F(4), F(4), 1), call(F(4), F(4), float("inf"))]),
    ("linalg_norm.default", [call(F(3, 4)), call(F(3, 4), 1), call(F(3, 4), float("-inf")), call(F(2, 3, 4), float("inf"), [0, 2], True),
                             call(F(2, 3), 3, [1])]),
    ("linalg_matrix_norm.str_ord", [call(F(2, 3, 4))]),
    ("cartesian_prod.default", [call([F(2), F(3)]), call([F(2), F(3), F(2)]), call([F(4)])]),
    ("diagflat.default", [call(F(2, 2)), call(F(3), -1)]),
    ("sum_to_size.default", [call(F(2, 3, 4), [3, 1]), call(F(2, 3), [2, 3])]),
    ("isin.Tensor_Tensor", [call(lambda: i(9, 3, 4), lambda: i(9, 3)), call(lambda: i(9, 5), lambda: i(9, 2, 2), invert=True)]),
    ("bucketize.Tensor", [call(F(3, 4), lambda: t(-1.0, 0.0, 1.0)), call(lambda: t(1, 2, 3), lambda: t(1, 3), right=True, out_int32=True)]),
    ("searchsorted.Tensor", [call(lambda: torch.sort(f(2, 5)).values, F(2, 3)), call(lambda: t(1, 3, 3, 7), lambda: i(9, 2, 3), side="right")]),
    ("count_nonzero.default", [call(lambda: i(3, 4, 5)), call(lambda: i(3, 4, 5), 1)]),
    ("mode.default", [call(lambda: i(3, 4, 7)), call(tied, 1, True), call(lambda: torch.round(f(6)))]),
    ("nanmedian.dim", [call(lambda: torch.where(p(3, 6) < 0.4, float("nan"), f(3, 6)), 1), call(F(5, 3), 0, True)]),
    ("msort.default", [call(F(4, 3))]),
    ("quantile.scalar", [call(lambda: t(2.0).reshape(()), 0.3, 0)]),
    ("index_put.default", [
        call(F(3, 4), [lambda: b(3, 4)], lambda: t(2.0)), call(F(3, 4), [lambda: b(3)], F(4)), call(F(3, 4), [None, lambda: b(4)], lambda: t(1.5)),
        call(F(2, 3, 4), [None, lambda: b(3, 4)], F(2, 1)), call(F(3, 4), [lambda: b(3)], F(1, 4), True)]),
    ("index_fill.int_Tensor", [call(F(3, 4), 1, lambda: t(0, 3), lambda: t(2.0).reshape(()))]),
    ("index_reduce.default", [call(F(3, 4), 0, lambda: t(0, 2, 0), F(3, 4), how, include_self=s)
                              for how in ("prod", "mean", "amax", "amin") for s in (True, False)]),
    ("put.default", [call(F(3, 4), lambda: t(1, -2, 5), F(3)), call(F(3, 4), lambda: t(1, 1, 5), F(3), True)]),
    ("scatter.reduce", [call(lambda: i(9, 3, 4), 0, lambda: t([0, 1], [2, 1]), lambda: i(9, 2, 2), reduce=how) for how in ("add", "multiply")]),
    ("repeat_interleave.self_Tensor", [call(F(3, 4), lambda: t(2, 0, 3), 0, output_size=5), call(F(2, 2), lambda: t(1, 2, 1, 3), output_size=7),
                                       call(F(2, 3), lambda: t(2), 1, output_size=6)]),
    ("repeat_interleave.Tensor", [call(lambda: t(2, 0, 3), output_size=5)]),
    ("max_unpool2d.default", [call(F(2, 3, 2, 2), lambda: i(4, 2, 3, 2, 2) * 4 + torch.arange(4).view(2, 2), [4, 4])]),
    ("max_unpool3d.default", [call(F(3, 2, 2, 2), lambda: i(8, 3, 2, 2, 2) * 8 + torch.arange(8).view(2, 2, 2), [4, 4, 4], [2, 2, 2], [0, 0, 0])]),
    ("as_strided.default", [call(F(12), [3, 4], [3, 1]), call(F(12), [3, 2, 3], [2, 4, 1]), call(F(4, 3), [3, 4], [1, 3], 0), call(F(12), [2, 2], [0, 5], 3)]),
    ("embedding.default", [call(F(5, 3), lambda: t([0, 2, 2], [4, 2, 0]), -1, True), call(F(5, 3), lambda: t(1, 1, 3), 3, True)]),
    ("embedding_bag.default", [call(F(5, 3), lambda: t(0, 2, 2, 4, 2), lambda: t(0, 3), True, mode) for mode in (0, 1)]),
    ("lstm.input", [projected(*a) for a in ((1, False, False), (2, True, True), (1, True, False))]),
    ("_upsample_nearest_exact3d.vec", [call(F(1, 2, 3, 3, 3), [4, 5, 2], None)]),
    ("stack.default", [call([F(0, 1, 0), F(0, 1, 0)], 1)]),
    ("tile.default", [call(F(0, 3), [2, 2])]),
]


class Recorder:
    def __init__(self):
        self.tensors = {}

    def keep(self, key, value):
        self.tensors[key] = value.detach().clone().contiguous()
        return key

    def describe(self, a, key, leaves):
        if isinstance(a, torch.Tensor):
            k = f"{key}.in{len(leaves)}"
            self.keep(k, a)
            a = a.clone()
            if a.is_floating_point():
                a.requires_grad_()
            leaves.append((k, a))
            return {"tensor": k, "dtype": str(a.dtype)[6:], "shape": list(a.shape)}, a
        if isinstance(a, (list, tuple)):
            both = [self.describe(x, key, leaves) for x in a]
            return {"list": [d for d, _ in both]}, [v for _, v in both]
        if a is None:
            return {"none": True}, a
        if isinstance(a, torch.dtype):
            return {"dtype": str(a)[6:]}, a
        for kind, name in ((bool, "bool"), (int, "int"), (float, "float"), (str, "str")):
            if isinstance(a, kind):
                return {name: a if a == a and abs(a) != float("inf") else str(a)} if name == "float" else {name: a}, a
        raise TypeError(type(a))

    def sample(self, op, make, number):
        key, leaves = f"s{number}", []
        args, kwargs = make()
        said = [self.describe(a, key, leaves) for a in args]
        named = {k: self.describe(v, key, leaves) for k, v in kwargs.items()}
        schema = op._schema
        ran, mutated = [v for _, v in said], {}
        before = {k: v.detach().clone() for k, v in leaves}

        def constant(n):  # what PyTorch gives no gradient
            arg = schema.arguments[n]
            return arg.alias_info or "running" in arg.name or arg.name in ("scale", "fake_quant_enabled") or (
                "heaviside" in schema.name or "linspace" in schema.name) or (
                arg.name in ("weight", "pos_weight") and ("loss" in schema.name or "entropy" in schema.name))

        plain = [v.detach() if isinstance(v, torch.Tensor) and constant(n) else v for n, v in enumerate(ran)]
        results = op(*plain, **{k: v for k, (_, v) in named.items()})
        results = [results] if isinstance(results, torch.Tensor) else list(results)
        for n, v in enumerate(plain):
            if isinstance(v, torch.Tensor) and n < len(said) and not torch.equal(
                    torch.nan_to_num(v.detach()), torch.nan_to_num(before[said[n][0]["tensor"]])):
                k = said[n][0]["tensor"]
                mutated[k] = self.keep(k.replace("in", "after"), v)
        outputs, seeds, roots = [], [], []
        for n, r in enumerate(results):
            entry = {"tensor": self.keep(f"{key}.out{n}", r), "dtype": str(r.dtype)[6:], "shape": list(r.shape)}
            if r.requires_grad:
                seed = torch.randn(r.shape, generator=gen).to(r.dtype)
                entry["cotangent"] = self.keep(f"{key}.ct{n}", seed)
                roots.append(r)
                seeds.append(seed)
            outputs.append(entry)
        wanted = [(k, v) for k, v in leaves if v.requires_grad]
        grads = {}
        if roots:
            d = torch.autograd.grad(roots, [v for _, v in wanted], seeds, allow_unused=True)
            for (k, _), v in zip(wanted, d):
                grads[k] = None if v is None or not torch.isfinite(v).all() else self.keep(k.replace("in", "grad"), v)
        return {"source": "tools/record_ops.py", "args": [d for d, _ in said],
                "kwargs": {k: d for k, (d, _) in named.items()}, "outputs": outputs, "grads": grads, "mutated": mutated}


def main(folder):
    os.makedirs(folder, exist_ok=True)
    index = {}
    made = {}
    for name, samples in CALLS:  # in this order: all draw from one generator
        packet, overload = name.split(".")
        op = getattr(getattr(torch.ops.aten, packet), overload)
        rec, said = made.setdefault(name, (Recorder(), []))
        for make in samples:
            said.append(rec.sample(op, make, len(said)))
    for name, (rec, said) in made.items():
        packet, overload = name.split(".")
        op = getattr(getattr(torch.ops.aten, packet), overload)
        full = f"aten.{name}"
        doc = {"op": full, "schema": str(op._schema), "torch_version": torch.__version__, "samples": said}
        with open(os.path.join(folder, full + ".json"), "w") as out:
            json.dump(doc, out)
        save_file(rec.tensors, os.path.join(folder, full + ".safetensors"))
        index[full] = len(said)
    with open(os.path.join(folder, "index.json"), "w") as out:
        json.dump({"torch_version": torch.__version__, "ops": index}, out, indent=1)


if __name__ == "__main__":
    main(sys.argv[1])
