"""Two true session ends over a link that loses its tail and repeats packets, driven by Hypothesis.

Whatever happens on the way: QoS 1 arrives at least once, QoS 2 exactly once, first arrivals keep the order of
sending, nobody exceeds a Receive Maximum, and in the end both sides have forgotten everything.
"""

from collections import deque

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tidegate.mqtt.codes import ReasonCode
from tidegate.mqtt.encode import encode_packet
from tidegate.mqtt.packets import Packet, Puback, Pubcomp, Publish, Pubrec, Pubrel
from tidegate.mqtt.reader import PacketReader
from tidegate.mqtt.session import Inbound, Outbound, PubrecOutcome

REFUSED = b"refused"


class End:
    """One side of a session: publishes, and takes what the other side publishes."""

    def __init__(self) -> None:
        self.outbound: Outbound[bytes] = Outbound()
        self.inbound = Inbound()
        self.sent: list[tuple[bytes, int]] = []
        self.arrived: list[bytes] = []
        self.held: list[int] = []
        self.link: deque[bytes] = deque()  # what we wrote and the peer has not read

    def write(self, packet: Packet) -> None:
        self.link.append(encode_packet(packet, 5))

    def publish(self, qos: int, refuse: bool) -> None:
        payload = b"%d %b" % (len(self.sent), REFUSED if refuse and qos == 2 else b"")
        self.sent.append((payload, qos))
        identifier = self.outbound.send(payload, qos)
        self.write(Publish(topic="t", payload=payload, qos=qos, packet_identifier=identifier))

    def resend(self) -> None:
        for identifier, qos, message in self.outbound.resend():
            if message is None:
                self.write(Pubrel(packet_identifier=identifier))
            else:
                self.write(
                    Publish(topic="t", payload=message, qos=qos, dup=True, packet_identifier=identifier)
                )

    def acknowledge(self) -> None:
        for identifier in self.held:
            self.inbound.puback_sent()
            self.write(Puback(packet_identifier=identifier))
        self.held.clear()

    def on_packet(self, packet: Packet) -> None:
        match packet:
            case Publish():
                self.on_publish(packet)
            case Puback():
                self.outbound.on_puback(packet.packet_identifier)
            case Pubrec():
                outcome, _ = self.outbound.on_pubrec(packet.packet_identifier, packet.reason_code)
                if outcome is PubrecOutcome.SEND_PUBREL:
                    self.write(Pubrel(packet_identifier=packet.packet_identifier))
                elif outcome is PubrecOutcome.UNKNOWN and packet.reason_code < 0x80:
                    code = ReasonCode.PACKET_IDENTIFIER_NOT_FOUND
                    self.write(Pubrel(packet_identifier=packet.packet_identifier, reason_code=code))
            case Pubrel():
                known = self.inbound.release(packet.packet_identifier)
                code = ReasonCode.SUCCESS if known else ReasonCode.PACKET_IDENTIFIER_NOT_FOUND
                self.write(Pubcomp(packet_identifier=packet.packet_identifier, reason_code=code))
            case Pubcomp():
                self.outbound.on_pubcomp(packet.packet_identifier)
            case _:
                raise AssertionError(packet)
        self.resend()

    def on_publish(self, packet: Publish) -> None:
        identifier = packet.packet_identifier
        assert identifier is not None
        if packet.qos == 1:
            self.inbound.receive_qos1()
            self.arrived.append(packet.payload)
            self.held.append(identifier)
            return
        is_new = self.inbound.receive(identifier)
        if packet.payload.endswith(REFUSED):
            self.inbound.release(identifier)
            self.write(Pubrec(packet_identifier=identifier, reason_code=ReasonCode.QUOTA_EXCEEDED))
            return
        if is_new:
            self.arrived.append(packet.payload)
        self.write(Pubrec(packet_identifier=identifier))

    def restart(self) -> None:
        """Lose the process, keep what was stored."""
        outbound: Outbound[bytes] = Outbound()
        for item in self.outbound:
            outbound.restore(*item)
        inbound = Inbound()
        for identifier in self.inbound:
            inbound.restore(identifier)
        self.outbound, self.inbound = outbound, inbound


