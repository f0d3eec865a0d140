"""`stoker build` on a disk that is full from one stage on: the error says so, no output is half
written, and the same command succeeds once there is room.
"""

from pathlib import Path

import pytest

from builds import Project, digest
from conftest import Need, Stoker
from small_disks import small_disk

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

# Fills the disk $1 to the last byte, once: the file stays until the test deletes it.
FILL = 'test -e "$1/filled" || { touch "$1/filled"; cat /dev/zero > "$1/filler"; }; true\n'
# What to add to the CMakeLists.txt of mini-wheel, so that the disk is full when a stage works.
STAGES = {
    "configure": "execute_process(COMMAND {fill})",
    "codegen": (
        "add_custom_command(OUTPUT full.txt COMMAND {fill} COMMAND touch full.txt)\n"
        "add_custom_target(full DEPENDS full.txt)\nadd_dependencies(generate_parts full)"
    ),
    "compile": (
        "add_custom_target(full COMMAND {fill} DEPENDS generate_parts)\n"
        "add_dependencies(mini_core full)"
    ),
    "link": "add_custom_command(TARGET mini_core PRE_LINK COMMAND {fill})",
    "wheel": 'install(CODE "execute_process(COMMAND {fill})")',
}


@pytest.mark.parametrize("stage", STAGES)
def test_a_disk_that_is_full_from_a_stage_on(
    stage: str, stoker: Stoker, tmp_path: Path, need: Need
) -> None:
    need("ninja")
    with small_disk(tmp_path / "disk", "size=64m") as disk:
        project = Project(stoker, tmp_path, "mini-wheel")
        project.out = disk / "out"
        own = {"STOKER_HOME": str(disk / "home"), "TMPDIR": str(disk)}
        fill = f"sh {project.tree / 'fill.sh'} {disk}"
        (project.tree / "fill.sh").write_text(FILL)
        with (project.tree / "CMakeLists.txt").open("a") as lists:
            lists.write(STAGES[stage].format(fill=fill))

        done = project.build(**own)
        assert (disk / "filled").exists(), done.stderr
        assert done.returncode in (1, 5), done.stderr
        assert "No space left on device" in done.stderr or "must stay free" in done.stderr
        assert "Traceback" not in done.stderr
        assert not [path for path in disk.rglob("*.whl") if path.parent == project.out]

        (disk / "filler").unlink()
        assert not list(disk.rglob("*.aside-*"))
        resumed = project.built(**own)
        assert set(resumed.ends.values()) <= {"done", "skipped"}
        fresh = project.built("--fresh", "--out", str(tmp_path / "fresh"), **own)
        assert digest(resumed.wheel) == digest(fresh.wheel)
