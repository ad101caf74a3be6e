"""mosquitto_pub and mosquitto_sub, as processes: the tools people try a broker with first."""

import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.interop.conftest import Harbour
from tests.interop.matrix import every_version
from tidegate.mqtt import Property, Publish, Will
from tidegate.testing.raw import RawClient

DEADLINE = 30.0
MARKER = "-- end --"
COUNT = 50


class Tools:
    """Runs the tools against one address of the broker."""

    def __init__(self, address: list[str], version: int, stack: ExitStack) -> None:
        self._options = [*address, "-V", "mqttv5" if version == 5 else "mqttv311"]
        self._stack = stack

    def pub(self, *arguments: str, input: str | None = None) -> None:
        command = ["mosquitto_pub", *self._options, *arguments]
        subprocess.run(command, input=input, text=True, timeout=DEADLINE, check=True)

    def sub(self, *arguments: str) -> str:
        """Run to the end, which `-C`, `-E` or `-W` among the arguments must bring about."""
        command = ["mosquitto_sub", *self._options, *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE, check=True).stdout

    def start_sub(self, *arguments: str) -> subprocess.Popen[str]:
        """Start, and return when the broker has granted the subscription."""
        command = ["stdbuf", "-oL", "mosquitto_sub", "-d", *self._options, *arguments]
        process = self._stack.enter_context(
            subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        )
        self._stack.callback(process.kill)
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("Subscribed"):
                return process
        raise AssertionError("mosquitto_sub ended before it had subscribed")


def lines_until_marker(process: subprocess.Popen[str]) -> list[str]:
    """What mosquitto_sub printed for `-F 'got %q %p'`, without its debug lines; the marker ends it."""
    assert process.stdout is not None
    found: list[str] = []
    for line in process.stdout:
        if line.startswith("got "):
            if MARKER in line:
                return found
            found.append(line.rstrip("\n"))
    raise AssertionError(f"mosquitto_sub ended early, after {found}")


@pytest.fixture
def tools(harbour: Harbour) -> Iterator[Callable[..., Tools]]:
    with ExitStack() as stack:

        def make(version: int, transport: str = "tcp") -> Tools:
            address = harbour.addresses[transport]
            if transport == "unix":
                return Tools(["--unix", address.path], version, stack)
            options = ["-h", address.host, "-p", str(address.port)]
            if address.is_tls:
                options += ["--cafile", str(address.ca_file)]
            if transport == "mutual":
                issued = harbour.client_certificate
                options += ["--cert", str(issued.certificate), "--key", str(issued.key)]
            return Tools(options, version, stack)

        yield make


@pytest.mark.parametrize("transport", ["tcp", "tls", "mutual", "unix"])
@every_version
def test_lines_go_from_pub_to_sub_once_in_order_at_every_qos(
    tools: Callable[..., Tools], topic: str, transport: str, version: int
) -> None:
    tool = tools(version, transport)
    for qos in (0, 1, 2):
        process = tool.start_sub("-t", f"{topic}/{qos}", "-q", "2", "-F", "got %q %p")
        lines = [f"line {number}" for number in range(COUNT)]
        tool.pub("-t", f"{topic}/{qos}", "-q", str(qos), "-l", input="\n".join([*lines, MARKER, ""]))
        assert lines_until_marker(process) == [f"got {qos} {line}" for line in lines]


@every_version
def test_a_retained_file_is_there_for_a_later_sub(
    tools: Callable[..., Tools], topic: str, version: int, tmp_path: Path
) -> None:
    tool = tools(version)
    path = tmp_path / "chart"
    path.write_text("x" * 200_000)
    tool.pub("-t", topic, "-q", "1", "-r", "-f", str(path))
    assert tool.sub("-t", topic, "-C", "1", "-W", "20", "-F", "%r %l") == "1 200000\n"
    tool.pub("-t", topic, "-q", "1", "-r", "-n")
    tool.pub("-t", f"{topic}/end", "-q", "1", "-r", "-m", MARKER)
    assert tool.sub("-t", f"{topic}/#", "-C", "1", "-W", "20") == f"{MARKER}\n"


