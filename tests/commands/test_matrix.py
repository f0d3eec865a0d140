"""`stoker matrix`: variants built and slimmed, continued, published and installed."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from catalogue_wheels import empty_environment
from conftest import PROJECTS, Stoker, find_tool
from governed import wait_until
from held_locks import held_elsewhere
from slim_libraries import build_library, cubins
from slim_wheels import ARCHS, CUDA, MACHINE, make_wheel
from small_disks import small_disk
from stoker.cli.matrix import matrix as command
from stoker.model.errors import StokerError, UsageError
from stoker.wheel.zip import open_wheel
from wheel_files import unpacked

COMMAND = Path(sys.executable).with_name("stoker")
TIMEOUT_S = 280.0  # generous, because the machine may be busy
# Neither the user's configuration nor the package index has a say in these tests.
ALONE = {"PIP_CONFIG_FILE": os.devnull, "PIP_NO_INDEX": "1", "UV_NO_CONFIG": "1"}
BUILDS = """\
[defaults]
source = "mini-wheel"
define = { MINI_FILES = 1 }
[variants.plain]
variant = "cpu"
[variants.loud]
variant = "cpu"
define = { USE_SHOUT = true }
[variants.small]
variant = "cpu-minsizerel"
"""
SLIMS = """\
[defaults]
from = "slim"
wheel = "{wheel}"
[variants.a100]
variant = "sm80"
[variants.ada]
variant = "cu130-sm89"
[variants.h100]
variant = "sm90"
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    shutil.copytree(PROJECTS / "mini-wheel", tmp_path / "mini-wheel")
    (tmp_path / "stoker.toml").write_text(BUILDS)
    return tmp_path


