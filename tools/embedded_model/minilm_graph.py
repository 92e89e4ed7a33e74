"""all-MiniLM-L6-v2 as an ONNX graph of a few kilobytes, which reads its numbers from the published weights.

The weights are published as `model.safetensors`, and a registry has them in that form only. A tensor of an ONNX model
may lie in another file at some offset: the graph names the places in the published file, so that the weights are not
copied. Attention, layer norms and GELU are onnxruntime's fused operators, which take about half the time of plain ones.
`python -m tools.embedded_model.minilm_graph MODEL.safetensors OUT.onnx` (needs `onnx`) makes the file that
`penstock.documents.embedding.minilm` ships.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from onnx import TensorProto, helper, numpy_helper

WEIGHTS_FILE: Final = "model.safetensors"
_HIDDEN: Final = 384
_HEADS: Final = 12
_LAYERS: Final = 6
_EPSILON: Final = 1e-12
_OPSET: Final = 17
# The oldest file version that has this opset; newer ones are refused by older runtimes.
_IR_VERSION: Final = 8
_FUSED: Final = "com.microsoft"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("weights", type=Path)
    parser.add_argument("out", type=Path)
    asked = parser.parse_args()
    asked.out.write_bytes(build_graph(asked.weights))


def build_graph(weights: Path) -> bytes:
    """The model as bytes: `ids` and `mask` (texts by pieces, padded at the end) to `vectors` (texts by 384)."""
    graph = _Graph(weights)
    hidden = graph.embedded()
    for layer in range(_LAYERS):
        hidden = graph.layer(hidden, f"encoder.layer.{layer}.")
    graph.pooled(hidden)
    ids, mask = (
        helper.make_tensor_value_info(name, TensorProto.INT32, ["texts", "pieces"]) for name in ("ids", "mask")
    )
    vectors = helper.make_tensor_value_info("vectors", TensorProto.FLOAT, ["texts", _HIDDEN])
    made = helper.make_graph(graph.nodes, "minilm", [ids, mask], [vectors], graph.tensors)
    opsets = [helper.make_opsetid("", _OPSET), helper.make_opsetid(_FUSED, 1)]
    model = helper.make_model(made, opset_imports=opsets, ir_version=_IR_VERSION)
    serialized: bytes = model.SerializeToString()
    return serialized


class _Graph:
    """Nodes and tensors as they are added, each value under a name of its own."""

    def __init__(self, weights: Path) -> None:
        self.nodes: list[Any] = []
        self.tensors: list[Any] = []
        with weights.open("rb") as file:
            size = int.from_bytes(file.read(8), "little")
            self._places: dict[str, Any] = json.loads(file.read(size))
        # A safetensors file is a length, a JSON header, then the numbers.
        self._start = 8 + size
        self._known: set[str] = set()
        self._names: Iterator[str] = (f"v{number}" for number in range(10_000))

    def embedded(self) -> str:
        """Word, position and type of each piece, normalised."""
        at = "embeddings."
        words = self._node("Gather", self._weight(at + "word_embeddings.weight"), "ids")
        length = self._node("Shape", "ids", start=1, end=2)
        first = self._constant(np.array([0], np.int64))
        positions = self._node("Slice", self._weight(at + "position_embeddings.weight"), first, length, first)
        kind = self._node(
            "Gather", self._weight(at + "token_type_embeddings.weight"), self._constant(np.array(0, np.int64))
        )
        total = self._node("Add", self._node("Add", words, positions), kind)
        scale, shift = self._weight(at + "LayerNorm.weight"), self._weight(at + "LayerNorm.bias")
        return self._node("LayerNormalization", total, scale, shift, axis=-1, epsilon=_EPSILON)

    def layer(self, hidden: str, at: str) -> str:
        """One layer of the transformer."""
        parts = [f"{at}attention.self.{part}" for part in ("query", "key", "value")]
        weight = self._node("Concat", *(self._transposed(part + ".weight") for part in parts), axis=1)
        bias = self._node("Concat", *(self._weight(part + ".bias") for part in parts), axis=0)
        attended = self._node("Attention", hidden, weight, bias, "mask", domain=_FUSED, num_heads=_HEADS)
        hidden = self._added(attended, hidden, at + "attention.output.")
        inner = self._node("MatMul", hidden, self._transposed(at + "intermediate.dense.weight"))
        inner = self._node("BiasGelu", inner, self._weight(at + "intermediate.dense.bias"), domain=_FUSED)
        return self._added(inner, hidden, at + "output.")

    def pooled(self, hidden: str) -> None:
        """The mean over the pieces of a text, of length one."""
        kept = self._node("Unsqueeze", self._node("Cast", "mask", to=1), self._constant(np.array([2], np.int64)))
        axes = self._constant(np.array([1], np.int64))
        total = self._node("ReduceSum", self._node("Mul", hidden, kept), axes, keepdims=0)
        norms = self._node("ReduceL2", total, axes=[1], keepdims=1)
        # A direction does not depend on how many there are, so the sum will do.
        self.nodes.append(_make("Div", [total, norms], ["vectors"]))

    def _added(self, values: str, skipped: str, at: str) -> str:
        """A linear map, what it skipped added, and both normalised."""
        mapped = self._node("MatMul", values, self._transposed(at + "dense.weight"))
        scale, shift, bias = (self._weight(at + name) for name in ("LayerNorm.weight", "LayerNorm.bias", "dense.bias"))
        inputs = (mapped, skipped, scale, shift, bias)
        return self._node("SkipLayerNormalization", *inputs, domain=_FUSED, epsilon=_EPSILON)

    def _weight(self, name: str) -> str:
        """A tensor of the published file."""
        if name not in self._known:
            entry = self._places[name]
            start, end = entry["data_offsets"]
            tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=entry["shape"])
            tensor.data_location = TensorProto.EXTERNAL
            place = {"location": WEIGHTS_FILE, "offset": str(self._start + start), "length": str(end - start)}
            for key, value in place.items():
                tensor.external_data.add(key=key, value=value)
            self.tensors.append(tensor)
            self._known.add(name)
        return name

    def _transposed(self, name: str) -> str:
        """The runtime folds it when it loads the model."""
        return self._node("Transpose", self._weight(name), perm=[1, 0])

    def _constant(self, values: npt.NDArray[Any]) -> str:
        name = next(self._names)
        self.tensors.append(numpy_helper.from_array(values, name))
        return name

    def _node(self, kind: str, *inputs: str, **options: Any) -> str:
        name = next(self._names)
        self.nodes.append(_make(kind, list(inputs), [name], **options))
        return name


def _make(kind: str, inputs: list[str], outputs: list[str], **options: Any) -> Any:
    return helper.make_node(kind, inputs, outputs, **options)


if __name__ == "__main__":
    main()
