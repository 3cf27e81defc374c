"""The CUDA graph that a small loss becomes: the same numbers, whoever calls it and how."""

import threading
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from rnc import rnc_loss
from rnc.loss import backends, circular, replay

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


@pytest.fixture(autouse=True)
def replays(monkeypatch: pytest.MonkeyPatch) -> Iterator[replay.Replays]:
    """None of another test's."""
    monkeypatch.setattr("rnc.loss._replays", made := replay.Replays())
    yield made
    torch.cuda.synchronize()


def value_and_gradient(
    features: Tensor, targets: Tensor, **options: object
) -> tuple[Tensor, Tensor]:
    own = features.clone().requires_grad_()
    value = rnc_loss(own, targets, **options)  # type: ignore[arg-type]
    (grad,) = torch.autograd.grad(value.sum(), own)
    return value.detach(), grad


def batches(many: int, n: int = 64, d: int = 16) -> list[tuple[Tensor, Tensor]]:
    return [
        (torch.randn(n, d, device="cuda") + i, torch.randint(0, 9, (n,), device="cuda"))
        for i in range(many)
    ]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"similarity": "l1"},
        {"similarity": "cosine"},
        {"chunk_size": 7},
        {"backend": "torch"},
        {"backend": "torch", "chunk_size": 7},
        {"positives": 5},
        {"label_distance": circular(7.0)},
    ],
    ids=str,
)
def test_replays_are_the_same_to_the_last_bit(
    options: dict[str, object], replays: replay.Replays, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = batches(8)
    found = [value_and_gradient(*batch, **options) for batch in given]
    assert any(replays.graphs.values())
    monkeypatch.setattr(backends, "REPLAYED_PAIRS", 0)
    for batch, (loss, grad) in zip(given, found, strict=True):
        wanted, wanted_grad = value_and_gradient(*batch, **options)
        assert torch.equal(loss, wanted)
        assert torch.equal(grad, wanted_grad)


def test_small_gradients_of_half_precision_are_scaled_before_they_vanish(
    replays: replay.Replays,
) -> None:
    features, targets = batches(1)[0]
    features = features.half().requires_grad_()
    for _ in range(7):
        (grad,) = torch.autograd.grad(2.0**16 * 1e-6 * rnc_loss(features, targets), features)
    assert any(replays.graphs.values())
    wide = features.detach().float().requires_grad_()
    (wanted,) = torch.autograd.grad(2.0**16 * 1e-6 * rnc_loss(wide, targets), wide)
    assert torch.equal(grad, wanted.half())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
def test_views_several_targets_and_dtypes(dtype: torch.dtype, replays: replay.Replays) -> None:
    for i in range(7):
        features = (torch.randn(20, 3, 8, device="cuda") * (1 + i)).to(dtype)
        targets = torch.rand(20, 2, device="cuda")
        value, grad = value_and_gradient(features, targets)
        exact, exact_grad = value_and_gradient(features.double().cpu(), targets.cpu())
        assert grad.dtype == dtype
        torch.testing.assert_close(value.double().cpu(), exact, rtol=1e-5, atol=0)
        torch.testing.assert_close(
            grad.double().cpu(), exact_grad, rtol=1e-2, atol=1e-2 * float(exact_grad.abs().max())
        )
    assert any(replays.graphs.values())


@pytest.mark.parametrize(
    "options",
    [{"missing": "skip"}, {"reduction": "none"}, {"similarity": lambda a, b: -torch.cdist(a, b)}],
    ids=["missing", "none", "own"],
)
def test_what_may_differ_from_call_to_call_has_no_graph(
    options: dict[str, object], replays: replay.Replays
) -> None:
    for batch in batches(6):
        value_and_gradient(*batch, **options)
    assert not replays.calls


def test_two_losses_before_one_backward_pass() -> None:
    for _ in range(replay.FROM_CALL):
        value_and_gradient(*batches(1)[0])
    (x, targets), (z, _) = batches(2)
    alone = [value_and_gradient(part, targets)[1] for part in (x, z)]
    x, z = x.requires_grad_(), z.requires_grad_()
    together = rnc_loss(x, targets) + rnc_loss(z, targets)
    grads = torch.autograd.grad(together, (x, z))
    assert all(torch.equal(a, b) for a, b in zip(grads, alone, strict=True))


def test_options_and_shapes_do_not_mix(replays: replay.Replays) -> None:
    for n in (32, 48):
        for temperature in (0.5, 2.0):
            for features, targets in batches(6, n):
                loss = rnc_loss(features, targets, temperature=temperature)
                plain = rnc_loss(features, targets, temperature=temperature, backend="torch")
                torch.testing.assert_close(loss, plain, rtol=1e-5, atol=0)
    assert len(replays.graphs) == 8  # the plain path has its own
    assert all(replays.graphs.values())


def test_sizes_that_never_return_make_no_graph(replays: replay.Replays) -> None:
    for n in range(2, 2 + 2 * replay.KEPT):
        rnc_loss(torch.randn(n, 4, device="cuda"), torch.rand(n, device="cuda"))
    assert not replays.graphs
    assert len(replays.calls) == replay.KEPT


def test_graphs_of_many_sizes_give_their_memory_back(replays: replay.Replays) -> None:
    held = []
    for n in range(512, 512 + 3 * replay.KEPT):
        features, targets = torch.randn(n, 64, device="cuda"), torch.rand(n, device="cuda")
        for _ in range(replay.FROM_CALL):
            rnc_loss(features, targets)
        held.append(torch.cuda.memory_reserved())
    assert len(replays.graphs) == replay.KEPT
    assert held[-1] <= held[replay.KEPT] + 2**27


def test_what_is_no_number_is_refused_and_does_no_harm(replays: replay.Replays) -> None:
    given = batches(8)
    for features, targets in given:
        rnc_loss(features, targets)
    assert any(replays.graphs.values())
    features, targets = given[0]
    bad = features.clone()
    bad[3, 2] = torch.nan
    for _ in range(20):  # a look must be at this batch, not at the one before
        with pytest.raises(ValueError, match="features"):
            rnc_loss(bad, targets)
        assert rnc_loss(features, targets).isfinite()
    assert not rnc_loss(bad, targets, validate=False).isfinite()
    torch.testing.assert_close(
        rnc_loss(features, targets), rnc_loss(features, targets, backend="torch"), rtol=1e-5, atol=0
    )


def test_works_under_inference_mode_and_after() -> None:
    features, targets = batches(1)[0]
    with torch.inference_mode():
        inside = [rnc_loss(features, targets) for _ in range(7)]
    assert all(torch.equal(loss, inside[0]) for loss in inside)
    assert torch.equal(rnc_loss(features, targets), inside[0])
    assert value_and_gradient(features, targets)[1].isfinite().all()


def test_streams_and_threads_take_turns(replays: replay.Replays) -> None:
    given = batches(6, 256, 64)
    wanted = [value_and_gradient(*batch) for batch in given]
    assert any(replays.graphs.values())
    torch.cuda.synchronize()
    wrong: list[int] = []

    def call(i: int) -> None:
        with torch.cuda.stream(torch.cuda.Stream()):
            for _ in range(50):
                loss, grad = value_and_gradient(*given[i], validate=False)
                if not (torch.equal(loss, wanted[i][0]) and torch.equal(grad, wanted[i][1])):
                    wrong.append(i)

    threads = [threading.Thread(target=call, args=(i,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.filterwarnings("ignore:Synchronization debug mode")
def test_a_replay_does_not_wait_for_the_device(replays: replay.Replays) -> None:
    given = batches(8)
    for batch in given:
        value_and_gradient(*batch, validate=False)
    assert any(replays.graphs.values())
    torch.cuda.set_sync_debug_mode("error")
    try:
        value_and_gradient(*given[0], validate=False)
    finally:
        torch.cuda.set_sync_debug_mode("default")
