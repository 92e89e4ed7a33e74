"""The power goes between any two system calls: the store opens, nothing acknowledged is lost, nothing comes twice."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest
from tests.quiver.power_cuts import cut_short
from tests.quiver.worlds import bundle, numbers, small, with_mode

from penstock.quiver import Quiver, RetentionConfig, WriteMode
from penstock.testing import Simulation, simulate

SUBSCRIBERS = ("a", "b")
# Bundles of one history: two segments, a rotation of the log, checkpoints and removals.
BUNDLES = 11


@dataclass
class History:
    stored: list[int] = field(default_factory=list)
    sent: list[int] = field(default_factory=list)
    acked: dict[str, list[int]] = field(default_factory=lambda: {name: [] for name in SUBSCRIBERS})
    # Acknowledgements under way when the power went.
    doubtful: dict[str, list[int]] = field(default_factory=lambda: {name: [] for name in SUBSCRIBERS})


async def live(store: Quiver, history: History) -> None:
    """Ingest, rotate, finalise, acknowledge, checkpoint and delete, one after the other."""
    for name in SUBSCRIBERS:
        await store.register(name)
    for number in range(BUNDLES):
        history.sent.append(number)
        await store.ingest(bundle(number))
        history.stored.append(number)
        for name in SUBSCRIBERS:
            while (delivery := await store.next(name, 0.0)) is not None:
                found = await numbers(delivery)
                history.doubtful[name] = found
                await delivery.ack()
                history.acked[name] += found
                history.doubtful[name] = []
        await store.sweep()
    await store.close()


async def cut(simulation: Simulation, after: int, mode: WriteMode, how: str) -> int | None:
    """One history that ends at this write, and what is found then; None once the history was not interrupted."""
    config = replace(
        with_mode(small(), mode),
        segment=replace(small().segment, target_size=128),
        retention=RetentionConfig(size_cap=1 << 24),
        checkpoint_records=4,
    )
    history = History()
    return await cut_short(
        simulation,
        after,
        mode,
        how,
        config,
        lambda store: live(store, history),
        lambda store: check(store, history),
    )


async def check(store: Quiver, history: History) -> None:
    assert store.findings.lost_bundles == []
    assert store.findings.lost_segments == []
    await store.flush()
    for name in SUBSCRIBERS:
        await store.register(name)
        came: list[int] = []
        while (delivery := await store.next(name, 0.0)) is not None:
            came += await numbers(delivery)
            await delivery.ack()
        assert not set(came) & set(history.acked[name]), f"{name} got again what it had acknowledged"
        expected = set(history.stored) - set(history.acked[name]) - set(history.doubtful[name])
        assert expected <= set(came), f"{name} lost {sorted(expected - set(came))}"
        assert set(came) <= set(history.sent)
        assert len(came) == len(set(came))
    await store.sweep()
    assert store.segments == []
    await store.close()


@pytest.mark.slow
@pytest.mark.parametrize("how", ["power", "kill"])
@pytest.mark.parametrize("mode", [WriteMode.DIRECT, WriteMode.BUFFERED])
def test_an_end_between_any_two_system_calls_loses_and_repeats_nothing(mode: WriteMode, how: str) -> None:
    after = 0
    while simulate(lambda simulation: cut(simulation, after, mode, how), seed=after) is not None:  # noqa: B023
        after += 1
    assert after > 100, "the history has that many writes"
