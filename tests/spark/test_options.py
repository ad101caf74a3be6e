"""Options are read, checked, and refused with a hint."""

import pickle
from pathlib import Path

import pytest

from tidegate.spark.errors import OptionError, SpoolError
from tidegate.spark.options import read_options

SOURCE = {"url": "mqtt://localhost", "topics": "a/#"}


def test_options_have_the_types_they_mean() -> None:
    given = {
        **SOURCE,
        "TOPICS": "a/#, b/+ ,a/#",
        "qos": "2",
        "maxspoolbytes": "64m",
        "segmentSeconds": "0.5",
        "mqttVersion": "3.1.1",
        "payload": "JSON",
        "insecure": "true",
    }
    del given["topics"]
    options = read_options(given, "source")
    assert options.topics == ("a/#", "b/+")
    assert (options.qos, options.max_spool_bytes, options.segment_seconds) == (2, 64 << 20, 0.5)
    assert (options.mqtt_version, options.payload, options.insecure) == (4, "json", True)


def test_a_filter_with_a_comma_comes_as_json() -> None:
    assert read_options({**SOURCE, "topics": '["a,b/#", "c"]'}, "source").topics == ("a,b/#", "c")


def test_a_group_makes_shared_filters() -> None:
    assert read_options({**SOURCE, "group": "crew"}, "source").filters == ("$share/crew/a/#",)


def test_a_password_is_not_shown() -> None:
    options = read_options({**SOURCE, "username": "anna", "password": "secret"}, "source")
    assert "secret" not in repr(options)
    assert options.client_options().password == "secret"


@pytest.mark.parametrize(
    ("change", "message", "hint"),
    [
        ({"topcis": "x"}, "option topcis is not known", "did you mean topics?"),
        ({"qos": "3"}, "option qos is '3'", "use a number from 0 to 2"),
        ({"qos": "one"}, "option qos is 'one'", "use a number from 0 to 2"),
        ({"payload": "xml"}, "option payload is 'xml'", "use one of raw, json, arrow"),
        ({"insecure": "yes"}, "option insecure is 'yes'", "use true or false"),
        (
            {"maxSpoolBytes": "lots"},
            "option maxSpoolBytes is 'lots'",
            "use a number of bytes, or one with k, m or g",
        ),
        ({"topic": "x"}, "option topic is for the sink only", "leave it out"),
        ({"group": "a/b"}, "option group is 'a/b'", "a name without / + and #"),
        ({"topics": "[1]"}, "option topics is '[1]'", 'use "a/#,b/+" or a JSON list of texts'),
        ({"topics": "$share/g/a"}, "option topics is '$share/g/a'", 'give the group as option "group"'),
        (
            {"password": "a", "passwordFile": "b"},
            "both password and passwordFile are given",
            "give one of them",
        ),
    ],
)
def test_a_wrong_option_is_refused_with_a_hint(change: dict[str, str], message: str, hint: str) -> None:
    with pytest.raises(OptionError) as caught:
        read_options({**SOURCE, **change}, "source")
    assert caught.value.message == message
    assert hint in caught.value.hint


@pytest.mark.parametrize("missing", ["url", "topics"])
def test_what_is_needed_is_asked_for(missing: str) -> None:
    given = {name: value for name, value in SOURCE.items() if name != missing}
    with pytest.raises(OptionError) as caught:
        read_options(given, "source")
    assert caught.value.message == f"option {missing} is missing"


def test_a_wrong_address_says_what_is_right() -> None:
    with pytest.raises(OptionError) as caught:
        read_options({**SOURCE, "url": "http://x"}, "source")
    assert "mqtt://host:port" in caught.value.hint


def test_a_client_identifier_is_for_the_source_only() -> None:
    assert read_options({**SOURCE, "clientId": "me"}, "source").client_options().client_id == "me"
    with pytest.raises(OptionError) as caught:
        read_options({"url": "mqtt://localhost", "clientId": "me"}, "sink")
    assert caught.value.message == "option clientId is for the source only"


def test_a_password_file_that_is_no_text_is_named(tmp_path: Path) -> None:
    path = tmp_path / "password"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(OptionError, match="password is not text"):
        read_options({**SOURCE, "passwordFile": str(path)}, "source").client_options()


def test_options_and_errors_can_be_pickled() -> None:
    options = read_options(SOURCE, "source")
    assert pickle.loads(pickle.dumps(options)) == options
    error = pickle.loads(pickle.dumps(SpoolError("it is gone", hint="look again")))
    assert (type(error), error.message, error.hint) == (SpoolError, "it is gone", "look again")
