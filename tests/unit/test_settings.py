"""Settings: which sources win, what is refused and how, and that text and dataclasses agree."""

from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.broker.flow_settings import PriorityClass, SharedRule
from tidegate.broker.settings import Features, Limits, QueueFull
from tidegate.settings import (
    ListenerSettings,
    ListenerType,
    LogFormat,
    LogLevel,
    LogSettings,
    MetricsSettings,
    Settings,
    SettingsError,
    dump,
    given_keys,
    known_keys,
    load_settings,
    render_reference,
)

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture
def written(tmp_path: Path):
    def write(text: str) -> Path:
        path = tmp_path / "tidegate.toml"
        path.write_text(text, encoding="utf-8")
        return path

    return write


def test_no_source_at_all_gives_the_defaults() -> None:
    assert load_settings(None) == Settings()


def test_the_default_node_listens_on_loopback_only() -> None:
    (listener,) = Settings().listeners
    assert (listener.type, listener.host, listener.port) == (ListenerType.TCP, "127.0.0.1", 1883)
    assert listener.accepts_anonymous


def test_later_sources_win(written) -> None:
    path = written("[limits]\nmax_connections = 1\nmax_retained = 1\nmax_sessions = 1\nmax_inflight = 1\n")
    environ = {
        "TIDEGATE_LIMITS__MAX_RETAINED": "2",
        "TIDEGATE_LIMITS__MAX_SESSIONS": "2",
        "TIDEGATE_LIMITS__MAX_INFLIGHT": "2",
    }
    overrides = ["limits.max_sessions=3", "limits.max_inflight=3"]
    limits = load_settings(path, overrides, environ, {"limits.max_inflight": 4}).limits
    assert (limits.max_connections, limits.max_retained) == (1, 2)
    assert (limits.max_sessions, limits.max_inflight) == (3, 4)


def test_the_last_of_two_overrides_of_a_key_wins() -> None:
    assert load_settings(None, ["name=a", "name=b"]).name == "b"


def test_an_override_may_hold_an_equals_sign() -> None:
    assert load_settings(None, ["features.response_information=a=b"]).features.response_information == "a=b"


@pytest.mark.parametrize(
    "text, expected", [("on", True), ("Yes", True), ("1", True), ("FALSE", False), ("0", False)]
)
def test_booleans_can_be_written_in_several_ways_as_text(text: str, expected: bool) -> None:
    assert load_settings(None, [f"features.queue_qos0={text}"]).features.queue_qos0 is expected


def test_a_whole_number_will_do_where_a_number_is_wanted(written) -> None:
    timeout = load_settings(written("shutdown_timeout = 3\n")).shutdown_timeout
    assert timeout == 3.0
    assert isinstance(timeout, float)


def test_each_type_of_listener_has_its_port_and_path(written) -> None:
    tls = 'certfile = "c"\nkeyfile = "k"\n'
    path = written(
        '[[listeners]]\n[[listeners]]\ntype = "ws"\n'
        f'[[listeners]]\ntype = "tls"\n{tls}[[listeners]]\ntype = "wss"\npath = "/x"\n{tls}'
    )
    addresses = [listener.address for listener in load_settings(path).listeners]
    assert addresses == [
        "mqtt://127.0.0.1:1883",
        "ws://127.0.0.1:8083/mqtt",
        "mqtts://127.0.0.1:8883",
        "wss://127.0.0.1:8084/x",
    ]


def test_file_names_are_relative_to_the_configuration_file(written, tmp_path: Path) -> None:
    path = written(
        '[[listeners]]\ntype = "tls"\ncertfile = "server.pem"\nkeyfile = "/etc/key.pem"\n'
        '[[listeners]]\ntype = "unix"\npath = "socket"\n[[listeners]]\ntype = "ws"\npath = "/mqtt"\n'
    )
    tls, unix, websocket = load_settings(path).listeners
    assert tls.certfile == tmp_path / "server.pem"
    assert tls.keyfile == Path("/etc/key.pem")
    assert unix.path == str(tmp_path / "socket")
    assert websocket.path == "/mqtt"


def test_listeners_are_changed_and_added_by_number() -> None:
    environ = {"TIDEGATE_LISTENERS__0__PORT": "1999", "TIDEGATE_LISTENERS__1__TYPE": "ws"}
    first, second = load_settings(None, ["listeners.1.origins=https://a, https://b"], environ).listeners
    assert first.port == 1999
    assert (second.type, second.origins) == (ListenerType.WS, ("https://a", "https://b"))


