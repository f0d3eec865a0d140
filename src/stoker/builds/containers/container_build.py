"""`stoker build --container`: make a container, and run the same command in it."""

import platform
import re
import secrets
import shlex
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NoReturn

import msgspec

from stoker.builds.acquire.kept_sources import acquired
from stoker.builds.building import Built, check_writable
from stoker.builds.containers import content
from stoker.builds.containers.content import PipSettings, download_pip, read_pip_settings
from stoker.builds.containers.engine import ContainerEngine, find_engine, read_container_host
from stoker.builds.containers.inside import (
    Contained,
    ContainerWatcher,
    Inside,
    RunningContainer,
    settings_file,
)
from stoker.builds.containers.pythons import PROBE, choose_python, read_pythons
from stoker.builds.containers.words import Bind, Box, exec_words, run_words
from stoker.govern.client.broadcast import Broadcast
from stoker.knowledge.projects import builder_image
from stoker.model.errors import CommandError, MissingError, Terminated, UsageError
from stoker.outside import locks, process
from stoker.outside.long_work import Say
from stoker.plan.subject import Subject
from stoker.plan.survey import survey
from stoker.settings.declared import CommandLine

_TIMEOUT_S = 300.0  # seconds for an engine to start or end something
_IDENTITY = re.compile(r"[0-9a-f]{64}")


def build_inside(asked: CommandLine, wanted: Inside, watcher: ContainerWatcher) -> Built:
    say = watcher.say
    check_writable(Path(wanted.out))
    engine, host = find_engine(wanted.engine), read_container_host()
    with ExitStack() as stack:
        lock = content.container_lock(content.containers_folder() / "any")
        stack.enter_context(locks.held(lock, shared=True))
        source = stack.enter_context(acquired(wanted.source, tag=wanted.tag, say=say))
        options = {**asked.options, "source": source.path}
        subject = survey(msgspec.structs.replace(asked, options=options))
        listed = process.check([*download_pip(), "config", "list"], timeout=_TIMEOUT_S)
        index = read_pip_settings(listed)
        box = _box(wanted, subject, index)
        launch = run_words(engine, host, box)
        say(f"container {box.name} of {box.place}, by {engine.kind}")
        stack.enter_context(_running(engine, box, launch, keep=wanted.keep, say=say))
        told = process.check(exec_words(engine, box.name, PROBE), timeout=_TIMEOUT_S)
        python = choose_python(
            read_pythons(told),
            wanted=subject.variant.python,
            machine=platform.machine(),
            image=box.place,
        )
        contained = Contained(
            engine=engine.kind,
            image=box.place,
            memory=box.memory,
            python=f"{python.version} {python.path}",
            command=launch,
        )
        inside = f"stoker build in container {box.name}"
        broadcast = stack.enter_context(Broadcast(inside, source.path))
        watcher = msgspec.structs.replace(watcher, show=broadcast.through(watcher.show))
        running = RunningContainer(engine, box, python, {**index.variables, **wanted.variables})
        built = running.build(source.path, wanted, contained, watcher)
        broadcast.end(built.record.summary)
        return built


def _box(wanted: Inside, subject: Subject, index: PipSettings) -> Box:
    assert subject.tree is not None
    root, image = None, wanted.container or _usual_image(subject)
    if Path(image).is_dir():
        root, image = str(Path(image).resolve()), ""
        if not (Path(root) / "bin/sh").exists():
            raise UsageError(f"{root} is a folder, but no root of a system: it has no bin/sh")
    elif image.startswith(("/", "./", "../")):
        raise UsageError(f"there is no folder {image}")
    read = [*index.paths, *filter(None, (wanted.record, settings_file()))]
    writable = (str(content.containers_folder()), subject.tree.path)
    plain = re.sub(r"[^a-z0-9.]+", "-", subject.tree.name.lower()).strip("-.")
    return Box(
        name=f"stoker-{plain or 'tree'}-{secrets.token_hex(3)}",
        image=image or None,
        root=root,
        memory=wanted.memory,
        ipc=wanted.ipc,
        binds=(
            *(Bind(path=path) for path in dict.fromkeys(read)),
            *(Bind(path=path, writable=True) for path in writable),
        ),
    )


def _usual_image(subject: Subject) -> str:
    machine, variant = platform.machine(), subject.variant
    version = subject.cuda_version or variant.toolkit
    image = builder_image(subject.kind, machine, variant.backend, version)
    if image is None:
        raise MissingError(
            f"no image is known to build {variant.backend} in, on {machine}",
            hints=["name one: --container IMAGE, or a folder with a root: --container FOLDER"],
        )
    return image


@contextmanager
def _running(
    engine: ContainerEngine, box: Box, launch: tuple[str, ...], *, keep: bool, say: Say
) -> Iterator[None]:
    """Run the container until the block is left."""
    runs = False

    def end(number: int, _: object) -> NoReturn:
        raise Terminated(number)

    try:
        # These signals would end this process, and leave the container.
        with process.signals_to(end, signal.SIGTERM, signal.SIGHUP):
            _start(launch, say)
            runs = True
            yield
    finally:
        if keep and runs:
            process.run([engine.program, "stop", box.name], timeout=_TIMEOUT_S)
            say(f"kept: `stoker container shell {box.name}`, `stoker container remove {box.name}`")
        else:
            process.run([engine.program, "rm", "--force", box.name], timeout=_TIMEOUT_S)


def _start(launch: tuple[str, ...], say: Say) -> None:
    """Start the container. The engine's progress of fetching an image is shown; the new name is
    not.
    """

    def hear(line: str) -> None:
        if not _IDENTITY.fullmatch(line):
            say(line)

    told = process.stream(launch, hear)
    if not told.ok:
        hints = [f"the command was: {shlex.join(launch)}"]
        raise CommandError(f"{Path(launch[0]).name} cannot start the container", hints=hints)
