"""Spark itself: a Java to run it, a home it starts quickly from, its session, and its Python workers."""
