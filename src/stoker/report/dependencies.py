"""Which measured step needs which, from the build statements of ninja. Pure.

Every file is named by its absolute path. Statements that were not measured, such as phony targets
and stamps, take no time and pass their own needs on.
"""

from collections.abc import Iterable, Mapping
from posixpath import join, normpath

from stoker.govern.policy.critical_path import earliest_ends, in_order, longest_chain
from stoker.source.ninja import Edge


class Dependencies:
    """``edges``: the build statements of each build folder, by its absolute path.

    Statements that depend on each other in a circle, which ninja refuses, count as none.
    """

    def __init__(self, edges: Mapping[str, Iterable[Edge]]):
        self._maker: dict[str, str] = {}  # the first output of the statement that makes a file
        self._needs: dict[str, list[str]] = {}
        for folder, statements in edges.items():
            for edge in statements:
                outputs = [normpath(join(folder, output)) for output in edge.outputs]
                needs = [normpath(join(folder, name)) for name in (*edge.needs, *edge.after)]
                self._needs[outputs[0]] = needs
                self._maker |= dict.fromkeys(outputs, outputs[0])
        for name, files in self._needs.items():
            self._needs[name] = list({self._maker[n]: None for n in files if n in self._maker})
        self._order = in_order(self._needs)
        if not self._order:
            self._maker, self._needs = {}, {}

    def __bool__(self) -> bool:
        return bool(self._order)

    def longest_chain(self, seconds: Mapping[str, float]) -> tuple[str, ...]:
        """Return the outputs of the chain of dependent steps that takes longest, first step first.

        ``seconds`` has the measured duration of each output. Only measured outputs are returned.
        """
        names, durations = self._by_maker(seconds)
        ends = earliest_ends(self._needs, lambda name: durations.get(name, 0.0))
        return tuple(names[name] for name in longest_chain(self._needs, ends) if name in names)

    def needs(self, measured: Iterable[str]) -> dict[str, frozenset[str]]:
        """Return the measured outputs that each measured output needs, directly or through
        statements that were not measured.
        """
        names, _ = self._by_maker(dict.fromkeys(measured, 0.0))
        passed_on: dict[str, frozenset[str]] = {}
        found: dict[str, frozenset[str]] = {}
        for name in self._order:
            needs = frozenset().union(*(passed_on[need] for need in self._needs.get(name, ())))
            passed_on[name] = frozenset((names[name],)) if name in names else needs
            if name in names:
                found[names[name]] = needs
        return found

    def _by_maker(self, seconds: Mapping[str, float]) -> tuple[dict[str, str], dict[str, float]]:
        """Return the measured output and its duration for each statement that has one."""
        names = {self._maker[name]: name for name in seconds if name in self._maker}
        return names, {maker: seconds[name] for maker, name in names.items()}
