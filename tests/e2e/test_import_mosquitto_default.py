"""Options before the first listener: which of them make Mosquitto serve its default listener, port 1883, as well.

The installed Mosquitto is asked, and what `import-mosquitto` makes of the same file has to serve the same ports.
"""

import os
import re
import subprocess
from pathlib import Path

import pytest

from tidegate.lab.brokers import free_port, mosquitto_program
from tidegate.migrate import Kind, MigrationError, convert_mosquitto
from tidegate.settings import load_settings
from tidegate.testing.certificates import make_authority

DEFAULT_PORT = 1883
# Lines, and whether the default listener is served because of them.
EARLY = {
    "": False,
    "cafile AUTHORITY": True,
    "capath FOLDER": True,
    "certfile CERTIFICATE\nkeyfile KEY": True,
    "certfile CERTIFICATE\nkeyfile KEY\ncafile AUTHORITY\nrequire_certificate true": True,
    "require_certificate true": True,
    "require_certificate false": False,
    "use_identity_as_username true": True,
    "use_identity_as_username false": False,
    "use_subject_as_username true": True,
    "use_subject_as_username false": False,
    "use_username_as_clientid true": True,
    "max_connections 50": True,
    "max_connections 0": True,
    "max_connections -1": False,
    "max_connections 50\nmax_connections -1": False,
    "max_qos 1": True,
    "max_qos 2": False,
    "max_topic_alias 5": False,
    "protocol mqtt": False,
    "protocol websockets": True,
    "socket_domain ipv4": True,
    "bind_interface lo": True,
    "bind_address 127.0.0.1": True,
    "http_dir FOLDER": False,
    "tls_version tlsv1.2": False,
    "tls_keyform pem": False,
    "tls_engine none": True,
    "ciphers HIGH": True,
    "ciphers_tls1.3 TLS_AES_256_GCM_SHA384": True,
    "dhparamfile EMPTY": True,
    "crlfile EMPTY": True,
    "psk_hint harbour": True,
    "psk_file EMPTY": False,
    "password_file EMPTY": False,
    "allow_anonymous true": False,
    "allow_zero_length_clientid false": False,
    "per_listener_settings true\npassword_file EMPTY": True,
    "per_listener_settings true\npsk_file EMPTY": True,
    "per_listener_settings true\nacl_file EMPTY": False,
    "per_listener_settings true\nallow_anonymous true": False,
    "per_listener_settings true\nallow_zero_length_clientid true": False,
    "per_listener_settings true\nallow_zero_length_clientid false": True,
}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """What the words in capitals stand for."""
    folder = tmp_path_factory.mktemp("mosquitto")
    authority = make_authority(folder)
    server = authority.issue("server")
    empty = folder / "empty"
    empty.touch()
    return {
        "AUTHORITY": authority.certificate, "CERTIFICATE": server.certificate, "KEY": server.key, "EMPTY": empty,
        "FOLDER": folder,
    }  # fmt: skip


def write(path: Path, text: str, files: dict[str, Path]) -> Path:
    for word, file in files.items():
        text = re.sub(rf"\b{word}\b", str(file), text)
    path.write_text(f"user {os.environ.get('USER', 'root')}\n{text}\n", encoding="utf-8")
    return path


def ask_mosquitto(config: Path) -> tuple[set[int], str]:
    """The ports that it says it opens, also one that is taken here; and all that it says."""
    command = [mosquitto_program(), "-v", "-c", str(config)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        said = ""
        for line in process.stdout:
            said += line
            if line.rstrip().endswith(" running"):
                process.kill()  # a SIGTERM this early is forgotten
    return {int(port) for port in re.findall(r"listen socket on port (\d+)", said)}, said


@pytest.mark.serial  # Mosquitto opens port 1883 for a moment
@pytest.mark.parametrize("early", EARLY)
def test_the_default_listener_is_served_when_mosquitto_serves_it(
    early: str, files: dict[str, Path], tmp_path: Path
) -> None:
    port = free_port()
    source = write(tmp_path / "mosquitto.conf", f"{early}\nlistener {port} 127.0.0.1", files)
    opened, said = ask_mosquitto(source)
    assert opened == ({port, DEFAULT_PORT} if EARLY[early] else {port}), said
    conversion = convert_mosquitto(source)
    target = tmp_path / "tidegate.toml"
    target.write_text(conversion.toml, encoding="utf-8")
    assert {listener.port for listener in load_settings(target).listeners} == opened
    is_said = any(each.kind is Kind.DIFFERS and "before the first listener" in each.text for each in conversion.remarks)
    assert is_said == (EARLY[early] and "bind_address" not in early)


@pytest.mark.serial
@pytest.mark.parametrize("early", [early for early in EARLY if "allow_anonymous" not in early])
def test_without_other_listeners_it_is_on_loopback_unless_something_was_said_about_it(
    early: str, files: dict[str, Path], tmp_path: Path
) -> None:
    source = write(tmp_path / "mosquitto.conf", early, files)
    opened, said = ask_mosquitto(source)
    assert opened == {DEFAULT_PORT}, said
    assert ("local only mode" not in said) == EARLY[early]
    target = tmp_path / "tidegate.toml"
    target.write_text(convert_mosquitto(source).toml, encoding="utf-8")
    (listener,) = load_settings(target).listeners
    assert listener.port == DEFAULT_PORT
    assert listener.accepts_anonymous == (not EARLY[early])  # as Mosquitto has it in this mode alone
    if not EARLY[early]:
        assert listener.host == "127.0.0.1"


@pytest.mark.serial
@pytest.mark.parametrize(
    "text",
    [
        "max_connections 50\nlistener 1883",
        "max_qos 1\nlistener 1883 127.0.0.1",
        "mount_point plant/\nlistener 1884",
    ],
)
def test_what_mosquitto_does_not_start_with_is_refused(text: str, files: dict[str, Path], tmp_path: Path) -> None:
    source = write(tmp_path / "mosquitto.conf", text, files)
    assert "Error" in ask_mosquitto(source)[1]
    with pytest.raises(MigrationError):
        convert_mosquitto(source)
