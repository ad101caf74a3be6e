"""What becomes of each line of a mosquitto.conf. tests/e2e/test_import_mosquitto.py runs both brokers with one."""

import subprocess
from pathlib import Path

import pytest

from tidegate.migrate import Conversion, Kind, MigrationError, convert_mosquitto
from tidegate.migrate.mosquitto_options import BRIDGE, GUARDS, LOST, NOT_NEEDED, SWITCHES
from tidegate.settings import Settings, load_settings


def convert(folder: Path, text: str) -> tuple[Settings, Conversion]:
    """The conversion, and the settings that it loads to."""
    source = folder / "mosquitto.conf"
    source.write_text(text, encoding="utf-8")
    conversion = convert_mosquitto(source)
    target = folder / "tidegate.toml"
    target.write_text(conversion.toml, encoding="utf-8")
    return load_settings(target), conversion


def said(conversion: Conversion) -> list[tuple[str, Kind]]:
    """What was remarked, but for the general remark on packet sizes."""
    return [(remark.option, remark.kind) for remark in conversion.remarks if remark.place]


def test_an_empty_file_is_the_loopback_address_with_anonymous_clients(tmp_path: Path) -> None:
    settings, conversion = convert(tmp_path, "# nothing\n\n")
    assert [(each.address, each.accepts_anonymous) for each in settings.listeners] == [
        ("mqtt://127.0.0.1:1883", True)
    ]
    assert conversion.is_complete


def test_a_listener_is_on_every_address_and_lets_nobody_in_by_default(tmp_path: Path) -> None:
    settings, _ = convert(tmp_path, "listener 1884\n")
    assert [(each.host, each.port, each.accepts_anonymous) for each in settings.listeners] == [
        ("*", 1884, False)
    ]


@pytest.mark.parametrize(
    "text, host, port",
    [
        ("port 1884\n", "*", 1884),
        ("bind_address 127.0.0.1\n", "127.0.0.1", 1883),
        ("listener 1884\nsocket_domain ipv4\n", "0.0.0.0", 1884),
        ("listener 1884\nsocket_domain ipv6\n", "::", 1884),
        ("listener 1884 localhost\n", "localhost", 1884),
    ],
)
def test_addresses_are_kept(text: str, host: str, port: int, tmp_path: Path) -> None:
    settings, conversion = convert(tmp_path, text)
    assert [(each.host, each.port) for each in settings.listeners] == [(host, port)]
    assert said(conversion) == []


def test_every_kind_of_listener(tmp_path: Path) -> None:
    settings, conversion = convert(
        tmp_path,
        "listener 0 /run/mqtt.sock\n"
        "listener 8883\ncertfile /c\nkeyfile /k\ncafile /ca\nrequire_certificate true\nmax_connections 7\n"
        "listener 9001\nprotocol websockets\nwebsockets_origin https://a.example\nmax_connections -1\n"
        "listener 9002\nprotocol websockets\ncertfile /c\nkeyfile /k\n",
    )
    assert [each.type for each in settings.listeners] == ["unix", "tls", "ws", "wss"]
    tls, web, open_web = settings.listeners[1:4]
    assert (tls.client_ca, tls.require_client_certificate, tls.max_connections) == (Path("/ca"), True, 7)
    assert (web.origins, web.max_connections) == (("https://a.example",), 0)
    assert open_web.origins == ("*",)
    assert said(conversion) == [("protocol", Kind.DIFFERS)] * 2


def test_an_authority_without_required_certificates_is_not_asked_for_them(tmp_path: Path) -> None:
    settings, _ = convert(tmp_path, "listener 8883\ncertfile /c\nkeyfile /k\ncafile /ca\n")
    assert settings.listeners[0].client_ca is None


