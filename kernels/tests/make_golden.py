#!/usr/bin/env python3
"""Makes kernels/tests/data/dequant.golden: what each format's definition gives for random blocks.

The oracle is the `gguf` package's own dequantisation (`pip install gguf numpy`; made with gguf 0.19). Run it again only to
add a format:

    python3 kernels/tests/make_golden.py

File layout, little endian, one record per format, no gaps:
    u32 ggml type id, u32 n_elements, u32 n_bytes, n_bytes stored bytes, n_elements f32 values
Blocks are random bytes with finite f16 scales (every bit pattern but infinities and NaNs, subnormals among them).
"""

import pathlib
import struct

import gguf
import numpy as np

# Format, and where a block keeps its f16 scales.
FORMATS = {
    "F32": [],
    "F16": [0],
    "BF16": [],
    "Q4_0": [0],
    "Q4_1": [0, 2],
    "Q5_0": [0],
    "Q5_1": [0, 2],
    "Q8_0": [0],
    "Q4_K": [0, 2],
    "Q5_K": [0, 2],
    "Q6_K": [208],
}
N_ELEMENTS = 512


def finite(values):
    """Clears an exponent bit where an f16 would be infinite or NaN."""
    exponent = (values >> 10) & 31
    return np.where(exponent == 31, values & 0xBFFF, values).astype("<u2")


def main():
    rng = np.random.default_rng(20240611)
    out = bytearray()
    for name, scales in FORMATS.items():
        kind = gguf.GGMLQuantizationType[name]
        block_elements, block_bytes = gguf.GGML_QUANT_SIZES[kind]
        blocks = rng.integers(0, 256, (N_ELEMENTS // block_elements, block_bytes), dtype=np.uint8)
        for at in scales:
            blocks[:, at : at + 2] = finite(blocks[:, at : at + 2].copy().view("<u2")).view(np.uint8)
        if name in ("F32", "BF16"):
            # The sign and a middling exponent on top of random mantissas.
            blocks[:, -1] = (blocks[:, -1] & 0x80) | 0x3E
        stored = blocks.tobytes()
        if name == "F32":
            values = np.frombuffer(stored, "<f4")
        elif name == "F16":
            values = np.frombuffer(stored, "<f2").astype("<f4")
        else:
            values = gguf.quants.dequantize(blocks, kind).reshape(-1).astype("<f4")
        assert values.size == N_ELEMENTS and np.isfinite(values).all(), name
        out += struct.pack("<III", kind, N_ELEMENTS, len(stored)) + stored + values.tobytes()
    path = pathlib.Path(__file__).parent / "data" / "dequant.golden"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(out)
    print(f"{path}: {len(out)} bytes")


if __name__ == "__main__":
    main()
