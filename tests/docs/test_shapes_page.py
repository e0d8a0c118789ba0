"""The page on posteriors of many shapes contains what the benchmark recorded."""

import json


def test_that_the_table_is_up_to_date(root):
    rows = json.loads((root / "tests" / "benchmarks" / "shapes.json").read_text(encoding="utf-8"))
    page = (root / "docs" / "shapes.md").read_text(encoding="utf-8")
    cells = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in page.splitlines() if line.startswith("|")
    ]
    shown = {(line[0], line[1]): line for line in cells if len(line) == 8}
    assert len(shown) == len(rows) + 2  # heading and rule
    for row in rows:
        line = shown[row["problem"], str(row["seed"])]
        spread = f"{row['spread']:.2f} ({row['spread_5']:.2f} to {row['spread_95']:.2f})"
        assert line[2:7] == [
            f"{row['error']:.2f}",
            f"{row['worst']:.2f}",
            spread,
            f"{100 * row['mass']:.1f}",
            str(row["runs"]),
        ]
        assert line[7].startswith(row["verdict"])
