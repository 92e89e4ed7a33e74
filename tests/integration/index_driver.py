"""A driver of the indexing job to be killed: opens one session and runs the jobs it is handed, one after another.

Arguments: Spark's master and its settings as JSON. A line of standard input is a job; `round` is said after every write,
`done` or `failed` at a job's end.
"""

import json
import sys

from tests.spark_start import open_test_session

from penstock.documents import ChunkingConfig
from penstock.documents.embedding import DispatchPolicy, ModelProfile
from penstock.errors import PenstockError
from penstock.indexing.job.config import IndexingConfig
from penstock.indexing.planning.plan import RoundLimits
from penstock.indexing.stages.embedding import Embedding
from penstock.indexing.stages.reading import Reading
from penstock.pipelines.indexing.job import SparkIndexingJob

# Small, so that a short text has many cells, a document many rounds and a round several batches.
CHUNKING = ChunkingConfig(target_tokens=60, max_tokens=90, overlap_tokens=10, cell_bytes=1024)
ROUNDS = RoundLimits(documents_max=5, cells_max=3, bytes_max=8 << 10)
MODEL = "tested-model"
PROFILE = ModelProfile(
    name=MODEL,
    tokens_per_request=700,
    items_per_request=6,
    tokens_per_input=400,
    dimensions=32,
    usd_per_million_tokens=10.0,
)
# Patient in tries and not in seconds: a provider that fails often must not make the test slow.
POLICY = DispatchPolicy(attempts_max=8, pause_seconds=0.02, pause_seconds_max=0.2)
ANSWER_SECONDS_MAX = 1.0
LOOK_SECONDS = 0.2


def main(master: str, settings: str) -> None:
    spark = open_test_session(master, json.loads(settings))
    say("ready")
    for line in sys.stdin:
        job = json.loads(line)
        embedding = Embedding(job["embedding"], profile=PROFILE, policy=POLICY, timeout_seconds=ANSWER_SECONDS_MAX)
        config = IndexingConfig(
            job["url"],
            job["checkpoint"],
            chunking=CHUNKING,
            embedding=embedding,
            rounds=ROUNDS,
            batches_per_trigger=2,
            # Wherever the test has put its documents.
            reading=Reading(places=("file:///",)),
        )
        try:
            with SparkIndexingJob(spark, config, progress=lambda _: say("round")) as running:
                if job["through"] is None:
                    running.run_available()
                else:
                    follow(running, job["through"])
        except PenstockError as error:
            say(f"failed {error}")
        else:
            say("done")


def follow(job: SparkIndexingJob, through: int) -> None:
    """Take what comes until everything up to `through` of the queue is done."""
    query = job.start()
    while not query.awaitTermination(LOOK_SECONDS):  # type: ignore[arg-type]
        if job.writer.position() >= through and not job.summary.pending:
            query.stop()
    job.await_end(query)


def say(word: str) -> None:
    print(word.replace("\n", " "), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
