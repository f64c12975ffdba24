#include "strake/checkpoint/checkpoint_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "strake/core/error.h"
#include "strake/core/file.h"
#include "strake/core/json.h"
#include "strake/core/test_error.h"

namespace strake::checkpoint::checkpoint_folder_test {
namespace {
namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::ThrowsMessage;

class CheckpointFolderTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("strake_checkpoint_test_" + std::to_string(::getpid()));
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  fs::path save(int64_t step, bool is_finite = true) {
    CheckpointWriter writer(folder_, step);
    write_file_atomically(writer.path() / "model.safetensors", "weights of step " + std::to_string(step));
    write_file_atomically(writer.path() / "config.json", "{}");
    return writer.commit({.last = step - 1, .is_finite = is_finite});
  }
  std::vector<int64_t> steps() {
    std::vector<int64_t> result;
    for (const auto& item : list_checkpoints(folder_)) result.push_back(item.step);
    return result;
  }

  fs::path folder_;
};

TEST_F(CheckpointFolderTest, CommittedCheckpointsVerifyAndAreListedByStep) {
  for (const int64_t step : {3, 20, 100}) verify_checkpoint(save(step));
  EXPECT_EQ(steps(), (std::vector<int64_t>{3, 20, 100}));
  EXPECT_EQ(newest_sound_checkpoint(folder_)->step, 100);
}

TEST_F(CheckpointFolderTest, AnInterruptedSaveLeavesNothingThatCounts) {
  save(1);
  {
    CheckpointWriter writer(folder_, 2);
    write_file_atomically(writer.path() / "model.safetensors", "half");
  }
  EXPECT_EQ(steps(), std::vector<int64_t>{1});
  fs::create_directories(folder_ / ".checkpoint-7.tmp");  // as kill -9 leaves it
  remove_leftovers(folder_);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), {}), 1);
}

TEST_F(CheckpointFolderTest, FilesThatRanksSayTheyWroteMustBeThere) {
  const std::string name = "optimizer-00002-of-00002.safetensors";
  const std::string path = (folder_ / ".checkpoint-2.tmp" / name).string();
  CheckpointWriter writer(folder_, 2);
  write_file_atomically(writer.path() / "config.json", "{}");
  const auto commit = [&] { writer.commit({.sums = {{name, FileSum{.bytes = 4, .crc = 1}}}, .last = 1}); };
  EXPECT_THAT([&] { commit(); }, ThrowsMessage<Error>(HasSubstr(path + " was written, with 4 bytes, and is not")));
  write_file_atomically(writer.path() / name, "abc");
  EXPECT_THAT([&] { commit(); }, ThrowsMessage<Error>(HasSubstr(path + " has 3 bytes, 4 were written")));
  EXPECT_TRUE(steps().empty());
}

TEST_F(CheckpointFolderTest, WhatAnotherAttemptLeftIsNoPartOfACheckpoint) {
  const fs::path left = folder_ / ".checkpoint-2.tmp";
  fs::create_directories(left);
  write_file_atomically(left / "model.safetensors", "of another attempt");
  fs::permissions(left, fs::perms::owner_read | fs::perms::owner_exec);
  const uid_t user = ::geteuid();
  const uid_t nobody = 65534;
  if (user == 0) {  // who may remove everything
    ASSERT_EQ(::seteuid(nobody), 0);
  }
  EXPECT_THAT([&] { CheckpointWriter(folder_, 2); },
              ThrowsMessage<Error>(HasSubstr("cannot remove " + left.string() + ", left by an interrupted save: ")));
  ASSERT_EQ(::seteuid(user), 0);
  fs::permissions(left, fs::perms::owner_all);
}

TEST_F(CheckpointFolderTest, TemporaryFilesOfAKilledWriteAreRemovedAndNothingElse) {
  const std::vector<std::string> kept{"model.safetensors", "model.safetensors.tmp", "notes.tmp-1",
                                      "a.tmp-99999999-2.bak", "scored.parquet.tmp-1-0"};
  for (const std::string& name : kept) write_file_atomically(folder_ / name, "kept");
  fs::create_directories(folder_ / "folder.tmp-99999999-2");
  fs::create_symlink(folder_ / "model.safetensors", folder_ / "link.tmp-99999999-2");
  write_file_atomically(folder_ / "model.safetensors.tmp-99999999-3", "half");  // as kill -9 leaves it
  remove_leftovers(folder_);
  EXPECT_FALSE(fs::exists(folder_ / "model.safetensors.tmp-99999999-3"));
  for (const std::string& name : kept) EXPECT_TRUE(fs::exists(folder_ / name)) << name;
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), {}), static_cast<std::ptrdiff_t>(kept.size() + 2));
}

