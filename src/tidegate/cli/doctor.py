"""`tidegate doctor`: would a node run well here?"""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tidegate.cli.options import Config, Overrides, names_a_port, read_settings
from tidegate.cli.serve import listener_options
from tidegate.cli.status import ExitStatus

if TYPE_CHECKING:
    from tidegate.cli.checks import Finding
    from tidegate.settings import Settings

_COLOURS = {"ok": "\x1b[32m", "warn": "\x1b[33m", "fail": "\x1b[31m"}


def command(
    config: Config = None,
    port: Annotated[
        int | None, typer.Option(min=0, max=65_535, help="Port for MQTT, as serve takes it.")
    ] = None,
    data: Annotated[Path | None, typer.Option(metavar="DIR", help="Data folder, as serve takes it.")] = None,
    overrides: Overrides = None,
) -> None:
    """Check this machine, the settings and the files they name, and say what to do about each fault.

    Give it what you give serve. Exits with 1 if something would keep a node from running as configured.
    """
    findings = examine(config, overrides, port=port, data=data)
    is_coloured = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    typer.echo(render(findings, is_coloured=is_coloured))
    if any(finding.outcome == "fail" for finding in findings):
        raise typer.Exit(ExitStatus.FAILURE)


def examine(
    config: Config, overrides: list[str] | None, *, port: int | None = None, data: Path | None = None
) -> "list[Finding]":
    """All findings. Settings that are refused are one of them; the defaults stand in for the other checks."""
    from tidegate.cli import checks
    from tidegate.cli.certificates import check_certificate
    from tidegate.cli.file_checks import check_accounts, check_data
    from tidegate.settings import Settings, SettingsError

    findings = [checks.check_python(), checks.check_uvloop(), checks.check_clock()]
    try:
        settings = _settings(config, overrides, port, data)
    except SettingsError as error:
        settings = None
        findings.append(
            checks.Finding(
                outcome=checks.Outcome.FAIL, subject="settings", observed=str(error), advice=error.hint
            )
        )
    else:
        observed = str(config) if config is not None else "built-in"
        findings.append(checks.Finding(outcome=checks.Outcome.OK, subject="settings", observed=observed))
    findings.extend(checks.check_environment(os.environ))
    findings.append(checks.check_open_files((settings or Settings()).limits.max_connections))
    findings.extend(checks.check_backlog())
    if settings is not None:
        is_port_named = port is not None or names_a_port(config, overrides)
        findings.extend(checks.check_listeners(settings, is_port_named=is_port_named))
        for listener in settings.listeners:
            if listener.is_tls:
                findings.extend(check_certificate(listener))
        findings.extend(check_accounts(settings))
        findings.extend(check_data(settings.data))
        findings.extend(checks.check_metrics(settings))
    return findings


def _settings(config: Config, overrides: list[str] | None, port: int | None, data: Path | None) -> "Settings":
    options = listener_options(read_settings(config, overrides), None, port, None)
    if data is not None:
        options["data"] = str(data)
    return read_settings(config, overrides, options)


def render(findings: "list[Finding]", *, is_coloured: bool) -> str:
    """The findings as a table, advice under the line it belongs to."""
    width = max(len(finding.subject) for finding in findings)
    lines = []
    for finding in findings:
        mark = f"{finding.outcome:<4}"
        if is_coloured:
            mark = f"{_COLOURS[finding.outcome]}{mark}\x1b[0m"
        lines.append(f"{mark}  {finding.subject:<{width}}  {' '.join(finding.observed.split())}")
        if finding.advice:
            lines.append(f"      {'':<{width}}  -> {finding.advice}")
    return "\n".join(lines)
