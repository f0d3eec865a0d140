"""The command line of a container engine."""

import msgspec
import pytest

from stoker.builds.containers.engine import ContainerEngine, ContainerHost, EngineKind
from stoker.builds.containers.words import Bind, Box, exec_words, run_words
from stoker.model.errors import MissingError, UsageError

PODMAN = ContainerEngine(kind=EngineKind.PODMAN, program="/bin/podman", runtime="crun")
DOCKER = ContainerEngine(kind=EngineKind.DOCKER, program="/bin/docker", runtime="runc")
ROOT = ContainerHost(user=0, group=0)
CALLER = ContainerHost(user=1000, group=100)
BOX = Box(name="stoker-kiln", image="builder:1")


def after(words: tuple[str, ...], option: str) -> list[str]:
    """What follows an option, each time."""
    return [words[i + 1] for i, word in enumerate(words) if word == option]


def test_an_image_comes_last_before_the_first_command() -> None:
    words = run_words(PODMAN, ROOT, BOX)
    assert words[:2] == ("/bin/podman", "run")
    assert words[words.index("builder:1") + 1] == "sh"
    assert after(words, "--name") == ["stoker-kiln"]
    assert after(words, "--label") == ["stoker=builder:1"]


def test_a_root_folder_is_podmans_and_stays_as_it_is() -> None:
    box = Box(name="stoker-kiln", root="/srv/root")
    assert after(run_words(PODMAN, ROOT, box), "--rootfs") == ["/srv/root:O"]
    with pytest.raises(UsageError, match="docker cannot run the folder") as caught:
        run_words(DOCKER, ROOT, box)
    assert "docker import" in caught.value.hints[1]


def test_a_limit_allows_no_swap_and_bounds_files_in_memory() -> None:
    words = run_words(PODMAN, ROOT, msgspec.structs.replace(BOX, memory=4 << 30))
    assert after(words, "--memory") == after(words, "--memory-swap") == [str(4 << 30)]
    assert after(words, "--shm-size") == [str(1 << 30)]
    (tmp,) = after(words, "--tmpfs")
    assert tmp.startswith("/tmp:")
    assert {"exec", f"size={1 << 30}"} <= set(tmp.removeprefix("/tmp:").split(","))


def test_without_a_limit_programs_may_still_run_from_tmp() -> None:
    words = run_words(PODMAN, ROOT, BOX)
    assert "--memory" not in words
    (tmp,) = after(words, "--tmpfs")
    assert "exec" in tmp
    assert "size" not in tmp


def test_shared_memory_of_the_host_has_no_size_of_ours() -> None:
    words = run_words(PODMAN, ROOT, msgspec.structs.replace(BOX, memory=4 << 30, ipc="host"))
    assert "--ipc=host" in words
    assert "--shm-size" not in words


@pytest.mark.parametrize(
    ("engine", "host", "words"),
    [
        (PODMAN, ROOT, []),
        (PODMAN, CALLER, ["--user", "1000:100"]),
        (DOCKER, CALLER, ["--user", "1000:100"]),
        (msgspec.structs.replace(PODMAN, rootless=True), CALLER, ["--userns=keep-id"]),
        (msgspec.structs.replace(DOCKER, rootless=True), CALLER, []),
    ],
)
def test_files_belong_to_the_caller(
    engine: ContainerEngine, host: ContainerHost, words: list[str]
) -> None:
    got = run_words(engine, host, BOX)
    assert [w for w in got if w in ("--user", "1000:100", "--userns=keep-id")] == words


def test_crun_is_not_asked_to_work_with_both_versions_of_control_groups() -> None:
    hybrid = msgspec.structs.replace(ROOT, hybrid_cgroups=True, runc=True)
    assert run_words(PODMAN, hybrid, BOX)[1:3] == ("--runtime", "runc")
    runc = msgspec.structs.replace(PODMAN, runtime="runc")
    assert "--runtime" not in run_words(runc, hybrid, BOX)
    assert "--runtime" not in run_words(DOCKER, hybrid, BOX)
    with pytest.raises(MissingError, match="crun") as caught:
        run_words(PODMAN, msgspec.structs.replace(hybrid, runc=False), BOX)
    assert "runc" in caught.value.hints[0]


def test_limits_that_we_may_not_raise_are_named() -> None:
    bound = msgspec.structs.replace(ROOT, open_files=20000)
    assert "nofile=20000:20000" in after(run_words(PODMAN, bound, BOX), "--ulimit")
    assert after(run_words(PODMAN, ROOT, BOX), "--ulimit") == []
    assert after(run_words(DOCKER, bound, BOX), "--ulimit") == []


def test_gpus() -> None:
    with_gpus = [msgspec.structs.replace(engine, gpus=True) for engine in (PODMAN, DOCKER)]
    assert after(run_words(with_gpus[0], ROOT, BOX), "--device") == ["nvidia.com/gpu=all"]
    assert after(run_words(with_gpus[1], ROOT, BOX), "--gpus") == ["all"]
    assert "--device" not in run_words(PODMAN, ROOT, BOX)


def test_paths_are_the_same_inside() -> None:
    binds = (Bind(path="/a b"), Bind(path="/tree", writable=True))
    words = run_words(PODMAN, ROOT, msgspec.structs.replace(BOX, binds=binds))
    assert after(words, "--volume") == ["/a b:/a b:ro", "/tree:/tree:rw"]
    with pytest.raises(UsageError, match="colon"):
        run_words(PODMAN, ROOT, msgspec.structs.replace(BOX, binds=(Bind(path="/a:b"),)))


def test_values_of_variables_are_not_on_the_command_line() -> None:
    words = exec_words(DOCKER, "box", ("make", "-j"), folder="/tree", variables=["B", "A"])
    assert words == (
        *("/bin/docker", "exec", "--workdir", "/tree", "--env", "A", "--env", "B"),
        *("box", "make", "-j"),
    )
    words = exec_words(DOCKER, "box", ("sh",), interactive=True, terminal=True)
    assert words[2:4] == ("--interactive", "--tty")
