"""Asks programs for their versions. A program that hangs, crashes or prints nonsense is a result
too.
"""

import re
from collections.abc import Mapping, Sequence

from stoker.model.errors import MissingError
from stoker.model.value import Value
from stoker.outside import process
from stoker.outside.process import Argument


class Answer(Value, frozen=True, kw_only=True):
    """The output of a program; ``problem`` says why it cannot be used."""

    printed: str = ""
    problem: str | None = None


class Probe(Value, frozen=True, kw_only=True):
    """Runs programs to ask them for something, each for at most ``timeout_s`` seconds."""

    environment: Mapping[str, str]
    timeout_s: float

    def ask(self, command: Sequence[Argument]) -> Answer:
        # The answers are read by patterns, so they must be in English.
        environment = {**self.environment, "LC_ALL": "C"}
        try:
            outcome = process.run(command, timeout=self.timeout_s, env=environment)
        except MissingError as error:
            return Answer(problem=error.message)
        return Answer(printed=f"{outcome.stdout}\n{outcome.stderr}", problem=outcome.problem)

    def ask_version(self, program: Argument, *patterns: str) -> tuple[str | None, str | None]:
        """Return the version that ``--version`` prints, by the first pattern that fits, or the
        problem.
        """
        answer = self.ask([program, "--version"])
        if answer.problem:
            return None, answer.problem
        found = (re.search(pattern, answer.printed, re.ASCII) for pattern in patterns)
        version = next((match[1] for match in found if match), None)
        return version, None if version else "does not tell its version"
