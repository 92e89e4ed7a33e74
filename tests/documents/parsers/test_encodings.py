"""Text in any of the web's encodings is read as what it says, and what was used is told."""

import charset_normalizer
import pytest

from penstock.documents.parsers import Format, ParserLimits, is_utf8, sniff
from penstock.documents.parsers.encodings import declared_charset, decoded
from penstock.documents.parsers.plain.text import parse_text
from penstock.documents.parsers.web.markdown import parse_markdown
from penstock.documents.parsers.web.markup import parse_html

JAPANESE = "吾輩は猫である。名前はまだ無い。どこで生れたか頓と見当がつかぬ。"
TRADITIONAL = "貓在舊窗旁睡覺，夢見魚。明天我們一起去市場買東西。"
SIMPLIFIED = "猫在旧窗旁睡觉，梦见鱼。明天我们一起去市场买东西。"
POLISH = "Zażółć gęślą jaźń. Kot śpi obok starego okna i śni o rybach; jutro pójdziemy razem na targ po świeże łososie."
CZECH = "Příliš žluťoučký kůň úpěl ďábelské ódy. Kočka spí vedle starého okna a zítra půjdeme společně na trh."
LEGACY = [
    ("French", "latin-1"),
    ("French", "cp1252"),
    ("German", "latin-1"),
    ("Spanish", "cp1252"),
    ("Portuguese", "latin-1"),
    ("Swedish", "latin-1"),
    ("Danish", "latin-1"),
    ("Icelandic", "latin-1"),
    ("Hungarian", "cp1250"),
    ("Croatian", "cp1250"),
    ("Turkish", "cp1254"),
    ("Russian", "koi8_r"),
    ("Russian", "cp1251"),
    ("Russian", "iso8859_5"),
    ("Ukrainian", "koi8_u"),
    ("Bulgarian", "cp1251"),
    ("Greek", "cp1253"),
    ("Hebrew", "cp1255"),
    ("Arabic", "cp1256"),
    ("Thai", "cp874"),
    ("Korean", "euc_kr"),
    ("Chinese", "gbk"),
]


@pytest.mark.parametrize(("language", "encoding"), LEGACY)
def test_two_sentences_in_a_legacy_encoding_are_enough_to_read_them(languages, language, encoding):
    read = decoded(languages[language].encode(encoding))
    assert read.text == languages[language]
    assert f"read as {read.encoding}, which was guessed" in read.warnings[0]


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        (JAPANESE, "shift_jis"),
        (JAPANESE, "euc_jp"),
        (JAPANESE, "iso2022_jp"),
        (TRADITIONAL, "big5"),
        (SIMPLIFIED, "gb2312"),
        (POLISH, "iso8859_2"),
        (POLISH, "cp1250"),
        (CZECH, "cp1250"),
    ],
)
def test_a_legacy_text_is_read_alone_and_among_much_ascii(text, encoding):
    assert decoded(text.encode(encoding)).text == text
    around = "Plain words on many lines.\n" * 2000
    assert decoded((around + text + "\n" + around).encode(encoding)).text == around + text + "\n" + around


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32", "utf-8-sig"])
@pytest.mark.parametrize("text", ["猫 and dog", "plain", "Größe"])
def test_a_mark_decides(encoding, text):
    read = decoded(text.encode(encoding))
    assert (read.text, read.encoding, read.warnings) == (text, encoding.removesuffix("-sig"), ())


@pytest.mark.parametrize("codec", ["utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"])
def test_the_order_of_bytes_is_the_marks(codec):
    assert decoded(("\ufeff" + "katze und größe").encode(codec)).text == "katze und größe"


@pytest.mark.parametrize("codec", ["utf-16-le", "utf-16-be"])
def test_utf_16_without_its_mark_is_read_and_told(codec):
    read = decoded("Plain words, and größe.".encode(codec))
    assert read.text == "Plain words, and größe."
    assert "no byte order mark" in read.warnings[0]


@pytest.mark.parametrize("codec", ["utf-16", "utf-32", "utf-16-le"])
def test_a_page_in_wide_characters_is_a_page(codec):
    data = "<!DOCTYPE html><html><body><p>猫 and words of one byte each</p></body></html>".encode(codec)
    assert sniff(data, name="page.txt") is Format.HTML
    assert parse_html(data, ParserLimits()).text.decode() == "猫 and words of one byte each"


@pytest.mark.parametrize("codec", ["utf-16-le", "utf-16-be"])
def test_utf_16_without_its_mark_does_not_pass_as_utf_8_for_its_zero_bytes(codec):
    data = "Backup is important for every user.\n".encode(codec)
    assert not is_utf8(data)
    assert not is_utf8(data * 200, cut=True)
    assert is_utf8(b"zero \0 bytes are characters of UTF-8 too")


