"""The host compiler, nvcc and the driver."""

import pytest
from msgspec.structs import replace

from stoker.knowledge.gpus import cuda_releases
from stoker.model.errors import UsageError
from stoker.model.finding import Severity
from stoker.model.machine import Tool, Toolbox
from subjects import (
    cmake_tree,
    debian,
    doctor,
    extension_tree,
    gpu,
    linux,
    named,
    names,
    pytorch_tree,
    tool,
    toolbox,
    toolkit,
    tools,
)


def with_compiler(version: str | None, **changes: str) -> Toolbox:
    cxx = tool("cxx", version, **changes)
    kits = (toolkit("12.4"), toolkit("12.8"), toolkit("13.0"))
    return toolbox(tools=tools(cxx=cxx), cuda=kits)


def test_no_compiler() -> None:
    finding = named(doctor("cpu", toolbox=toolbox(tools=tools(cxx=None))), "compiler-missing")
    assert finding.severity is Severity.ERROR
    assert finding.fix == ("apt-get install -y g++",)


@pytest.mark.parametrize(
    ("found", "says"),
    [
        (tool("cxx", problem="was killed by signal 11"), "was killed by signal 11"),
        (tool("cxx"), "does not print its version"),
    ],
)
def test_a_broken_compiler(found: Tool, says: str) -> None:
    finding = named(doctor("cpu", toolbox=toolbox(tools=tools(cxx=found))), "compiler-broken")
    assert finding.severity is Severity.ERROR
    assert finding.title == f"/usr/bin/cxx {says}"


def test_a_compiler_too_old_for_pytorch() -> None:
    findings = doctor("cpu", toolbox=with_compiler("8.5.0"), tree=pytorch_tree())
    finding = named(findings, "compiler-too-old")
    assert finding.severity is Severity.ERROR
    assert "needs 9" in finding.title
    assert finding.fix[0] == "apt-get install -y g++-11"
    assert "CXX=g++-11" in finding.fix[-1]
    assert "compiler" not in names(findings)
    elsewhere = doctor("cpu", toolbox=with_compiler("8.5.0"), tree=cmake_tree())
    assert "compiler-too-old" not in names(elsewhere)


@pytest.mark.parametrize(
    ("words", "version", "path", "newest"),
    [
        ("cu124-sm90", "14.2.0", "/usr/bin/g++", 13),
        ("cu124-sm90", "18.1.0", "/usr/bin/clang++", 17),
        ("cu130-sm90", "21.1.0", "/usr/bin/clang++-21", 20),
    ],
)
def test_a_compiler_newer_than_cuda_accepts(
    words: str, version: str, path: str, newest: int
) -> None:
    finding = named(doctor(words, toolbox=with_compiler(version, path=path)), "compiler-too-new")
    assert finding.severity is Severity.ERROR
    assert f"({newest})" in finding.title
    assert finding.evidence == path
    assert "CUDAHOSTCXX=g++-" in finding.fix[-1]


@pytest.mark.parametrize(
    ("words", "version", "path"),
    [
        ("cu124-sm90", "13.3.0", "/usr/bin/g++"),
        ("cu124-sm90", "17.0.6", "/usr/bin/clang++"),
        ("cpu", "99.0.0", "/usr/bin/g++"),
    ],
)
def test_a_compiler_that_serves(words: str, version: str, path: str) -> None:
    finding = named(doctor(words, toolbox=with_compiler(version, path=path)), "compiler")
    assert finding.severity is Severity.OK
    assert version in finding.title


def test_the_compiler_is_judged_by_the_toolkit_that_is_here() -> None:
    box = toolbox(tools=tools(cxx=tool("cxx", "14.2.0")), cuda=(toolkit("12.4"),))
    assert "compiler-too-new" in names(doctor("cuda-sm90", toolbox=box))


def test_an_installed_compiler_needs_no_package() -> None:
    box = replace(with_compiler("14.2.0"), gccs=(11, 12))
    assert named(doctor("cu124-sm90", toolbox=box), "compiler-too-new").fix == (
        "export CC=gcc-12 CXX=g++-12 CUDAHOSTCXX=g++-12",
    )


