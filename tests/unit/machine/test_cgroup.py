from collections.abc import Callable, Mapping
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.machine.cgroups import ControlGroup, groups, parse_membership
from stoker.machine.counters import processes_allowed
from stoker.machine.file_tree import FileTree

V1 = "37 33 0:34 {root} /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
V2 = "30 23 0:26 {root} /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"
HYBRID = V1 + "43 33 0:40 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"

# What /proc/self/cgroup and mountinfo say, the folders there are, and those that hold for us.
HOSTS = {
    "v1": (
        "4:memory:/user/me\n3:cpuset:/\n",
        V1.format(root="/"),
        ["/sys/fs/cgroup/memory/user/me/"],
        (
            1,
            [
                "/sys/fs/cgroup/memory/user/me",
                "/sys/fs/cgroup/memory/user",
                "/sys/fs/cgroup/memory",
            ],
        ),
    ),
    "v2": (
        "0::/user.slice/me.scope\n",
        V2.format(root="/"),
        ["/sys/fs/cgroup/user.slice/me.scope/"],
        (2, ["/sys/fs/cgroup/user.slice/me.scope", "/sys/fs/cgroup/user.slice", "/sys/fs/cgroup"]),
    ),
    "hybrid": (
        "4:memory:/a\n0::/\n",
        HYBRID.format(root="/"),
        ["/sys/fs/cgroup/memory/a/", "/sys/fs/cgroup/unified/"],
        (1, ["/sys/fs/cgroup/memory/a", "/sys/fs/cgroup/memory"]),
    ),
    "docker, v1, the host's namespace": (
        "4:cpu,memory:/docker/0123\n",
        V1.format(root="/docker/0123"),
        ["/sys/fs/cgroup/memory/"],
        (1, ["/sys/fs/cgroup/memory"]),
    ),
    "docker, v2, a namespace of its own": (
        "0::/\n",
        V2.format(root="/"),
        ["/sys/fs/cgroup/"],
        (2, ["/sys/fs/cgroup"]),
    ),
    "docker, v2, the host's namespace and hierarchy": (
        "0::/system.slice/docker-0123.scope\n",
        V2.format(root="/"),
        ["/sys/fs/cgroup/system.slice/docker-0123.scope/"],
        (
            2,
            [
                "/sys/fs/cgroup/system.slice/docker-0123.scope",
                "/sys/fs/cgroup/system.slice",
                "/sys/fs/cgroup",
            ],
        ),
    ),
    "a group inside the container's": (
        "4:memory:/docker/0123/build\n",
        V1.format(root="/docker/0123"),
        ["/sys/fs/cgroup/memory/build/"],
        (1, ["/sys/fs/cgroup/memory/build", "/sys/fs/cgroup/memory"]),
    ),
    "a path that the mount does not show": (
        "0::/kubepods/pod1/0123\n",
        V2.format(root="/"),
        ["/sys/fs/cgroup/kubepods/"],
        (2, ["/sys/fs/cgroup/kubepods", "/sys/fs/cgroup"]),
    ),
    "a mount of some other part": (
        "0::/pod1/0123\n",
        V2.format(root="/pod"),
        ["/sys/fs/cgroup/"],
        (2, ["/sys/fs/cgroup"]),
    ),
    "a group outside our namespace": (
        "0::/../sibling\n",
        V2.format(root="/.."),
        ["/sys/fs/cgroup/", "/sys/fs/sibling/"],
        (2, ["/sys/fs/cgroup"]),
    ),
    "a group removed under us": (
        "0::/job/step (deleted)\n",
        V2.format(root="/"),
        ["/sys/fs/cgroup/job/"],
        (2, ["/sys/fs/cgroup/job", "/sys/fs/cgroup"]),
    ),
    "mounted twice, first without our part": (
        "4:memory:/a/b\n",
        V1.format(root="/x").replace("/memory rw", "/other rw") + V1.format(root="/a"),
        ["/sys/fs/cgroup/other/", "/sys/fs/cgroup/memory/b/"],
        (1, ["/sys/fs/cgroup/memory/b", "/sys/fs/cgroup/memory"]),
    ),
    "no control groups": ("", "", [], (0, [])),
    "the controller is not mounted": ("4:memory:/a\n", "", [], (0, [])),
}


@pytest.mark.parametrize("host", HOSTS)
def test_the_groups_that_hold_for_us(
    host: str, record: Callable[[Mapping[str, str]], FileTree]
) -> None:
    membership, mounts, folders, (version, expected) = HOSTS[host]
    files = {"/proc/self/cgroup": membership, "/proc/self/mountinfo": mounts}
    tree = record(files | dict.fromkeys(folders, ""))
    assert groups(tree, "memory") == tuple(
        ControlGroup(version=version, folder=folder) for folder in expected
    )
    assert tree.notes == ()


def test_a_path_may_hold_colons() -> None:
    assert parse_membership("1:name=systemd:/a:b/c\n0::/d\n") == {
        "name=systemd": "/a:b/c",
        "": "/d",
    }


@given(st.text(), st.text())
def test_any_path_in_any_mount_ends_inside_the_mount(
    record: Callable[[Mapping[str, str]], FileTree], path: str, root: str
) -> None:
    line = path.replace("\n", "")
    shown = "/" + "".join(f"\\{ord(c):03o}" if c in " \t\n\\" else c for c in root)
    tree = record(
        {
            "/proc/self/cgroup": f"0::/{line}\n",
            "/proc/self/mountinfo": V2.format(root=shown),
            "/sys/fs/cgroup/": "",
        }
    )
    assert groups(tree, "memory")[-1].folder == "/sys/fs/cgroup"


PIDS_V1 = {
    "/proc/self/cgroup": "2:pids:/a/b\n",
    "/proc/self/mountinfo": "1 2 0:3 / /cg rw - cgroup cgroup rw,pids\n",
}
PIDS_V2 = {
    "/proc/self/cgroup": "0::/a/b\n",
    "/proc/self/mountinfo": "1 2 0:3 / /cg rw - cgroup2 cgroup2 rw\n",
}


@pytest.mark.parametrize("groups", [PIDS_V1, PIDS_V2], ids=["v1", "v2"])
def test_the_processes_that_all_groups_still_allow(
    record: Callable[[Mapping[str, str]], FileTree],
    groups: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0)
    assert processes_allowed(record(groups)) == inf
    outer = {"/cg/a/pids.max": "100\n", "/cg/a/pids.current": "30\n"}
    unlimited = {"/cg/a/b/pids.max": "max\n", "/cg/a/b/pids.current": "20\n"}
    assert processes_allowed(record(groups | outer | unlimited)) == 70
    tight = {"/cg/a/b/pids.max": "10\n", "/cg/a/b/pids.current": "20\n"}
    assert processes_allowed(record(groups | outer | tight)) == 0
