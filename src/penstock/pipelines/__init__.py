"""Everything on Spark, and the only room that imports pyspark.

What stands here today is the ground Spark needs: a Java runtime that the user never has to install.
"""

from penstock.pipelines.java import JavaRuntime, find_java

__all__ = ["JavaRuntime", "find_java"]
