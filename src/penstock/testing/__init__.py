"""Shipped doubles: time, randomness, storage and scheduling that a test owns. No other room imports this one."""

from penstock.testing.clock import ManualClock, SimulatedClock
from penstock.testing.entropy import SeededEntropy
from penstock.testing.observer import RecordingObserver

__all__ = ["ManualClock", "RecordingObserver", "SeededEntropy", "SimulatedClock"]
