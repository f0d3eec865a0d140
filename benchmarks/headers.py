"""What shared headers bring on a real project: CPU time, objects and dependency files.

    python benchmarks/headers.py BUILD [--sample 16] [--choice 150] [--any-order] [--json FILE]

BUILD is a folder configured for ninja, with its generated sources made. Of its largest group of
compiles with the same flags, --choice random ones are scanned to choose the headers, and --sample
of these are compiled with and without the header, in turns. Making the headers counts
for the whole group. Nothing in the folder is changed.
"""

import argparse
import json
import os
import platform
import random
import subprocess
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import msgspec

from stoker.flows.sharing import chosen_headers, ninja_compiles, scan_of
from stoker.headers.choice import largest, twins
from stoker.headers.commands import making_command, scan_command
from stoker.headers.files import HeaderFolder
from stoker.model.headers import Compile, Scan, SharedHeader

RESULTS = Path(__file__).parent / "results"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("build", type=Path)
    parser.add_argument("--sample", type=int, default=16)
    parser.add_argument("--choice", type=int, default=150)
    parser.add_argument("--scans", type=Path, help="keep the scans in this file, and use them")
    parser.add_argument("--any-order", action="store_true", help="as --shared-headers always")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    compiles = ninja_compiles(arguments.build, ["ninja", "-C", str(arguments.build)], os.environ)
    group, size = Counter(each.group for each in compiles).most_common(1)[0]
    members = [each for each in compiles if each.group == group]
    random.Random(arguments.seed).shuffle(members)
    scanned = scans_of(members, arguments.choice, arguments.scans)
    folder = HeaderFolder(arguments.build)
    ordered = not arguments.any_order
    headers = list(chosen_headers(scanned, folder, os.environ, ordered=ordered))
    used = {each.output: largest(headers, scan, ordered=ordered) for each, scan in scanned}
    found: dict[str, object] = {
        "benchmark": "headers: measured",
        "machine": machine(group[1]),
        "sharing": "auto" if ordered else "always",
        "group": {"compiles": size, "scanned": len(scanned)},
        "uses": sum(header is not None for header in used.values()),
        "headers": [made(header, folder) for header in headers],
        "rows": [],
    }
    rows: list[dict[str, object]] = []
    for turn, (each, scan) in enumerate(scanned[: arguments.sample]):
        rows.append(compared(each, scan, used[each.output], folder, turn))
        print(rows[-1], flush=True)
        found |= {"rows": rows, **totals(rows, found["headers"], size, ordered=ordered)}
        path = arguments.json or RESULTS / f"headers-{found['sharing']}.json"
        path.write_text(json.dumps(found, indent=2) + "\n")
    print(json.dumps({name: value for name, value in found.items() if name != "rows"}, indent=2))


def machine(compiler: str) -> dict[str, object]:
    version = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=True)
    return {
        "processor": platform.machine(),
        "cpus": os.cpu_count(),
        "load": round(os.getloadavg()[0], 1),
        "compiler": version.stdout.partition("\n")[0],
    }


def scans_of(
    members: Sequence[Compile], count: int, kept: Path | None
) -> list[tuple[Compile, Scan]]:
    known: dict[str, Scan] = {}
    if kept and kept.exists():
        known = msgspec.msgpack.decode(kept.read_bytes(), type=dict[str, Scan])
        members = sorted(members, key=lambda each: each.source not in known)
    scanned = []
    for each in members[:count]:
        if (scan := known.get(each.source) or scan_of(each, os.environ)) is not None:
            known[each.source] = scan
            scanned.append((each, scan))
    if kept:
        kept.write_bytes(msgspec.msgpack.encode(known))
    return scanned


def made(header: SharedHeader, folder: HeaderFolder) -> dict[str, object]:
    path = folder.path / f"{header.name}.hpp.gch"
    command = making_command(header, str(folder.write_source(header)), str(path))
    seconds, printed = timed(command, header.group[0])
    row = {
        "headers": len(header.scan.inclusions),
        "text_bytes": header.scan.size,
        "file_bytes": path.stat().st_size,
        "cpu_s": seconds,
        "silent": not printed,
    }
    print(row, flush=True)
    return row


