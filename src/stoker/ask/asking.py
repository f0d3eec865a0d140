"""Asks a build what it compiles, and looks for settings with which that is what was asked for.

The flow: ask with the settings of the plan; while the answer is not what the variant wants, ask
with one more setting that the build itself looks at, and keep it if the answer is better. What was
found becomes a recipe of the tree, so that plans, builds and `--write-recipe` use it alike.
"""

import re
import time
from collections.abc import Iterator
from pathlib import Path

from msgspec.structs import replace

from stoker.ask import kept
from stoker.ask.answers import answer, ordered
from stoker.ask.questions import question
from stoker.ask.room import Limits, RoomError, enter
from stoker.ask.settling import (
    Lack,
    Trial,
    common,
    described,
    lacks,
    most_used,
    runs_kernel,
    score,
    setting_trials,
    target_trials,
    without_targets,
)
from stoker.ask.values import Asked, Walls
from stoker.knowledge.estimates import estimates
from stoker.model.errors import MissingError, StokerError, UsageError
from stoker.model.evidence import AskedBuild, EvidenceKind
from stoker.model.finding import Finding, error, warning
from stoker.model.govern import Step
from stoker.model.plan import Plan
from stoker.model.recipe import BackendRecipe, FixedTargets, ProjectRecipe
from stoker.model.source import SourceTree
from stoker.model.value import Value
from stoker.model.variant import Backend, plain_arch
from stoker.outside.kept_values import tree_digest
from stoker.outside.long_work import Say
from stoker.plan.compiled import sm
from stoker.plan.estimates import estimate
from stoker.plan.left_out import left_out, needless, without
from stoker.plan.planning import make_plan
from stoker.plan.subject import Subject
from stoker.source.includes import IncludeSearch
from stoker.source.tree import read_tree

_MOST_ASKS = 14
_NOT_FOUND = re.compile(r"\bnot found|could not find|not be found", re.IGNORECASE)
_SUFFIX = " (asked)"


class AskedPlan(Value, frozen=True, kw_only=True):
    """A subject whose build was asked, the plan that follows, and the answer."""

    subject: Subject
    asked: Asked
    recipe: ProjectRecipe | None = None  # what asking found out, where no recipe is known


class _Session:
    """Asks one build several times."""

    def __init__(self, subject: Subject, walls: Walls, limits: Limits, say: Say):
        self._subject = subject
        self._walls = walls
        self._limits = limits
        self._say = say
        self._digest = tree_digest(Path(_tree(subject).path))
        self._includes = IncludeSearch(Path(_tree(subject).path))
        self._offline = ""
        self.count = 0
        self.ended: list[tuple[BackendRecipe, Asked]] = []  # with a switch that lacks something

    def ask(self, subject: Subject, why: str, *, gpu_visible: bool = True) -> Asked:
        plan = planned(subject)
        asked = question(subject, plan, gpu_visible=gpu_visible, limits=self._limits)
        asked = replace(asked, fetches=not self._offline)
        name = kept.key(asked, self._digest, self._walls)
        self.count += 1
        left = kept.recall(name)
        if left is None:
            self._say(f"asking the build of {_tree(subject).name}: {why}")
            left = enter(asked, self._walls)
            kept.keep(name, left)
        found = answer(asked, left, subject.name, self._walls, self._with_torch)
        # What ends it is that files are missing, whatever it says about them.
        return replace(found, offline=self._offline, stopped="") if self._offline else found

    def ask_without_fetching(self, subject: Subject, why: str) -> Asked:
        """Ask for what does not depend on the files that the build could not fetch."""
        self._offline = why
        return self.ask(subject, "without files that it fetches")

    def _with_torch(self, step: Step) -> bool:
        return self._includes.reach(step.source, step.flags, estimates().torch_headers)

    @property
    def exhausted(self) -> bool:
        return self.count >= _MOST_ASKS


