"""The indexing job as a program for `spark-submit`: takes what the queue of a store holds now, or all that comes.

    spark-submit --master spark://host:7077 examples/spark/index_job.py s3://bucket/penstock

Master, memory and cores are `spark-submit`'s to say. Whoever notifies puts events on the queue; this program is the one
consumer. Run it again after any end, on any machine: it goes on where it was.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from penstock.indexing import Embedding, IndexingConfig, Reading
from penstock.pipelines import SparkIndexingJob, open_session


def main() -> None:
    parser = argparse.ArgumentParser(description="Index documents on a Spark cluster.")
    parser.add_argument("store", help="URL of the store that holds the queue and the vectors")
    parser.add_argument("--checkpoint", help="a folder for Spark's checkpoint; without it a temporary one")
    parser.add_argument("--embedding-url", help="an OpenAI-compatible endpoint; the embedded model without one")
    parser.add_argument("--embedding-key-file", type=Path, help="a file that holds the endpoint's key")
    parser.add_argument(
        "--allow", action="append", default=[], metavar="URL", help="a folder or bucket that may be read; repeatable"
    )
    parser.add_argument("--follow", action="store_true", help="go on with what comes, until the program is stopped")
    given = parser.parse_args()

    # From a file: what is on the command line, everybody on the machine can read.
    key = given.embedding_key_file.read_text().strip() if given.embedding_key_file else None
    spark = open_session(None, name="penstock-index")
    # Folders must be named; buckets may be, and then only those are read.
    only = any(not url.startswith("file:") for url in given.allow)
    config = IndexingConfig(
        given.store,
        given.checkpoint,
        embedding=Embedding(given.embedding_url, key),
        reading=Reading(places=tuple(given.allow), places_only=only),
    )
    with SparkIndexingJob(spark, config) as job:
        if given.follow:
            job.follow()
        else:
            job.run_available()
        told = job.summary
    sys.stdout.write(f"{told.documents} documents, {told.chunks} chunks, {len(told.set_aside)} set aside\n")
    spark.stop()


if __name__ == "__main__":
    main()
