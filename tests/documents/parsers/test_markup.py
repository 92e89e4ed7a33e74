"""No word of a page's content is lost, and no menu is kept: words are counted in and out."""

import random
import re
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest
from tests.documents.parsers.pages import CONTENT_WORDS, PAGES, content

from penstock.documents.parsers import ParserLimits
from penstock.documents.parsers.web import nesting
from penstock.documents.parsers.web.markup import parse_html
from penstock.documents.parsers.web.nesting import check_nesting
from penstock.errors import AtCapacity

LIMITS = ParserLimits()
INSTALLED = ("/usr/share/doc", "/usr/lib/node_modules/npm/docs")


def words(text: str) -> list[str]:
    return re.findall(r"\w+", text)


def page(body: str) -> bytes:
    return f"<!DOCTYPE html><html><body>{body}</body></html>".encode()


@pytest.mark.parametrize("kind", PAGES)
def test_every_word_of_the_content_comes_out_once_and_in_order_and_no_menu_does(kind):
    parsed = parse_html(PAGES[kind], LIMITS)
    text = parsed.text.decode()
    assert words(text) == words(" ".join(CONTENT_WORDS))
    assert "menu" not in text
    assert "\u00b6" not in text
    assert parsed.warnings == ()
    assert parsed.title == "Water works"


def test_code_keeps_its_lines_and_tables_their_cells():
    text = parse_html(PAGES["a page by hand"], LIMITS).text.decode()
    assert "open_gate(3)\n    close_gate(3)" in text
    assert "gate | width\nnorth | 12" in text


def test_words_in_marks_stay_whole_and_blocks_stay_apart():
    text = parse_html(page("<p>un<b>brok</b>en <i>words</i>\n  here</p><p>next</p><div>a<br>b</div>"), LIMITS).text
    assert text.decode() == "unbroken words here\n\nnext\n\na\nb"


def test_a_menu_with_much_text_in_it_is_a_text():
    prose = " ".join(f"Sentence {n} of a text that stands in a strange place." for n in range(40))
    for place in ("<nav>{}</nav>", "<footer>{}</footer>", "<aside>{}</aside>", "<div class=sidebar>{}</div>"):
        parsed = parse_html(page(f"<p>{prose}</p>" + place.format(prose.replace("Sentence", "Phrase"))), LIMITS)
        assert "Phrase 39" in parsed.text.decode(), place
        assert parsed.warnings == ()


def test_a_page_of_nothing_but_links_is_taken_whole():
    links = "".join(f"<li><a href=/{n}>chapter {n}</a></li>" for n in range(50))
    assert "chapter 49" in parse_html(page(f"<nav><ul>{links}</ul></nav>"), LIMITS).text.decode()


LINKS = "".join(f"<li><a href=/{n}>chapter {n}</a></li>" for n in range(20))


def test_a_footnote_and_a_remark_are_text_wherever_they_stand():
    note = "<aside role=note class='footnote brackets'><a href='#id1'>1</a><p>As the gate says.</p></aside>"
    remark = "<aside><p>Ask <a href='k'>the keeper</a> before the gate is opened.</p></aside>"
    menu = f"<aside><h3>Pages</h3><ul>{LINKS}</ul></aside>"
    text = parse_html(page(f"<h1>Gates</h1><p>They open.</p>{note}{remark}{menu}"), LIMITS).text.decode()
    assert "As the gate says." in text
    assert "Ask the keeper before the gate is opened." in text
    assert "chapter" not in text


@pytest.mark.parametrize(
    "body",
    [
        f"<ul>{LINKS}</ul><p>Read them in this order.</p>",
        f"<h1><a href='#here'>Contents</a></h1><ul>{LINKS}</ul><h1>Notes</h1><p>None.</p>",
        f"<h1>Contents</h1><ul>{LINKS}</ul><h1>Notes</h1><p>None.</p>",
        f"<p>{'A preface of some length. ' * 12}</p><ul>{LINKS}</ul><h1>Notes</h1><p>None.</p>",
    ],
    ids=["no title", "a title that links to itself", "behind the title", "behind a text"],
)
def test_links_are_left_out_only_above_the_title(body):
    # So much text that the page is not taken whole for want of it.
    prose = f"<p>{'The gate opens. ' * 60}</p>"
    assert "chapter 19" in parse_html(page(body + prose), LIMITS).text.decode()
    above = parse_html(page(f"<ul>{LINKS}</ul><h1>Notes</h1>{prose}"), LIMITS).text.decode()
    assert "chapter" not in above


