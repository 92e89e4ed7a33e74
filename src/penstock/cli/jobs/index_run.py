"""One run of `penstock index`: look at the places, send what has changed, and do the work, or follow the places."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

import click
from rich.console import Console

from penstock.cli.jobs.handover import await_rebuild
from penstock.cli.jobs.shelf import IndexPlace, Order
from penstock.cli.running.job import opened_job
from penstock.cli.running.stop import Stop
from penstock.cli.terminal.progress import ProgressView, summary_fields, summary_lines
from penstock.cli.terminal.terminal_text import terminal_text
from penstock.documents import Notification, UploadNotification
from penstock.errors import BudgetSpent, Closed, Fenced, InvalidInput, PenstockError
from penstock.indexing import CostEstimate, Follower, Listing, estimate_cost, is_waiting, read_notice, send

__all__ = ["IndexRun", "has_set_aside"]

# For a person; `--json` names them all.
_LEFT_OUT_SHOWN_MAX: Final = 10
_EVENTS_SHOWN_MAX: Final = 50
_ENDED: Final = "ended as asked: nothing is lost, and the next run goes on from here"


@dataclass(frozen=True)
class IndexRun:
    """What a command does with the places of an order; `interval` is the time between looks of one that follows."""

    order: Order
    console: Console
    stop: Stop
    interval: float | None = None
    queue_only: bool = False
    # Most of an index may be removed without a question.
    yes: bool = False

    def preview(self, shelf: IndexPlace) -> dict[str, Any]:
        """Look, and change nothing; what would be sent, as fields."""
        listing = _look(shelf)
        fields = self._describe(shelf, listing)
        for event in listing.events[:_EVENTS_SHOWN_MAX]:
            self.console.print(f"  {_planned(event)}", markup=False)
        if len(listing.events) > _EVENTS_SHOWN_MAX:
            self.console.print(f"  … and {len(listing.events) - _EVENTS_SHOWN_MAX:,} more: see --json")
        self.console.print(f"{_told(listing)}: nothing was changed")
        estimate = self._estimate(shelf, listing)
        planned = [
            {"bucket": event.bucket, "key": event.key, "event": _planned(event).partition(" ")[0]}
            for event in listing.events
        ]
        return {"listed": fields, "planned": planned, "estimate": asdict(estimate), "done": None}

    def _estimate(self, shelf: IndexPlace, listing: Listing) -> CostEstimate:
        """Read what would be indexed, and tell what it comes to."""
        name, plan = shelf.target.name, shelf.plan
        profile = plan.embedding.profile_of(name.model, (name.tenant, name.index))
        uploads = (event for event in listing.events if isinstance(event, UploadNotification))
        reading = replace(plan.reading, embedding=plan.embedding, chunking=shelf.chunking)
        found = estimate_cost(reading, uploads, shelf.chunking, profile, stopped=lambda: self.stop.requested)
        for key, reason in found.unreadable[:_LEFT_OUT_SHOWN_MAX]:
            self.console.print(f"  cannot be read: {terminal_text(key)}: {terminal_text(reason)}", markup=False)
        self.console.print(
            f"at most {found.chunks:,} chunks, {found.tokens:,} tokens, ${found.cost_usd:,.4f} with {name.model}"
        )
        return found

    def run(self, shelf: IndexPlace) -> dict[str, Any]:
        """Look, send, and work; what was seen and done, as fields."""
        listing = _look(shelf)
        self._confirm(shelf, listing)
        send(shelf.url, listing.events, shelf.plan.wiring)
        fields = self._describe(shelf, listing)
        if self.queue_only or self.stop.requested:
            self.console.print(_told(listing))
            return {"listed": fields, "done": None}
        waiting = bool(listing.events) or bool(listing.under_way) or self._is_waiting(shelf)
        idle = self.interval is None and not waiting
        if shelf.places:
            self.console.print(_told(listing) + (": nothing to do" if idle else ""))
        if idle:
            if not shelf.places:
                self.console.print("the queue is empty")
            return {"listed": fields, "done": None}
        uploads = len(listing.events) - listing.removals
        # The queue has the events now, and the work may take long: a list of many takes memory of it.
        del listing
        return {"listed": fields, "done": self._work(shelf, uploads)}

    @staticmethod
    def _is_waiting(shelf: IndexPlace) -> bool:
        return asyncio.run(is_waiting(shelf.url, shelf.plan.wiring))

    def _describe(self, shelf: IndexPlace, listing: Listing) -> dict[str, Any]:
        """Name what cannot be indexed; what was seen, as fields."""
        left_out = shelf.left_out()
        for each in left_out[:_LEFT_OUT_SHOWN_MAX]:
            self.console.print(f"  left out: {each.path!r}: {each.reason}", markup=False)
        if len(left_out) > _LEFT_OUT_SHOWN_MAX:
            self.console.print(f"  … and {len(left_out) - _LEFT_OUT_SHOWN_MAX:,} more were skipped: see --json")
        return {
            "to_index": len(listing.events) - listing.removals,
            "to_remove": listing.removals,
            "unchanged": listing.unchanged,
            "under_way": listing.under_way,
            "set_aside_before": listing.set_aside,
            "forgotten_before": listing.forgotten,
            "left_out": [each._asdict() for each in left_out],
        }

    def _confirm(self, shelf: IndexPlace, listing: Listing) -> None:
        """Ask whoever is there before most of an index goes, and refuse where nobody is."""
        if self.yes or not listing.removes_much:
            return
        if not self.console.is_interactive or self.console.quiet:
            raise _too_many(shelf, listing)
        click.confirm(
            f"{listing.removals:,} of the {listing.known:,} documents of index {shelf.target.name.index} no longer "
            "exist in the given places, and will be removed. Continue?",
            abort=True,
        )

    def _work(self, shelf: IndexPlace, uploads: int) -> dict[str, Any] | None:
        """Work, and while following again after every rebuild that this job had to make way for."""
        order, stop, console = self.order, self.stop, self.console
        options = order.wiring.service_options(order.url)
        notice = await_rebuild(order.url, stop, console, options)
        shelf = order.as_left(shelf)
        while not stop.requested:
            try:
                return self._worked(shelf, uploads)
            except Fenced:
                # Another job that has taken over is no rebuild: it goes on instead of this one.
                if self.interval is None or asyncio.run(read_notice(order.url, options)).number == notice.number:
                    raise
                notice = await_rebuild(order.url, stop, console, options)
            except Closed as error:
                _check_asked(stop, error)
                stop.await_answer()
                console.print(_ENDED)
                return None
            # With the model and the chunks that it has now, whatever this command was started with.
            shelf, uploads = order.again(shelf), 0
            console.print(f"continuing with index {order.index}, made with {shelf.target.name.model}")
        return None

    def _worked(self, shelf: IndexPlace, uploads: int) -> dict[str, Any]:
        spent: dict[str, str] | None = None
        with ProgressView(self.console, uploads) as view, opened_job(shelf.plan, view, self.stop) as job:
            try:
                if self.interval is None:
                    job.run_available()
                else:
                    view.working("following")
                    with self._following(shelf, self.interval):
                        job.follow()
            except BudgetSpent as error:
                spent = {"what": error.what, "why": error.why, "remedy": error.remedy}
            except Exception:
                # Whoever asked for the end knows why the work was not done, and may have ended Spark with it.
                if not self.stop.requested:
                    raise
            summary, elapsed = job.summary, view.elapsed
        self.stop.await_answer()
        for line in summary_lines(summary, elapsed):
            self.console.print(line, markup=False)
        if self.stop.requested:
            self.console.print(_ENDED)
        return summary_fields(summary, elapsed) | {"stopped": spent}

    def _following(self, shelf: IndexPlace, interval: float) -> Follower:
        async def look() -> Listing:
            listing = await shelf.look()
            if listing.removes_much and not self.yes:
                # Nobody is there to be asked, and what is left alone now can be removed later.
                raise _too_many(shelf, listing)
            return listing

        def failed(error: PenstockError) -> None:
            self.console.print(f"could not list the places: {error}; retrying in {interval:g} s", markup=False)

        return Follower(look, lambda events: send(shelf.url, events, shelf.plan.wiring), interval, failed=failed)


def has_set_aside(told: Mapping[str, Any]) -> bool:
    """Whether documents of the places, or of this run, are not searchable because they could not be read."""
    done = told["done"] or {"set_aside": []}
    return bool(told["listed"]["set_aside_before"] or done["set_aside"])


def _look(shelf: IndexPlace) -> Listing:
    listing = asyncio.run(shelf.look(first=True))
    if listing.failures:
        # Whoever waits for an answer gets it before any work; a follower goes on without the place.
        raise listing.failures[0]
    return listing


def _too_many(shelf: IndexPlace, listing: Listing) -> InvalidInput:
    return InvalidInput(
        f"{listing.removals:,} of the {listing.known:,} documents of index {shelf.target.name.index} would be removed",
        "they no longer exist in the given places",
        "check that folders are mounted; --dry-run lists the documents, --yes removes them",
    )


def _planned(event: Notification) -> str:
    verb = "index" if isinstance(event, UploadNotification) else "remove"
    return terminal_text(f"{verb} {event.bucket}/{event.key}")


def _check_asked(stop: Stop, error: Closed) -> None:
    """Only somebody who asks for the end keeps a job from being opened in good order."""
    if not stop.requested:
        raise error


def _told(listing: Listing) -> str:
    uploads = len(listing.events) - listing.removals
    told = f"{uploads:,} to index, {listing.removals:,} to remove, {listing.unchanged:,} unchanged"
    if listing.under_way:
        told += f", {listing.under_way:,} under way"
    if listing.set_aside:
        told += f", {listing.set_aside:,} set aside before (see `penstock documents list`)"
    if listing.forgotten:
        told += f", {listing.forgotten:,} forgotten before (see `penstock documents retry`)"
    return told
