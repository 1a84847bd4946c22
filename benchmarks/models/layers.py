"""The linear layers of public models: x @ W.T with x of (tokens, k) and W of (n, k).

The extents are those of the models' published configurations. Projections of the same activations
are merged, as in inference servers: the queries, keys and values of attention, and the gate and the
up projection of an MLP. "8 ways" are the layers on one of eight GPUs that share a model.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Layer:
    """A linear layer: its model, its name, its outputs n, and its inputs k."""

    model: str
    name: str
    n: int
    k: int


MODELS: dict[str, dict[str, tuple[int, int]]] = {
    "Llama 3 8B": {
        "qkv": (6144, 4096),
        "out": (4096, 4096),
        "gate up": (28672, 4096),
        "down": (4096, 14336),
    },
    "Llama 3 70B, 8 ways": {
        "qkv": (1280, 8192),
        "out": (8192, 1024),
        "gate up": (7168, 8192),
        "down": (8192, 3584),
    },
    "Llama 3.2 1B": {
        "qkv": (3072, 2048),
        "out": (2048, 2048),
        "gate up": (16384, 2048),
        "down": (2048, 8192),
    },
    "Qwen 3 0.6B": {
        "qkv": (4096, 1024),
        "out": (1024, 2048),
        "gate up": (6144, 1024),
        "down": (1024, 3072),
    },
    "Qwen 3 8B": {
        "qkv": (6144, 4096),
        "out": (4096, 4096),
        "gate up": (24576, 4096),
        "down": (4096, 12288),
    },
    "Qwen 3 32B": {
        "qkv": (10240, 5120),
        "out": (5120, 8192),
        "gate up": (51200, 5120),
        "down": (5120, 25600),
    },
    "Qwen 3 30B-A3B": {
        "qkv": (5120, 2048),
        "out": (2048, 4096),
        "gate up": (1536, 2048),
        "down": (2048, 768),
    },
    "Mistral Small 24B": {
        "qkv": (6144, 5120),
        "out": (5120, 4096),
        "gate up": (65536, 5120),
        "down": (5120, 32768),
    },
    "Gemma 3 4B": {
        "qkv": (4096, 2560),
        "out": (2560, 2048),
        "gate up": (20480, 2560),
        "down": (2560, 10240),
    },
    "Phi 4": {
        "qkv": (7680, 5120),
        "out": (5120, 5120),
        "gate up": (35840, 5120),
        "down": (5120, 17920),
    },
    "DeepSeek-V3": {
        "q_a kv_a": (2112, 7168),
        "q_b": (24576, 1536),
        "kv_b": (32768, 512),
        "out": (7168, 16384),
        "gate up": (4096, 7168),
        "down": (7168, 2048),
    },
    "GPT-OSS 20B": {
        "qkv": (5120, 2880),
        "out": (2880, 4096),
        "gate up": (5760, 2880),
        "down": (2880, 2880),
    },
    "BERT large": {
        "qkv": (3072, 1024),
        "out": (1024, 1024),
        "up": (4096, 1024),
        "down": (1024, 4096),
    },
    "ViT-L/16": {
        "qkv": (3072, 1024),
        "out": (1024, 1024),
        "up": (4096, 1024),
        "down": (1024, 4096),
    },
    "ViT-H/14": {
        "qkv": (3840, 1280),
        "out": (1280, 1280),
        "up": (5120, 1280),
        "down": (1280, 5120),
    },
    "SigLIP So400m": {
        "qkv": (3456, 1152),
        "out": (1152, 1152),
        "up": (4304, 1152),
        "down": (1152, 4304),
    },
    "UNet of Stable Diffusion 1.5": {
        "q": (320, 320),
        "gate up": (2560, 320),
        "down": (320, 1280),
        "gate up 640": (5120, 640),
        "out 1280": (1280, 1280),
    },
    "UNet of SDXL": {
        "q": (640, 640),
        "gate up": (5120, 640),
        "down": (640, 2560),
        "k": (1280, 2048),
        "gate up 1280": (10240, 1280),
    },
    "FLUX.1": {
        "qkv": (9216, 3072),
        "out": (3072, 3072),
        "up": (12288, 3072),
        "down": (3072, 12288),
        "single in": (21504, 3072),
        "single out": (3072, 15360),
    },
}
"""(n, k) of the layers by model and name; the kernels' cost model is trained on them."""
HELD_OUT: dict[str, dict[str, tuple[int, int]]] = {
    "Llama 3.1 405B, 8 ways": {
        "qkv": (2304, 16384),
        "gate up": (13312, 16384),
        "down": (16384, 6656),
    },
    "Qwen 2.5 1.5B": {
        "qkv": (2048, 1536),
        "out": (1536, 1536),
        "gate up": (17920, 1536),
        "down": (1536, 8960),
    },
    "Qwen 2.5 7B": {
        "qkv": (4608, 3584),
        "out": (3584, 3584),
        "gate up": (37888, 3584),
        "down": (3584, 18944),
    },
    "Qwen 2.5 72B, 8 ways": {
        "gate up": (7392, 8192),
        "down": (8192, 3696),
    },
    "Qwen 3 235B-A22B": {
        "qkv": (9216, 4096),
        "out": (4096, 8192),
        "gate up": (3072, 4096),
        "down": (4096, 1536),
    },
    "Gemma 2 9B": {
        "out": (3584, 4096),
        "gate up": (28672, 3584),
        "down": (3584, 14336),
    },
    "Phi 3 mini": {
        "gate up": (16384, 3072),
        "down": (3072, 8192),
    },
    "GLM 4 9B": {
        "qkv": (4608, 4096),
        "gate up": (27392, 4096),
        "down": (4096, 13696),
    },
    "DiT-XL/2": {
        "up": (4608, 1152),
        "down": (1152, 4608),
    },
    "ViT-g/14": {
        "qkv": (4608, 1536),
        "gate up": (8192, 1536),
        "down": (1536, 4096),
    },
    "Stable Diffusion 3.5 Large": {
        "qkv": (7296, 2432),
        "out": (2432, 2432),
        "up": (9728, 2432),
        "down": (2432, 9728),
    },
}
"""Models that the cost model is not trained on: they say what the choice is worth elsewhere."""
MORE: dict[str, dict[str, tuple[int, int]]] = {
    "Qwen 3 14B": {"qkv": (7168, 5120)},
    "Qwen 2.5 3B": {"gate up": (22016, 2048), "down": (2048, 11008)},
    "Qwen 2.5 14B": {"gate up": (27648, 5120)},
    "Gemma 3 27B": {"down": (5376, 21504)},
    "GLM 4.5 Air": {"qkv": (14336, 4096), "gate up": (21888, 4096), "down": (4096, 10944)},
    "Llama 4 Scout": {"gate up": (16384, 5120)},
    "Mixtral 8x22B": {
        "qkv": (8192, 6144),
        "out": (6144, 6144),
        "gate up": (32768, 6144),
        "down": (6144, 16384),
    },
    "Yi 34B": {
        "qkv": (9216, 7168),
        "out": (7168, 7168),
        "gate up": (40960, 7168),
        "down": (7168, 20480),
    },
    "MiniCPM 2B": {
        "qkv": (6912, 2304),
        "out": (2304, 2304),
        "gate up": (11520, 2304),
        "down": (2304, 5760),
    },
    "Hunyuan-DiT": {
        "qkv": (4224, 1408),
        "out": (1408, 1408),
        "up": (6144, 1408),
        "down": (1408, 6144),
    },
}
"""Layers of further models, with extents that neither of the others have."""
VISION = ("ViT", "SigLIP So400m", "UNet", "FLUX.1", "DiT", "Stable Diffusion", "Hunyuan-DiT")
"""How the names of models begin that take images."""
TOKENS = (1, 8, 33, 128, 512, 2048, 8192)
"""Tokens of language models: decoding, small batches, prompts."""
TOKENS_OF_IMAGES = (128, 197, 512, 2048, 6304, 8192)
"""Tokens of models that take images: 197 are one image of ViT, and 6304 are 32 of them."""
ROWS: dict[str, tuple[int, int]] = {
    "1 to 8": (1, 8),
    "9 to 64": (9, 64),
    "65 to 256": (65, 256),
    "257 to 1024": (257, 1024),
    "1025 to 4096": (1025, 4096),
    "above 4096": (4097, 1 << 31),
}
"""The rows of a report: the least and the most tokens of each."""
FEW = (
    "Llama 3 8B",
    "Llama 3 70B, 8 ways",
    "Qwen 3 0.6B",
    "Qwen 3 30B-A3B",
    "DeepSeek-V3",
    "GPT-OSS 20B",
    "ViT-L/16",
    "UNet of Stable Diffusion 1.5",
)
"""The models that are measured unless others are named."""


def layers(models: Sequence[str] = tuple(MODELS)) -> list[Layer]:
    """Return the layers of models, without duplicate extents."""
    found: dict[tuple[int, int], Layer] = {}
    known = {**MODELS, **HELD_OUT, **MORE}
    for model in models:
        if model not in known:
            raise ValueError(f"no model {model!r}; there are: {', '.join(known)}")
        for name, (n, k) in known[model].items():
            found.setdefault((n, k), Layer(model, name, n, k))
    return list(found.values())


def products(
    models: Sequence[str] = tuple(MODELS), tokens: Sequence[int] | None = None
) -> Iterator[tuple[int, Layer]]:
    """Yield numbers of tokens and layers; `tokens` replaces the models' own numbers."""
    for layer in layers(models):
        images = layer.model.startswith(VISION)
        for count in tokens or (TOKENS_OF_IMAGES if images else TOKENS):
            yield count, layer


def row_of(tokens: int) -> str:
    """Return the row of a report for a number of tokens."""
    return next(name for name, (least, most) in ROWS.items() if least <= tokens <= most)
