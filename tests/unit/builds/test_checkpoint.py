"""Shards are the same in every job, and nothing that a checkpoint holds is trusted."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from conftest import Stoker
from governed_steps import record
from stoker.builds.jobs.checkpoint import Checkpoint
from stoker.builds.jobs.job import FarmPart, Job, names_native
from stoker.builds.jobs.notes import BuildIdentity
from stoker.builds.jobs.shards import Piece, Shard, compile_pieces, parse_shard, split_pieces
from stoker.builds.jobs.simulation import simulate_farm
from stoker.govern.history.store import History
from stoker.govern.history.trace import write_trace
from stoker.model.caching import CacheEngine, Chain, ChainOptions, ChainPart
from stoker.model.errors import MissingError, StorageError, UsageError
from stoker.model.govern import Role, Timing, Trace
from stoker.source.ninja import Edge

GIB = 1024**3
HERE = BuildIdentity(parts={"C++ compiler": "12.2.0", "torch": "2.9.1"})
OTHER = BuildIdentity(parts={"C++ compiler": "13.1.0", "torch": "2.9.1"})
PIECES = tuple(Piece(output=f"{n}.o", cost=1.0 + n) for n in range(9))


@pytest.fixture
def checkpoint(tmp_path: Path) -> Checkpoint:
    return Checkpoint(str(tmp_path / "kept"), most_bytes=1000)


@given(st.lists(st.floats(0.1, 1e4), max_size=60), st.integers(1, 12))
def test_every_step_is_in_one_shard_and_none_has_much_more_work(
    costs: list[float], shards: int
) -> None:
    pieces = [Piece(output=f"{n}.o", cost=cost) for n, cost in enumerate(costs)]
    shares = split_pieces(pieces, shards)
    assert sorted(output for share in shares for output in share) == sorted(
        piece.output for piece in pieces
    )
    assert shares == split_pieces(pieces[::-1], shards)
    known = {piece.output: piece.cost for piece in pieces}
    loads = [sum(known[output] for output in share) for share in shares]
    bound = max([sum(costs) / shards, *costs])
    assert max(loads) <= 4 / 3 * bound + 1e-6 or max(loads) <= 2 * bound


def test_steps_with_much_memory_are_spread() -> None:
    """Two kernels that fill a runner each must not be in one shard beside light steps."""
    heavy = [Edge(outputs=(f"k{n}.o",), rule="nvcc_compile", needs=(f"k{n}.cu",)) for n in range(2)]
    light = [Edge(outputs=(f"l{n}.o",), rule="cxx_compile", needs=(f"l{n}.cpp",)) for n in range(4)]
    link = Edge(outputs=("lib.so",), rule="link", needs=("k0.o",))
    edges = [*heavy, *light, link]
    known = {edge.outputs[0]: Timing(seconds=10, peak=16 * GIB) for edge in heavy}
    known |= {edge.outputs[0]: Timing(seconds=10, peak=GIB) for edge in light}
    pieces = compile_pieces(edges, range(len(edges)), known)
    shares = split_pieces(pieces, 2)
    assert [sum(output.startswith("k") for output in share) for share in shares] == [1, 1]
    assert "lib.so" not in {piece.output for piece in pieces}


@pytest.mark.parametrize("text", ["0/4", "5/4", "4", "a/b", "1/0", "-1/4"])
def test_a_shard_that_does_not_exist_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_shard(text)
    assert parse_shard("3/8") == Shard(number=3, of=8)


def test_the_first_job_decides_the_split(checkpoint: Checkpoint) -> None:
    """Later jobs know more about times; they must not split in another way."""
    first = checkpoint.notes(HERE).shares(PIECES, 3)
    others = tuple(Piece(output=piece.output, cost=10 - piece.cost) for piece in PIECES)
    assert checkpoint.notes(HERE).shares(others, 3) == first
    assert checkpoint.notes(OTHER).shares(others, 3) == split_pieces(others, 3)


@pytest.mark.parametrize("harm", ["cut", "another", "missing step"])
def test_a_damaged_split_is_made_again(checkpoint: Checkpoint, tmp_path: Path, harm: str) -> None:
    first = checkpoint.notes(HERE).shares(PIECES, 3)
    (path,) = tmp_path.glob("kept/builds/*/split-*.json")
    text = path.read_text()
    path.write_text(
        {"cut": text[:40], "another": "[]", "missing step": text.replace('"3.o"', '"x.o"')}[harm]
    )
    assert checkpoint.notes(HERE).shares(PIECES, 3) == first


def test_outputs_that_are_not_utf8_are_split(checkpoint: Checkpoint) -> None:
    names = [b"a\xff.o".decode(errors="surrogateescape"), "b.o"]
    pieces = [Piece(output=name, cost=1.0) for name in names]
    shares = checkpoint.notes(HERE).shares(pieces, 2)
    assert sorted(name for share in shares for name in share) == sorted(names)
    assert checkpoint.notes(HERE).shares(pieces, 2) == shares


def test_a_build_with_another_compiler_is_not_finished(checkpoint: Checkpoint) -> None:
    job = FarmPart(checkpoint=checkpoint, shard=Shard(number=1, of=2))
    Job(job, OTHER).ended(4)
    last = FarmPart(checkpoint=checkpoint, finish=True)
    with pytest.raises(UsageError, match=r"C\+\+ compiler \(there 13.1.0, here 12.2.0\)"):
        Job(last, HERE)
    assert list(Job(last, OTHER).remarks()) == [
        "shards of 2 that have not ended: 2; what they lack is compiled here"
    ]


def test_many_missing_shards_are_named_as_ranges(checkpoint: Checkpoint) -> None:
    for number in (1, 4, 5):
        part = FarmPart(checkpoint=checkpoint, shard=Shard(number=number, of=600))
        Job(part, HERE).ended(1)
    (text,) = Job(FarmPart(checkpoint=checkpoint, finish=True), HERE).remarks()
    assert text.startswith("shards of 600 that have not ended: 2-3, 6-600;")


def test_an_empty_checkpoint_cannot_be_finished(checkpoint: Checkpoint) -> None:
    with pytest.raises(UsageError, match="has no build"):
        Job(FarmPart(checkpoint=checkpoint, finish=True), HERE)


def test_times_reach_the_next_machine_once(checkpoint: Checkpoint, tmp_path: Path) -> None:
    job = Job(FarmPart(checkpoint=checkpoint), HERE)
    job.begin(Path("/there/build"))
    trace = Trace(what="there", steps=(record("a.o", seconds=7.0),))
    assert list(job.close(trace)) == []
    (tmp_path / "kept" / "builds" / HERE.name / "steps-x.json").write_text("damaged")
    for _ in range(2):
        Job(FarmPart(checkpoint=checkpoint), HERE).begin(Path("/here/build"))
    with History() as history:
        assert [each.wall_s for each in history.recent()] == [7.0]
    assert checkpoint.notes(HERE).timings()["a.o"].seconds == 7.0


def test_a_step_that_a_job_has_ended_is_known_to_the_next_one(checkpoint: Checkpoint) -> None:
    finished, ended = record("a.o", seconds=7.0), record("b.o", seconds=190.0)
    ended = replace(ended, killed=True)
    jobs = [(finished, ended), (replace(finished, wall_s=2.0, killed=True),)]
    for steps in jobs:
        job = Job(FarmPart(checkpoint=checkpoint), HERE)
        job.begin(Path("/there/build"))
        list(job.close(Trace(what="there", steps=steps)))
    timings = checkpoint.notes(HERE).timings()
    assert (timings["a.o"].seconds, timings["b.o"].seconds) == (7.0, 190.0)
    Job(FarmPart(checkpoint=checkpoint), HERE).begin(Path("/here/build"))
    with History() as history:
        found = [(each.step.output, each.wall_s, each.killed) for each in history.recent()]
    assert sorted(found) == [("a.o", 2.0, True), ("a.o", 7.0, False), ("b.o", 190.0, True)]


def test_objects_that_did_not_reach_the_checkpoint_are_noticed(
    checkpoint: Checkpoint, tmp_path: Path
) -> None:
    """A cache that is not asked makes no compile fail. CMake's own tests are not cached."""
    build, objects = tmp_path / "build", tmp_path / "kept" / "objects" / "ab"
    found = record("a.o")
    trace = Trace(what="", steps=(replace(found, step=replace(found.step, directory=str(build))),))
    test = Trace(what="", steps=(replace(found, step=replace(found.step, directory="/a/test")),))

    def told(trace: Trace, *written: str) -> list[str]:
        job = Job(FarmPart(checkpoint=checkpoint), HERE)
        job.begin(build)
        for name in written:
            (objects / name).write_bytes(b"")
        return list(job.close(trace))

    objects.mkdir(parents=True)
    lost = ["the checkpoint got none of the 1 objects that were compiled here"]
    assert told(trace) == lost
    assert told(trace, "one") == []
    assert told(trace, "one") == []  # a damaged one is replaced
    assert told(trace) == lost
    assert told(test) == []


