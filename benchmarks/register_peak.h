#pragma once

namespace strake::benchmarks {

// Independent multiply-adds on registers, with the widest instructions that the machine has (bf16: AMX, VDPBF16PS, or
// those of fp32; int8: AMX, VPDPBUSD, or VPMADDWD and VPADDD), on numbers that are neither 0 nor small, which would
// cost less power.
struct RegisterLoop {
  void (*run)(int rounds);
  double operations;  // a round
};
RegisterLoop fp32_register_loop();  // throws Error where the machine has not even AVX2
RegisterLoop bf16_register_loop();
RegisterLoop int8_register_loop();

// Operations a second of one thread that does nothing else: the best of a few milliseconds of trials.
double best_rate(const RegisterLoop& loop);

// Operations a second of all compute threads at once.
double rate_of_all_threads(const RegisterLoop& loop, int rounds);

}  // namespace strake::benchmarks
