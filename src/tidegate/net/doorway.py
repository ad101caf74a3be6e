"""Connections of a server that have not shown yet that they are clients, of all its listeners together.

From accept on, through PROXY header, TLS, the WebSocket upgrade and CONNECT, a connection has one place here and one
deadline. Places and the bytes that are held for them are bounded. When there is no place, a newcomer is let in all the
same, and the oldest connection of the site with most of them gives way: who opens thousands and says nothing crowds out
itself. When there is no room for bytes, the connection that holds most of them gives way.
"""

from __future__ import annotations

import asyncio
import ipaddress
import time
from collections.abc import Callable, Iterator
from typing import Any, Final, Protocol, TypeAlias

IPV6_SITE: Final = 64  # bits of an address that one site has all to itself
MOST: Final = 4_096
MOST_BYTES: Final = 33_554_432

Key: TypeAlias = tuple[Any, ...] | int


class Newcomer(Protocol):
    """A connection that has a place here."""

    def abort(self) -> None:
        """Close it at once."""
        ...


class _Place:
    __slots__ = ("framed", "held", "holder", "is_counted", "is_kept", "is_timed", "key", "since", "site")

    def __init__(self, holder: Newcomer, key: Key, site: str, since: float, is_kept: bool) -> None:
        self.holder = holder
        self.key = key
        self.site = site
        self.since = since
        self.is_kept = is_kept
        self.is_counted = False  # among those that are bounded, and give way to newcomers
        self.is_timed = True
        self.held = self.framed = 0  # bytes of a packet, and of a WebSocket frame, that are not complete


class Doorway:
    """`most` places and `most_bytes`; `now` tells the time. `has_descriptors`: is a socket left for one more?"""

    __slots__ = (
        "_counted", "_crowds", "_fullest", "_held", "_places", "_sites", "_where", "displaced", "has_descriptors",
        "most", "most_bytes", "now",
    )  # fmt: skip

    def __init__(
        self, most: int = MOST, most_bytes: int = MOST_BYTES, now: Callable[[], float] = time.monotonic
    ) -> None:
        self.most = most
        self.most_bytes = most_bytes
        self.now = now
        self.has_descriptors: Callable[[], bool] = lambda: True
        self.displaced = 0
        self._held = 0
        self._counted = 0
        self._where: dict[Key, _Place] = {}
        self._places: dict[Newcomer, _Place] = {}
        self._sites: dict[str, dict[_Place, None]] = {}
        self._crowds: dict[int, dict[str, None]] = {}  # sites by the number of their places, and
        self._fullest = 0  # the largest of these

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, holder: Newcomer) -> bool:
        return holder in self._places

    def __iter__(self) -> Iterator[Newcomer]:
        return iter(list(self._places))

    @property
    def held_bytes(self) -> int:
        return self._held

    def enter(self, holder: Newcomer, transport: asyncio.BaseTransport, *, is_kept: bool = False) -> None:
        """It came, or it goes on with a connection that has a place already, whoever held that until now.

        `is_kept`: it gives way to nobody.
        """
        peer = transport.get_extra_info("peername")
        key = _key(peer, holder)
        known = self._where.get(key)
        if known is None:
            proxy = transport.get_extra_info("proxy_peername")
            known = None if proxy is None else self._where.get(_key(proxy, holder))
        since = self.now() if known is None else known.since
        if known is not None:
            self._remove(known)
        site = site_of(peer)
        if known is None and not is_kept:
            self._make_room(site)
        place = _Place(holder, key, site, since, is_kept)
        self._where[key] = self._places[holder] = place
        if not is_kept:
            self._count(place, is_in=True)

    def leave(self, holder: Newcomer) -> None:
        """It is a client now, or gone; nothing if another holds its place."""
        place = self._places.get(holder)
        if place is not None:
            self._remove(place)

    def stop_clock(self, holder: Newcomer, *, is_stopped: bool) -> None:
        """While it waits for us it has no deadline, and no newcomer takes its place; then its time begins anew."""
        place = self._places.get(holder)
        if place is None or place.is_kept or place.is_timed is not is_stopped:
            return
        place.is_timed = not is_stopped
        place.since = self.now()
        self._count(place, is_in=not is_stopped)

    def progressed(self, holder: Newcomer) -> None:
        """It is slow, and alive: its time begins anew."""
        place = self._places.get(holder)
        if place is not None:
            place.since = self.now()

    def hold(self, holder: Newcomer, size: int, *, is_framed: bool = False) -> None:
        """So many bytes are kept for it now."""
        place = self._places.get(holder)
        if place is None:
            return
        if place.is_kept:
            return
        before = place.held + place.framed
        if is_framed:
            place.framed = size
        else:
            place.held = size
        self._held += place.held + place.framed - before
        while self._held > self.most_bytes:
            self._displace(max(self._places.values(), key=_bytes_to_free))

    def expired(self, timeout: float) -> list[Newcomer]:
        """Those whose time is over."""
        limit = self.now() - timeout
        return [place.holder for place in self._places.values() if place.is_timed and place.since < limit]

    def _make_room(self, site: str) -> None:
        while self._fullest and (self._counted >= self.most or not self.has_descriptors()):
            is_own = len(self._sites.get(site, ())) == self._fullest
            crowd = site if is_own else next(iter(self._crowds[self._fullest]))
            self._displace(next(iter(self._sites[crowd])))

    def _displace(self, place: _Place) -> None:
        self.displaced += 1
        self._remove(place)
        place.holder.abort()

    def _remove(self, place: _Place) -> None:
        del self._places[place.holder]
        del self._where[place.key]
        self._held -= place.held + place.framed
        if place.is_counted:
            self._count(place, is_in=False)

    def _count(self, place: _Place, *, is_in: bool) -> None:
        """Its site has one place more, or less."""
        site = self._sites.setdefault(place.site, {})
        before = len(site)
        place.is_counted = is_in
        if is_in:
            site[place] = None
            self._counted += 1
        else:
            del site[place]
            self._counted -= 1
        if before:
            crowd = self._crowds[before]
            del crowd[place.site]
            if not crowd:
                del self._crowds[before]
        if site:
            self._crowds.setdefault(len(site), {})[place.site] = None
        else:
            del self._sites[place.site]
        if len(site) > self._fullest:
            self._fullest = len(site)
        elif self._fullest and self._fullest not in self._crowds:
            self._fullest -= 1


def _bytes_to_free(place: _Place) -> int:
    return place.held + place.framed


def site_of(peer: object) -> str:
    """Who may be one and the same: an IPv4 address, the network of an IPv6 one, or everybody on unix sockets."""
    if not isinstance(peer, tuple) or not peer:
        return ""
    try:
        address = ipaddress.ip_address(str(peer[0]).partition("%")[0])
    except ValueError:
        return str(peer[0])
    if isinstance(address, ipaddress.IPv6Address):
        mapped = address.ipv4_mapped
        return str(mapped or ipaddress.ip_network((address, IPV6_SITE), strict=False))
    return str(address)


def _key(peer: object, holder: Newcomer) -> Key:
    return tuple(peer) if isinstance(peer, tuple) and peer else id(holder)
