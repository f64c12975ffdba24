#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "strake/core/json.h"
#include "strake/kernels/bias_activation.h"

namespace strake::models {

// Of several labels: any number of them per text.
enum class ProblemType { kSingleLabelClassification, kRegression, kMultiLabelClassification };

// config.json's names of them.
inline constexpr const char* kProblemTypeNames = "single_label_classification, regression, multi_label_classification";
const char* to_string(ProblemType type);
std::optional<ProblemType> find_problem_type(std::string_view name);

// A Hugging Face config.json of an encoder (bert, roberta, distilbert), with the names the families share. Every value
// is checked against a range, so that a hostile file cannot ask for absurd allocations; what strake does not compute is
// refused by name rather than ignored.
struct EncoderConfig {
  std::string model_type;
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t num_hidden_layers = 0;
  int64_t num_attention_heads = 0;
  int64_t intermediate_size = 0;
  int64_t max_position_embeddings = 0;
  int64_t type_vocab_size = 0;  // 0: the family has no token types
  int64_t pad_token_id = 0;
  kernels::Activation hidden_act = kernels::Activation::kGelu;
  double hidden_dropout = 0;            // after embeddings and feed-forward
  double attention_output_dropout = 0;  // after the attention's output projection
  double attention_dropout = 0;         // of attention probabilities
  double classifier_dropout = 0;
  double span_dropout = 0;  // of a head that finds answers
  double layer_norm_eps = 1e-12;
  double initializer_range = 0.02;
  bool tie_word_embeddings = true;  // of a masked language model: its output projection is the word embedding

  std::vector<std::string> labels;  // id2label in order of id
  std::optional<ProblemType> problem_type;

  Json document;  // the file itself: written back with labels and architecture brought up to date

  int64_t num_labels() const { return static_cast<int64_t>(labels.size()); }
  // As Transformers infers it: one label means regression.
  ProblemType problem() const;
  // Longest sequence the position table allows.
  int64_t max_sequence_length() const;

  // Replaces the labels (a new head). An empty problem type is inferred from the number of labels.
  void set_labels(std::vector<std::string> names, std::optional<ProblemType> type);
};

// Checks a configuration; `source` is named in errors (kConfig).
EncoderConfig parse_encoder_config(const Json& document, const std::string& source);
// Reads `folder`/config.json. Errors as of read_json(), and kConfig naming the file and key.
EncoderConfig read_encoder_config(const std::filesystem::path& folder);

// The config.json of a classifier with these weights, loadable by AutoModelForSequenceClassification.
std::string to_json_text(const EncoderConfig& config, const std::string& dtype);

}  // namespace strake::models
