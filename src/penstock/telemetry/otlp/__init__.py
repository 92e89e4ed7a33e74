"""OTLP as protobuf and JSON: decoded into columns, and encoded again."""
