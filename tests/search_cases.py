"""Helpers that the tests of a study share."""

import json
import sqlite3
from contextlib import closing

import pandas as pd

import training_cases
from rnc.search import search
from rnc.search import study as study_file
from rnc.training.record import Record

RATES = [0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064]
BASE = training_cases.quick(scheme="end2end", epochs=3)
TABLE = training_cases.columns()


def run(out, space, base=BASE, table=TABLE, **options):
    return list(search(table, base, out, space=space, **options))


def frame_of(out):
    return pd.read_csv(out / "trials.csv", keep_default_na=False)


def best_of(out):
    return json.loads((out / "best.json").read_text())


def record(stage, epoch, epochs, error):
    return Record(stage, epoch, epochs, 0.1, 1.0, None, error, 0.0)


def changed(monkeypatch, first, then=None):
    """A training that does something else in its first call."""
    calls = []
    plain = then or study_file.train

    def train(model, table, config, folder=None):
        calls.append(config)
        if len(calls) == 1:
            yield from first(config)
        else:
            yield from plain(model, table, config, folder)

    monkeypatch.setattr(study_file, "train", train)
    return calls


class Clock:
    """A clock for a study: who sleeps on it finds all signs of life older, at once."""

    def __init__(self, database, seconds):
        self.database, self.seconds, self.sleeps = database, seconds, 0

    def sleep(self, seconds):
        self.sleeps += 1
        older = f"datetime(heartbeat, '-{self.seconds} seconds')"
        with closing(sqlite3.connect(self.database)) as base, base:
            base.execute(f"UPDATE trial_heartbeats SET heartbeat = {older}")
