"""Renders the workers of sccache-dist as files of Kubernetes, Compose or Slurm."""

import shlex
from collections.abc import Callable, Iterator
from ipaddress import IPv4Network
from itertools import islice

from stoker.export.filling import fill_template, fill_yaml, filled_yaml
from stoker.knowledge.export_targets import (
    ClusterExport,
    ExportedFile,
    ExportFormat,
    Service,
    cluster_service,
    clusters,
)
from stoker.model.errors import UsageError

DOCKERFILE = "Dockerfile.workers"
NAME = "stoker-workers"
_TOKENS = ("CLIENT_TOKEN", "SERVER_TOKEN")


def render_cluster(export: ClusterExport) -> tuple[ExportedFile, ...]:
    """Return the files, with paths relative to the folder that they belong in."""
    return tuple(_RENDERERS[export.format](export))


def _kubernetes(export: ClusterExport) -> Iterator[ExportedFile]:
    yield _dockerfile()
    services = clusters().service
    secrets = " ".join(f'--from-literal={token}="$(openssl rand -hex 32)"' for token in _TOKENS)
    policy = {
        **_common(export),
        "secret": f"kubectl create secret generic {NAME} {secrets}",
        "use": _use(f"{NAME}-scheduler", f"{NAME}-cache"),
        "blocks": [{"ipBlock": {"cidr": network}} for network in export.allowed],
        "ports": [{"port": service.port} for service in services],
    }
    texts = [fill_yaml("kubernetes-workers", policy)]
    texts += [text for service in services for text in _pods(export, service)]
    yield ExportedFile(path="workers.yaml", text="---\n".join(texts))


def _pods(export: ClusterExport, service: Service) -> Iterator[str]:
    """Yield the name of a service in the cluster, and the pods behind it."""
    address = {"fieldRef": {"fieldPath": "status.podIP"}}
    sources: dict[str, dict[str, object]] = {
        "SCHEDULER": {"value": f"{NAME}-scheduler"},
        "ADDRESS": {"valueFrom": address},
        **{t: {"valueFrom": {"secretKeyRef": {"name": NAME, "key": t}}} for t in _TOKENS},
    }
    is_worker = service.name == "worker"
    values = {
        **_common(export),
        "name": f"{NAME}-{service.name}",
        "role": service.name,
        "port": service.port,
        "replicas": export.workers if is_worker else 1,
        "image": service.image or export.image,
        "command": service.command.lstrip(),
        "environment": [
            {"name": name, **source}
            for name, source in sources.items()
            if f"${name}" in service.command
        ]
        or None,
        "cpus": export.worker.cpus if is_worker else 1,
        "memory": f"{_memory_mb(export, service)}Mi",
        "disk": f"{-(-export.disk_bytes // 1024**3) if is_worker else 1}Gi",
        "security": {
            "runAsUser": service.user,
            "runAsNonRoot": True,
            "readOnlyRootFilesystem": True,
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
        }
        if service.user
        else {"privileged": True},
    }
    yield fill_yaml("kubernetes-service", values)
    yield fill_yaml("kubernetes-pods", values)


def _compose(export: ClusterExport) -> Iterator[ExportedFile]:
    yield _dockerfile()
    subnet = export.allowed[0] if export.allowed else clusters().subnet
    names = ["scheduler", "cache", *(f"worker-{n}" for n in range(1, export.workers + 1))]
    found = list(islice(IPv4Network(subnet).hosts(), 1, len(names) + 1))  # the first is the gateway
    if len(found) < len(names):
        hints = [f"it needs {len(names) + 1} addresses"]
        raise UsageError(f"--allow {subnet} is too small for all containers", hints=hints)
    addresses = {name: str(address) for name, address in zip(names, found, strict=True)}
    values = {
        **_common(export),
        "secret": "\n".join(f'echo "{t}=$(openssl rand -hex 32)" >> .env' for t in _TOKENS),
        "use": _use(addresses["scheduler"], addresses["cache"]),
        "subnet": subnet,
        "services": {name: _container(export, name, addresses) for name in names},
    }
    yield ExportedFile(path="compose.yaml", text=fill_yaml("compose", values))


