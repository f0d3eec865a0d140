"""Every table loads, and references between tables are valid."""

import importlib
import re
import tomllib
from importlib import resources
from types import ModuleType
from typing import Any

import pytest

from stoker import knowledge
from stoker.knowledge.compiler_modes import linker_programs
from stoker.knowledge.cpus import cpu_levels, cpu_products, microarchitectures
from stoker.knowledge.estimates import estimates
from stoker.knowledge.features import blas_libraries, features
from stoker.knowledge.gpus import cuda_archs, cuda_releases, generations, gpus
from stoker.knowledge.libraries import library_table as libraries
from stoker.knowledge.packages import install_command
from stoker.knowledge.platforms import platforms
from stoker.knowledge.projects import projects
from stoker.knowledge.tools import programs
from stoker.knowledge.torch_releases import (
    forwarding,
    front_end_variables,
    torch_release,
    torch_releases,
)
from stoker.model.machine import OperatingSystem
from stoker.model.recipe import PLACEHOLDERS
from stoker.model.variant import Backend, Variant
from stoker.model.wheel_source import WheelSource

# Of failures.json, which release/failure_index.py makes.
INDEXED = ("releases", "confidence", "shown_tools", "owners")
TABLES = sorted(
    file.name.removesuffix(".toml")
    for file in resources.files(knowledge).iterdir()
    if file.name.endswith(".toml") and file.name.removesuffix(".toml") not in INDEXED
)


def _content(table: str) -> dict[str, Any]:
    return tomllib.loads(resources.files(knowledge).joinpath(f"{table}.toml").read_text())


def _reader(table: str) -> ModuleType:
    """The module that loads a table."""
    (name,) = (
        file.name.removesuffix(".py")
        for file in resources.files(knowledge).iterdir()
        if file.name.endswith(".py")
        and re.search(rf'\b(?:load|rows|table)\("{table}"', file.read_text())
    )
    return importlib.import_module(f"stoker.knowledge.{name}")


@pytest.mark.parametrize("table", TABLES)
def test_every_table_has_a_reader_that_accepts_it(table: str) -> None:
    """The reader's cached functions without parameters are those that load."""
    module = _reader(table)
    readers = [
        value
        for value in vars(module).values()
        if hasattr(value, "cache_info")
        and value.__module__ in (module.__name__, knowledge.__name__)
        and not value.__wrapped__.__code__.co_argcount
    ]
    assert readers
    assert all(reader() for reader in readers)


@pytest.mark.parametrize("table", TABLES)
def test_a_misspelt_key_would_be_refused(table: str) -> None:
    """Every struct of a reader forbids unknown fields, so a table cannot lose a word."""
    module = _reader(table)
    rows = [
        value
        for value in vars(module).values()
        if isinstance(value, type)
        and issubclass(value, knowledge.Row | WheelSource)
        and value is not knowledge.Row
    ]
    assert rows
    for row in rows:
        assert row.__struct_config__.forbid_unknown_fields, row
        assert row.__struct_config__.frozen, row


@pytest.mark.parametrize(
    ("table", "rows", "key"),
    [
        ("gpus", "gpu", "arch"),
        ("cuda", "toolkit", "version"),
        ("cpus", "level", "name"),
        ("torch", "release", "version"),
        ("features", "feature", "name"),
        ("features", "blas", "name"),
        ("libraries", "library", "name"),
        ("projects", "project", "name"),
        ("tools", "program", "name"),
    ],
)
def test_no_row_hides_another(table: str, rows: str, key: str) -> None:
    names = [row[key] for row in _content(table)[rows]]
    assert len(names) == len(set(names))


def test_every_cuda_gpu_is_made_by_some_cuda() -> None:
    cuda = [row.arch for row in gpus().values() if row.backend is Backend.CUDA]
    assert set(cuda) <= set(cuda_archs())


def test_every_architecture_that_cuda_makes_is_a_known_gpu() -> None:
    """From the oldest on that people still own: 3.5 and 3.7 went with CUDA 11."""
    plain = {arch.rstrip("af") for arch in cuda_archs()} - {"3.5", "3.7"}
    assert plain <= set(gpus())


