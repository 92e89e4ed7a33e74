"""Which parts of a page are around its content and not in it, told by structure: landmarks, and names of generators.

What looks like a menu is left out only while it is one: a part with much text outside of links stays, wherever it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

__all__ = [
    "INVISIBLE",
    "is_around",
    "is_content",
    "is_menu",
    "is_note",
    "is_pager_link",
    "is_permalink",
    "leads_away",
    "may_be_text",
    "names",
]


def names(text: str) -> frozenset[str]:
    """A set of names, written one after another."""
    return frozenset(text.split())


# Never read by a reader of the page.
INVISIBLE: Final = names(
    "script style noscript template iframe object canvas audio video head button select defs symbol metadata"
)
_AROUND_TAGS: Final = names("nav header footer aside")
_AROUND_ROLES: Final = names("navigation banner contentinfo search complementary menu menubar")
# Names of classes and ids around the content, by Sphinx and its themes, MkDocs, Docusaurus, MediaWiki, DocBook, Texinfo,
# Javadoc, Doxygen, Apache's manual and blogs.
_AROUND_NAMES: Final = names(
    """
    sphinxsidebar sphinxsidebarwrapper related sidebar sidebar-drawer sidebar-container sidebar-overlay toc-drawer toc-sticky
    toc-tree toc-overlay toc-overlay-icon mobile-header back-to-top content-icon-container
    wy-nav-side wy-nav-top rst-footer-buttons bd-sidebar bd-header bd-footer prev-next-area
    md-header md-footer md-sidebar md-tabs md-skip navbar footer page-footer site-footer site-header site-nav
    theme-doc-sidebar-container theme-doc-toc-desktop theme-doc-toc-mobile theme-doc-breadcrumbs pagination-nav
    theme-doc-footer navbar__inner menu__list
    mw-navigation mw-panel mw-head mw-page-base mw-jump-link mw-editsection printfooter catlinks navbox vertical-navbox
    sitenotice siteSub contentSub
    navheader navfooter nav-panel footer-relations topNav bottomNav subNav navpath nav-path toplang bottomlang quickview
    breadcrumb breadcrumbs navigation nav menu main-menu site-navigation pagination pager post-navigation nav-links
    skip-link skip-to-content cookie-banner cookie-notice share-buttons sharedaddy
    """
)
# Inside of the content these are menus; a header, an aside or a class of such a name is a part of the text there.
_MENU_ROLES: Final = frozenset(("navigation", "search", "menu", "menubar"))
_MENU_NAMES: Final = names(
    "siteSub contentSub mw-editsection mw-jump-link navbox vertical-navbox printfooter catlinks theme-doc-breadcrumbs "
    "theme-doc-toc-mobile "
    "rst-footer-buttons pagination-nav breadcrumb breadcrumbs share-buttons sharedaddy skip-link navheader navfooter nav-panel"
)
# Remarks of the text itself, wherever they stand.
_NOTE_ROLES: Final = names("note doc-footnote doc-endnote doc-tip doc-notice doc-example")
_NOTE_NAMES: Final = names("footnote footnote-list footnotes admonition note sidenote")
# How a link says that it leads to the pages before, behind and above this one, or to their list.
_PAGER_RELATIONS: Final = names("prev previous next up contents index home start first last")


def is_content(tag: str, attributes: Mapping[str, str | None]) -> bool:
    """Whether a page says that an element holds its content."""
    return tag in ("main", "article") or attributes.get("role") in ("main", "article")


def is_around(tag: str, attributes: Mapping[str, str | None]) -> bool:
    """Whether an element outside of what a page names as its content is around it."""
    return tag in _AROUND_TAGS or attributes.get("role") in _AROUND_ROLES or _named(attributes, _AROUND_NAMES)


def may_be_text(tag: str, attributes: Mapping[str, str | None]) -> bool:
    """Whether an element around the content is named so by its tag alone, which notes and titles in texts use too."""
    return tag in ("header", "aside") and not (
        attributes.get("role") in _AROUND_ROLES or _named(attributes, _AROUND_NAMES)
    )


def is_menu(tag: str, attributes: Mapping[str, str | None]) -> bool:
    """Whether an element inside the content is a menu nevertheless."""
    return tag == "nav" or attributes.get("role") in _MENU_ROLES or _named(attributes, _MENU_NAMES)


def is_note(attributes: Mapping[str, str | None]) -> bool:
    """Whether an element says that it holds a remark or a footnote."""
    return attributes.get("role") in _NOTE_ROLES or _named(attributes, _NOTE_NAMES)


def is_pager_link(attributes: Mapping[str, str | None]) -> bool:
    """Whether a link says that it turns pages."""
    return not _PAGER_RELATIONS.isdisjoint((attributes.get("rel") or "").lower().split())


def leads_away(attributes: Mapping[str, str | None]) -> bool:
    """Whether a link leads to another page: headings are links to themselves, and anchors lead nowhere."""
    return not (attributes.get("href") or "#").startswith("#")


def is_permalink(text: str, attributes: Mapping[str, str | None]) -> bool:
    """Whether a link is the sign beside a heading that points at the heading: without a letter, or named so."""
    if "#" not in (attributes.get("href") or ""):
        return False
    return not any(map(str.isalnum, text)) or "headerlink" in (attributes.get("class") or "").split()


def _named(attributes: Mapping[str, str | None], names: frozenset[str]) -> bool:
    given = f"{attributes.get('class') or ''} {attributes.get('id') or ''}"
    return not names.isdisjoint(given.split())
