"""The quick way of a column to Arrow: values whose types are exactly what the column holds, converted without
running bytecode per value. This thread shares the interpreter with training, so its time is training's time.

Everything else, values of other types and numbers out of range among them, takes the careful way of `encode`.
"""

from __future__ import annotations

from array import array
from functools import partial
from itertools import accumulate, chain
from operator import is_not
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

_TYPECODE = {"int16": "h", "int32": "i", "int64": "q", "float64": "d"}
_NONE = type(None)
_is_value = partial(is_not, None)
_PLAIN = {
    "int16": frozenset((int, bool)),
    "int32": frozenset((int, bool)),
    "int64": frozenset((int, bool)),
    "float64": frozenset((float, int, bool)),
    "bool": frozenset((bool,)),
    "string": frozenset((str,)),
    "dict": frozenset((str,)),
}


def encode_plain(kind: str, values: list[object]) -> pa.Array[Any] | None:
    """The column as an Arrow array, or None when a value is not of the plain types for `kind`."""
    import pyarrow as pa

    kinds = set(map(type, values))
    nulls = kinds == {_NONE}
    kinds.discard(_NONE)
    if nulls or not values:
        empty: pa.Array[Any] = pa.nulls(len(values), arrow_type(kind))
        return empty
    if kind.startswith("list<") and kinds == {list}:
        return _lists(kind, values)
    allowed = _PLAIN.get(kind)
    if allowed is None or not kinds <= allowed:
        return None
    try:
        if kind == "dict":
            return _words(values)
        return _strings(values) if kind == "string" else _numbers(kind, values)
    except (OverflowError, UnicodeError):
        return None


def arrow_type(kind: str) -> Any:
    """The Arrow type of a column type of the schema."""
    import pyarrow as pa

    simple: dict[str, Any] = {
        "int16": pa.int16(),
        "int32": pa.int32(),
        "int64": pa.int64(),
        "float64": pa.float64(),
        "bool": pa.bool_(),
        "string": pa.string(),
        "dict": pa.dictionary(pa.int32(), pa.string()),
    }
    return simple[kind] if kind in simple else pa.list_(simple[kind[5:-1]])


def _present(values: list[object]) -> tuple[int, pa.Buffer | None]:
    import numpy as np
    import pyarrow as pa

    nulls = values.count(None)
    if not nulls:
        return 0, None
    present = np.fromiter(map(_is_value, values), np.bool_, len(values))
    return nulls, pa.py_buffer(np.packbits(present, bitorder="little").tobytes())


def _numbers(kind: str, values: list[object]) -> pa.Array[Any]:
    import numpy as np
    import pyarrow as pa

    nulls, bitmap = _present(values)
    filled: Any = [0 if v is None else v for v in values] if nulls else values
    if kind == "bool":
        data = np.packbits(np.array(filled, np.bool_), bitorder="little").tobytes()
    else:
        data = array(_TYPECODE[kind], filled).tobytes()
    return pa.Array.from_buffers(arrow_type(kind), len(values), [bitmap, pa.py_buffer(data)], nulls)


def _lists(kind: str, values: list[object]) -> pa.Array[Any] | None:
    """Lists whose members are all plain."""
    import pyarrow as pa

    nulls, bitmap = _present(values)
    members: list[Any] = [v or () for v in values]
    child = encode_plain(kind[5:-1], list(chain.from_iterable(members)))
    if child is None:
        return None
    offsets = array("i", chain((0,), accumulate(map(len, members)))).tobytes()
    buffers = [bitmap, pa.py_buffer(offsets)]
    return pa.Array.from_buffers(arrow_type(kind), len(values), buffers, nulls, children=[child])


def _strings(values: list[object]) -> pa.Array[Any]:
    import pyarrow as pa

    nulls, bitmap = _present(values)
    words: list[Any] = [v or "" for v in values]
    data = [word.encode("utf-8") for word in words]
    offsets = array("i", chain((0,), accumulate(map(len, data)))).tobytes()
    buffers = [bitmap, pa.py_buffer(offsets), pa.py_buffer(b"".join(data))]
    return pa.Array.from_buffers(pa.string(), len(values), buffers, nulls)


def _words(values: list[object]) -> pa.Array[Any]:
    import pyarrow as pa

    nulls, bitmap = _present(values)
    known: list[Any] = [word for word in dict.fromkeys(values) if word is not None]
    words = [word.encode("utf-8") for word in known]
    codes = {word: number for number, word in enumerate(known)}
    codes[None] = 0
    indices = array("i", map(codes.__getitem__, values)).tobytes()
    offsets = array("i", chain((0,), accumulate(map(len, words)))).tobytes()
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(b"".join(words))]
    dictionary = pa.Array.from_buffers(pa.string(), len(words), buffers, 0)
    keys = pa.Array.from_buffers(pa.int32(), len(values), [bitmap, pa.py_buffer(indices)], nulls)
    return pa.DictionaryArray.from_arrays(keys, dictionary)
