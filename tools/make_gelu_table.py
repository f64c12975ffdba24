"""Makes strake/kernels/simd/gelu_table.h: the tail a P(z > a) of GELU in pieces, each a polynomial.

Run:  python tools/make_gelu_table.py > strake/kernels/simd/gelu_table.h      (needs numpy)

Piece i has the width 3/8 and is a polynomial of degree 5 in t = a / (3/8) - i on [-1/2, 1/2], by interpolation at
Chebyshev's points. The first begins at a = 0, where it has no constant term, so that small results keep their relative
accuracy. The last is 0: from a = 5.44 on the tail is below 1.5e-7, a third of what distinguishes neighbours of x in
fp32.

For results of 8 bits the width is 1/3, the degree 3, and the polynomial one in a itself, which saves computing t; the
last piece begins at a = 4.83.
"""

import math

import numpy

PIECES = 16


def tail(a):
    return a * math.erfc(a / math.sqrt(2)) / 2


def interpolate(function, degree, low, high):
    chebyshev = numpy.polynomial.Chebyshev.interpolate(numpy.vectorize(function), degree, [low, high])
    return chebyshev.convert(kind=numpy.polynomial.Polynomial, domain=[-1, 1]).coef


def piece(i, width, degree, origin):
    """A polynomial in t = a / width - origin(i)."""
    if i == PIECES - 1:
        return [0.0] * (degree + 1)
    if i == 0:
        return [0.0, *interpolate(lambda t: tail(width * t) / t, degree - 1, 0, 1 / 2)]
    low = i - origin(i) - 1 / 2
    return interpolate(lambda t: tail(width * (origin(i) + t)), degree, low, low + 1)


def table(name, width, degree, origin, unit):
    pieces = numpy.array([piece(i, width, degree, origin) for i in range(PIECES)])
    by_power = (pieces / unit ** numpy.arange(degree + 1)).astype(numpy.float32).T
    print(f"alignas(64) constexpr float {name}[{degree + 1}][{PIECES}] = {{")
    for coefficients in by_power:
        for begin in range(0, PIECES, 8):
            values = ", ".join(f"{value:.8e}F" for value in coefficients[begin : begin + 8])
            print(f"    {'{' if begin == 0 else ' '}{values}{'},' if begin + 8 == PIECES else ','}")
    print("};")


HEADER = """#pragma once

// Made by tools/make_gelu_table.py: coefficients of t^0, t^1, .., each of pieces 0 .. 15, where a tail is a polynomial
// in t, and those of a^0, a^1, ..
namespace strake::kernels {
namespace {
"""

FOOTER = """
}  // namespace
}  // namespace strake::kernels"""


def main():
    print(HEADER)
    table("kGeluTail", 3 / 8, 5, lambda i: i, 1)
    print()
    table("kGeluTailForBFloat16", 1 / 3, 3, lambda i: 0, 1 / 3)
    print(FOOTER)


main()