@every_version
def test_a_persistent_sub_gets_what_it_missed(
    tools: Callable[..., Tools], unique: Callable[[str], str], topic: str, version: int
) -> None:
    tool = tools(version)
    session = ["-i", unique("sub"), "-c", "-q", "2", "-t", topic]
    tool.sub(*session, "-E")
    tool.pub("-t", topic, "-q", "1", "-l", input="".join(f"{number}\n" for number in range(COUNT)))
    tool.pub("-t", topic, "-q", "2", "-l", input="".join(f"{number}\n" for number in range(COUNT)))
    found = tool.sub(*session, "-C", str(2 * COUNT), "-W", "20", "-F", "%q %p").splitlines()
    assert sorted(found) == sorted(f"{qos} {number}" for qos in (1, 2) for number in range(COUNT))


@every_version
def test_a_killed_sub_leaves_its_will(
    tools: Callable[..., Tools], harbour: Harbour, topic: str, version: int
) -> None:
    with RawClient(harbour.port, timeout=20.0) as watcher:
        watcher.connect()
        watcher.subscribe(topic, qos=1)
        process = tools(version).start_sub(
            "-t", f"{topic}/x", "--will-topic", topic, "--will-payload", "lost", "--will-qos", "1"
        )
        process.kill()
        watcher.take(Publish, payload=b"lost", qos=1)


@every_version
def test_a_sub_sees_the_will_of_a_lost_client(
    tools: Callable[..., Tools], harbour: Harbour, topic: str, version: int
) -> None:
    process = tools(version).start_sub("-t", topic, "-F", "got %q %p")
    with RawClient(harbour.port) as client:
        client.connect(will=Will(topic=topic, payload=MARKER.encode()))
    assert lines_until_marker(process) == []


def test_properties_given_on_the_command_line_arrive(tools: Callable[..., Tools], topic: str) -> None:
    tool = tools(5)
    tool.pub(
        *("-t", topic, "-q", "1", "-r", "-m", "3.2"),
        *("-D", "publish", "content-type", "text/plain"),
        *("-D", "publish", "response-topic", "answers"),
        *("-D", "publish", "correlation-data", "42"),
        *("-D", "publish", "user-property", "b", "1"),
        *("-D", "publish", "user-property", "a", "2"),
        *("-D", "publish", "user-property", "b", "3"),
    )
    assert tool.sub("-t", topic, "-C", "1", "-W", "20", "-F", "%C %R %D %P") == (
        "text/plain answers 42 b:1 a:2 b:3\n"
    )


def test_subs_of_a_shared_subscription_share(tools: Callable[..., Tools], topic: str) -> None:
    tool = tools(5)
    members = [
        tool.start_sub("-t", f"$share/crew/{topic}/work", "-t", f"{topic}/end", "-q", "1", "-F", "got %q %p")
        for _ in range(3)
    ]
    tool.pub("-t", f"{topic}/work", "-q", "1", "-l", input="".join(f"{n}\n" for n in range(60)))
    tool.pub("-t", f"{topic}/end", "-q", "1", "-m", MARKER)
    shares = [lines_until_marker(process) for process in members]
    assert sorted(line for share in shares for line in share) == sorted(
        f"got 1 {number}" for number in range(60)
    )
    assert all(shares)


def test_a_request_with_mosquitto_rr_is_answered(harbour: Harbour, topic: str) -> None:
    with RawClient(harbour.port, timeout=20.0) as server:
        server.connect()
        server.subscribe(f"{topic}/requests")
        command = ["mosquitto_rr", "-h", "127.0.0.1", "-p", str(harbour.port), "-V", "mqttv5", "-W", "20"]
        command += ["-t", f"{topic}/requests", "-e", f"{topic}/answers", "-m", "how deep?"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as asking:
            request = server.take(Publish, payload=b"how deep?")
            server.publish(request.properties[Property.RESPONSE_TOPIC], b"3.2 m")
            assert asking.communicate(timeout=DEADLINE)[0] == "3.2 m\n"


def test_a_client_without_the_certificate_a_listener_wants_is_refused(
    tools: Callable[..., Tools], harbour: Harbour, topic: str
) -> None:
    address = harbour.addresses["mutual"]
    command = ["mosquitto_pub", "-h", address.host, "-p", str(address.port), "--cafile", str(address.ca_file)]
    refused = subprocess.run(
        [*command, "-t", topic, "-m", "x", "-q", "1", "-r"], capture_output=True, timeout=DEADLINE
    )
    assert refused.returncode != 0
    tools(5, "mutual").pub("-t", f"{topic}/end", "-q", "1", "-r", "-m", MARKER)
    assert tools(5).sub("-t", f"{topic}/#", "-C", "1", "-W", "20") == f"{MARKER}\n"
