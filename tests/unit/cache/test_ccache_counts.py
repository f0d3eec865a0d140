"""Counting hits in the log of ccache."""

import os
import subprocess
from pathlib import Path

from conftest import Need
from stoker.cache.ccache import RunCounts


def test_hits_are_counted_once(need: Need, tmp_path: Path) -> None:
    ccache, compiler = need("ccache"), need("cc")
    log, source = tmp_path / "log", tmp_path / "a.c"
    source.write_text("int a;\n")
    env = {**os.environ, "CCACHE_DIR": str(tmp_path / "cache"), "CCACHE_STATSLOG": str(log)}
    env.pop("CCACHE_DISABLE", None)
    hits = RunCounts(log)
    assert hits.use().total.hits == 0
    command = [ccache, compiler, "-c", str(source), "-o", str(tmp_path / "a.o")]
    for expected in (0, 1, 2):
        subprocess.run(command, env=env, check=True)
        assert hits.use().total.hits == expected
        assert hits.use().total.hits == expected


def test_a_line_that_is_being_written_waits(tmp_path: Path) -> None:
    log = tmp_path / "log"
    hits = RunCounts(log)
    log.write_text("# a.c\ndirect_cache_h")
    assert hits.use().total.hits == 0
    log.write_text("# a.c\ndirect_cache_hit\npreprocessed_cache_hit\ncache_miss\n")
    assert hits.use().total.hits == 2
