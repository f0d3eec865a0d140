"""The limit that binds, in recorded trees. Real control groups: test_real_cgroup.py."""

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.machine.file_tree import FileTree
from stoker.machine.memory import Meter, ask_c_library, parse_meminfo, read_memory
from stoker.machine.memory_group import COUNTERS, NO_LIMIT, parse_counters, parse_pressure
from stoker.model.machine import LimitKind, Memory, Pressure

Record = Callable[[Mapping[str, str]], FileTree]

MB = 1 << 20
GB = 1 << 30
MEMINFO = """\
MemTotal:       16777216 kB
MemFree:         1048576 kB
MemAvailable:   12582912 kB
SwapTotal:       2097152 kB
SwapFree:        1048576 kB
"""
PRESSURE = (
    "some avg10={} avg60=0.00 avg300=0.00 total=1\nfull avg10={} avg60=0.00 avg300=0.00 total=1\n"
)
V1_MOUNT = "37 33 0:34 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
V2_MOUNT = "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"
V1_NO_LIMIT = 9223372036854771712


def v1(groups: Mapping[str, Mapping[str, object]], path: str) -> dict[str, str]:
    """The files of a version 1 host; a group's keys are file names without ``memory.``"""
    return _host("/sys/fs/cgroup/memory", f"4:memory:{path}\n0::/\n", V1_MOUNT, groups)


def v2(groups: Mapping[str, Mapping[str, object]], path: str) -> dict[str, str]:
    return _host("/sys/fs/cgroup", f"0::{path}\n", V2_MOUNT, groups)


def _host(
    mount: str, membership: str, mounts: str, groups: Mapping[str, Mapping[str, object]]
) -> dict[str, str]:
    files = {
        f"{mount}{group}/memory.{name}": f"{value}\n"
        for group, values in groups.items()
        for name, value in values.items()
    }
    proc = {
        "/proc/meminfo": MEMINFO,
        "/proc/self/cgroup": membership,
        "/proc/self/mountinfo": mounts,
        "/proc/pressure/memory": PRESSURE.format("1.50", "0.25"),
    }
    return proc | files


def test_without_control_groups_physical_memory_binds(record: Record) -> None:
    tree = record({"/proc/meminfo": MEMINFO})
    memory = read_memory(tree)
    assert (memory.total, memory.available) == (16 * GB, 12 * GB)
    assert (memory.swap_total, memory.swap_free) == (2 * GB, GB)
    assert memory.limit.kind is LimitKind.PHYSICAL
    assert (memory.limit.limit, memory.limit.used) == (16 * GB, 4 * GB)
    assert memory.pressure is None
    assert tree.notes == ()


def test_v1_takes_the_smallest_limit_and_leaves_cache_out_of_what_is_used(record: Record) -> None:
    statistics = (
        f"cache 1\ntotal_inactive_file {300 * MB}\ntotal_active_file {200 * MB}\n"
        f"total_mapped_file {150 * MB}\ntotal_shmem {50 * MB}"
    )
    tree = record(
        v1(
            {
                "": {"limit_in_bytes": V1_NO_LIMIT, "usage_in_bytes": 9 * GB},
                "/job": {"limit_in_bytes": 2 * GB, "usage_in_bytes": GB, "stat": statistics},
                "/job/step": {"limit_in_bytes": 4 * GB, "usage_in_bytes": MB},
            },
            "/job/step",
        )
    )
    limit = read_memory(tree).limit
    assert limit.kind is LimitKind.CGROUP_V1
    assert limit.where == "/sys/fs/cgroup/memory/job"
    assert (limit.limit, limit.used) == (2 * GB, GB - 400 * MB)
    assert tree.notes == ()


def test_v1_reports_a_limit_that_is_not_visible_to_us(record: Record) -> None:
    """A container sees only its own group; the pod that contains it may have a smaller limit."""
    group = {
        "limit_in_bytes": V1_NO_LIMIT,
        "usage_in_bytes": GB,
        "stat": f"hierarchical_memory_limit {3 * GB}",
    }
    files = v1({"": group}, "/docker/0123")
    files["/proc/self/mountinfo"] = V1_MOUNT.replace(" / /sys", " /docker/0123 /sys")
    limit = read_memory(record(files)).limit
    assert (limit.where, limit.limit) == ("/sys/fs/cgroup/memory", 3 * GB)


