"""Sends metrics, a trace and a log line over OTLP/HTTP, to where `OTEL_EXPORTER_OTLP_ENDPOINT` says."""

from __future__ import annotations

import logging

from opentelemetry import metrics, trace
from opentelemetry._logs import set_logger_provider
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk._logs import LoggerProvider, LoggingHandler
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor


def main() -> None:
    resource = Resource.create({SERVICE_NAME: "shop"})
    meters = MeterProvider(metric_readers=[PeriodicExportingMetricReader(OTLPMetricExporter())], resource=resource)
    tracers = TracerProvider(resource=resource)
    tracers.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    logs = LoggerProvider(resource)
    logs.add_log_record_processor(BatchLogRecordProcessor(OTLPLogExporter()))
    metrics.set_meter_provider(meters)
    trace.set_tracer_provider(tracers)
    set_logger_provider(logs)
    logger = logging.getLogger("shop")
    logger.addHandler(LoggingHandler(logger_provider=logs))
    logger.setLevel(logging.INFO)

    orders = metrics.get_meter("shop").create_counter("orders", description="Orders taken.")
    with trace.get_tracer("shop").start_as_current_span("take an order"):
        orders.add(3, {"country": "CH"})
        logger.info("three orders were taken")

    # Each returns once everything was sent; Penstock has answered only when it is on the disk.
    for provider in (meters, tracers, logs):
        provider.shutdown()
    print("sent")


if __name__ == "__main__":
    main()