def test_a_missing_nvcc_is_installed_from_the_index_if_the_index_has_it() -> None:
    finding = named(doctor("cu130-sm90", toolbox=toolbox(cuda=())), "nvcc-missing")
    assert finding.severity is Severity.ERROR
    assert finding.title == "no working CUDA 13.0 compiler"
    assert "none" in finding.evidence
    assert finding.fix == ("stoker toolchain install cuda==13.0 --with torch",)
    other = doctor("cu130-sm90", toolbox=toolbox(cuda=()), tree=cmake_tree())
    assert named(other, "nvcc-missing").fix == ("stoker toolchain install cuda==13.0",)


def test_another_version_is_evidence() -> None:
    finding = named(doctor("cu124-sm90", toolbox=toolbox(cuda=(toolkit("13.0"),))), "nvcc-missing")
    assert "13.0" in finding.evidence
    assert not any("toolchain install" in fix for fix in finding.fix)


def test_a_broken_nvcc_is_said_and_the_next_one_taken() -> None:
    kits = (toolkit("13.1", problem="did not answer in time"), toolkit("13.0"))
    findings = doctor("cuda-sm90", toolbox=toolbox(cuda=kits))
    broken = named(findings, "nvcc-broken")
    assert broken.severity is Severity.WARNING
    assert broken.title == "/usr/local/cuda-13.1/bin/nvcc did not answer in time"
    assert named(findings, "nvcc").title == "CUDA 13.0"


def test_only_a_broken_nvcc_is_none() -> None:
    findings = doctor("cuda-sm90", toolbox=toolbox(cuda=(toolkit("13.0", problem="crashed"),)))
    assert {"nvcc-broken", "nvcc-missing"} <= names(findings)


def test_a_toolkit_without_the_headers_that_pytorch_includes() -> None:
    """torch-scatter ended after its first compile: cusparse.h, which the toolkit did not have."""
    bare = toolkit("13.0", lacks=("cusparse.h",))
    box, command = toolbox(cuda=(bare,)), "stoker toolchain install cuda==13.0 --with"
    findings = doctor("cu130-sm90", toolbox=box, tree=extension_tree())
    finding = named(findings, "cuda-headers-missing")
    assert finding.severity is Severity.WARNING
    assert "cusparse.h" in finding.title
    assert finding.fix == (f"{command} cublas,cusolver,cusparse",)
    # PyTorch itself needs the other libraries of the toolkit as well.
    findings = doctor("cu130-sm90", toolbox=box, tree=pytorch_tree())
    assert named(findings, "cuda-headers-missing").fix == (f"{command} torch",)
    whole = toolkit("13.0", home="/whole", nvcc="/whole/bin/nvcc")
    findings = doctor("cu130-sm90", toolbox=toolbox(cuda=(bare, whole)))
    assert named(findings, "nvcc").evidence == "/whole/bin/nvcc"


def test_an_nvcc_that_lists_no_such_target() -> None:
    """The table of releases says that it makes one; the installed nvcc is asked first."""
    box = toolbox(cuda=(toolkit("13.0", archs=("8.0", "9.0")),))
    finding = named(doctor("cuda-sm120", toolbox=box), "nvcc-lacks-target")
    assert finding.severity is Severity.ERROR
    assert "12.0" in finding.title
    assert "9.0" in finding.evidence


@pytest.mark.parametrize(
    ("words", "version", "arch"), [("cuda-sm100f", "12.8", "10.0f"), ("cuda-sm90a", "11.8", "9.0a")]
)
def test_a_suffix_that_this_nvcc_does_not_know(words: str, version: str, arch: str) -> None:
    """nvcc lists targets without suffixes; the table of releases knows which ones it takes."""
    with pytest.raises(UsageError, match=f"CUDA {version} in .* cannot make code for {arch}"):
        doctor(words, toolbox=toolbox(cuda=(toolkit(version),)))


def test_a_target_that_nvcc_does_not_list_may_still_be_made() -> None:
    """Its list has no suffixes, or could not be read."""
    assert named(doctor("cuda-sm90a"), "nvcc").severity is Severity.OK
    box = toolbox(cuda=(toolkit("13.0", archs=()),))
    assert named(doctor("cuda-sm90", toolbox=box), "nvcc").severity is Severity.OK


