"""Device types: what is declared is what is accepted."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tidegate.rpc.declared import load_types
from tidegate.rpc.errors import Refusal, SchemaError
from tidegate.rpc.labels import SHELF_LABEL, SILENT_LABEL
from tidegate.rpc.outcome import Reason
from tidegate.rpc.schema import DeviceType, Field, Kind, Method, Names, Topics, Types

LABEL = "0123456789ab"


def refusal(method: str, fields: dict[str, Any]) -> str:
    with pytest.raises(Refusal) as caught:
        SHELF_LABEL.encode(method, fields)
    return caught.value.reason


def test_the_shipped_label_has_the_codes_of_the_thesis() -> None:
    assert (SHELF_LABEL.code("image"), SHELF_LABEL.code("blink")) == (0, 1)
    assert SHELF_LABEL.encode("image", {"price": "1.99", "name": "tea"}) == {"price": "1.99", "name": "tea"}
    assert SHELF_LABEL.topics.action.format(gateway="000000000000") == "/gw/000000000000/action"


@pytest.mark.parametrize(
    ("method", "fields", "reason"),
    [
        ("explode", {}, Reason.UNKNOWN_METHOD),
        ("image", {"price": 1.99}, Reason.MALFORMED),
        ("image", {"price": "9" * 33}, Reason.OVERSIZED),
        ("blink", {"color": "mauve"}, Reason.MALFORMED),
        ("blink", {"seconds": 0}, Reason.MALFORMED),
        ("blink", {"seconds": True}, Reason.MALFORMED),
        ("blink", {"loud": "yes"}, Reason.MALFORMED),
        ("image", {f"field{n}": "x" * 1000 for n in range(70)}, Reason.OVERSIZED),
    ],
)
def test_what_was_not_declared_is_refused_by_name(
    method: str, fields: dict[str, Any], reason: Reason
) -> None:
    assert refusal(method, fields) == reason


def test_a_device_belongs_to_the_first_type_that_fits() -> None:
    pump = DeviceType(name="pump", pattern="pump-[0-9]+", methods=(Method(name="stop", code="S"),))
    types = Types((pump, SHELF_LABEL, SILENT_LABEL))
    assert types.of("pump-7") is pump
    assert types.of(LABEL) is SHELF_LABEL
    with pytest.raises(Refusal) as caught:
        types.of("nobody")
    assert caught.value.reason == Reason.UNKNOWN_DEVICE
    with pytest.raises(Refusal):
        types.named("nobody")


def test_types_that_share_topics_speak_the_same_words() -> None:
    with pytest.raises(SchemaError) as caught:
        Types((SHELF_LABEL, replace(SILENT_LABEL, names=Names(device="mac"))))
    assert "shelf-label, silent-label" in str(caught.value)
    apart = replace(
        SILENT_LABEL, names=Names(device="mac"), topics=Topics(response="/old/{gateway}/response")
    )
    types = Types((SHELF_LABEL, SILENT_LABEL, replace(apart, name="old")))
    assert [len(kinds) for kinds in types.by_topic("response").values()] == [2, 1]
    assert [len(kinds) for kinds in types.by_topic("beacon").values()] == [3]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_a_number_is_finite(value: float) -> None:
    with pytest.raises(Refusal) as caught:
        Field(name="x", kind=Kind.NUMBER, minimum=0.0, maximum=1.0).encode(value)
    assert caught.value.reason == Reason.MALFORMED
    with pytest.raises(Refusal):
        Field(name="x", kind=Kind.NUMBER).encode(value)


def test_bytes_travel_as_base64_and_required_fields_are_required() -> None:
    method = Method(
        name="m", code=1, fields=(Field(name="b", kind=Kind.BYTES, is_required=True, max_size=3),)
    )
    assert method.encode({"b": b"\x00\xff"}) == {"b": "AP8="}
    for wrong, reason in (({}, Reason.MALFORMED), ({"b": b"1234"}, Reason.OVERSIZED)):
        with pytest.raises(Refusal) as caught:
            method.encode(wrong)
        assert caught.value.reason == reason


@pytest.mark.parametrize("topic", ["gw/action", "gw/{gateway}/{gateway}", "gw/x{gateway}/a", "+/{gateway}/a"])
def test_a_topic_needs_one_level_for_the_gateway(topic: str) -> None:
    with pytest.raises(SchemaError):
        Topics(action=topic)


def test_the_gateway_of_a_topic_is_found_again() -> None:
    topics = Topics(action="shop/{gateway}/do")
    assert topics.gateway(topics.action, "shop/gw7/do") == "gw7"


DECLARED = """
[[device]]
name = "pump"
pattern = "pump-[0-9]+"
echo = false
bundle = 1
topics = { action = "plant/{gateway}/do" }
names = { device = "pump", key = "" }
[[device.method]]
name = "speed"
code = "S"
[[device.method.field]]
name = "rpm"
kind = "integer"
required = true
maximum = 3000
"""


def test_types_are_read_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "devices.toml"
    file.write_text(DECLARED)
    pump = load_types(file).of("pump-1")
    assert (pump.can_echo, pump.topics.action, pump.names.device, pump.names.key) == (
        False,
        "plant/{gateway}/do",
        "pump",
        "",
    )
    assert pump.encode("speed", {"rpm": 1500}) == {"rpm": 1500}


@pytest.mark.parametrize(
    ("old", "new", "hint"),
    [
        ("bundle", "bundel", "did you mean bundle?"),
        ('"integer"', '"float"', "use one of text, integer, number, boolean, bytes"),
        ("bundle = 1", 'bundle = "1"', "it is of type int"),
        ('name = "pump"', "", ""),
        ('pattern = "pump-[0-9]+"', 'pattern = "["', ""),
        ("[[device]]", "[[devices]]", "a declaration has [[device]] only"),
        ("plant/{gateway}/do", "plant/do", "it needs one level {gateway} and no wildcard"),
        ("bundle = 1", "bundle = 1 2", ""),
    ],
)
def test_a_wrong_declaration_says_where(tmp_path: Path, old: str, new: str, hint: str) -> None:
    file = tmp_path / "devices.toml"
    file.write_text(DECLARED.replace(old, new))
    with pytest.raises(SchemaError) as caught:
        load_types(file)
    assert hint in caught.value.hint


def test_a_file_that_is_not_there_says_so(tmp_path: Path) -> None:
    with pytest.raises(SchemaError):
        load_types(tmp_path / "none.toml")
