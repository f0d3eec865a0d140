"""Parameters of fixes that come from the machine of a run."""

from stoker.diagnose.signs import parameters
from subjects import GIB, disk, gpu, linux, memory, toolbox, toolkit


def test_jobs_are_those_that_memory_and_cpus_allow() -> None:
    assert parameters(linux(memory=memory(9 * GIB)), toolbox(), "make")["jobs"] == "2"
    assert parameters(linux(memory=memory(GIB)), toolbox(), "make")["jobs"] == "1"
    assert parameters(linux(memory=memory(900 * GIB)), toolbox(), "make")["jobs"] == "8"


def test_the_folder_is_where_there_is_most_room() -> None:
    disks = (
        disk(path="/tmp", free=900 * GIB, in_memory=True),
        disk(path="/"),
        disk(path="/data", free=300 * GIB),
    )
    assert parameters(linux(disks=disks), toolbox(), "")["folder"] == "/data/stoker-tmp"


def test_architectures_are_of_gpus_here_that_nvcc_makes_code_for() -> None:
    both = linux(gpus=(gpu("8.6"), gpu("5.2")))
    assert parameters(both, toolbox(), "")["arch_list"] == "8.6"
    none = parameters(linux(), toolbox(), "")["arch_list"]
    assert none == toolkit().archs[-1]


def test_gcc_is_the_newest_that_this_cuda_takes() -> None:
    known = parameters(linux(), toolbox(cuda=(toolkit("12.4"),)), "")
    assert known["gcc"] == "13"
    assert known["cuda_home"] == "/usr/local/cuda-12.4"


def test_what_is_not_known_is_left_to_the_defaults() -> None:
    known = parameters(linux(disks=()), toolbox(cuda=()), "")
    assert set(known) == {"jobs"}
