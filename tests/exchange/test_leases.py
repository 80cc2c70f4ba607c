"""What keeps a connection in use while no request is under way on it."""

from __future__ import annotations

from muxway.calls.leases import Leases, PassedTasks

from .faking import FakeClock, FakeLink


def test_a_lease_by_name_ends_by_itself() -> None:
    """Ours: a task that nobody asks after is thought to go on for its ttl, and no longer."""
    clock = FakeClock()
    link = FakeLink(clock=clock)
    passed = PassedTasks()
    for number in range(5000):
        passed.add(f"t{number}", b"", link, 10.0)
    assert link.leases.any
    clock.pass_(9.9)
    assert link.leases.any
    clock.pass_(0.2)
    assert not link.leases.any
    assert not Leases().any


def test_no_task_is_forgotten_for_what_others_have_made() -> None:
    """Ours: however many tasks one principal has made, those of another can be asked after (docs/tasks.md)."""
    link = FakeLink()
    passed = PassedTasks()
    passed.add("bob's", b"bob", link, 10.0)
    for number in range(5000):
        passed.add(f"t{number}", b"ann", link, 10.0)
    present = FakeLink()
    assert passed.find("bob's", present) is link
    assert passed.find("t0", present) is not link
    assert passed.find("t4999", present) is link