def test_limits_and_features(tmp_path: Path) -> None:
    settings, conversion = convert(
        tmp_path,
        "max_inflight_messages 20\nmax_queued_bytes 5000\nmax_packet_size 2000\nmax_keepalive 120\n"
        "memory_limit 100000000\npersistent_client_expiration 14d\nqueue_qos0_messages true\n"
        "retain_available false\nsys_interval 30\nallow_zero_length_clientid false\n"
        "global_max_connections 900\nlistener 1884\nmax_qos 1\nmax_topic_alias 5\n",
    )
    limits, features = settings.limits, settings.features
    assert (limits.max_inflight, limits.max_queued_bytes, limits.max_packet_size) == (20, 5000, 2000)
    assert (limits.max_memory, limits.max_topic_alias, limits.max_connections) == (100_000_000, 5, 900)
    assert (features.server_keep_alive, features.sys_interval, features.maximum_qos) == (120, 30, 1)
    assert (features.persistent_session_expiry, features.max_session_expiry) == (1_209_600, 1_209_600)
    assert (features.queue_qos0, features.retain_available, features.allow_zero_length_client_id) == (
        True,
        False,
        False,
    )
    assert said(conversion) == [("max_queued_bytes", Kind.DIFFERS)]


def test_zero_means_no_limit_where_there_can_be_none(tmp_path: Path) -> None:
    settings, conversion = convert(
        tmp_path, "max_inflight_messages 0\nmax_queued_messages 0\nmax_queued_bytes 0\nmax_packet_size 0\n"
    )
    assert settings.limits.max_inflight == 65_535
    assert settings.limits.max_queued_messages == 2_147_483_647
    assert settings.limits.max_queued_bytes == Settings().limits.max_queued_bytes
    assert settings.limits.max_packet_size == 268_435_460
    assert said(conversion) == [("max_queued_messages", Kind.DIFFERS), ("max_queued_bytes", Kind.DIFFERS)]


def test_numbers_that_are_too_large_become_the_largest(tmp_path: Path) -> None:
    settings, _ = convert(tmp_path, "max_keepalive 100000\nlistener 1\nmax_topic_alias 70000\nmax_qos 9\n")
    assert settings.features.server_keep_alive == 0  # as long as a client likes: the most there is
    assert (settings.limits.max_topic_alias, settings.features.maximum_qos) == (65_535, 2)


def test_the_strictest_of_several_listeners_counts_for_all(tmp_path: Path) -> None:
    settings, conversion = convert(tmp_path, "listener 1\nmax_qos 2\nlistener 2\nmax_qos 0\n")
    assert settings.features.maximum_qos == 0
    assert said(conversion) == [("max_qos", Kind.DIFFERS)]


def test_persistence_becomes_a_data_folder(tmp_path: Path) -> None:
    settings, conversion = convert(tmp_path, "persistence true\npersistence_location /var/lib/mosquitto/\n")
    assert settings.data == Path("/var/lib/mosquitto")
    assert said(conversion) == [("persistence", Kind.DIFFERS)]
    assert convert(tmp_path, "persistence false\npersistence_location /var/lib\n")[0].data is None


@pytest.mark.parametrize(
    "types, level",
    [("all", "debug"), ("warning error", "warning"), ("none", "error"), ("error notice", "info")],
)
def test_log_types_become_a_level(types: str, level: str, tmp_path: Path) -> None:
    assert convert(tmp_path, f"log_type {types}\n")[0].log.level == level


def test_accounts_and_rights_are_used_as_they_are(tmp_path: Path) -> None:
    passwords, rights = tmp_path / "passwords", tmp_path / "acl"
    passwords.touch(mode=0o600)
    subprocess.run(["mosquitto_passwd", "-b", passwords, "ada", "secret"], check=True, capture_output=True)
    rights.write_text("user ada\ntopic a/#\n", encoding="utf-8")
    settings, conversion = convert(
        tmp_path, "listener 1884\npassword_file passwords\nacl_file acl\nallow_anonymous true\n"
    )
    assert (settings.accounts.password_file, settings.accounts.rights_file) == (passwords, rights)
    assert settings.accounts.allow_anonymous
    assert settings.listeners[0].accepts_anonymous
    assert said(conversion) == [("password_file", Kind.DIFFERS)]  # its hashes are weak


