"""The runs behind commands: what each opens, starts, waits for and reports."""
