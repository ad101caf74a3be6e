"""`--host`, `--port` and `--websocket-port`: which listener do they mean?"""

import pytest

from tidegate.cli.serve import listener_options
from tidegate.settings import ListenerSettings, ListenerType, Settings

TCP = ListenerSettings()
WS = ListenerSettings(type=ListenerType.WS)
UNIX = ListenerSettings(type=ListenerType.UNIX, path="/run/s")


@pytest.mark.parametrize(
    "listeners, host, port, websocket_port, expected",
    [
        ((TCP,), None, None, None, {}),
        ((TCP,), None, 5, None, {"listeners.0.port": 5}),
        ((TCP,), None, 0, None, {"listeners.0.port": 0}),
        ((UNIX, TCP), "::", None, None, {"listeners.1.host": "::"}),
        ((UNIX,), None, 5, None, {"listeners.1.type": "tcp", "listeners.1.port": 5}),
        ((TCP,), None, None, 6, {"listeners.1.type": "ws", "listeners.1.port": 6}),
        ((TCP, WS), None, None, 6, {"listeners.1.port": 6}),
        (
            (UNIX,), "::", 5, 6,
            {
                "listeners.1.type": "tcp", "listeners.1.host": "::", "listeners.1.port": 5,
                "listeners.2.type": "ws", "listeners.2.host": "::", "listeners.2.port": 6,
            },
        ),
    ],
)  # fmt: skip
def test_an_option_changes_the_first_listener_of_its_kind_or_adds_one(
    listeners, host, port, websocket_port, expected
) -> None:
    assert listener_options(Settings(listeners=listeners), host, port, websocket_port) == expected
