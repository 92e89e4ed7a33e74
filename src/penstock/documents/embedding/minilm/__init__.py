"""The model all-MiniLM-L6-v2 through onnxruntime, with weights from a package: the extra `minilm`."""

from penstock.documents.embedding.minilm.encoder import MiniLmEncoder, shared_encoder
from penstock.documents.embedding.minilm.weights import MiniLmFiles, find_weights

__all__ = ["MiniLmEncoder", "MiniLmFiles", "find_weights", "shared_encoder"]
