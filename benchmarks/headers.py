"""What shared headers bring on a real project: CPU time, memory, objects, warnings, dependencies.

    python benchmarks/headers.py BUILD [--sample 16] [--choice 150] [--always] [--jobs 4]

BUILD is a folder configured for ninja, with its generated sources made. Of its largest group of
compiles with the same flags, --choice random ones are scanned to choose the headers, and --sample
of these are compiled with and without the header, in turns. Choosing and making the headers counts
for the whole group, and the scan of each source for itself. Nothing in the folder is changed.
"""

import argparse
import json
import os
import platform
import random
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
from governor import Witness

from stoker.flows.sharing import chosen_headers, compile_seconds, ninja_compiles, scan_of
from stoker.headers.choice import Offer, Source, twins
from stoker.headers.commands import bare_command, making_command, scan_command
from stoker.headers.files import HeaderFolder
from stoker.headers.scanning import read_scan
from stoker.knowledge.shared_headers import header_rules
from stoker.model.headers import Compile, HeaderSharing, Scan, SharedHeader

RESULTS = Path(__file__).parent / "results"
Row = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("build", type=Path)
    parser.add_argument("--sample", type=int, default=16)
    parser.add_argument("--choice", type=int, default=150)
    parser.add_argument("--scans", type=Path, help="keep the scans in this file, and use them")
    parser.add_argument("--always", action="store_true", help="as --shared-headers always")
    parser.add_argument("--jobs", type=int, default=1, help="commands that run at the same time")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    sharing = HeaderSharing.ALWAYS if arguments.always else HeaderSharing.AUTO
    compiles = ninja_compiles(arguments.build, ["ninja", "-C", str(arguments.build)], os.environ)
    group, size = Counter(each.group for each in compiles).most_common(1)[0]
    members = [each for each in compiles if each.group == group]
    random.Random(arguments.seed).shuffle(members)
    with ThreadPoolExecutor(arguments.jobs) as pool:
        scanned = scans_of(members, arguments.choice, arguments.scans, pool)
        began, folder = time.process_time(), HeaderFolder(arguments.build)
        tolerance, seconds = header_rules().tolerance[sharing], compile_seconds()
        short = [pair for pair in scanned if seconds(pair[0]) <= header_rules().limits.seconds]
        headers = list(chosen_headers(short, folder, os.environ, tolerance))
        offer = Offer(headers, tolerance)
        used = {each.output: offer.largest(source) for each, source in short}
        wanted = [header for header in headers if header in used.values()]
        found: Row = {
            "benchmark": "headers: measured",
            "machine": machine(group[1]),
            "sharing": sharing.value,
            "group": {"compiles": size, "scanned": len(scanned)},
            "uses": sum(header is not None for header in used.values()),
            "choice_s": round(time.process_time() - began, 1),
        }
        found["headers"] = list(pool.map(lambda header: made(header, folder), wanted))
        usual = {row["name"]: row.pop("prints") for row in found["headers"]}
        tasks = [
            pool.submit(compared, each, source, used.get(each.output), folder, usual, turn)
            for turn, (each, source) in enumerate(scanned[: arguments.sample])
        ]
        rows: list[Row] = []
        for task in tasks:
            rows.append(task.result())
            print(rows[-1], flush=True)
            found |= {"rows": rows, **totals(rows, found, size, sharing)}
            path = arguments.json or RESULTS / f"headers-{sharing}.json"
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
    members: Sequence[Compile], count: int, kept: Path | None, pool: ThreadPoolExecutor
) -> list[tuple[Compile, Source]]:
    known: dict[str, Scan] = {}
    if kept and kept.exists():
        known = msgspec.msgpack.decode(kept.read_bytes(), type=dict[str, Scan])
    members = sorted(members, key=lambda each: bool(known) and each.source not in known)[:count]
    scans = pool.map(lambda each: known.get(each.source) or scan_of(each, os.environ), members)
    found = {each: scan for each, scan in zip(members, scans, strict=True) if scan is not None}
    if kept and not known:
        kept.write_bytes(msgspec.msgpack.encode({e.source: scan for e, scan in found.items()}))
    return [(each, Source(scan)) for each, scan in found.items()]


def made(header: SharedHeader, folder: HeaderFolder) -> Row:
    """Make a header, and compile it alone with and without precompiling, as a build does."""
    source, path = str(folder.write_source(header)), str(folder.path / f"{header.name}.hpp")
    seconds, _, _ = timed(making_command(header, source, f"{path}.gch"), header.group[0])
    using = bare_command(header, path, os.devnull, using=True)
    with_s, _, usual = timed(using, header.group[0])
    plain = bare_command(header, source, os.devnull, using=False)
    without_s, _, printed = timed(plain, header.group[0])
    row = {
        "name": header.name,
        "headers": len(header.scan.inclusions),
        "text_bytes": header.scan.size,
        "file_bytes": Path(f"{path}.gch").stat().st_size,
        "cpu_s": seconds,
        "alone_with_s": with_s,
        "alone_without_s": without_s,
    }
    print(row, flush=True)
    return row | {"prints": (usual, printed)}


