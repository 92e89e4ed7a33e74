"""What lies in a time-series store: keys, blocks and states. docs/format/timeseries.md draws every byte."""
