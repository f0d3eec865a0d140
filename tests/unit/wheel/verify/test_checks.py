"""Each check on facts made for it: what it says, how bad it is, and when it keeps quiet."""

from typing import Any

import msgspec
import pytest

from artifacts import artifact, device_code, wheel_facts
from stoker.model.artifact import ElfKind, LibraryFacts, RegionPattern
from stoker.model.finding import Finding, Severity
from stoker.plan.grammar import parse
from stoker.wheel.inspect.origins import by_folder, installed_path, resolve_needed
from stoker.wheel.verify.checks import CHECKS, examine_wheel
from stoker.wheel.verify.tested import CodeSample, PlanRecord, Use, WheelUnderTest
from stoker.wheel.zip import Member

TAG = "cp312-cp312-manylinux_2_28_x86_64"
CUBLAS = ("$ORIGIN", "$ORIGIN/../nvidia/cu13/lib")


def library(path: str = "mill/libmill.so", **changes: Any) -> LibraryFacts:
    name = path.rpartition("/")[2]
    values = {"kind": ElfKind.LIBRARY, "machine": "x86_64", "soname": name, **changes}
    return LibraryFacts(path=path, size_bytes=1000, **values)


def case(
    *libraries: LibraryFacts,
    name: str = "mill",
    tag: str = TAG,
    requires: tuple[str, ...] = (),
    **changes: Any,
) -> WheelUnderTest:
    """A wheel of these libraries, with everything in order; the rest follows from them."""
    wheel = wheel_facts(name, tags=(tag,), requires=requires)
    paths = [one.path for one in libraries]
    needed = resolve_needed(
        libraries,
        names_in=by_folder(map(installed_path, paths)),
        files={path.rpartition("/")[2] for path in paths},
        requires=requires,
    )
    values: dict[str, Any] = {
        "file_name": f"{name}-1.2-{tag}.whl",
        "plan": PlanRecord(variant=parse("cpu")),
        "members": tuple(member(path) for path in paths),
        **changes,
    }
    facts = artifact(*libraries, wheel=wheel, dependencies=needed)
    return WheelUnderTest(facts=facts, metadata=wheel, **values)


def member(name: str, mode: int = 0o644) -> Member:
    return Member(
        name=name, size=1, compressed_size=1, crc=0, mode=mode, method=0, offset=0, data=0
    )


def bad(judged: WheelUnderTest) -> dict[str, Severity]:
    """What was found, but for good news and what was not checked."""
    fine = (Severity.OK, Severity.NOTE)
    return {one.name: one.severity for one in examine_wheel(judged) if one.severity not in fine}


def found(judged: WheelUnderTest, name: str) -> Finding:
    return next(one for one in examine_wheel(judged) if one.name == name)


def passed(judged: WheelUnderTest) -> set[str]:
    return {one.name for one in examine_wheel(judged) if one.severity is Severity.OK}


def test_a_wheel_hears_of_the_checks_of_what_it_has() -> None:
    libraries = (
        library(needed=("libgrain.so", "libcublas.so.13"), rpath=CUBLAS),
        library("mill/libgrain.so"),
    )
    plan = PlanRecord(variant=parse("cpu-avx2"))
    full = case(*libraries, plan=plan, requires=("nvidia-cublas",))
    everything = {check.name for topic in CHECKS.values() for check in topic}
    # It was neither sampled nor slimmed, and is no extension of PyTorch.
    assert passed(full) == everything - {"cpu", "slimmed", "loads-with"}
    bare = {"readable", "symbols", "portability", "closure", "bundled", "openmp", "copies"}
    always = {"record", "permissions", "start", "placement", "tags", "plan", "as-asked"}
    assert passed(case(library())) == bare | always
    assert passed(case(plan=None)) == always - {"plan", "as-asked"}


def test_what_a_plan_would_allow_to_check_is_said_once() -> None:
    notes = [one.name for one in examine_wheel(case(library(), plan=None)) if one.severity != "ok"]
    assert notes == ["missing-plan"]
    assert found(case(library()), "cpu-level-unchecked").severity is Severity.NOTE
    assert {one.severity for one in examine_wheel(case(plan=None))} == {Severity.OK}


def test_the_worst_comes_first() -> None:
    findings = examine_wheel(case(library(runpath=("/opt",)), plan=None))
    severities = [one.severity for one in findings]
    assert severities == sorted(severities, key=list(Severity).index, reverse=True)
    assert severities[0] is Severity.ERROR


