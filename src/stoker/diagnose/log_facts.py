"""Facts that only the log tells: which tools and system it is of."""

from stoker.diagnose.about import About, Facts

FACTS = Facts()
_ERROR_OF_NVCC = r"\.(?:cu|cuh|h|hpp|hh|inl)\(\d{1,6}\): error: "
_ERROR_WITH_PLACE = (
    r"\.\w{1,5}(?::\d{1,6}(?P<column>:\d{1,5}): |\(\d{1,6}(?:,\d{1,5})?\) ?: )(?:fatal )?error\b"
)


@FACTS.text("run.windows", "Windows, if the log is of a build there")
def _windows(about: About) -> str | None:
    return "Windows" if about.is_windows else None


@FACTS.text("run.macos", "macOS, if the log is of a build there")
def _macos(about: About) -> str | None:
    return "macOS" if about.here.manager == "brew" else None


@FACTS.text("run.of_nvcc", "nvcc, if the log has errors in its words")
def _of_nvcc(about: About) -> str | None:
    return "nvcc" if about.first(_ERROR_OF_NVCC, "error: ") and not about.is_windows else None


@FACTS.text("run.of_gcc", "gcc, if the first error has the form of gcc and clang, not that of cl")
def _of_gcc(about: About) -> str | None:
    first = about.first(_ERROR_WITH_PLACE, "error")
    return "gcc" if first and first["column"] else None