def compared(
    each: Compile, scan: Scan, header: SharedHeader | None, folder: HeaderFolder, turn: int
) -> dict[str, object]:
    """Compile with and without the header, in an order that alternates."""
    row: dict[str, object] = {
        "source": each.source,
        "scan_s": timed(scan_command(each), each.folder)[0],
    }
    plain = [each.words[0], *each.flags, "-c", each.source]
    if header is None:
        return row | {"without_s": timed_object(plain, each.folder)[0], "header": None}
    using = [
        plain[0],
        "-include",
        str(folder.path / f"{header.name}.hpp"),
        "-fpch-deps",
        *plain[1:],
    ]
    orders = [("without", plain), ("with", using)]
    results = {name: timed_object(words, each.folder) for name, words in orders[:: (-1) ** turn]}
    (without_s, one, listed, said), (with_s, other, listed_with, said_with) = (
        results[name] for name, _ in orders
    )
    # The launcher removes the header itself, and adds what gcc takes for a file in the header.
    others = {path for path in listed_with if not path.startswith(str(folder.path))}
    others.update(twins(header, scan))
    return row | {
        "header": len(header.scan.inclusions),
        "without_s": without_s,
        "with_s": with_s,
        "ratio": round(with_s / without_s, 3),
        "failed": not other,
        "same_object": one == other,
        "same_dependencies": others == set(listed),
        "silent": not said_with,
        "silent_without": not said,
    }


def timed_object(words: Sequence[str], folder: str) -> tuple[float, bytes, frozenset[str], str]:
    with tempfile.TemporaryDirectory() as temporary:
        output, listed = Path(temporary) / "object.o", Path(temporary) / "object.d"
        names = ("-o", str(output), "-MT", "object.o", "-MF", str(listed))
        seconds, said = timed((*words, *names), folder)
        paths = listed.read_text().replace("\\\n", " ").split()[1:] if listed.exists() else ()
        content = output.read_bytes() if output.exists() else b""
        return seconds, content, frozenset(paths), said


def timed(command: Sequence[str], folder: str) -> tuple[float, str]:
    """Return the CPU seconds of a command, and what it printed on stderr."""
    with tempfile.TemporaryFile() as said:
        child = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=said)
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        said.seek(0)
        return round(usage.ru_utime + usage.ru_stime, 2), said.read().decode(errors="replace")


def totals(
    rows: Sequence[dict[str, object]], headers: object, size: int, *, ordered: bool
) -> dict[str, object]:
    """Return the sums. A compile that the launcher repeats counts with both times: one that fails
    and, with ``auto``, one that prints something.
    """
    users = [row for row in rows if row["header"] is not None]
    good = [row for row in users if not row["failed"] and (row["silent"] or not ordered)]
    plain = sum(float(str(row["without_s"])) for row in rows)
    spent = sum(
        float(str(row.get("with_s", 0))) + (0 if row in good else float(str(row["without_s"])))
        for row in rows
    )
    assert isinstance(headers, list)
    scans = sum(float(str(row["scan_s"])) for row in rows)
    making = sum(header["cpu_s"] for header in headers) * len(rows) / size
    of_users = sum(float(str(row["with_s"])) for row in good)
    return {
        "compiled": len(rows),
        "users": len(users),
        "repeated": len(users) - len(good),
        "failed": sum(bool(row["failed"]) for row in users),
        "same_objects": sum(bool(row["same_object"]) for row in users),
        "same_dependencies": sum(bool(row["same_dependencies"]) for row in users),
        "ratio_of_users": of_users
        and round(of_users / sum(float(str(row["without_s"])) for row in good), 3),
        "ratio_of_all_with_costs": round((spent + scans + making) / plain, 3),
        "scan_share": round(scans / plain, 3),
        "making_share": round(making / plain, 3),
    }


if __name__ == "__main__":
    main()
