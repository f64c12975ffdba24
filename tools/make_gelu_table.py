"""Makes strake/kernels/simd/gelu_table.h: the tail a P(z > a) of GELU in pieces of width 3/8, each a polynomial.

Run:  python tools/make_gelu_table.py > strake/kernels/simd/gelu_table.h      (needs numpy)

Piece i is a polynomial of degree 5 in t = a / (3/8) - i on [-1/2, 1/2], by interpolation at Chebyshev's points. The
first begins at a = 0, where it has no constant term, so that small results keep their relative accuracy. The last is 0:
from a = 5.44 on the tail is below 1.5e-7, a third of what distinguishes neighbours of x in fp32.
"""

import math

import numpy

WIDTH = 3 / 8
PIECES = 16
DEGREE = 5


def tail(a):
    return a * math.erfc(a / math.sqrt(2)) / 2


def interpolate(function, degree, low, high):
    chebyshev = numpy.polynomial.Chebyshev.interpolate(numpy.vectorize(function), degree, [low, high])
    return chebyshev.convert(kind=numpy.polynomial.Polynomial, domain=[-1, 1]).coef


def piece(i):
    if i == 0:
        slope = interpolate(lambda t: tail(WIDTH * t) / t, DEGREE - 1, 0, 1 / 2)
        return [0.0, *slope]
    if i == PIECES - 1:
        return [0.0] * (DEGREE + 1)
    return interpolate(lambda t: tail(WIDTH * (i + t)), DEGREE, -1 / 2, 1 / 2)


HEADER = """#pragma once

// Made by tools/make_gelu_table.py: coefficients of t^0 .. t^5, each of pieces 0 .. 15.
namespace strake::kernels {
namespace {

alignas(64) constexpr float kGeluTail[6][16] = {"""

FOOTER = """};

}  // namespace
}  // namespace strake::kernels"""


def main():
    by_power = numpy.array([piece(i) for i in range(PIECES)], numpy.float32).T
    print(HEADER)
    for coefficients in by_power:
        for begin in range(0, PIECES, 8):
            values = ", ".join(f"{value:.8e}F" for value in coefficients[begin : begin + 8])
            print(f"    {'{' if begin == 0 else ' '}{values}{'},' if begin + 8 == PIECES else ','}")
    print(FOOTER)


main()