TEST_F(CheckpointFolderTest, DamageIsFoundAndTheOlderCheckpointIsTaken) {
  save(1);
  const fs::path newest = save(2);
  std::string content = read_file(newest / "model.safetensors", 1000);
  content[3] ^= 1;  // one flipped bit
  write_file_atomically(newest / "model.safetensors", content);
  EXPECT_THROW(verify_checkpoint(newest), Error);
  EXPECT_EQ(newest_sound_checkpoint(folder_)->step, 1);
  write_file_atomically(newest / "model.safetensors", "short");
  EXPECT_THROW(verify_checkpoint(newest), Error);
  fs::remove(newest / "model.safetensors");
  EXPECT_THROW(verify_checkpoint(newest), Error);
}

TEST_F(CheckpointFolderTest, WeightsOfAnotherCheckpointAreRefused) {
  for (const char* stray :
       {"model-00001-of-00002.safetensors", "model.safetensors.index.json", "optimizer-00001-of-00001.safetensors"}) {
    const fs::path folder = save(1);
    write_file_atomically(folder / "README.md", "a user's note");
    verify_checkpoint(folder);
    write_file_atomically(folder / stray, "weights of step 2");
    EXPECT_THROW(verify_checkpoint(folder), Error) << stray;
    EXPECT_THROW(verify_model_files(folder), Error) << stray;
  }
}

