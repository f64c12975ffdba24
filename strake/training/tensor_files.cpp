#include "strake/training/tensor_files.h"

#include <ATen/ops/empty.h>

#include <utility>

namespace strake::training {

void TensorFiles::begin(const std::string& name, std::vector<tensors::SafetensorsWriter::Entry> entries,
                        const std::map<std::string, std::string>& metadata) {
  name_ = name;
  if (when_ == Write::kNow) {
    writer_ = std::make_unique<tensors::SafetensorsWriter>(folder_ / name, std::move(entries), metadata);
  } else {
    copies_.push_back({name, std::move(entries), metadata});
  }
}

void TensorFiles::write(const at::Tensor& tensor) {
  if (when_ == Write::kNow) return writer_->write(tensor);
  at::Tensor copy = at::empty(tensor.sizes(), tensor.scalar_type());
  copy.copy_(tensor);
  copies_.back().tensors.push_back(std::move(copy));
}

void TensorFiles::end() {
  if (when_ == Write::kLater) return;
  sums_[name_] = writer_->commit();
  writer_.reset();
}

void TensorFiles::write_copies() {
  for (CopiedFile& file : copies_) {
    tensors::SafetensorsWriter writer(folder_ / file.name, std::move(file.entries), file.metadata);
    for (const at::Tensor& tensor : file.tensors) writer.write(tensor);
    sums_[file.name] = writer.commit();
  }
}

}  // namespace strake::training
