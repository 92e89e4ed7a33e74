"""What the catalog decides: every change to a head, and every plan, as plain functions without I/O."""
