"""Options for two runs that share their tests: the first writes down which tests passed, and the
second leaves those out. `.ci/run` uses them.
"""

from pathlib import Path

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--write-passed", type=Path, metavar="FILE", help="Name passed tests in FILE.")
    parser.addoption(
        "--leave-out", type=Path, metavar="FILE", help="Leave out tests named in FILE."
    )


def pytest_configure(config: pytest.Config) -> None:
    file: Path | None = config.option.write_passed
    if file and not hasattr(config, "workerinput"):  # pytest-xdist sets it in its workers
        config.pluginmanager.register(_Writer(file))


class _Writer:
    def __init__(self, file: Path):
        self._file = file
        self._passed: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" and report.passed:
            self._passed.append(report.nodeid)

    def pytest_sessionfinish(self) -> None:
        self._file.write_text("\n".join(self._passed))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    file: Path | None = config.option.leave_out
    if file:
        passed = {*file.read_text().splitlines()}
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid in passed])
        items[:] = [item for item in items if item.nodeid not in passed]
