"""An expression evaluated: selectors, calls, aggregations, and operators between vectors."""
