"""When upkeep is done, and that nothing of it outlives its store."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from penstock.blocks import UpkeepKeeper


class AlwaysDue:
    """A plan with a step for every state."""

    def next_step(self, state: Any) -> Any:
        return object()

    def shape(self, state: Any) -> object:
        return None


def test_a_write_that_lands_while_the_store_closes_begins_no_upkeep() -> None:
    """The last flush of a store comes after its keeper is closed: a task begun there would be destroyed with the loop."""

    async def close() -> set[asyncio.Task[Any]]:
        coordinator: Any = SimpleNamespace(watermarks=None)
        keeper = UpkeepKeeper[Any, Any](coordinator, AlwaysDue(), 60.0)
        state: Any = SimpleNamespace(name="a", head=1)
        keeper.notice(state)
        assert len(asyncio.all_tasks()) == 2
        await keeper.close()
        keeper.notice(state)
        return asyncio.all_tasks() - {asyncio.current_task()}  # type: ignore[arg-type]

    assert asyncio.run(close()) == set()