def test_a_small_page_with_a_link_to_the_next_keeps_its_words():
    text = parse_html(page("<div>Four words of text. <a rel=next href=n>Next</a></div>"), LIMITS).text.decode()
    assert "Four words of text." in text


def test_a_soft_hyphen_is_no_part_of_its_word():
    assert parse_html(page("<p>hy&shy;drau&shy;lics</p>"), LIMITS).text == b"hydraulics"


def test_text_that_is_left_out_beyond_the_odd_line_is_told():
    footers = "".join(f"<footer>{'Terms and conditions apply. ' * 15}</footer>" for _ in range(3))
    parsed = parse_html(page(f"<main><p>{'Some words of content. ' * 60}</p></main>{footers}"), LIMITS)
    assert "Terms" not in parsed.text.decode()
    assert re.fullmatch(  # type: ignore[call-overload]
        r"\d+ of \d+ characters were left out as menus, headers and footers of the page", *parsed.warnings
    )


def test_links_that_are_words_stay_when_they_point_into_the_page():
    text = parse_html(page('<p>See <a href="#x">the next part</a><a href="#s">#</a>.</p>'), LIMITS).text.decode()
    assert text == "See the next part."


def test_pages_on_this_machine_lose_no_words_outside_of_links_without_a_warning():
    """Other projects' real pages, where some are installed: counted against all of the page's text."""
    from selectolax.lexbor import LexborHTMLParser

    pages = (path for folder in INSTALLED for path in sorted(Path(folder).rglob("*.html"))[:60])
    found = [path for path in pages if path.is_file()]
    if not found:
        pytest.skip("no documentation in HTML is installed here")
    for path in found:
        data = path.read_bytes()
        parsed = parse_html(data, LIMITS)
        tree = LexborHTMLParser(data)
        tree.strip_tags(["script", "style", "noscript", "template", "svg", "button", "select", "a", "title"])
        before = Counter(words(tree.body.text(separator=" "))) if tree.body else Counter()
        lost = before - Counter(words(parsed.text.decode()))
        allowed = max(80, 0.12 * before.total())
        assert lost.total() <= allowed or parsed.warnings, f"{path}: {lost.total()} of {before.total()}"


