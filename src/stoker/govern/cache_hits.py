"""Counts what ccache found in its cache, from the log of results that it appends to.

Hits never reach the launcher, so that nobody else sees them.
"""

from pathlib import Path

_HITS = (b"direct_cache_hit", b"preprocessed_cache_hit")


class CacheHits:
    def __init__(self, log: Path):
        self._log = log
        self._read = 0
        self._count = 0

    def count(self) -> int:
        """Until now; only what was added since the last call is read."""
        try:
            with self._log.open("rb") as stream:
                stream.seek(self._read)
                lines = stream.read().splitlines(keepends=True)
        except OSError:
            return self._count
        whole = [line for line in lines if line.endswith(b"\n")]
        self._read += sum(map(len, whole))
        self._count += sum(line.rstrip() in _HITS for line in whole)
        return self._count