def test_the_objects_that_were_not_used_for_longest_are_deleted(
    checkpoint: Checkpoint, tmp_path: Path
) -> None:
    folder = tmp_path / "kept" / "objects" / "ab"
    folder.mkdir(parents=True)
    for age in range(12):
        (folder / f"{age:02}").write_bytes(bytes(100))
        os.utime(folder / f"{age:02}", (1e9 - age, 1e9 - age))
    assert checkpoint.prune() == 3
    assert sorted(path.name for path in folder.iterdir()) == [f"{n:02}" for n in range(9)]
    assert checkpoint.prune() == 0


def test_no_file_is_deleted_through_a_link(checkpoint: Checkpoint, tmp_path: Path) -> None:
    mine, objects = tmp_path / "mine", tmp_path / "kept" / "objects"
    mine.mkdir()
    (objects / "ab").mkdir(parents=True)
    (objects / "link").symlink_to(mine)
    for folder in (mine, objects / "ab"):
        for number in range(12):
            (folder / f"{number:02}").write_bytes(bytes(100))
    assert checkpoint.prune() == 3
    assert len(list(mine.iterdir())) == 12


def test_commands_for_the_cpu_at_hand_are_found(tmp_path: Path) -> None:
    rules = tmp_path / "CMakeFiles" / "rules.ninja"
    rules.parent.mkdir()
    rules.write_text("command = g++ -march=haswell -DNAME=natives $in\n")
    assert not names_native(tmp_path)
    (tmp_path / "build.ninja").write_text("  FLAGS = -O3 -march=native\n")
    assert names_native(tmp_path)


