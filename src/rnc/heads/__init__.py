"""Heads: how features become predictions, and the loss that teaches them.

    outputs = head(features)                (n, d) -> (n, .), the outputs of all targets in a row
    losses = head.loss(outputs, targets)    (n, t) -> (n,), of which the caller takes a mean
    predictions = head.decode(outputs)      -> (n, t), in the units of the targets

A head never sees units. It works on u = (y - shift) / scale of each target y:

- l1, mse and huber standardise: shift and scale are the mean and the standard deviation of the
  training targets. With shift 0 and scale 1 they are the plain losses. SGD trains l1 and huber with
  a twentieth of that scale (rnc.training.units), so that beta = 1 is about a year of ages.
- The others count in bins: shift is the lowest class centre and scale the step, so that class k
  stands for shift + k * scale. The class c of a target is floor(u + 1/2) within 0 .. b - 1.

Options have no units either: beta counts in scales; sigma, and the error that alpha weighs, count
in bins. With o the outputs of one target, q = softmax(o), e = sum_k k q_k, P = sigmoid(o), and
p_k proportional to exp(-(k - u)^2 / (2 sigma^2)):

    name    loss of one sample                                              decodes to
    l1      |o - u|                                                         o
    mse     (o - u)^2                                                       o
    huber   (o - u)^2 / (2 beta) up to beta, |o - u| - beta / 2 beyond      o
    dex     -log q_c                                      Rothe 2015        e
    lde     -sum_k p_k log q_k                            Chu 2018          e
    dldl    sum_k p_k log(p_k / q_k) + alpha |e - u|      Gao 2018          e
    l2cs    -log q_c + alpha (e - u)^2                    Abdelrahman 2022  e
    or      -sum_{k < c} log P_k - sum_{k >= c} log(1 - P_k)    Niu 2016    sum_k P_k
    corn    -sum_{k < c} log P_k - log(1 - P_c)           Shi 2021          sum_k prod_{i <= k} P_i

    option    default   heads       what it is
    beta      1         huber       where the square ends, in scales
    sigma     2         dldl lde    the width of the target distribution, in bins
    alpha     1         dldl l2cs   the weight of the error of the expectation, in bins. Released
                                    code counts in target units: alpha = step (dldl) or step^2
                                    (l2cs) is their weight 1
    decode    mean      or corn     "mean" is the expected class, continuous as that of the other
                                    heads. "class" counts the thresholds with P > 1/2 as the
                                    originals do, which is the median
    original  False     dldl l2cs   do as released code does: dldl divides the divergence by the
                                    number of bins; the class of l2cs is floor(u), since it takes
                                    class centres for left edges

Every target has outputs of its own; losses are averaged over targets (released L2CS adds them up).
"""

from rnc.heads.binned import nearest_class
from rnc.heads.head import (
    HEADS,
    Head,
    HeadConfig,
    PerTarget,
    build_head,
    find_head,
    head_config,
    make_head,
)
from rnc.heads.spec import HeadOption, HeadOptions, HeadSpec

__all__ = [
    "HEADS",
    "Head",
    "HeadConfig",
    "HeadOption",
    "HeadOptions",
    "HeadSpec",
    "PerTarget",
    "build_head",
    "find_head",
    "head_config",
    "make_head",
    "nearest_class",
]