def ask(
    subject: Subject,
    *,
    walls: Walls = Walls.CLOSED,
    limits: Limits | None = None,
    say: Say = lambda _: None,
) -> AskedPlan:
    """Ask the build of a tree. The subject that is returned has the answers and, if the tree has no
    recipe of its own, one with the settings that were found.
    """
    session = _Session(subject, walls, limits or Limits(), say)
    asked = session.ask(subject, f"what it compiles for {subject.name}")
    if asked.offline:
        return _without_fetching(subject, session, asked)
    if asked.ended_for:  # what it would have compiled after that is not known
        return AskedPlan(subject=subject, asked=asked)
    return _concluded_plan(subject, session, asked)


def _without_fetching(subject: Subject, session: _Session, before: Asked) -> AskedPlan:
    """Ask a build that fetches files for the rest. Only kernels are an answer."""
    asked = session.ask_without_fetching(subject, before.offline)
    if not asked.ended_for:
        result = _concluded_plan(subject, session, asked)
        if result.asked.device_compiles:
            return result
    return AskedPlan(subject=subject, asked=before)


def _concluded_plan(subject: Subject, session: _Session, asked: Asked) -> AskedPlan:
    """Return what follows from the first answer, and from those to further questions."""
    if subject.backend_recipe:
        return AskedPlan(subject=_answered(subject, asked), asked=asked)
    known = described(subject, planned(subject), asked)
    known, asked = _settled(subject, session, known, asked)
    known, asked = _without_gpu(subject, session, known, asked)
    asked = replace(asked, asks=session.count)
    if not asked.answered:  # what the files say remains
        if session.ended:
            subject = with_recipe(subject, _recipe(subject, known, asked))
        return AskedPlan(subject=_answered(subject, asked), asked=asked)
    recipe = _recipe(subject, _concluded(subject, known, asked), asked)
    subject = _answered(with_recipe(subject, recipe), asked)
    return AskedPlan(subject=subject, asked=asked, recipe=recipe)


_DOUBTS = (
    *("gpu-choice-unset", "kernel-choice-unset", "targets-in-the-tree"),
    *("setting-unread", "setting-overwritten", "option-not-passed"),
)


def is_settled(subject: Subject, plan: Plan) -> bool:
    """Tell whether a recipe or the files of the tree say for what a build compiles."""
    gpu = subject.variant.backend in (Backend.CUDA, Backend.ROCM)
    if not gpu or subject.is_pytorch or not subject.here:
        return True
    if subject.backend_recipe:
        # Asking shows how the build names its targets, so that those for other GPUs can go.
        fixed = plan.targets is not None and plan.targets.fixed
        return subject.keep_targets or not (fixed and needless(plan.targets))
    evidence = plan.targets.evidence if plan.targets else None
    assumed = evidence is not None and evidence.kind is EvidenceKind.ASSUMED
    return not assumed and not any(finding.name in _DOUBTS for finding in plan.findings)


def ask_for_build(subject: Subject, wish: bool | None, say: Say) -> AskedPlan | None:
    """Ask before a build, if the user wants it or nothing else says what it compiles. A build that
    cannot be asked, for example because its environment is not made yet, starts as planned.
    """
    if wish is False or (wish is None and is_settled(subject, planned(subject))):
        return None
    try:
        result = ask(subject, say=say)
    except (MissingError, RoomError) as error:
        if wish:
            raise
        say(f"the build was not asked what it compiles: {error.message}")
        return None
    if result.asked.device_compiles:
        return result
    if result.asked.answered:
        # The user asked for a GPU build, so the check that it compiles device code remains.
        say(f"the build was asked, and compiles no device code for {subject.name}")
        return None
    say(f"the build was asked what it compiles, and did not say it: {_why_not(result.asked)}")
    return None


def _settled(
    subject: Subject, session: _Session, known: BackendRecipe, asked: Asked
) -> tuple[BackendRecipe, Asked]:
    """Return the settings with the best answer."""
    tried: set[str] = set()
    while not session.exhausted:
        better = _improved(subject, session, known, asked, tried)
        if better is None:
            break
        known, asked = better
    if session.ended and asked.answered and Lack.DEVICE_CODE in lacks(subject, asked):
        return session.ended[0]
    return known, asked


