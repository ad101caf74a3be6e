"""What is asked of users who are not connected: what they left may still be published, what they may be called."""

from __future__ import annotations

import logging
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
    def are_asked(self) -> bool:
        return self._authoriser is not None or self._has_account is not None

    def is_known(self, user: str | None) -> bool:
        """Whether the user still has an account, as far as anybody can say."""
        if user is None or self._has_account is None:
            return True
        try:
            return self._has_account(user)
        except Exception:
            log.exception("unexpected error in a hook")
            return False

    def may_be_named(self, user: str | None, client_id: str) -> bool:
        """Whether a user may have a client identifier."""
        if self._may_be_named is None:
            return True
        try:
            return self._may_be_named(user, client_id)
        except Exception:
            log.exception("unexpected error in a hook")
            return False

    def may_publish(self, author: Author | None, topic: bytes) -> bool:
        if author is None:
            return True
        if not self.is_known(author.user):
            return False
        if self._authoriser is None:
            return True
        try:
            return self._authoriser.may_still_publish(author.user, author.client_id, topic.decode())
        except Exception:
            log.exception("unexpected error in the authoriser")
            return False