def test_a_checkpoint_needs_a_cache_that_works(checkpoint: Checkpoint) -> None:
    with pytest.raises(UsageError, match="--cache none"):
        checkpoint.wanted(ChainOptions(cache=CacheEngine.NONE))
    with pytest.raises(UsageError, match="--cache-remote"):
        checkpoint.wanted(ChainOptions(remote="redis://h"))
    with pytest.raises(MissingError):
        checkpoint.check(Chain())
    broken = ChainPart(role="remote", what="none", why="redis is down", unusable=True)
    with pytest.raises(StorageError, match="redis is down"):
        checkpoint.check(Chain(parts=(broken,)))


def test_more_shards_take_less_time_and_long_steps_are_named() -> None:
    steps = [record(f"{n}.o", seconds=60.0, peak=GIB) for n in range(32)]
    steps.append(record("lib", seconds=30.0, needs=["0.o"], role=Role.LINK))
    size = {"cpus": 4, "memory": 16 * GIB}
    one, four = (simulate_farm(steps, shards=count, **size) for count in (1, 4))
    assert four.wall_seconds < 0.4 * one.wall_seconds
    assert one.cpu_seconds == four.cpu_seconds
    limited = simulate_farm(steps, shards=1, limit=150.0, **size)
    assert limited.jobs > 3
    assert not limited.too_long
    assert simulate_farm(steps, shards=1, limit=50.0, **size).too_long


def test_a_build_of_150_s_in_jobs_of_40_s_loses_at_most_a_tenth_of_the_time() -> None:
    lengths = [2.0, 5.0, 8.0, 11.0, 14.0] * 15  # 600 s for four CPUs
    steps = [record(f"{n}.o", seconds=each, peak=GIB) for n, each in enumerate(lengths)]
    found = simulate_farm(steps, shards=1, cpus=4, memory=16 * GIB, limit=40.0)
    assert found.jobs <= 6, "five that compile, and the last one"
    assert found.machine_seconds <= 1.1 * 150
    assert not found.too_long
    longest = [*steps, record("long.o", seconds=60.0, peak=GIB)]
    never = simulate_farm(longest, shards=1, cpus=4, memory=16 * GIB, limit=40.0)
    assert never.too_long == ("long.o",)


def test_the_command_simulates_shards(stoker: Stoker, tmp_path: Path) -> None:
    steps = tuple(record(f"{n}.cpp.o", seconds=60.0, peak=GIB) for n in range(16))
    (tmp_path / "trace.json").write_bytes(write_trace(Trace(what="kiln", steps=steps)))
    words = ["simulate", "trace.json", "--cpus", "4", "--memory", "16G"]
    done = stoker(*words, "--shards", "1,4", "--limit", "6h")
    assert done.returncode == 0, done.stderr
    assert [line.split()[0] for line in done.stdout.splitlines()[2:4]] == ["1", "4"]
    short = stoker(*words, "--shards", "4", "--limit", "30s")
    assert short.returncode == 1
    assert "does not fit into one job: 0.cpp.o" in short.stdout
    assert stoker(*words, "--limit", "6h").returncode == 2
