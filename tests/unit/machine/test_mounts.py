from hypothesis import given
from hypothesis import strategies as st

from stoker.machine.file_tree import Mount, mount_of, parse_mounts

LINES = r"""
29 1 254:0 / / rw,relatime - ext4 /dev/vda rw,discard
31 29 0:28 / /mnt/with\040space\134 rw shared:1 master:2 - tmpfs none rw,size=4k
37 33 0:34 /docker/0123 /sys/fs/cgroup/memory ro,nosuid - cgroup cgroup rw,memory,hugetlb
"""


def test_fields_optional_fields_and_escapes() -> None:
    assert parse_mounts(LINES) == (
        Mount(root="/", point="/", filesystem="ext4", options=("rw", "discard")),
        Mount(root="/", point="/mnt/with space\\", filesystem="tmpfs", options=("rw", "size=4k")),
        Mount(
            root="/docker/0123",
            point="/sys/fs/cgroup/memory",
            filesystem="cgroup",
            options=("rw", "memory", "hugetlb"),
        ),
    )


def test_the_deepest_mount_holds_a_path_and_the_last_one_covers() -> None:
    def mount(point: str, filesystem: str) -> Mount:
        return Mount(root="/", point=point, filesystem=filesystem, options=())

    mounts = (mount("/", "ext4"), mount("/tmp", "xfs"), mount("/tmp", "tmpfs"), mount("/t", "nfs"))
    assert mount_of("/tmp/build", mounts) == mounts[2]
    assert mount_of("/tmpfiles", mounts) == mounts[0]
    assert mount_of("/anything", ()) is None


@given(st.lists(st.text("abc/ \\#\t\n:-é", min_size=1), min_size=1))
def test_what_the_kernel_writes_is_read_back(points: list[str]) -> None:
    def escape(text: str) -> str:
        return "".join(f"\\{ord(c):03o}" if c in " \t\n\\#" else c for c in text)

    text = "".join(f"1 2 0:3 / {escape(point)} rw - tmpfs none rw\n" for point in points)
    assert [mount.point for mount in parse_mounts(text)] == points
