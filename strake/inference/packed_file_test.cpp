#include "strake/inference/packed_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <fstream>
#include <functional>
#include <future>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "strake/core/file.h"
#include "strake/inference/cache_tuning.h"
#include "strake/inference/engine.h"
#include "strake/inference/random_model.h"

namespace strake::inference::packed_file_test {
namespace {
namespace fs = std::filesystem;

constexpr std::array kPrecisions{Precision::kFp32, Precision::kBf16, Precision::kInt8};

// By this process.
int64_t times_open(const fs::path& file) {
  const auto is_it = [&](const fs::directory_entry& descriptor) {
    std::error_code gone;  // it may be closed meanwhile
    return fs::read_symlink(descriptor, gone) == file;
  };
  return std::ranges::count_if(fs::directory_iterator("/proc/self/fd"), is_it);
}

class KeptWeights : public testing::Test {
 protected:
  Logits score_kept(Precision precision = Precision::kBf16, Head head = SequenceHead{}) const {
    return score_with(precision, PackedWeights::kKept, std::move(head));
  }
  Logits score_with(Precision precision, PackedWeights packed, Head head = SequenceHead{}) const {
    Engine engine(model_.folder(), {.precision = precision}, capacity(2, 200), std::move(head), packed);
    Logits outputs(static_cast<size_t>(engine.num_outputs(texts_.tokens())));
    engine.score(texts_.tokens(), outputs);
    return outputs;
  }
  Logits expected(Precision precision = Precision::kBf16) const { return score_with(precision, PackedWeights::kOff); }

  fs::path packed_folder() const { return model_.folder() / "strake_packed"; }
  std::vector<fs::path> packed_files() const {
    std::vector<fs::path> files;
    if (!fs::is_directory(packed_folder())) return files;
    for (const auto& entry : fs::directory_iterator(packed_folder())) {
      if (entry.path().extension() == ".packed") files.push_back(entry.path());
    }
    return files;
  }
  fs::path only_file() const {
    const auto files = packed_files();
    EXPECT_EQ(files.size(), 1U);
    return files.at(0);
  }
  // Scores, and says whether the file was trusted: otherwise it is another one afterwards.
  bool is_trusted() const {
    const fs::path file = only_file();
    struct stat before{}, after{};
    EXPECT_EQ(::stat(file.c_str(), &before), 0);
    EXPECT_EQ(score_kept(), expected());
    EXPECT_EQ(::stat(file.c_str(), &after), 0);
    return before.st_ino == after.st_ino;
  }
  static std::string content_of(const fs::path& file) { return read_file(file, uint64_t{1} << 30); }
  static void overwrite(const fs::path& file, const std::string& content) {
    std::ofstream(file, std::ios::binary) << content;
  }
  // One number of a weight, in place: size and, if wanted, times stay.
  void change_weights() const { change_weights_of(model_.folder() / "model.safetensors"); }
  static void change_weights_of(const fs::path& file) {
    std::string content = content_of(file);
    content[content.size() / 2] = static_cast<char>(content[content.size() / 2] ^ 0x40);
    overwrite(file, content);
  }

