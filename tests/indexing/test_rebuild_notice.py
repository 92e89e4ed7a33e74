"""The notice of a rebuild tells who is worth waiting for, and stops nobody once its process is dead."""

from __future__ import annotations

import asyncio
from pathlib import Path

from penstock.indexing.registry.rebuild_notice import SILENT_SECONDS_MAX, Notice, NoticeBoard, Watch, read_notice
from penstock.objects import MemoryStore


def test_a_rebuild_is_announced_renewed_and_ended() -> None:
    async def told() -> list[Notice]:
        async with NoticeBoard(MemoryStore("notices")) as board:
            return [
                await board.read(),
                first := await board.announce("somebody"),
                await board.renew(first.number),
                await board.end(first.number),
                await board.announce("somebody else"),
            ]

    assert asyncio.run(told()) == [
        Notice(),
        Notice(1, 0, over=False, process="somebody"),
        Notice(1, 1, over=False, process="somebody"),
        Notice(1, 1, over=True, process="somebody"),
        Notice(2, 0, over=False, process="somebody else"),
    ]


def test_a_rebuild_that_was_given_up_for_dead_does_not_touch_the_notice_of_the_next() -> None:
    async def told() -> Notice:
        async with NoticeBoard(MemoryStore("notices")) as board:
            first = await board.announce("slow")
            second = await board.announce("next")
            assert await board.renew(first.number) == second
            return await board.end(first.number)

    assert asyncio.run(told()) == Notice(2, 0, over=False, process="next")


def test_a_store_that_is_not_there_has_no_rebuild_and_is_not_made(tmp_path: Path) -> None:
    assert asyncio.run(read_notice(f"file://{tmp_path}/nowhere")) == Notice()
    assert not (tmp_path / "nowhere").exists()


def test_a_rebuild_works_while_it_is_renewed_and_is_dead_when_it_is_not() -> None:
    watch = Watch()
    assert watch.works(Notice(1, 0, over=False), 0.0)
    assert watch.works(Notice(1, 0, over=False), SILENT_SECONDS_MAX - 1)
    assert watch.works(Notice(1, 1, over=False), SILENT_SECONDS_MAX + 1)
    assert watch.works(Notice(1, 1, over=False), 2 * SILENT_SECONDS_MAX)
    assert not watch.works(Notice(1, 1, over=False), 2 * SILENT_SECONDS_MAX + 1)


def test_nobody_waits_for_a_rebuild_that_is_over_or_whose_process_is_gone() -> None:
    assert not Watch().works(Notice(1, 5, over=True), 0.0)
    assert not Watch().works(Notice(1, 5, over=False, process="p"), 0.0, lambda process: process == "p")
