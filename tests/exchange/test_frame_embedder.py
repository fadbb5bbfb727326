"""Which rows of finished frames are looked at."""

from __future__ import annotations

from proxy.exchange.background.frame_embedder import LOOK_AGAIN_S, RowCursor


def test_a_row_that_another_replica_commits_behind_a_later_one_is_not_passed_over() -> None:
    """Two replicas cannot be made to write in that order from outside."""
    cursor, looked_at = RowCursor(), set[int]()

    for second in range(int(4 * LOOK_AGAIN_S)):
        committed = [4] if second < 10 else [4, 6] if second < 14 else [4, 5, 6]
        found = [number for number in committed if number > cursor.next_after(float(second))]
        looked_at |= set(found)
        cursor.reached(max(found, default=cursor.next_after(float(second))))

    assert looked_at == {4, 5, 6}
    assert cursor.next_after(4 * LOOK_AGAIN_S - 1) == 6
