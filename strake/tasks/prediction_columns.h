#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "strake/data/table_writer.h"
#include "strake/models/encoder/config.h"

namespace strake::tasks {

// What is known of a row, as columns:
//  prediction     the most probable label's name; of a regression model the number
//  probabilities  list<float>, one per label in order of id
//  logits         list<float>, likewise; of a regression model one number
//  label_id       the most probable label's id
//  score          its probability
class PredictionColumns {
 public:
  // `names`: --output_columns; empty means prediction, and probabilities unless the model is a regression. Errors
  // (kUsage): unknown or repeated names, and those of classes for a regression.
  PredictionColumns(const std::vector<std::string>& names, const models::EncoderConfig& config);

  // logits: fp32 [rows, num_labels]. A row's values depend on its logits alone.
  std::vector<data::ExtraColumn> of(const at::Tensor& logits) const;
  const std::vector<std::string>& names() const { return names_; }

 private:
  std::vector<std::string> names_;
  std::vector<std::string> labels_;
  bool regression_;
};

// The part of these checks that needs no model.
void check_output_columns(const std::vector<std::string>& names);

// --keep_columns: the columns of the input that go into the output. None: all; one empty name: none at all.
class KeptColumns {
 public:
  explicit KeptColumns(const std::vector<std::string>& names);
  bool all() const { return all_; }
  const std::vector<std::string>& names() const { return names_; }  // if not all()
  data::Table of(const data::Table& table) const { return all_ ? table : table.select(names_); }

 private:
  std::vector<std::string> names_;
  bool all_ = true;
};

}  // namespace strake::tasks
