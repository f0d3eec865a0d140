import shlex
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.machine.file_tree import FileTree
from stoker.machine.system import (
    parse_os_release,
    read_container,
    read_libc,
    read_musl,
    read_oomd,
    read_system,
)

Record = Callable[[Mapping[str, str]], FileTree]

UBUNTU = """\
# what is here
PRETTY_NAME="Ubuntu 24.04.1 LTS"
NAME="Ubuntu"
VERSION_ID="24.04"
ID=ubuntu
ID_LIKE="debian other"
BROKEN="never closed
"""


def test_os_release(record: Record) -> None:
    system = read_system(record({"/etc/os-release": UBUNTU}), {})
    assert (system.system, system.id, system.version) == ("linux", "ubuntu", "24.04")
    assert system.pretty == "Ubuntu 24.04.1 LTS"
    assert system.like == ("debian", "other")
    assert system.kernel


def test_the_other_place_of_os_release(record: Record) -> None:
    system = read_system(record({"/usr/lib/os-release": "ID=fedora\nNAME='Fedora Linux'\n"}), {})
    assert (system.id, system.pretty) == ("fedora", "Fedora Linux")


def test_a_system_that_does_not_say(record: Record) -> None:
    system = read_system(record({}), {})
    assert (system.id, system.version, system.pretty) == ("linux", "", "Linux")


names = st.from_regex(r"[A-Z_][A-Z0-9_]*", fullmatch=True)
values = st.text(st.characters(exclude_categories=["C", "Z"], include_characters=" '\"\\$"))


@given(st.dictionaries(names, values))
def test_os_release_is_read_back(release: dict[str, str]) -> None:
    text = "".join(f"{name}={shlex.quote(value)}\n" for name, value in release.items())
    assert parse_os_release(text) == release


@pytest.mark.parametrize(
    ("files", "environment", "kind"),
    [
        ({"/run/.containerenv": ""}, {}, "podman"),
        ({"/.dockerenv": ""}, {}, "docker"),
        ({"/.dockerenv": ""}, {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, "kubernetes"),
        ({}, {"container": "systemd-nspawn"}, "systemd-nspawn"),
        ({"/proc/1/cgroup": "0::/system.slice/docker-0123.scope\n"}, {}, "docker"),
        ({"/proc/1/cgroup": "4:memory:/kubepods/burstable/pod1\n"}, {}, "kubernetes"),
        ({"/.singularity.d/": ""}, {}, "apptainer"),
        ({"/proc/1/cgroup": "0::/init.scope\n"}, {}, None),
    ],
)
def test_containers(
    record: Record, files: dict[str, str], environment: dict[str, str], kind: str | None
) -> None:
    assert read_container(record(files), environment) == kind


def test_musl_is_asked_through_its_loader(
    record: Record, script: Callable[[str, str], Path], tmp_path: Path
) -> None:
    script("lib/ld-musl-x86_64.so.1", 'echo "musl libc (x86_64)\nVersion 1.2.4" >&2; exit 1')
    assert read_musl(FileTree(tmp_path)) == "musl 1.2.4"
    assert read_musl(record({})) is None
    assert read_musl(record({"/lib/ld-musl-arm.so.1": "no program"})) is None


def test_the_c_library_of_this_process() -> None:
    libc = read_libc(FileTree())
    assert libc is None or libc.split()[0] in ("glibc", "musl")


def test_oomd_runs_while_its_service_has_a_group(record: Record) -> None:
    mounts = {"/proc/self/mountinfo": "1 2 0:3 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"}
    assert not read_oomd(record(mounts))
    service = {"/sys/fs/cgroup/system.slice/systemd-oomd.service/": ""}
    assert read_oomd(record(mounts | service))
    assert not read_oomd(record(service))
