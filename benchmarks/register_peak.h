#pragma once

namespace strake::benchmarks {

// Operations a second of one thread in a loop of independent multiply-adds on registers, with the widest instructions
// that the machine has (bf16: AMX, VDPBF16PS, or those of fp32; int8: AMX, VPDPBUSD, or VPMADDWD and VPADDD). The best
// of a few milliseconds of trials, on numbers that are neither 0 nor small, which would cost less power.
double fp32_register_peak();
double bf16_register_peak();
double int8_register_peak();

}  // namespace strake::benchmarks
