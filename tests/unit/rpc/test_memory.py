"""What the keeper knows: values with an end, taken once, and leases with tokens that grow."""

from tidegate.rpc.memory import Memory


def test_a_value_is_taken_once_and_not_after_its_end() -> None:
    memory = Memory()
    memory.put("a", "1", 0.0, 5.0)
    memory.put("b", "2", 0.0, 5.0)
    assert memory.take("a", 4.9) == "1"
    assert memory.take("a", 4.9) is None
    assert memory.take("b", 5.0) is None
    assert memory.take("never", 0.0) is None


def test_a_later_value_replaces_an_earlier_one_and_keeps_its_own_end() -> None:
    memory = Memory()
    memory.put("a", "1", 0.0, 1.0)
    memory.put("a", "2", 0.5, 10.0)
    memory.put("b", "3", 2.0, 1.0)  # the end of the first is over, and must not take the second with it
    assert memory.take("a", 5.0) == "2"


def test_memory_is_bounded() -> None:
    memory = Memory(capacity=10)
    for number in range(25):
        memory.put(str(number), "x", 0.0, 100.0 + number)
    assert len(memory) == 10 and memory.forgotten == 15
    assert memory.take("0", 1.0) is None and memory.take("24", 1.0) == "x"


def test_ended_values_make_room() -> None:
    memory = Memory(capacity=10)
    for number in range(10):
        memory.put(str(number), "x", 0.0, 1.0)
    memory.put("new", "y", 2.0, 1.0)
    assert (len(memory), memory.forgotten) == (1, 0)


def test_a_lease_has_one_holder_and_tokens_grow() -> None:
    memory = Memory()
    first = memory.lease("esl", "anna", 100.0, 5.0)
    assert first is not None
    assert memory.lease("esl", "bert", 101.0, 5.0) is None
    again = memory.lease("esl", "anna", 102.0, 5.0)
    assert again is not None and again > first
    after = memory.lease("esl", "bert", 107.0, 5.0)
    assert after is not None and after > again
    memory.release("esl", "anna")  # hers no more
    assert memory.lease("esl", "carl", 108.0, 5.0) is None
    memory.release("esl", "bert")
    assert memory.lease("esl", "carl", 108.0, 5.0) is not None


def test_tokens_grow_over_a_restart() -> None:
    before = Memory().lease("esl", "anna", 100.0, 5.0)
    after = Memory().lease("esl", "anna", 100.1, 5.0)
    assert before is not None and after is not None and after > before


def test_taken_values_leave_nothing_behind() -> None:
    memory = Memory()
    memory.put("kept", "x", 0.0, 5.0)
    for number in range(10_000):
        memory.put(str(number), "x", 0.0, 1e6)
        memory.take(str(number), 0.0)
    assert len(memory._ends) < 2000
    memory.put("new", "x", 6.0, 5.0)
    assert len(memory) == 1 and memory.take("kept", 1.0) is None