HOSTILE = {
    "open tags that never end": b"<a ",
    "open tags of many names": b"<a <b <c ",
    "values that never end": b'<a b="',
    "signs of equality": b"<a = = ",
    "comments that never end": b"<!-- ",
    "scripts that never end": b"<script><",
    "ends of nothing": b"</b>",
    "crossed": b"<b><i></b></i>",
    "quotes": b"<p '\" a='>\">",
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", HOSTILE)
def test_checking_a_page_takes_time_in_proportion_to_its_size(kind):
    def seconds(size: int) -> float:
        data = HOSTILE[kind] * (size // len(HOSTILE[kind]))
        began = time.process_time()
        with suppress(AtCapacity):
            check_nesting(data, 2_000)
        return time.process_time() - began

    small, large = (min(seconds(size) for _ in range(3)) for size in (100_000, 800_000))
    assert large < 24 * small + 0.02
    assert large < 2.0


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_page_of_60_kb_is_parsed_or_refused_within_a_second(kind):
    began = time.process_time()
    with suppress(AtCapacity):
        parse_html(b"<html>" + HOSTILE[kind] * (60_000 // len(HOSTILE[kind])), LIMITS)
    assert time.process_time() - began < 1.0


@pytest.mark.parametrize(
    "deep",
    [
        b"<div title='<'>" * 3000,
        b"<div title='</div>'>" * 3000,
        b"<div></span>" * 3000,
        b"<div/>" * 3000,
        b'<div a=">">' * 3000,
        b"<DIV\n>" * 3000,
        b"<!-->" + b"<div>" * 3000 + b"-->",
        b"<!--->" + b"<div>" * 3000 + b"-->",
        b"<!-- --!>" + b"<div>" * 3000 + b"-->",
        b"<div><!--</div>-->" * 3000,
        b"<div><title></div></title>" * 3000,
    ],
)
def test_no_disguise_hides_how_deep_a_page_is(deep):
    with pytest.raises(AtCapacity, match="nested"):
        check_nesting(deep, 2_000)


@pytest.mark.parametrize(
    "flat",
    [
        b"<script>" + b"'<div>' + " * 3000 + b"</script>",
        b"<!-- " + b"<div>" * 3000 + b" -->",
        b"<p title='" + b"<div>" * 3000 + b"'>",
        b"<b><i>x</b>" * 3000,
        b"<p>a<br>b<img src=x>" * 3000,
        content("").encode() * 30,
    ],
)
def test_what_only_looks_deep_is_read(flat):
    check_nesting(flat, 2_000)


PARTS = (
    b"<div>", b"</div>", b"<p>", b"<b a='>'>", b"</b>", b'<i c="d" e>', b"</i>", b"text", b"<!-- ", b"-->", b"--!>", b"<!-->",
    b"<script>", b"</script>", b"<SCRIPT x>", b"</Script >", b"<title>", b"</title>", b"<!doctype a>", b"<?x?>", b'"', b"'",
    b"<", b">", b"/", b"<a href=x/y>", b"<br/>", b" ", b"<![CDATA[", b"<a " + b"x " * 300 + b">", b"<a " + b"x='1'" * 600 + b">",
)  # fmt: skip


@pytest.mark.parametrize("seed", range(40))
def test_a_page_that_is_found_tame_as_a_whole_is_as_deep_as_its_tags_say(seed):
    """The quick look never passes what a look at each tag refuses, nor the other way round."""
    rng = random.Random(seed)
    for _ in range(50):
        page = b"".join(rng.choices(PARTS, k=rng.randrange(40)))
        for depth in (1, 3, 6):
            assert outcome(check_nesting, page, depth) == outcome(check_by_tag, page, depth), page


def check_by_tag(page: bytes, depth: int) -> None:
    nesting._check_depth(nesting._tags(page), len(page), depth)


def outcome(check, page: bytes, depth: int) -> str:
    try:
        check(page, depth)
    except AtCapacity as error:
        return "deep" if "nested" in str(error) else "attributes"
    return "read"


def test_an_element_with_a_hundred_thousand_attributes_is_refused_at_once():
    data = b"<p " + b" ".join(b"a%d=1" % n for n in range(100_000)) + b">x</p>"
    began = time.process_time()
    with pytest.raises(AtCapacity, match="attributes"):
        parse_html(data, LIMITS)
    assert time.process_time() - began < 1.0


def test_ordinary_tags_end_where_all_tags_do():
    """The short way over a tag and the long one agree, on tags of every make."""
    chance = random.Random(7)
    pieces = [b" ", b"a", b"=", b'"', b"'", b">", b"/", b"<", b"\n", b'b="c"', b" d", b"e='f'", b'="', b"\0"]
    for _ in range(20_000):
        rest = b"".join(chance.choices(pieces, k=chance.randint(0, 12)))
        assert nesting.tag_end(rest, 0) == nesting._tag_end_of_any(rest, 0), rest


def test_labels_of_a_drawing_are_read_and_the_titles_of_icons_are_not():
    """Grammars are drawn as railroads, and flows as boxes: their words stand nowhere else."""
    page = (
        "<p>Before</p><svg><title>Icon</title><text>FOREIGN</text><path d='M'/><text>KEY <tspan>name</tspan></text>"
        "<defs><text>unused</text></defs><foreignObject><p>Box of <b>words</b></p></foreignObject></svg>"
        "<p>A <svg><title>link</title><path/></svg> line with an icon.</p>"
    )
    parsed = parse_html(page.encode(), ParserLimits())
    assert " ".join(parsed.text.decode().split()) == "Before FOREIGN KEY name Box of words A line with an icon."
    assert "A line with an icon." in parsed.text.decode()
    assert parsed.title is None