TEST_F(CheckpointFolderTest, AModelIsComparedWithAManifestOfOursOnly) {
  CheckpointWriter writer(folder_, 1);
  write_file_atomically(writer.path() / "model.safetensors", "weights");
  write_file_atomically(writer.path() / "optimizer-00001-of-00001.safetensors", "states");
  const fs::path folder = writer.commit({.last = 0});
  fs::remove(folder / "optimizer-00001-of-00001.safetensors");  // not needed for a model
  verify_model_files(folder);
  write_file_atomically(folder / "model.safetensors", "weighty");
  EXPECT_THROW(verify_model_files(folder), Error);
  write_file_atomically(folder / "manifest.json", R"({"name": "somebody else's"})");
  verify_model_files(folder);
  fs::remove(folder / "manifest.json");
  verify_model_files(folder);
}

TEST_F(CheckpointFolderTest, CheckpointsOfDeepSpeedAreNamed) {
  refuse_deepspeed_checkpoint(save(1));
  refuse_deepspeed_checkpoint(folder_);
  fs::create_directories(folder_ / "global_step5");
  write_file_atomically(folder_ / "global_step5" / "zero_pp_rank_0_mp_rank_00_optim_states.pt", "pickled");
  EXPECT_THROW(refuse_deepspeed_checkpoint(folder_), Error);
  EXPECT_THROW(refuse_deepspeed_checkpoint(folder_ / "global_step5"), Error);
}

TEST_F(CheckpointFolderTest, PruningKeepsTheBestAndTheNewest) {
  for (int64_t step = 1; step <= 5; ++step) save(step);
  prune_checkpoints(folder_, 2, folder_ / "checkpoint-2");
  EXPECT_EQ(steps(), (std::vector<int64_t>{2, 5}));
  prune_checkpoints(folder_, 1, std::nullopt);
  EXPECT_EQ(steps(), std::vector<int64_t>{5});
}

TEST_F(CheckpointFolderTest, WeightsThatAreNotFiniteDoNotTakeTheLastFiniteOnesAlong) {
  for (const int64_t step : {1, 2}) save(step);
  for (const int64_t step : {3, 4}) save(step, false);
  prune_checkpoints(folder_, 1, std::nullopt);
  EXPECT_EQ(steps(), (std::vector<int64_t>{2, 4}));
  EXPECT_EQ(newest_sound_checkpoint(folder_)->step, 2);
  fs::remove_all(folder_ / "checkpoint-2");
  EXPECT_EQ(newest_sound_checkpoint(folder_)->step, 4) << "there is no better one";
}

TEST_F(CheckpointFolderTest, OfALinkedCheckpointOnlyTheLinkIsRemoved) {
  const fs::path elsewhere = folder_ / "elsewhere";
  fs::create_directories(elsewhere);
  fs::rename(save(1), elsewhere / "checkpoint-1");
  fs::create_directory_symlink(elsewhere / "checkpoint-1", folder_ / "checkpoint-1");
  save(2);
  prune_checkpoints(folder_, 1, std::nullopt);
  EXPECT_EQ(steps(), std::vector<int64_t>{2});
  EXPECT_FALSE(fs::is_symlink(folder_ / "checkpoint-1"));
  verify_checkpoint(elsewhere / "checkpoint-1");
}

TEST_F(CheckpointFolderTest, ALinkToNothingIsReplaced) {
  fs::create_directory_symlink(folder_ / "moved-away", folder_ / "checkpoint-1");
  verify_checkpoint(save(1));
  EXPECT_FALSE(fs::is_symlink(folder_ / "checkpoint-1"));
}

TEST_F(CheckpointFolderTest, ACheckpointWhoseRemovalWasInterruptedIsALeftover) {
  save(1);
  fs::rename(folder_ / "checkpoint-1", folder_ / ".checkpoint-1.old");  // as kill -9 leaves it
  EXPECT_FALSE(has_checkpoints(folder_));
  remove_leftovers(folder_);
  EXPECT_TRUE(fs::is_empty(folder_));
}

TEST_F(CheckpointFolderTest, AnotherCourseReplacesTheCheckpointsOfTheOneBefore) {
  for (const int64_t step : {2, 4, 6, 8}) save(step);
  {
    CheckpointWriter writer(folder_, 6);  // of a run that went on from step 2
    write_file_atomically(writer.path() / "model.safetensors", "other weights");
    verify_checkpoint(writer.commit({.last = 2}));
  }
  EXPECT_EQ(steps(), (std::vector<int64_t>{2, 6}));
  remove_checkpoints(folder_);
  EXPECT_TRUE(fs::is_empty(folder_));
}

TEST_F(CheckpointFolderTest, FoldersOfOthersAreSeenButNotListed) {
  EXPECT_FALSE(has_checkpoints(folder_));
  EXPECT_FALSE(has_checkpoints(folder_ / "nowhere"));
  fs::create_directories(folder_ / "checkpoint-500");
  EXPECT_TRUE(has_checkpoints(folder_));
  EXPECT_TRUE(steps().empty());
}

TEST_F(CheckpointFolderTest, OnlyAFileIsInTheWayOfACheckpoint) {
  save(1);
  fs::create_directories(folder_ / "checkpoint-500");
  fs::create_symlink("checkpoint-3", folder_ / "checkpoint-3");  // a circle
  write_file_atomically(folder_ / "checkpoint-best", "");
  EXPECT_EQ(find_obstacle(folder_), std::nullopt);
  EXPECT_EQ(find_obstacle(folder_ / "nowhere"), std::nullopt);
  write_file_atomically(folder_ / "checkpoint-4", "");
  EXPECT_EQ(find_obstacle(folder_), folder_ / "checkpoint-4");
}

TEST_F(CheckpointFolderTest, AManifestThatContradictsItselfIsRefused) {
  const fs::path file = save(3) / "manifest.json";
  const Json good = read_json(file, kMaxIndexBytes);
  const auto refusal = [&](const Json& manifest) -> std::string {
    write_file_atomically(file, manifest.dump());
    return error_of([&] { verify_checkpoint(folder_ / "checkpoint-3"); }).text;
  };
  EXPECT_EQ(refusal(good), "no error");
  Json manifest = good;
  manifest["step"] = 4;
  EXPECT_THAT(refusal(manifest), HasSubstr("it is of step 4, the folder's name says 3"));
  manifest = good;
  Json& sum = manifest["files"]["config.json"];
  sum["crc32c"] = sum["crc32c"].get<uint64_t>() + (uint64_t{1} << 32);
  EXPECT_THAT(refusal(manifest), HasSubstr("key 'crc32c' has the unexpected value"));
  manifest = good;
  manifest["files"]["config.json"]["bytes"] = -1;
  EXPECT_THAT(refusal(manifest), HasSubstr("key 'bytes' has the unexpected value -1"));
  write_file_atomically(folder_ / "checkpoint-3" / "strake_state.json", "{}");
  EXPECT_THAT(refusal(good), HasSubstr("strake_state.json does not belong to this checkpoint"));
}

TEST_F(CheckpointFolderTest, SavingTheSameStepAgainReplacesIt) {
  save(4);
  verify_checkpoint(save(4));
  EXPECT_EQ(steps(), std::vector<int64_t>{4});
}

}  // namespace
}  // namespace strake::checkpoint::checkpoint_folder_test
