"""Compares the facts of two artifacts, and shows the differences."""

from collections.abc import Sequence

from packaging.requirements import InvalidRequirement

from stoker.model.artifact import ArtifactFacts, LibraryFacts, TargetKind
from stoker.model.distribution import read_requirement
from stoker.model.value import Value
from stoker.model.value import size as in_words
from stoker.outside.terminal import Listing, Page, Text


class FactDifference(Value, frozen=True, kw_only=True):
    """A difference. ``subject`` is a library or empty; a side that lacks it is ``None``."""

    subject: str
    name: str
    before: str | None
    after: str | None


def compare_facts(before: ArtifactFacts, after: ArtifactFacts) -> tuple[FactDifference, ...]:
    """Return all facts that differ: of the whole artifact first, then of each library."""
    old, new = {"": _whole(before)}, {"": _whole(after)}
    alone = before.kind is after.kind is TargetKind.LIBRARY  # its name says nothing
    name = "library" if alone else None
    old |= {name or library.path: _library_rows(library) for library in before.libraries}
    new |= {name or library.path: _library_rows(library) for library in after.libraries}
    return tuple(
        FactDifference(subject=subject, name=name, before=was.get(name), after=now.get(name))
        for subject in sorted(old | new)
        for was, now in [(old.get(subject, {}), new.get(subject, {}))]
        for name in was | now
        if was.get(name) != now.get(name)
    )


def _whole(facts: ArtifactFacts) -> dict[str, str]:
    rows = {"size": in_words(facts.size_bytes)}
    if wheel := facts.wheel:
        rows |= {
            "name": wheel.name,
            "version": wheel.version,
            "tags": " ".join(wheel.tags),
            "requires python": wheel.requires_python or "-",
        }
        for line in wheel.requires:
            try:
                rows[f"requires {read_requirement(line).name}"] = line
            except InvalidRequirement:
                rows[f"requires {line}"] = line
    rows |= {"manylinux": facts.manylinux or "-", "minimum driver": facts.minimum_driver or "-"}
    rows |= {
        f"GPU {row.arch}": (f"by {row.by}, in part" if row.partly else f"by {row.by}")
        for row in facts.runs_on
        if not row.without
    }
    return rows | {f"missing {name}": "yes" for name in facts.unresolved}


def _library_rows(library: LibraryFacts) -> dict[str, str]:
    rows = {
        "size": in_words(library.size_bytes),
        "soname": library.soname or "-",
        "C++ ABI": library.cxx_abi or "-",
        "symbols": "no" if library.stripped else "yes",
    }
    rows |= {f"needs {name}": "yes" for name in library.needed}
    rows |= {"RPATH": ":".join(library.rpath), "RUNPATH": ":".join(library.runpath)}
    rows |= dict(library.versions)
    for code in library.device_code:
        where = "" if code.linked else " (not linked)"
        rows[f"{code.arch}{where}"] = f"{in_words(code.size_bytes)} in {code.count}"
    return rows


def fact_differences_page(differences: Sequence[FactDifference]) -> Page:
    if not differences:
        return Text("no difference")
    table = Listing("", "", "before", "after")
    subject = ""
    for row in differences:
        if row.subject != subject:
            subject = row.subject
            table.add("", Text(subject, style="bold"))
        sign = "+" if row.before is None else "-" if row.after is None else "~"
        table.add(sign, row.name, row.before or "", row.after or "")
    return table
