"""Files of checked frames, and group commit: what the write-ahead log and `ack.log` stand on."""
