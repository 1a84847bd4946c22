"""`benchmarks.scaled` without a GPU: its cases and its list."""

from benchmarks import scaled


def test_groups_have_the_rows_that_both_libraries_take():
    for case in scaled.CASES["sorted"]:
        assert all(size % scaled.BLOCK == 0 for size in case.sizes)
    for case in scaled.CASES["masked"]:
        assert 0 < min(case.sizes) <= max(case.sizes) <= scaled.ROOM
        assert case.sizes == scaled.Case("masked", case.extents).sizes  # drawn alike each time
    assert all(len(found) >= 12 for found in scaled.CASES.values())


def test_the_list_names_each_case(capsys):
    scaled.main(["--list", "--kinds", "single", "masked"])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(scaled.SINGLE) + len(scaled.MASKED)
    assert lines[0] == "single 64x2112x7168: 1.94e+09 operations"