def test_gfortran_without_quadmath_is_an_error() -> None:
    """The case of torch 2.15."""
    wheel = case(library("torch/lib/libgfortran.so.5", needed=("libquadmath.so.0", "libm.so.6")))
    assert bad(wheel) == {"missing-library": Severity.ERROR}
    assert "libquadmath.so.0" in found(wheel, "missing-library").evidence


def test_the_package_that_has_a_missing_library_is_named() -> None:
    wheel = case(library(needed=("libcublas.so.13",)))
    assert "nvidia-cublas has it" in found(wheel, "missing-library").evidence


@pytest.mark.parametrize(
    ("needed", "options"),
    [
        (("libfmt.so.10", "libgomp.so.1"), "--mode bundle"),
        (("libfmt.so.10", "libcublas.so.13"), "--mode pypi"),  # which bundles the first
        (("libcublas.so.13",), "--mode pypi"),
        (("libc10.so.2.6",), "--mode pypi --torch VERSION"),
    ],
)
def test_what_brings_missing_libraries_is_said(needed: tuple[str, ...], options: str) -> None:
    wheel = case(library(needed=needed))
    assert found(wheel, "missing-library").fix == (f"stoker package {wheel.file_name} {options}",)


def test_an_extension_of_pytorch_needs_no_openmp_runtime_of_its_own() -> None:
    needs = library(needed=("libgomp.so.1",))
    assert bad(case(needs)) == {"missing-library": Severity.ERROR}
    assert bad(case(needs, requires=("torch==2.12.1",))) == {}


def test_what_only_a_program_lacks_is_a_warning() -> None:
    program = library("mill/bin/grind", kind=ElfKind.PROGRAM, needed=("libfar.so",))
    assert bad(case(program)) == {"missing-library": Severity.WARNING}
    assert bad(case(program, library(needed=("libfar.so",)))) == {"missing-library": Severity.ERROR}


def test_libraries_in_the_wheel_must_be_where_those_look_that_need_them() -> None:
    stones = library("mill/lib/libstones.so")
    assert bad(case(library(needed=("libstones.so",)), stones)) == {
        "library-off-path": Severity.ERROR
    }
    assert bad(case(library(needed=("libstones.so",), rpath=("$ORIGIN/lib",)), stones)) == {}


@pytest.mark.parametrize(
    ("kind", "needed", "fine"),
    [
        ("rpath", ("libgrind.so",), True),  # holds for what is loaded in turn
        ("runpath", ("libgrind.so",), False),  # does not
        ("runpath", ("libgrind.so", "libstones.so"), True),  # loads it by itself
    ],
)
def test_who_loads_a_library_may_bring_what_it_needs(
    kind: str, needed: tuple[str, ...], fine: bool
) -> None:
    module = library("mill/module.so", needed=needed, **{kind: ("$ORIGIN/lib",)})
    grind = library("mill/lib/libgrind.so", needed=("libstones.so",))
    wheel = case(module, grind, library("mill/lib/libstones.so"))
    assert (bad(wheel) == {}) is fine


def test_libraries_that_load_each_other_end() -> None:
    one = library("mill/liba.so", needed=("libb.so",))
    two = library("mill/libb.so", needed=("liba.so",))
    assert bad(case(one, two)) == {"library-off-path": Severity.ERROR}


@pytest.mark.parametrize(
    ("folder", "fine"),
    [
        ("$ORIGIN/../nvidia/cu13/lib", True),
        ("$ORIGIN/../nvidia/cublas/lib", True),
        ("${ORIGIN}/../nvidia/cublas/lib", True),
        ("$ORIGIN/../nvidia/cufft/lib", False),
        ("$ORIGIN", False),
    ],
)
def test_packages_must_be_within_reach(folder: str, fine: bool) -> None:
    wheel = case(
        library(needed=("libcublas.so.13",), rpath=(folder,)), requires=("nvidia-cublas==13.1",)
    )
    assert bad(wheel) == ({} if fine else {"package-off-path": Severity.ERROR})


@pytest.mark.parametrize(
    ("requirement", "fine"),
    [
        ("torch>=2.9", True),
        ("torch", True),
        ("torch-scatter", False),
        ('torch; extra == "a"', False),
    ],
)
def test_torch_has_loaded_the_packages_of_its_extensions(requirement: str, fine: bool) -> None:
    wheel = case(library(needed=("libcublas.so.13",)), requires=("nvidia-cublas", requirement))
    assert (bad(wheel) == {}) is fine


def test_the_search_path_of_an_extension_is_not_that_of_nvidias_packages() -> None:
    extension = library(needed=("libcudart.so.13", "libc10.so"), runpath=("$ORIGIN",))
    assert bad(case(extension, requires=("torch==2.12.1",))) == {}