@pytest.mark.parametrize("words", ["cuda-sm70", "cuda-sm107", "cuda-sm90", "cuda-sm61+sm90"])
def test_no_toolkit_is_advised_that_cannot_make_the_target(words: str) -> None:
    finding = named(doctor(words, toolbox=toolbox(cuda=())), "nvcc-missing")
    versions = [fix.partition("cuda==")[2].split()[0] for fix in finding.fix if "cuda==" in fix]
    wanted = {"cuda-sm70": {"7.0"}, "cuda-sm107": {"10.7"}, "cuda-sm90": {"9.0"}}
    for version in versions:
        assert wanted.get(words, {"6.1", "9.0"}) <= set(cuda_releases()[version].archs)
    assert finding.fix


@pytest.mark.parametrize("words", ["cuda-sm70+sm110", "cuda-sm35+sm120", "cuda-sm101+sm110"])
def test_targets_that_no_one_toolkit_makes(words: str) -> None:
    """7.0 went with CUDA 12, 11.0 came with 13: nothing can be advised, but it is said."""
    finding = named(doctor(words, toolbox=toolbox(cuda=())), "nvcc-missing")
    assert finding.severity is Severity.ERROR
    assert not [fix for fix in finding.fix if "toolchain install" in fix]


def test_nvcc_is_nobodys_business_without_cuda() -> None:
    findings = doctor("cpu", toolbox=toolbox(cuda=(toolkit("13.0", problem="crashed"),)))
    assert not {"nvcc", "nvcc-broken", "nvcc-missing"} & names(findings)


@pytest.mark.parametrize(
    ("driver", "old"), [("535.183.01", True), ("580.65.06", False), ("", True), ("600.1", False)]
)
def test_a_driver_that_cannot_load_the_code(driver: str, old: bool) -> None:
    machine = linux(gpus=(gpu("9.0", driver=driver),))
    findings = doctor("cu130-sm90", machine=machine, tree=extension_tree())
    assert ("driver-too-old" in names(findings, Severity.WARNING)) == old


def test_the_driver_of_this_machine_does_not_matter_elsewhere() -> None:
    machine = linux(gpus=(gpu("9.0", driver="470.1"),))
    assert "driver-too-old" not in names(doctor("cu130-sm90-linux_aarch64", machine=machine))
    assert "driver-too-old" not in names(doctor("cpu", machine=machine))


@pytest.mark.parametrize(
    ("words", "name", "program", "title"),
    [("rocm-gfx942", "rocm", "hipcc", "ROCm"), ("xpu-pvc", "xpu", "icpx", "Intel oneAPI")],
)
def test_a_back_end_without_its_toolkit_cannot_run(
    words: str, name: str, program: str, title: str
) -> None:
    missing = named(doctor(words), f"{name}-missing")
    assert missing.severity is Severity.ERROR
    assert missing.title == f"{title} is not installed: no {program} found"
    assert "https://" in missing.evidence
    there = toolbox(tools=tools(**{program: tool(program, "6.4.43")}))
    assert named(doctor(words, toolbox=there), name).severity is Severity.OK
    broken = toolbox(tools=tools(**{program: tool(program, problem="crashed")}))
    assert named(doctor(words, toolbox=broken), f"{name}-missing").severity is Severity.ERROR


def test_another_version_of_rocm_is_not_the_one_asked_for() -> None:
    box = toolbox(tools=tools(hipcc=tool("hipcc", "6.4.43")))
    assert named(doctor("rocm6.4-gfx942", toolbox=box), "rocm").severity is Severity.OK
    finding = named(doctor("rocm7.0-gfx942", toolbox=box), "rocm-version")
    assert finding.title == "ROCm 7.0 not found: hipcc is of version 6.4.43"


@pytest.mark.parametrize(
    ("version", "words", "fix"),
    [
        ("12", "cu118-sm80", "apt-get install -y g++-11"),  # accepts gcc up to 11
        ("13", "cu130-sm90", "apt-get install -y g++-14"),  # accepts gcc up to 15
        ("99", "cu130-sm90", "export CC=gcc-15 CXX=g++-15   # once they are installed"),
    ],
)
def test_only_compilers_that_the_distribution_has_are_suggested(
    version: str, words: str, fix: str
) -> None:
    machine = linux(os=debian(version=version))
    box = toolbox(tools=tools(cxx=tool("cxx", "16.1.0")))
    finding = named(doctor(words, machine=machine, toolbox=box), "compiler-too-new")
    assert finding.fix[0] == fix
