"""Projects whose compilers are counted by scripts in their place, which write down each start."""

import os
import re
import shutil
import subprocess

from conftest import Need
from governed import Build, Finished
from stoker.model.govern import Role
from stoker.model.runs import Attempt

_PROBES = re.compile(
    r"--version|-dump|-print-|^-[vV]$|-E |conftest|CMakeScratch|CMakeTmp|cmTC_|CompilerId"
    r"|meson-private|-Wl,--version|/dev/null|sanity"
)


class Project:
    """A project in a folder of its own, and compilers that are counted."""

    def __init__(self, build: Build, need: Need):
        self.build = build
        self.folder = build.folder
        self._log = build.home / "compilers"
        scripts = build.home / "compilers-of-the-test"
        scripts.mkdir()
        for name in ("cc", "gcc", "c++", "g++", "nvcc"):
            if name != "nvcc" or shutil.which(name):
                script = (
                    f'#!/bin/sh\nprintf "%s\\n" "$*" >> "{self._log}"\nexec {need(name)} "$@"\n'
                )
                (scripts / name).write_text(script)
                (scripts / name).chmod(0o755)
        build.environment |= {
            "PATH": f"{scripts}:{os.environ['PATH']}",
            "CC": f"{scripts}/gcc",
            "CXX": f"{scripts}/g++",
        }

    def write(self, **files: str) -> None:
        """Write files; ``a_c`` is the name a.c."""
        for name, text in files.items():
            self.file(name.replace("__", "/").replace("_", "."), text)

    def file(self, name: str, text: str) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def sources(self, folder: str = "") -> list[str]:
        """Write a program of five files."""
        for i in range(4):
            self.file(f"{folder}s{i}.c", f"int s{i}(void) {{ return {i}; }}\n")
        self.file(f"{folder}main.c", "int s0(void);\nint main(void) { return s0(); }\n")
        return [*(f"s{i}" for i in range(4)), "main"]

    def plain(self, *command: str) -> None:
        """Run it without stoker."""
        subprocess.run(
            command, cwd=self.folder, env=self.build.environment, check=True, capture_output=True
        )

    def started(self) -> list[str]:
        """The command lines of compilers since the last call, without probes."""
        lines = self._log.read_text().splitlines() if self._log.exists() else []
        self._log.unlink(missing_ok=True)
        return [line for line in lines if not _PROBES.search(line)]

    def objects(self) -> dict[str, bytes]:
        """What compilers and linkers have made, by name."""
        files = (file for file in self.folder.rglob("*") if file.is_file())
        return {
            str(file.relative_to(self.folder)): file.read_bytes()
            for file in files
            if file.suffix in (".o", ".so") or file.name == "program"
        }

    def compiles(self) -> list[Attempt]:
        """What the history has of the last run: compiles and links."""
        attempts = self.build.attempts()
        return [attempt for attempt in attempts if attempt.record.step.role is not Role.OTHER]

    def is_the_same_governed(self, *command: str, steps: int) -> Finished:
        """Build it without stoker, then with it: the same objects, and each compiler a step."""
        self.started()
        self.plain(*command)
        expected = self.objects()
        assert len(self.started()) == steps
        for name in expected:
            (self.folder / name).unlink()
        done = self.build.run(*command)
        assert done.status == 0, done
        started = self.started()
        assert (len(started), len(self.compiles())) == (steps, steps), started
        assert self.objects() == expected
        return done
