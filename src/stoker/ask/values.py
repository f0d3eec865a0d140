"""What a build answered when it was asked what it would compile."""

from enum import StrEnum

from stoker.model.value import Count, Seconds, Value
from stoker.model.variant import Backend
from stoker.plan.compiled import DeviceCompile, KernelTargets


class Walls(StrEnum):
    """Where a project's own programs run when it is asked."""

    CLOSED = "closed"  # no network, nothing outside can be changed, nothing survives
    OPEN = "open"  # a copy of the tree, with the rights of the user


class AskedVariable(Value, frozen=True, kw_only=True):
    """An environment variable that the build looked at."""

    name: str
    where: str  # "setup.py:74"
    value: str | None = None
    default: str | None = None  # what it takes without the variable, if it says so


class AskedWord(Value, frozen=True, kw_only=True):
    """A word of the command line of setup.py that the build looked for, or where it looked at the
    GPU of the machine.
    """

    name: str
    where: str


class AskedOption(Value, frozen=True, kw_only=True):
    """An entry of CMake's cache after configuring."""

    name: str
    value: str
    type: str  # BOOL, STRING, ...
    help: str = ""
    choices: tuple[str, ...] = ()


class Asked(Value, frozen=True, kw_only=True):
    """The answer of a build for one variant and one set of settings."""

    variant: str
    way: str  # how it was asked: cmake, setup.py or backend
    walls: Walls = Walls.CLOSED
    wall_s: Seconds = 0.0
    backend: Backend = Backend.CPU  # of the device code that it compiles; cpu: it compiles none
    cubins: tuple[str, ...] = ()
    ptx: tuple[str, ...] = ()
    kernels: tuple[KernelTargets, ...] = ()
    compiles: tuple[DeviceCompile, ...] = ()  # one for each way in which targets are named
    device_compiles: Count = 0
    host_compiles: Count = 0
    device_with_torch: Count = 0  # of these, those that include all of PyTorch's headers
    host_with_torch: Count = 0
    known_kernels: Count = 0  # of device compiles, those that were measured and count by themselves
    known_kernels_s: Seconds = 0.0  # what they took elsewhere, for one target
    longest_known_s: Seconds = 0.0  # of one of them
    one_at_a_time: bool = False  # setup.py starts each compiler itself, and waits for it
    cpu_flags: tuple[str, ...] = ()  # of host compiles, for CPUs that not every machine has
    variables: tuple[AskedVariable, ...] = ()
    words: tuple[AskedWord, ...] = ()
    looks_at_gpu: tuple[AskedWord, ...] = ()
    options: tuple[AskedOption, ...] = ()
    unused: tuple[str, ...] = ()  # settings of the plan that CMake reports as not used
    skipped: tuple[str, ...] = ()  # commands that would fetch, install or compile
    refusal: str = ""  # why the project does not build so, in its own words
    offline: str = ""  # why it ended, if it fetches files; an answer is of the others then
    stopped: str = ""  # what ended it after its commands had become known
    ended_for: str = ""  # time, memory or processes, if the room ended it
    needs_gpu: str = ""  # the place that needs a visible GPU for this answer
    without_gpu: str = ""  # what the build does without it
    pretended: str = ""  # the GPU and the CUDA that it was shown
    asks: Count = 1  # how often it was asked until the settings were found

    @property
    def complete(self) -> bool:
        """Whether the build was followed to its end."""
        return not (self.refusal or self.offline or self.stopped or self.ended_for)

    @property
    def answered(self) -> bool:
        """Whether it is known what the build compiles, which may be nothing."""
        # Kernels may be among the files that were not fetched.
        host = self.host_compiles and not self.offline
        return bool(self.device_compiles or host) or self.complete
