"""What `tidegate doctor` looks at. A check takes what it needs and returns findings; it changes nothing."""

import errno
import os
import platform
import resource
import socket
import stat
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from importlib import metadata
from pathlib import Path

from tidegate.settings import ListenerSettings, ListenerType, Settings, is_loopback, misspelt_variables

# Descriptors a node needs beside its clients: listeners, the loop, the log, metrics, the store.
SPARE_DESCRIPTORS = 64
# The backlog that listeners ask for; the kernel silently cuts it down to somaxconn.
WANTED_BACKLOG = 4_096
# A clock before this release was made is a clock that was never set.
RELEASED = 1_735_689_600  # 2025-01-01 UTC


class Outcome(StrEnum):
    """What a finding means for somebody who wants to run a node."""

    OK = "ok"
    WARN = "warn"  # it will run, but not as well or as safely as it could
    FAIL = "fail"  # it will not run as configured


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One line of the doctor's table."""

    outcome: Outcome
    subject: str
    observed: str
    advice: str = ""


def check_python() -> Finding:
    """The interpreter: an older one cannot import this file, so only its kind is in doubt."""
    observed = f"{platform.python_implementation()} {platform.python_version()}"
    if sys.implementation.name != "cpython":
        return Finding(
            outcome=Outcome.WARN, subject="python", observed=observed, advice="only CPython is tested"
        )
    return Finding(outcome=Outcome.OK, subject="python", observed=observed)


def check_uvloop() -> Finding:
    """The event loop; the one compiled dependency, so the one that may be broken."""
    try:
        import uvloop  # noqa: F401
    except ImportError as error:
        return Finding(
            outcome=Outcome.FAIL,
            subject="uvloop",
            observed=str(error),
            advice="pip install --force-reinstall uvloop",
        )
    return Finding(outcome=Outcome.OK, subject="uvloop", observed=metadata.version("uvloop"))


