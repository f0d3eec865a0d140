"""What stoker says before a build that it never measured, beside what such builds took:
`python benchmarks/estimates.py`.

results/estimates.json has the cases: the compiles of a build, as `stoker plan --ask` counts them,
and the CPU seconds that it took, with the file or command that they come from. ``held_out`` means
that the figures of knowledge/estimates.toml were chosen without it. This program adds what is said
now, for the CPUs of the machine that it was measured on, and whether the truth lies in that range.
"""

import json
from pathlib import Path
from typing import Any

from stoker.model.evidence import AskedBuild
from stoker.plan.estimates import counted_seconds

RESULT = Path(__file__).parent / "results/estimates.json"


def judged(case: dict[str, Any]) -> dict[str, Any]:
    """Return a case with what is said of it now."""
    asked = AskedBuild(cubins=tuple(case["targets"]), **case["compiles"])
    said = counted_seconds(asked, case["cpus"])
    assert said is not None
    assert said.amount is not None
    assert said.most is not None
    cpus = 1 if asked.one_at_a_time else case["cpus"]
    took = max(case["cpu_s"] / cpus, case["longest_s"] or 0)
    return case | {
        "took_at_least_s": round(took, 1),
        "said_s": [round(said.amount, 1), round(said.most, 1)],
        "within": said.amount <= took <= said.most,
    }


def main() -> None:
    result = json.loads(RESULT.read_text())
    result["cases"] = [judged(case) for case in result["cases"]]
    RESULT.write_text(json.dumps(result, indent=1) + "\n")
    for case in result["cases"]:
        least, most = case["said_s"]
        print(
            f"{case['project']:<44}{case['took_at_least_s']:>9,.0f} s  said {least:,.0f} to "
            f"{most:,.0f} s  {'' if case['within'] else 'OUTSIDE'}"
        )


if __name__ == "__main__":
    main()
