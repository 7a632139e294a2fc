"""A GGUF file: what it says, and its tensors, each unpacked when a model asks for it."""

from __future__ import annotations

import math
import mmap
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, GGUFValueType, quants
from torch import Tensor

from rmutils.core.errors import Refused

NUMBERS = {
    GGUFValueType.UINT8: "u1", GGUFValueType.INT8: "i1", GGUFValueType.BOOL: "?",
    GGUFValueType.UINT16: "u2", GGUFValueType.INT16: "i2", GGUFValueType.UINT32: "u4",
    GGUFValueType.INT32: "i4", GGUFValueType.FLOAT32: "f4", GGUFValueType.UINT64: "u8",
    GGUFValueType.INT64: "i8", GGUFValueType.FLOAT64: "f8"}
"""Kinds of numbers, as numpy writes them."""
PLAIN = {GGMLQuantizationType.F32: np.float32, GGMLQuantizationType.F16: np.float16}
AT_ONCE = 2**16
"""So many weights are unpacked at once, which bounds the memory beside that of the model."""
MOST_DIMENSIONS = 4


@dataclass(frozen=True)
class PackedTensor:
    """A tensor of a file: where its bytes begin there, and how many a row has."""

    name: str
    shape: tuple[int, ...]
    kind: GGMLQuantizationType
    path: Path
    place: int
    width: int

    def values(self, dtype: torch.dtype = torch.float32) -> Tensor:
        """Return its weights. The file is read, not mapped: its pages would count as memory."""
        whole, unpack = torch.empty(self.shape, dtype=dtype), _unpacking(self.kind)
        rows = whole.view(math.prod(self.shape[:-1]), -1)
        step = max(1, AT_ONCE // max(1, rows.shape[1]))
        with open(self.path, "rb") as file:
            file.seek(self.place)
            for start in range(0, len(rows), step):
                part = rows[start : start + step]
                packed = np.frombuffer(file.read(len(part) * self.width), np.uint8)
                part[:] = torch.from_numpy(unpack(packed.reshape(len(part), -1)))
        return whole


def _unpacking(kind: GGMLQuantizationType) -> Callable[[np.ndarray], np.ndarray]:
    """Return what makes weights of the bytes of some rows."""
    if kind in PLAIN:
        return lambda rows: rows.view(PLAIN[kind]).astype(np.float32)
    packing = getattr(quants, kind.name)
    packing.init_grid()
    return packing.dequantize_rows  # type: ignore[no-any-return]


@dataclass(frozen=True)
class GgufFile:
    """The metadata of a file, by key, and its tensors, by name."""

    metadata: dict[str, Any]
    tensors: dict[str, PackedTensor]


def read(path: Path) -> GgufFile:
    """Read all but the weights."""
    if not path.stat().st_size:
        raise Refused("it is empty")
    with (open(path, "rb") as file,
          mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data):
        return _Reader(path, data).file()


class _Reader:
    """What has not been read yet of a file's head."""

    def __init__(self, path: Path, data: mmap.mmap):
        self.path, self.data, self.place = path, data, 0

    def file(self) -> GgufFile:
        if self.bytes(4) != b"GGUF":
            raise Refused("it does not begin as a GGUF file does")
        version, tensors, entries = struct.unpack("<IQQ", self.bytes(20))
        if version not in (2, 3):
            raise Refused(f"it is of version {version} of the format, and 2 and 3 can be read")
        metadata: dict[str, Any] = {}
        for _ in range(entries):
            key = self.text()
            if key in metadata:
                raise Refused(f"it says {key} twice")
            metadata[key] = self.value(self.kind())
        found = [self.tensor() for _ in range(tensors)]
        align = metadata.get("general.alignment", 32)
        if not isinstance(align, int) or align < 1:
            raise Refused(f"general.alignment is {align!r:.40}")
        start = -(-self.place // align) * align
        packed = {name: self.packed(name, shape, kind, start + offset)
                  for name, shape, kind, offset in found}
        if len(packed) < len(found):
            raise Refused("two of its tensors have the same name")
        return GgufFile(metadata, packed)

    def bytes(self, count: int) -> bytes:
        if count > len(self.data) - self.place:
            raise Refused("it is cut short")
        self.place += count
        return self.data[self.place - count : self.place]

    def number(self, width: int) -> int:
        return int.from_bytes(self.bytes(width), "little")

    def text(self) -> str:
        return self.bytes(self.number(8)).decode()

    def kind(self) -> GGUFValueType:
        return GGUFValueType(self.number(4))

    def value(self, kind: GGUFValueType) -> Any:
        if kind == GGUFValueType.STRING:
            return self.text()
        if kind == GGUFValueType.ARRAY:
            inner, count = self.kind(), self.number(8)
            if inner == GGUFValueType.ARRAY:
                raise Refused("it holds an array of arrays")
            if inner == GGUFValueType.STRING:
                return [self.text() for _ in range(count)]
            return self.numbers(inner, count)
        return self.numbers(kind, 1)[0]

    def numbers(self, kind: GGUFValueType, count: int) -> list[Any]:
        form = np.dtype(NUMBERS[kind]).newbyteorder("<")
        return np.frombuffer(self.bytes(count * form.itemsize), form).tolist()

    def tensor(self) -> tuple[str, tuple[int, ...], GGMLQuantizationType, int]:
        name, dimensions = self.text(), self.number(4)
        if dimensions > MOST_DIMENSIONS:
            raise Refused(f"{name} has {dimensions} dimensions")
        shape = tuple(self.number(8) for _ in range(dimensions))[::-1]
        return name, shape, GGMLQuantizationType(self.number(4)), self.number(8)

    def packed(self, name: str, shape: tuple[int, ...], kind: GGMLQuantizationType,
               place: int) -> PackedTensor:
        if kind not in PLAIN and not hasattr(quants, kind.name):
            raise Refused(f"{name} is of the kind {kind.name}, which cannot be unpacked")
        block, size = GGML_QUANT_SIZES[kind]
        width = shape[-1] if shape else 1
        rows, count = math.prod(shape[:-1]), width // block * size
        if width % block or place + rows * count > len(self.data):
            raise Refused(f"{name} is cut short")
        return PackedTensor(name, shape, kind, self.path, place, count)
