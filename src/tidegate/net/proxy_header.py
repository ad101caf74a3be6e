"""The PROXY protocol's header, version 1 (text) and 2 (binary), without I/O.

A proxy puts it in front of the client's first byte to say whom it speaks for. References are to the
specification that HAProxy publishes (doc/proxy-protocol.txt, revision 2020/03/05). Rules kept here:

- Bytes may come in any pieces. The first byte that cannot belong to a header is an error, at once.
- A header is bounded: 107 bytes of text, `MAX_V2_BYTES` of binary, known before anything more is gathered.
- `HeaderReader.wants` never asks for a byte behind the header, for readers that cannot give bytes back.
- TLVs are split, not interpreted, but for the client certificate's name. The checksum TLV is not checked: TCP has
  one, and receivers are free to ignore this one (section 2.2.3).
"""

from __future__ import annotations

import ipaddress
import socket
from dataclasses import dataclass
from enum import IntEnum, IntFlag
from struct import unpack_from

from tidegate.net.errors import NetError

SIGNATURE = b"\r\n\r\n\x00\r\nQUIT\n"
V2_FIXED_BYTES = 16
# The format allows 65551. Addresses take at most 216, and what proxies add (TLS facts, identifiers) a few hundred.
MAX_V2_BYTES = 4096

V1_PREFIX = b"PROXY "
MIN_V1_BYTES = len(b"PROXY UNKNOWN\r\n")
MAX_V1_BYTES = 107  # section 2.1, with CR LF

# As `socket.getpeername` gives them: (host, port), (host, port, 0, 0), or the path of a Unix socket.
Address = tuple[str, int] | tuple[str, int, int, int] | str


class ProxyHeaderError(NetError):
    """Bytes that are not a PROXY header, or one that cannot be accepted."""

    def __init__(self, problem: str) -> None:
        super().__init__(
            f"PROXY header: {problem}",
            hint="make the proxy send PROXY protocol version 1 or 2 to this listener",
        )
        self.problem = problem


class TLV(IntEnum):
    """Types of the facts behind the addresses; the SSL ones from 0x21 are inside SSL (section 2.2)."""

    ALPN = 0x01
    AUTHORITY = 0x02
    CRC32C = 0x03
    NOOP = 0x04
    UNIQUE_ID = 0x05
    SSL = 0x20
    SSL_VERSION = 0x21
    SSL_CN = 0x22
    SSL_CIPHER = 0x23
    SSL_SIG_ALG = 0x24
    SSL_KEY_ALG = 0x25
    NETNS = 0x30


class SSLClient(IntFlag):
    """What the client did, in the first byte of the SSL TLV."""

    SSL = 0x01
    CERT_CONN = 0x02
    CERT_SESS = 0x04


@dataclass(slots=True, kw_only=True)
class ProxyHeader:
    """What the proxy said. Without `source` it speaks for itself or does not know: the real peer stays."""

    version: int
    is_local: bool = False
    source: Address | None = None
    destination: Address | None = None
    tlvs: tuple[tuple[int, bytes], ...] = ()
    certificate_name: str | None = None  # of a client certificate that the proxy has verified


class HeaderReader:
    """Feed it what arrives until it gives a header; `rest` is then what came behind it."""

    __slots__ = ("_buffer", "rest")

    def __init__(self) -> None:
        self._buffer = b""
        self.rest = b""

    @property
    def has_begun(self) -> bool:
        return bool(self._buffer)

    @property
    def wants(self) -> int:
        """How many of the bytes to come belong to the header for certain; at least 1 until it is complete."""
        have = len(self._buffer)
        if have < MIN_V1_BYTES:
            return MIN_V1_BYTES - have
        if self._buffer[0] == SIGNATURE[0]:
            return (_v2_length(self._buffer) if have >= V2_FIXED_BYTES else V2_FIXED_BYTES) - have
        return 1 if self._buffer[-1] == 0x0D else 2  # the line still lacks its LF, or CR and LF

    def feed(self, data: bytes) -> ProxyHeader | None:
        """The header once it is complete, None before; raises ProxyHeaderError."""
        buffer = self._buffer = self._buffer + data
        if SIGNATURE.startswith(buffer[: len(SIGNATURE)]):
            if len(buffer) > 12 and buffer[12] >> 4 != 2:
                raise ProxyHeaderError(f"version {buffer[12] >> 4} is not known")
            if len(buffer) < V2_FIXED_BYTES or len(buffer) < (end := _v2_length(buffer)):
                return None
            header = _parse_v2(buffer[:end])
        elif V1_PREFIX.startswith(buffer[: len(V1_PREFIX)]):
            end = buffer.find(b"\r\n", 0, MAX_V1_BYTES) + 2
            if end < 2:
                if len(buffer) >= MAX_V1_BYTES:
                    raise ProxyHeaderError(f"no end of the line in {MAX_V1_BYTES} bytes")
                return None
            header = _parse_v1(buffer[: end - 2])
        else:
            raise ProxyHeaderError("the connection does not begin with one")
        self.rest = buffer[end:]
        return header