@pytest.mark.parametrize(
    ("folder", "name"),
    [
        ("/usr/local/cuda/lib64", "absolute-rpath"),
        ("lib", "relative-rpath"),
        ("$ORIGIN/../../../../../lib", "rpath-outside"),
        ("$ORIGIN/../../../../lib", None),  # lib of the environment itself
        ("$ORIGIN/../mill.libs", None),
    ],
)
@pytest.mark.parametrize("kind", ["rpath", "runpath"])
def test_search_paths_stay_inside(folder: str, name: str | None, kind: str) -> None:
    paths: dict[str, Any] = {kind: (folder,)}
    assert bad(case(library(**paths))) == ({name: Severity.ERROR} if name else {})


def test_runpath_is_an_error_where_it_leads_to_packages() -> None:
    leading = library(runpath=("$ORIGIN/../nvidia/cu13/lib",))
    assert bad(case(leading)) == {"runpath-instead-of-rpath": Severity.ERROR}
    program = library("mill/bin/grind", kind=ElfKind.PROGRAM, runpath=leading.runpath)
    assert bad(case(program)) == {}
    assert bad(case(library(runpath=("$ORIGIN",)))) == {}


@pytest.mark.parametrize(
    ("tag", "machine", "fine"),
    [
        (TAG, "x86_64", True),
        (TAG, "aarch64", False),
        ("py3-none-any", "x86_64", False),
        ("cp312-cp312-manylinux2014_aarch64.manylinux_2_17_aarch64", "aarch64", True),
        ("cp312-cp312-manylinux_2_28_x86_64.manylinux_2_28_aarch64", "aarch64", False),
    ],
)
def test_tags_name_the_machine(tag: str, machine: str, fine: bool) -> None:
    assert bad(case(library(machine=machine), tag=tag)) == (
        {} if fine else {"wrong-tag": Severity.ERROR}
    )


@pytest.mark.parametrize(
    "file_name",
    ["mill-1.2-cp311-cp311-manylinux_2_28_x86_64.whl", f"mill-1.3-{TAG}.whl", "mill.whl"],
)
def test_the_name_of_the_file_says_the_same(file_name: str) -> None:
    assert bad(case(library(), file_name=file_name)) == {"wrong-tag": Severity.ERROR}


@pytest.mark.parametrize("tag", ["", "py3", "py3-none-any-else", f"py3-none-{'a.' * 40}b"])
def test_a_tag_that_is_none(tag: str) -> None:
    assert bad(case(library(), tag=tag)) == {"wrong-tag": Severity.ERROR}


def test_modules_are_for_the_python_of_the_tag() -> None:
    module = library("mill/grind.cpython-311-x86_64-linux-gnu.so")
    assert bad(case(module)) == {"wrong-tag": Severity.ERROR}
    assert bad(case(library("mill/grind.cpython-312-x86_64-linux-gnu.so"))) == {}
    assert bad(case(library("mill/grind.abi3.so"))) == {}


@pytest.mark.parametrize(
    ("tag", "glibc", "fine"),
    [
        ("manylinux_2_28_x86_64", "2.28", True),
        ("manylinux_2_28_x86_64", "2.29", False),
        ("manylinux_2_30_x86_64", "2.28", True),  # there is no policy of that name
        ("manylinux2014_x86_64", "2.18", False),
        ("manylinux2014_x86_64.manylinux_2_28_x86_64", "2.28", False),  # both must hold
        ("linux_x86_64", "2.99", True),  # promises nothing
    ],
)
def test_symbols_are_those_that_the_tag_promises(tag: str, glibc: str, fine: bool) -> None:
    wheel = case(library(versions={"GLIBC": glibc}), tag=f"cp312-cp312-{tag}")
    assert bad(wheel) == ({} if fine else {"too-new-symbols": Severity.ERROR})


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("libcuda.so.1", "bundled-driver"),
        ("libcuda-1a2b3c4d.so.1", "bundled-driver"),
        ("libnvidia-ml.so.1", "bundled-driver"),
        ("libpython3.12.so.1.0", "bundled-driver"),
        ("libc.so.6", "bundled-glibc"),
        ("ld-linux-x86-64.so.2", "bundled-glibc"),
        ("libm-1a2b3c4d.so.6", "bundled-glibc"),
        ("libcudart.so.13", None),
        ("libmagma.so", None),
        ("_C.so", None),
    ],
)
def test_what_must_not_be_in_a_wheel(file: str, name: str | None) -> None:
    assert bad(case(library(f"mill/{file}"))) == ({name: Severity.ERROR} if name else {})