def _container(export: ClusterExport, name: str, addresses: dict[str, str]) -> object:
    service = cluster_service(name.partition("-")[0])
    texts = {"SCHEDULER": addresses["scheduler"], "ADDRESS": addresses[name]}
    texts |= {token: f"${{{token}:?}}" for token in _TOKENS}
    user = service.user
    values = {
        "image": service.image or export.image,
        "build": None if service.image else {"context": ".", "dockerfile": DOCKERFILE},
        "command": service.command.lstrip().replace("$", "$$"),  # not a substitution
        "environment": {n: text for n, text in texts.items() if f"${n}" in service.command} or None,
        "user": str(user) if user else None,
        "read_only": True if user else None,
        "cap_drop": ["ALL"] if user else None,
        "security_opt": ["no-new-privileges:true"] if user else None,
        "privileged": None if user else True,
        "memory": f"{_memory_mb(export, service)}m",
        "cpus": None if user else export.worker.cpus,
        "port": service.port,
        "address": addresses[name],
    }
    return filled_yaml("compose-service", values)


def _slurm(export: ClusterExport) -> Iterator[ExportedFile]:
    cache_mb = cluster_service("cache").memory_mb
    values = {
        **_common(export),
        "workers": export.workers,
        "cpus": export.worker.cpus,
        "minutes": -(-export.seconds // 60),
        "memory_mb": _memory_mb(export, cluster_service("worker")) + cache_mb,
        "cache_mb": cache_mb * 4 // 5,
        "requirement": shlex.quote(clusters().requirement),
        "packages": " ".join(clusters().packages),
        "scheduler": shlex.quote(cluster_service("scheduler").command.strip()),
        "worker": shlex.quote(cluster_service("worker").command.strip()),
        "use": _use("$SCHEDULER", "default:$password@$SCHEDULER"),
    }
    comments = "\n".join(f"# {line}" for line in str(values["comments"]).splitlines())
    text = fill_template("slurm-workers", {**values, "comments": comments})
    yield ExportedFile(path="workers.sbatch", text=text)


def _dockerfile() -> ExportedFile:
    row = clusters()
    values = {
        "base": row.base,
        "compiler": row.compiler,
        "packages": " ".join(row.packages),
        "requirement": row.requirement,
    }
    return ExportedFile(path=DOCKERFILE, text=fill_template("worker-dockerfile", values))


def _common(export: ClusterExport) -> dict[str, object]:
    lines = [
        f"Workers of sccache-dist: written by `stoker export {export.format} --cluster`.",
        clusters().security,
        clusters().compiler,
        f"Memory limit of a worker: {export.worker.basis}.",
    ]
    return {
        "comments": "\n".join(lines),
        "id": NAME,
        "image": export.image,
        "dockerfile": DOCKERFILE,
    }


def _use(scheduler: str, cache: str) -> str:
    """Return the command that uses the workers, for the machine that builds."""
    options = f"--distribute sccache-dist:http://{scheduler}:{cluster_service('scheduler').port}"
    remote = f"redis://{cache}:{cluster_service('cache').port}"
    command = f"stoker build SOURCE {options} --cache-remote {remote}"
    return f'SCCACHE_DIST_TOKEN="$CLIENT_TOKEN" {command}'


def _memory_mb(export: ClusterExport, service: Service) -> int:
    return service.memory_mb or -(-export.worker.memory_bytes // 1024**2)


_RENDERERS: dict[ExportFormat, Callable[[ClusterExport], Iterator[ExportedFile]]] = {
    ExportFormat.KUBERNETES: _kubernetes,
    ExportFormat.COMPOSE: _compose,
    ExportFormat.SLURM: _slurm,
}
