"""Reading a collection at one moment: its state, rows by id, values of rows, rows that a filter selects."""
