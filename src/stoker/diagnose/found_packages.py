"""Reads why CMake refuses a package that it found: the package itself says so, or its version, or a
file of it is not there.

Such a message names the package, and not what is wrong with it: that is in its last paragraph, or
in a warning above it. Ranks nothing.
"""

from collections.abc import Iterator

from stoker.diagnose.lines import compiled
from stoker.diagnose.messages import message_text
from stoker.diagnose.signs import LogSearch

_REFUSED = (
    r"but it set (?P<package>[\w.+-]{1,60})_FOUND to FALSE so package .{1,80}NOT FOUND\.?"
    r"(?: {1,3}Reason given by package: (?P<reason>.{5,300}))?"
)
_OF_PACKAGE = r"CMake Warning at \S{1,300}[Cc]onfig\.cmake:\d{1,6} "
_LACKED = (
    r"\b(?:[Dd]ependency|[Rr]equires?|[Nn]eeds?) [\"']?(?P<cmake>[A-Za-z][\w.+-]{1,60})[\"']?"
    r" (?:could|was|is|not|cannot)\b"
)
_DECLINED = (
    r"file for package \"(?P<product>[\w.+-]{1,60})\" that (?:is compatible with|exactly matches)"
    r" requested version(?: range)? \"(?P<wanted>[\w.+ -]{1,30})\".{0,300}"
    r"considered but not accepted:.{0,400}?, version: (?P<found>\d[\w.+-]{0,30})"
)
# An error in the file by which an installed package describes itself, and the file that it names.
_IN_PACKAGE = (
    r"CMake Error at (?P<config>(?:[A-Za-z]:)?/\S{0,300}?/(?:lib\w{0,4}|share|cmake)/"
    r"(?:\S{1,200}/)?(?P<package>[\w.+-]{1,60}?)-?"
    r"(?:[Cc]onfig(?:-?[Vv]ersion)?|[Tt]argets|[Ee]xports?|[Ee]xtras?|[Mm]acros|[Hh]elpers)"
    r"\w{0,10}\.cmake):\d{1,6} \((?:include|file|set_and_check|configure_file)\):"
)
_NAMES_FILE = (
    r"(?:include could not find (?:load|requested) file: {1,4}"
    r"|file failed to open for reading \(No such file or directory\): {1,4}"
    r"|file (?:STRINGS|READ) file \"(?=[^\"]{1,300}\" cannot be read)"
    r"|File or directory (?=\S{1,300} referenced by variable))"
    r"(?P<path>[^\s\"]{1,300})"
)
# No installation has such folders: the file was moved, or is found through a link.
_DOUBLED = (
    r"/(?P<part>lib(?:64|32)?|usr|include|share|cmake|bin)/(?P=part)/"
    r"|^/(?:include|share)/|^/usr/lib(?:64)?/include/"
)
_OF_DEBIAN = r"/usr/(?:lib/(?:[\w]{1,20}-linux-\w{2,12}|llvm-\d{1,2})|share)/"
_OF_FEDORA = r"/usr/lib64/"
_LONGEST = 200  # characters of a reason; the first sentence says it
PATTERNS = (_OF_PACKAGE,)


def refused_packages(search: LogSearch) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield the packages that declared themselves unusable: the line, the package, its reason, and
    the dependency that it lacks.
    """
    for begin, span in search.steps.refusals.items():
        found = compiled(_REFUSED).search(message_text(search.lines, span))
        if not found:
            continue
        reason = found["reason"] or _warned(search, begin)
        if reason:
            lacked = compiled(_LACKED).search(reason)
            named = {"cmake": lacked["cmake"]} if lacked else {}
            short = reason[:_LONGEST].partition(". ")[0].rstrip(". ")
            yield begin, {"package": found["package"], "reason": short} | named


def declined_versions(search: LogSearch) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield the errors about a package of which a warning above them says that it is there in a
    version that is not accepted: the line, the package, its version and the one that is wanted.
    """
    above = [
        (span.start, found)
        for span in search.steps.warnings
        if (found := compiled(_DECLINED).search(message_text(search.lines, span)))
    ]
    if not above:
        return
    for begin, span in search.steps.refusals.items():
        message = message_text(search.lines, span).lower()
        for warned, found in above:
            if warned < begin and found["product"].lower() in message:
                yield begin, found.groupdict()


def incomplete_packages(search: LogSearch) -> Iterator[tuple[int, bool, dict[str, str]]]:
    """Yield the packages whose own files name a file that is not there: the line, whether they
    compute their folder wrongly, the package and the file.
    """
    for begin, span in search.steps.refusals.items():
        head = compiled(_IN_PACKAGE).search(search.lines[begin].text)
        named = head and compiled(_NAMES_FILE).search(message_text(search.lines, span))
        if not head or not named:
            continue
        groups = {"package": head["package"], "path": named["path"]}
        if compiled(_OF_DEBIAN).match(head["config"]):
            groups["debian"] = head["config"]
        elif compiled(_OF_FEDORA).match(head["config"]):
            groups["fedora"] = head["config"]
        yield begin, bool(compiled(_DOUBLED).search(named["path"])), groups


def _warned(search: LogSearch, error: int) -> str:
    """Return the last warning of the file of a package above an error."""
    lines, spans = search.lines, search.steps.warnings
    above = [span for span in spans if span.start < error]
    of_package = [one for one in above if compiled(_OF_PACKAGE).match(lines[one.start].text)]
    return message_text(lines, of_package[-1]) if of_package else ""
