#include "strake/comm/rank_environment.h"

#include <gtest/gtest.h>

#include <map>

#include "strake/core/error.h"

namespace strake::comm {
namespace {

std::optional<RankEnvironment> detect(const std::map<std::string, std::string>& variables) {
  return detect_rank_environment([&](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

TEST(RankEnvironment, EveryLauncherIsUnderstood) {
  EXPECT_FALSE(detect({}).has_value());
  const auto open_mpi = detect({{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "4"}});
  EXPECT_EQ(open_mpi->launcher, "Open MPI");
  EXPECT_EQ(open_mpi->rank, 1);
  EXPECT_EQ(open_mpi->size, 4);
  EXPECT_EQ(detect({{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}})->launcher, "MPICH");
  EXPECT_EQ(detect({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "2"}, {"SLURM_STEP_ID", "0"}})->launcher, "Slurm");
  EXPECT_FALSE(detect({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "2"}}).has_value());
  const auto torchrun =
      detect({{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", "29500"}});
  EXPECT_EQ(torchrun->master_port, 29500);
}

TEST(RankEnvironment, LocalRanksAreTheLaunchersOrFillOneHostAfterTheOther) {
  const std::map<std::string, std::string> job{{"PMI_RANK", "5"}, {"PMI_SIZE", "8"}, {"MPI_LOCALNRANKS", "4"}};
  EXPECT_EQ(detect(job)->local_rank, 1);
  auto told = job;
  told["MPI_LOCALRANKID"] = "3";
  EXPECT_EQ(detect(told)->local_rank, 3);
}

TEST(RankEnvironment, NonsenseNamesTheVariable) {
  const auto message = [](const std::map<std::string, std::string>& variables) -> std::string {
    try {
      detect(variables);
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_NE(message({{"RANK", "x"}, {"WORLD_SIZE", "2"}}).find("RANK=x"), std::string::npos);
  EXPECT_NE(message({{"PMI_RANK", "2"}, {"PMI_SIZE", "2"}}).find("PMI_RANK=2"), std::string::npos);
  EXPECT_NE(message({{"RANK", "0"}, {"WORLD_SIZE", "2"}}).find("MASTER_ADDR"), std::string::npos);
}

}  // namespace
}  // namespace strake::comm
