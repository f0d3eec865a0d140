"""From a log to its causes. (First version: every line against every sign; no steps yet.)"""

import re
from collections.abc import Iterable

from stoker.knowledge.failures import Failure, Sign, failures


def ranked_causes(lines: Iterable[str]) -> list[tuple[float, str]]:
    """Causes with the strength of their best sign, best first."""
    log = list(lines)
    best = {cause.name: _strength(cause, log) for cause in failures().values()}
    return sorted(((value, name) for name, value in best.items() if value), reverse=True)


def _strength(cause: Failure, log: list[str]) -> float:
    return max((sign.strength for sign in cause.sign if _holds(sign, log)), default=0.0)


def _holds(sign: Sign, log: list[str]) -> bool:
    def found(pattern: str) -> bool:
        return any(re.search(pattern, line) for line in log)

    wanted = (sign.match, *sign.needs, *sign.anywhere)
    return all(map(found, wanted)) and not any(map(found, sign.excludes))
