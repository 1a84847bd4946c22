"""The table of plans: its bound, what it forgets first, and threads that share it."""

from concurrent.futures import ThreadPoolExecutor

from cupygemm._plan.table import PlanTable


def test_the_oldest_plans_go_first() -> None:
    table = PlanTable(size=3)
    for number in range(5):
        table.keep(("f", number), number)
    assert len(table) == 3
    assert [table.get(("f", number)) for number in range(5)] == [None, None, 2, 3, 4]


def test_a_plan_is_replaced_in_place() -> None:
    table = PlanTable(size=2)
    table.keep(("f",), "first")
    table.keep(("g",), "other")
    table.keep(("f",), "second")
    assert table.of("f") == ["second"]
    assert table.of("g") == ["other"]


def test_clearing_keeps_the_look_up_alive() -> None:
    table = PlanTable()
    get = table.get
    table.keep(("f",), 1)
    table.clear()
    assert get(("f",)) is None
    table.keep(("f",), 2)
    assert get(("f",)) == 2


def test_threads_keep_the_bound() -> None:
    table = PlanTable(size=50)

    def work(thread: int) -> int:
        longest = 0
        for number in range(2000):
            table.keep(("f", thread, number), number)
            assert table.get(("f", thread, number)) in (number, None)
            longest = max(longest, len(table))
            if number % 500 == 0:
                table.clear()
        return longest

    with ThreadPoolExecutor(8) as pool:
        assert max(pool.map(work, range(8))) <= 50
