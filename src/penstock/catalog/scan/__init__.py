"""Read the rows of planned files: Parquet through the object store, filtered, with the columns of all files."""
