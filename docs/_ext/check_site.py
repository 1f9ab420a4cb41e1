"""Check a built site: ``python check_site.py FOLDER``. Links inside lead somewhere, and no page fetches anything."""

from __future__ import annotations

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

FETCHING = {"img": "src", "script": "src", "iframe": "src", "source": "src"}


class Page(HTMLParser):
    """Names that can be linked to, links, and what a browser would fetch."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.links: list[str] = []
        self.fetched: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Sort the attributes of a tag."""
        found = {name: value or "" for name, value in attrs}
        self.names |= {found[name] for name in ("id", "name") if name in found}
        if tag == "a" and "href" in found:
            self.links.append(found["href"])
        if tag in FETCHING and FETCHING[tag] in found:
            self.fetched.append(found[FETCHING[tag]])
        if tag == "link" and found.get("rel") in ("stylesheet", "preload", "icon"):
            self.fetched.append(found.get("href", ""))


def complaints(folder: Path) -> list[str]:
    """One sentence for each link that leads nowhere and for each fetch from elsewhere."""
    pages = {path.resolve(): Page(path.read_text(encoding="utf-8")) for path in folder.rglob("*.html")}
    found = []
    for path, page in pages.items():
        name = path.relative_to(folder.resolve())
        found += [f"{name} fetches {url}" for url in page.fetched if urlsplit(url).scheme in ("http", "https")]
        local = [urlsplit(url) for url in page.links if not urlsplit(url).scheme and not url.startswith("//")]
        for url in local:
            target = (path.parent / unquote(url.path)).resolve() if url.path else path
            if not target.exists():
                found.append(f"{name} links to {url.path}, which does not exist")
            elif url.fragment and target in pages and unquote(url.fragment) not in pages[target].names:
                found.append(f"{name} links to {url.path}#{url.fragment}, which is not on that page")
    if not pages:
        found.append(f"{folder} holds no pages")
    return sorted(set(found))


if __name__ == "__main__":
    said = complaints(Path(sys.argv[1]))
    print(*said, sep="\n", end="\n" * bool(said))
    sys.exit(bool(said))
