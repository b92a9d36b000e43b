"""The order in which Go's sort.Slice leaves what it sorts. It is a pattern-defeating quicksort: not stable, but the same for the same input."""

from __future__ import annotations

from collections.abc import Callable

_INSERTION = 12
_SHORT = 50
_PARTIAL_STEPS = 5
_ALL_SWAPPED = 12
_ASCENDING, _DESCENDING, _UNKNOWN = range(3)

Less = Callable[[int, int], bool]


def sort_like_go(count: int, less: Less) -> list[int]:
    """The numbers below `count` in the order of what they stand for, which `less` compares."""
    sorter = _Sorter(count, less)
    sorter.quick(0, count, count.bit_length())
    return sorter.order


class _Sorter:
    """Places are indexes of `order`; ranges exclude their end."""

    def __init__(self, count: int, less: Less) -> None:
        self.order = list(range(count))
        self._less_numbers = less

    def _less(self, left: int, right: int) -> bool:
        return self._less_numbers(self.order[left], self.order[right])

    def _swap(self, left: int, right: int) -> None:
        self.order[left], self.order[right] = self.order[right], self.order[left]

    def quick(self, start: int, end: int, bad_pivots: int) -> None:
        balanced = partitioned = True
        while end - start > _INSERTION:
            length = end - start
            if bad_pivots == 0:
                self._heap(start, end)
                return
            if not balanced:
                self._scatter(start, length)
                bad_pivots -= 1
            pivot, pattern = self._pivot(start, length)
            if pattern == _DESCENDING:
                self.order[start:end] = reversed(self.order[start:end])
                pivot, pattern = end - 1 - (pivot - start), _ASCENDING
            if balanced and partitioned and pattern == _ASCENDING and self._nearly_sorted(start, end):
                return
            if start > 0 and not self._less(start - 1, pivot):
                start = self._partition_equal(start, end, pivot)
                continue
            middle, partitioned = self._partition(start, end, pivot)
            left, right = middle - start, end - middle
            balanced = min(left, right) >= length // 8
            if left < right:
                self.quick(start, middle, bad_pivots)
                start = middle + 1
            else:
                self.quick(middle + 1, end, bad_pivots)
                end = middle
        self._insertion(start, end)

    def _insertion(self, start: int, end: int) -> None:
        for place in range(start + 1, end):
            self._sink(place, start)

    def _sink(self, place: int, lowest: int) -> None:
        """Moves one element down to where it belongs."""
        while place > lowest and self._less(place, place - 1):
            self._swap(place, place - 1)
            place -= 1

    def _heap(self, start: int, end: int) -> None:
        count = end - start
        for root in range((count - 1) // 2, -1, -1):
            self._sift(root, count, start)
        for last in range(count - 1, -1, -1):
            self._swap(start, start + last)
            self._sift(0, last, start)

    def _sift(self, root: int, count: int, start: int) -> None:
        while (child := 2 * root + 1) < count:
            if child + 1 < count and self._less(start + child, start + child + 1):
                child += 1
            if not self._less(start + root, start + child):
                return
            self._swap(start + root, start + child)
            root = child

    def _scatter(self, start: int, length: int) -> None:
        """Breaks a pattern that makes bad pivots: three swaps with places that the length alone decides."""
        random = length
        mask = (1 << length.bit_length()) - 1
        middle = start + length // 4 * 2
        for place in (middle - 1, middle, middle + 1):
            random ^= random << 13 & 0xFFFFFFFFFFFFFFFF
            random ^= random >> 7
            random ^= random << 17 & 0xFFFFFFFFFFFFFFFF
            other = random & mask
            self._swap(place, start + (other - length if other >= length else other))

    def _pivot(self, start: int, length: int) -> tuple[int, int]:
        """A median of three, or of three medians, and what the comparisons suggest about the order."""
        places = [start + length // 4 * quarter for quarter in (1, 2, 3)]
        swaps = 0
        if length >= _SHORT:
            for index, place in enumerate(places):
                places[index], swapped = self._median(place - 1, place, place + 1)
                swaps += swapped
        pivot, swapped = self._median(*places)
        swaps += swapped
        return pivot, {0: _ASCENDING, _ALL_SWAPPED: _DESCENDING}.get(swaps, _UNKNOWN)

    def _median(self, a: int, b: int, c: int) -> tuple[int, int]:
        swaps = 0
        if self._less(b, a):
            a, b, swaps = b, a, swaps + 1
        if self._less(c, b):
            b, c, swaps = c, b, swaps + 1
        if self._less(b, a):
            a, b, swaps = b, a, swaps + 1
        return b, swaps

    def _nearly_sorted(self, start: int, end: int) -> bool:
        """Whether the range is sorted, after mending a few places of a long one."""
        place = start + 1
        for _ in range(_PARTIAL_STEPS):
            while place < end and not self._less(place, place - 1):
                place += 1
            if place == end:
                return True
            if end - start < _SHORT:
                return False
            self._swap(place, place - 1)
            if place - start >= 2:
                self._sink(place - 1, 0)
            if end - place >= 2:
                above = place + 1
                while above < end and self._less(above, above - 1):
                    self._swap(above, above - 1)
                    above += 1
        return False

    def _partition(self, start: int, end: int, pivot: int) -> tuple[int, bool]:
        """Smaller ones before the pivot, others behind it; its place, and whether that was so already."""
        self._swap(start, pivot)
        low, high = self._misplaced(start + 1, end - 1, start)
        already = low > high
        while low <= high:
            self._swap(low, high)
            low, high = self._misplaced(low + 1, high - 1, start)
        self._swap(high, start)
        return high, already

    def _misplaced(self, low: int, high: int, pivot: int) -> tuple[int, int]:
        while low <= high and self._less(low, pivot):
            low += 1
        while low <= high and not self._less(high, pivot):
            high -= 1
        return low, high

    def _partition_equal(self, start: int, end: int, pivot: int) -> int:
        """Those equal to the pivot, of which nothing is smaller, first; where the others begin."""
        self._swap(start, pivot)
        low, high = start + 1, end - 1
        while True:
            while low <= high and not self._less(start, low):
                low += 1
            while low <= high and self._less(start, high):
                high -= 1
            if low > high:
                return low
            self._swap(low, high)
            low, high = low + 1, high - 1
