"""The PROXY header without sockets: vectors, any cut of the bytes, and what must be refused."""

import asyncio
import socket
import struct
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.integration.net.peers import Echo, Recorder
from tidegate.net.memory import memory_pair
from tidegate.net.proxy import ProxyGate, ProxyOptions
from tidegate.net.proxy_header import (
    MAX_V1_BYTES,
    MAX_V2_BYTES,
    SIGNATURE,
    TLV,
    HeaderReader,
    ProxyHeader,
    ProxyHeaderError,
)
from tidegate.settings.errors import SettingsError
from tidegate.settings.load import load_settings


def v2(family: int, block: bytes, command: int = 0x21) -> bytes:
    return SIGNATURE + bytes((command, family)) + len(block).to_bytes(2) + block


def tlv(kind: int, value: bytes) -> bytes:
    return bytes((kind,)) + len(value).to_bytes(2) + value


def ssl_tlv(client: int, verify: int, *subs: bytes) -> bytes:
    return tlv(TLV.SSL, struct.pack("!BI", client, verify) + b"".join(subs))


IP4 = bytes.fromhex("c0a80001 0a000009 dc04 075b")  # 192.168.0.1:56324 to 10.0.0.9:1883
IP6 = socket.inet_pton(socket.AF_INET6, "2001:db8::7") + bytes(15) + b"\x01" + bytes.fromhex("dc04 075b")
UNIX = b"/run/client".ljust(108, b"\0") + b"/run/server".ljust(108, b"\0")
SOURCE4, DESTINATION4 = ("192.168.0.1", 56324), ("10.0.0.9", 1883)
SOURCE6, DESTINATION6 = ("2001:db8::7", 56324, 0, 0), ("::1", 1883, 0, 0)
NAME = tlv(TLV.SSL_CN, "Zoë".encode())

VECTORS = {
    "v2 TCP over IPv4": (
        v2(0x11, IP4),
        ProxyHeader(version=2, source=SOURCE4, destination=DESTINATION4),
    ),
    "v2 UDP over IPv4": (
        v2(0x12, IP4),
        ProxyHeader(version=2, source=SOURCE4, destination=DESTINATION4),
    ),
    "v2 TCP over IPv6": (
        v2(0x21, IP6),
        ProxyHeader(version=2, source=SOURCE6, destination=DESTINATION6),
    ),
    "v2 Unix": (
        v2(0x31, UNIX),
        ProxyHeader(version=2, source="/run/client", destination="/run/server"),
    ),
    "v2 Unix without a name": (
        v2(0x31, bytes(216)),
        ProxyHeader(version=2, source="", destination=""),
    ),
    "v2 LOCAL": (v2(0x00, b"", 0x20), ProxyHeader(version=2, is_local=True)),
    "v2 LOCAL with addresses": (v2(0x11, IP4, 0x20), ProxyHeader(version=2, is_local=True)),
    "v2 LOCAL with nonsense": (v2(0xFF, b"\xff" * 30, 0x20), ProxyHeader(version=2, is_local=True)),
    "v2 unspecified": (v2(0x00, b"\xff" * 7), ProxyHeader(version=2)),
    "v2 with TLVs": (
        v2(0x11, IP4 + tlv(TLV.ALPN, b"mqtt") + tlv(TLV.NOOP, b"") + tlv(0xEA, b"\x01vpce")),
        ProxyHeader(
            version=2,
            source=SOURCE4,
            destination=DESTINATION4,
            tlvs=((TLV.ALPN, b"mqtt"), (TLV.NOOP, b""), (0xEA, b"\x01vpce")),
        ),
    ),
    "v2 of the greatest length": (
        v2(0x11, IP4 + tlv(TLV.NOOP, bytes(MAX_V2_BYTES - 16 - 12 - 3))),
        ProxyHeader(
            version=2,
            source=SOURCE4,
            destination=DESTINATION4,
            tlvs=((TLV.NOOP, bytes(MAX_V2_BYTES - 31)),),
        ),
    ),
    "v1 TCP4": (
        b"PROXY TCP4 192.168.0.1 10.0.0.9 56324 1883\r\n",
        ProxyHeader(version=1, source=SOURCE4, destination=DESTINATION4),
    ),
    "v1 TCP6": (
        b"PROXY TCP6 2001:0db8:0::7 ::1 56324 1883\r\n",
        ProxyHeader(version=1, source=SOURCE6, destination=DESTINATION6),
    ),
    "v1 UNKNOWN": (b"PROXY UNKNOWN\r\n", ProxyHeader(version=1)),
    "v1 of the greatest length": (
        b"PROXY UNKNOWN " + b"f" * (MAX_V1_BYTES - 16) + b"\r\n",
        ProxyHeader(version=1),
    ),
}


