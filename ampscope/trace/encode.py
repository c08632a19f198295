"""Rows to Arrow columns to the bytes of a sealed Parquet part.

Arrays are built from buffers: `pyarrow.array` imports pandas, which has no place in a training process.
pyarrow and numpy are imported inside the functions, in the writer's thread. A value that does not fit its
column becomes null and is counted; it never costs the row.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from typing import TYPE_CHECKING, Any

from ampscope.trace.checksum import BLANK, SEAL_KEY, seal
from ampscope.trace.plain import encode_plain
from ampscope.trace.schema import SCHEMA_VERSION, Column, Table

if TYPE_CHECKING:
    import pyarrow as pa

Rows = Sequence[Mapping[str, object]]

BATCH = 2048
"""Rows converted in one go: the longest that this thread keeps the interpreter from training is one column of
it."""

INT_BITS = {"int16": 16, "int32": 32, "int64": 64}
_TYPECODE = {"int16": "h", "int32": "i", "int64": "q"}
ROW_GROUP = 65_536


@dataclass
class Misfits:
    """Values that did not fit their column, per `table.column`: how many, and the first of them."""

    counts: dict[str, int] = field(default_factory=dict)
    example: dict[str, str] = field(default_factory=dict)

    def add(self, name: str, value: object) -> None:
        self.counts[name] = self.counts.get(name, 0) + 1
        if name not in self.example:
            self.example[name] = type(value).__name__


def arrow_table(table: Table, rows: Rows, misfits: Misfits) -> pa.Table:
    """`rows` as an Arrow table with every column of `table`; keys that a row lacks are null."""
    import pyarrow as pa

    names = list(table.column_names)
    batches = []
    for start in range(0, max(1, len(rows)), BATCH):
        values = _reader(rows[start : start + BATCH])
        columns = [_column(c, values(c.name), f"{table.name}.{c.name}", misfits) for c in table.columns]
        batches.append(pa.RecordBatch.from_arrays(columns, names))
    return pa.Table.from_batches(batches).unify_dictionaries()


def part_bytes(content: pa.Table) -> bytes:
    """A sealed Parquet file: zstd, strings dictionary-encoded, one row group per ROW_GROUP rows."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    # Parquet statistics leave NaN out, and readers that prune by them then miss the rows that hold one.
    counted = [f.name for f in content.schema if not pa.types.is_floating(f.type)]
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(
        sink, content.schema, compression="zstd", write_page_index=True, write_statistics=counted
    ) as writer:
        writer.write_table(content, row_group_size=ROW_GROUP)
        version = ".".join(map(str, SCHEMA_VERSION))
        writer.add_key_value_metadata({"ampscope.schema": version, SEAL_KEY: BLANK})
    return seal(sink.getvalue().to_pybytes())


def _reader(rows: Rows) -> Callable[[str], list[object]]:
    """Gives one column of the rows by its name. Plain dicts, which the recorder makes, need no bytecode per row."""
    if set(map(type, rows)) <= {dict}:
        return lambda name: list(map(dict.get, rows, repeat(name)))  # type: ignore[arg-type]
    return lambda name: [row.get(name) for row in rows]


def _column(column: Column, values: list[object], name: str, misfits: Misfits) -> pa.Array[Any]:
    import pyarrow as pa

    kind = column.type
    quick = encode_plain(kind, values)
    if quick is not None:
        return quick
    if kind == "dict":
        return _dictionary(values, name, misfits)
    if kind == "string":
        return _strings(list(_fit(values, _text, name, misfits)))
    if not kind.startswith("list<"):
        return _flat(kind, list(_fit(values, _FIT[kind], name, misfits)))
    inner = kind[5:-1]
    offsets, flat, present = array("i", [0]), [], bytearray()
    for value in values:
        items = _items(value, name, misfits)
        present.append(items is not None)
        flat += items or []
        offsets.append(len(flat))
    child = (
        _strings(list(_fit(flat, _text, name, misfits)))
        if inner == "string"
        else _flat(inner, list(_fit(flat, _FIT[inner], name, misfits)))
    )
    nulls, bitmap = _validity(present)
    buffers = [bitmap, pa.py_buffer(offsets.tobytes())]
    return pa.Array.from_buffers(pa.list_(child.type), len(values), buffers, nulls, children=[child])


