"""A driver of the indexing job to be killed: takes what the queue holds in small rounds, then ends.

Arguments: the store's URL and a folder for the checkpoint.
"""

import os
import sys
from pathlib import Path

from penstock.documents import ChunkingConfig
from penstock.pipelines.indexing import IndexingConfig, IndexingJob
from penstock.pipelines.planning import RoundLimits
from penstock.pipelines.session import open_session, prepare_environment

# Small, so that a short text has many cells and a document many rounds.
CHUNKING = ChunkingConfig(target_tokens=60, max_tokens=90, overlap_tokens=10, cell_bytes=1024)


def main(url: str, folder: str) -> None:
    prepare_environment(os.environ, Path(sys.prefix) / "share" / "penstock" / "java")
    spark = open_session("local[2]", settings={"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1"})
    config = IndexingConfig(url, f"{folder}/checkpoint", chunking=CHUNKING, rounds=RoundLimits(cells_max=4))

    with IndexingJob(spark, config, progress=lambda _: print("round", flush=True)) as job:
        job.run_available()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