def test_faults_in_the_files_are_named(tmp_path: Path) -> None:
    (tmp_path / "passwords").write_text("ada:secret\n", encoding="utf-8")
    (tmp_path / "acl").write_text("topic read a\ntopic sensors/%u\n", encoding="utf-8")
    _, conversion = convert(tmp_path, "listener 1884\npassword_file passwords\nacl_file acl\n")
    assert said(conversion) == [("password_file", Kind.LOST), ("acl_file", Kind.LOST)]
    assert "acl:2:" in str(conversion.remarks[1])


def test_rules_of_users_that_nobody_can_prove_to_be_are_remarked(tmp_path: Path) -> None:
    (tmp_path / "acl").write_text("user ada\ntopic a\n", encoding="utf-8")
    _, conversion = convert(tmp_path, "listener 1884\nallow_anonymous true\nacl_file acl\n")
    assert said(conversion) == [("acl_file", Kind.DIFFERS)]


def test_the_name_in_a_certificate_becomes_the_user(tmp_path: Path) -> None:
    settings, _ = convert(
        tmp_path,
        "listener 8883\ncertfile /c\nkeyfile /k\ncafile /ca\nrequire_certificate true\nuse_identity_as_username true\n",
    )
    assert settings.accounts.certificate_identity == "cn"
    assert settings.accounts.certificate_username == "ignore"


def test_where_a_certificate_did_not_name_the_user_it_must_not_replace_a_password(tmp_path: Path) -> None:
    tls = "certfile /c\nkeyfile /k\ncafile /ca\nrequire_certificate true\n"
    settings, conversion = convert(
        tmp_path, f"listener 1\n{tls}use_identity_as_username true\nlistener 2\n{tls}"
    )
    assert [each.host for each in settings.listeners] == ["*", "127.0.0.1"]
    assert said(conversion) == [("require_certificate", Kind.LOST)]


@pytest.mark.parametrize("option", sorted(SWITCHES))
def test_what_is_switched_off_needs_no_remark(option: str, tmp_path: Path) -> None:
    settings, conversion = convert(tmp_path, f"listener 1\n{option} false\n")
    assert (said(conversion), settings.listeners[0].host) == ([], "*")


def test_settings_per_listener(tmp_path: Path) -> None:
    (tmp_path / "acl").write_text("topic a\n", encoding="utf-8")
    settings, conversion = convert(
        tmp_path,
        "per_listener_settings true\nlistener 1\nallow_anonymous true\nacl_file acl\n"
        "listener 2 10.0.0.1\nallow_anonymous false\nacl_file acl\nlistener 3\nlisten\n",
    )
    assert [each.accepts_anonymous for each in settings.listeners] == [True, False, False]
    # The third has other rights than the first two, and may therefore not be reached.
    assert [each.host for each in settings.listeners][2] == "127.0.0.1"
    assert ("listener", Kind.LOST) in said(conversion)


@pytest.mark.parametrize(
    "option",
    ["capath", "crlfile", "mount_point", "psk_hint", "use_subject_as_username", "use_username_as_clientid"],
)
def test_a_listener_that_loses_its_guard_stays_on_loopback(option: str, tmp_path: Path) -> None:
    value = "true" if option in SWITCHES else "x"
    settings, conversion = convert(tmp_path, f"listener 1\n{option} {value}\nlistener 2\n")
    assert [each.host for each in settings.listeners] == ["127.0.0.1", "*"]
    assert said(conversion) == [(option, Kind.LOST)]
    assert not conversion.is_complete


