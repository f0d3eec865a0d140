"""What all stages of a build share: the task, the route, the Python and the environment."""

from pathlib import Path
from typing import TYPE_CHECKING

from stoker.builds.back_end_python import BackEndPython
from stoker.builds.digests import installed_files, tree_state
from stoker.builds.execution import Execution
from stoker.builds.route import choose_route, last_stage
from stoker.builds.stages import Stages
from stoker.builds.work import Task
from stoker.govern.client.session import Session
from stoker.model.build import BuildStage
from stoker.model.source import FrontEnd
from stoker.outside.long_work import Say

if TYPE_CHECKING:
    from stoker.builds.jobs.job import Job


class BuildContext:
    """One build of one tree. ``job`` is its part in a build of several jobs."""

    def __init__(
        self, task: Task, stages: Stages, governed: Session, say: Say, job: "Job | None" = None
    ):
        tree, plan, request = task.tree, task.plan, task.request
        self.task = task
        self.stages = stages
        self.governed = governed
        self.say = say
        self.job = job
        self.out = Path(request.out).resolve()
        last = last_stage(plan, tree, request)
        configures = tree.front_end is FrontEnd.SCIKIT_BUILD_CORE
        self.python = BackEndPython(
            task, runs=last is BuildStage.WHEEL or (configures and last is BuildStage.COMPILE)
        )
        self.route = choose_route(
            plan, tree, request, build=task.work.build, python=self.python.executable
        )
        self.calls_ninja = bool(self.route.configure or self.route.by_back_end)
        self.execution = Execution(task, self.route, governed, isolated=self.python.isolated)
        self.environment = self.execution.environment  # of all stages
        if job:
            job.begin(self.route.build)
            if not self.calls_ninja:
                job.leave_to_back_end(task, self.environment)

    def sources(self, names: tuple[str, ...] = ("",)) -> str:
        """Return a digest of the files in the tree whose names end with ``names``, without those
        that the build makes there.
        """
        made = [self.out, self.task.work.path, self.route.build]
        if self.route.in_tree:
            made += installed_files(self.route.build)
        return tree_state(self.route.tree, names=names, without=made)
