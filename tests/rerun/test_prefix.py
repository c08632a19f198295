from __future__ import annotations

from ampscope.rerun.prefix import Prefix
from ampscope.trace.reader import Trace


def test_only_the_first_steps_are_seen(sawtooth: Trace) -> None:
    view = Prefix(sawtooth, 7)
    assert view.sql("SELECT max(step) AS m, count(*) AS n FROM steps").to_dict("records") == [
        {"m": 6, "n": 7}
    ]
    assert view.sql("SELECT max(step) AS m FROM calls")["m"].iloc[0] == 6
    assert view.info == sawtooth.info


def test_queries_with_their_own_parts_and_parameters(sawtooth: Trace) -> None:
    view = Prefix(sawtooth, 7)
    query = "\n WITH late AS (SELECT * FROM steps WHERE step > ?) SELECT count(*) AS n FROM late"
    assert view.sql(query, [3])["n"].iloc[0] == 3
    counting = "with recursive t(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM t WHERE i < (SELECT count(*) FROM steps)) "
    assert view.sql(f"{counting} SELECT max(i) AS n FROM t")["n"].iloc[0] == 7


def test_rows_of_no_step_stay(sawtooth: Trace) -> None:
    none = "SELECT count(*) AS n FROM params WHERE step IS NULL"
    assert Prefix(sawtooth, 0).sql(none)["n"].iloc[0] == sawtooth.sql(none)["n"].iloc[0]
    assert Prefix(sawtooth, 0).sql("SELECT count(*) AS n FROM steps")["n"].iloc[0] == 0
