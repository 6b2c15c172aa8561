#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the golden values of float16 conversions, half_golden.h, from NumPy's.

    make_half_golden.py FILE           write FILE
    make_half_golden.py --check FILE   compute again and compare with FILE; 77: NumPy is missing
"""
import sys

try:
    import numpy as np
except ImportError:
    print("skipped: NumPy is missing (Debian package python3-numpy)")
    sys.exit(77)

# Bits of f32: ends of the ranges, halves between neighbours and the f32 beside them.
CASES = [
    0x00000000, 0x00000001, 0x007FFFFF, 0x00800000,
    0x32FFFFFF, 0x33000000, 0x33000001, 0x33800000,  # 2^-25, half of the least denormal
    0x33BFFFFF, 0x33C00000, 0x33C00001, 0x34000000,
    0x387FBFFF, 0x387FC000, 0x387FDFFF, 0x387FE000, 0x387FE001, 0x387FFFFF, 0x38800000,
    0x3F800000, 0x3F800FFF, 0x3F801000, 0x3F801001, 0x3F802FFF, 0x3F803000, 0x3F803001,
    0x3FFFEFFF, 0x3FFFF000, 0x40490FDB, 0x477FDFFF, 0x477FE000,  # 65504
    0x477FEFFF, 0x477FF000, 0x477FFFFF, 0x47800000, 0x7F7FFFFF, 0x7F800000,
]


def floats(bits):
    return bits.astype(np.uint32).view(np.float32)


def to_half(bits):
    with np.errstate(over="ignore", under="ignore"):
        return floats(bits).astype(np.float16).view(np.uint16)


def halfway():
    """f32 bits of all finite float16 h, in the middle to the next one, and one f32 to each side."""
    half = np.arange(0x7C00, dtype=np.uint16)
    value = half.view(np.float16).astype(np.float64)
    following = np.append(value[1:], 65536.0)
    middle = ((value + following) / 2).astype(np.float32).view(np.uint32)
    exact = value.astype(np.float32).view(np.uint32)
    bits = np.stack([exact, middle - 1, middle, middle + 1], axis=1).ravel()
    return np.concatenate([bits, bits | 0x80000000]).astype(np.uint32)


def checksum(values):
    """Sum of (index + 1) * value modulo 2^64."""
    values = values.astype(np.uint64)
    with np.errstate(over="ignore"):
        return int(np.sum(values * np.arange(1, len(values) + 1, dtype=np.uint64), dtype=np.uint64))


def text():
    cases = np.array(CASES + [case | 0x80000000 for case in CASES], np.uint32)
    rows = [f"    {{ {a:#010x}, {b:#06x} }}," for a, b in zip(cases, to_half(cases))]
    finite = np.arange(0x10000, dtype=np.uint32).astype(np.uint16)
    finite = finite[(finite & 0x7FFF) <= 0x7C00]  # and the infinities
    wide = finite.view(np.float16).astype(np.float32).view(np.uint32)
    return "\n".join([
        "/* SPDX-License-Identifier: Apache-2.0 */",
        "/* Written by make_half_golden.py from NumPy's float16. A checksum is the sum of (index + 1) *",
        " * bits modulo 2^64. */",
        "/* clang-format off */",
        "#include <stdint.h>",
        "",
        "static const struct {",
        "    uint32_t f32;",
        "    uint16_t f16;",
        "} half_golden[] = {",
        *rows,
        "};",
        "",
        "/* f32 of all f16 that are no NaN, in the order of their bits. */",
        f"static const uint64_t half_golden_to_f32 = UINT64_C({checksum(wide):#018x});",
        "/* f16 of: for each finite f16 from 0 up, itself, the f32 below the middle to the next one, the",
        " * middle, the f32 above; then the same numbers with a minus sign. */",
        f"static const uint64_t half_golden_from_f32 = UINT64_C({checksum(to_half(halfway())):#018x});",
        "",
    ])


def main():
    check = sys.argv[1] == "--check"
    path = sys.argv[-1]
    if not check:
        with open(path, "w", encoding="utf-8") as file:
            file.write(text())
        return 0
    with open(path, encoding="utf-8") as file:
        same = file.read() == text()
    print("current" if same else f"{path} differs from what make_half_golden.py computes")
    return not same


sys.exit(main())
