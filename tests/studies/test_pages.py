"""What the docs quote from records is what the records have."""

from studies import pages


def test_every_part_of_the_docs_is_as_its_records_have_it():
    found = set()
    for path in sorted(pages.DOCS.rglob("*.md")):
        text = path.read_text()
        found |= {part[2] for part in pages.PART.finditer(text)}
        assert pages.renewed(text) == text, f"{path.name} is stale: python -m studies.pages"
    assert found == set(pages.PARTS)


def test_a_stale_part_is_written_anew_and_the_rest_is_left(monkeypatch):
    monkeypatch.setitem(pages.PARTS, "count", lambda: "2 of 3")
    page = "a\n<!-- from records: count -->\n\n1 of 3\n\n<!-- end of records -->\nb\n"
    assert pages.renewed(page) == page.replace("1 of 3", "2 of 3")
    assert pages.renewed("no part\n") == "no part\n"
