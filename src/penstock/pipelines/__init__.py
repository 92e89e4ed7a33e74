"""Everything on Spark, and the only room that imports pyspark: sessions, sources, and the Java they need.

Only the Java finder is imported with the package: `penstock doctor` must work where Spark does not.
"""

from penstock.pipelines.java import JavaRuntime, find_java

__all__ = ["JavaRuntime", "find_java"]
