"""A Spark driver to be killed: takes the queue into Parquet until it is empty, then ends.

Arguments: the store's URL and a folder for checkpoint and output.
"""

import os
import sys
from pathlib import Path

from penstock.pipelines.buffer_source import BufferDataSource
from penstock.pipelines.session import open_session, prepare_environment


def main(url: str, folder: str) -> None:
    prepare_environment(os.environ, Path(sys.prefix) / "share" / "penstock" / "java")
    spark = open_session("local[2]", settings={"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1"})
    spark.dataSource.register(BufferDataSource)
    stream = spark.readStream.format("penstock-buffer").options(url=url, maxBatchesPerTrigger="3").load()
    query = (
        stream.writeStream.format("parquet")
        .option("path", f"{folder}/out")
        .option("checkpointLocation", f"{folder}/checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
