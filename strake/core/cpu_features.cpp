#include "strake/core/cpu_features.h"

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "strake/core/error.h"

namespace strake {
namespace {

constexpr std::array kIsaNames{"reference", "avx2", "avx512", "avx512_vnni", "avx512_bf16", "amx"};

struct Registers {
  uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;
};

Registers cpuid(uint32_t leaf, uint32_t subleaf = 0) {
  Registers r;
  __get_cpuid_count(leaf, subleaf, &r.eax, &r.ebx, &r.ecx, &r.edx);
  return r;
}

bool bit(uint32_t word, int index) { return ((word >> index) & 1U) != 0; }

// Register states the operating system saves: without them an instruction set must not be used.
uint64_t enabled_states() {
  uint32_t low = 0;
  uint32_t high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (uint64_t{high} << 32) | low;
}

std::string brand_string() {
  std::array<uint32_t, 12> words{};
  for (size_t i = 0; i < 3; ++i) {
    const Registers r = cpuid(0x80000002U + static_cast<uint32_t>(i));
    words[4 * i] = r.eax, words[4 * i + 1] = r.ebx, words[4 * i + 2] = r.ecx, words[4 * i + 3] = r.edx;
  }
  std::string text(reinterpret_cast<const char*>(words.data()), sizeof(words));
  text.resize(std::strlen(text.c_str()));
  while (!text.empty() && text.back() == ' ') text.pop_back();
  return text;
}

CpuFeatures detect() {
  CpuFeatures f;
  f.brand = brand_string();
  const Registers leaf1 = cpuid(1);
  f.signature = leaf1.eax;
  if (!bit(leaf1.ecx, 27)) return f;  // no OSXSAVE
  const uint64_t states = enabled_states();
  const bool ymm = (states & 0x6) == 0x6;
  const bool zmm = (states & 0xE6) == 0xE6;
  const bool tiles = (states & 0x60000) == 0x60000;
  const Registers leaf7 = cpuid(7, 0);
  const Registers leaf7_1 = cpuid(7, 1);
  f.avx2 = ymm && bit(leaf7.ebx, 5) && bit(leaf1.ecx, 12) && bit(leaf1.ecx, 29);
  f.avx512 = f.avx2 && zmm && bit(leaf7.ebx, 16) && bit(leaf7.ebx, 17) && bit(leaf7.ebx, 28) && bit(leaf7.ebx, 30) &&
             bit(leaf7.ebx, 31);
  f.avx512_vnni = f.avx512 && bit(leaf7.ecx, 11);
  f.avx512_bf16 = f.avx512 && bit(leaf7_1.eax, 5);
  f.amx_bf16 = f.avx512 && tiles && bit(leaf7.edx, 22) && bit(leaf7.edx, 24);
  f.amx_int8 = f.avx512 && tiles && bit(leaf7.edx, 25) && bit(leaf7.edx, 24);
  return f;
}

// Linux enables the tiles' registers, 8 KiB a thread, for processes that ask. Threads inherit the permission.
bool tiles_permitted() {
  static const bool permitted = [] {
    constexpr long kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
    constexpr long kTileData = 18;
    return ::syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
  }();
  return permitted;
}

bool machine_has(Isa isa) {
  const CpuFeatures& f = cpu_features();
  switch (isa) {
    case Isa::kReference:
      return true;
    case Isa::kAvx2:
      return f.avx2;
    case Isa::kAvx512:
      return f.avx512;
    case Isa::kAvx512Vnni:
      return f.avx512_vnni;
    case Isa::kAvx512Bf16:
      return f.avx512_bf16;
    case Isa::kAmx:
      // What tiles have summed is rounded by AVX512-BF16, which a virtual machine may lack.
      return f.avx512_bf16 && f.amx_bf16 && f.amx_int8 && tiles_permitted();
  }
  return false;
}

Isa highest_allowed() {
  static const Isa allowed = [] {
    const char* name = std::getenv("STRAKE_ISA");
    return name == nullptr || *name == '\0' ? Isa::kAmx : parse_isa(name);
  }();
  return allowed;
}

}  // namespace

const char* to_string(Isa isa) { return kIsaNames.at(static_cast<size_t>(isa)); }

Isa parse_isa(std::string_view name) {
  for (size_t i = 0; i < kIsaNames.size(); ++i) {
    if (name == kIsaNames.at(i)) return static_cast<Isa>(i);
  }
  fail(ErrorKind::kUsage, "STRAKE_ISA={} is none of {}", name, fmt::join(kIsaNames, ", "));
}

const CpuFeatures& cpu_features() {
  static const CpuFeatures features = detect();
  return features;
}

bool usable(Isa isa) { return isa <= highest_allowed() && machine_has(isa); }

Isa best_isa() {
  for (const Isa isa : {Isa::kAmx, Isa::kAvx512Bf16, Isa::kAvx512Vnni, Isa::kAvx512, Isa::kAvx2}) {
    if (usable(isa)) return isa;
  }
  return Isa::kReference;
}

std::string describe_cpu() { return cpu_features().brand + ": " + to_string(best_isa()); }

}  // namespace strake
