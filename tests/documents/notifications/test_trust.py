from dataclasses import replace

import pytest

from penstock.documents.notifications.received import NotificationMessage
from penstock.documents.notifications.trust import BearerTrust, HmacTrust, signed_text
from penstock.errors import InvalidInput, PermissionDenied

OLD, NEW = b"the key of last year", b"the key of this year"
NOW = 1_756_382_400
BODY = b'{"Records": []}'


class StoppedClock:
    def __init__(self, seconds: int) -> None:
        self.seconds = seconds

    def now_ms(self) -> int:
        return self.seconds * 1000

    def monotonic(self) -> float:
        return float(self.seconds)

    async def sleep(self, seconds: float) -> None:
        raise AssertionError("nothing here waits")


def signed(trust, body=BODY, at=NOW, target="s3/handbook", **headers):
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    stamped = {"x-penstock-timestamp": str(at), "x-penstock-signature": trust.sign(body, at, target, named)}
    return NotificationMessage(body, {**named, **stamped}, target=target)


def test_what_either_key_signed_is_believed_so_that_keys_rotate():
    trust = HmacTrust([NEW, OLD], clock=StoppedClock(NOW))
    for key in (OLD, NEW):
        trust.check(signed(HmacTrust([key], clock=StoppedClock(NOW))))


def test_once_the_old_key_is_removed_it_is_refused():
    with pytest.raises(PermissionDenied, match="none of the keys"):
        HmacTrust([NEW], clock=StoppedClock(NOW)).check(signed(HmacTrust([OLD])))


@pytest.mark.parametrize("seconds", [-300, 0, 300])
def test_a_delivery_within_five_minutes_is_believed(seconds):
    trust = HmacTrust([NEW], clock=StoppedClock(NOW + seconds))
    trust.check(signed(trust))


@pytest.mark.parametrize("seconds", [-301, 301, 10**7])
def test_a_delivery_of_another_time_is_refused_although_its_signature_holds(seconds):
    trust = HmacTrust([NEW], clock=StoppedClock(NOW + seconds))
    with pytest.raises(PermissionDenied, match="300 s"):
        trust.check(signed(trust))


def test_a_changed_body_or_a_changed_time_breaks_the_signature():
    trust = HmacTrust([NEW], clock=StoppedClock(NOW))
    delivery = signed(trust)
    with pytest.raises(PermissionDenied):
        trust.check(NotificationMessage(BODY + b" ", delivery.headers))
    with pytest.raises(PermissionDenied):
        trust.check(NotificationMessage(BODY, {**delivery.headers, "x-penstock-timestamp": str(NOW + 1)}))


@pytest.mark.parametrize(
    "headers",
    [{}, {"x-penstock-timestamp": str(NOW)}, {"x-penstock-timestamp": "soon", "x-penstock-signature": "v1=00"}]
    + [
        {"x-penstock-timestamp": stamp, "x-penstock-signature": "é"} for stamp in (str(NOW), "-1", "1e9", "٣", "9" * 40)
    ],
)
def test_a_delivery_without_a_signature_that_can_be_read_is_refused(headers):
    with pytest.raises(PermissionDenied):
        HmacTrust([NEW], clock=StoppedClock(NOW)).check(NotificationMessage(BODY, headers))


@pytest.mark.parametrize("keys", [[], [b"short"]])
def test_a_check_that_would_believe_everyone_cannot_be_made(keys):
    with pytest.raises(InvalidInput):
        HmacTrust(keys)


def test_any_of_several_bearer_tokens_is_believed():
    trust = BearerTrust(["an old token of enough length", "a new token of enough length"])
    trust.check(NotificationMessage(BODY, {"authorization": "Bearer an old token of enough length"}))
    trust.check(NotificationMessage(BODY, {"authorization": "bearer a new token of enough length"}))


@pytest.mark.parametrize("value", ["", "Bearer", "Bearer ", "Bearer wrong", "Basic an old token of enough length"])
def test_other_tokens_and_schemes_are_refused(value):
    with pytest.raises(PermissionDenied):
        BearerTrust(["an old token of enough length"]).check(NotificationMessage(BODY, {"authorization": value}))


