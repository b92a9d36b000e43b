"""Watches on the server's side: each is one thread that follows the history and writes JSON lines."""

from __future__ import annotations

import json
import select
import socket
import time
from collections.abc import Iterator
from typing import Any

from dra_driver.sandbox.apiserver.history import Change
from dra_driver.sandbox.apiserver.kinds import Resource
from dra_driver.sandbox.apiserver.refusals import Refusal
from dra_driver.sandbox.apiserver.selectors import Match
from dra_driver.sandbox.apiserver.store import Store

_LOOK_FOR_HANGUP = 0.5


class Stream:
    """One watch. `cut`, `mute` and `bookmark` are set from outside, under the store's lock."""

    def __init__(self, store: Store, resource: Resource, namespace: str, match: Match, connection: socket.socket) -> None:
        self.cut = False
        self.mute = False
        self.bookmark = False
        self._store = store
        self._resource = resource
        self._namespace = namespace
        self._match = match
        self._connection = connection

    def lines(self, version: int | None, timeout: float, *, bookmarks: bool, every: float) -> Iterator[bytes]:
        """Events after `version`, or all objects first where it is None, for `timeout` seconds.

        Bookmarks come as from a real server: `every` so many seconds, and before the end of a watch that is longer than that.
        """
        if version is None:
            found, version, _, _ = self._store.page(self._resource, self._namespace, self._match, 0, "")
            yield from (_line("ADDED", entry.raw) for entry in found)
        end = time.monotonic() + timeout
        next_bookmark = time.monotonic() + every
        while not self.cut:
            try:
                changes, version, due = self._next(version, min(end, next_bookmark))
            except Refusal as refusal:
                yield _line("ERROR", json.dumps(refusal.status()).encode())
                return
            for change in changes:
                if event := change.event(self._match):
                    yield _line(*event)
            over = time.monotonic() >= end
            if bookmarks and (due or (over and timeout > every) or time.monotonic() >= next_bookmark) and not self.cut:
                next_bookmark = time.monotonic() + every
                yield _line("BOOKMARK", json.dumps(self._bookmark(version)).encode())
            if over:
                return

    def _next(self, version: int, until: float) -> tuple[list[Change], int, bool]:
        """What follows, waiting at most `until`: the changes of this kind, the version they lead to, and whether a bookmark was asked for."""
        store = self._store
        with store.changed:
            while True:
                if not self.mute:
                    changes = store.history.after(version)
                    mine = [change for change in changes if change.resource is self._resource and self._is_here(change)]
                    version = max(version, store.history.version)
                    if mine or self.cut or self.bookmark or time.monotonic() >= until:
                        asked, self.bookmark = self.bookmark, False
                        return mine, version, asked
                elif self.cut:
                    return [], version, False
                if _has_hung_up(self._connection):
                    self.cut = True
                store.changed.wait(max(0.01, min(_LOOK_FOR_HANGUP, until - time.monotonic())) if not self.cut else 0)

    def _is_here(self, change: Change) -> bool:
        entry = change.new or change.old
        return not self._namespace or (entry is not None and entry.data["metadata"].get("namespace") == self._namespace)

    def _bookmark(self, version: int) -> dict[str, Any]:
        metadata = {"resourceVersion": str(version)}
        return {"kind": self._resource.kind, "apiVersion": self._resource.group_version, "metadata": metadata, "spec": {}}


def _line(kind: str, raw: bytes) -> bytes:
    return b'{"type":"%s","object":%s}\n' % (kind.encode(), raw)


def _has_hung_up(connection: socket.socket) -> bool:
    try:
        readable, _, _ = select.select([connection], [], [], 0)
        return bool(readable) and not connection.recv(1, socket.MSG_PEEK)
    except (OSError, ValueError):
        return True