def test_v2_in_a_container_with_a_namespace_of_its_own(record: Record) -> None:
    group = {
        "max": 8 * GB,
        "high": "max",
        "current": 3 * GB,
        "stat": f"anon 5\nfile_mapped {4 * MB}\nshmem {MB}\ninactive_file {GB}\n"
        f"active_file {GB}\nslab_reclaimable {MB}",
        "pressure": PRESSURE.format("30.00", "10.00").strip(),
    }
    reading = read_memory(record(v2({"": group}, "/")))
    assert reading.limit.kind is LimitKind.CGROUP_V2
    assert (reading.limit.limit, reading.limit.used) == (8 * GB, GB + 2 * MB)
    assert reading.available == 7 * GB - 2 * MB
    assert reading.pressure == Pressure(some=30.0, full=10.0)


def test_v2_high_binds_where_it_is_smaller(record: Record) -> None:
    files = v2({"/job": {"max": 8 * GB, "high": 6 * GB, "current": 0}}, "/job")
    assert read_memory(record(files)).limit.limit == 6 * GB


def test_a_larger_limit_that_is_fuller_leaves_less_free(record: Record) -> None:
    files = v2(
        {
            "/slice": {"max": 10 * GB, "current": 9 * GB},
            "/slice/job": {"max": 4 * GB, "current": GB},
        },
        "/slice/job",
    )
    reading = read_memory(record(files))
    assert (reading.limit.limit, reading.limit.free) == (4 * GB, 3 * GB)
    assert reading.available == GB


def test_others_on_the_machine_leave_less_free(record: Record) -> None:
    reading = read_memory(record(v2({"/job": {"max": 15 * GB, "current": GB}}, "/job")))
    assert reading.limit.limit == 15 * GB
    assert reading.available == 12 * GB


def test_of_equal_limits_the_outer_one_binds(record: Record) -> None:
    files = v2(
        {
            "/slice": {"max": 4 * GB, "current": 3 * GB},
            "/slice/job": {"max": 4 * GB, "current": GB},
        },
        "/slice/job",
    )
    assert read_memory(record(files)).limit.where == "/sys/fs/cgroup/slice"


def test_a_limit_above_physical_memory_does_not_bind(record: Record) -> None:
    reading = read_memory(record(v2({"/job": {"max": 64 * GB, "current": GB}}, "/job")))
    assert reading.limit.kind is LimitKind.PHYSICAL


@pytest.mark.parametrize(
    ("set_at", "killed"),
    [("", False), ("/slice", True), ("/slice/job", True), (None, False)],
    ids=["outside the limit", "at the limit", "inside the limit", "nowhere"],
)
def test_a_group_is_killed_as_a_whole_when_the_limit_is_on_its_parent(
    record: Record, set_at: str | None, killed: bool
) -> None:
    groups: dict[str, dict[str, object]] = {
        "": {"current": 0},
        "/slice": {"max": 4 * GB, "current": 0, "oom.group": 0},
        "/slice/job": {"max": "max", "current": 0, "oom.group": 0},
    }
    if set_at is not None:
        groups[set_at]["oom.group"] = 1
    assert read_memory(record(v2(groups, "/slice/job"))).limit.kills_group is killed


def test_a_group_dies_as_one_when_the_whole_machine_runs_out(record: Record) -> None:
    reading = read_memory(record(v2({"/job": {"max": "max", "oom.group": 1}}, "/job")))
    assert reading.limit.kind is LimitKind.PHYSICAL
    assert reading.limit.kills_group


@pytest.mark.parametrize("garbage", ["", "lots", "-5", "1 2", "\x00\xff", "9" * 5000])
@pytest.mark.parametrize("file", ["max", "high", "current", "stat", "oom.group"])
def test_garbage_in_a_file_is_noted_and_the_rest_works(
    record: Record, file: str, garbage: str
) -> None:
    inner = {"max": 4 * GB, "high": 4 * GB, "current": GB, "stat": "anon 1", file: garbage}
    tree = record(v2({"/a": {"max": 6 * GB, "current": 2 * GB}, "/a/b": inner}, "/a/b"))
    reading = read_memory(tree)
    assert reading.limit.limit in (4 * GB, 6 * GB)
    assert reading.available in (3 * GB, 4 * GB, 0)
    told = [note for note in tree.notes if f"/sys/fs/cgroup/a/b/memory.{file} " in note]
    assert bool(told) == (file != "stat")


def test_a_limit_holds_even_if_its_usage_cannot_be_read(record: Record) -> None:
    tree = record(v2({"/job": {"max": 6 * GB, "current": "?"}}, "/job"))
    limit = read_memory(tree).limit
    assert (limit.limit, limit.used) == (6 * GB, 4 * GB)
    assert len(tree.notes) == 1


