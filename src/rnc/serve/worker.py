"""One thread that calls the model. Requests that wait at the same time share one call.

A call of a network costs much more than one more row in it, so whatever has come while the last
call ran is answered by the next one, together. Nobody waits for others to come.
"""

import asyncio
import queue
import threading
from concurrent.futures import Future
from typing import NamedTuple

from rnc.serve.served import Question, Said, ServedModel

BATCH_ROWS = 256
"""Rows of a shared call; a question with more is a call of its own."""


class _Job(NamedTuple):
    question: Question
    answer: "Future[Said]"


class ModelWorker:
    """Answers questions in a thread of its own.

    Args:
        served: what answers.
        batch_rows: rows of a shared call; 1: every question is a call of its own.
    """

    def __init__(self, served: ServedModel, batch_rows: int = BATCH_ROWS) -> None:
        self._served, self._batch_rows = served, batch_rows
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._held: _Job | None = None
        self._thread = threading.Thread(target=self._work, name="rnc-model", daemon=True)

    def start(self) -> None:
        """Begin to answer."""
        self._thread.start()

    def stop(self) -> None:
        """Answer what waits, and end."""
        self._jobs.put(None)
        self._thread.join()

    def put(self, question: Question) -> "Future[Said]":
        """Ask a question; the answer comes when it is its turn."""
        job = _Job(question, Future())
        self._jobs.put(job)
        return job.answer

    async def ask(self, question: Question) -> Said:
        """The answer to a question."""
        return await asyncio.wrap_future(self.put(question))

    def _work(self) -> None:
        while (jobs := self._next()) is not None:
            try:
                answers = self._served.answer([job.question for job in jobs])
            except Exception:  # one question must not be the end of others, nor of the thread
                for job in jobs:
                    self._alone(job)
                continue
            for job, answer in zip(jobs, answers, strict=True):
                _give(job, answer)

    def _alone(self, job: _Job) -> None:
        try:
            _give(job, self._served.answer([job.question])[0])
        except Exception as error:
            if job.answer.set_running_or_notify_cancel():
                job.answer.set_exception(error)

    def _next(self) -> list[_Job] | None:
        """The questions of the next call: the first that waits, and those behind it that fit."""
        job, self._held = self._held or self._jobs.get(), None
        if job is None:
            return None
        jobs, rows = [job], len(job.question.x)
        while rows < self._batch_rows:
            try:
                job = self._jobs.get_nowait()
            except queue.Empty:
                break
            if job is None:
                self._jobs.put(None)  # to stop is for after this call
                break
            rows += len(job.question.x)
            if rows > self._batch_rows:
                self._held = job
                break
            jobs.append(job)
        return jobs


def _give(job: _Job, answer: Said) -> None:
    if job.answer.set_running_or_notify_cancel():  # nobody waits if the client has gone
        job.answer.set_result(answer)
