"""Tells the messages that did not stop a build: those after which it continued, and warnings below
an error. Pure.
"""

from stoker.diagnose.lines import compiled
from stoker.diagnose.signs import LogSearch, Match
from stoker.knowledge.failures import FailureStage

# An error that is no warning made one: what -Werror refuses below it follows from it, or is second.
_OF_WARNING = "werror-new-gcc"
_HARD_ERROR = (
    r"\.(?:[chly]|cc|cpp|cxx|C|hh|hpp|hxx|cu|cuh|mm?):\d{1,7}:\d{1,5}: (?:fatal )?error: "
    r"(?!incompatible function pointer|.{0,2000}\[-W)"
)
_MOST_ERRORS = 20  # that are looked for above a warning
# Stages that are over once a compiler runs, those of them that look for things, and a line that
# shows that a compiler or linker runs.
_FINDING = frozenset({FailureStage.CONFIGURE, FailureStage.INSTALL})
_BEFORE_COMPILING = _FINDING | {
    FailureStage.FETCH,
    FailureStage.PACKAGE,
    FailureStage.IMPORT,
    FailureStage.RUN,
}
_COMPILES = (
    r"\s{0,24}(?:\[ {0,4}\d{1,6}(?:/\d{1,6}|%)\] |(?:CC|CXX|CPP|LD)(?: |\()"
    r"|(?:Compiling|Building) \w"
    r"|(?:\d{1,3}>)?Building Custom Rule |(?:\d{1,3}>)?[\w.+-]{1,80}\.(?:c|cc|cpp|cxx|cu)$"
    r"|(?:libtool: compile:|/bin/(?:ba)?sh \S{0,80}libtool).{0,200} -c "
    r"|(?:\S{0,200}/)?(?:[\w-]{2,40}-)?(?:gcc|g\+\+|cc|c\+\+|clang|clang\+\+|nvcc|hipcc|cl)"
    r"(?:-[\d.]{1,5})?(?:\.exe)? .{0,2000}(?:\s-c\s|\s/c\s))"
)
_LATER_ERRORS = (
    _HARD_ERROR,
    r"\.(?:[chi]|cc|cpp|cxx|hpp|cu|cuh)\(\d{1,7}(?:,\d{1,5})?\): (?:fatal )?error C\d{4}: ",
    r"\.(?:cu|cuh|h|hpp|inl|cpp)\(\d{1,7}\): (?:catastrophic )?error: |error\[E\d{4}\]: ",
    r": undefined reference to |unresolved external symbol |ld\S{0,8}: error: undefined symbol: ",
)
_NO_FILE = r"No such file|file not found|cannot open (?:source|include)|Cannot open include"
# About a program or library that did not start, at whatever stage.
_NOT_STARTED = (
    r"cannot open shared object file|^(?:Import|ModuleNotFound)Error: |: (?:command )?not found$"
)


def is_gone_past(match: Match, search: LogSearch) -> bool:
    """Return whether the build continued after what a tool said before anything was compiled, and
    failed in a source or at a link later: such a message was about something that the build can do
    without. A header that is not found may be what a configure missed.
    """
    if not (match.cause.stage in _BEFORE_COMPILING or _is_about_a_start(match, search)):
        return False
    found = (search.texts.search(one, most=_MOST_ERRORS) for one in _LATER_ERRORS)
    later = (line for lines in found for line in lines if line > match.line)
    error = min(later, default=None)
    if error is None or search.steps.taken_back(error):
        return False
    if match.cause.stage in _FINDING and compiled(_NO_FILE).search(search.lines[error].text):
        return False
    for line in range(match.line + 1, error):
        if line in search.steps.echoes:
            return False
        if compiled(_COMPILES).match(search.lines[line].text):
            return True
    return False


def is_behind_error(match: Match, search: LogSearch) -> bool:
    """Return whether a match is a warning made an error, and a line above it in the same step an
    error in itself.
    """
    if match.cause.name != _OF_WARNING:
        return False
    step = search.steps.step
    hard = search.texts.search(_HARD_ERROR, most=_MOST_ERRORS)
    return any(line < match.line and step[line] == step[match.line] for line in hard)


def _is_about_a_start(match: Match, search: LogSearch) -> bool:
    return bool(compiled(_NOT_STARTED).search(search.lines[match.line].text))
