"""The sandbox of a parser process: namespaces, files, system calls, resources. Other processes may use it too."""

from penstock.documents.parsers.isolation.confinement import Layer, confine, confine_with_threads, own_pipes

__all__ = ["Layer", "confine", "confine_with_threads", "own_pipes"]