def _v2_length(buffer: bytes) -> int:
    length = V2_FIXED_BYTES + int.from_bytes(buffer[14:16])
    if length > MAX_V2_BYTES:
        raise ProxyHeaderError(f"{length} bytes long, at most {MAX_V2_BYTES} are accepted")
    return length


def _parse_v2(header: bytes) -> ProxyHeader:
    command, family, protocol = header[12] & 0x0F, header[13] >> 4, header[13] & 0x0F
    if command == 0:
        # LOCAL: "discard the protocol block including the family which is ignored" (section 2.2)
        return ProxyHeader(version=2, is_local=True)
    if command != 1:
        raise ProxyHeaderError(f"command {command} is not known")
    if family > 3 or protocol > 2:
        raise ProxyHeaderError(f"address family {family} with protocol {protocol} is not known")
    if not family or not protocol:
        return ProxyHeader(version=2)  # what follows has no known layout
    size = (0, 4, 16, 108)[family]
    begin = V2_FIXED_BYTES
    end = begin + 2 * size + (0 if family == 3 else 4)
    if len(header) < end:
        raise ProxyHeaderError("too short for its addresses")
    hosts = header[begin : begin + size], header[begin + size : begin + 2 * size]
    source: Address
    destination: Address
    if family == 3:
        source, destination = (_path(host) for host in hosts)
    else:
        ports = unpack_from("!HH", header, end - 4)
        source, destination = (_address(host, port) for host, port in zip(hosts, ports, strict=True))
    tlvs = _split(header[end:])
    return ProxyHeader(
        version=2,
        source=source,
        destination=destination,
        tlvs=tlvs,
        certificate_name=_certificate_name(tlvs),
    )


def _address(packed: bytes, port: int) -> Address:
    if len(packed) == 4:
        return socket.inet_ntop(socket.AF_INET, packed), port
    return socket.inet_ntop(socket.AF_INET6, packed), port, 0, 0


def _path(field: bytes) -> str:
    # An abstract name begins with NUL and may hold more of them: it has no path.
    return field.partition(b"\0")[0].decode(errors="surrogateescape")


def _split(block: bytes) -> tuple[tuple[int, bytes], ...]:
    tlvs = []
    at = 0
    while at < len(block):
        if at + 3 > len(block):
            raise ProxyHeaderError("a TLV is cut off")
        kind, length = unpack_from("!BH", block, at)
        at += 3 + length
        if at > len(block):
            raise ProxyHeaderError("a TLV is longer than the header")
        tlvs.append((kind, block[at - length : at]))
    return tuple(tlvs)


def _certificate_name(tlvs: tuple[tuple[int, bytes], ...]) -> str | None:
    """The common name, if the client showed a certificate and the proxy found it valid (section 2.2.6)."""
    for kind, value in tlvs:
        if kind != TLV.SSL:
            continue
        if len(value) < 5:
            raise ProxyHeaderError("the SSL TLV is cut off")
        client, verify = unpack_from("!BI", value)
        names = [text for subtype, text in _split(value[5:]) if subtype == TLV.SSL_CN]
        # `verify` alone is not enough: some proxies leave it 0 when there was nothing to verify.
        if verify or not client & SSLClient.SSL or not client & (SSLClient.CERT_CONN | SSLClient.CERT_SESS):
            return None
        if len(names) != 1 or not names[0]:
            return None  # which of several names is the user must not be guessed
        try:
            return names[0].decode()
        except UnicodeDecodeError:
            raise ProxyHeaderError("the certificate's name is not UTF-8") from None
    return None


def _parse_v1(line: bytes) -> ProxyHeader:
    try:
        words = line.decode("ascii").split(" ")
    except UnicodeDecodeError:
        raise ProxyHeaderError("not ASCII") from None
    if words[1] == "UNKNOWN":
        return ProxyHeader(version=1)  # "the receiver must ignore anything presented before the CRLF"
    if words[1] not in ("TCP4", "TCP6") or len(words) != 6:
        raise ProxyHeaderError("the line is not PROXY, TCP4 or TCP6, two addresses and two ports")
    family = ipaddress.IPv4Address if words[1] == "TCP4" else ipaddress.IPv6Address
    source, destination = (
        _address(_packed(family, host), _port(port))
        for host, port in zip(words[2:4], words[4:6], strict=True)
    )
    return ProxyHeader(version=1, source=source, destination=destination)


def _packed(family: type[ipaddress.IPv4Address] | type[ipaddress.IPv6Address], text: str) -> bytes:
    try:
        if "%" in text:
            raise ValueError
        return family(text).packed
    except ValueError:
        raise ProxyHeaderError("an address is not valid") from None


def _port(text: str) -> int:
    # The line is ASCII, so digits are 0 to 9; leading zeros are forbidden (section 2.1).
    if not text.isdigit() or len(text) > 5 or (text[0] == "0" and text != "0") or int(text) > 65_535:
        raise ProxyHeaderError("a port is not valid")
    return int(text)