  RandomModel model_{"bert"};
  Texts texts_{40, true, 3};
};

TEST_F(KeptWeights, GiveTheSameBitsWhenTheyArePackedAndWhenTheyAreMapped) {
  for (const Precision precision : kPrecisions) {
    const Logits logits = expected(precision);
    EXPECT_EQ(score_kept(precision), logits) << to_string(precision) << ", packed";
    EXPECT_EQ(score_kept(precision), logits) << to_string(precision) << ", mapped";
  }
  EXPECT_EQ(packed_files().size(), 3U);
}

TEST_F(KeptWeights, AreOfOneHead) {
  const TokenHead tokens{.checkpoint_name = "classifier", .outputs = 3};
  for (const Head& head : {Head(PooledHead{}), Head(tokens), Head(SequenceHead{})}) {
    const Logits outputs = score_with(Precision::kBf16, PackedWeights::kOff, head);
    EXPECT_EQ(score_kept(Precision::kBf16, head), outputs);
    EXPECT_EQ(score_kept(Precision::kBf16, head), outputs);
  }
  EXPECT_EQ(packed_files().size(), 3U);
}

TEST_F(KeptWeights, AreNotPackedAgain) {
  score_kept();
  EXPECT_TRUE(is_trusted());
  EXPECT_TRUE(is_trusted());
}

TEST_F(KeptWeights, AreNotThereIfTheyAreNotAskedFor) {
  expected();
  EXPECT_FALSE(fs::exists(packed_folder()));
}

TEST_F(KeptWeights, AreMappedWhereverTheModelIsCopied) {
  score_kept();
  const fs::path copy = model_.folder().string() + "_copy";
  fs::copy(model_.folder(), copy, fs::copy_options::recursive);
  fs::remove_all(model_.folder());
  fs::rename(copy, model_.folder());  // other inodes and times, the same weights
  EXPECT_TRUE(is_trusted());
}

TEST_F(KeptWeights, ArePackedAgainWhenTheWeightsChange) {
  score_kept();
  const Logits before = expected();
  change_weights();
  ASSERT_NE(expected(), before) << "else nothing changed that counts";
  EXPECT_FALSE(is_trusted());
  EXPECT_TRUE(is_trusted());
}

TEST_F(KeptWeights, ArePackedAgainWhenTheWeightsChangeAndTheirTimeDoesNot) {
  score_kept();
  const fs::path file = model_.folder() / "model.safetensors";
  const auto time = fs::last_write_time(file);
  change_weights();
  fs::last_write_time(file, time);
  EXPECT_FALSE(is_trusted());
}

TEST_F(KeptWeights, ArePackedAgainWhenTheModelIsAnother) {
  score_kept();
  Json config = config_of("bert");
  config["num_hidden_layers"] = 1;
  overwrite(model_.folder() / "config.json", config.dump());
  EXPECT_FALSE(is_trusted());
}

// A sample of the header's length, of what it says of the arrays, and of the arrays.
TEST_F(KeptWeights, AreNotTrustedWithOneBitChanged) {
  score_kept();
  const std::string sound = content_of(only_file());
  const size_t step = sound.size() / 20;
  for (size_t at = 0; at < sound.size(); at += at < 180 ? 37 : step) {
    std::string damaged = sound;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x10);
    overwrite(only_file(), damaged);
    EXPECT_FALSE(is_trusted()) << "byte " << at << " of " << sound.size();
  }
  EXPECT_TRUE(is_trusted());
}

TEST_F(KeptWeights, AreNotTrustedWhenTheyAreCutOrSomethingElse) {
  score_kept();
  const std::string sound = content_of(only_file());
  const std::vector<std::string> contents{"",
                                          "short",
                                          sound.substr(0, 100),
                                          sound.substr(0, sound.size() / 2),
                                          sound.substr(0, sound.size() - 1),
                                          sound + "x",
                                          std::string(sound.size(), '\0'),
                                          content_of(model_.folder() / "model.safetensors")};
  for (const std::string& content : contents) {
    overwrite(only_file(), content);
    EXPECT_FALSE(is_trusted()) << content.size() << " bytes";
  }
}

// A file whose checksum and metadata are right and whose arrays are not: somebody made it.
TEST_F(KeptWeights, AreNotTrustedWithArraysOfAnotherSize) {
  score_kept();
  const fs::path path = only_file();
  const PackedFile::Identity identity{path.stem().string(), tensors::SafetensorsFile(path).metadata().at("arrays")};
  const PackedFile packed(model_.folder(), identity, {model_.folder() / "model.safetensors"});
  const auto forge = [&](const std::function<void(tensors::NamedTensor&)>& change) {
    const tensors::SafetensorsFile sound(path);
    std::vector<tensors::NamedTensor> arrays;
    for (const auto& [name, info] : sound.tensors()) {
      arrays.emplace_back(name, sound.read(name));
      change(arrays.back());
    }
    {
      const auto turn = packed.take_turn();
      ASSERT_TRUE(turn && packed.write(*turn, arrays, ""));
    }
    ASSERT_NE(packed.open(), nullptr) << "the forgery is good";
    EXPECT_FALSE(is_trusted());
    EXPECT_TRUE(is_trusted());
  };
  forge([](auto& array) { array.first += "x"; });
  forge([](auto& array) { array.second = array.second.flatten().narrow(0, 0, array.second.numel() - 1).clone(); });
  forge([](auto& array) { array.second = array.second.to(at::kDouble); });
}

TEST_F(KeptWeights, GiveTheSameBitsInWhateverBlocksTheyAreToBeMultiplied) {
  LayerBlocks huge, tiny;
  huge.plain.fill({.rows_bytes = int64_t{64} << 20, .columns = 1'000'000});
  huge.quantized = huge.plain;
  tiny.plain.fill({.rows_bytes = 1, .columns = 1});
  tiny.quantized = tiny.plain;
  for (const Precision precision : kPrecisions) {
    score_kept(precision);
    const fs::path path = only_file();
    const PackedFile::Identity identity{path.stem().string(), tensors::SafetensorsFile(path).metadata().at("arrays")};
    const PackedFile packed(model_.folder(), identity, {model_.folder() / "model.safetensors"});
    EXPECT_TRUE(parse_blocks(PackedFile::notes_of(*packed.open()))) << "what was measured";
    for (const std::string& notes : {text_of(huge), text_of(tiny), std::string("nonsense"), text_of({}) + "x"}) {
      const auto file = packed.open();
      std::vector<tensors::NamedTensor> arrays;
      for (const auto& [name, info] : file->tensors()) arrays.emplace_back(name, file->read(name));
      {
        const auto turn = packed.take_turn();
        ASSERT_TRUE(turn && packed.write(*turn, arrays, notes));
      }
      EXPECT_EQ(score_kept(precision), expected(precision)) << to_string(precision) << " " << notes;
      ASSERT_NE(packed.open(), nullptr);
      EXPECT_EQ(PackedFile::notes_of(*packed.open()), notes) << "the file was replaced";
    }
    fs::remove(path);
  }
}

// tests/cli has both with processes that have other kernels.
TEST_F(KeptWeights, OfAnotherProcessorOrReleaseAreNotTrusted) {
  for (const auto& [key, value] : {std::pair{"arrays", std::string("linear layers ")}, {"format", "release 0"}}) {
    score_kept();
    const fs::path path = only_file();
    const tensors::SafetensorsFile sound(path);
    std::vector<tensors::NamedTensor> arrays;
    for (const auto& [name, info] : sound.tensors()) arrays.emplace_back(name, sound.read(name));
    auto metadata = sound.metadata();
    const size_t at = metadata.at(key).find(value);
    ASSERT_NE(at, std::string::npos) << metadata.at(key);
    metadata.at(key).insert(at + value.size(), "0");
    tensors::write_safetensors(path, arrays, metadata);
    EXPECT_FALSE(is_trusted()) << key;
  }
}

TEST_F(KeptWeights, AreDoneWithoutInAFolderThatCannotBeWritten) {
  fs::create_directory_symlink("/proc", packed_folder());  // nobody makes files there, not even root
  EXPECT_EQ(score_kept(), expected());
  EXPECT_EQ(score_kept(Precision::kInt8), expected(Precision::kInt8));
  fs::remove(packed_folder());
  overwrite(packed_folder(), "a file");
  EXPECT_EQ(score_kept(), expected());
}

TEST_F(KeptWeights, AreReadFromAFolderThatCannotBeWritten) {
  score_kept();
  const fs::path lock = packed_folder() / "lock";
  fs::remove(lock);
  fs::create_directory(lock);  // so that there is no turn to be had
  EXPECT_TRUE(is_trusted());
}

TEST_F(KeptWeights, AreDoneWithoutOnAFullDisk) {
  const Logits logits = expected();
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit unlimited{};
  getrlimit(RLIMIT_FSIZE, &unlimited);
  const rlimit small{100'000, unlimited.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small);
  const Logits scored = score_kept();
  setrlimit(RLIMIT_FSIZE, &unlimited);
  EXPECT_EQ(scored, logits);
  EXPECT_TRUE(packed_files().empty());
  EXPECT_EQ(std::distance(fs::directory_iterator(packed_folder()), {}), 1) << "the lock, and no half of a file";
}

TEST_F(KeptWeights, LeaveNothingBehindOfAWriterThatWasKilled) {
  fs::create_directory(packed_folder());
  const fs::path leftover = packed_folder() / "bf16-sequence-amx.packed.tmp-1-0";
  overwrite(leftover, "half");
  score_kept();
  EXPECT_FALSE(fs::exists(leftover));
}

TEST_F(KeptWeights, ArePackedOnceByThreadsThatStartTogether) {
  const Logits logits = expected();
  std::array<Logits, 6> scored;
  std::vector<std::thread> threads;
  for (Logits& result : scored) threads.emplace_back([&] { result = score_kept(); });
  for (std::thread& thread : threads) thread.join();
  for (const Logits& result : scored) EXPECT_EQ(result, logits);
  EXPECT_TRUE(is_trusted());
}

TEST_F(KeptWeights, AreThoseOfTheModelThatIsThereWhenTheirTurnComes) {
  const fs::path weights = model_.folder() / "model.safetensors", others = model_.folder() / "others";
  const Logits before = expected();
  fs::copy_file(weights, others);
  fs::create_directories(packed_folder());
  const int other_process = ::open((packed_folder() / "lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  ASSERT_EQ(::flock(other_process, LOCK_EX), 0);
  auto scored = std::async(std::launch::async, [&] { return score_kept(); });
  const auto knocks = [&] { return times_open(packed_folder() / "lock") > 1; };
  while (!knocks() && scored.wait_for(std::chrono::milliseconds(1)) != std::future_status::ready) continue;
  ASSERT_TRUE(knocks());
  change_weights_of(others);
  fs::rename(others, weights);
  ::close(other_process);
  EXPECT_EQ(scored.get(), expected());
  EXPECT_NE(expected(), before);
  EXPECT_TRUE(is_trusted());
}

TEST_F(KeptWeights, AreDoneWithoutIfTheWeightsChangeWhileTheyArePacked) {
  const fs::path weights = model_.folder() / "model.safetensors";
  const PackedFile packed(model_.folder(), {.name = "some", .arrays = "some"}, {weights});
  const std::vector<tensors::NamedTensor> arrays{{"a", at::zeros({16})}};
  {
    const auto turn = packed.take_turn();
    ASSERT_TRUE(turn);
    EXPECT_TRUE(packed.write(*turn, arrays, ""));
    EXPECT_NE(packed.open(), nullptr);
  }
  const auto turn = packed.take_turn();
  ASSERT_TRUE(turn);
  change_weights();
  EXPECT_FALSE(packed.write(*turn, arrays, ""));
  EXPECT_EQ(packed.open(), nullptr);
}

}  // namespace
}  // namespace strake::inference::packed_file_test
