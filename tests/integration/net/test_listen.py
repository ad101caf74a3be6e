import asyncio
import socket
import stat
from pathlib import Path

import pytest

from tests.integration.net.peers import Acceptor, Echo
from tidegate.net.addresses import Endpoint
from tidegate.net.errors import AddressInUse, ListenError
from tidegate.net.listen import listen


async def _echo_once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
    writer.write(b"hello")
    answer = await reader.readexactly(5)
    writer.close()
    await writer.wait_closed()
    return answer


def test_tcp_listener_on_port_zero_tells_its_real_port(run):
    async def main():
        acceptor = Acceptor(Echo)
        listening = await listen(acceptor, host="127.0.0.1", port=0)
        assert listening.endpoints == (Endpoint(scheme="mqtt", host="127.0.0.1", port=listening.port),)
        assert listening.port > 0
        assert await _echo_once(*await asyncio.open_connection("127.0.0.1", listening.port)) == b"hello"
        await acceptor.made[0].wait_lost()
        assert listening.statistics().accepted == 1
        listening.close()
        await listening.wait_closed()

    run(main())


def test_accepted_tcp_sockets_have_nodelay_set(run):
    async def main():
        acceptor = Acceptor()
        listening = await listen(acceptor, host="127.0.0.1")
        _, writer = await asyncio.open_connection("127.0.0.1", listening.port)
        accepted = await acceptor.wait_made()
        assert accepted.link.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        writer.close()
        await accepted.wait_lost()
        listening.close()

    run(main())


def test_closed_listener_refuses_new_connections_and_keeps_old_ones(run):
    async def main():
        acceptor = Acceptor(Echo)
        listening = await listen(acceptor, host="127.0.0.1")
        reader, writer = await asyncio.open_connection("127.0.0.1", listening.port)
        accepted = await acceptor.wait_made()
        listening.close()
        listening.close()
        await listening.wait_closed()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", listening.port)
        assert await _echo_once(reader, writer) == b"hello"
        await accepted.wait_lost()

    run(main())


def test_second_listener_on_a_port_says_the_address_is_in_use(run):
    async def main():
        listening = await listen(Acceptor(), host="127.0.0.1")
        with pytest.raises(AddressInUse) as caught:
            await listen(Acceptor(), host="127.0.0.1", port=listening.port)
        assert caught.value.address == f"127.0.0.1:{listening.port}"
        assert caught.value.hint
        listening.close()

    run(main())


def test_two_listeners_share_a_port_when_both_ask_for_it(run):
    async def main():
        first = await listen(Acceptor(), host="127.0.0.1", reuse_port=True)
        second = await listen(Acceptor(), host="127.0.0.1", port=first.port, reuse_port=True)
        assert first.port == second.port
        first.close()
        second.close()

    run(main())


@pytest.mark.parametrize("host", ["192.0.2.1", "no-such-host.invalid"])
def test_host_that_is_not_ours_gives_a_listen_error_with_a_hint(run, host):
    async def main():
        with pytest.raises(ListenError) as caught:
            await listen(Acceptor(), host=host, port=0)
        assert not isinstance(caught.value, AddressInUse)
        assert caught.value.hint

    run(main())


def test_unix_listener_serves_with_the_mode_asked_for_and_removes_its_file(run, tmp_path: Path):
    async def main():
        path = tmp_path / "broker.sock"
        acceptor = Acceptor(Echo)
        listening = await listen(acceptor, unix_path=path, unix_mode=0o600)
        assert listening.endpoints == (Endpoint(scheme="unix", path=str(path)),)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert await _echo_once(*await asyncio.open_unix_connection(str(path))) == b"hello"
        await acceptor.made[0].wait_lost()
        listening.close()
        assert not path.exists()

    run(main())


def test_stale_unix_socket_is_replaced(run, tmp_path: Path):
    async def main():
        path = tmp_path / "broker.sock"
        with socket.socket(socket.AF_UNIX) as dead:
            dead.bind(str(path))
        listening = await listen(Acceptor(), unix_path=path)
        listening.close()

    run(main())


def test_live_unix_socket_is_left_to_its_owner(run, tmp_path: Path):
    async def main():
        path = tmp_path / "broker.sock"
        acceptor = Acceptor(Echo)
        listening = await listen(acceptor, unix_path=path)
        with pytest.raises(AddressInUse):
            await listen(Acceptor(), unix_path=path)
        # The probe of the second listener was the first connection.
        assert await _echo_once(*await asyncio.open_unix_connection(str(path))) == b"hello"
        for made in acceptor.made:
            await made.wait_lost()
        listening.close()

    run(main())


def test_file_that_is_not_a_socket_is_never_removed(run, tmp_path: Path):
    async def main():
        path = tmp_path / "precious"
        path.write_text("data")
        with pytest.raises(ListenError):
            await listen(Acceptor(), unix_path=path)
        assert path.read_text() == "data"

    run(main())


def test_closing_leaves_a_socket_file_that_somebody_else_put_there(run, tmp_path: Path):
    async def main():
        path = tmp_path / "broker.sock"
        first = await listen(Acceptor(), unix_path=path)
        path.unlink()
        with socket.socket(socket.AF_UNIX) as other:
            other.bind(str(path))
            first.close()
            assert path.exists()

    run(main())


@pytest.mark.parametrize("name", ["missing/broker.sock", "x" * 120])
def test_impossible_unix_path_gives_a_listen_error_with_a_hint(run, tmp_path: Path, name: str):
    async def main():
        with pytest.raises(ListenError) as caught:
            await listen(Acceptor(), unix_path=tmp_path / name)
        assert caught.value.hint

    run(main())
