"""What is asked of users who are not connected: what they left may still be published, what they may be called."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from tidegate.broker.hooks import Hooks, LateAuthoriser

if TYPE_CHECKING:
    from tidegate.broker.message import Author

log = logging.getLogger("tidegate.broker")


class Authors:
    """What the hooks say about them. Foreign code: a fault in it is logged, and means no."""

    __slots__ = ("_authoriser", "_has_account", "_may_be_named")

    def __init__(self, hooks: Hooks) -> None:
        self._authoriser = hooks.authoriser if isinstance(hooks.authoriser, LateAuthoriser) else None
        self._has_account = hooks.has_account
        self._may_be_named = hooks.may_be_named

    @property
    def may_depart(self) -> bool:
        """Whether anybody says when a user is gone."""
        return self._has_account is not None

    def is_known(self, user: str | None) -> bool:
        """Whether the user still has an account, as far as anybody can say."""
        return user is None or self._has_account is None or _ask(self._has_account, user)

    def may_be_named(self, user: str | None, client_id: str) -> bool:
        """Whether a user may have a client identifier."""
        return self._may_be_named is None or _ask(self._may_be_named, user, client_id)

    def may_publish(self, author: Author | None, topic: bytes) -> bool:
        """Whether what somebody left may still be published, or sent."""
        if author is None:
            return True
        ask = None if self._authoriser is None else self._authoriser.may_still_publish
        return self.is_known(author.user) and (ask is None or _ask(ask, *author, topic.decode()))


def _ask(hook: Callable[..., bool], *arguments: object) -> bool:
    try:
        return hook(*arguments)
    except Exception:  # whoever it is about is not to blame
        log.exception("unexpected error in a hook")
        return False