def test_a_changed_added_or_removed_header_that_decides_breaks_the_signature():
    """As somebody between sender and us would: the body is the same, and the event another one."""
    trust = HmacTrust([NEW], clock=StoppedClock(NOW))
    honest = signed(trust, ce_type="ObjectCreated", ce_subject="a.md", content_type="application/json")
    changes = [{"ce-type": "ObjectDeleted"}, {"ce-subject": "b.md"}, {"content-type": "text/plain"}, {"ce-id": "7"}]
    for change in changes:
        with pytest.raises(PermissionDenied, match="none of the keys"):
            trust.check(replace(honest, headers={**honest.headers, **change}))
    for name in ("ce-type", "content-type"):
        with pytest.raises(PermissionDenied, match="none of the keys"):
            trust.check(replace(honest, headers={key: value for key, value in honest.headers.items() if key != name}))
    for target in ("ceph/handbook", "s3/other", "s3/", ""):
        with pytest.raises(PermissionDenied, match="none of the keys"):
            trust.check(replace(honest, target=target))
    trust.check(replace(honest, headers={**honest.headers, "user-agent": "a proxy's own", "via": "1.1 somewhere"}))


@pytest.mark.parametrize("edge", ["\xa0", "\x85", "\x1f", "\x0c", "\u2003"])
def test_a_sign_at_the_edge_of_a_header_that_its_parser_would_read_breaks_the_signature(edge):
    """HTTP takes away blanks and tabs there, and nothing else: a key that ends with another space is another object."""
    trust = HmacTrust([NEW], clock=StoppedClock(NOW))
    delivery = signed(trust, ce_subject="manual.md")
    for subject in (f"manual.md{edge}", f"{edge}manual.md"):
        with pytest.raises(PermissionDenied, match="none of the keys"):
            trust.check(replace(delivery, headers={**delivery.headers, "ce-subject": subject}))
    trust.check(replace(delivery, headers={**delivery.headers, "ce-subject": " manual.md\t"}))


def test_what_is_signed_cannot_be_read_in_two_ways():
    """A header with a line break could else pass for two, or for the beginning of the body."""
    with pytest.raises(PermissionDenied, match="several lines"):
        signed_text(NOW, NotificationMessage(BODY, {"ce-type": "a\nce-subject:b"}))
    headers = {"ce-b": " x ", "ce-a": "y", "x-penstock-nonce": "n"}
    assert signed_text(5, NotificationMessage(b"body", headers, target="s3/i")) == (
        b"penstock-v3\n5\nn\ns3/i\nce-a:y\nce-b:x\n\nbody"
    )


def test_a_recorded_delivery_is_not_believed_a_second_time():
    trust = HmacTrust([NEW], clock=StoppedClock(NOW))
    delivery = signed(trust)
    trust.check(delivery)
    with pytest.raises(PermissionDenied, match="taken already"):
        trust.check(delivery)


def test_equal_deliveries_with_nonces_of_their_own_are_two():
    trust = HmacTrust([NEW], clock=StoppedClock(NOW))
    for nonce in ("1", "2"):
        trust.check(signed(trust, x_penstock_nonce=nonce))


def test_a_delivery_that_was_let_go_because_its_work_failed_may_come_again():
    trust = HmacTrust([NEW], clock=StoppedClock(NOW))
    delivery = signed(trust)
    trust.check(delivery)
    trust.release(delivery)
    trust.check(delivery)


def test_a_delivery_with_a_wrong_signature_uses_up_nothing():
    trust = HmacTrust([NEW], clock=StoppedClock(NOW))
    honest = signed(trust)
    with pytest.raises(PermissionDenied):
        trust.check(NotificationMessage(b"other", honest.headers))
    trust.check(honest)


@pytest.mark.parametrize("value", ["\udce9", "é" * 100, "v2=" + "0" * 64])
def test_headers_that_are_no_text_are_refused_and_raise_nothing_else(value):
    trust = HmacTrust([NEW], clock=StoppedClock(NOW))
    headers = {"x-penstock-timestamp": str(NOW), "x-penstock-signature": value, "ce-type": value}
    with pytest.raises(PermissionDenied):
        trust.check(NotificationMessage(BODY, headers))
    with pytest.raises(PermissionDenied):
        BearerTrust(["an old token of enough length"]).check(
            NotificationMessage(BODY, {"authorization": f"Bearer {value}"})
        )
