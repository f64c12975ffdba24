#include "tests/parity/parity_case.h"

#include <algorithm>
#include <vector>

namespace strake::tests {

ParityCase::ParityCase(const std::string& name)
    : folder(std::filesystem::path(STRAKE_SOURCE_DIR) / "tests/fixtures/parity" / name),
      expected(folder / "expected.safetensors"),
      settings(read_json(folder / "expected.json", kMaxConfigBytes)) {}

data::TokenDataset ParityCase::dataset(const std::string& prefix) const {
  const at::Tensor ids = expected.read(prefix + "input_ids");
  const at::Tensor offsets = expected.read(prefix + "offsets");
  at::Tensor types;
  at::Tensor labels;
  if (expected.tensors().contains(prefix + "token_type_ids")) types = expected.read(prefix + "token_type_ids");
  if (expected.tensors().contains(prefix + "labels")) labels = expected.read(prefix + "labels");
  data::TokenDatasetBuilder builder(folder.string());
  for (int64_t i = 0; i + 1 < offsets.numel(); ++i) {
    const auto begin = offsets.const_data_ptr<int32_t>()[i];
    const auto end = offsets.const_data_ptr<int32_t>()[i + 1];
    const auto length = static_cast<size_t>(end - begin);
    data::TokenRow row{.ids = {ids.const_data_ptr<int32_t>() + begin, length}, .row = i};
    if (types.defined()) {
      const std::span sequence_types(types.const_data_ptr<int32_t>() + begin, length);
      const auto zeros = static_cast<int32_t>(std::ranges::count(sequence_types, 0));
      if (zeros < end - begin) row.second_begin = zeros;
    }
    std::vector<int32_t> classes;
    if (labels.defined() && labels.dim() == 2) {
      for (int64_t label = 0; label < labels.size(1); ++label) {
        if (labels.const_data_ptr<float>()[i * labels.size(1) + label] != 0) {
          classes.push_back(static_cast<int32_t>(label));
        }
      }
      row.label = classes;
    } else if (labels.defined() && labels.scalar_type() == at::kFloat) {
      row.label = labels.const_data_ptr<float>()[i];
    } else if (labels.defined()) {
      row.label = labels.const_data_ptr<int32_t>()[i];
    }
    builder.append(row);
  }
  data::TokenDataset dataset = builder.build();
  if (labels.defined() && labels.dim() == 2) dataset.set_num_classes(labels.size(1));
  return dataset;
}

training::TrainingOptions training_options(const Json& settings) {
  return {.gradient_accumulation_steps = 4,
          .max_steps = settings["max_steps"],
          .learning_rate = settings["learning_rate"],
          .weight_decay = settings["weight_decay"],
          .adam_beta1 = settings["adam_beta1"],
          .adam_beta2 = settings["adam_beta2"],
          .adam_epsilon = settings["adam_epsilon"],
          .max_grad_norm = settings["max_grad_norm"],
          .lr_scheduler_type = settings["lr_scheduler_type"],
          .warmup_steps = settings["warmup_steps"]};
}

}  // namespace strake::tests
