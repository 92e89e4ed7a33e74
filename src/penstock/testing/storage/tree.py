"""The inside of a torn disk: files and folders as memory has them, beside what a power loss would leave.

Pure but for its own state. A folder keeps its durable names and the list of changes made to them since
it was last synced; a file keeps its durable bytes beside those in the page cache. `survivors` draws one
of the states in which the power may leave a tree, and `torn` one of those in which it may leave a file.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock.testing.entropy import SeededEntropy
from penstock.testing.storage.pages import SECTOR_BYTES, Piece, after_power_loss, spliced

__all__ = ["SECTOR_BYTES", "File", "Node", "TreeChange", "TreeFolder", "survivors", "torn"]


@dataclass(slots=True, eq=False)
class File:
    """`synced` is what a power loss cannot take; None before the first sync."""

    inode: int
    modified_ns: int
    data: bytes
    synced: bytes | None = None
    # A failed sync leaves pages that the system takes for clean: no later sync writes them.
    poisoned: bool = False
    # What an open file wrote since `synced`, in order; none while the file was only written whole.
    pieces: list[Piece] = field(default_factory=list)

    def write(self, piece: Piece) -> None:
        """Change some bytes, or the length. A piece that is settled was durable when its write returned."""
        if not self.pieces and self.synced != self.data:
            self.pieces = [Piece(0, self.data, poisoned=self.poisoned)]
            self.poisoned = False
        self.data = spliced(self.data, piece)
        if piece.settled and not self.pieces:
            self.synced = spliced(self.synced or b"", piece)
        else:
            self.pieces.append(piece)

    def write_whole(self, data: bytes) -> None:
        self.data = data
        self.pieces = []

    def sync(self) -> None:
        if self.pieces:
            for piece in self.pieces:
                piece.settled = piece.settled or not piece.poisoned
            if any(not piece.settled for piece in self.pieces):
                return
            self.pieces = []
        elif self.poisoned:
            return
        self.synced = self.data

    def fail_to_sync(self) -> None:
        if not self.pieces:
            self.poisoned = True
        for piece in self.pieces:
            piece.poisoned = not piece.settled

    def lose_power(self, entropy: SeededEntropy) -> None:
        if self.pieces:
            self.data = self.synced = after_power_loss(self.synced or b"", self.pieces, entropy)
        elif self.synced != self.data:
            self.data = self.synced = torn(self.synced or b"", self.data, entropy)
        self.pieces = []
        self.poisoned = False


@dataclass(slots=True, eq=False)
class TreeChange:
    """`node` gets the name `given`, loses the name `taken`, or both in one step.

    A change that `requires` another never outlives it: a file moved between folders may after a crash be
    found under both names, or under the old one, never under none.
    """

    node: Node
    given: str | None = None
    taken: str | None = None
    requires: TreeChange | None = None
    settled: bool = False
    # A sync of its folder failed: the system takes it for written, and no later sync writes it.
    poisoned: bool = False
    _lasts: bool | None = None

    def apply(self, entries: dict[str, Node]) -> None:
        # Changes may settle out of order: a name that was given to another node since is not ours to take.
        if self.taken is not None and entries.get(self.taken) is self.node:
            del entries[self.taken]
        if self.given is not None:
            entries[self.given] = self.node

    def superseded(self, names: set[str | None]) -> bool:
        """Whether newer changes of these names, now durable, leave nothing of this one."""
        if self.poisoned:
            self.given = None if self.given in names else self.given
            self.taken = None if self.taken in names else self.taken
            self.settled = self.given is None and self.taken is None
        return self.settled

    def lasts(self, entropy: SeededEntropy) -> bool:
        """Whether a power loss leaves this change; drawn once."""
        if self._lasts is None:
            held = self.requires is None or self.requires.lasts(entropy)
            self._lasts = self.settled or (held and entropy.chance(0.5))
        return self._lasts


@dataclass(slots=True, eq=False)
class TreeFolder:
    inode: int
    modified_ns: int
    entries: dict[str, Node] = field(default_factory=dict)
    synced: dict[str, Node] = field(default_factory=dict)
    pending: list[TreeChange] = field(default_factory=list)
    failed_syncs: int = 0

    def change(self, change: TreeChange) -> TreeChange:
        change.apply(self.entries)
        self.pending.append(change)
        return change

    def sync(self) -> None:
        """Settle all changes but those that an earlier sync failed on, and those whose other half, in another
        folder, is not settled yet."""
        waiting, names = [], set()
        for change in self.pending:
            if not change.poisoned and (change.requires is None or change.requires.settled):
                change.apply(self.synced)
                change.settled = True
                names |= {change.given, change.taken}
            else:
                waiting.append(change)
        self.pending = [change for change in waiting if not change.superseded(names)]

    def fail_to_sync(self) -> None:
        self.failed_syncs += 1
        for change in self.pending:
            change.poisoned = True


Node = File | TreeFolder


def survivors(root: TreeFolder, entropy: SeededEntropy) -> TreeFolder:
    """The tree as a power loss may leave it: any subset of the unsynced changes, every unsynced file torn.

    Draws for what lies below a lost folder are never made, since nobody will see it.
    """
    for change in root.pending:
        if change.lasts(entropy):
            change.apply(root.synced)
    root.pending = []
    root.entries = dict(root.synced)
    for node in root.entries.values():
        if isinstance(node, TreeFolder):
            survivors(node, entropy)
        else:
            node.lose_power(entropy)
    return root


def torn(kept: bytes, written: bytes, entropy: SeededEntropy) -> bytes:
    """`kept` and some of what was written after it: a prefix, or all of its length with holes or rubbish."""
    if not written.startswith(kept):
        kept = b""
    way = entropy.choice(("nothing", "everything", "prefix", "zeros", "garbage"))
    if way == "nothing":
        return kept
    if way == "everything":
        return written
    if way == "prefix":
        return written[: len(kept) + entropy.below(len(written) - len(kept) + 1)]
    return kept + _with_lost_sectors(written, len(kept), way == "garbage", entropy)


def _with_lost_sectors(written: bytes, start: int, garbage: bool, entropy: SeededEntropy) -> bytes:
    pieces = []
    while start < len(written):
        end = min(len(written), start - start % SECTOR_BYTES + SECTOR_BYTES)
        piece = written[start:end]
        if entropy.chance(0.5):
            piece = entropy.token(len(piece)) if garbage else bytes(len(piece))
        pieces.append(piece)
        start = end
    return b"".join(pieces)
