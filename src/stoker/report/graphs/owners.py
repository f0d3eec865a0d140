"""Assigns each step of a build to a target. Pure.

Targets are those of CMake; a step of another build tool belongs to the library or program that it
becomes part of.
"""

import re
from collections.abc import Iterator, Sequence
from posixpath import basename

from stoker.report.graphs.build_graph import GraphTargetKind
from stoker.report.graphs.steps import PHONY, NeededSteps
from stoker.source.cmake_api import CMakeTarget
from stoker.source.ninja import Edge

_CUSTOM = "CUSTOM_COMMAND"
OBJECT_FOLDER = re.compile(r"(?:^|/)CMakeFiles/([^/]+)\.dir/")
_CUSTOM_TARGET = re.compile(r"(?:^|/)CMakeFiles/([^/]+?)(?:\.util)?$")
LINK_RULE = re.compile(r"_([A-Z]+(?:_LIBRARY)?)_LINKER__(.+)_[A-Za-z]*$")
_ENCODED = re.compile(r"\.([0-9a-fA-F]{2})")  # how CMake writes a special character in a rule
_RULE = ".rule"  # ends a source that stands for a custom command in CMake's answer
_KINDS = {
    "STATIC_LIBRARY": GraphTargetKind.STATIC,
    "SHARED_LIBRARY": GraphTargetKind.SHARED,
    "MODULE_LIBRARY": GraphTargetKind.MODULE,
    "OBJECT_LIBRARY": GraphTargetKind.OBJECTS,
    "EXECUTABLE": GraphTargetKind.EXECUTABLE,
    "UTILITY": GraphTargetKind.COMMANDS,
}


class Owners:
    """The target of each step (``names``), and the kind of each target (``kinds``).

    Code generation has targets of its own: the custom target that runs it, else one beside the
    target that its output becomes part of. ``reply`` is CMake's answer; without one, targets are
    found from the names of rules and folders.
    """

    def __init__(self, steps: NeededSteps, reply: Sequence[CMakeTarget]):
        self._steps = steps
        self._made_by = {file.path: target for target in reply for file in target.artifacts}
        self._commands = dict(_commands(reply))
        self.kinds = {
            target.name: _KINDS.get(target.type, GraphTargetKind.OTHER) for target in reply
        }
        self.names = [""] * len(steps)
        for index in reversed(range(len(steps))):
            self.names[index], kind = self._owner(index)
            if steps.edges[index].rule != PHONY:
                self.kinds.setdefault(self.names[index], kind)
                if kind is GraphTargetKind.GENERATES:
                    self.kinds[self.names[index]] = kind

    def _owner(self, index: int) -> tuple[str, GraphTargetKind]:
        edge = self._steps.edges[index]
        if edge.rule == _CUSTOM:
            generates = self._steps.precedes_compile[index]
            kind = GraphTargetKind.GENERATES if generates else GraphTargetKind.COMMANDS
            return self._command(index), kind
        return self._linked(edge) or (self._part_of(index), GraphTargetKind.OTHER)

    def _linked(self, edge: Edge) -> tuple[str, GraphTargetKind] | None:
        for output in edge.outputs:
            if target := self._made_by.get(output):
                return target.name, _KINDS.get(target.type, GraphTargetKind.OTHER)
        if found := LINK_RULE.search(edge.rule):
            name = _ENCODED.sub(lambda code: chr(int(code[1], 16)), found[2])
            return name, _KINDS.get(found[1], GraphTargetKind.OTHER)
        return None

    def _command(self, index: int) -> str:
        edges = self._steps.edges
        aliases = [a for a in self._steps.after[index] if edges[a].rule == PHONY]
        for near in (index, *aliases):
            for output in edges[near].outputs:
                if found := _CUSTOM_TARGET.search(output):
                    return found[1]
        names = map(basename, edges[index].outputs)
        known = next((self._commands[name] for name in names if name in self._commands), None)
        if known and self.kinds.get(known) in (GraphTargetKind.COMMANDS, GraphTargetKind.GENERATES):
            return known
        return f"{known or self._part_of(index)}: generated code"

    def _part_of(self, index: int) -> str:
        """Return CMake's target of an object, else the target that the output becomes part of."""
        edge, edges = self._steps.edges[index], self._steps.edges
        if found := OBJECT_FOLDER.search(edge.outputs[0]):
            return found[1]
        for user in self._users(index):
            is_last = edges[user].rule == PHONY and not self._steps.after[user]  # such as `all`
            if edges[user].rule != _CUSTOM and not is_last:
                return self.names[user]
        return basename(edge.outputs[0])

    def _users(self, index: int) -> list[int]:
        """Return the steps that use the output: those that name it first, aliases last. Generated
        headers are only named by what comes after them.
        """
        edges, outputs = self._steps.edges, set(self._steps.edges[index].outputs)
        users = self._steps.after[index]
        if edges[index].rule not in (_CUSTOM, PHONY):
            users = [user for user in users if not outputs.isdisjoint(self._steps.needed[user])]
        return sorted(users, key=lambda user: edges[user].rule == PHONY)


def _commands(reply: Sequence[CMakeTarget]) -> Iterator[tuple[str, str]]:
    """Yield the output of each custom command with its target; custom targets come last."""
    for target in sorted(reply, key=lambda target: target.type == "UTILITY"):
        for source in target.sources:
            if source.path.endswith(_RULE):
                yield basename(source.path.removesuffix(_RULE)), target.name