def check_open_files(max_connections: int) -> Finding:
    """Every client is a descriptor; without enough of them, clients are turned away at the door."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = max_connections + SPARE_DESCRIPTORS
    observed = (
        f"{_limit(soft)} (hard limit {_limit(hard)}), {needed} needed for {max_connections} connections"
    )
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return Finding(outcome=Outcome.OK, subject="open files", observed=observed)
    if hard == resource.RLIM_INFINITY or hard >= needed:
        advice = f"ulimit -n {needed} before starting, or LimitNOFILE={needed} in the service file"
    else:
        advice = (
            f"raise the hard limit (LimitNOFILE={needed}), or lower limits.max_connections to {soft - 64}"
        )
    return Finding(outcome=Outcome.WARN, subject="open files", observed=observed, advice=advice)


def check_clock(now: float | None = None) -> Finding:
    """Certificates and message expiry are worthless with a clock that was never set."""
    now = time.time() if now is None else now
    observed = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(now))
    if now < RELEASED:
        return Finding(outcome=Outcome.FAIL, subject="clock", observed=observed, advice="set the clock")
    return Finding(outcome=Outcome.OK, subject="clock", observed=observed)


def check_backlog(path: Path = Path("/proc/sys/net/core/somaxconn")) -> Iterator[Finding]:
    """When many clients connect at once, the kernel drops those that do not fit in its queue."""
    try:
        somaxconn = int(path.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return  # not Linux, or hidden in this container: nothing to say
    if somaxconn < WANTED_BACKLOG:
        yield Finding(
            outcome=Outcome.WARN,
            subject="somaxconn",
            observed=str(somaxconn),
            advice=f"sysctl -w net.core.somaxconn={WANTED_BACKLOG}",
        )
    else:
        yield Finding(outcome=Outcome.OK, subject="somaxconn", observed=str(somaxconn))


def check_listeners(settings: Settings, *, is_port_named: bool) -> Iterator[Finding]:
    """Can each listener be opened, and does it let strangers in?"""
    for listener in settings.listeners:
        if listener.type is ListenerType.UNIX:
            yield _check_unix(Path(listener.path))
        else:
            yield _check_port(listener, is_port_named=is_port_named)
        if (
            listener.accepts_anonymous
            and listener.type is not ListenerType.UNIX
            and not is_loopback(listener.host)
        ):
            yield Finding(
                outcome=Outcome.WARN,
                subject=listener.address,
                observed="lets anybody in without credentials",
                advice="set allow_anonymous = false, or listen on 127.0.0.1",
            )


def check_metrics(settings: Settings) -> Iterator[Finding]:
    """Can the metrics page be served? Its port is never moved: whoever reads it was told which one it is."""
    metrics = settings.metrics
    if metrics.port == 0:
        return
    subject = f"metrics {metrics.host}:{metrics.port}"
    if any(each.type is not ListenerType.UNIX and each.port == metrics.port for each in settings.listeners):
        advice = "give the metrics page a port of its own"
        yield Finding(
            outcome=Outcome.FAIL, subject=subject, observed="a listener has this port", advice=advice
        )
    elif (problem := _bind_error(metrics.host, metrics.port)) is not None:
        observed = (problem.strerror or str(problem)).lower()
        advice = "stop the program that has it, or choose another with --metrics-port"
        yield Finding(outcome=Outcome.FAIL, subject=subject, observed=observed, advice=advice)
    else:
        yield Finding(outcome=Outcome.OK, subject=subject, observed="free")


def check_environment(environ: Mapping[str, str]) -> Iterator[Finding]:
    """A variable with one underscore too few is ignored, which nobody would notice."""
    for name, right in misspelt_variables(environ).items():
        yield Finding(outcome=Outcome.WARN, subject=name, observed="ignored", advice=f"did you mean {right}?")


def _check_port(listener: ListenerSettings, *, is_port_named: bool) -> Finding:
    problem = _bind_error(listener.host, listener.port)
    if problem is None:
        return Finding(outcome=Outcome.OK, subject=listener.address, observed="free")
    if isinstance(problem, socket.gaierror):
        return Finding(
            outcome=Outcome.FAIL,
            subject=listener.address,
            observed="host name unknown",
            advice="use an IP address",
        )
    if problem.errno == errno.EADDRINUSE:
        if listener.type is ListenerType.TCP and not is_port_named:
            return Finding(
                outcome=Outcome.WARN,
                subject=listener.address,
                observed="in use",
                advice="serve takes the next free port; name one with --port to be sure",
            )
        advice = f"stop the program that has it (ss -ltnp sport = :{listener.port}), or choose another port"
    elif problem.errno == errno.EACCES:
        advice = "ports below 1024 need root or CAP_NET_BIND_SERVICE"
    elif problem.errno == errno.EADDRNOTAVAIL:
        advice = "this machine does not have that address; ip address lists those it has"
    else:
        advice = "choose another host or port"
    observed = os.strerror(problem.errno or 0).lower()
    return Finding(outcome=Outcome.FAIL, subject=listener.address, observed=observed, advice=advice)


def _bind_error(host: str, port: int) -> OSError | None:
    try:
        addresses = socket.getaddrinfo(
            host.strip("[]"), port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE | socket.AI_NUMERICSERV
        )
        for family, kind, protocol, _, address in addresses:
            with socket.socket(family, kind, protocol) as probe:
                # As the listener does: a port whose last connections still linger counts as free.
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:
                    probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                probe.bind(address)
                # Binding succeeds beside a listener that set SO_REUSEADDR too; only listening tells.
                probe.listen(1)
    except OSError as error:
        return error
    return None


def _check_unix(path: Path) -> Finding:
    subject = f"unix:{path}"
    if not path.parent.is_dir():
        return Finding(
            outcome=Outcome.FAIL, subject=subject, observed="no such folder", advice=f"mkdir -p {path.parent}"
        )
    if not os.access(path.parent, os.W_OK | os.X_OK):
        return Finding(
            outcome=Outcome.FAIL,
            subject=subject,
            observed="folder not writable",
            advice="choose another folder",
        )
    if not path.exists():
        return Finding(outcome=Outcome.OK, subject=subject, observed="free")
    if not stat.S_ISSOCK(path.stat().st_mode):
        return Finding(
            outcome=Outcome.FAIL, subject=subject, observed="a file that is no socket", advice="move it away"
        )
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(str(path))
        except OSError:
            return Finding(outcome=Outcome.OK, subject=subject, observed="left behind, will be replaced")
    return Finding(
        outcome=Outcome.FAIL, subject=subject, observed="in use", advice="stop the program that listens there"
    )


def _limit(value: int) -> str:
    return "unlimited" if value == resource.RLIM_INFINITY else str(value)
