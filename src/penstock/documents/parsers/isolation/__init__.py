"""What a parser's process gives up: namespaces, files, system calls, resources. Other processes may give up the same."""

from penstock.documents.parsers.isolation.confinement import Layer, confine, confine_with_threads, own_pipes

__all__ = ["Layer", "confine", "confine_with_threads", "own_pipes"]
