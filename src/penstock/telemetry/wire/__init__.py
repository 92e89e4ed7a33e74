"""Bytes as they arrive: limits, decompression, and protobuf walked without objects."""
