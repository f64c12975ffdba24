#include "strake/training/tensor_files.h"

#include <utility>

#include "strake/core/error.h"
#include "strake/core/file.h"

namespace strake::training {

void TensorFiles::begin(const std::string& name, std::vector<tensors::SafetensorsWriter::Entry> entries,
                        const std::map<std::string, std::string>& metadata) {
  files_.push_back(
      {name, std::make_unique<tensors::SafetensorsWriter>(folder_ / name, std::move(entries), metadata, when_)});
}

void TensorFiles::end() {
  if (when_ == Write::kLater) return;
  write_all();
  files_.clear();
}

void TensorFiles::add(std::function<void()> write) {
  if (when_ == Write::kNow) return write();
  others_.push_back(std::move(write));
}

void TensorFiles::add_text(const std::string& name, std::string text) {
  add([path = folder_ / name, text = std::move(text)] { write_file_atomically(path, text); });
}

void TensorFiles::write_all(const std::stop_token& stop) {
  for (const auto& write : others_) {
    require(!stop.stop_requested(), ErrorKind::kInterrupted, "{} is not needed any more", folder_.string());
    write();
  }
  for (const NamedFile& file : files_) sums_[file.name] = file.writer->commit(stop);
}

}  // namespace strake::training
