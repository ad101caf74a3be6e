"""Who may do what: the table, and the edges of patterns and subscriptions."""

from typing import Any

import pytest

from tidegate.accounts.errors import AccountsError
from tidegate.accounts.rights import Rights, TopicRights
from tidegate.accounts.rights_file import parse_rights

FILE = """
# clients without a name
topic read public/#

user ada
topic readwrite plant/1/#
topic deny plant/1/keys/#
topic write commands/+/set
topic read $SYS/broker/uptime

user bob
topic read plant/+/temperature
topic deny-write home/bob/log
topic deny-read home/bob/inbox

user root
topic #
topic $SYS/#
topic deny secret/#

group operators
member ada carl
member bob
topic read shared/#
topic deny shared/private

pattern readwrite home/%u/#
pattern read client/%c/in
pattern write client/%c/out
pattern deny vault/%u/%c
"""


def rights(text: str = FILE, *, is_strict: bool = False, sys_readable: bool = False) -> Rights:
    return Rights(parse_rights(text), is_strict=is_strict, sys_readable=sys_readable)


def of(user: str | None, client_id: str = "c1", **options: Any) -> TopicRights:
    return rights(**options).of(user, client_id)


@pytest.mark.parametrize(
    ("user", "topic", "may"),
    [
        # user, topic, r: may read, w: may write
        ("ada", "plant/1", "rw"),
        ("ada", "plant/1/x/y", "rw"),
        ("ada", "plant/10", ""),
        ("ada", "plant/2/x", ""),
        ("ada", "plant/1/keys", ""),
        ("ada", "plant/1/keys/a", ""),
        ("ada", "plant/1/keysmith", "rw"),
        ("ada", "commands/7/set", "w"),
        ("ada", "commands/7/8/set", ""),
        ("ada", "home/ada/x", "rw"),
        ("ada", "home/bob/x", ""),
        ("ada", "shared/x", "r"),
        ("ada", "shared/private", ""),
        ("ada", "public/x", ""),  # what stands before the first user is for clients without a name
        ("ada", "$SYS/broker/uptime", "r"),
        ("ada", "$SYS/broker/version", ""),
        ("ada", "client/c1/in", "r"),
        ("ada", "client/c1/out", "w"),
        ("ada", "client/c2/in", ""),
        ("bob", "plant/1/temperature", "r"),
        ("bob", "plant/1/keys/temperature", ""),
        ("bob", "home/bob/log", "r"),
        ("bob", "home/bob/inbox", "w"),
        ("carl", "shared/x", "r"),
        ("carl", "home/carl", "rw"),
        ("carl", "plant/1", ""),
        ("nobody", "home/nobody/x", "rw"),
        ("nobody", "shared/x", ""),
        ("nobody", "public/x", ""),
        ("root", "anything/at/all", "rw"),
        ("root", "/", "rw"),
        ("root", "secret", ""),
        ("root", "secret/x", ""),
        ("root", "$SYS/x", "rw"),
        ("root", "$other/x", ""),  # [MQTT5-4.7.2-1]: # does not reach it
        ("root", "vault/root/c1", ""),
        ("root", "vault/root/c2", "rw"),
        (None, "public/x", "r"),
        (None, "home//x", ""),
        (None, "home/None/x", ""),
        (None, "client/c1/in", "r"),
    ],
)
def test_the_table_of_who_may_do_what(user: str | None, topic: str, may: str) -> None:
    granted = of(user)
    assert ("r" if granted.may_read(topic) else "") + ("w" if granted.may_write(topic) else "") == may


@pytest.mark.parametrize(
    ("user", "topic_filter", "is_granted", "is_granted_strictly"),
    [
        ("ada", "plant/1/x", True, True),
        ("ada", "plant/1/#", True, False),  # overlaps what is denied
        ("ada", "plant/1/x/#", True, True),
        ("ada", "plant/+/x", True, False),
        ("ada", "plant/2/#", False, False),
        ("ada", "plant/1/keys/#", False, False),
        ("ada", "plant/1/keys/+", False, False),
        ("ada", "plant/1/+/a", True, False),
        ("ada", "plant/+/keys/a", False, False),  # all it could see is denied
        ("ada", "#", True, False),
        ("ada", "+/+", True, False),
        ("ada", "$SYS/#", True, False),
        ("ada", "$SYS/broker/uptime", True, True),
        ("ada", "$SYS/broker/version", False, False),
        ("ada", "commands/7/set", False, False),  # may write only
        ("ada", "commands/#", False, False),
        ("ada", "$share/g/plant/1/x", True, True),
        ("ada", "$share/g/plant/2/#", False, False),
        ("ada", "$share/g/plant/1/keys/x", False, False),
        ("ada", "$share/plant", False, False),
        ("bob", "plant/+/temperature", True, True),
        ("bob", "plant/#", True, False),
        ("bob", "home/bob/inbox", False, False),
        ("bob", "home/bob/log", True, True),
        ("nobody", "plant/#", False, False),
        ("nobody", "#", True, False),  # its home and its client topics
        ("root", "#", True, False),
        ("root", "secret/+", False, False),
        ("root", "a/#", True, True),
        (None, "public/#", True, True),
        (None, "+/#", True, False),
        (None, "plant/#", False, False),
    ],
)
def test_the_table_of_subscriptions(
    user: str | None, topic_filter: str, is_granted: bool, is_granted_strictly: bool
) -> None:
    assert of(user).may_subscribe(topic_filter) == is_granted
    assert of(user, is_strict=True).may_subscribe(topic_filter) == is_granted_strictly