def test_files_that_cannot_be_read_are_noted(record: Record) -> None:
    files = v2({"/job": {"max": 6 * GB, "current": GB}}, "/job")
    tree = record(files | {"/sys/fs/cgroup/job/memory.stat/": ""})
    reading = read_memory(tree)
    assert (reading.limit.limit, reading.limit.used) == (6 * GB, GB)
    assert tree.notes == ("cannot read /sys/fs/cgroup/job/memory.stat: Is a directory",)


def test_without_usable_meminfo_the_c_library_is_asked(record: Record) -> None:
    tree = record({"/proc/meminfo": "MemTotal: many kB\n"})
    assert read_memory(tree).total == ask_c_library().total
    assert tree.notes == ("/proc/meminfo does not say how much memory is available",)


def test_a_limit_that_changes_is_followed(record: Record) -> None:
    tree = record(
        v2({"/a": {"max": "max", "current": GB}, "/a/b": {"max": 8 * GB, "current": GB}}, "/a/b")
    )
    with Meter(tree) as meter:
        assert meter.reading().limit.where == "/sys/fs/cgroup/a/b"
        tree.path("/sys/fs/cgroup/a/memory.max").write_text(f"{2 * GB}\n")
        assert meter.reading().limit.where == "/sys/fs/cgroup/a"
        assert meter.reading().available == GB
        tree.path("/sys/fs/cgroup/a/memory.max").write_text("max\n")
        tree.path("/sys/fs/cgroup/a/b/memory.max").write_text("max\n")
        assert meter.reading().limit.kind is LimitKind.PHYSICAL


def test_a_closed_meter_holds_no_files(record: Record) -> None:
    descriptors = Path("/proc/self/fd")
    tree = record(v2({"/job": {"max": GB, "current": 0, "stat": "anon 1"}}, "/job"))
    before = len(list(descriptors.iterdir()))
    with Meter(tree) as meter:
        meter.reading()
        assert len(list(descriptors.iterdir())) > before
    assert len(list(descriptors.iterdir())) == before


sizes = st.integers(0, 40 * GB)
limits = st.one_of(st.none(), sizes)


@given(version=st.sampled_from((1, 2)), levels=st.lists(st.tuples(limits, sizes), max_size=5))
def test_the_smallest_limit_is_always_found(
    record: Record, version: int, levels: list[tuple[int | None, int]]
) -> None:
    groups: dict[str, dict[str, object]] = {}
    path = ""
    for number, (limit, usage) in enumerate(levels):
        path += f"/g{number}"
        groups[path] = (
            {"limit_in_bytes": V1_NO_LIMIT if limit is None else limit, "usage_in_bytes": usage}
            if version == 1
            else {"max": "max" if limit is None else limit, "current": usage}
        )
    host = v1 if version == 1 else v2
    reading = read_memory(record(host(groups, path or "/")))
    set_limits = [(limit, usage) for limit, usage in levels if limit is not None]
    assert reading.limit.limit == min(16 * GB, *(limit for limit, _ in set_limits), 16 * GB)
    free = [max(0, limit - usage) for limit, usage in set_limits if limit < 16 * GB]
    assert reading.available == min(12 * GB, *free, 12 * GB)


@given(st.dictionaries(st.sampled_from(COUNTERS), st.integers(0, NO_LIMIT)))
def test_counters_are_read_back(counters: dict[str, int]) -> None:
    text = "".join(f"{name} {value}\nother_{name} 1\n" for name, value in counters.items())
    assert parse_counters(text) == counters


def test_pressure_is_that_of_the_last_ten_seconds() -> None:
    assert parse_pressure(PRESSURE.format("12.34", "0.50")) == Pressure(some=12.34, full=0.5)
    assert parse_pressure("some avg10=1.00 avg60=0.00 avg300=0.00 total=1\n") is None


def test_mapped_files_are_not_available() -> None:
    text = "MemTotal: 100 kB\nMemAvailable: 80 kB\nMapped: 30 kB\nShmem: 10 kB\n"
    assert parse_meminfo(text) == Memory.without_groups(total=102400, available=60 << 10)


def test_available_is_never_more_than_there_is() -> None:
    text = "MemTotal: 100 kB\nMemAvailable: 200 kB\n"
    assert parse_meminfo(text) == Memory.without_groups(total=102400, available=102400)
