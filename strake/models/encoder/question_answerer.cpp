#include "strake/models/encoder/question_answerer.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/gather.h>

#include "strake/models/encoder/family.h"
#include "strake/models/encoder/span_head.h"

namespace strake::models {

QuestionAnswerer::QuestionAnswerer(EncoderConfig config) : EncoderModel(std::move(config)) {
  const uint32_t site = add_encoder(EncoderLayerBlock::Output::kAllTokens);
  add(std::make_unique<SpanHeadBlock>(this->config(), site));
}

at::Tensor QuestionAnswerer::loss(const at::Tensor& log_probabilities, const at::Tensor& labels, double divisor) const {
  return log_probabilities.gather(0, labels).sum() / (-2 * divisor);
}

std::string question_answerer_json(const EncoderConfig& config, const std::string& dtype) {
  Json json = Json::parse(to_json_text(config, dtype));
  json["architectures"] = {find_family(config.model_type, "config.json").span_architecture};
  json.erase("problem_type");
  return json.dump(2) + "\n";
}

}  // namespace strake::models