def _improved(
    subject: Subject,
    session: _Session,
    known: BackendRecipe,
    asked: Asked,
    tried: set[str],
    *,
    gpu_visible: bool = True,
) -> tuple[BackendRecipe, Asked] | None:
    for lack in lacks(subject, asked):
        for trial in setting_trials(lack, subject, known, asked):
            if trial.change in tried or session.exhausted:
                continue
            tried.add(trial.change)
            changed = with_recipe(subject, _recipe(subject, trial.recipe, asked))
            now = session.ask(changed, f"with {trial.change}", gpu_visible=gpu_visible)
            if score(subject, now) > score(subject, asked):
                return trial.recipe, now
            if lack is Lack.DEVICE_CODE and asked.answered and _lacks_something(now):
                session.ended.append((trial.recipe, now))
            for next_trial in _next_trials(subject, trial.recipe, asked, now, lack):
                if session.exhausted:
                    break
                changed = with_recipe(subject, _recipe(subject, next_trial.recipe, now))
                why = f"with {trial.change} and {next_trial.change}"
                later = session.ask(changed, why, gpu_visible=gpu_visible)
                if score(subject, later) > score(subject, asked):
                    return next_trial.recipe, later
    return None


def _lacks_something(asked: Asked) -> bool:
    """Tell whether CMake ends because it does not find something: the setting had an effect."""
    return asked.way == "cmake" and bool(_NOT_FOUND.search(asked.refusal))


def _next_trials(
    subject: Subject, known: BackendRecipe, before: Asked, now: Asked, lack: Lack
) -> Iterator[Trial]:
    """Yield what is tried together with a setting that was not better alone."""
    # A back end may be refused only because its targets are not chosen yet.
    if now.refusal and not before.refusal:
        yield from target_trials(subject, known, now)
    # A part of a project may be on, and its own options choose the back end.
    opened = {option.name for option in now.options} - {option.name for option in before.options}
    new = tuple(option for option in now.options if option.name in opened)
    yield from setting_trials(
        lack, subject, known, replace(now, options=new, variables=(), words=())
    )


def _without_gpu(
    subject: Subject, session: _Session, known: BackendRecipe, asked: Asked
) -> tuple[BackendRecipe, Asked]:
    """Ask again as a machine without a GPU, if this one has none and the build looks for one."""
    looks = [word for word in asked.looks_at_gpu if not word.where.startswith("torch/")]
    if subject.machine.gpus or not looks or not asked.device_compiles:
        return known, asked
    current = with_recipe(subject, _recipe(subject, known, asked))
    hidden = session.ask(current, "without a visible GPU", gpu_visible=False)
    if score(subject, hidden) >= score(subject, asked):
        return known, asked
    better = _improved(subject, session, known, hidden, set(), gpu_visible=False)
    if better and score(subject, better[1]) >= score(subject, asked):
        return better
    return known, replace(asked, needs_gpu=looks[0].where, without_gpu=_instead(hidden))


def _instead(hidden: Asked) -> str:
    """Return what a build does that was asked without a visible GPU."""
    if not hidden.answered:
        return f"ends: {_why_not(hidden)}"
    if not hidden.device_compiles:
        return "compiles no device code"
    made = (*hidden.cubins, *(f"PTX of {arch}" for arch in hidden.ptx))
    return f"compiles for {', '.join(made) or 'targets that nvcc chooses'}"


def _why_not(asked: Asked) -> str:
    said = asked.refusal or asked.offline or asked.ended_for or "it compiles nothing"
    return said.splitlines()[0]


def _recipe(subject: Subject, known: BackendRecipe, asked: Asked) -> ProjectRecipe:
    tree = _tree(subject)
    names = {*known.environment, *known.cmake, *(switch.name for switch in known.switches)}
    read = {variable.name for variable in asked.variables}
    return ProjectRecipe(
        name=tree.name + _SUFFIX,
        facts_from=f"{tree.name} {tree.version or ''}, asked {_today()}".replace(" ,", ","),
        packages=(tree.name,),
        kind=tree.kind,
        torch="torch" in " ".join(tree.requirements),
        folder=tree.folder,
        reads=tuple(sorted(names | (read & {s.name for s in subject.defines}))),
        backends={subject.variant.backend: known},
    )


