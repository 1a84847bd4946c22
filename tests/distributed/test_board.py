"""Ranks of one host agree on known calls by a word each, and name those that make no call."""

import threading
from pathlib import Path

import pytest

from cupygemm._distributed.board import Board, LateError, digest_of


@pytest.fixture
def boards():
    path = Board.create(3)
    if not path:
        pytest.skip("this host has no memory that processes share under a name")
    yield [Board(path, rank, 3) for rank in range(3)]
    Path(path).unlink()


def going_on():
    return None


def test_all_ranks_see_all_digests_in_their_order(boards):
    calls = 200
    seen = [[] for _ in boards]

    def run(rank):
        for call in range(calls):
            seen[rank].append(boards[rank].meet(100 * call + rank, 60, going_on))

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    expected = [(100 * call, 100 * call + 1, 100 * call + 2) for call in range(calls)]
    assert seen == [expected] * 3


def test_late_ranks_are_named(boards):
    with pytest.raises(LateError) as caught:
        boards[1].meet(5, 0.0, going_on)
    assert caught.value.ranks == [0, 2]


def test_a_group_that_has_ended_is_not_waited_for(boards):
    def ended():
        raise KeyError("rank 2 is gone")

    with pytest.raises(KeyError, match="rank 2"):
        boards[0].meet(5, 600, ended)


def test_a_board_of_another_host_is_not_found():
    with pytest.raises(OSError, match="No such file"):
        Board("/dev/shm/cupygemm-of-another-host", 0, 2)


def test_digests_fit_beside_the_number_of_a_call():
    assert digest_of("a") != digest_of("b")
    assert all(0 <= digest_of(text) < 1 << 48 for text in ("", "a", "b" * 1000))
