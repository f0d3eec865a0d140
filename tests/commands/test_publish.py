"""Publishing, removing and installing wheels with the real commands, pip and uv."""

import hashlib
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from catalogue_stores import check_whole
from catalogue_wheels import MACHINE, empty_environment, make_library, make_wheel
from conftest import Stoker, find_tool
from stoker.model.slimming import SlimRecord

COMMAND = Path(sys.executable).with_name("stoker")
UV = Path(sys.executable).with_name("uv")
# Neither the user's configuration nor the package index has a say in these tests.
ALONE = {"PIP_CONFIG_FILE": os.devnull, "PIP_NO_INDEX": "", "UV_NO_CONFIG": "1"}


@pytest.fixture(scope="session")
def variants(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Wheels of one project for three variants, and an extension of one of them."""
    folder = tmp_path_factory.mktemp("variants")

    for variant, archs in {"cu128-sm80": ["sm_80"], "cu128-sm90": ["sm_90"], "cpu": []}.items():
        library = make_library(find_tool, folder / "build" / variant, archs) if archs else None
        make_wheel(folder / "wheels", variant=variant, library=library, requires=["millstone==2.0"])
    make_wheel(folder / "wheels", name="millstone", version="2.0", variant="cpu")
    return folder / "wheels"


@pytest.fixture(scope="session")
def catalogue(variants: Path) -> Path:
    index = variants.parent / "index"
    subprocess.run(
        [str(COMMAND), "catalogue", "publish", str(variants), "--to", str(index)], check=True
    )
    return index


@pytest.fixture
def index(catalogue: Path, tmp_path: Path) -> Path:
    """A copy of the catalogue that the test may change."""
    return shutil.copytree(catalogue, tmp_path / "index")


@pytest.fixture
def address(index: Path) -> Iterator[str]:
    """Of `stoker catalogue serve` on a free port."""
    command = [str(COMMAND), "catalogue", "serve", str(index), "--port", "0", "--quiet"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        yield server.stdout.readline().strip()
        server.send_signal(signal.SIGINT)
        assert server.wait(30) == 0


def installed(python: str) -> str:
    code = "import mill, millstone; print(mill.version, millstone.version)"
    return subprocess.check_output([python, "-c", code], text=True).strip()


@pytest.mark.slow
@pytest.mark.parametrize("installer", ["pip", "uv"])
@pytest.mark.parametrize("place", ["folder", "http"])
def test_install(
    stoker: Stoker, index: Path, address: str, tmp_path: Path, installer: str, place: str
) -> None:
    """The variant that suits, with what it requires of the catalogue, into an empty environment."""
    python = empty_environment(tmp_path / "venv")
    where = str(index) if place == "folder" else address
    words = [
        "install",
        where,
        "mill",
        "--for",
        "h100",
        "--installer",
        installer,
        "--python",
        python,
    ]
    done = stoker(*words, "--json", **ALONE)
    assert done.returncode == 0, done.stderr
    assert installed(python) == "1.0+cu128.sm90 2.0+cpu"
    assert [row["project"] for row in msgspec.json.decode(done.stdout)["wheels"]] == [
        "mill",
        "millstone",
    ]
    assert "native sm_90 code for H100 (9.0)" in done.stderr
    other = stoker(*words[:4], "rtx3090", *words[5:], **ALONE)
    assert other.returncode == 0, other.stderr
    assert installed(python) == "1.0+cu128.sm80 2.0+cpu"


def test_the_command_alone(stoker: Stoker, address: str, tmp_path: Path) -> None:
    """It names each wheel by address and hash, and no index at all."""
    python = empty_environment(tmp_path / "venv")
    done = stoker("install", address, "mill", "--for", "cpu", "--python", python, "--print")
    assert done.returncode == 0, done.stderr
    assert re.search(
        rf"'mill @ {address}files/\w{{64}}/mill-1.0%2Bcpu-\S+#sha256=\w{{64}}'", done.stdout
    )
    assert "index" not in done.stdout.replace(str(tmp_path), "")
    refused = subprocess.run([python, "-c", "import mill"], capture_output=True, check=False)
    assert refused.returncode != 0


@pytest.mark.slow
def test_plain_pip(variants: Path, index: Path, address: str, tmp_path: Path) -> None:
    """The index of a variant is enough, also with hashes, over HTTP and from the folder."""
    python = empty_environment(tmp_path / "venv")
    (wheel,) = variants.glob("millstone-*")
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    pinned = tmp_path / "requirements.txt"
    for base in (address, f"{index.as_uri()}/"):
        pip = [sys.executable, "-m", "pip", "--python", python, "install", "--force-reinstall"]
        options = ["--index-url", f"{base}cpu/", "--no-cache-dir"]
        subprocess.run([*pip, *options, "mill"], env={**os.environ, **ALONE}, check=True)
        assert installed(python) == "1.0+cpu 2.0+cpu"
        pinned.write_text(f"millstone==2.0+cpu --hash=sha256:{digest}\n")
        hashed = [*pip, *options, "--require-hashes", "-r", str(pinned)]
        subprocess.run(hashed, env={**os.environ, **ALONE}, check=True)
        pinned.write_text(f"millstone==2.0+cpu --hash=sha256:{'0' * 64}\n")
        done = subprocess.run(hashed, env={**os.environ, **ALONE}, check=False, capture_output=True)
        assert done.returncode != 0


@pytest.mark.slow
def test_wheel_variants(stoker: Stoker, variants: Path, tmp_path: Path) -> None:
    """uv chooses from one index by the GPU, as the draft standards describe it."""
    done = stoker("catalogue", "publish", str(variants), "--to", "index", "--wheel-variants")
    assert done.returncode == 0, done.stderr
    index = tmp_path / "index"
    files = {path.name for path in index.glob("wheel-variants/mill/*")}
    assert files == {"index.html", "index.json", "mill-1.0-variants.json"}
    python = empty_environment(tmp_path / "venv")
    shared = f"{index.as_uri()}/wheel-variants/"
    uv = [str(UV), "pip", "install", "--reinstall", "--no-cache", "--python", python]
    uv += ["--preview-features", "wheel-variants", "--default-index", shared, "mill"]
    for capability, driver, label in (
        ("9.0", "12.8", "1.0+cu128.sm90"),
        ("8.9", "12.4", "1.0+cu128.sm80"),
        ("7.5", "12.8", "1.0+cpu"),
        ("9.0", "11.8", "1.0+cpu"),
    ):
        forced = {
            "NV_VARIANT_PROVIDER_FORCE_SM_ARCH": capability,
            "NV_VARIANT_PROVIDER_FORCE_CUDA_DRIVER_VERSION": driver,
        }
        subprocess.run(uv, env={**os.environ, **ALONE, **forced}, check=True)
        assert installed(python) == f"{label} 2.0+cpu"
    page = (index / "index.html").read_text()
    assert "wheel-variants" not in page, "the page for people shows each wheel once"
    chosen = stoker("catalogue", "select", "index", "mill", "--for", "h100", "--json")
    rows = msgspec.json.decode(chosen.stdout)["choices"]
    assert len(rows) == 3
    assert stoker("catalogue", "remove", "index", "mill", "millstone").returncode == 0
    assert stoker("catalogue", "prune", "index").returncode == 0
    assert not (index / "wheel-variants").exists()
    assert not (index / "files").exists()


def test_a_cpu_level_is_taken_only_where_its_provider_is_enabled(
    stoker: Stoker, tmp_path: Path
) -> None:
    for variant in ("cpu", "cpu-avx2"):
        make_wheel(tmp_path / "wheels", variant=variant)
    done = stoker("catalogue", "publish", "wheels", "--to", "index", "--wheel-variants")
    assert done.returncode == 0, done.stderr
    shared = tmp_path / "index/wheel-variants"
    described = msgspec.json.decode((shared / "mill/mill-1.0-variants.json").read_bytes())
    assert set(described["variants"]) == {"null", "cpu_avx2"}
    python = empty_environment(tmp_path / "venv")
    uv = [str(UV), "pip", "install", "--no-cache", "--python", python]
    uv += ["--preview-features", "wheel-variants", "--default-index", f"{shared.as_uri()}/", "mill"]
    subprocess.run(uv, env={**os.environ, **ALONE}, check=True)
    code = "import mill; print(mill.version)"
    assert subprocess.check_output([python, "-c", code], text=True).strip() == "1.0+cpu"


@pytest.mark.parametrize("installer", ["pip", "uv"])
def test_install_from_an_index_of_wheel_variants(
    stoker: Stoker, tmp_path: Path, installer: str
) -> None:
    """The index is no catalogue, as those of others; pip refuses the names of its files."""
    high, low = {"x86_64": ("avx2", "x86_64_v2"), "aarch64": ("armv9", "armv8.2")}[MACHINE]
    for variant in ("cpu", f"cpu-{high}"):
        make_wheel(tmp_path / "wheels", variant=variant)
    done = stoker("catalogue", "publish", "wheels", "--to", "index", "--wheel-variants")
    assert done.returncode == 0, done.stderr
    python = empty_environment(tmp_path / "venv")
    shared = str(tmp_path / "index/wheel-variants")
    words = ["install", shared, "mill", "--python", python, "--installer", installer]
    for level, version in ((high, f"1.0+cpu.{high}"), (low, "1.0+cpu")):
        done = stoker(*words, "--for", f"cpu {level}", "--json")
        assert done.returncode == 0, done.stderr
        code = "import mill; print(mill.version)"
        assert subprocess.check_output([python, "-c", code], text=True).strip() == version
        subprocess.run([str(UV), "pip", "uninstall", "--python", python, "mill"], check=True)
    done = stoker(*words, "--for", f"cpu {high}", "--print")
    assert f"pip refuses the label 'cpu_{high}'" in done.stderr


def test_plain_uv(index: Path, address: str, tmp_path: Path) -> None:
    python = empty_environment(tmp_path / "venv")
    for base in (address, f"{index.as_uri()}/"):
        uv = [str(UV), "pip", "install", "--reinstall", "--no-cache", "--python", python]
        command = [*uv, "--default-index", f"{base}cpu/", "mill"]
        subprocess.run(command, env={**os.environ, **ALONE}, check=True)
        assert installed(python) == "1.0+cpu 2.0+cpu"


@pytest.mark.parametrize("installer", ["pip", "uv"])
def test_a_file_that_was_changed(
    stoker: Stoker, index: Path, tmp_path: Path, installer: str
) -> None:
    python = empty_environment(tmp_path / "venv")
    (wheel,) = index.glob("files/*/mill-1.0+cpu-*.whl")
    other = make_wheel(tmp_path / "other", variant="cpu", more={"mill/evil.py": b"x = 1\n"})
    assert wheel.name == other.name
    wheel.write_bytes(other.read_bytes())
    words = ["install", str(index), "mill", "--for", "cpu", "--installer", installer]
    done = stoker(*words, "--python", python, **ALONE)
    assert done.returncode == 1
    assert "the hash of a file differs" in done.stderr


def test_select(stoker: Stoker, index: Path) -> None:
    done = stoker("catalogue", "select", str(index), "mill", "--for", "l40s", "--json")
    assert done.returncode == 0, done.stderr
    found = msgspec.json.decode(done.stdout)
    reasons = {row["wheel"]["variant"]: (row["fit"], row["reason"]) for row in found["choices"]}
    assert reasons["cu128-sm80"] == ("compatible", "sm_80 code, which L40S (8.9) runs")
    assert reasons["cu128-sm90"] == ("does not run", "L40S (8.9) cannot run what it holds: sm_90")
    assert next(iter(reasons)) == "cu128-sm80"
    page = stoker("catalogue", "select", str(index), "mill", "--for", "l40s").stdout
    assert re.search(r"-> +cu128-sm80 .*sm_80 code, which L40S", page)


def test_select_reads_this_machine(stoker: Stoker, index: Path, tmp_path: Path) -> None:
    python = empty_environment(tmp_path / "venv")
    done = stoker("catalogue", "select", str(index), "mill", "--python", python, "--json")
    assert done.returncode == 0, done.stderr
    found = msgspec.json.decode(done.stdout)
    assert found["host"]["python"] == platform.python_version()
    assert found["host"]["cpu_family"] == platform.machine()
    assert len(found["choices"]) == 3


def test_a_catalogue_that_is_not_available(stoker: Stoker, tmp_path: Path, address: str) -> None:
    for place, status, said in (
        (str(tmp_path / "nowhere"), 2, "is not a catalogue"),
        (f"{address}nowhere/", 2, "is not a catalogue"),
        ("http://127.0.0.1:9/", 4, "cannot reach http://127.0.0.1:9/"),
        ("ftp://example.org/", 2, "ftp://example.org cannot hold a catalogue"),
        ("s3://", 2, "names no bucket"),
    ):
        done = stoker("catalogue", "select", place, "mill")
        assert (done.returncode, said in done.stderr) == (status, True), done.stderr
        assert "Traceback" not in done.stderr
    done = stoker("catalogue", "select", f"{address}cpu/", "mill")
    assert done.returncode == 0, "the index of one variant is a package index like any other"
    done = stoker("catalogue", "select", address, "mill", "--for", "rtx9999")
    assert done.returncode == 2
    assert "unknown word 'rtx9999'" in done.stderr


def test_unverified_wheels_need_force(stoker: Stoker, tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path / "bad", variant="cpu")
    renamed = wheel.rename(wheel.with_name(wheel.name.replace("py3-none-any", "py2-none-any")))
    done = stoker("catalogue", "publish", str(renamed), "--to", "index")
    assert done.returncode == 2
    assert "does not pass `stoker verify`" in done.stderr
    assert not (tmp_path / "index").exists()
    forced = stoker("catalogue", "publish", str(renamed), "--to", "index", "--force", "--json")
    assert forced.returncode == 0, forced.stderr
    assert msgspec.json.decode(forced.stdout)["wheels"][0]["verified"] is False


@pytest.mark.parametrize("how", ["private", "owned", "classifier"])
def test_slimmed_libraries_of_nvidia_are_never_published(
    stoker: Stoker, tmp_path: Path, how: str
) -> None:
    name = "nvidia-mill" if how == "owned" else "mill"
    slimmed = SlimRecord(targets=("9.0",), label="sm90", private=how == "private")
    classifier = "Classifier: Private :: Do Not Upload\n" if how == "classifier" else ""
    wheel = make_wheel(tmp_path / "dist", name=name, slimmed=slimmed, metadata=classifier)
    done = stoker("catalogue", "publish", str(wheel), "--to", "index", "--force")
    assert done.returncode == 2
    assert "licence" in done.stderr
    assert not (tmp_path / "index").exists()


def test_broken_wheels(stoker: Stoker, tmp_path: Path, index: Path) -> None:
    before = (index / "catalogue.json").read_bytes()
    wheel = make_wheel(tmp_path / "dist", version="3.0")
    cut = tmp_path / "cut" / wheel.name
    cut.parent.mkdir()
    cut.write_bytes(wheel.read_bytes()[:-100])
    hostile = make_wheel(tmp_path / "hostile", version="4.0")
    hostile = hostile.rename(hostile.with_name("<script>-4.0-py3-none-any.whl"))
    for path in (cut, hostile, tmp_path / "none.whl", tmp_path / "cut"):
        done = stoker("catalogue", "publish", str(path), "--to", str(index), "--force")
        assert done.returncode in (1, 2), done.stderr
        assert "Traceback" not in done.stderr
    done = stoker("catalogue", "publish", str(wheel), "--to", str(index), "--variant", "../escape")
    assert done.returncode == 2
    assert (index / "catalogue.json").read_bytes() == before


@pytest.mark.slow
def test_two_publishers_at_once(tmp_path: Path) -> None:
    """Each publishes several wheels, one command for each; none is lost."""
    wheels = [make_wheel(tmp_path / "dist", version=f"1.{number}") for number in range(8)]
    publish = '"$0" catalogue publish "$wheel" --to index --variant cpu'
    script = f"for wheel; do {publish} || exit 1; done"
    running = [
        subprocess.Popen(
            ["sh", "-c", script, COMMAND, *half], cwd=tmp_path, stderr=subprocess.DEVNULL
        )
        for half in (wheels[:4], wheels[4:])
    ]
    assert [process.wait(120) for process in running] == [0, 0]
    assert len(check_whole(tmp_path / "index").wheels) == len(wheels)


@pytest.mark.slow
def test_kill_while_publishing(stoker: Stoker, tmp_path: Path, variants: Path) -> None:
    """The old or the new catalogue is whole after each kill; the next publisher continues."""
    for moment in range(8):
        command = [str(COMMAND), "catalogue", "publish", str(variants), "--to", "index"]
        process = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
        assert process.stderr is not None
        while line := process.stderr.readline():
            if line.startswith("uploading"):
                break
        time.sleep(moment * 0.004)
        process.kill()
        process.communicate()
        if (tmp_path / "index/catalogue.json").exists():
            assert len(check_whole(tmp_path / "index").wheels) in (0, 4)
        if moment % 3 == 2:
            shutil.rmtree(tmp_path / "index", ignore_errors=True)
    done = stoker("catalogue", "publish", str(variants), "--to", "index")
    assert done.returncode == 0, done.stderr
    assert len(check_whole(tmp_path / "index").wheels) == 4
    assert not list((tmp_path / "index/.stoker").glob("*/*"))
