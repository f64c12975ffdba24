#include "strake/monitor/event_file.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <chrono>

#include "strake/core/crc32c.h"
#include "strake/core/file.h"
#include "strake/core/host_name.h"
#include "strake/core/parse_integer.h"

namespace strake::monitor {
namespace fs = std::filesystem;
namespace {

// Little-endian.
template <typename T>
void put(std::string& text, T number) {
  for (size_t i = 0; i < sizeof(T); ++i) text.push_back(static_cast<char>(number >> (8 * i) & 0xFF));
}

// Fields of protocol buffers: a varint of number and kind, then the value.
enum Kind : uint8_t { kVarint = 0, kEightBytes = 1, kText = 2, kFourBytes = 5 };

void put_varint(std::string& message, uint64_t number) {
  for (; number >= 0x80; number >>= 7) message.push_back(static_cast<char>(number | 0x80));
  message.push_back(static_cast<char>(number));
}
void put_key(std::string& message, unsigned field, Kind kind) { put_varint(message, field << 3 | kind); }
void put_text(std::string& message, unsigned field, std::string_view text) {
  put_key(message, field, kText);
  put_varint(message, text.size());
  message.append(text);
}

std::string event_begin() {
  const std::chrono::duration<double> now = std::chrono::system_clock::now().time_since_epoch();
  std::string event;
  put_key(event, 1, kEightBytes);  // wall_time
  put(event, std::bit_cast<uint64_t>(now.count()));
  return event;
}

void put_step(std::string& event, int64_t step) {
  put_key(event, 2, kVarint);
  put_varint(event, static_cast<uint64_t>(step));
}

constexpr std::string_view kFilePrefix = "events.out.tfevents.";
constexpr size_t kDigits = 10;  // of seconds since 1970

// In the name of the last file of the folder; 0 if there is none.
int64_t seconds_of_last(const fs::path& folder) {
  int64_t last = 0;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(kFilePrefix) || name.find('.', kFilePrefix.size()) != kFilePrefix.size() + kDigits) continue;
    const auto seconds = parse_integer<int64_t>(std::string_view(name).substr(kFilePrefix.size(), kDigits));
    last = std::max(last, seconds.value_or(0));
  }
  return last;
}

// As torch.utils.tensorboard names it, but never before or as a file that is there: TensorBoard reads them in the order
// of their names, a clock may be set back, and in containers hosts and processes have the same names again and again.
fs::path new_file_of(const fs::path& folder) {
  static std::atomic<int> count = 0;
  const auto now =
      std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
  strake::create_directories(folder);
  const int64_t seconds = std::max<int64_t>(now, seconds_of_last(folder) + 1);
  return folder / fmt::format("{}{:010}.{}.{}.{}", kFilePrefix, seconds, host_name(), ::getpid(), count++);
}

}  // namespace

std::string event_record(std::string_view data) {
  const auto masked = [](std::string_view text) {
    const uint32_t crc = crc32c(text.data(), text.size());
    return (crc >> 15 | crc << 17) + 0xA282EAD8U;
  };
  std::string record;
  put(record, uint64_t{data.size()});
  put(record, masked(record));
  record.append(data);
  put(record, masked(data));
  return record;
}

EventFile::EventFile(const fs::path& folder, std::optional<int64_t> first_step)
    : file_(new_file_of(folder), AppendedFile::Beginning::kNew) {
  std::string version = event_begin();
  put_text(version, 3, "brain.Event:2");  // file_version
  file_.append(event_record(version));
  if (!first_step) return;
  std::string start = event_begin();
  put_step(start, *first_step);
  put_text(start, 7, std::string_view("\x08\x01", 2));  // session_log, whose status is START
  file_.append(event_record(start));
}

void EventFile::write(std::span<const Scalar> scalars, int64_t step) {
  std::string summary;
  for (const Scalar& scalar : scalars) {
    std::string value;
    put_text(value, 1, scalar.tag);
    put_key(value, 2, kFourBytes);  // simple_value
    put(value, std::bit_cast<uint32_t>(static_cast<float>(scalar.value)));
    put_text(summary, 1, value);
  }
  std::string event = event_begin();
  put_step(event, step);
  put_text(event, 5, summary);
  file_.append(event_record(event));
}

}  // namespace strake::monitor
