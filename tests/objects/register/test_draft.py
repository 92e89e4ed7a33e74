"""Drafts: changes applied in order, and who may be told what before anything is written."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest

from penstock.objects.register.draft import Caller, GroupDraft, KnownValue, drafted

BASE = KnownValue("base", "v1", call=5)


def caller(change: Callable[[str], str], since: int = 4) -> Caller[str]:
    loop = asyncio.new_event_loop()
    try:
        return Caller(change, None, 0.0, since, future=loop.create_future())
    finally:
        loop.close()


def appends(letter: str) -> Callable[[str], str]:
    return lambda value: value + letter


def unchanged(value: str) -> str:
    return value


def refuses(value: str) -> str:
    raise LookupError(value)


def draft(*callers: Caller[str]) -> GroupDraft[str]:
    return drafted(BASE, callers)


def test_changes_apply_in_the_order_they_were_asked() -> None:
    assert draft(caller(appends("a")), caller(appends("b"))).value == "baseab"


def test_a_change_that_raises_leaves_the_value_to_the_others() -> None:
    one, bad, two = caller(appends("a")), caller(refuses), caller(appends("b"))
    made = draft(one, bad, two)
    assert made.value == "baseab"
    assert made.writers == (one, two)
    assert [(who, str(error)) for who, error in made.refused] == [(bad, "basea")]


def test_a_change_that_returns_its_value_writes_nothing() -> None:
    lazy = caller(unchanged)
    made = draft(lazy)
    assert made.writers == ()
    assert made.idle == (lazy,)


def test_an_equal_but_new_value_is_written() -> None:
    assert len(draft(caller(lambda value: "".join(list(value)))).writers) == 1


def test_a_check_refuses_the_change_whose_result_fails_it_and_no_other() -> None:
    def no_x(value: str) -> None:
        if "x" in value:
            raise ValueError(value)

    one, bad, two = caller(appends("a")), caller(appends("x")), caller(appends("b"))
    made = drafted(BASE, (one, bad, two), no_x)
    assert made.value == "baseab"
    assert [who for who, _ in made.refused] == [bad]


def test_a_landed_draft_answers_everybody() -> None:
    one, lazy, bad = caller(appends("a")), caller(unchanged), caller(refuses)
    draft(one, lazy, bad).deliver("landed")
    assert one.future.result() == lazy.future.result() == "landed"
    assert isinstance(bad.future.exception(), LookupError)


def test_a_base_read_before_the_question_concludes_nothing() -> None:
    lazy, bad = caller(unchanged, since=5), caller(refuses, since=5)
    draft(lazy, bad).conclude()
    assert lazy.waits
    assert bad.waits


def test_a_durable_base_read_after_the_question_concludes() -> None:
    lazy, bad = caller(unchanged, since=4), caller(refuses, since=4)
    drafted(replace(BASE, durable=True), (lazy, bad)).conclude()
    assert lazy.future.result() == "base"
    with pytest.raises(LookupError):
        bad.future.result()


def test_a_base_that_may_not_last_refuses_and_confirms_nothing() -> None:
    lazy, bad = caller(unchanged, since=4), caller(refuses, since=4)
    draft(lazy, bad).conclude()
    assert lazy.waits
    with pytest.raises(LookupError):
        bad.future.result()


def test_only_changes_that_are_written_are_exposed() -> None:
    one, lazy = caller(appends("a")), caller(unchanged)
    made = draft(one, lazy)
    made.expose(True)
    assert (one.exposed, lazy.exposed) == (True, False)
    made.expose(False)
    assert not one.exposed


def test_an_answer_to_somebody_who_left_is_dropped() -> None:
    gone = caller(appends("a"))
    gone.leave()
    gone.answer("late")
    assert gone.future.cancelled()
