"""Pages as generators of documentation, wikis and blogs write them, around one text whose words are known."""

from __future__ import annotations

__all__ = ["CONTENT_WORDS", "PAGES", "content"]

_SUBJECT_NAMES = "reservoir sluice penstock turbine spillway culvert aqueduct weir gauge embankment"
_VERB_NAMES = "regulates measures releases diverts lifts stores drains protects"
_SUBJECTS, _VERBS = _SUBJECT_NAMES.split(), _VERB_NAMES.split()


def _sentence(number: int) -> str:
    subject, other = _SUBJECTS[number % 10], _SUBJECTS[(number * 3 + 1) % 10]
    return f"The {subject} {_VERBS[number % 8]} what the {other} of section {number} lets through."


def content(sign: str) -> str:
    """A text with headings, paragraphs, lists, a table, code, notes and definitions; `sign` stands beside headings."""
    out = [f"<h1>Water works{sign}</h1>"]
    for part in range(6):
        body = " ".join(_sentence(part * 10 + n) for n in range(6))
        out.append(f"<section><h2 id=s{part}>Chapter {part}{sign}</h2><p>{body}</p>")
        out.append("<ul>" + "".join(f"<li><p>{_sentence(part * 10 + n)}</p></li>" for n in (7, 8)) + "</ul>")
        out.append(f"<pre><code>open_gate({part})\n    close_gate({part})</code></pre></section>")
    out.append("<table><tr><th>gate</th><th>width</th></tr><tr><td>north</td><td>12</td></tr></table>")
    out.append("<aside class='admonition note'><p>Note: ask before the gate is opened.</p></aside>")
    out.append("<dl><dt>head</dt><dd>The height that water falls.</dd></dl>")
    out.append('<header class="note-header">A header inside the text.</header>')
    return "".join(out)


CONTENT_WORDS = [
    word
    for part in content("").replace("<", " <").split("<")
    for word in part.partition(">")[2].replace("&amp;", "&").split()
]

_MENU = "".join(f"<li><a href='/m{n}'>menuword{n} menuitem</a></li>" for n in range(40))
_SPHINX_SIGN = '<a class="headerlink" href="#s" title="Link to this heading">\u00b6</a>'
_HASH_SIGN = '<a href="#s" class="hash-link" aria-label="Direct link" title="Direct link to heading">\u200b</a>'
_EDIT_SIGN = '<span class="mw-editsection"><span>[</span><a href="/edit?s=1">menuedit</a><span>]</span></span>'


def _page(body: str) -> bytes:
    head = "<meta charset=utf-8><title>Water works</title><style>p{}</style><script>var menuscript = 1</script>"
    return f"<!DOCTYPE html><html><head>{head}</head><body>{body}</body></html>".encode()


