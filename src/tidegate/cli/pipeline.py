"""`tidegate pipeline`: learn from a lake what is normal, with Spark."""

import importlib.util
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tidegate.cli.status import ExitStatus

if TYPE_CHECKING:
    from tidegate.pipeline.settings import PipelineSettings

app = typer.Typer(
    no_args_is_help=True, help="Learn from a lake what is normal, and tell the broker.", rich_markup_mode=None
)

Lake = Annotated[
    str, typer.Option("--lake", metavar="DIR", help="Folder or address of the lake (docs/lake.md).")
]
Out = Annotated[
    str,
    typer.Option(
        "--out", metavar="DIR", help="Where aggregates and findings go. Default: _pipeline in the lake."
    ),
]
Master = Annotated[
    str, typer.Option("--master", metavar="URL", help="Spark to run on: local[2], spark://host:7077, yarn, …")
]
Memory = Annotated[str, typer.Option("--memory", metavar="SIZE", help="Memory of the driver, as 4g.")]


@app.command("run")
def run_command(
    lake: Lake,
    out: Out = "",
    policy: Annotated[
        str, typer.Option(metavar="DIR", help="Folder of policy snapshots. Default: _policy in the lake.")
    ] = "",
    master: Master = "local[*]",
    memory: Memory = "4g",
    since: Annotated[str, typer.Option(metavar="TIME", help="First hour that counts, UTC.")] = "",
    until: Annotated[str, typer.Option(metavar="TIME", help="First hour that does not.")] = "",
    job: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Only this job; may be repeated. Then no snapshot is written."),
    ] = None,
    edge: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=MBIT[,MSG/S]", help="Capacity of an edge for the placement; may be repeated."
        ),
    ] = None,
    full: Annotated[
        bool, typer.Option("--full", help="Compute hours again whose files did not change.")
    ] = False,
    no_policy: Annotated[bool, typer.Option("--no-policy", help="Write no snapshot.")] = False,
) -> None:
    """Run all jobs and write a policy snapshot, whose version is printed. Running it again changes nothing but that.

    Hours whose files are those of the last run are not read again. Jobs: hourly, baselines, topics, placement,
    members, routes, rpc, control, replay, quality.
    """
    from tidegate.pipeline.settings import Edge, PipelineSettings

    _require_pyspark()
    settings = PipelineSettings(
        lake=lake,
        out=out,
        policy=policy,
        since=_moment(since),
        until=_moment(until),
        is_full=full,
        edges=tuple(Edge.parse(each) for each in edge or ()),
    )
    from tidegate.pipeline.run import require_publish, run
    from tidegate.pipeline.session import start

    if not job or "hourly" in job:
        require_publish(settings)
    spark = start(master, memory=memory)
    try:
        done = run(
            spark,
            settings,
            job or (),
            lambda name, seconds: typer.echo(f"{name:<10} {seconds:6.1f} s", err=True),
            has_policy=not no_policy,
        )
    finally:
        spark.stop()
    for line in done.remarks(settings):
        typer.echo(line, err=True)
    if done.version:
        typer.echo(done.version)


@app.command("stream")
def stream_command(
    lake: Lake,
    out: Out = "",
    policy: Annotated[
        str, typer.Option(metavar="DIR", help="Folder of policy snapshots. Default: _policy in the lake.")
    ] = "",
    master: Master = "local[*]",
    memory: Memory = "4g",
    every: Annotated[
        float, typer.Option(metavar="SECONDS", min=0.1, help="Between looks at the lake.")
    ] = 15.0,
    lateness: Annotated[
        str, typer.Option(metavar="TIME", help="How long rows may be under way, as '2 minutes'.")
    ] = "2 minutes",
    now: Annotated[bool, typer.Option("--now", help="Take what is there and end.")] = False,
) -> None:
    """Keep the policy fresh while the lake grows; prints the version of each snapshot. Ends with Ctrl-C.

    State and offsets are below stream/ of --out: started again, it goes on where it was. Routes of devices and changes
    of behaviour are followed minute by minute, all else hour by hour with the jobs of `run`.
    """
    from tidegate.pipeline.errors import PipelineError
    from tidegate.pipeline.settings import PipelineSettings

    _require_pyspark()
    from tidegate.pipeline.run import SPARK_ERRORS, failure
    from tidegate.pipeline.session import start
    from tidegate.pipeline.stream import PolicyStream, StreamSettings, has_lake

    settings = PipelineSettings(lake=lake, out=out, policy=policy)
    if not has_lake(lake):
        raise PipelineError(
            f"{lake}: there is no such folder", "--lake names the folder that holds publish/, load/, …"
        )

    def say(version: str, seconds: float) -> None:
        typer.echo(version)
        typer.echo(f"policy     {seconds:6.1f} s", err=True)

    spark = start(master, memory=memory)
    stream = PolicyStream(spark, StreamSettings(pipeline=settings, every=every, lateness=lateness), say)
    try:
        stream.start(available_now=now)
        if now:
            stream.wait_all()
        else:
            stream.wait()
    except SPARK_ERRORS as error:
        raise failure("the stream", error) from error
    finally:
        stream.stop()
        spark.stop()


@app.command("report")
def report_command(
    lake: Lake,
    out: Out = "",
    to: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Where the page goes. Default: report/ beside the findings."),
    ] = None,
    master: Master = "local[*]",
    memory: Memory = "4g",
) -> None:
    """Write what the last run found as a web page with plots, which loads nothing, and as Markdown."""
    from tidegate.pipeline.settings import PipelineSettings

    _require_pyspark()
    settings = PipelineSettings(lake=lake, out=out)
    _require_findings(settings)
    from tidegate.pipeline.jobs import report
    from tidegate.pipeline.run import SPARK_ERRORS, failure
    from tidegate.pipeline.session import start

    spark = start(master, memory=memory)
    try:
        written = report.main(spark, settings, to)
    except SPARK_ERRORS as error:
        raise failure("the report", error) from error
    finally:
        spark.stop()
    for path in written:
        typer.echo(str(path))


def _moment(text: str) -> datetime | None:
    if not text:
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        typer.echo(f"error: {text!r} is not a time", err=True)
        typer.echo("hint: as in 2026-01-05T00:00, UTC", err=True)
        raise typer.Exit(ExitStatus.USAGE) from None
    return found.astimezone(UTC) if found.tzinfo is not None else found.replace(tzinfo=UTC)


def _require_pyspark() -> None:
    if importlib.util.find_spec("pyspark") is None:
        typer.echo("error: the pipeline needs pyspark, which is not installed", err=True)
        typer.echo("hint: pip install 'tidegate[spark]'", err=True)
        raise typer.Exit(ExitStatus.STARTUP)


def _require_findings(settings: "PipelineSettings") -> None:
    from pyarrow import fs

    from tidegate.pipeline.inventory import open_filesystem

    filesystem, root = open_filesystem(settings.out_folder)
    if filesystem.get_file_info(f"{root}/findings").type != fs.FileType.Directory:
        typer.echo(f"error: {settings.out_folder}: nothing was found yet", err=True)
        typer.echo(f"hint: tidegate pipeline run --lake {settings.lake}", err=True)
        raise typer.Exit(ExitStatus.FAILURE)