def test_a_suffixed_target_has_its_plain_one_beside_it() -> None:
    for release in cuda_releases().values():
        suffixed = [arch for arch in release.archs if arch[-1] in "af"]
        assert {arch.rstrip("af") for arch in suffixed} <= set(release.archs), release.version


def test_releases_are_in_order_and_accept_ever_newer_compilers() -> None:
    releases = list(cuda_releases().values())
    versions = [tuple(map(int, release.version.split("."))) for release in releases]
    assert versions == sorted(versions)
    for limit in ("gcc_max", "clang_below", "driver"):
        numbers = [getattr(release, limit) for release in releases]
        assert numbers == sorted(numbers), limit


def test_generations_hold_known_targets_and_those_of_cuda_end_in_ptx() -> None:
    for name, targets in generations().items():
        assert name == name.casefold()
        assert {target.arch for target in targets} <= set(gpus())
        cuda = {target.arch for target in targets} <= set(cuda_archs())
        assert [target.ptx for target in targets] == [False] * (len(targets) - 1) + [cuda]


def test_products_are_microarchitectures() -> None:
    assert set(cpu_products().values()) <= set(microarchitectures())


def test_levels_name_families_that_some_platform_has() -> None:
    families = {family for row in platforms().values() for family in row.families}
    assert {level.family for level in cpu_levels().values()} <= families
    for level in cpu_levels().values():
        assert level.flags, level.name
        assert level.serves, level.name
        assert list(level.needs) == sorted(level.needs), level.name


def test_libraries_of_features_and_blas_are_rows_of_libraries() -> None:
    known = {row.name for row in libraries().library}
    assert {row.library for row in features().values() if row.library} <= known
    assert {row.library for row in blas_libraries().values() if row.library} <= known


def test_a_feature_is_one_word_with_a_help() -> None:
    for row in features().values():
        assert re.fullmatch("[a-z]+", row.name), "it is one word of a variant's name"
        assert row.help
        assert not row.name.startswith("no") or row.name.removeprefix("no") not in features()


def test_no_feature_is_called_like_a_part_of_a_variant() -> None:
    """Origins are kept by the names of both."""
    assert not set(features()) & set(Variant.__struct_fields__)


def test_linkers_are_programs_that_are_looked_for() -> None:
    known = {program.name for program in programs()}
    assert {mode.value for mode in linker_programs()} <= known


def test_blas_libraries_belong_to_families_and_systems_that_exist() -> None:
    families = {family for row in platforms().values() for family in row.families}
    systems = {platform.os for platform in platforms()}
    for row in blas_libraries().values():
        assert set(row.families) <= families
        assert set(row.systems) <= systems
    assert blas_libraries()["mkl"].families == ("x86_64",)


def _system(system: str, id_: str, *like: str) -> OperatingSystem:
    return OperatingSystem(
        system=system, id=id_, version="1", pretty=id_, kernel="6", like=tuple(like)
    )


@pytest.mark.parametrize(
    ("system", "command"),
    [
        (_system("linux", "debian"), "apt-get install -y g++"),
        (_system("linux", "linuxmint", "ubuntu", "debian"), "apt-get install -y g++"),
        (_system("linux", "rocky", "rhel", "centos", "fedora"), "dnf install -y gcc-c++"),
        (_system("linux", "manjaro", "arch"), "pacman -S --noconfirm gcc"),
        (_system("linux", "opensuse-leap", "suse", "opensuse"), "zypper install -y gcc-c++"),
        (_system("macos", "macos"), "brew install llvm"),
    ],
)
def test_the_compiler_by_distribution(system: OperatingSystem, command: str) -> None:
    assert install_command("cxx", system) == (command,)


def test_an_unknown_distribution_gets_no_invented_command() -> None:
    assert install_command("cxx", _system("linux", "nixos")) == ()
    assert install_command("no-such-thing", _system("linux", "debian")) == ()


