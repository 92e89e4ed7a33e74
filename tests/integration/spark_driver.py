"""A Spark driver to be killed: takes the queue into Parquet until it is empty, then ends.

Arguments: the store's URL and a folder for checkpoint and output.
"""

import sys

from tests.spark_start import open_test_session

from penstock.pipelines.queue_source.buffer_source import BufferDataSource


def main(url: str, folder: str) -> None:
    spark = open_test_session("local[2]")
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
