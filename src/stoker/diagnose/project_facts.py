"""Facts of the project that failed: how its newest release is taken, by the tool that builds it."""

from collections.abc import Callable

from stoker.diagnose.about import About, Facts
from stoker.diagnose.run_facts import cargo_installs, python_project
from stoker.knowledge.owners import release_of
from stoker.model.shell import ShellScript, Template, fill, is_plain, outside

FACTS = Facts()
# Tools that build what they fetch themselves: what names the project in their logs, a text that
# such a line has, and what takes its newest release.
_BY_TOOL = (
    (
        r"/portage/(?P<name>[\w-]{2,40}/[\w+-]{1,80}?)-\d",
        "/portage/",
        Template("emerge --sync && emerge --update {name}"),
    ),
    (r"/\.cache/yay/(?P<name>[\w.+-]{1,80})/", "/.cache/yay/", Template("yay -Syu {name}")),
    (
        r"/\.cache/paru/clone/(?P<name>[\w.+-]{1,80})/",
        "/.cache/paru/",
        Template("paru -Syu {name}"),
    ),
    (
        r"\bbrew install (?:--\S{1,40} )*(?P<name>[\w.+@/-]{1,80})",
        "brew install",
        Template("brew update && brew upgrade {name}"),
    ),
    (r"\bpecl install (?P<name>[\w.+-]{1,80})", "pecl install", Template("pecl upgrade {name}")),
    (r"\bgem install (?P<name>[\w.+-]{1,80})", "gem install", Template("gem update {name}")),
    (
        r"[/\\]buildtrees[/\\](?P<name>[\w-]{1,80})[/\\]",
        "buildtrees",
        Template('git -C "$VCPKG_ROOT" pull && vcpkg upgrade {name} --no-dry-run'),
    ),
    (
        r"\* installing \*source\* package ['\u2018\"](?P<name>[\w.]{1,60})['\u2019\"]",
        "* installing *source*",
        Template("Rscript -e \"install.packages('{name}')\""),
    ),
    (
        r"node_modules[/\\](?P<name>(?:@[\w.-]{1,60}/)?[\w.-]{1,80})[/\\]",
        "node_modules",
        Template("npm install {name}@latest"),
    ),
)
_FETCHED = (
    r"(?:Collecting|Downloading|Using cached) (?:\S{1,300}/)?"
    r"(?P<name>[A-Za-z0-9][\w.-]{0,80}?)(?:[=<>~!@ -]|$)"
)
# Sources that are no checkout: those of packages, registries and distributions.
_NO_CHECKOUT = (
    r"/nix/store/|rpmbuild|/home/abuild/|bitbake|/wrkdirs/|dpkg-buildpackage|/buildd/"
    r"|/feedstock_root/|/spack-stage/|/macports/|node_modules|installing \*source\* package"
    r"|/gems/|pip-install|pip-req-build|/sdists-v|registry[/\\]src|[/\\]Pods[/\\]|\.pioenvs"
    r"|\.platformio|/managed_components/|makepkg|==> Making package|PKGBUILD|[/\\]pkg[/\\]mod[/\\]"
    r"|[/\\]Epic Games[/\\]"
)


@FACTS.command("run.newer_project", "the commands that take the newest release of the project")
def _newer_project(about: About) -> ShellScript | None:
    ways: tuple[Callable[[About], ShellScript | None], ...] = (
        _by_tool,
        _by_cargo,
        _by_pip,
        _by_git,
    )
    return next(filter(None, (way(about) for way in ways)), None)


def _by_tool(about: About) -> ShellScript | None:
    for pattern, having, template in _BY_TOOL:
        found = about.first(pattern, having)
        if found and is_plain(found["name"]):
            return fill(template, {"name": outside(found["name"])})
    return None


def _by_cargo(about: About) -> ShellScript | None:
    crate = cargo_installs(about)
    return (
        fill(Template("cargo install --locked {name}"), {"name": outside(crate)}) if crate else None
    )


def _by_pip(about: About) -> ShellScript | None:
    """Return it if the index has the project: not where pip builds a folder or a repository."""
    project = python_project(about)
    if not project or not is_plain(project):
        return None
    fetched = about.first(_FETCHED, project)
    if not fetched or _normal(fetched["name"]) != _normal(project):
        return None
    return fill(Template("python3 -m pip install --upgrade {name}"), {"name": outside(project)})


def _normal(name: str) -> str:
    return name.lower().replace("_", "-")


def _by_git(about: About) -> ShellScript | None:
    """Return it if the source may be a checkout: no package of a distribution, and no release."""
    file = next(iter(about.groups.get("file", ())), "")
    if about.first(_NO_CHECKOUT) or (file and release_of(file)):
        return None
    if about.is_windows:
        return fill(Template("git pull --tags\ngit submodule update --init --recursive"), {})
    tag = Template(
        'git fetch --tags && git checkout "$(git describe --tags --abbrev=0 origin/HEAD)"\n'
        "git submodule update --init --recursive"
    )
    return fill(tag, {})
