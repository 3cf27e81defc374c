"""What the documentation site shows of files outside docs/.

Links in docs/*.md are those of the repository, so that they work there, too. Here a link to
CHANGELOG.md and the like becomes one to a page of the site, and a link to a source file becomes
one to a page that shows it.
"""

import posixpath
import re
from collections.abc import Callable
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parent.parent
PAGES = {
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "README.md": "index.md",
    "benchmarks/README.md": "benchmarks.md",
}
"""Files of the repository that are pages of the site: path -> page."""
PLACES = {page: path for path, page in PAGES.items()}
LANGUAGES = {".py": "python", ".toml": "toml", ".yml": "yaml"}
LINK = re.compile(r"(\]\()([^)\s#]+)?(#[^)\s]*)?(\))")
FENCE = re.compile(r"^( *)(```+).*?^\1\2`*$", re.MULTILINE | re.DOTALL)
INLINE_CODE, FLAG = re.compile(r"<code>[^<]*</code>"), re.compile(r"(?<![\w-])--?[a-z][\w-]*")
NAMED_AS_FILE = re.compile(r"\[([\w-]+)\.md\]\((?=[\w./-]+\.md)")
FETCHED = re.compile(r"<(?:script|link|img|iframe)\b[^>]*?(?:src|href)=\"?(https?:[^\" >]*)")
COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are not in docs/, and one for every file that a page links to."""
    for page, path in PLACES.items():
        files.append(_generated(config, page, (ROOT / path).read_text(encoding="utf-8")))
    texts = {file.src_uri: file.content_string for file in files.documentation_pages()}
    linked = {
        path
        for uri, text in texts.items()
        for path in links_of(text, uri)
        if _is_source(path) and (ROOT / path).exists()
    }
    linked |= {f"{path}/{one.name}" for path in linked for one in _files_in(ROOT / path)}
    for path in sorted(linked):
        files.append(_source_file(config, path))
    return files


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Keep a flag such as --preset on one line."""

    def kept(code: re.Match[str]) -> str:
        return FLAG.sub(r'<span class="flag">\g<0></span>', code[0])

    return INLINE_CODE.sub(kept, html)


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turn links that hold in the repository into links that hold in the site."""

    def turned(match: re.Match[str]) -> str:
        before, target, anchor, after = match.groups()
        if not target or _is_elsewhere(target):
            return match[0]
        there = site_uri(repository_path(target, page.file.src_uri))
        here = posixpath.dirname(page.file.src_uri) or "."
        return f"{before}{posixpath.relpath(there, here)}{anchor or ''}{after}"

    if page.file.src_uri.startswith("source/"):
        return markdown

    def changed(text: str) -> str:
        return LINK.sub(turned, NAMED_AS_FILE.sub(r"[\1](", text))

    return outside_of_code(changed, markdown)


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """Refuse what a reader's browser would fetch from elsewhere."""
    fetched = FETCHED.findall(output)
    if fetched:
        raise PluginError(f"{page.file.src_uri} fetches {fetched[0]}: the site must do without.")
    return output


def outside_of_code(change: Callable[[str], str], markdown: str) -> str:
    """`change` of all that is in no block of code."""
    parts, end = [], 0
    for block in FENCE.finditer(markdown):
        parts += [change(markdown[end : block.start()]), block[0]]
        end = block.end()
    return "".join([*parts, change(markdown[end:])])


def links_of(markdown: str, uri: str) -> list[str]:
    """Paths in the repository that a page links to."""
    text = COMMENT.sub("", FENCE.sub("", markdown))
    targets = [match[2] for match in LINK.finditer(text) if match[2]]
    return [repository_path(target, uri) for target in targets if not _is_elsewhere(target)]


def repository_path(target: str, uri: str) -> str:
    """Where in the repository a link of a page of the site leads."""
    home = PLACES.get(uri, f"docs/{uri}")
    return posixpath.normpath(posixpath.join(posixpath.dirname(home), target))


def site_uri(path: str) -> str:
    """The page or file of the site for a path in the repository."""
    if path in PAGES:
        return PAGES[path]
    if not _is_source(path):
        return path.removeprefix("docs/")
    return f"source/{path}{_ending(path)}"


def _ending(path: str) -> str:
    shown = (ROOT / path).is_dir() or Path(path).suffix in LANGUAGES
    return ".md" if shown else ""


def _is_elsewhere(target: str) -> bool:
    return re.match(r"[a-z]+:", target) is not None


def _is_source(path: str) -> bool:
    in_docs = path.startswith("docs/") and not path.endswith(".py")
    return path not in PAGES and not in_docs and not path.startswith("..")


def _files_in(path: Path) -> list[Path]:
    return sorted(path.glob("*.py")) if path.is_dir() else []


def _source_file(config: MkDocsConfig, path: str) -> File:
    """A page that shows a file or lists a folder, or the file itself."""
    place, uri = ROOT / path, site_uri(path)
    if not uri.endswith(".md"):
        return File.generated(config, uri, abs_src_path=str(place))
    title = f"---\ntitle: {path}\nsearch: {{exclude: true}}\n---\n\n# {path}\n\n"
    if place.is_dir():
        rows = [f"- [{one.name}]({place.name}/{one.name}.md)\n" for one in _files_in(place)]
        return _generated(config, uri, title + "".join(rows))
    text = place.read_text(encoding="utf-8")
    if "`````" in text:
        raise PluginError(f"{path} has five backticks in a row, which end its block in the site")
    code = f"`````{LANGUAGES[place.suffix]}\n{text}`````\n"
    return _generated(config, uri, title + code)


def _generated(config: MkDocsConfig, uri: str, text: str) -> File:
    file = File.generated(config, uri, content=text)
    if uri.startswith("source/"):
        file.inclusion = InclusionLevel.NOT_IN_NAV
    return file