@pytest.mark.parametrize(
    "text, expected",
    [
        ('["alarms/#=0.5", "logs/#=60"]', ("alarms/#=0.5", "logs/#=60")),
        ("alarms/#=0.5, logs/#=60", ("alarms/#=0.5", "logs/#=60")),
        ("[]", ()),
    ],
)
def test_a_list_is_written_as_in_a_file_or_with_commas(text: str, expected: tuple[str, ...]) -> None:
    assert load_settings(None, [f"cluster.budgets={text}"]).cluster.budgets == expected
    assert load_settings(None, (), {"TIDEGATE_CLUSTER__BUDGETS": text}).cluster.budgets == expected


def test_a_list_may_begin_with_an_ipv6_address() -> None:
    heads = load_settings(None, ["cluster.heads=[::1]:1884, [::2]:1884"]).cluster.heads
    assert heads == ("[::1]:1884", "[::2]:1884")


@pytest.mark.parametrize(
    "listener, expected",
    [
        (ListenerSettings(host="127.8.8.8"), True),
        (ListenerSettings(host="::1"), True),
        (ListenerSettings(host="localhost"), True),
        (ListenerSettings(host="0.0.0.0"), False),
        (ListenerSettings(host="broker.example"), False),
        (ListenerSettings(type=ListenerType.UNIX, path="/run/s"), True),
        (ListenerSettings(host="0.0.0.0", allow_anonymous=True), True),
        (ListenerSettings(allow_anonymous=False), False),
    ],
)
def test_anonymous_clients_are_let_in_on_loopback_only_unless_somebody_says_so(
    listener: ListenerSettings, expected: bool
) -> None:
    assert listener.accepts_anonymous is expected


def test_the_anonymous_default_can_be_written_as_auto() -> None:
    listener = load_settings(None, ["listeners.0.allow_anonymous=auto"]).listeners[0]
    assert listener.allow_anonymous is None


def test_variables_that_a_container_platform_adds_are_no_settings() -> None:
    environ = {
        "TIDEGATE_PORT": "tcp://10.0.0.1:1883",
        "TIDEGATE_SERVICE_HOST": "10.0.0.1",
        "TIDEGATE_PORT_1883_TCP_ADDR": "10.0.0.1",
        "TIDEGATE_CONFIG": "/etc/tidegate.toml",
        "PATH": "/bin",
        "TIDEGATE_NAME": "north",
    }
    assert load_settings(None, (), environ) == Settings(name="north")


@dataclass(frozen=True, kw_only=True)
class Refused:
    """Input that must be refused: the key and value that the error names, and words its hint must hold."""

    name: str
    key: str
    value: object
    hint: str
    file: str = ""
    overrides: list[str] = field(default_factory=list)
    environ: dict[str, str] = field(default_factory=dict)


