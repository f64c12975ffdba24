#include "strake/core/cpu_features.h"

#include <gtest/gtest.h>

#include "strake/core/error.h"

namespace strake::cpu_features_test {
namespace {

TEST(CpuFeatures, LevelsImplyTheLowerOnes) {
  const CpuFeatures& f = cpu_features();
  EXPECT_TRUE(!f.avx512 || f.avx2);
  EXPECT_TRUE(!f.avx512_vnni || f.avx512);
  EXPECT_TRUE(!f.avx512_bf16 || f.avx512);
  EXPECT_TRUE(!f.amx_bf16 || f.avx512);
  EXPECT_TRUE(usable(Isa::kReference));
  EXPECT_TRUE(usable(best_isa()));
  EXPECT_TRUE(!usable(Isa::kAmx) || cpu_features().avx512_bf16) << "its results are stored by that";
}

TEST(CpuFeatures, AgreesWithTheCompilersDetection) {
  EXPECT_EQ(cpu_features().avx2, __builtin_cpu_supports("avx2") != 0);
  EXPECT_EQ(cpu_features().avx512, __builtin_cpu_supports("avx512bw") != 0);
  EXPECT_EQ(cpu_features().avx512_vnni, __builtin_cpu_supports("avx512vnni") != 0);
}

TEST(CpuFeatures, NamesRoundTripAndUnknownOnesAreErrors) {
  for (const Isa isa : {Isa::kReference, Isa::kAvx2, Isa::kAvx512, Isa::kAvx512Vnni, Isa::kAvx512Bf16, Isa::kAmx}) {
    EXPECT_EQ(parse_isa(to_string(isa)), isa);
  }
  EXPECT_THROW(parse_isa("sse9"), Error);
}

}  // namespace
}  // namespace strake::cpu_features_test
