"""What a plan depends on, read for one variant or for several."""

from pathlib import Path

from stoker.plan.survey import Surveyor
from stoker.settings.declared import CommandLine


def test_programs_are_asked_once_for_several_variants(tmp_path: Path) -> None:
    """`stoker export --matrix` asked all of them again for each variant."""
    asked = tmp_path / "asked"
    program = tmp_path / "bin" / "gcc"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\necho >>{asked}\necho 'gcc (Debian) 12.2.0'\n")
    program.chmod(0o755)
    surveyor = Surveyor({"PATH": f"{program.parent}:/usr/bin:/bin", "HOME": str(tmp_path)})
    subjects = [
        surveyor.survey(CommandLine(options={"variant": words}))
        for words in ("cpu", "cpu-avx2", "cpu-py3.9")
    ]
    assert [subject.variant.python for subject in subjects] == [None, None, "3.9"]
    times = asked.read_text().count("\n")
    surveyor.survey(CommandLine(options={"variant": "cpu-debug"}))
    assert asked.read_text().count("\n") == times
