"""When acknowledged entries are worth a write of the manifest. Pure.

Taking entries off copies all that stay, so doing it after every so many acknowledgements costs more the
more is queued. A write is due when enough batches are acknowledged *and* they are a fair share of the
manifest, or when the first of them has waited long enough. A queue of any length is then drained with a
few times its manifest in writes, and what a crash makes a consumer hand out again is bounded in time.
"""

from __future__ import annotations

from penstock.buffer.config import ConsumerConfig
from penstock.buffer.format.manifest import Manifest

__all__ = ["Relief"]


class Relief:
    """Decides by count, share and time. `now` is in seconds of a clock that never goes back."""

    def __init__(self, config: ConsumerConfig) -> None:
        self._config = config
        # When something was first done that the manifest still holds.
        self._since: float | None = None

    def is_due(self, manifest: Manifest, through: int, acks: int, now: float) -> bool:
        """Whether to write once so many acknowledgements are unwritten and everything through here is done."""
        enough = acks >= self._config.dequeue_every_acks
        return self.is_overdue(now) or (enough and self.is_fair_share(manifest, through))

    def is_fair_share(self, manifest: Manifest, through: int) -> bool:
        """Whether what would leave is worth copying what stays."""
        return 100 * manifest.bytes_through(through) >= self._config.dequeue_percent * manifest.bytes_through(None)

    def is_overdue(self, now: float) -> bool:
        return self._since is not None and now - self._since >= self._config.dequeue_every_seconds

    def put_off(self, now: float) -> None:
        """Something is done, and was not written."""
        if self._since is None:
            self._since = now

    def written(self) -> None:
        """The manifest holds nothing that is done."""
        self._since = None