def _today() -> str:
    return time.strftime("%Y-%m-%d", time.gmtime())


def _concluded(subject: Subject, known: BackendRecipe, asked: Asked) -> BackendRecipe:
    """Return the recipe with what the answer says about targets."""
    if subject.variant.backend is Backend.CPU or not asked.answered:
        return known
    if not asked.device_compiles:
        return replace(known, compiles=False)
    wanted = {target.plain for target in subject.gpus}
    made = {plain_arch(arch) for arch in asked.cubins}
    if not wanted <= made and not known.switches:  # no setting has an effect on them
        known = without_targets(known)
    if not known.chooses_targets and made != wanted and not known.switches:
        archs = (*asked.cubins, *(f"{arch}+PTX" for arch in asked.ptx))
        return replace(known, fixed=(FixedTargets(archs=archs),))
    if not known.chooses_targets and known.switches:
        off = {arch for switch in known.switches for arch in switch.archs}
        archs = tuple(arch for arch in asked.cubins if arch not in off)
        return replace(known, fixed=(FixedTargets(archs=archs),)) if archs else known
    extra = [arch for arch in asked.cubins if plain_arch(arch) not in wanted]
    # For other variants it is the PTX of other targets.
    of_newest = asked.ptx == asked.cubins[-1:] and {*map(plain_arch, asked.ptx)} <= wanted
    of_newest &= bool(asked.ptx)
    extra += [f"{arch}+PTX" for arch in asked.ptx if not of_newest]
    return replace(known, accepts=tuple(dict.fromkeys(extra)), ptx_of_newest=of_newest)


def with_recipe(subject: Subject, recipe: ProjectRecipe) -> Subject:
    """Return the subject with a recipe of its own."""
    tree = replace(_tree(subject), recipe=recipe.name)
    return replace(subject, tree=tree, own_recipes=(recipe, *subject.own_recipes))


def _answered(subject: Subject, asked: Asked) -> Subject:
    """Return the subject with the answer in the form that plans use."""
    values = () if subject.keep_targets else left_out(asked.compiles, subject.gpus)
    compiles = [without(compiled, values) for compiled in asked.compiles]
    all_cubins = ordered(arch for compiled in compiles for arch in compiled.cubins)
    all_ptx = ordered(arch for compiled in compiles for arch in compiled.ptx)
    everywhere = common(compiled.named for compiled in compiles)
    cubins = tuple(arch for arch in all_cubins if sm(arch) in everywhere)
    ptx = tuple(arch for arch in all_ptx if f"PTX of {arch}" in everywhere)
    if not cubins and not ptx:  # no target is that of all kernels: then those that were asked for
        cubins = most_used(subject.gpus, all_cubins, asked.kernels)
        cubins, ptx = (cubins, ()) if cubins else (all_cubins, all_ptx)
    some = [arch for arch in all_cubins if arch not in cubins]
    some += [f"{arch}+PTX" for arch in all_ptx if arch not in ptx]
    names = {s.name for s in planned(subject).environment}
    decided = [v for v in asked.variables if v.value is not None and v.name in names]
    build = AskedBuild(
        cubins=cubins,
        ptx=ptx,
        some=tuple(some),
        left_out=values,
        device_compiles=asked.device_compiles,
        host_compiles=asked.host_compiles,
        device_with_torch=asked.device_with_torch,
        host_with_torch=asked.host_with_torch,
        known_kernels=asked.known_kernels,
        known_kernels_s=asked.known_kernels_s,
        longest_known_s=asked.longest_known_s,
        one_at_a_time=asked.one_at_a_time,
        fetches=bool(asked.offline),
        deciding=tuple(f"{v.name}={v.value} ({v.where})" for v in decided),
        unused=asked.unused,
        refusal=asked.refusal,
        when=f"{_today()}, {asked.wall_s:.0f} s",
    )
    return replace(subject, asked=build)


