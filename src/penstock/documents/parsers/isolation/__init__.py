"""What a parser's process gives up: namespaces, files, system calls, resources."""
