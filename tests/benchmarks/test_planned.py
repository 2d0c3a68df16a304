"""The measured fastest layout is ranked first or tied; docs/accuracy.md shows all groups."""

from pathlib import Path

from benchmarks import planned
from tests.profiles.samples import measured

PAGE = Path(__file__).parents[2] / "docs" / "accuracy.md"


def test_the_fastest_layout_of_a_sample_is_first_or_tied() -> None:
    found = list(planned.groups(measured("ops"), lambda row: (row.prompt, row.new) == (2048, 128) and row.batch > 4))
    assert len(found) > 10
    assert planned.first_or_tied(found) >= 0.9
    assert all(line.split("|")[1] in PAGE.read_text(encoding="utf-8") for line in planned.table(found).splitlines())


def test_the_page_shows_that_nine_of_ten_groups_rank_the_fastest_layout_first_or_tied() -> None:
    line = PAGE.read_text(encoding="utf-8").partition(planned.TITLES)[2].partition("| all |")[2].splitlines()[0]
    groups, _, _, tied = line.split("|")[2:6]
    assert int(groups) > 100
    assert int(tied.strip().rstrip("%")) >= 90
