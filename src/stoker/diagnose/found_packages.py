"""Reads why CMake refuses a package that it found: the package itself says so, or its version.

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


def _warned(search: LogSearch, error: int) -> str:
    """Return the last warning of the file of a package above an error."""
    lines, spans = search.lines, search.steps.warnings
    above = [span for span in spans if span.start < error]
    of_package = [one for one in above if compiled(_OF_PACKAGE).match(lines[one.start].text)]
    return message_text(lines, of_package[-1]) if of_package else ""
