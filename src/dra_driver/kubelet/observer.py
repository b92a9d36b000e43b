"""What the parts of a kubelet plugin report about their work, for metrics. This one listens to nothing."""

from __future__ import annotations


class Observer:
    """Overwrite what you want to know. Called from any thread; must not raise and must not wait."""

    def claim(self, operation: str, outcome: str) -> None:
        """A claim was handled. `operation` is prepare or unprepare.

        `outcome` is done, retry (a retryable error), refused, or joined: another call was at work on it, and is reported itself.
        """

    def guard_wait(self, seconds: float, outcome: str) -> None:
        """A prepare waited for a device that another claim held. `outcome` is freed, timeout, given_up or crowded."""

    def sweep(self, outcome: str, count: int = 1) -> None:
        """Prepared claims were looked at. `outcome` is kept, absent, busy, released, unknown or failed."""

    def journal(self, outcome: str) -> None:
        """The journal was opened (opened, quarantined), or a claim of it was rebuilt or rolled back (rebuilt, rolled_back).

        unknown_device: a rebuilt claim holds a device that this driver cannot tell.
        """

    def cdi_repaired(self, count: int) -> None:
        """CDI specs of prepared claims were missing or outdated and are written again."""
