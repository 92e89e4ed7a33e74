"""How long the job waits for an embedding provider or for buckets, and how that wait ends.

While it follows a queue, a provider that stays away is asked again with growing pauses, never sooner than it asked for,
for as long as it takes; nothing is taken from the queue meanwhile, because whoever waits holds the turnstile. A job that
takes what is there and ends says instead that the provider is away: nothing is lost, and the next run goes on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from penstock.documents import BatchRequest
from penstock.documents.embedding import DispatchPolicy, Later
from penstock.errors import Closed, Unavailable
from penstock.ids import SYSTEM_ENTROPY, Entropy
from penstock.indexing.job.turnstile import Turnstile
from penstock.observability import SILENT, Observer, names

__all__ = ["Patience"]

# A stopped query is noticed so soon.
_LOOK_SECONDS: Final = 1.0
# A provider that asks for more is asked after this all the same: clocks and configurations are wrong at times.
_ASKED_SECONDS_MAX: Final = 3600.0
# Doubling stops here; the policy's own bound has long been reached.
_DOUBLINGS_MAX: Final = 16


class Patience:
    """Pauses inside a turnstile; `Closed` once the job is closed or its query stopped."""

    def __init__(
        self,
        turnstile: Turnstile,
        stopped: Callable[[], bool],
        policy: DispatchPolicy,
        *,
        entropy: Entropy = SYSTEM_ENTROPY,
        observer: Observer = SILENT,
    ) -> None:
        self._turnstile, self._stopped = turnstile, stopped
        self._policy = policy
        self._entropy = entropy
        self._observer = observer
        self.endless = False

    def outage(self, request: BatchRequest, answer: Later, attempt: int) -> None:
        """Return when the provider is worth asking again; `Unavailable` when nobody wants to wait for it."""
        if not self.endless:
            raise Unavailable(
                f"model {request.model} did not embed batch {request.batch_id}",
                answer.reason,
                "nothing is lost: run it again once the provider answers",
            )
        seconds = self._seconds(answer, attempt)
        self.absent(request.model, answer.reason, seconds)
        self.pause(seconds)

    def absent(self, model: str, reason: str, seconds: float) -> None:
        """Tell that a model does not answer, and is asked again after so many seconds."""
        self._observer.gauge(names.INDEXING_PROVIDER_AWAY, 1)
        # Its status or the kind of its failure: what follows is the provider's answer, which may quote a text.
        self._observer.event(
            names.INDEXING_OUTAGE, model=model, reason=reason.partition(":")[0], seconds=round(seconds, 3)
        )

    def held(self, documents: int) -> None:
        """Return when the buckets of so many documents may be tried again; nothing more is taken meanwhile."""
        if not self.endless:
            raise Unavailable(
                f"{documents} documents wait for buckets or models that do not answer",
                "no more can wait at once",
                "nothing is lost: run it again once they answer; `penstock documents list` names them",
            )
        self.pause(_LOOK_SECONDS)

    def answered(self) -> None:
        self._observer.gauge(names.INDEXING_PROVIDER_AWAY, 0)

    def pause(self, seconds: float) -> None:
        left = seconds
        while left > 0:
            self._turnstile.pause(min(left, _LOOK_SECONDS))
            left -= _LOOK_SECONDS
            if self._stopped():
                raise Closed("the indexing query was stopped", "", "start it again: it continues where it stopped")

    def _seconds(self, answer: Later, attempt: int) -> float:
        policy = self._policy
        bound = min(policy.pause_seconds_max, policy.pause_seconds * 2 ** min(attempt, _DOUBLINGS_MAX))
        asked = min(answer.after_seconds or 0.0, _ASKED_SECONDS_MAX)
        return asked + self._entropy.uniform(bound / 2, bound)