def test_a_guess_against_what_is_declared_says_so():
    read = decoded("Größe Übermaß Straße".encode("cp1252") * 3, "utf-8")
    assert read.warnings[0] == "read as cp1252, which was guessed: it is not in utf-8, as it declares"
    assert decoded("Größe Übermaß Straße".encode("cp1252") * 3, "no-such").warnings[0].endswith("is declared")


def test_what_is_declared_decides_over_a_guess_and_utf_8_over_what_is_declared():
    data = "Größe".encode("latin-1")
    assert decoded(data, "koi8-r").text == data.decode("koi8-r")
    assert decoded("Größe".encode(), "koi8-r").text == "Größe"
    assert parse_text("Größe 100 €".encode("cp1252"), "text/plain; charset=iso-8859-1").text.decode() == "Größe 100 €"
    assert (
        parse_markdown("# Größe".encode("cp1252"), ParserLimits(), 'text/markdown; charset="windows-1252"').title
        == "Größe"
    )


@pytest.mark.parametrize(
    "name", ["rot13", "hex", "unicode_escape", "utf-7", "no-such", "idna", "zlib", "x" * 500, "\0"]
)
def test_a_declared_name_that_is_no_encoding_of_text_is_ignored(name):
    assert decoded("Größe und Wärme".encode("latin-1"), name).text == "Größe und Wärme"


def test_characters_that_do_not_decode_are_counted_and_told():
    read = decoded("猫です".encode("euc_jp") + b"\xff\xff" + b" end", "euc-jp")
    assert read.text.startswith("猫です")
    assert read.warnings == ("2 characters could not be decoded as euc_jp and were replaced",)


def test_damaged_utf_8_stays_utf_8():
    data = "Größe, Wärme, Flüsse".encode() + b"\xff\xfe"
    assert decoded(data).encoding == "utf-8"
    assert parse_text(data).text == data


def test_a_text_that_was_cut_inside_a_character_is_still_utf_8():
    data = "Größe".encode()[:3]
    assert is_utf8(data, cut=True)
    assert not is_utf8(data)
    assert not is_utf8(b"a\xff\xfeb", cut=True)


@pytest.mark.parametrize("data", [b"\x01\x02\x00\x03" * 64, bytes(range(256)) * 8, b"a\0b"])
def test_bytes_that_are_no_text_are_not_taken_for_wide_characters(data):
    from penstock.errors import Unsupported

    with pytest.raises(Unsupported):
        sniff(data)


def test_a_charset_is_found_where_it_is_declared():
    assert declared_charset("text/html; charset=utf-8") == "utf-8"
    assert declared_charset("<meta charset = 'Shift_JIS'>") == "Shift_JIS"
    assert declared_charset("text/html") == ""


@pytest.mark.parametrize(
    ("encoding", "sentence"),
    [
        ("gbk", "水泵和阀门的维护手册"),
        ("gbk", "请每年检查一次并记录结果"),
        ("euc_jp", "東京都港区芝公園"),
        ("cp1251", "Совещание перенесено на среду"),
        ("cp1255", "תחזוקה של משאבות ושסתומים"),
        ("cp874", "การประชุมเลื่อนไปเป็นวันพุธหน้า"),
        ("cp949", "회의는 다음 주 수요일 오후 두 시입니다"),
        ("koi8-r", "Обслуживание насосов и клапанов"),
    ],
)
@pytest.mark.parametrize("times", [3, 20])
def test_a_text_of_one_sentence_is_read_in_the_encoding_in_which_it_is_spelled_right(
    encoding: str, sentence: str, times: int
) -> None:
    """Too short for a frequency of letters: the bytes are letters of other scripts too, in an order that none has."""
    text = f"{sentence}\n" * times
    assert decoded(text.encode(encoding)).text == text


@pytest.mark.parametrize(
    ("text", "encoding"), [("这是一篇很长的中文文章没有空格也没有换行" * 5_000, "gb18030"), ("ä" * 1_000_000, "cp1252")]
)
def test_one_line_without_blanks_is_guessed_from_its_beginning(monkeypatch, text, encoding):
    seen = []
    real = charset_normalizer.from_bytes

    def watched(sample, **given):
        seen.append(len(sample))
        return real(sample, **given)

    monkeypatch.setattr(charset_normalizer, "from_bytes", watched)
    read = decoded(text.encode(encoding))
    assert max(seen) <= 4096
    assert len(read.text) == len(text)
