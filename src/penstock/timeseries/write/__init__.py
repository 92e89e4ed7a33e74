"""Writing: series become ids, and a tenant's changes one list of puts and deletes."""