def read(pieces: list[bytes]) -> tuple[ProxyHeader | None, bytes]:
    """The header and what is behind it; once there, further pieces go to whoever is next."""
    reader = HeaderReader()
    for at, piece in enumerate(pieces):
        header = reader.feed(piece)
        if header is not None:
            return header, reader.rest + b"".join(pieces[at + 1 :])
    return None, b""


@pytest.mark.parametrize("name", VECTORS)
def test_header_is_read_and_what_follows_is_left(name: str):
    data, expected = VECTORS[name]
    assert read([data]) == (expected, b"")
    assert read([data + b"\x10\x00\r\n"]) == (expected, b"\x10\x00\r\n")


@pytest.mark.parametrize("name", VECTORS)
def test_header_cut_at_any_byte_is_waited_for(name: str):
    data, expected = VECTORS[name]
    for at in range(len(data)):
        reader = HeaderReader()
        assert reader.feed(data[:at]) is None
        assert 1 <= reader.wants <= len(data) - at
        assert reader.feed(data[at:]) == expected


@pytest.mark.parametrize("name", VECTORS)
@pytest.mark.parametrize("most", [1, 7, 65536])
def test_reader_that_takes_only_what_is_wanted_stops_right_behind_the_header(name: str, most: int):
    data, expected = VECTORS[name]
    stream, at, reader = data + b"\r\n\x16\x03\x01", 0, HeaderReader()
    header = None
    while header is None:
        count = min(most, reader.wants)
        header = reader.feed(stream[at : at + count])
        at += count
    assert (header, at, reader.rest) == (expected, len(data), b"")


@given(
    name=st.sampled_from(sorted(VECTORS)),
    rest=st.binary(max_size=60),
    cuts=st.lists(st.integers(0, 5000), max_size=12),
)
@example(name="v1 TCP4", rest=b"", cuts=[43])  # between CR and LF
def test_any_cut_of_the_bytes_gives_the_same_header(name: str, rest: bytes, cuts: list[int]):
    data, expected = VECTORS[name]
    stream = data + rest
    edges = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    pieces = [stream[begin:end] for begin, end in pairwise(edges)]
    assert read(pieces) == (expected, rest)


@given(
    prefix=st.sampled_from(
        [b"", SIGNATURE, SIGNATURE + b"\x21\x11\x00", SIGNATURE + b"\x21\x11\x00\x20" + IP4, b"PROXY "]
    ),
    noise=st.binary(max_size=300),
)
def test_any_bytes_give_a_header_an_error_or_a_wish_for_more(prefix: bytes, noise: bytes):
    reader = HeaderReader()
    try:
        header = reader.feed(prefix + noise)
    except ProxyHeaderError:
        return
    if header is None:
        assert reader.wants >= 1
        assert len(prefix + noise) < MAX_V2_BYTES


