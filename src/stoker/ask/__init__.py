"""Asks a project's own build what it would compile, in a closed room and without compiling it."""
