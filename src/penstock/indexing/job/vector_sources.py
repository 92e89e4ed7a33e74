"""Where the vectors of a round come from: the indexes of the tenant, each other, or a model within the budget.

A text whose vector any index of a tenant has, made by the same model at the same address with the same profile, is not
sent again; two chunks of one text in one round are sent once. Tenants never see each other's vectors. The collections
are the cache, so it takes no room of its own and lasts as long as the documents; how many are looked into is bounded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any, Final

import pyarrow as pa

from penstock.documents.embedding import EMBEDDED_MODELS, Later, ModelProfile
from penstock.indexing.job.budget import EmbeddingBudget, Spending
from penstock.indexing.job.writer import IndexWriter
from penstock.indexing.planning.backlog import Share
from penstock.indexing.registry.entries import DocumentEntry
from penstock.indexing.rounds.answers import Answers, Unanswered, chunk_name
from penstock.indexing.rounds.reuse import NOTHING_KNOWN, named_vectors
from penstock.indexing.rounds.rounds import Batched, by_collection
from penstock.indexing.rounds.sharing import RoundChoice, borrowed_rows, choose
from penstock.indexing.stages.readings import DocumentReading
from penstock.vector import CollectionName

__all__ = ["VectorSources"]

# Other indexes of a tenant that are looked into: one lookup each, in every round.
SIBLINGS_MAX: Final = 8


class VectorSources:
    """Called by one thread at a time."""

    def __init__(
        self, writer: IndexWriter, source_of: Callable[[CollectionName], str], budget: EmbeddingBudget
    ) -> None:
        self._writer, self._source_of = writer, source_of
        self._spending = Spending(budget)

    # What need not be sent -------------------------------------------------------------------------------

    def reused(self, name: CollectionName, read: Sequence[tuple[DocumentEntry, DocumentReading]]) -> pa.Table:
        """Chunks whose text and vector an index of the tenant has; this one is asked first.

        Of documents that are new, only where a vector costs more than looking for it.
        """
        group = self._group(name)
        texts: dict[str, str] = {}
        for entry, reading in read:
            if entry.pending is not None and (entry.current is not None or group is not None):
                texts |= {chunk_name(entry.pending.doc_id, chunk): chunk.text for chunk in reading.chunks}
        found = [NOTHING_KNOWN]
        for place in [name] if group is None else [name, *self._siblings(name, group)]:
            if not texts:
                break
            found.append(named_vectors(self._writer.known_vectors(place, texts.values()), texts))
            known = frozenset(found[-1]["chunk_id"].to_pylist())
            texts = {chunk: text for chunk, text in texts.items() if chunk not in known}
        return pa.concat_tables(found)

    def _group(self, name: CollectionName) -> Any:
        """Who may use each other's vectors: the indexes of a tenant that ask one model alike.

        None for the embedded model: looking for a vector takes longer than making it.
        """
        return None if name.model in EMBEDDED_MODELS else (name.tenant, self._source_of(name), self._profile(name))

    def _siblings(self, name: CollectionName, group: Any) -> list[CollectionName]:
        """Other collections of the same group; the first, where there are many."""
        made = [
            CollectionName(settings.tenant, settings.index, build.model)
            for settings in self._writer.settings.values()
            for build in settings.builds
            if settings.tenant == name.tenant and settings.index != name.index and build.model == name.model
        ]
        return [other for other in made if self._group(other) == group][:SIBLINGS_MAX]

    def _profile(self, name: CollectionName) -> ModelProfile:
        return self._writer.embedding.profile_of(name.model, (name.tenant, name.index))

    # What is sent, within the budget ---------------------------------------------------------------------

    def choose(
        self, read: Sequence[tuple[Share, DocumentReading]], known: Mapping[CollectionName, Set[str]]
    ) -> RoundChoice:
        """Which documents of a round are paid for, and which chunks share an answer."""
        return choose(read, known, self._group, self._admits)

    def _admits(self, name: CollectionName, tokens: int) -> bool:
        return self._spending.admit(self._source_of(name), tokens, self._profile(name))

    def settle(self, batched: Mapping[CollectionName, Batched], embedded: Mapping[CollectionName, Answers]) -> None:
        """Write what a round took into the account."""
        for name, one in batched.items():
            answered = [request for request in one.requests if request.inputs[0].chunk_id in embedded[name]]
            tokens = sum(request.tokens_total for request in answered)
            self._spending.settle(tokens, embedded[name].total_cost_usd, self._profile(name).cost_usd(tokens))

    def unpaid(self, choice: RoundChoice) -> list[Unanswered]:
        """Documents beyond the budget: for as long as this job runs, their models count as away."""
        return [
            Unanswered(
                name,
                Later(f"beyond the budget of a run: {self._spending.refused[self._source_of(name)]}"),
                frozenset(documents),
            )
            for name, documents in by_collection(choice.held).items()
        ]

    def is_spent(self, name: CollectionName) -> bool:
        """Whether documents of a collection's model wait for the budget of a later run."""
        return self._source_of(name) in self._spending.refused

    def check_budget(self) -> None:
        """`BudgetSpent` when documents wait because this run may spend no more."""
        self._spending.check()

    # What came of it -------------------------------------------------------------------------------------

    @staticmethod
    def joined(
        embedded: Mapping[CollectionName, Answers], reused: Mapping[CollectionName, pa.Table], choice: RoundChoice
    ) -> dict[CollectionName, Answers]:
        """What models answered, what was known, and what chunks of one text have from each other."""
        joined: dict[CollectionName, Answers] = {}
        for name, found in embedded.items():
            borrowed = borrowed_rows(choice.borrowed.get(name, {}), embedded)
            joined[name] = found.joined(reused[name])
            if borrowed is not None:
                joined[name] = joined[name].joined(borrowed)
        return joined
