"""The documentation site: every page is in its navigation, every link leads somewhere."""

import ast
import inspect
import re
import runpy
from pathlib import Path
from pkgutil import resolve_name
from types import ModuleType
from typing import Any

import pytest
import yaml

import rnc

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
TEXTS = [*PAGES, *ROOT.glob("*.md"), ROOT / "benchmarks" / "README.md"]
ELSEWHERE = {"index.md", "changelog.md", "contributing.md", "security.md", "benchmarks.md"}
"""Pages that docs/site_hooks.py makes of files outside docs/."""


def without_code(text: str) -> str:
    return re.sub(r"^( *)(```+).*?^\1\2`*$", "", text, flags=re.MULTILINE | re.DOTALL)


def pages_of(part: Any) -> list[str]:
    """The pages in a part of the navigation."""
    if isinstance(part, str):
        return [part]
    return [
        page
        for one in (part.values() if isinstance(part, dict) else part)
        for page in pages_of(one)
    ]


def navigation() -> list[str]:
    return pages_of(yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"])


def test_every_page_is_in_the_navigation_once() -> None:
    pages = navigation()
    assert len(pages) == len(set(pages)), "a page is twice in `nav` of mkdocs.yml"
    there = {page.relative_to(DOCS).as_posix() for page in PAGES} | ELSEWHERE
    lost = sorted(there - set(pages))
    assert not lost, f"add docs/{', docs/'.join(lost)} to `nav` in mkdocs.yml"
    gone = sorted(set(pages) - there)
    assert not gone, f"`nav` of mkdocs.yml names pages that are not there: {gone}"


def anchors(text: str) -> set[str]:
    """The anchors of headings, as GitHub and the site make them."""
    titles = re.findall(r"^#+ (.*)$", without_code(text), flags=re.MULTILINE)
    plain = [re.sub(r"\[(.*?)\]\(.*?\)|[`*]", r"\1", title).lower() for title in titles]
    return {re.sub(r"[^\w\- ]", "", title).strip().replace(" ", "-") for title in plain}


@pytest.mark.parametrize("page", TEXTS, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_relative_link_leads_somewhere(page: Path) -> None:
    text = without_code(page.read_text(encoding="utf-8"))
    for target, anchor in re.findall(r"\]\(([^)\s#]*)(#[^)\s]+)?\)", text):
        if re.match(r"[a-z]+:", target):
            continue
        there = (page.parent / target).resolve() if target else page
        assert there.exists(), f"{page.relative_to(ROOT)} links to {target}, which is not there"
        if anchor and there.suffix == ".md":
            known = anchors(there.read_text(encoding="utf-8"))
            assert anchor[1:] in known, f"{page.name}: {target} has no heading {anchor}"


def documented() -> list[Any]:
    """What the pages of the reference show."""
    texts = [page.read_text(encoding="utf-8") for page in (DOCS / "reference").glob("*.md")]
    names = re.findall(r"^::: ([\w.]+)$", "\n".join(texts), flags=re.MULTILINE)
    assert len(names) == len(set(names)) > 50
    return [resolve_name(name) for name in names]


def is_documented(thing: Any, module: str, shown: list[Any]) -> bool:
    """Whether it is shown, or the module it is defined in or imported from."""
    if any(thing is one for one in shown):
        return True
    modules = {one.__name__ for one in shown if isinstance(one, ModuleType)}
    return module in modules or getattr(inspect.unwrap(thing), "__module__", "") in modules


def public_names() -> list[tuple[str, str]]:
    """(module, name) of what packages export, and of what pages import."""
    packages = [
        path.parent.relative_to(ROOT / "src").as_posix().replace("/", ".")
        for path in (ROOT / "src").rglob("__init__.py")
        if "__all__" in path.read_text(encoding="utf-8")
    ]
    exported = [(name, one) for name in packages for one in resolve_name(name).__all__]
    return [*exported, *imported_by_pages()]


def imported_by_pages() -> list[tuple[str, str]]:
    text = "\n".join(page.read_text(encoding="utf-8") for page in [*PAGES, ROOT / "README.md"])
    found = re.findall(r"^(?:>>> )?from (rnc[\w.]*) import (.+)$", text, flags=re.MULTILINE)
    lines = [f"from {module} import {names}" for module, names in found]
    imports = [node for line in lines for node in ast.parse(line).body]
    assert len(imports) > 20
    return [(node.module, alias.name) for node in imports for alias in node.names]


def test_the_reference_has_every_public_name() -> None:
    shown = documented()
    assert "fit" in rnc.__all__
    names = [pair for pair in public_names() if pair[1] != "__version__"]
    assert len(names) > 50
    missing = {
        f"{module}.{name}"
        for module, name in names
        if not is_documented(resolve_name(f"{module}:{name}"), module, shown)
    }
    assert not missing, f"add `::: NAME` to a page of docs/reference for {sorted(missing)}"


@pytest.mark.parametrize(
    ("page", "link", "uri"),
    [
        ("index.md", "docs/photos.md", "photos.md"),
        ("index.md", "docs/images/report-angle.png", "images/report-angle.png"),
        ("security.md", "docs/limitations.md", "limitations.md"),
        ("benchmarks.md", "../docs/results.md", "results.md"),
        ("photos.md", "../CHANGELOG.md", "changelog.md"),
        ("theory.md", "../src/rnc/loss/loss.py", "source/src/rnc/loss/loss.py.md"),
        ("theory.md", "../src/rnc/loss/kernels", "source/src/rnc/loss/kernels.md"),
        ("results.md", "../benchmarks/results/tables.csv", "source/benchmarks/results/tables.csv"),
        ("reference/loss.md", "../theory.md", "theory.md"),
    ],
)
def test_a_link_of_the_repository_is_one_of_the_site(page: str, link: str, uri: str) -> None:
    hooks = runpy.run_path(str(DOCS / "site_hooks.py"))
    assert hooks["site_uri"](hooks["repository_path"](link, page)) == uri


def test_what_is_in_code_is_left_alone() -> None:
    hooks = runpy.run_path(str(DOCS / "site_hooks.py"))
    text = "a\n```bash\na\n```\na"
    assert hooks["outside_of_code"](str.upper, text) == "A\n```bash\na\n```\nA"


def test_examples_and_columns_of_docstrings_are_blocks() -> None:
    fenced = runpy.run_path(str(DOCS / "site_docstrings.py"))["fenced"]
    assert fenced("One.\n\n>>> 1\n1\n\nTwo.") == "One.\n\n```pycon\n>>> 1\n1\n```\n\nTwo."
    assert fenced("a.py   one\nb.py   two") == "```text\na.py   one\nb.py   two\n```"
    assert fenced("Plain text,\nin two lines.") == "Plain text,\nin two lines."


def test_the_readme_is_read_in_two_minutes() -> None:
    """What is more belongs into a page of docs/."""
    text = (ROOT / "README.md").read_text(encoding="utf-8").split("## Cite")[0]
    words = re.sub(r"\]\(.*?\)", "", without_code(text)).split()
    assert len(words) < 650, f"README.md has {len(words)} words beside its code"


def test_the_site_fetches_nothing() -> None:
    config = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    assert "font: false" in config
    assert "://" not in config
    fetched = runpy.run_path(str(DOCS / "site_hooks.py"))["FETCHED"]
    assert fetched.findall('<script src="https://a.b/c.js"></script><a href="https://d.e">')
    assert not fetched.findall('<a href="https://d.e"><img src="images/a.png">')
    assert "://" not in (DOCS / "site.css").read_text(encoding="utf-8")
