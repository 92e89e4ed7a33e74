"""Shipped doubles: time, randomness, storage and scheduling that a test owns. No other room imports this one."""

from penstock.testing.clock import ManualClock, SimulatedClock
from penstock.testing.entropy import SeededEntropy
from penstock.testing.loop import Deadlock, Livelock, SimulatedLoop
from penstock.testing.observer import RecordingObserver
from penstock.testing.process import Process, current_process, outside
from penstock.testing.simulation import Simulation, simulate

__all__ = [
    "Deadlock",
    "Livelock",
    "ManualClock",
    "Process",
    "RecordingObserver",
    "SeededEntropy",
    "SimulatedClock",
    "SimulatedLoop",
    "Simulation",
    "current_process",
    "outside",
    "simulate",
]