@pytest.fixture(scope="session")
def torch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small wheel of PyTorch with device code for three GPUs."""
    folder = tmp_path_factory.mktemp("torch")
    library = build_library(find_tool, folder, [cubins(1, *ARCHS), cubins(2, *ARCHS)]).read_bytes()
    members = {
        "torch/__init__.py": b"from torch.version import cuda\n",
        "torch/version.py": b"cuda: str = '13.0'\n",
        CUDA: library,
    }
    return make_wheel(folder, members, version="2.0")


@pytest.fixture
def slims(tmp_path: Path, torch: Path) -> Path:
    (tmp_path / "stoker.toml").write_text(SLIMS.format(wheel=torch))
    return tmp_path


def results(done: subprocess.CompletedProcess[str], status: int = 0) -> dict[str, Any]:
    """Return the results by name, as --json prints them."""
    assert done.returncode == status, done.stderr
    return {one["job"]["name"]: one for one in json.loads(done.stdout)["results"]}


def ends(found: Mapping[str, Any]) -> dict[str, str]:
    return {name: one["end"] for name, one in found.items()}


@pytest.mark.slow
def test_variants_from_the_matrix_to_empty_environments(
    project: Path, stoker: Stoker, tmp_path: Path
) -> None:
    """Three variants in one folder, published, and each installed with pip and with uv."""
    made = results(stoker("matrix", "--out", "wheels", "--json"))
    assert ends(made) == dict.fromkeys(["plain", "loud", "small"], "done")
    labels = {"plain": "cpu.plain", "loud": "cpu.loud", "small": "cpu.minsizerel"}
    for name, label in labels.items():
        assert made[name]["wheel"].startswith(f"mini_wheel-0.2.0+{label}-cp3")
        assert made[name]["verified"]
        assert (tmp_path / "wheels" / made[name]["wheel"]).stat().st_size == made[name][
            "size_bytes"
        ]
    again = stoker("matrix", "--out", "wheels", "--json")
    assert ends(results(again)) == dict.fromkeys(labels, "unchanged")
    assert "3 of 3: building" in again.stderr
    wheels = [str(path) for path in (project / "wheels").glob("*.whl")]
    published = stoker("catalogue", "publish", *wheels, "--to", "index")
    assert published.returncode == 0, published.stderr
    code = "import mini_wheel, importlib.metadata as m; print(m.version('mini-wheel'))"
    for installer in ("pip", "uv"):
        for label in labels.values():
            python = empty_environment(tmp_path / f"{installer}-{label}")
            words = ["install", "index", f"mini-wheel==0.2.0+{label}", "--installer", installer]
            done = stoker(*words, "--python", python, **ALONE)
            assert done.returncode == 0, done.stderr
            found = subprocess.check_output([python, "-c", code], text=True)
            assert found.strip() == f"0.2.0+{label}"


@pytest.mark.heavy
def test_one_failure_does_not_stop_the_rest(project: Path, stoker: Stoker) -> None:
    (project / "stoker.toml").write_text(BUILDS + '[variants.gone]\nvariant = "cpu-py38"\n')
    done = stoker("matrix", "--only", "[pg]*", "--out", "wheels", "--json")
    made = results(done, status=1)
    assert ends(made) == {"plain": "done", "gone": "failed"}
    assert made["gone"]["error"] == "prepare failed: no Python 3.8 found"
    assert "1 of 2 variants failed: gone for Python 3.8" in done.stderr
    assert "the other wheels are in wheels\n" in done.stderr
    assert "--only gone" in done.stderr
    (wheel,) = (project / "wheels").glob("*.whl")
    assert wheel.name == made["plain"]["wheel"]

    version = "{}.{}".format(*sys.version_info)
    words = ["--only", "plain", "--python", version, "--out", "wheels", "--json"]
    named = results(stoker("matrix", *words))
    assert ends(named) == {"plain": "done"}  # this Python by its version, in place of the wheel
    assert list((project / "wheels").glob("*.whl")) == [wheel]


@pytest.mark.heavy
def test_an_interrupted_matrix_keeps_what_is_finished(project: Path, stoker: Stoker) -> None:
    """The second build waits in its generator when Ctrl-C is pressed."""
    generate = project / "mini-wheel" / "tools" / "generate.py"
    wait = "import os, time\nwhile os.path.exists({!r}): time.sleep(0.05)\n"
    begun, hold = project / "begun", project / "hold"
    hold.touch()
    text = f"open({str(begun)!r}, 'a').write('x')\nif len(open({str(begun)!r}).read()) == 2:\n"
    body = "".join(f"    {line}\n" for line in wait.format(str(hold)).splitlines())
    generate.write_text(text + body + generate.read_text())
    words = [str(COMMAND), "matrix", "--out", "wheels"]
    running = subprocess.Popen(words, cwd=project, stderr=subprocess.PIPE, text=True)
    try:
        second = "the second build begins"
        wait_until(lambda: begun.exists() and len(begun.read_text()) == 2, second, TIMEOUT_S)
    finally:
        running.send_signal(signal.SIGINT)
        _, errors = running.communicate(timeout=TIMEOUT_S)
    assert (running.returncode, "stoker: interrupted" in errors) == (130, True), errors
    assert "loud: interrupted; the same command continues the matrix" in errors
    manifest = json.loads((project / "wheels" / "matrix.json").read_text())
    assert [one["end"] for one in manifest["results"]] == ["done", "interrupted"]
    assert len(list((project / "wheels").glob("*.whl"))) == 1
    hold.unlink()
    resumed = results(stoker("matrix", "--out", "wheels", "--json"))
    assert ends(resumed) == {"plain": "unchanged", "loud": "done", "small": "done"}


@pytest.mark.heavy
def test_python_versions_of_the_file_and_of_the_command_line(project: Path, stoker: Stoker) -> None:
    file = project / "stoker.toml"
    file.write_text(BUILDS.replace('variant = "cpu"', 'variant = "cpu"\npython = ["3.11", "3.12"]'))

    def jobs(*words: str) -> list[tuple[str, str | None]]:
        done = stoker("matrix", "--dry-run", "--json", *words)
        assert done.returncode == 0, done.stderr
        return [(one["name"], one["python"]) for one in json.loads(done.stdout)["jobs"]]

    assert jobs("--only", "plain") == [("plain", "3.11"), ("plain", "3.12")]
    assert jobs("--only", "small") == [("small", None)]
    file.write_text(file.read_text() + '[variants.named]\nvariant = "cpu-py310"\n')
    file.write_text(file.read_text().replace("[defaults]", '[defaults]\npython = ["3.9", "3.13"]'))
    assert jobs("--only", "named") == [("named", "3.10")]
    assert jobs("--only", "small", "--python", "3.10, 3.13") == [
        ("small", "3.10"),
        ("small", "3.13"),
    ]
    assert not (project / "dist").exists()
    page = stoker("matrix", "--dry-run").stdout
    assert "plain  3.11    cpu-py311             +cpu.plain" in page
    assert "7 wheels; the time is unknown" in page


def test_a_wheel_is_slimmed_for_each_gpu(slims: Path, stoker: Stoker, torch: Path) -> None:
    out = slims / "wheels"
    made = results(stoker("matrix", "--out", "wheels", "--json"))
    assert ends(made) == dict.fromkeys(["a100", "ada", "h100"], "done")
    for name, label in {"a100": "cu130.sm80", "ada": "cu130.sm89", "h100": "cu130.sm90"}.items():
        wheel = out / f"torch-2.0+{label}-py3-none-linux_{MACHINE}.whl"
        assert made[name]["wheel"] == wheel.name
        assert wheel.stat().st_size < 0.6 * torch.stat().st_size
        metadata = unpacked(wheel)[f"torch-2.0+{label}.dist-info/METADATA"]
        assert f"\nVersion: 2.0+{label}\n".encode() in metadata
        with open_wheel(wheel) as opened:
            assert not [*opened.mismatches(), *opened.wrong_hashes()]
    assert sorted(path.name for path in out.iterdir()) == sorted(
        ["matrix.json", *(one["wheel"] for one in made.values())]
    )

    damaged, missing = (out / made[name]["wheel"] for name in ("ada", "h100"))
    damaged.write_bytes(b"x")
    missing.unlink()
    again = results(stoker("matrix", "--out", "wheels", "--json"))
    assert ends(again) == {"a100": "unchanged", "ada": "done", "h100": "done"}
    assert [one["sha256"] for one in again.values()] == [one["sha256"] for one in made.values()]

    file = slims / "stoker.toml"
    file.write_text(file.read_text().replace('"sm80"', '"sm80+sm86"'))
    changed = results(stoker("matrix", "--only", "a100", "--out", "wheels", "--json"))
    assert changed["a100"]["wheel"].startswith("torch-2.0+cu130.sm80.sm86-")
    manifest = json.loads((out / "matrix.json").read_text())
    assert sorted(one["job"]["name"] for one in manifest["results"]) == ["a100", "ada", "h100"]


@pytest.mark.slow
@pytest.mark.usefixtures("slims")
def test_a_slimmed_catalogue_serves_each_gpu(stoker: Stoker) -> None:
    assert stoker("matrix", "--out", "wheels").returncode == 0
    done = stoker("catalogue", "publish", "wheels", "--to", "index")
    assert done.returncode == 0, done.stderr
    for gpu, label in {"h100": "cu130.sm90", "rtx4090": "cu130.sm89", "a100": "cu130.sm80"}.items():
        chosen = stoker("catalogue", "select", "index", "torch", "--for", gpu, "--json")
        assert chosen.returncode == 0, chosen.stderr
        assert json.loads(chosen.stdout)["choices"][0]["wheel"]["version"] == f"2.0+{label}"


@pytest.mark.slow
@pytest.mark.usefixtures("slims")
def test_a_wheel_from_the_package_index(stoker: Stoker, torch: Path) -> None:
    words = ["matrix", "--wheel", "torch==2.0", "--label", "mine", "--json", "--out", "wheels"]
    links = {"PIP_FIND_LINKS": str(torch.parent), **ALONE}
    done = stoker(*words, "--python", "3.11", "--only", "a100", **links)
    made = results(done)
    assert made["a100"]["wheel"] == f"torch-2.0+mine.a100-py3-none-linux_{MACHINE}.whl"
    assert "downloading torch==2.0 for Python 3.11" in done.stderr
    missing = [*words, "--wheel", "torch==3.0", "--only", "h100"]
    other = results(stoker(*missing, **links), status=1)
    assert "the package index has no wheel of torch==3.0" in other["h100"]["error"]


def test_a_gpu_that_the_wheel_has_no_code_for(slims: Path, stoker: Stoker) -> None:
    file = slims / "stoker.toml"
    file.write_text(file.read_text().replace('"sm90"', '"sm75"'))
    done = stoker("matrix", "--out", "wheels", "--json")
    made = results(done, status=1)
    assert ends(made) == {"a100": "done", "ada": "done", "h100": "failed"}
    assert "no device code that runs on sm75" in made["h100"]["error"]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('"sm90"', '"sm9000"', "stoker.toml:8: variant 'h100': unknown"),
        ('"sm90"', '"sm90-avx512"', "variant 'h100': slimming a wheel does not change its cpu"),
        ('"sm90"', '"cu128-sm90"', "the wheel is for CUDA 13.0, and the variant for 12.8"),
        ('"sm90"', '"sm90"\nlabel = "a b"', "'a b' is not a local version label"),
        ('"sm90"', '"sm90"\nfrom = "scratch"', "unknown value of --from 'scratch'"),
        ('"sm90"', '"sm90"\nwheel = "torch"', "'torch' is neither a wheel nor NAME==VERSION"),
        ('"sm90"', '"sm90"\nwheel = "gone.whl"', "gone.whl"),
        ('"sm90"', '"sm90"\nwheel = "stoker.toml.whl"', "stoker.toml.whl"),
        ('"sm90"', '"sm90"\npython = [3.12]', "'variants.h100.python' must be text in quotes"),
    ],
)
def test_a_variant_that_is_wrong(
    slims: Path, monkeypatch: pytest.MonkeyPatch, old: str, new: str, said: str
) -> None:
    """Nothing is made if one of the variants cannot be made."""
    file = slims / "stoker.toml"
    (slims / "stoker.toml.whl").write_text("not a wheel")
    file.write_text(file.read_text().replace(old, new))
    monkeypatch.chdir(slims)
    with pytest.raises(StokerError) as refused:
        command.main(["--out", "wheels"], standalone_mode=False)
    assert said in str(refused.value)
    assert not (slims / "wheels").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--only", "h200"], "did you mean h100"),
        (["empty.toml"], "has no variants"),
        (["gone.toml"], "no file 'gone.toml'"),
        ([], "there is no stoker.toml"),
    ],
)
def test_no_variants(
    slims: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], said: str
) -> None:
    (slims / "empty.toml").write_text("[defaults]\n")
    if not words:
        (slims / "stoker.toml").unlink()
    monkeypatch.chdir(slims)
    with pytest.raises(UsageError) as refused:
        command.main(words, standalone_mode=False)
    assert said in " ".join((str(refused.value), *refused.value.hints))


def test_two_at_once(slims: Path, stoker: Stoker) -> None:
    with held_elsewhere(slims / "wheels" / ".stoker-matrix.lock"):
        done = stoker("matrix", "--out", "wheels")
    assert (done.returncode, "another matrix is at work in wheels" in done.stderr) == (1, True)
    assert stoker("matrix", "--out", "wheels", "--only", "a100").returncode == 0


def test_a_full_disk(slims: Path, stoker: Stoker, torch: Path) -> None:
    size = torch.stat().st_size
    with small_disk(slims / "small", f"size={size}") as out:
        done = stoker("matrix", "--out", str(out))
        assert done.returncode == 1
        assert "not enough disk space" in done.stderr
        assert [path.name for path in out.iterdir()] == ["matrix.json"]