REFUSED = [
    Refused(
        name="typo in a file",
        file="[limits]\nmax_conections = 5\n",
        key="limits.max_conections",
        value=5,
        hint="limits.max_connections",
    ),
    Refused(
        name="typo in a table",
        file="[limit]\nmax_connections = 5\n",
        key="limit.max_connections",
        value=5,
        hint="limits.max_connections",
    ),
    Refused(name="empty unknown table", file="[limit]\n", key="limit", value={}, hint=""),
    Refused(
        name="right key in no table",
        file="max_connections = 5\n",
        key="max_connections",
        value=5,
        hint="max_connections",
    ),
    Refused(
        name="typo in --set", overrides=["log.levle=info"], key="log.levle", value="info", hint="log.level"
    ),
    Refused(
        name="typo in environment",
        environ={"TIDEGATE_LOG__LEVL": "info"},
        key="log.levl",
        value="info",
        hint="log.level",
    ),
    Refused(
        name="typo in a listener",
        file="[[listeners]]\n[[listeners]]\nprot = 5\n",
        key="listeners.1.prot",
        value=5,
        hint="listeners.1.port",
    ),
    Refused(
        name="nothing like it",
        overrides=["zzz.qqq=1"],
        key="zzz.qqq",
        value="1",
        hint="docs/configuration.md",
    ),
    Refused(
        name="string for number",
        file='[limits]\nmax_connections = "5"\n',
        key="limits.max_connections",
        value="5",
        hint="whole number, at least 1",
    ),
    Refused(
        name="boolean for number",
        file="[limits]\nmax_connections = true\n",
        key="limits.max_connections",
        value=True,
        hint="whole number",
    ),
    Refused(
        name="fraction for whole number",
        file="[limits]\nmax_connections = 5.0\n",
        key="limits.max_connections",
        value=5.0,
        hint="whole number",
    ),
    Refused(
        name="number for boolean",
        file="[features]\nqueue_qos0 = 1\n",
        key="features.queue_qos0",
        value=1,
        hint="true or false",
    ),
    Refused(name="number for string", file="name = 5\n", key="name", value=5, hint="string"),
    Refused(name="table for value", file="[name]\nx = 1\n", key="name", value={"x": 1}, hint="string"),
    Refused(name="value for table", file="limits = 5\n", key="limits", value=5, hint="[limits]"),
    Refused(
        name="value for listeners", file="listeners = 5\n", key="listeners", value=5, hint="[[listeners]]"
    ),
    Refused(
        name="table for listeners",
        file="[listeners]\nport = 5\n",
        key="listeners",
        value={"port": 5},
        hint="[[listeners]]",
    ),
    Refused(name="no listeners", file="listeners = []\n", key="listeners", value=[], hint="127.0.0.1:1883"),
    Refused(
        name="too small",
        overrides=["limits.max_connections=0"],
        key="limits.max_connections",
        value="0",
        hint="at least 1",
    ),
    Refused(
        name="too large",
        overrides=["features.maximum_qos=3"],
        key="features.maximum_qos",
        value="3",
        hint="from 0 to 2",
    ),
    Refused(
        name="port out of range",
        file="[[listeners]]\nport = 65536\n",
        key="listeners.0.port",
        value=65536,
        hint="from 0 to 65535",
    ),
    Refused(
        name="port as the inner default",
        file="[[listeners]]\nport = -1\n",
        key="listeners.0.port",
        value=-1,
        hint="from 0 to 65535",
    ),
    Refused(
        name="not a number",
        overrides=["shutdown_timeout=soon"],
        key="shutdown_timeout",
        value="soon",
        hint="number",
    ),
    Refused(
        name="infinity",
        file="shutdown_timeout = inf\n",
        key="shutdown_timeout",
        value=float("inf"),
        hint="number",
    ),
    Refused(
        name="beyond floats",
        file=f"shutdown_timeout = 1{'0' * 400}\n",
        key="shutdown_timeout",
        value=10**400,
        hint="number",
    ),
    Refused(
        name="wrong choice",
        file='[features]\nqueue_full = "wait"\n',
        key="features.queue_full",
        value="wait",
        hint='"hold" or "refuse" or "drop"',
    ),
    Refused(
        name="policy that nobody wrote",
        overrides=["features.shared_policy=best"],
        key="features.shared_policy",
        value="best",
        hint='"round_robin"',
    ),
    Refused(
        name="ordering of a policy that has none",
        file='[[shared]]\npolicy = "round_robin"\nordering = "topic"\n',
        key="shared.0.ordering",
        value="topic",
        hint="earliest_finish",
    ),
    Refused(
        name="group that nobody can name",
        file='[[shared]]\n[[shared]]\ngroup = "a/b"\n',
        key="shared.1.group",
        value="a/b",
        hint="NAME alone",
    ),
    Refused(
        name="filter with its group",
        file='[[shared]]\ntopic_filter = "$share/g/a"\n',
        key="shared.0.topic_filter",
        value="$share/g/a",
        hint="NAME as group",
    ),
    Refused(
        name="filter that nobody can subscribe to",
        file='[[shared]]\ntopic_filter = "a/#/b"\n',
        key="shared.0.topic_filter",
        value="a/#/b",
        hint="plant/#",
    ),
    Refused(
        name="neither true nor false",
        overrides=["features.queue_qos0=maybe"],
        key="features.queue_qos0",
        value="maybe",
        hint="true or false",
    ),
    Refused(
        name="list of numbers",
        file='[[listeners]]\ntype = "ws"\norigins = [1]\n',
        key="listeners.0.origins",
        value=[1],
        hint="list of strings",
    ),
    Refused(name="NUL in a string", file='name = "a\\u0000"\n', key="name", value="a\0", hint="string"),
    Refused(name="--set without value", overrides=["name"], key="name", value="name", hint="--set"),
    Refused(name="--set of a table", overrides=["limits=5"], key="limits", value="5", hint="limits."),
    Refused(name="--set below a value", overrides=["name=a", "name.b=c"], key="name.b", value="c", hint=""),
    Refused(
        name="listener too far",
        overrides=["listeners.2.port=5"],
        key="listeners.2.port",
        value="5",
        hint="listeners.1 adds one",
    ),
    Refused(
        name="listener without number",
        overrides=["listeners.port=5"],
        key="listeners.port",
        value="5",
        hint="numbered from 0",
    ),
    Refused(
        name="tls without certificate",
        file='[[listeners]]\ntype = "tls"\n',
        key="listeners.0.certfile",
        value=None,
        hint="PEM",
    ),
    Refused(
        name="tls without key",
        overrides=["listeners.0.type=tls", "listeners.0.certfile=c"],
        key="listeners.0.keyfile",
        value=None,
        hint="PEM",
    ),
    Refused(
        name="certificate without tls",
        overrides=["listeners.0.certfile=c"],
        key="listeners.0.certfile",
        value="c",
        hint="tls",
    ),
    Refused(
        name="client certificates without tls",
        overrides=["listeners.0.require_client_certificate=true"],
        key="listeners.0.require_client_certificate",
        value=True,
        hint="tls",
    ),
    Refused(
        name="client certificates without authority",
        overrides=[
            "listeners.0.type=tls",
            "listeners.0.certfile=c",
            "listeners.0.keyfile=k",
            "listeners.0.require_client_certificate=true",
        ],
        key="listeners.0.require_client_certificate",
        value=True,
        hint="client_ca",
    ),
    Refused(
        name="unix without path",
        file='[[listeners]]\ntype = "unix"\n',
        key="listeners.0.path",
        value="",
        hint=".sock",
    ),
    Refused(
        name="websocket path without slash",
        file='[[listeners]]\ntype = "ws"\npath = "mqtt"\n',
        key="listeners.0.path",
        value="mqtt",
        hint="/mqtt",
    ),
    Refused(
        name="origins without websocket",
        overrides=["listeners.0.origins=https://a"],
        key="listeners.0.origins",
        value=("https://a",),
        hint="ws",
    ),
    Refused(
        name="empty host", overrides=["listeners.0.host="], key="listeners.0.host", value="", hint="127.0.0.1"
    ),
    Refused(
        name="same address twice",
        file="[[listeners]]\n[[listeners]]\n",
        key="listeners.1",
        value="mqtt://127.0.0.1:1883",
        hint="port",
    ),
    Refused(
        name="same port by two protocols",
        file='[[listeners]]\n[[listeners]]\ntype = "ws"\nport = 1883\n',
        key="listeners.1",
        value="ws://127.0.0.1:1883/mqtt",
        hint="port",
    ),
]


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case.name.replace(" ", "-"))
def test_a_wrong_setting_is_refused_by_name_with_what_would_be_right(case: Refused, written) -> None:
    with pytest.raises(SettingsError) as caught:
        load_settings(written(case.file) if case.file else None, case.overrides, case.environ)
    error = caught.value
    assert (error.key, error.value) == (case.key, case.value)
    assert case.hint in error.hint
    assert error.key in str(error)


