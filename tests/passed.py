"""Options for two runs that share their tests: the first writes down how each test ended, and the
second leaves out those that passed. `.ci/run` uses them.
"""

from pathlib import Path

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--write-ends", type=Path, metavar="FILE", help="Write how each test ended.")
    parser.addoption("--leave-out", type=Path, metavar="FILE", help="Leave out what passed there.")


def pytest_configure(config: pytest.Config) -> None:
    write, leave_out = config.option.write_ends, config.option.leave_out
    if write and not hasattr(config, "workerinput"):  # pytest-xdist sets it in its workers
        config.pluginmanager.register(_Writer(write))
    if leave_out:
        config.pluginmanager.register(_LeftOut(leave_out, config.rootpath))


class _Writer:
    def __init__(self, file: Path):
        self._file = file
        self._ends: dict[str, str] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or not report.passed:
            self._ends[report.nodeid] = report.outcome

    def pytest_sessionfinish(self) -> None:
        lines = [f"{end} {test}\n" for test, end in self._ends.items()]
        self._file.write_text("".join(lines))


class _LeftOut:
    """Leaves out tests that passed, and whole files, which need not be imported then."""

    def __init__(self, file: Path, root: Path):
        self._passed: set[str] = set()
        others: set[str] = set()
        for line in file.read_text().splitlines():
            end, _, test = line.partition(" ")
            (self._passed if end == "passed" else others).add(test)
        whole = {_file(test) for test in self._passed} - {_file(test) for test in others}
        self._whole = {root / file for file in whole}

    def pytest_ignore_collect(self, collection_path: Path) -> bool | None:
        return True if collection_path in self._whole else None

    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid in self._passed])
        items[:] = [item for item in items if item.nodeid not in self._passed]


def _file(test: str) -> str:
    return test.partition("::")[0]