def test_one_openmp_runtime_is_enough() -> None:
    own, other = library("mill/libgomp.so.1"), library("mill.libs/libomp-0a1b2c3d.so")
    assert bad(case(own)) == {}
    assert bad(case(own, other)) == {"second-openmp": Severity.ERROR}
    assert bad(case(own, requires=("torch",))) == {"second-openmp": Severity.ERROR}


def test_a_library_under_several_names_is_a_warning() -> None:
    names = ("libmill.so", "libmill.so.2", "libmill.so.2.1")
    copies = [library(f"mill/{name}", soname="libmill.so.2") for name in names]
    finding = found(case(*copies), "copied-libraries")
    assert finding.severity is Severity.WARNING
    assert "2.0 KiB" in finding.title
    assert finding.evidence == "mill/libmill.so.2 is also libmill.so, libmill.so.2.1"
    elsewhere = library("other/libmill.so.2", soname="libmill.so.2")
    changed = msgspec.structs.replace(copies[0], size_bytes=1001)
    assert "copied-libraries" not in bad(case(copies[1], elsewhere, changed))


def test_a_file_that_all_users_may_write() -> None:
    members = (member("mill/a.py", 0o666), member("mill/b.py", 0o664))
    assert found(case(members=members), "world-writable").evidence == "mill/a.py"


def test_a_plan_that_cannot_be_read() -> None:
    assert bad(case(plan=PlanRecord(problem="cut short"))) == {"unreadable-plan": Severity.ERROR}


@pytest.mark.parametrize(
    ("asked", "built", "fine"),
    [
        ("cpu", "cpu-avx2-py312", True),
        ("cpu-avx2", "cpu-avx512", False),
        ("cpu-py312", "cpu-py311", False),
    ],
)
def test_the_plan_is_held_against_what_was_asked(asked: str, built: str, fine: bool) -> None:
    wheel = case(asked=parse(asked), plan=PlanRecord(variant=parse(built)))
    assert ("other-plan" not in bad(wheel)) is fine


def test_unreadable_libraries_are_told() -> None:
    broken = LibraryFacts(path="mill/broken.so", size_bytes=3, problem="mill/broken.so: cut short")
    assert bad(case(broken)) == {"unreadable-library": Severity.ERROR}


def asked(words: str) -> dict[str, Any]:
    return {"asked": parse(words), "plan": None}


@pytest.mark.parametrize(
    ("words", "present", "names"),
    [
        ("8.0;9.0", ["sm_80", "sm_90"], set()),
        ("8.0;9.0", ["sm_80"], {"missing-architecture"}),
        ("8.0", ["sm_80", "sm_90"], {"extra-architecture"}),
        ("9.0a", ["sm_90a"], set()),
        ("9.0a", ["sm_90"], {"missing-architecture", "extra-architecture"}),
        ("9.0", ["sm_90", "sm_90a"], {"extra-architecture"}),
        ("10.0f", ["sm_100"], {"missing-architecture", "extra-architecture"}),
        ("9.0+PTX", ["sm_90", "compute_90"], set()),
        ("9.0+PTX", ["sm_90"], {"missing-architecture"}),
        ("9.0", ["sm_90", "compute_90"], {"extra-architecture"}),
        ("cpu", ["sm_90"], {"extra-architecture"}),
        ("cpu", [], set()),
    ],
)
def test_architectures_are_exactly_those_asked_for(
    words: str, present: list[str], names: set[str]
) -> None:
    wheel = case(library(device_code=tuple(map(device_code, present))), **asked(words))
    assert bad(wheel).keys() - {"missing-plan"} == names


OFFICIAL = "sm_75 sm_80 sm_86 sm_89 sm_90 sm_90a sm_100 sm_100a sm_103f sm_120 sm_120a sm_121a"


def test_what_pytorch_adds_by_itself_is_no_finding() -> None:
    """As in the official wheel of 2.15."""
    main = library(
        "torch/lib/libtorch_cuda.so", device_code=tuple(map(device_code, OFFICIAL.split()))
    )
    linalg = library("torch/lib/libtorch_cuda_linalg.so", device_code=(device_code("sm_50"),))
    torch = case(main, linalg, name="torch", **asked("7.5;8.0;8.6;9.0;10.0;12.0"))
    assert bad(torch) == {}
    other = case(main, linalg, **asked("7.5;8.0;8.6;9.0;10.0;12.0"))
    assert "extra-architecture" in bad(other)


