"""From the queue to a sink: fetching in order, the cursor, dead letters, and the fenced consumer."""