def compared(
    each: Compile,
    source: Source,
    header: SharedHeader | None,
    folder: HeaderFolder,
    usual: dict[str, tuple[str, str]],
    turn: int,
) -> Row:
    """Compile with and without the header, in an order that alternates."""
    row: Row = {"source": each.source, "scan_s": timed_scan(each)}
    plain = [each.words[0], *each.flags, "-c", each.source]
    if header is None:
        return row | {"without_s": timed_object(plain, each.folder)[0], "header": None}
    path = str(folder.path / f"{header.name}.hpp")
    using = [plain[0], "-include", path, "-fpch-deps", *plain[1:]]
    orders = [("without", plain), ("with", using)]
    results = {name: timed_object(words, each.folder) for name, words in orders[:: (-1) ** turn]}
    (
        (without_s, without_bytes, one, listed, said),
        ((with_s, with_bytes, other, listed_with, said_with)),
    ) = (results[name] for name, _ in orders)
    # The launcher removes the header itself, and adds what gcc takes for a file in the header.
    others = {path for path in listed_with if not path.startswith(str(folder.path))}
    others.update(twins(header, source.scan))
    of_each, of_header = usual[header.name]
    own = said_with.replace(of_each, "", 1) if of_each else said_with
    return row | {
        "header": len(header.scan.inclusions),
        "without_s": without_s,
        "with_s": with_s,
        "ratio": round(with_s / without_s, 3),
        "without_bytes": without_bytes,
        "with_bytes": with_bytes,
        "failed": not other,
        "accepted": of_each in said_with and not warns_of(own, header),
        "same_object": one == other,
        "same_dependencies": others == set(listed),
        "same_warnings": warnings_in(said) == warnings_in(of_header + own),
    }


def warnings_in(said: str) -> Counter[str]:
    return Counter(line for line in said.splitlines() if "warning: " in line)


def warns_of(said: str, header: SharedHeader) -> bool:
    """Return whether a warning names a file in the header, which the launcher does not accept."""
    paths = [f"{inclusion.path}:" for inclusion in header.scan.inclusions]
    return any(path in line for line in warnings_in(said) for path in paths)


def timed_scan(each: Compile) -> float:
    """Return the CPU seconds of the preprocessor and of reading its output."""
    with tempfile.TemporaryDirectory() as temporary:
        output = Path(temporary) / "scan"
        seconds, _, _ = timed((*scan_command(each), "-o", str(output)), each.folder)
        before = time.thread_time()
        Source(read_scan(output.read_bytes()))
        return round(seconds + time.thread_time() - before, 2)


def timed_object(
    words: Sequence[str], folder: str
) -> tuple[float, int, bytes, frozenset[str], str]:
    with tempfile.TemporaryDirectory() as temporary:
        output, listed = Path(temporary) / "object.o", Path(temporary) / "object.d"
        names = ("-o", str(output), "-MT", "object.o", "-MF", str(listed))
        seconds, peak, said = timed((*words, *names), folder)
        paths = listed.read_text().replace("\\\n", " ").split()[1:] if listed.exists() else ()
        content = output.read_bytes() if output.exists() else b""
        return seconds, peak, content, frozenset(paths), said


def timed(command: Sequence[str], folder: str) -> tuple[float, int, str]:
    """Return the CPU seconds of a command, the peak of its own memory, and what it printed on
    stderr. Processes that use a header share its pages, so these are not part of it.
    """
    with tempfile.TemporaryFile() as said:
        child = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=said)
        with Witness(child.pid, every=0.05) as witness:
            _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        said.seek(0)
        seconds = round(usage.ru_utime + usage.ru_stime, 2)
        return seconds, witness.peak, said.read().decode(errors="replace")


def totals(rows: Sequence[Row], found: Row, size: int, sharing: HeaderSharing) -> Row:
    """Return the sums. A compile that the launcher repeats counts with both times: one that fails,
    and with ``auto`` one whose warnings are not accepted.
    """
    users = [row for row in rows if row["header"] is not None]
    loud = sharing is HeaderSharing.ALWAYS
    good = [row for row in users if not row["failed"] and (row["accepted"] or loud)]
    ordinary = [row for row in good if row["without_s"] <= header_rules().limits.seconds]
    plain = sum(row["without_s"] for row in rows)
    spent = sum(row.get("with_s", 0) + (0 if row in good else row["without_s"]) for row in rows)
    scans = sum(row["scan_s"] for row in rows)
    times = ("cpu_s", "alone_with_s", "alone_without_s")
    making = sum(header[name] for header in found["headers"] for name in times)
    # A build compiles one user of each header with and without it, as a sample.
    both = sum(row["with_s"] + row["without_s"] for row in users) / max(1, len(users))
    making += both * len(found["headers"])
    shared = (making + found["choice_s"]) * len(rows) / size
    return {
        "compiled": len(rows),
        "users": len(users),
        "repeated": len(users) - len(good),
        "failed": sum(row["failed"] for row in users),
        "same_objects": sum(row["same_object"] for row in good),
        "same_dependencies": sum(row["same_dependencies"] for row in good),
        "same_warnings": sum(row["same_warnings"] for row in good),
        "ratio_of_users": _ratio(good),
        "ratio_of_ordinary_users": _ratio(ordinary),
        "memory_of_users": _ratio(good, "bytes"),
        "ratio_of_all_with_costs": round((spent + scans + shared) / plain, 3),
        "scan_share": round(scans / plain, 3),
        "choice_and_making_share": round(shared / plain, 3),
    }


def _ratio(rows: Sequence[Row], unit: str = "s") -> float | None:
    plain = sum(row[f"without_{unit}"] for row in rows)
    return round(sum(row[f"with_{unit}"] for row in rows) / plain, 3) if plain else None


if __name__ == "__main__":
    main()
