#include "strake/tensors/safetensors.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <cstring>
#include <set>

#include "strake/core/direct_output.h"
#include "strake/core/error.h"
#include "strake/core/json.h"
#include "strake/core/threads.h"
#include "strake/tensors/dtype.h"

namespace strake::tensors {
namespace {

constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // the limit of the reference implementation
constexpr size_t kLengthBytes = 8;
constexpr size_t kLine = 64;  // bytes: where data begin in files of ours

template <typename... Args>
void check(bool ok, const std::filesystem::path& path, fmt::format_string<Args...> format, Args&&... args) {
  if (!ok) fail(ErrorKind::kConfig, "{}: {}", path.string(), fmt::format(format, std::forward<Args>(args)...));
}

uint64_t header_length(const std::filesystem::path& path, std::span<const std::byte> bytes) {
  check(bytes.size() >= kLengthBytes, path, "{} bytes are too few for a safetensors file", bytes.size());
  uint64_t length = 0;
  std::memcpy(&length, bytes.data(), kLengthBytes);
  check(length <= kMaxHeaderBytes, path, "header of {} bytes is over the limit of {}", length, kMaxHeaderBytes);
  check(length <= bytes.size() - kLengthBytes, path, "header of {} bytes is longer than the file ({} bytes)", length,
        bytes.size());
  check(length > 0 && static_cast<char>(bytes[kLengthBytes]) == '{', path, "header does not begin with '{{'");
  return length;
}

uint64_t unsigned_number(const std::filesystem::path& path, const std::string& name, const Json& value) {
  check(value.is_number_unsigned(), path, "tensor '{}': {} is not a non-negative integer", printable(name),
        printable(value.dump()));
  return value.get<uint64_t>();
}

SafetensorsFile::Info parse_tensor(const std::filesystem::path& path, const std::string& name, const Json& entry) {
  check(entry.is_object() && entry.size() == 3 && entry.contains("dtype") && entry.contains("shape") &&
            entry.contains("data_offsets"),
        path, "tensor '{}' must have exactly dtype, shape and data_offsets", printable(name));
  check(entry["dtype"].is_string(), path, "tensor '{}': dtype is not a string", printable(name));
  const auto dtype = parse_safetensors_dtype(entry["dtype"].get<std::string>());
  check(dtype.has_value(), path, "tensor '{}': dtype '{}' is not supported", printable(name),
        printable(entry["dtype"].get<std::string>()));
  check(entry["shape"].is_array(), path, "tensor '{}': shape is not a list", printable(name));
  SafetensorsFile::Info info{.dtype = *dtype, .shape = {}};
  uint64_t bytes = c10::elementSize(*dtype);
  for (const Json& size : entry["shape"]) {
    const uint64_t extent = unsigned_number(path, name, size);
    check(extent <= uint64_t{INT64_MAX} && !__builtin_mul_overflow(bytes, extent, &bytes), path,
          "tensor '{}': shape overflows", printable(name));
    info.shape.push_back(static_cast<int64_t>(extent));
  }
  const Json& offsets = entry["data_offsets"];
  check(offsets.is_array() && offsets.size() == 2, path, "tensor '{}': data_offsets are not two numbers",
        printable(name));
  info.begin = unsigned_number(path, name, offsets[0]);
  info.end = unsigned_number(path, name, offsets[1]);
  check(info.begin <= info.end && info.end - info.begin == bytes, path,
        "tensor '{}': data_offsets [{}, {}] do not hold shape {} of {}", printable(name), info.begin, info.end,
        describe_shape(info.shape), safetensors_dtype(*dtype));
  return info;
}

// The byte ranges, sorted, must tile [0, data_bytes) exactly.
void check_tiling(const std::filesystem::path& path, const std::map<std::string, SafetensorsFile::Info>& tensors,
                  uint64_t data_bytes) {
  std::vector<std::pair<const std::string*, const SafetensorsFile::Info*>> ordered;
  for (const auto& [name, info] : tensors) ordered.emplace_back(&name, &info);
  std::ranges::sort(ordered, {}, [](const auto& item) { return std::pair(item.second->begin, item.second->end); });
  uint64_t next = 0;
  for (const auto& [name, info] : ordered) {
    check(info->begin == next, path, "tensor '{}' begins at byte {}, expected {} (a hole or an overlap)",
          printable(*name), info->begin, next);
    next = info->end;
  }
  check(next == data_bytes, path, "the header describes {} bytes of data, the file has {}", next, data_bytes);
}

uint64_t bytes_of(const SafetensorsWriter::Entry& entry) {
  uint64_t bytes = c10::elementSize(entry.dtype);
  for (const int64_t extent : entry.shape) bytes *= static_cast<uint64_t>(extent);
  return bytes;
}

Json header_of(const std::vector<SafetensorsWriter::Entry>& entries,
               const std::map<std::string, std::string>& metadata) {
  Json header = Json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  uint64_t offset = 0;
  for (const auto& entry : entries) {
    const uint64_t end = offset + bytes_of(entry);
    header[entry.name] = {
        {"dtype", safetensors_dtype(entry.dtype)}, {"shape", entry.shape}, {"data_offsets", {offset, end}}};
    offset = end;
  }
  return header;
}

}  // namespace

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path)
    : path_(path), file_(std::make_shared<MappedFile>(path)) {
  const std::span<const std::byte> bytes = file_->bytes();
  const uint64_t length = header_length(path, bytes);
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()) + kLengthBytes, length);
  const Json header = parse_json(text, path.string() + " header");
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") {
      check(entry.is_object(), path, "__metadata__ is not an object");
      for (const auto& [key, value] : entry.items()) {
        check(value.is_string(), path, "__metadata__ '{}' is not a string", printable(key));
        metadata_[key] = value.get<std::string>();
      }
      continue;
    }
    tensors_.emplace(name, parse_tensor(path, name, entry));
  }
  data_begin_ = kLengthBytes + length;
  check_tiling(path, tensors_, bytes.size() - data_begin_);
}

