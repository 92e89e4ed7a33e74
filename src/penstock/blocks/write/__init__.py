"""Writing: drafts that end as one write batch, flushes of the coordinator, refusals, and upkeep between writes."""