def lasting_recipe(result: AskedPlan) -> ProjectRecipe:
    """Return what was learned, as a recipe for a file."""
    if not result.asked.answered:
        raise StokerError(
            "the build gave no answer that a recipe could be made of",
            hints=[_why_not(result.asked)],
        )
    if result.recipe is None:
        name = result.subject.project.name if result.subject.project else "this tree"
        raise UsageError(
            f"{name} has a recipe already", hints=["asking compares it with what the build does"]
        )
    plan = planned(result.subject)
    gpu = plan.variant.backend is not Backend.CPU
    if gpu and not result.asked.device_compiles and not _is_without_device_code(plan):
        raise StokerError(
            "the build named no device code, and its files do not show why: that is no recipe",
            hints=[str(plan.targets.evidence)] if plan.targets else [],
        )
    return _recognizable(
        replace(result.recipe, name=result.recipe.name.removesuffix(_SUFFIX)), result
    )


def _is_without_device_code(plan: Plan) -> bool:
    return plan.targets is not None and plan.targets.without_device_code


def _recognizable(recipe: ProjectRecipe, result: AskedPlan) -> ProjectRecipe:
    """Return a recipe by which the tree is recognized: by its name, or by files of a tree that is
    called after its folder.
    """
    root = Path(_tree(result.subject).path)
    if read_tree(root, (recipe,)).recipe == recipe.name:
        return recipe
    sources = [kernel.source for kernel in result.asked.kernels]
    names = ["setup.py", "pyproject.toml", "CMakeLists.txt", *sources[:2]]
    files = tuple(name for name in names if (root / name).is_file())
    return replace(recipe, packages=(), files=files)


def planned(subject: Subject) -> Plan:
    return make_plan(subject, estimate(subject))


def asked_remarks(plan: Plan, asked: Asked) -> Iterator[Finding]:
    """Yield what a user should know about an answer."""
    gpus = plan.targets.gpus if plan.targets and plan.targets.backend is Backend.CUDA else ()
    for gpu in gpus:
        lost = [k.source for k in asked.kernels if not runs_kernel(k.targets, gpu)]
        if lost:
            yield warning(
                "kernels-unserved",
                (
                    f"{len(lost)} of {len(asked.kernels)} sources with kernels have no code "
                    f"that runs on {gpu}"
                ),
                evidence=", ".join(lost[:3]),
            )
    if plan.variant.backend is not Backend.CPU and asked.answered and not asked.device_compiles:
        yield warning(
            "asked-no-device-code",
            (
                "before it stopped, the build had named no device code that it compiles"
                if asked.stopped
                else "with these settings the build compiles no device code"
            ),
            advice=(
                "It may compile kernels at run time. If not, look for the option that "
                "switches the back end on: `stoker plan --options`."
            ),
        )
    if asked.device_compiles and asked.backend is not plan.variant.backend:
        yield error(
            "asked-other-device-code",
            f"the build compiles {asked.backend.upper()} code, which is not asked for",
            evidence=", ".join(kernel.source for kernel in asked.kernels[:3]),
            advice="No setting was found that leaves it out: see `stoker plan --options`.",
        )
    if asked.ended_for:
        title = f"the build was ended because it used too much of: {asked.ended_for}"
        yield warning("asked-ended", title)
    if asked.offline:
        yield warning(
            "asked-offline",
            (
                "the build fetches files while it is configured, and what it compiles "
                + ("of them" if asked.answered else "after that")
                + " is not known"
            ),
            evidence=asked.offline,
            advice="Fetch them before, or let it use your network: `--ask=open`.",
        )
    if asked.stopped:
        title = "the build stopped after its commands had become known"
        yield warning("asked-stopped", title, evidence=asked.stopped)
    if asked.needs_gpu:
        yield error(
            "needs-visible-gpu",
            f"without a visible GPU, as on this machine, the build {asked.without_gpu}",
            evidence=f"{asked.needs_gpu} looks at the GPU of the build machine",
            advice="Build where such a GPU is visible: no setting was found that forces it.",
        )
    if asked.cpu_flags:
        yield warning(
            "code-for-one-cpu",
            "its host code is compiled for CPUs that not every machine has",
            evidence=" ".join(asked.cpu_flags),
        )


def _tree(subject: Subject) -> SourceTree:
    assert subject.tree is not None  # question() has refused a subject without one
    return subject.tree
