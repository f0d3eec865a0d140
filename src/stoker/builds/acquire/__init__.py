"""Fetches source trees: from a folder, an archive, git or the package index.

What was named (``naming``) is brought here (``archive``, ``git``, the package index) and kept whole
or not at all (``kept_sources``). What a tree holds and how it is built is not known here.
"""
