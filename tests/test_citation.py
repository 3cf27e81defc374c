"""How to cite: CITATION.cff and the README agree with each other and with this version."""

import re
from pathlib import Path

import yaml

import rnc

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
CITATION = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
PROJECT = (ROOT / "pyproject.toml").read_text(encoding="utf-8")


def bibtex(kind: str) -> dict[str, str]:
    """The fields of the README's entry of a kind."""
    [entry] = re.findall(rf"^@{kind}{{(.*?)^}}", README, flags=re.MULTILINE | re.DOTALL)
    return dict(re.findall(r"^  (\w+) = {(.*)},?$", entry, flags=re.MULTILINE))


def test_the_software_is_cited_in_this_version_and_under_its_licence() -> None:
    software = bibtex("software")
    assert CITATION["version"] == software["version"] == rnc.__version__
    assert CITATION["license"] == software["license"]
    assert f'license = "{CITATION["license"]}"' in PROJECT
    assert software["title"].startswith(f"{CITATION['title']}: ")
    assert [f"{{{one['name']}}}" for one in CITATION["authors"]] == [software["author"]]


def test_the_paper_is_the_same_in_both() -> None:
    paper, [reference] = bibtex("inproceedings"), CITATION["references"]
    authors = [f"{one['family-names']}, {one['given-names']}" for one in reference["authors"]]
    assert " and ".join(authors) == paper["author"]
    assert len(authors) == 5
    assert (reference["title"], str(reference["year"])) == (paper["title"], paper["year"])
    assert reference["collection-title"] == paper["booktitle"]
    assert reference["url"] == f"https://arxiv.org/abs/{paper['eprint']}"
    assert reference["url"] in README.split("## Cite")[0]


def test_the_readme_leads_to_the_limitations_and_its_links_are_there() -> None:
    page = ROOT / "docs" / "limitations.md"
    assert "(docs/limitations.md)" in README
    links = re.findall(r"\]\(([\w./-]+)(?:#[\w-]+)?\)", page.read_text(encoding="utf-8"))
    assert len(links) >= 3
    assert all((page.parent / link).exists() for link in links)
