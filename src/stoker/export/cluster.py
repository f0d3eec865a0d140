"""Renders the workers of a distributed compiler as files of Kubernetes, Compose or Slurm."""

import json
import shlex
from collections.abc import Callable, Iterable, Iterator
from ipaddress import IPv4Network
from itertools import islice
from textwrap import indent

from stoker.export.files import fill_template
from stoker.knowledge.export_targets import (
    ClusterExport,
    EngineRow,
    ExportedFile,
    ExportFormat,
    Service,
    cluster_engine,
    clusters,
)
from stoker.model.errors import UsageError

_TOKENS = ("CLIENT_TOKEN", "SERVER_TOKEN")
_WORKER = "worker"


def render_cluster(export: ClusterExport) -> tuple[ExportedFile, ...]:
    """Return the files, with paths relative to the folder that they belong in."""
    return tuple(_RENDERERS[export.format](export, cluster_engine(export.engine)))


def _kubernetes(export: ClusterExport, engine: EngineRow) -> Iterator[ExportedFile]:
    yield _dockerfile(engine)
    name = _id(engine)
    services = (*engine.service, clusters().cache)
    pods = (f"{name}-{_WORKER}-{index}.{name}-{_WORKER}" for index in range(export.workers))
    tokens = _TOKENS if _needs_tokens(engine) else ()
    secrets = " ".join(f'--from-literal={token}="$(openssl rand -hex 32)"' for token in tokens)
    ports = [port for s in services for port in (s.port, s.control_port) if port]
    values = {
        **_common(export, engine),
        "secret": f"#   kubectl create secret generic {name} {secrets}\n" if secrets else "",
        "use": _use(export, engine, tuple(pods), f"{name}-scheduler", f"{name}-cache"),
        "blocks": "".join(f"        - ipBlock: {{ cidr: {net} }}\n" for net in export.allowed),
        "ports": "\n".join(f"        - {{ port: {port} }}" for port in ports),
        "services": "".join(_pods(export, engine, service) for service in services).rstrip(),
    }
    yield ExportedFile(path="workers.yaml", text=fill_template("kubernetes-workers", values))