def test_what_linking_left_over_does_not_count() -> None:
    wheel = case(
        library(device_code=(device_code("sm_90"), device_code("sm_80", linked=False))),
        **asked("9.0"),
    )
    assert "extra-architecture" not in bad(wheel)


def test_nvidias_own_libraries_have_their_own_architectures() -> None:
    cublas = library("mill/libcublas.so.13", device_code=(device_code("sm_75"),))
    wheel = case(library(device_code=(device_code("sm_90"),)), cublas, **asked("9.0"))
    assert bad(wheel) == {}


def test_a_library_that_lacks_what_another_has_is_told() -> None:
    old, new = (RegionPattern(archs=(arch,), count=1) for arch in ("sm_80", "sm_90"))
    both = RegionPattern(archs=("sm_80", "sm_90"), count=1)
    wheel = case(
        library(
            "mill/a.so", device_code=(device_code("sm_80"), device_code("sm_90")), regions=(both,)
        ),
        library("mill/b.so", device_code=(device_code("sm_80"),), regions=(old,)),
        library(
            "mill/c.so",
            device_code=(device_code("sm_80"), device_code("sm_90")),
            regions=(both, new),
        ),
        **asked("8.0;9.0"),
    )
    assert found(wheel, "architecture-not-everywhere").evidence.splitlines() == [
        "mill/c.so: only some kernels for 8.0",
        "mill/b.so: nothing for 9.0",
    ]


def test_nothing_is_said_of_what_is_not_read() -> None:
    assert found(case(**asked("rocm")), "architectures-unchecked").severity is Severity.NOTE


def test_cuda_and_python_are_those_asked_for() -> None:
    needing = library(needed=("libcudart.so.12",), rpath=("$ORIGIN/../nvidia/cuda_runtime/lib",))
    requires = ("nvidia-cuda-runtime-cu12",)
    assert "wrong-cuda" in bad(case(needing, requires=requires, **asked("cu130")))
    assert "wrong-cuda" not in bad(case(needing, requires=requires, **asked("cu128")))
    assert "wrong-python" in bad(case(**asked("cpu-py311")))
    assert "wrong-python" not in bad(case(**asked("cpu-py312")))


def sample(function: str = "grind", **changes: Any) -> CodeSample:
    use = Use(function=function, instruction_set="AVX-512", line="vaddps %zmm0,%zmm0,%zmm0")
    use = msgspec.structs.replace(
        use, **{k: changes.pop(k) for k in ("file", "copies") if k in changes}
    )
    return CodeSample(path="mill/libmill.so", functions=1, read=9, size=9, uses=(use,), **changes)


@pytest.mark.parametrize(
    ("taken", "name"),
    [
        (sample(), "cpu-level"),
        (sample(named=False), "cpu-level-unnamed"),
        (sample("_ZN2at6native6AVX5123addEv"), None),
        (sample(file="AddKernel.cpp.AVX512.cpp"), None),
        (sample(file="AddKernel.cpp.DEFAULT.cpp"), "cpu-level"),
        (sample(copies=True), None),
        (sample("isVectorParamX_frozen"), "cpu-level"),  # holds sve, amx and zen by accident
        (sample("mkl_vml_kernel_dCos_Z0HAynn"), None),
    ],
)
def test_code_for_every_cpu_keeps_to_the_level(taken: CodeSample, name: str | None) -> None:
    wheel = case(library(), samples=(taken,), **asked("cpu-avx2"))
    assert bad(wheel).keys() - {"missing-plan"} == ({name} if name else set())


def test_property_notes_are_believed() -> None:
    marked = library(isa=("x86-64-v4",))
    whole = CodeSample(path=marked.path, read=9, size=9)
    assert "cpu-level-marked" in bad(case(marked, samples=(whole,), **asked("cpu-avx2")))
    assert "cpu-level-marked" not in bad(case(marked, samples=(whole,), **asked("cpu-x86_64_v4")))


def test_another_family_of_cpu() -> None:
    assert "wrong-cpu-family" in bad(case(library(), **asked("cpu-armv8")))


def test_what_was_not_read_is_told() -> None:
    half = CodeSample(path="mill/libmill.so", read=1 << 20, size=2 << 20)
    wheel = case(library(), library("mill/other.so"), samples=(half,), **asked("cpu-avx2"))
    evidence = found(wheel, "cpu-level-sampled").evidence
    assert "1.0 MiB of 2.0 MiB" in evidence
    assert "not read: mill/other.so" in evidence
