"""Places of real connections, as they go from layer to layer."""

import gc
import socket
from contextlib import ExitStack

import pytest

from tests.integration.net.peers import Acceptor, wait_for
from tests.integration.net.test_proxy import contexts
from tidegate.net.doorway import Doorway
from tidegate.net.listen import listen
from tidegate.net.proxy import ProxyOptions

__all__ = ["contexts"]


@pytest.mark.parametrize("proxy", [None, ProxyOptions()], ids=["tls", "tls behind a proxy"])
def test_who_gives_way_before_its_handshake_was_begun_leaves_nothing_behind(run, contexts, proxy):
    """Many come in one turn of the loop."""

    async def main():
        door = Doorway(3)
        listening = await listen(Acceptor(), host="127.0.0.1", ssl=contexts[0], proxy=proxy, door=door)

        def waiting():
            found = listening.statistics()
            return found.tls_waiting + found.proxy_waiting

        with ExitStack() as stack:
            for _ in range(50):  # nobody else runs meanwhile
                stack.enter_context(socket.create_connection(("127.0.0.1", listening.port), 5.0))
            await wait_for(lambda: door.displaced == 47)
            await wait_for(lambda: waiting() == len(door) == 3)
        await wait_for(lambda: waiting() == len(door) == 0)
        gc.collect()  # a socket that nobody closed would say so
        listening.close()
        await listening.wait_closed()

    run(main())
