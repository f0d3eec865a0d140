"""Finds causes by the kind of a message, where no entry of knowledge/failures knows its words:
versions that do not fit, names and headers of known libraries, libraries that a link lacks.
"""

from collections.abc import Callable, Collection, Iterable

from stoker.diagnose.interfaces import misfits
from stoker.diagnose.missing_headers import missing_headers
from stoker.diagnose.said_versions import conflicting_versions
from stoker.diagnose.signs import LogSearch, Match
from stoker.diagnose.unlinked import failed_links

_KINDS: tuple[Callable[[LogSearch], Iterable[Match]], ...] = (
    conflicting_versions,
    misfits,
    missing_headers,
    failed_links,
)


def find_symptoms(search: LogSearch, explained: Collection[int]) -> list[Match]:
    """Return the failures that can be explained by their kind, without the lines that are
    ``explained`` already, and those that a later success took back.
    """
    found = (match for kind in _KINDS for match in kind(search))
    return [
        one for one in found if one.line not in explained and not search.steps.taken_back(one.line)
    ]
