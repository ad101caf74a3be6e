"""Which web pages may talk to us: a browser says in Origin what page asks, and in Host what name it asked for.

A page of our own has the same origin as we have. That alone is no proof: somebody else's page can make its own name
point here (DNS rebinding), and then Host and Origin are equal, too. So the name must be one that nobody can point
elsewhere: an address, or a loopback name. Other names are for the operator to list.
"""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit

LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1", "[::1]"})
ANY = "*"


def host_name(host: str) -> str:
    """The name of a Host header, without its port."""
    name = host.lower()
    if name.startswith("["):
        return name.partition("]")[0] + "]"
    return name.partition(":")[0]


def is_fixed(name: str) -> bool:
    """Whether nobody can make this name point elsewhere."""
    if name in LOOPBACK_NAMES:
        return True
    try:
        ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True


def may_come(origins: list[str], hosts: list[str], allowed: tuple[str, ...]) -> bool:
    """Whether a request with these Origin and Host headers may come in; who sends no Origin is no browser."""
    if not origins or ANY in allowed:
        return True
    if len(origins) > 1 or len(hosts) > 1:
        return False
    origin = origins[0].lower()
    if origin in (each.lower() for each in allowed):
        return True
    if allowed or not hosts or not is_fixed(host_name(hosts[0])):
        return False
    try:
        page = urlsplit(origin)
    except ValueError:
        return False
    return page.scheme in ("http", "https") and page.netloc == hosts[0].lower()
