"""Shipped doubles: time, randomness, storage and scheduling that a test owns. No other room imports this one."""

from penstock.testing.clock import ManualClock, SimulatedClock
from penstock.testing.entropy import SeededEntropy
from penstock.testing.observer import RecordingObserver
from penstock.testing.process import Process, current_process, outside
from penstock.testing.simulation.loop import Deadlock, Livelock, SimulatedLoop
from penstock.testing.simulation.simulation import Simulation, inline, simulate
from penstock.testing.storage.faults import Fate, FaultPlan, Latency
from penstock.testing.storage.faulty_store import FaultyStore
from penstock.testing.storage.hostile_stores import CarelessStore, StutteringStore, UnreachableStore, WitnessStore
from penstock.testing.storage.torn_disk import PowerCut, TornDisk

__all__ = [
    "CarelessStore",
    "Deadlock",
    "Fate",
    "FaultPlan",
    "FaultyStore",
    "Latency",
    "Livelock",
    "ManualClock",
    "PowerCut",
    "Process",
    "RecordingObserver",
    "SeededEntropy",
    "SimulatedClock",
    "SimulatedLoop",
    "Simulation",
    "StutteringStore",
    "TornDisk",
    "UnreachableStore",
    "WitnessStore",
    "current_process",
    "inline",
    "outside",
    "simulate",
]
