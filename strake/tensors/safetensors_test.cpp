#include "strake/tensors/safetensors.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "strake/core/error.h"
#include "strake/core/file.h"
#include "strake/core/test_error.h"
#include "strake/tensors/checkpoint_files.h"

namespace strake::tensors::safetensors_test {
namespace {
namespace fs = std::filesystem;

class SafetensorsTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("strake_safetensors_test_" + std::to_string(::getpid()));
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  // Error text of opening a file with this header and `data_bytes` zeros.
  std::string header_error(const std::string& header, size_t data_bytes, uint64_t claimed_length = 0) {
    const uint64_t length = claimed_length == 0 ? header.size() : claimed_length;
    std::string content(reinterpret_cast<const char*>(&length), 8);
    write_file_atomically(folder_ / "x.safetensors", content + header + std::string(data_bytes, '\0'));
    return error_of([&] { SafetensorsFile file(folder_ / "x.safetensors"); }).text;
  }

  fs::path folder_;
};

TEST_F(SafetensorsTest, WhatIsWrittenIsRead) {
  const std::vector<NamedTensor> tensors{{"b", at::arange(6).view({2, 3}).to(c10::kFloat)},
                                         {"a", at::ones({3}, c10::kBFloat16)},
                                         {"empty", at::ones({0, 4}, c10::kFloat)},
                                         {"scalar", at::ones({}, c10::kLong)}};
  write_safetensors(folder_ / "t.safetensors", tensors, {{"format", "pt"}});
  const SafetensorsFile file(folder_ / "t.safetensors");
  EXPECT_EQ(file.metadata().at("format"), "pt");
  ASSERT_EQ(file.tensors().size(), 4U);
  for (const auto& [name, tensor] : tensors) EXPECT_TRUE(file.read(name).equal(tensor)) << name;
  EXPECT_THROW(file.read("c"), Error);
  EXPECT_TRUE(file.read_rows("b", 1, 2).equal(tensors[0].second.narrow(0, 1, 1)));
  EXPECT_TRUE(file.read_rows("empty", 0, 0).equal(tensors[2].second));
  EXPECT_EQ(error_of([&] { file.read_rows("b", 1, 3); }).text,
            (folder_ / "t.safetensors").string() + ": tensor 'b' has no rows [1, 3)");
  EXPECT_THROW(file.read_rows("scalar", 0, 1), Error);
}

TEST_F(SafetensorsTest, ReadTensorsKeepTheFileAlive) {
  write_safetensors(folder_ / "t.safetensors", {{"a", at::ones({3})}}, {});
  const at::Tensor tensor = SafetensorsFile(folder_ / "t.safetensors").read("a");
  EXPECT_EQ(tensor.sum().item<float>(), 3.0F);
}

TEST_F(SafetensorsTest, SoundHeadersAreAccepted) {
  EXPECT_EQ(header_error(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}  )", 8), "no error");
  EXPECT_EQ(header_error("{}", 0), "no error");
}

TEST_F(SafetensorsTest, MalformedHeadersAreRefused) {  // mirrors the reference implementation's unit tests
  const auto expect = [&](const std::string& header, size_t bytes, const std::string& part) {
    const std::string message = header_error(header, bytes);
    EXPECT_NE(message.find(part), std::string::npos) << header << ": " << message;
    EXPECT_NE(message.find("x.safetensors"), std::string::npos);
  };
  expect(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", 8, "do not hold shape");
  expect(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 12, "the file has 12");
  expect(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 4, "the file has 4");
  expect(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", 8, "hole or an overlap");
  expect(
      R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"b":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
      4, "hole or an overlap");
  expect(
      R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
      8, "occurs twice");
  expect(R"({"a":{"dtype":"F32","shape":[9223372036854775807,2],"data_offsets":[0,8]}})", 8, "overflows");
  expect(R"({"a":{"dtype":"F32","shape":[18446744073709551615],"data_offsets":[0,8]}})", 8, "overflows");
  expect(R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,8]}})", 8, "non-negative");
  expect(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}})", 8, "do not hold");
  expect(R"({"a":{"dtype":"F4","shape":[2],"data_offsets":[0,1]}})", 1, "'F4' is not supported");
  expect(R"({"a":{"dtype":"F32","shape":[2]}})", 8, "exactly dtype");
  expect(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8],"x":1}})", 8, "exactly dtype");
  expect(R"({"__metadata__":{"k":1}})", 0, "not a string");
  expect(R"([1])", 0, "begin with");
  expect(" {}", 0, "begin with");
  expect("{\"a\":", 0, "not valid JSON");
}

TEST_F(SafetensorsTest, HeaderBombsAreRefused) {
  EXPECT_NE(header_error("{}", 0, uint64_t{1} << 63).find("over the limit"), std::string::npos);
  EXPECT_NE(header_error("{}", 0, 1000).find("longer than the file"), std::string::npos);
  EXPECT_NE(header_error("{\"a\":" + std::string(100000, '['), 0).find("deeper than"), std::string::npos);
  write_file_atomically(folder_ / "short.safetensors", "abc");
  EXPECT_NE(error_of([&] { SafetensorsFile file(folder_ / "short.safetensors"); }).text.find("too few"),
            std::string::npos);
}

TEST_F(SafetensorsTest, ShardedFoldersRoundTrip) {
  const std::vector<NamedTensor> tensors{{"a", at::ones({100})}, {"b", at::ones({100}) * 2}, {"c", at::ones({10})}};
  write_safetensors(folder_ / "first.safetensors", {tensors[0], tensors[2]}, {});
  write_safetensors(folder_ / "second.safetensors", {tensors[1]}, {});
  write_file_atomically(folder_ / kWeightsIndexFile, R"({"weight_map": {"a": "first.safetensors",
      "b": "second.safetensors", "c": "first.safetensors"}})");
  const CheckpointFiles files(folder_);
  EXPECT_EQ(files.names(), (std::vector<std::string>{"a", "b", "c"}));
  for (const auto& [name, tensor] : tensors) EXPECT_TRUE(files.read_rows(name, 0, tensor.size(0)).equal(tensor));
}

TEST_F(SafetensorsTest, IndexFilesCannotLeaveTheFolder) {
  for (const std::string file : {"../x.safetensors", "/etc/passwd", "a/b.safetensors"}) {
    write_file_atomically(folder_ / "model.safetensors.index.json", R"({"weight_map":{"a":")" + file + R"("}})");
    EXPECT_NE(error_of([&] { CheckpointFiles files(folder_); }).text.find("plain name"), std::string::npos);
  }
}

TEST_F(SafetensorsTest, PickledWeightsAreRefusedWithTheWayOut) {
  write_file_atomically(folder_ / "pytorch_model.bin", "x");
  const std::string message = error_of([&] { CheckpointFiles files(folder_); }).text;
  EXPECT_NE(message.find("save_pretrained"), std::string::npos) << message;
}

}  // namespace
}  // namespace strake::tensors::safetensors_test