const SafetensorsFile::Info& SafetensorsFile::find(const std::string& name) const {
  const auto found = tensors_.find(name);
  check(found != tensors_.end(), path_, "there is no tensor '{}'", printable(name));
  return found->second;
}

at::Tensor SafetensorsFile::read(const std::string& name) const { return view(find(name)); }

at::Tensor SafetensorsFile::read_rows(const std::string& name, int64_t begin, int64_t end) const {
  Info part = find(name);
  check(!part.shape.empty() && begin >= 0 && begin <= end && end <= part.shape[0], path_,
        "tensor '{}' has no rows [{}, {})", printable(name), begin, end);
  const uint64_t row_bytes = part.shape[0] == 0 ? 0 : (part.end - part.begin) / static_cast<uint64_t>(part.shape[0]);
  part.shape[0] = end - begin;
  part.end = part.begin + static_cast<uint64_t>(end) * row_bytes;
  part.begin += static_cast<uint64_t>(begin) * row_bytes;
  return view(part);
}

at::Tensor SafetensorsFile::view(const Info& part) const {
  const auto options = at::TensorOptions().dtype(part.dtype);
  if (part.begin == part.end) return at::empty(part.shape, options);
  const std::span<const std::byte> bytes = file_->bytes().subspan(data_begin_ + part.begin, part.end - part.begin);
  auto* data = const_cast<std::byte*>(bytes.data());
  if (reinterpret_cast<uintptr_t>(data) % c10::elementSize(part.dtype) != 0) {  // allowed by the format, not by us
    at::Tensor copy = at::empty(part.shape, options);
    std::memcpy(copy.data_ptr(), data, bytes.size());
    file_->let_go(bytes);
    return copy;
  }
  return at::from_blob(data, part.shape, [file = file_, bytes](void*) { file->let_go(bytes); }, options);
}