@pytest.mark.parametrize("option", ["plugin", "auth_plugin", "clientid_prefixes", "from_the_future"])
def test_without_a_guard_of_all_nobody_outside_gets_in(option: str, tmp_path: Path) -> None:
    settings, conversion = convert(tmp_path, f"{option} x\nlistener 1\nlistener 2 10.0.0.1\n")
    assert [each.host for each in settings.listeners] == ["127.0.0.1"] * 2
    assert said(conversion) == [(option, Kind.LOST)]


def test_listeners_of_one_port_that_end_on_loopback_are_one(tmp_path: Path) -> None:
    settings, _ = convert(tmp_path, "plugin x\nlistener 1 10.0.0.1\nlistener 1 10.0.0.2\n")
    assert [each.address for each in settings.listeners] == ["mqtt://127.0.0.1:1"]


@pytest.mark.parametrize("option", sorted({*NOT_NEEDED, *LOST, *GUARDS, *BRIDGE}))
def test_every_line_without_counterpart_is_said(option: str, tmp_path: Path) -> None:
    _, conversion = convert(tmp_path, f"listener 1\n{option} 1\n")
    assert [remark.place for remark in conversion.remarks if remark.option == option] == [
        f"{tmp_path}/mosquitto.conf:2"
    ]


def test_every_option_of_the_manual_is_known(tmp_path: Path) -> None:
    """All that Debian's sample file shows, each with a value that it takes."""
    sample = Path("/usr/share/doc/mosquitto/examples/mosquitto.conf")
    if not sample.exists():
        pytest.skip("Mosquitto's sample configuration is not installed")
    values = {
        "protocol": "mqtt",
        "socket_domain": "ipv4",
        "log_type": "all",
        "persistent_client_expiration": "1d",
    }
    names = {
        line[1:].split()[0]
        for line in sample.read_text(encoding="utf-8").splitlines()
        if line.startswith("#") and line[1:2].isalpha() and line == line.strip()
    } - {"include_dir", "certfile", "keyfile", "require_certificate"}
    for name in sorted(names):
        _, conversion = convert(tmp_path, f"listener 2\n{name} {values.get(name, '1')}\n")
        assert not any("not known" in remark.text for remark in conversion.remarks), name


def test_included_files_are_read_in_their_order(tmp_path: Path) -> None:
    folder = tmp_path / "conf.d"
    folder.mkdir()
    for name, text in {"b": "sys_interval 2\n", "A": "sys_interval 1\n", "a": "listener 5\n"}.items():
        (folder / f"{name}.conf").write_text(text, encoding="utf-8")
    settings, _ = convert(tmp_path, "include_dir conf.d\n")
    assert (settings.features.sys_interval, settings.listeners[0].port) == (2, 5)


@pytest.mark.parametrize(
    "text, problem",
    [
        ("listener x\n", "'x' is no port"),
        ("listener 70000\n", "'70000' is no port"),
        ("port 99999\n", "'99999' is no port"),
        ("listener 1\nprotocol http\n", "'http' is no protocol"),
        ("listener 1\ncertfile /c\n", "certfile and keyfile belong together"),
        ("persistence maybe\n", "'maybe' is neither true nor false"),
        ("sys_interval soon\n", "'soon' is not a whole number"),
        ("max_inflight_messages -1\n", "-1 is less than 0"),
        ("persistent_client_expiration 3x\n", "'3x' is no duration"),
        ("log_type loud\n", "'loud' is no type of log line"),
        ("include_dir nowhere\n", "is not a folder"),
    ],
)
def test_what_mosquitto_would_refuse_is_refused(text: str, problem: str, tmp_path: Path) -> None:
    with pytest.raises(MigrationError) as caught:
        convert(tmp_path, text)
    assert problem in caught.value.problem
    assert caught.value.line > 0


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(MigrationError) as caught:
        convert_mosquitto(tmp_path / "mosquitto.conf")
    assert caught.value.problem == "no such file or directory"
