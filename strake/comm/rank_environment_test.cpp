#include "strake/comm/rank_environment.h"

#include <gtest/gtest.h>

#include <map>

#include "strake/core/test_error.h"

namespace strake::comm::rank_environment_test {
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

// `srun torchrun ...`: a task of Slurm for each machine, in which torchrun starts ranks.
TEST(RankEnvironment, TorchrunMayBeStartedByAnother) {
  std::map<std::string, std::string> job{
      {"RANK", "3"}, {"WORLD_SIZE", "4"}, {"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", "29500"}};
  for (const char* names : {"SLURM_PROCID SLURM_NTASKS", "PMI_RANK PMI_SIZE"}) {
    const std::string both = names;
    const std::string rank = both.substr(0, both.find(' ')), size = both.substr(both.find(' ') + 1);
    auto started = job;
    started.insert({{"SLURM_STEP_ID", "0"}, {rank, "0"}, {size, "1"}});
    EXPECT_EQ(detect(started)->launcher, "torchrun");
    started[rank] = "1";
    started[size] = "2";
    started["TORCHELASTIC_RUN_ID"] = "none";
    EXPECT_EQ(detect(started)->rank, 3);
    started[rank] = "3";
    started[size] = "4";
    started["PMIX_RANK"] = "3";  // srun --mpi=pmix
    EXPECT_NE(detect(started)->launcher, "torchrun") << "the same ranks by both names are those of MPI";
    started.erase("PMIX_RANK");
    EXPECT_EQ(detect(started)->launcher, rank == "PMI_RANK" ? "MPICH" : "torchrun") << "srun started no MPI";
  }
  job["WORLD_SIZE"] = "1";
  job["RANK"] = "0";
  job.insert({{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}});
  EXPECT_EQ(detect(job)->launcher, "MPICH");
}

TEST(RankEnvironment, OnlyStepsOfSrunAreRanks) {
  const std::map<std::string, std::string> job{{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "2"}};
  for (const char* step : {"4294967290", "4294967291"}) {
    auto reserved = job;
    reserved["SLURM_STEP_ID"] = step;
    EXPECT_FALSE(detect(reserved)) << step;
  }
}

TEST(RankEnvironment, LocalRanksAreTheLaunchersOrFillOneHostAfterTheOther) {
  const std::map<std::string, std::string> job{{"PMI_RANK", "5"}, {"PMI_SIZE", "8"}, {"MPI_LOCALNRANKS", "4"}};
  EXPECT_EQ(detect(job)->local_rank, 1);
  EXPECT_TRUE(detect(job)->knows_host);
  EXPECT_FALSE(detect({{"PMI_RANK", "5"}, {"PMI_SIZE", "8"}})->knows_host);
  auto told = job;
  told["MPI_LOCALRANKID"] = "3";
  EXPECT_EQ(detect(told)->local_rank, 3);
}

TEST(RankEnvironment, NonsenseNamesTheVariable) {
  const auto message = [](const std::map<std::string, std::string>& variables) -> std::string {
    return error_of([&] { detect(variables); }).text;
  };
  EXPECT_NE(message({{"RANK", "x"}, {"WORLD_SIZE", "2"}}).find("RANK=x"), std::string::npos);
  EXPECT_NE(message({{"PMI_RANK", "2"}, {"PMI_SIZE", "2"}}).find("PMI_RANK=2"), std::string::npos);
  EXPECT_NE(message({{"RANK", "0"}, {"WORLD_SIZE", "2"}}).find("MASTER_ADDR"), std::string::npos);
  EXPECT_EQ(message({{"WORLD_SIZE", "2"}, {"LOCAL_RANK", "0"}}), "WORLD_SIZE=2 is set as by torchrun, but RANK is not");
  EXPECT_EQ(message({{"RANK", "1"}}), "RANK=1 is set as by torchrun, but WORLD_SIZE is not");
  EXPECT_EQ(message({{"LOCAL_RANK", "1"}}), "LOCAL_RANK=1 is set as by torchrun, but RANK is not");
  EXPECT_EQ(message({{"WORLD_SIZE", "1"}, {"LOCAL_RANK", "0"}}), "no error");
  EXPECT_EQ(message({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", "65535"}}),
            "MASTER_PORT=65535 is not in [1, 65534]");
  EXPECT_NE(message({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "::1"}, {"MASTER_PORT", "1"}}).find("IPv6"),
            std::string::npos);
  for (const std::string variable : {"LOCAL_WORLD_SIZE", "MPI_LOCALNRANKS"}) {
    EXPECT_NE(message({{"RANK", "0"},
                       {"WORLD_SIZE", "2"},
                       {"PMI_RANK", "0"},
                       {"PMI_SIZE", "2"},
                       {"MASTER_ADDR", "a"},
                       {"MASTER_PORT", "1"},
                       {variable, "0"}})
                  .find(variable + "=0"),
              std::string::npos);
  }
  EXPECT_EQ(message({{"PMI_RANK", "0"},
                     {"PMI_SIZE", "3"},
                     {"RANK", "0"},
                     {"WORLD_SIZE", "2"},
                     {"MASTER_ADDR", "a"},
                     {"MASTER_PORT", "1"}}),
            "MPICH started rank 0 of 3, but RANK=0 and WORLD_SIZE=2 are set");
}

}  // namespace
}  // namespace strake::comm::rank_environment_test