SafetensorsWriter::SafetensorsWriter(const std::filesystem::path& path, std::vector<Entry> entries,
                                     const std::map<std::string, std::string>& metadata, Write when)
    : path_(path), entries_(std::move(entries)) {
  std::string header = header_of(entries_, metadata).dump();
  header.resize((kLengthBytes + header.size() + kLine - 1) / kLine * kLine - kLengthBytes, ' ');
  bytes_ = kLengthBytes + header.size();
  for (const Entry& entry : entries_) bytes_ += bytes_of(entry);
  if (when == Write::kNow) {
    file_.emplace(path);
    file_->reserve(bytes_);
  } else {
    constexpr uint64_t kPage = DirectOutput::kPage;
    memory_ = at::empty({static_cast<int64_t>(bytes_ + kPage)}, at::kByte);
    auto* const begin = memory_.mutable_data_ptr<uint8_t>();
    image_ = reinterpret_cast<std::byte*>(begin) + (kPage - reinterpret_cast<uintptr_t>(begin) % kPage);
  }
  const uint64_t length = header.size();
  put(&length, kLengthBytes);
  put(header.data(), header.size());
}

void SafetensorsWriter::put(const void* data, uint64_t bytes) {
  if (file_) return file_->write(data, bytes);
  const auto* const from = static_cast<const std::byte*>(data);
  std::byte* const to = image_ + filled_;
  parallel_for(static_cast<int64_t>(bytes), int64_t{1} << 20, [&](int64_t begin, int64_t end) {
    std::memcpy(to + begin, from + begin, static_cast<size_t>(end - begin));
  });
  filled_ += bytes;
}

void SafetensorsWriter::write(const at::Tensor& tensor) {
  require(next_ < entries_.size(), ErrorKind::kInternal, "more tensors than announced");
  const Entry& entry = entries_[next_++];
  require(tensor.sizes() == at::IntArrayRef(entry.shape) && tensor.scalar_type() == entry.dtype, ErrorKind::kInternal,
          "tensor '{}' is not as announced", entry.name);
  if (tensor.dim() == 0 || tensor.is_contiguous()) {
    put(tensor.const_data_ptr(), tensor.nbytes());
    return;
  }
  // What is transposed is put in order a few rows at a time, so that there is no second whole tensor in memory.
  constexpr size_t kChunk = size_t{1} << 18;  // bytes
  const int64_t rows = tensor.size(0);
  const auto rows_at_a_time = static_cast<int64_t>(kChunk * static_cast<size_t>(rows) / tensor.nbytes() + 1);
  for (int64_t row = 0; row < rows; row += rows_at_a_time) {
    const at::Tensor ordered = tensor.narrow(0, row, std::min(rows_at_a_time, rows - row)).contiguous();
    put(ordered.const_data_ptr(), ordered.nbytes());
  }
}

FileSum SafetensorsWriter::commit(const std::stop_token& stop) {
  require(next_ == entries_.size(), ErrorKind::kInternal, "{} of {} tensors were written", next_, entries_.size());
  if (image_ != nullptr) {
    file_.emplace(path_);
    file_->reserve(bytes_);
    constexpr uint64_t kPiece = uint64_t{64} << 20;  // whole pages
    for (uint64_t done = 0; done < bytes_; done += kPiece) {
      require(!stop.stop_requested(), ErrorKind::kInterrupted, "{} is not needed any more", path_.string());
      file_->write(image_ + done, std::min(kPiece, bytes_ - done));
    }
  }
  file_->commit();
  return file_->sum();
}

void write_safetensors(const std::filesystem::path& path, const std::vector<NamedTensor>& tensors,
                       const std::map<std::string, std::string>& metadata) {
  std::vector<SafetensorsWriter::Entry> entries;
  for (const auto& [name, tensor] : tensors) {
    entries.push_back({name, tensor.scalar_type(), {tensor.sizes().begin(), tensor.sizes().end()}});
  }
  SafetensorsWriter writer(path, std::move(entries), metadata);
  for (const auto& [name, tensor] : tensors) writer.write(tensor);
  writer.commit();
}

}  // namespace strake::tensors