def _items(value: object, name: str, misfits: Misfits) -> list[object] | None:
    if value is None or isinstance(value, list):
        return value
    try:
        if isinstance(value, (str, bytes, Mapping)) or _is_tensor(value):
            raise TypeError
        return list(value)  # type: ignore[call-overload, no-any-return]
    except Exception:
        misfits.add(name, value)
        return None


def _is_tensor(value: object) -> bool:
    """Tensors are refused: reading one here could wait for a device, or run a subclass's code on this
    thread."""
    return hasattr(type(value), "__torch_function__")


def _fit(
    values: Sequence[object], convert: Callable[[Any], Any], name: str, misfits: Misfits
) -> Iterator[Any]:
    """Each value through `convert`; None for null and for what it refuses."""
    for value in values:
        if value is None:
            yield None
            continue
        try:
            if _is_tensor(value):
                raise TypeError
            yield convert(value)
        except Exception:
            misfits.add(name, value)
            yield None


def _integer(bits: int) -> Callable[[Any], int]:
    low, high = -(1 << (bits - 1)), (1 << (bits - 1)) - 1

    def convert(value: Any) -> int:
        number = int(value)
        if number != value or not low <= number <= high:
            raise ValueError
        return number

    return convert


def _boolean(value: Any) -> bool:
    if value != 0 and value != 1:
        raise ValueError
    return bool(value)


def _text(value: Any) -> bytes:
    """UTF-8 of a string, of anything else its str(); lone surrogates (undecodable file names) become `?`."""
    return (value if isinstance(value, str) else str(value)).encode("utf-8", "replace")


_FIT: dict[str, Callable[[Any], Any]] = {
    "float64": float,
    "bool": _boolean,
    **{name: _integer(bits) for name, bits in INT_BITS.items()},
}


def _validity(present: bytes | bytearray) -> tuple[int, pa.Buffer | None]:
    """(number of nulls, Arrow validity bitmap) from one byte per value."""
    import numpy as np
    import pyarrow as pa

    nulls = len(present) - sum(present)
    if not nulls:
        return 0, None
    return nulls, pa.py_buffer(np.packbits(np.frombuffer(present, np.uint8), bitorder="little").tobytes())


def _flat(kind: str, values: list[Any]) -> pa.Array[Any]:
    import numpy as np
    import pyarrow as pa

    nulls, bitmap = _validity(bytes(v is not None for v in values))
    if kind == "bool":
        data = np.packbits(np.array([bool(v) for v in values], np.uint8), bitorder="little").tobytes()
    else:
        filled = [0 if v is None else v for v in values] if nulls else values
        data = array(_TYPECODE.get(kind, "d"), filled).tobytes()
    types = {
        "bool": pa.bool_(),
        "float64": pa.float64(),
        "int16": pa.int16(),
        "int32": pa.int32(),
        "int64": pa.int64(),
    }
    return pa.Array.from_buffers(types[kind], len(values), [bitmap, pa.py_buffer(data)], nulls)


def _strings(values: list[bytes | None]) -> pa.Array[Any]:
    import pyarrow as pa

    nulls, bitmap = _validity(bytes(v is not None for v in values))
    offsets, at = array("i", [0]), 0
    for value in values:
        at += len(value or b"")
        offsets.append(at)
    buffers = [bitmap, pa.py_buffer(offsets.tobytes()), pa.py_buffer(b"".join(v or b"" for v in values))]
    return pa.Array.from_buffers(pa.string(), len(values), buffers, nulls)


def _dictionary(values: list[object], name: str, misfits: Misfits) -> pa.Array[Any]:
    import pyarrow as pa

    codes: dict[object, int] = {}
    words: dict[bytes, int] = {}
    indices: list[int | None] = []
    for value in values:
        if value is None:
            indices.append(None)
            continue
        try:
            if _is_tensor(value):
                raise TypeError
            code = codes.get(value)
            if code is None:
                code = codes[value] = words.setdefault(_text(value), len(words))
            indices.append(code)
        except Exception:
            misfits.add(name, value)
            indices.append(None)
    return pa.DictionaryArray.from_arrays(_flat("int32", indices), _strings(list(words)))