def test_an_error_says_which_source_the_value_came_from(written) -> None:
    path = written("[limits]\nmax_connections = 0\n")
    with pytest.raises(SettingsError) as caught:
        load_settings(path)
    assert caught.value.origin == str(path)
    with pytest.raises(SettingsError) as caught:
        load_settings(path, (), {"TIDEGATE_LIMITS__MAX_CONNECTIONS": "-1"})
    assert caught.value.origin == "environment TIDEGATE_LIMITS__MAX_CONNECTIONS"


@pytest.mark.parametrize("content", [b"[limits", b"name = \xff", b"a = 1\na = 2\n"])
def test_a_file_that_is_not_toml_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "broken.toml"
    path.write_bytes(content)
    with pytest.raises(SettingsError) as caught:
        load_settings(path)
    assert caught.value.value == str(path)


def test_a_file_that_is_missing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError) as caught:
        load_settings(tmp_path / "nowhere.toml")
    assert caught.value.value == str(tmp_path / "nowhere.toml")


def test_two_listeners_may_both_ask_for_any_free_port(written) -> None:
    path = written("[[listeners]]\nport = 0\n[[listeners]]\nport = 0\n")
    assert len(load_settings(path).listeners) == 2


def test_given_keys_tell_decisions_from_defaults(written) -> None:
    keys = given_keys(written("[[listeners]]\nport = 1\n"), ["log.level=debug"], {"TIDEGATE_NAME": "x"})
    assert keys == {"listeners.0.port", "log.level", "name"}