class TwoEnds(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.ends = (End(), End())
        self.is_connected = False
        self.connect([5, 5])

    def connect(self, maxima: list[int]) -> None:
        for end, own, other in zip(self.ends, maxima, reversed(maxima), strict=True):
            end.held.clear()
            end.inbound.reconnect(own)
            end.outbound.reconnect(other)
        self.is_connected = True
        for end in self.ends:
            end.resend()

    def deliver(self, side: int) -> None:
        (packet,) = PacketReader(version=5).feed(self.ends[side].link.popleft())
        self.ends[1 - side].on_packet(packet)

    @precondition(lambda self: self.is_connected)
    @rule(side=st.integers(0, 1), qos=st.integers(1, 2), count=st.integers(1, 4), refuse=st.booleans())
    def publish(self, side: int, qos: int, count: int, refuse: bool) -> None:
        for _ in range(count):
            if self.ends[side].outbound.can_send:
                self.ends[side].publish(qos, refuse)

    @precondition(lambda self: self.is_connected)
    @rule(side=st.integers(0, 1), count=st.integers(1, 5))
    def deliver_some(self, side: int, count: int) -> None:
        for _ in range(min(count, len(self.ends[side].link))):
            self.deliver(side)

    @precondition(lambda self: self.is_connected)
    @rule(side=st.integers(0, 1))
    def acknowledge(self, side: int) -> None:
        self.ends[side].acknowledge()

    @precondition(lambda self: self.is_connected)
    @rule(side=st.integers(0, 1), data=st.data())
    def repeat_a_packet(self, side: int, data: st.DataObject) -> None:
        link = self.ends[side].link
        # A QoS 1 PUBLISH said twice would rightly be counted twice by the receiver, so it is left alone.
        candidates = [at for at, raw in enumerate(link) if raw[0] >> 4 != 3 or raw[0] & 6 == 4]
        if candidates:
            at = data.draw(st.sampled_from(candidates))
            link.insert(at, link[at])

    @precondition(lambda self: self.is_connected)
    @rule(kept=st.tuples(st.integers(0, 5), st.integers(0, 5)), restart=st.none() | st.integers(0, 1))
    def lose_the_connection(self, kept: tuple[int, int], restart: int | None) -> None:
        """The first packets still arrive, the rest of what is on its way is lost."""
        for side in (0, 1):
            for _ in range(min(kept[side], len(self.ends[side].link))):
                self.deliver(side)
        for end in self.ends:
            end.link.clear()
        self.is_connected = False
        if restart is not None:
            self.ends[restart].restart()

    @precondition(lambda self: not self.is_connected)
    @rule(maxima=st.lists(st.integers(1, 6), min_size=2, max_size=2))
    def connect_again(self, maxima: list[int]) -> None:
        self.connect(maxima)

    @invariant()
    def qos_2_never_arrives_twice_and_first_arrivals_keep_their_order(self) -> None:
        for sender, receiver in (self.ends, reversed(self.ends)):
            exactly_once = {payload for payload, qos in sender.sent if qos == 2}
            arrived = [payload for payload in receiver.arrived if payload in exactly_once]
            assert len(arrived) == len(set(arrived))
            first_arrivals = list(dict.fromkeys(receiver.arrived))
            positions = [int(payload.split()[0]) for payload in first_arrivals]
            assert positions == sorted(positions)

    def teardown(self) -> None:
        if not self.is_connected:
            self.connect([3, 3])
        for _ in range(10_000):
            if not any(end.link or end.held for end in self.ends):
                break
            for side in (0, 1):
                self.ends[side].acknowledge()
                while self.ends[side].link:
                    self.deliver(side)
        for sender, receiver in (self.ends, reversed(self.ends)):
            assert len(sender.outbound) == len(sender.inbound) == sender.inbound.unacknowledged == 0
            assert not sender.outbound.is_resending
            wanted = [payload for payload, _ in sender.sent if not payload.endswith(REFUSED)]
            assert list(dict.fromkeys(receiver.arrived)) == wanted


TwoEnds.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestTwoEnds = TwoEnds.TestCase
