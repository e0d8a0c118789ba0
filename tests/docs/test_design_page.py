"""The page on the design names modules and functions that exist."""

import re


def test_that_the_table_of_behaviours_names_existing_code(root):
    page = (root / "docs" / "design.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| .* \| `(\S+\.py)` \| `(\w+)` \|$", page, re.MULTILINE)
    assert len(rows) > 20
    for path, name in rows:
        source = (root / path).read_text(encoding="utf-8")
        assert re.search(rf"(def|class) {name}\b|^ *{name}\b.*=", source, re.MULTILINE), f"{path}: {name}"


def test_that_the_list_of_packages_is_complete(root):
    page = (root / "docs" / "design.md").read_text(encoding="utf-8")
    listed = page.split("```")[1]
    for top in ("invgp", "adapters", "forward_models"):
        packages = [path.parent for path in (root / top).rglob("__init__.py")]
        assert packages
        for package in packages:
            assert re.search(rf"(^| ){package.name}[/,; ]", listed, re.MULTILINE), str(package)
