"""What a caller holds of an accepted change: the coordinator's handle, and the receipt that says if it was refused later."""

from __future__ import annotations

from typing import Any

from penstock.blocks.write.refusals import ChangeReceipt
from penstock.coordinator import Coordinator, Mark, WriteHandle

__all__ = ["ChangeHandle"]


class ChangeHandle(WriteHandle):
    """An accepted change. Waiting for it raises if it was refused when its flush found damage or a bound."""

    __slots__ = ("_receipt",)

    def __init__(self, coordinator: Coordinator[Any, Any], epoch: int, receipt: ChangeReceipt) -> None:
        super().__init__(coordinator, epoch)
        self._receipt = receipt

    async def wait(self, mark: Mark) -> None:
        """Return when the change has reached `mark`; raise if it does not get there, or was refused."""
        await super().wait(mark)
        self._receipt.check()