def test_pip_serves_where_no_distribution_does() -> None:
    command = "python3 -m pip install ninja"
    assert install_command("ninja", _system("linux", "nixos")) == (command,)


def test_packages_of_cuda_need_its_version() -> None:
    debian = _system("linux", "debian")
    assert install_command("cudnn", debian) == ()
    assert install_command("cudnn", debian, "12.8") == ("python3 -m pip install nvidia-cudnn-cu12",)
    (command,) = install_command("cuda", debian, "13.0")
    assert command == "stoker toolchain install cuda==13.0"


def test_no_package_holds_an_unfilled_place() -> None:
    debian = _system("linux", "debian")
    for what in _content("packages"):
        for version in (None, "12.8", "13.0"):
            assert not [line for line in install_command(what, debian, version) if "{" in line]


def test_every_package_names_managers_that_exist() -> None:
    content = _content("package_managers")
    managers = set(content["manager"])
    assert set(content["distribution"].values()) <= managers
    for names in _content("packages").values():
        assert set(names) <= managers


def test_what_doctor_would_install_has_a_row_for_debian() -> None:
    """Of the libraries that a feature wants, all but MAGMA have a package somewhere."""
    debian = _system("linux", "debian")
    wanted = {row.library for row in features().values() if row.library}
    without = {name for name in wanted if not install_command(name, debian, "13.0")}
    assert without <= {"magma"}


def test_torch_releases_name_cuda_releases_that_exist() -> None:
    for release in torch_releases().values():
        assert release.cuda_newest in cuda_releases()
        oldest, newest = (tuple(map(int, text.split("."))) for text in release.python)
        assert oldest < newest


@pytest.mark.parametrize(
    ("version", "release"),
    [
        ("2.6.0", "2.6"),
        ("2.6.0a0+git1234", "2.6"),
        ("2.10.1", "2.10"),
        ("2.1", None),
        ("3.0.0", None),
        ("", None),
        (None, None),
    ],
)
def test_the_release_of_a_version(version: str | None, release: str | None) -> None:
    found = torch_release(version)
    assert (found.version if found else None) == release


@pytest.mark.parametrize(
    ("option", "variable"),
    [
        ("USE_ANYTHING", "USE_ANYTHING"),
        ("BUILD_TEST", "BUILD_TEST"),
        ("CMAKE_CXX_FLAGS", "CMAKE_CXX_FLAGS"),
        ("BLAS", "BLAS"),
        ("HAVE_X_EXITCODE", "HAVE_X_EXITCODE"),
        ("HAVE_X_EXITCODE__TRYRUN_OUTPUT", "HAVE_X_EXITCODE__TRYRUN_OUTPUT"),
        ("CAFFE2_STATIC_LINK_CUDA", "USE_CUDA_STATIC_LINK"),
        ("TORCH_CUDA_ARCH_LIST", "TORCH_CUDA_ARCH_LIST"),
        ("MAX_JOBS", None),
        ("CAFFE2_USE_MKL", None),
        ("use_cuda", None),
    ],
)
def test_what_the_front_end_hands_on(option: str, variable: str | None) -> None:
    assert forwarding().variable(option) == variable


def test_front_end_variables_are_not_also_handed_on() -> None:
    assert not [name for name in front_end_variables() if forwarding().variable(name)]


def test_estimates_speak_of_features_projects_and_releases_that_exist() -> None:
    figures = estimates()
    for build in figures.build:
        assert build.needs_feature is None or build.needs_feature in features()
        assert build.name is None or build.name in projects()
        assert build.basis
    assert all(step.basis and step.bytes > 10**9 for step in figures.heavy)
    for wheel in figures.wheel:
        assert wheel.torch in torch_releases()
        assert set(wheel.targets) <= set(cuda_releases()[wheel.cuda].archs)


def test_templates_of_projects_use_known_places() -> None:
    for row in projects().values():
        for known in row.backends.values():
            for given in (known.environment, known.cmake, known.backend_settings):
                for template in given.values():
                    assert not set(re.findall(r"\{\w*\}", template)) - set(PLACEHOLDERS)
