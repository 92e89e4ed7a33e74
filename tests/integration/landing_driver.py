"""A driver of the telemetry job to be killed: opens a session, lands what waits, and says `round` after each round.

Arguments: Spark's master, its settings as JSON, and the URL of the telemetry. `ready` is said once the session is open,
`done` at the end.
"""

import json
import sys
from typing import Any

from tests.spark_start import open_test_session

from penstock.landing import LandingLimits, TelemetryConfig
from penstock.observability import Observer, names
from penstock.observability.names import Metric
from penstock.pipelines import TelemetryJob

# Rounds of a few batches: there is something to kill in between.
LIMITS = LandingLimits(batches_per_round=3, bytes_per_task=2000, interval_seconds=0.0)


class Telling(Observer):
    def observe(self, metric: Metric, value: float, **labels: Any) -> None:
        if metric == names.LANDING_ROUND_SECONDS:
            say("round")


def main(master: str, settings: str, url: str) -> None:
    spark = open_test_session(master, json.loads(settings))
    say("ready")
    with TelemetryJob(spark, TelemetryConfig(url, limits=LIMITS), observer=Telling()) as job:
        job.run_available()
    say("done")
    spark.stop()


def say(word: str) -> None:
    print(word, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
