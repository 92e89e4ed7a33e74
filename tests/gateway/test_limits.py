"""Quotas: by tenant, in time, and never for ever."""

import pytest

from penstock.gateway.access.limits import LoginGuard, TenantQuotas, TooMany
from penstock.gateway.config import GatewayConfig, TenantLimits
from penstock.testing import ManualClock


def quotas(clock, **limits):
    return TenantQuotas(GatewayConfig(tenant=TenantLimits(**limits)), clock)


def spend(quota, tenant="a", size=0):
    with quota.request(tenant, size):
        pass


def test_a_tenant_that_has_used_its_requests_up_is_told_when_to_come_back():
    clock = ManualClock()
    quota = quotas(clock, requests_per_second=0.5, request_burst=2)
    spend(quota)
    spend(quota)
    with pytest.raises(TooMany) as refused:
        spend(quota)
    assert refused.value.retry_after_seconds == 2
    clock.advance(2)
    spend(quota)


def test_one_tenants_quota_is_not_anothers():
    quota = quotas(ManualClock(), requests_per_second=1, request_burst=1)
    spend(quota, "a")
    with pytest.raises(TooMany):
        spend(quota, "a")
    spend(quota, "b")


def test_a_body_larger_than_the_bucket_is_taken_and_paid_for_later():
    clock = ManualClock()
    quota = quotas(clock, bytes_per_second=10, byte_burst=100)
    spend(quota, size=1_000)
    with pytest.raises(TooMany):
        spend(quota, size=1)
    clock.advance(91)
    spend(quota, size=1)


def test_requests_under_way_are_counted_until_they_end():
    quota = quotas(ManualClock(), concurrent_requests=1)
    with quota.request("a", 0):
        with pytest.raises(TooMany):
            spend(quota)
        spend(quota, "b")
    spend(quota)


def test_idle_tenants_are_forgotten_before_memory_grows():
    quota = quotas(ManualClock())
    for number in range(10_050):
        spend(quota, f"t{number}")
    assert len(quota._tenants) <= 10_001


def test_an_address_that_guesses_is_stopped_and_let_in_again_later():
    clock = ManualClock()
    guard = LoginGuard(3, clock)
    for _ in range(3):
        guard.check("1.2.3.4")
        guard.failed("1.2.3.4")
    with pytest.raises(TooMany):
        guard.check("1.2.3.4")
    guard.check("5.6.7.8")
    clock.advance(60)
    guard.check("1.2.3.4")


def test_whoever_was_let_in_goes_on_beside_a_neighbour_that_guesses_and_a_right_guess_tells_nothing():
    clock = ManualClock()
    guard = LoginGuard(3, clock)
    guard.succeeded("1.2.3.4", "Bearer mine")
    for _ in range(3):
        guard.failed("1.2.3.4")
    guard.check("1.2.3.4", "Bearer mine")
    for credentials in ("Bearer right", "Bearer wrong", None):
        with pytest.raises(TooMany):
            guard.check("1.2.3.4", credentials)
    for _ in range(3):
        guard.failed("5.6.7.8")
    with pytest.raises(TooMany):
        guard.check("5.6.7.8", "Bearer mine")
    for number in range(10_050):
        guard.succeeded("1.2.3.4", f"Bearer {number}")
    assert len(guard._good) <= 10_000
