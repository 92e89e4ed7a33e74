"""What one run may spend on embedding, and the account of it.

A round's documents are admitted one by one, before anything of them is sent, by the tokens that were counted when they
were cut; afterwards the account takes what the provider says it cost. A provider that counts more than was expected
raises what the next documents are expected to cost.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from penstock.documents.embedding import ModelProfile
from penstock.errors import BudgetSpent, InvalidInput

__all__ = ["EmbeddingBudget", "Spending"]


@dataclass(frozen=True, slots=True)
class EmbeddingBudget:
    """What one run may spend on embedding. None is no limit."""

    # Maximum price of a run's embeddings, in US dollars, by the model's profile and the tokens that its provider
    # reports.
    max_dollars: float | None = None
    # Maximum tokens to embed in a run, as `index --dry-run` counts them.
    max_total_tokens: int | None = None

    def __post_init__(self) -> None:
        for name in self.__slots__:
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise InvalidInput(f"{name} = {value!r}", "a budget must be above 0", "omit it for no limit")


class Spending:
    """The account of one run. Called by one thread at a time."""

    def __init__(self, budget: EmbeddingBudget) -> None:
        self._budget = budget
        self.tokens, self.dollars = 0, 0.0
        # Of the round at hand, and dollars as they were expected before each round.
        self._admitted_tokens, self._admitted_dollars, self._expected = 0, 0.0, 0.0
        # Models that have documents which were not admitted, and what the first of those would take.
        self.refused: dict[str, str] = {}

    def admit(self, source: str, tokens: int, profile: ModelProfile) -> bool:
        """Whether so many tokens can be paid for beside all that was admitted before; then they are reserved."""
        dollars = profile.cost_usd(tokens) * self._dearer
        if fault := self._fault(tokens, dollars):
            self.refused.setdefault(source, fault)
            return False
        self._admitted_tokens += tokens
        self._admitted_dollars += dollars
        return True

    def settle(self, tokens: int, dollars: float, expected_dollars: float) -> None:
        """A round was answered: what it took. `expected_dollars` is what its tokens cost by the table of prices."""
        self.tokens += tokens
        self.dollars += dollars
        self._expected += expected_dollars
        self._admitted_tokens, self._admitted_dollars = 0, 0.0

    def check(self) -> None:
        """`BudgetSpent` when documents were left for a later run."""
        if self.refused:
            raise BudgetSpent(
                "stopped at the budget for embedding",
                f"{next(iter(self.refused.values()))}; {self.told} were spent",
                "nothing is lost, and nothing is paid for twice: run it again to continue",
            )

    @property
    def told(self) -> str:
        return f"{self.tokens:,} tokens and ${self.dollars:,.4f}"

    @property
    def _dearer(self) -> float:
        """How many times the expected price the provider has asked for, and never less than once."""
        return max(1.0, self.dollars / self._expected) if self._expected else 1.0

    def _fault(self, tokens: int, dollars: float) -> str:
        most, total = self._budget.max_total_tokens, self.tokens + self._admitted_tokens + tokens
        if tokens and most is not None and total > most:
            return f"the next document takes {tokens:,} tokens, and {max(0, most - total + tokens):,} are left"
        limit, sum_dollars = self._budget.max_dollars, self.dollars + self._admitted_dollars + dollars
        if dollars and limit is not None and sum_dollars > limit + _ROUNDING:
            left = max(0.0, limit - sum_dollars + dollars)
            return f"the next document costs about ${dollars:,.6f}, and ${left:,.6f} are left"
        return ""


# Sums of many small prices are not exact.
_ROUNDING: Final = 1e-9
