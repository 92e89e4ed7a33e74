"""Messages and state that earlier versions wrote stay readable, and stay what they were."""

import json
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from penstock.documents import Batcher, parse_sidecar
from penstock.documents.batcher_state import pack, unpack
from penstock.documents.contracts import decode, encode, schema_name
from penstock.documents.schemas import PUBLISHED

GOLDEN = Path(__file__).parent / "golden" / "documents"
SCHEMAS = Path(__file__).parents[2] / "docs" / "schemas"


@pytest.mark.parametrize("kind", PUBLISHED, ids=lambda kind: kind.__name__)
def test_a_message_of_the_first_version_is_read_and_written_again_byte_for_byte(kind):
    stored = (GOLDEN / schema_name(kind).replace(".json", ".v1.json")).read_bytes().strip()
    assert encode(decode(stored, kind)) == stored


@pytest.mark.parametrize("kind", PUBLISHED, ids=lambda kind: kind.__name__)
def test_a_message_of_the_first_version_fits_the_schema_of_today(kind):
    stored = (GOLDEN / schema_name(kind).replace(".json", ".v1.json")).read_bytes()
    schema = json.loads((SCHEMAS / schema_name(kind)).read_text(encoding="utf-8"))
    Draft202012Validator(schema).validate(json.loads(stored))


def test_a_batchers_state_of_the_first_version_goes_on_where_it_was():
    stored = (GOLDEN / "batcher-state.v1.bin").read_bytes()
    assert pack(unpack(stored)) == stored
    state = unpack(stored)
    assert (state.counter, state.clock_ms, len(state.pending)) == (1, 1002, 2)
    document = state.documents["aa" * 32]
    assert (document.next_seq, list(document.gap)) == (3, [5])
    assert pack(Batcher("t", "i", "m", state=unpack(stored)).state) == stored


def test_a_side_car_of_the_first_version_says_what_it_said():
    said, warnings = parse_sidecar((GOLDEN / "sidecar.v1.json").read_bytes())
    assert warnings == ()
    assert said == {
        "team": "sales",
        "year": 2024,
        "score": 0.5,
        "draft": False,
        "tags": ["a", "b"],
        "nothing": None,
        "größe": "m",
    }
