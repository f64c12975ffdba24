#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <string>

#include "strake/core/json.h"
#include "strake/data/token_dataset.h"
#include "strake/tensors/safetensors.h"
#include "strake/training/options.h"

namespace strake::tests {

// Of the keys of a file of expectations.
training::TrainingOptions training_options(const Json& settings);

// One folder of tests/fixtures/parity, made with Transformers by tools/make_parity_fixtures.py.
struct ParityCase {
  explicit ParityCase(const std::string& name);

  // The sequences whose tensors are called `prefix` + input_ids, token_type_ids, offsets and labels; of the types and
  // labels a language model has none.
  data::TokenDataset dataset(const std::string& prefix) const;
  training::TrainingOptions options() const { return training_options(settings); }

  std::filesystem::path folder;
  tensors::SafetensorsFile expected;
  Json settings;
};

}  // namespace strake::tests