REFUSED = {
    "MQTT": b"\x10",
    "TLS": b"\x16\x03\x01",
    "HTTP": b"GET ",
    "a signature that goes wrong at its end": SIGNATURE[:-1] + b"\r",
    "a word that only begins like the text form": b"PROXYS",
    "lower case": b"proxy TCP4",
    "v2 of another version": SIGNATURE + b"\x31",
    "v2 with an unknown command": v2(0x11, IP4, 0x22),
    "v2 with an unknown family": v2(0x41, IP4),
    "v2 with an unknown protocol": v2(0x13, IP4),
    "v2 longer than accepted": SIGNATURE + b"\x21\x11" + (MAX_V2_BYTES - 15).to_bytes(2),
    "v2 LOCAL longer than accepted": SIGNATURE + b"\x20\x00\xff\xff",
    "v2 without room for IPv4": v2(0x11, IP4[:-1]),
    "v2 without room for IPv6": v2(0x21, IP6[:-1]),
    "v2 without room for Unix": v2(0x31, UNIX[:-1]),
    "v2 empty": v2(0x11, b""),
    "a TLV without its length": v2(0x11, IP4 + b"\x04\x00"),
    "a TLV longer than the header": v2(0x11, IP4 + b"\x04\x00\x01"),
    "a TLV of the greatest length": v2(0x11, IP4 + b"\x04\xff\xff"),
    "an SSL TLV cut off": v2(0x11, IP4 + tlv(TLV.SSL, b"\x07\x00\x00\x00")),
    "a TLV inside SSL that is longer than SSL": v2(0x11, IP4 + ssl_tlv(7, 0, b"\x22\x00\x09x")),
    "a certificate name that is not UTF-8": v2(0x11, IP4 + ssl_tlv(7, 0, tlv(TLV.SSL_CN, b"\xff"))),
    "v1 without an end": b"PROXY UNKNOWN".ljust(MAX_V1_BYTES),
    "v1 with its end one byte too late": b"PROXY UNKNOWN ".ljust(MAX_V1_BYTES - 1) + b"\r\n",
    "v1 with nothing": b"PROXY \r\n",
    "v1 UDP": b"PROXY UDP4 1.2.3.4 1.2.3.5 1 2\r\n",
    "v1 without ports": b"PROXY TCP4 1.2.3.4 1.2.3.5\r\n",
    "v1 with too much": b"PROXY TCP4 1.2.3.4 1.2.3.5 1 2 3\r\n",
    "v1 with two spaces": b"PROXY TCP4  1.2.3.4 1.2.3.5 1 2\r\n",
    "v1 TCP4 with an IPv6 address": b"PROXY TCP4 ::1 ::1 1 2\r\n",
    "v1 TCP6 with an IPv4 address": b"PROXY TCP6 1.2.3.4 1.2.3.5 1 2\r\n",
    "v1 with a zone": b"PROXY TCP6 fe80::1%eth0 ::1 1 2\r\n",
    "v1 with an octet too great": b"PROXY TCP4 1.2.3.256 1.2.3.5 1 2\r\n",
    "v1 with leading zeros": b"PROXY TCP4 1.2.3.04 1.2.3.5 1 2\r\n",
    "v1 with a port too great": b"PROXY TCP4 1.2.3.4 1.2.3.5 65536 2\r\n",
    "v1 with a port with zeros": b"PROXY TCP4 1.2.3.4 1.2.3.5 01 2\r\n",
    "v1 with a sign": b"PROXY TCP4 1.2.3.4 1.2.3.5 +1 2\r\n",
    "v1 with an empty port": b"PROXY TCP4 1.2.3.4 1.2.3.5  2\r\n",
    "v1 with digits of another script": "PROXY TCP4 1.2.3.4 1.2.3.5 ١ 2\r\n".encode(),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_acceptable_header_is_refused_whole_and_byte_by_byte(name: str):
    with pytest.raises(ProxyHeaderError):
        read([REFUSED[name]])
    with pytest.raises(ProxyHeaderError):
        read([bytes((byte,)) for byte in REFUSED[name]])


@pytest.mark.parametrize(
    ("block", "name"),
    [
        (ssl_tlv(0x07, 0, tlv(TLV.SSL_VERSION, b"TLSv1.3"), NAME), "Zoë"),
        (ssl_tlv(0x03, 0, NAME), "Zoë"),
        (ssl_tlv(0x05, 0, NAME), "Zoë"),  # shown earlier in the resumed session
        (ssl_tlv(0x01, 0, NAME), None),  # no certificate
        (ssl_tlv(0x02, 0, NAME), None),  # no TLS
        (ssl_tlv(0x07, 1, NAME), None),  # not verified
        (ssl_tlv(0x07, 0xFF000000, NAME), None),
        (ssl_tlv(0x07, 0), None),
        (ssl_tlv(0x07, 0, tlv(TLV.SSL_CN, b"")), None),
        (ssl_tlv(0x07, 0, NAME, tlv(TLV.SSL_CN, b"admin")), None),
        (ssl_tlv(0x01, 1) + ssl_tlv(0x07, 0, NAME), None),  # the first one counts
        (NAME, None),  # outside SSL
    ],
)
def test_certificate_name_needs_a_certificate_that_was_verified(block: bytes, name: str | None):
    header, _ = read([v2(0x11, IP4 + block)])
    assert header is not None
    assert header.certificate_name == name


@pytest.mark.parametrize("chunk_bytes", [1, 5, 100_000])
def test_inner_protocol_gets_the_stream_behind_the_header_and_nothing_stays_between(chunk_bytes: int):
    async def main() -> None:
        inner, client = Echo(), Recorder()
        gate = ProxyGate(lambda: inner, ProxyOptions())
        async with asyncio.timeout(10):
            transport, other = memory_pair(gate(), client, chunk_bytes=chunk_bytes)
            other.write(v2(0x11, IP4) + b"hello")
            await client.wait_received(5)
            assert transport.get_protocol() is inner
            assert inner.link.get_extra_info("peername") == SOURCE4
            assert inner.link.get_extra_info("proxy_peername") == "memory:b"
            assert inner.link.get_extra_info("sockname") == "memory:a"
            assert inner.link.get_extra_info("absent", 7) == 7
            assert inner.link.write == transport.write
            other.close()
            await inner.wait_lost()
        assert (gate.introduced, gate.refused, len(gate.waiting)) == (1, 0, 0)
        assert bytes(inner.received) == b"hello"

    asyncio.run(main())


def test_trusted_text_that_is_no_network_is_an_error_when_the_listener_opens():
    with pytest.raises(ValueError):
        ProxyGate(Echo, ProxyOptions(trusted=("10.0.0.1/8",)))


def one_listener(**fields: object):
    return load_settings(None, options={f"listeners.0.{name}": value for name, value in fields.items()})


def test_settings_take_a_proxy_for_every_type_of_listener():
    for fields in (
        {"type": "tcp"},
        {"type": "ws"},
        {"type": "unix", "path": "/run/x"},
        {"type": "tls", "certfile": "c", "keyfile": "k"},
        {"type": "wss", "certfile": "c", "keyfile": "k"},
    ):
        assert one_listener(proxy_protocol=True, **fields).listeners[0].proxy_protocol


@pytest.mark.parametrize(
    "fields",
    [
        {"proxy_from": ["10.0.0.1"]},
        {"proxy_protocol": True, "proxy_from": ["10.0.0.1/8"]},
        {"proxy_protocol": True, "proxy_from": ["proxy.example"]},
        {"proxy_protocol": True, "proxy_from": ["10.0.0.1"], "type": "unix", "path": "/run/x"},
    ],
)
def test_settings_refuse_proxies_that_cannot_be_checked(fields: dict[str, object]):
    with pytest.raises(SettingsError) as caught:
        one_listener(**fields)
    assert caught.value.key == "listeners.0.proxy_from"
    assert caught.value.hint


def test_listener_behind_a_proxy_lets_nobody_in_without_credentials_unless_told():
    assert one_listener().listeners[0].accepts_anonymous
    assert not one_listener(proxy_protocol=True).listeners[0].accepts_anonymous
    assert one_listener(proxy_protocol=True, allow_anonymous=True).listeners[0].accepts_anonymous