PAGES = {
    "Sphinx, classic": _page(f"""
<div class="related" role="navigation"><h3>menunav</h3><ul>{_MENU}</ul></div>
<div class="document"><div class="documentwrapper"><div class="bodywrapper"><div class="body" role="main">
{content(_SPHINX_SIGN)}</div></div></div>
<div class="sphinxsidebar" role="navigation"><div class="sphinxsidebarwrapper"><ul>{_MENU}</ul></div></div></div>
<div class="footer" role="contentinfo">&copy; menufooter <a href="/c">menucopyright</a> menucreated by Sphinx.</div>"""),
    "Sphinx, Furo": _page(f"""
<label class="overlay sidebar-overlay" for="__navigation"><div class="visually-hidden">menu Hide navigation</div></label>
<label class="overlay toc-overlay" for="__toc"><div class="visually-hidden">menu Hide table of contents</div></label>
<div class="page"><header class="mobile-header"><div class="header-center"><a href="i">menubrand</a></div></header><aside class="sidebar-drawer"><div class="sidebar-container"><ul>{_MENU}</ul></div></aside>
<div class="main"><div class="content"><div class="article-container"><a href="#" class="back-to-top">menu Back to top</a>
<div class="content-icon-container"><label class="toc-overlay-icon" for="__toc">menu Toggle table of contents</label></div>
<article role="main" id="furo-main-content">{content(_SPHINX_SIGN)}</article></div>
<footer><div class="related-pages"><a href="n">menunext</a></div><div class="bottom-of-page">menumade with</div></footer>
</div><aside class="toc-drawer"><div class="toc-sticky"><ul>{_MENU}</ul></div></aside></div></div>"""),
    "Sphinx, Read the Docs": _page(f"""
<div class="wy-grid-for-nav"><nav class="wy-nav-side"><div>{_MENU}</div></nav><section class="wy-nav-content-wrap">
<div class="rst-content"><div role="navigation"><ul class="wy-breadcrumbs"><li>menucrumb</li></ul></div>
<div role="main" class="document"><div itemprop="articleBody">{content(_SPHINX_SIGN)}</div></div>
<footer><div class="rst-footer-buttons" role="navigation"><a>menuprevious</a></div><p>menucopyright</p></footer></div>
</section></div>"""),
    "MkDocs, Material": _page(f"""
<a href="#x" class="md-skip">menuskip</a><header class="md-header"><nav>menusearch</nav></header><div class="md-container">
<main class="md-main"><div class="md-sidebar md-sidebar--primary"><nav class="md-nav"><ul>{_MENU}</ul></nav></div>
<div class="md-content"><article class="md-content__inner md-typeset">{content(_SPHINX_SIGN)}</article></div></main>
<footer class="md-footer"><nav><a>menunext</a></nav><div>menumade</div></footer></div>"""),
    "Docusaurus": _page(f"""
<nav class="navbar navbar--fixed-top"><div class="navbar__inner">menubrand</div></nav><div class="main-wrapper">
<aside class="theme-doc-sidebar-container"><nav class="menu"><ul class="menu__list">{_MENU}</ul></nav></aside>
<main><article><nav class="theme-doc-breadcrumbs"><ul><li>menucrumb</li></ul></nav><div class="theme-doc-markdown">
{content(_HASH_SIGN)}</div></article><nav class="pagination-nav"><a>menunext</a></nav></main></div>
<footer class="theme-doc-footer footer"><div>menucopyright</div></footer>"""),
    "MediaWiki": _page(f"""
<div id="mw-page-base"></div><div id="content" class="mw-body" role="main"><div id="siteSub">menufrom a wiki</div>
<a class="mw-jump-link" href="#n">menujump</a><div id="mw-content-text">{content(_EDIT_SIGN)}
<div class="navbox"><ul>{_MENU}</ul></div></div><div class="printfooter">menuretrieved</div>
<div id="catlinks" class="catlinks"><a>menucategory</a></div></div>
<div id="mw-navigation"><div id="mw-panel"><ul>{_MENU}</ul></div></div><footer id="footer">menulicence</footer>"""),
    "a blog": _page(f"""
<header class="site-header"><a href="/">menublog</a><nav><ul>{_MENU}</ul></nav></header>
<div id="primary"><div class="entry-content">{content("")}</div></div>
<div id="sidebar" class="sidebar"><h3>menurecent</h3><ul>{_MENU}</ul></div>
<footer class="site-footer"><p>menupowered by</p></footer>"""),
    "DocBook": _page(f"""
<div class="navheader"><table><tr><th colspan="3">menutitle</th></tr><tr><td><a accesskey="p" href="p">menuprev</a></td>
<th>menuchapter</th><td><a accesskey="n" href="n">menunext</a></td></tr></table><hr></div>
<div class="refentry">{content("")}</div><div class="navfooter"><hr><table><tr><td>menubefore</td>
<td><a accesskey="h" href="i">menuhome</a></td><td>menubehind</td></tr></table></div>"""),
    "Texinfo": _page(f"""
<div class="section-level-extent"><div class="header"><p>
Next: <a href="n" accesskey="n" rel="next">menunext</a>, Previous: <a href="p" rel="prev">menuprev</a>,
Up: <a href="u" rel="up">menuup</a> &nbsp; [<a href="t" rel="contents">menucontents</a>][<a href="i"
rel="index">menuindex</a>]</p></div>{content("")}<hr><div><p>Up: <a href="u" rel="up">menuup</a></p></div></div>"""),
    "bars of links above the title, without names": _page(f"""
<div id="top"><div id="hd"><h1><a href="../index.html">menu of the site</a></h1><div id="bar">
<a href="a">menuhome</a> | <a href="b">menucontents</a> | <a href="c">menuindex</a></div></div>
<table><tr><td><a href="x">menuroot</a> &gt; <a href="y">menuplace</a></td></tr></table>
<div id="bd"><div>{content("")}</div></div></div>"""),
    "a page by hand": _page(content("")),
}
