#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace strake {

// Instruction sets in the order in which kernels prefer them. kReference is plain C++.
enum class Isa { kReference, kAvx2, kAvx512, kAvx512Vnni, kAvx512Bf16, kAmx };

const char* to_string(Isa isa);
Isa parse_isa(std::string_view name);  // Error (kUsage) listing the names otherwise

struct CpuFeatures {
  bool avx2 = false;         // with FMA and F16C
  bool avx512 = false;       // F, BW, DQ, VL, CD
  bool avx512_vnni = false;  // VPDPBUSD
  bool avx512_bf16 = false;  // VDPBF16PS
  bool amx_bf16 = false;
  bool amx_int8 = false;
  std::string brand;
  uint32_t signature = 0;  // family, model and stepping, as CPUID gives them: brands of virtual machines say little
};

// What this processor and operating system offer (CPUID and XGETBV), regardless of STRAKE_ISA.
const CpuFeatures& cpu_features();

// True if kernels of this level may run: the machine has it and the environment variable STRAKE_ISA
// (reference, avx2, avx512, avx512_vnni, avx512_bf16, amx) does not name a lower one. For kAmx this asks the system for
// the process's permission to use the tiles, once.
bool usable(Isa isa);

// Best usable level, and "AMD EPYC: avx512_bf16" for the log.
Isa best_isa();
std::string describe_cpu();

}  // namespace strake
