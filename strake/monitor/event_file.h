#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "strake/core/appended_file.h"
#include "strake/monitor/scalar_log.h"

namespace strake::monitor {

// TensorBoard's event file: records (tensorflow/core/lib/io/record_writer.h) of Event messages
// (tensorboard/compat/proto/event.proto), which TensorBoard reads while they are written.
class EventFile final : public ScalarLog {
 public:
  // A new file in `folder`, which is created with its parents. With `first_step`, the run goes on with that step, and
  // TensorBoard forgets what older files of the folder have from there on. Error (kIo) with the path and reason.
  EventFile(const std::filesystem::path& folder, std::optional<int64_t> first_step);

  void write(std::span<const Scalar> scalars, int64_t step) override;

 private:
  AppendedFile file_;
};

// A record: length and data, each with its masked CRC-32C.
std::string event_record(std::string_view data);

}  // namespace strake::monitor