def test_every_known_key_can_be_set_to_its_default_as_text() -> None:
    usual = Settings(classes=(PriorityClass(topic_filter="a/#"),), shared=(SharedRule(),))
    for key in known_keys():
        value: object = usual
        for part in key.split("."):
            value = value[int(part)] if isinstance(value, tuple) else getattr(value, part)
        text = (
            "auto"
            if value is None and key.endswith("anonymous")
            else ""
            if value in (None, ())
            else ",".join(value)
            if isinstance(value, tuple)
            else str(value)
        )
        assert load_settings(None, ["classes.0.topic_filter=a/#", "shared.0.group=", f"{key}={text}"]) == usual, key


def test_classes_of_priority_are_tables_of_their_own(written) -> None:
    text = """
    [[classes]]
    name = "alarms"
    topic_filter = "alarm/#"
    band = "urgent"

    [[classes]]
    user = "loader"
    band = "bulk"
    limit = 2000
    """
    alarms, loader = load_settings(written(text)).classes
    assert (alarms.name, alarms.topic_filter, alarms.band) == ("alarms", "alarm/#", "urgent")
    assert (loader.user, loader.band, loader.limit) == ("loader", "bulk", 2000.0)


@pytest.mark.parametrize(
    "given",
    ["classes.0.band=urgent", "classes.0.topic_filter=a/#/b", "classes.1.user=x", "classes.0.name=x"],
)
def test_a_class_that_means_nothing_is_refused(given: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load_settings(None, [given])
    assert caught.value.key.startswith("classes.")


def test_a_class_by_topic_has_no_limit() -> None:
    with pytest.raises(SettingsError) as caught:
        load_settings(None, ["classes.0.topic_filter=a", "classes.0.limit=5"])
    assert caught.value.key == "classes.0.limit"


names = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
numbers = st.floats(min_value=0.5, max_value=1e18)
paths = st.sampled_from([Path("/etc/tls/a b.pem"), Path('/x/"quoted".pem')])
plain_listeners = st.builds(
    ListenerSettings,
    type=st.sampled_from([ListenerType.TCP, ListenerType.WS]),
    port=st.just(0),
    allow_anonymous=st.none() | st.booleans(),
    max_connections=st.integers(0, 10**6),
)
tls_listeners = st.builds(
    ListenerSettings,
    type=st.just(ListenerType.TLS),
    port=st.just(0),
    certfile=paths,
    keyfile=paths,
    client_ca=st.none() | paths,
)
any_settings = st.builds(
    Settings,
    name=names,
    shutdown_timeout=numbers,
    listeners=st.lists(plain_listeners | tls_listeners, min_size=1, max_size=3).map(tuple),
    limits=st.builds(Limits, max_connections=st.integers(1, 10**9), connection_rate=numbers),
    features=st.builds(
        Features, queue_full=st.sampled_from(QueueFull), response_information=names, queue_qos0=st.booleans()
    ),
    metrics=st.builds(MetricsSettings, port=st.integers(0, 65_535)),
    log=st.builds(LogSettings, level=st.sampled_from(LogLevel), format=st.sampled_from(LogFormat)),
)


@given(settings=any_settings)
def test_dumped_settings_load_to_equal_settings(settings: Settings, tmp_path_factory) -> None:
    path = tmp_path_factory.getbasetemp() / "dumped.toml"
    path.write_text(dump(settings), encoding="utf-8", newline="")
    assert load_settings(path) == settings


def test_the_reference_page_is_up_to_date() -> None:
    page = REPOSITORY / "docs" / "configuration.md"
    assert page.read_text(encoding="utf-8") == render_reference(), "run: make docs"


def test_the_reference_page_names_every_key() -> None:
    page = render_reference()
    for key in known_keys():
        assert f"| `{key.rpartition('.')[2]}` |" in page