def _pods(export: ClusterExport, engine: EngineRow, service: Service) -> str:
    name, is_worker = _id(engine), service.name == _WORKER
    texts = _environment(
        export, f"{name}-scheduler", ("--allow-private", *_allow_options(export.allowed))
    )
    sources = {variable: f"value: {json.dumps(text)}" for variable, text in texts.items()}
    sources["ADDRESS"] = "valueFrom: { fieldRef: { fieldPath: status.podIP } }"
    for token in _TOKENS:
        secret = f"{{ name: {name}, key: {token} }}"
        sources[token] = f"valueFrom: {{ secretKeyRef: {secret} }}"
    lines = [
        f"            - {{ name: {variable}, {source} }}"
        for variable, source in sources.items()
        if f"${variable}" in service.command
    ]
    values = {
        **_common(export, engine),
        "name": f"{name}-{service.name}",
        "role": service.name,
        "port": service.port,
        "health_port": service.health_port or service.port,
        "replicas": export.workers if is_worker else 1,
        "image": service.image or export.image,
        "command": indent(service.command.strip(), " " * 14),
        "environment": "\n".join(["          env:", *lines, ""]) if lines else "",
        "cpus": export.worker.cpus if is_worker else 1,
        "memory_mb": _memory_mb(export, service),
        "disk_gb": -(-export.disk_bytes // 1024**3) if is_worker else 1,
        "security": _kubernetes_security(service),
    }
    return fill_template("kubernetes-service", values)


def _kubernetes_security(service: Service) -> str:
    if service.privileged:
        return "{ privileged: true }"
    kept = f", add: [{', '.join(service.capabilities)}]" if service.capabilities else ""
    user = (
        f"runAsUser: {service.user}, runAsNonRoot: true, readOnlyRootFilesystem: true"
        if service.user
        else "runAsUser: 0"
    )
    rights = f"allowPrivilegeEscalation: false, capabilities: {{ drop: [ALL]{kept} }}"
    return f"{{ {user}, {rights} }}"


def _compose(export: ClusterExport, engine: EngineRow) -> Iterator[ExportedFile]:
    yield _dockerfile(engine)
    subnet = export.allowed[0] if export.allowed else clusters().subnet
    names = [service.name for service in engine.service if service.name != _WORKER] + ["cache"]
    names += [f"{_WORKER}-{number}" for number in range(1, export.workers + 1)]
    found = list(islice(IPv4Network(subnet).hosts(), 1, len(names) + 1))  # the first is the gateway
    if len(found) < len(names):
        hints = [f"it needs {len(names) + 1} addresses"]
        raise UsageError(f"--allow {subnet} is too small for all containers", hints=hints)
    addresses = {name: str(address) for name, address in zip(names, found, strict=True)}
    workers = tuple(address for name, address in addresses.items() if name.startswith(_WORKER))
    services = {service.name: service for service in (*engine.service, clusters().cache)}
    texts = [
        _container(export, engine, services[name.partition("-")[0]], name, addresses, subnet)
        for name in names
    ]
    scheduler = addresses.get("scheduler", "")
    tokens = _TOKENS if _needs_tokens(engine) else ()
    values = {
        **_common(export, engine),
        "secret": "".join(f'#   echo "{one}=$(openssl rand -hex 32)" >> .env\n' for one in tokens),
        "use": _use(export, engine, workers, scheduler, addresses["cache"]),
        "subnet": subnet,
        "services": "".join(texts).rstrip(),
    }
    yield ExportedFile(path="compose.yaml", text=fill_template("compose", values))


def _container(
    export: ClusterExport,
    engine: EngineRow,
    service: Service,
    name: str,
    addresses: dict[str, str],
    subnet: str,
) -> str:
    texts = _environment(export, addresses.get("scheduler", ""), _allow_options((subnet,)))
    texts |= {"ADDRESS": addresses[name]} | {token: f"${{{token}:?}}" for token in _TOKENS}
    lines = [
        f"      {variable}: {json.dumps(text)}"
        for variable, text in texts.items()
        if f"${variable}" in service.command
    ]
    # What an engine starts at once follows from the CPUs that it sees, if it has no option for it.
    limited = service.name == _WORKER and "$JOBS" not in service.command
    command = service.command.strip().replace("$", "$$")  # not a substitution
    values = {
        "service": name,
        "image": service.image or export.image,
        "build": "" if service.image else f"    build: {{ dockerfile: {_file(engine)} }}\n",
        "command": indent(command, " " * 8),
        "environment": "\n".join(["    environment:", *lines, ""]) if lines else "",
        "security": _compose_security(service),
        "memory_mb": _memory_mb(export, service),
        "cpu_limit": f"    cpus: {export.worker.cpus}\n" if limited else "",
        "port": service.port,
        "health_port": service.health_port or service.port,
        "address": addresses[name],
    }
    return fill_template("compose-service", values)


def _compose_security(service: Service) -> str:
    if service.privileged:
        return "    privileged: true\n"
    lines = [f'user: "{service.user}"', *(["read_only: true"] if service.user else [])]
    lines += ["cap_drop: [ALL]", "security_opt: [no-new-privileges:true]"]
    if service.capabilities:
        lines.append(f"cap_add: [{', '.join(service.capabilities)}]")
    return "".join(f"    {line}\n" for line in lines)


def _slurm(export: ClusterExport, engine: EngineRow) -> Iterator[ExportedFile]:
    services = {service.name: service for service in engine.service}
    programs = [name for service in engine.service for name in service.programs]
    prefix = f"{engine.slurm} " if engine.slurm else ""
    cache_mb = clusters().cache.memory_mb
    scheduler = services.get("scheduler")
    first = f"first sh -c {shlex.quote(scheduler.command.strip())} &\n" if scheduler else ""
    host = engine.host.format(address="%s", jobs=export.worker.jobs)
    hosts = f"hosts=$(printf '{host} ' \"${{nodes[@]}}\")\n" if host else ""
    values = {
        **_common(export, engine),
        "machines": "allowed machines" if engine.host else "nodes",
        "access": fill_template("slurm-access", {"allowed": " ".join(export.allowed)})
        if engine.host
        else "",
        "workers": export.workers,
        "cpus": export.worker.cpus,
        "jobs": export.worker.jobs,
        "minutes": -(-export.seconds // 60),
        "memory_mb": _memory_mb(export, services[_WORKER]) + cache_mb,
        "cache_mb": cache_mb * 4 // 5,
        "programs": " ".join([*programs, "redis-server"]),
        "packages": " ".join(engine.packages),
        "scheduler": first,
        "prefix": prefix,
        "command": shlex.quote(services[_WORKER].command.strip()),
        "hosts": hosts,
        "use": _use_lines(engine, "${hosts% }", "$SCHEDULER", "default:$password@$SCHEDULER"),
    }
    yield ExportedFile(path="workers.sbatch", text=fill_template("slurm-workers", values))


def _dockerfile(engine: EngineRow) -> ExportedFile:
    build = copy = ""
    if crate := engine.crate:
        features = ",".join(crate.features)
        build = "FROM docker.io/library/rust:1-bookworm AS build\n"
        build += f"RUN cargo install --locked --root /opt --bin {crate.program} "
        build += f"--features {features} {crate.name}@{crate.version}\n\n"
        copy = f"COPY --from=build /opt/bin/{crate.program} /usr/local/bin/"
    values = {
        "engine": engine.name,
        "compiler": engine.compiler,
        "build": build,
        "base": clusters().image,
        "packages": " ".join(engine.packages),
        "copy": copy,
    }
    return ExportedFile(
        path=_file(engine), text=fill_template("worker-dockerfile", values).rstrip() + "\n"
    )


def _common(export: ClusterExport, engine: EngineRow) -> dict[str, object]:
    command = f"stoker export {export.format} --cluster {engine.name}"
    lines = [
        f"Workers of {engine.name}: written by `{command}`.",
        engine.security,
        engine.compiler,
        f"Memory limit of a worker: {export.worker.basis}.",
    ]
    return {
        "comments": "\n".join(f"# {line}" for line in lines),
        "id": _id(engine),
        "image": export.image,
        "dockerfile": _file(engine),
    }


def _use(
    export: ClusterExport, engine: EngineRow, workers: tuple[str, ...], scheduler: str, cache: str
) -> str:
    words = (engine.host.format(address=name, jobs=export.worker.jobs) for name in workers)
    lines = _use_lines(engine, " ".join(words), scheduler, cache).splitlines()
    return "\n".join(f"#   {line}" for line in lines)


def _use_lines(engine: EngineRow, hosts: str, scheduler: str, cache: str) -> str:
    """Return the commands that use the workers, for the machine that builds."""
    options = engine.options.format(hosts=hosts, scheduler=scheduler)
    remote = f"redis://{cache}:{clusters().cache.port}"
    command = f"stoker build SOURCE {options} --cache-remote {remote}"
    return "\n".join(filter(None, [engine.before.format(scheduler=scheduler), command]))


def _environment(export: ClusterExport, scheduler: str, allow: Iterable[str]) -> dict[str, str]:
    return {"JOBS": str(export.worker.jobs), "ALLOW": " ".join(allow), "SCHEDULER": scheduler}


def _allow_options(networks: Iterable[str]) -> tuple[str, ...]:
    return tuple(word for network in networks for word in ("--allow", network))


def _memory_mb(export: ClusterExport, service: Service) -> int:
    return service.memory_mb or -(-export.worker.memory_bytes // 1024**2)


def _needs_tokens(engine: EngineRow) -> bool:
    return any(f"${token}" in s.command for token in _TOKENS for s in engine.service)


def _id(engine: EngineRow) -> str:
    return f"stoker-{engine.name}"


def _file(engine: EngineRow) -> str:
    return f"Dockerfile.{engine.name}"


_RENDERERS: dict[ExportFormat, Callable[[ClusterExport, EngineRow], Iterator[ExportedFile]]] = {
    ExportFormat.KUBERNETES: _kubernetes,
    ExportFormat.COMPOSE: _compose,
    ExportFormat.SLURM: _slurm,
}
