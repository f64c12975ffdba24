#include "strake/tasks/predict.h"

#include <ATen/ops/softmax.h>

#include "strake/core/error.h"
#include "strake/data/table_writer.h"

namespace strake::tasks {
namespace {

// prediction: the most probable label's name; probabilities: one per label, in order of id.
std::vector<data::ExtraColumn> class_columns(const models::EncoderConfig& config, const at::Tensor& logits) {
  const at::Tensor probabilities = at::softmax(logits, 1).contiguous();
  const at::Tensor best = logits.argmax(1).contiguous();
  std::vector<std::string> names;
  for (int64_t row = 0; row < logits.size(0); ++row) {
    names.push_back(config.labels[best.const_data_ptr<int64_t>()[row]]);
  }
  const auto* values = probabilities.const_data_ptr<float>();
  return {{"prediction", std::move(names)},
          {"probabilities",
           data::FloatRows{.values = {values, values + probabilities.numel()}, .width = probabilities.size(1)}}};
}

std::vector<data::ExtraColumn> number_columns(const at::Tensor& logits) {
  const at::Tensor values = logits.contiguous();
  const auto* data = values.const_data_ptr<float>();
  return {{"prediction", std::vector<float>(data, data + values.numel())}};
}

}  // namespace

void PredictConfig::validate() const {
  score.validate();
  require(!output.empty(), ErrorKind::kUsage, "--output names no file");
  require(
      score.text.label_column.empty(), ErrorKind::kUsage,
      "--label_column {}: predict needs no labels and keeps all columns; to compare with labels use strake evaluate",
      score.text.label_column);
}

ScoreReport predict(const PredictConfig& config) {
  config.validate();
  ScoringModel model = load_scoring_model(config.score);
  const models::EncoderConfig& encoder = model.engine.config();
  data::TableWriter writer(config.output, {.metadata = {{"strake.model", config.score.model_name_or_path},
                                                        {"strake.precision", model.precision}}});
  const bool regression = encoder.problem() == models::ProblemType::kRegression;
  const ScoreReport report =
      score_rows(config.score, model, nullptr, [&](const EncodedRows& rows, const at::Tensor& logits) {
        const auto columns = regression ? number_columns(logits) : class_columns(encoder, logits);
        writer.append(rows.table, columns);
      });
  writer.finish();
  return report;
}

}  // namespace strake::tasks