def test_everyone_may_read_sys_if_the_administrator_says_so() -> None:
    granted = of(None, sys_readable=True)
    assert granted.may_read("$SYS/broker/x") and granted.may_subscribe("$SYS/#")
    assert not granted.may_write("$SYS/broker/x")
    assert not of(None).may_read("$SYS/broker/x") and not of(None).may_subscribe("$SYS/#")


@pytest.mark.parametrize("name", ["+", "#", "a/b", "bob/#", "../bob", "", "a\0b", "a\x1fb"])
def test_a_name_that_is_no_single_level_gets_nothing_from_a_pattern(name: str) -> None:
    granted = of(name, name)
    for topic in ("home/bob/x", "home/a/b", f"home/{name}/x", "client/c2/in", "client/in"):
        assert not granted.may_read(topic) and not granted.may_write(topic)
    assert not granted.may_subscribe("home/#") and not granted.may_subscribe("client/#")


@pytest.mark.parametrize("name", ["$SYS", "$share", "$"])
def test_a_name_cannot_turn_a_pattern_into_a_system_topic(name: str) -> None:
    granted = rights("pattern read %u/#\npattern read %c/x").of(name, name)
    assert not granted.may_read(f"{name}/x") and not granted.may_subscribe(f"{name}/#")


def test_a_name_that_holds_a_placeholder_is_taken_literally() -> None:
    granted = rights("pattern read home/%u/x").of("%c", "bob")
    assert granted.may_read("home/%c/x") and not granted.may_read("home/bob/x")


def test_a_pattern_that_denies_is_widened_for_a_name_it_cannot_hold() -> None:
    granted = rights("pattern read #\npattern deny private/%u-%c/x").of("a/b", "c1")
    assert not granted.may_read("private/a/b-c1/x") and not granted.may_read("private/anything")
    assert granted.may_read("public")
    assert not rights("pattern read #\npattern deny %c/x").of(None, "a+").may_read("public")


def test_a_pattern_without_placeholders_is_for_everyone() -> None:
    table = rights("pattern read news/#")
    assert table.of(None, "c").may_read("news/x") and table.of("ada", "c").may_read("news/x")


def test_an_empty_file_denies_everything() -> None:
    granted = rights("# nothing\n").of("ada", "c1")
    assert not (granted.may_read("a") or granted.may_write("a") or granted.may_subscribe("#"))


def test_order_does_not_matter_and_sections_may_be_continued() -> None:
    granted = rights("user ada\ntopic deny a/b\nuser bob\nuser ada\ntopic a/#").of("ada", "")
    assert granted.may_write("a/c") and not granted.may_write("a/b")


def test_filters_may_hold_spaces_and_words_of_the_format() -> None:
    granted = rights("user ada lovelace\ntopic read my topic/x\ntopic  write   reading\ntopic readings").of(
        "ada lovelace", ""
    )
    assert granted.may_read("my topic/x") and granted.may_write("reading") and granted.may_read("readings")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("user", 1),
        ("usr ada", 1),
        ("topic", 1),
        ("topic read", 1),
        ("\ntopic read a/#/b", 2),
        ("topic read a+", 1),
        ("topic read home/%u", 1),
        ("member ada", 1),
        ("user x\nmember ada", 2),
        ("topic read $share/g/a", 1),
        ("user a\x07", 1),
    ],
)
def test_a_line_that_makes_no_sense_is_named(text: str, line: int) -> None:
    with pytest.raises(AccountsError) as caught:
        parse_rights(text, "rights")
    assert (caught.value.file, caught.value.line) == ("rights", line)


def test_other_rules_hold_from_the_moment_they_are_swapped_in() -> None:
    table = rights("user ada\ntopic a")
    assert table.of("ada", "").may_read("a")
    table.replace(parse_rights("user ada\ntopic b"), is_strict=False, sys_readable=False)
    assert not table.of("ada", "").may_read("a") and table.of("ada", "").may_read("b")


def test_members_of_several_groups_have_the_rights_of_all() -> None:
    text = "group a\nmember x y\ntopic a\ngroup b\nmember x\ntopic b\ntopic deny a\n"
    assert rights(text).of("x", "").may_read("b") and not rights(text).of("x", "").may_read("a")
    assert rights(text).of("y", "").may_read("a") and not rights(text).of("y", "").may_read("b")
