#include "strake/rows/labelled_words.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "strake/core/error.h"
#include "strake/core/log.h"
#include "strake/data/label_lists.h"
#include "strake/data/text_pipeline.h"
#include "strake/rows/word_rows.h"

namespace strake::rows {

LabelMap labels_of_words(const models::EncoderConfig& model) {
  models::EncoderConfig of_lists = model;
  of_lists.problem_type = models::ProblemType::kMultiLabelClassification;
  return LabelMap::of(of_lists);
}

data::TableReader open_words(const std::vector<std::string>& files, const TextOptions& options) {
  data::TableSource source = make_source(files, options.encoding);
  source.columns = options.columns();
  data::TableReader input(std::move(source));
  const data::Table rows = input.no_rows();
  for (const std::string& name : {options.text_column, options.label_column}) {
    require(data::holds_lists(rows, name), ErrorKind::kData,
            "{}: column '{}' holds no lists: --task token-classification reads a list of words and one of their labels "
            "from each row",
            files.front(), name);
  }
  return input;
}

void for_each_labelled(data::TableReader& input, const LabelledWords& words, int workers,
                       const std::function<void(EncodedRows)>& sink) {
  const WordEncoder encoder(*words.tokenizer, words.options);
  const WordClasses classes{words.labels, words.options.label_column, words.label_all_tokens};
  const auto next = [&] { return input.next(); };
  const auto work = [&](const data::Table& table) { return encoder.encode(table, &classes); };
  data::ordered_parallel_map(next, work, sink, {.workers = workers});
}

data::TokenDataset encode_words(data::TableReader& input, const LabelledWords& words, int workers) {
  const std::string file = input.files().front().string();
  data::TokenDatasetBuilder builder(file);
  int64_t num_cut = 0, num_left_out = 0;
  for_each_labelled(input, words, workers, [&](const EncodedRows& rows) {
    num_cut += std::ssize(rows.cut_rows);
    for (int64_t i = 0; i < rows.num_rows(); ++i) {
      const data::TokenRow row = rows.token_row(i);
      const std::span classes = std::get<data::TokenClasses>(row.label).of_tokens;
      const bool has_label = std::ranges::any_of(classes, [](int32_t id) { return id != data::kNoClass; });
      if (has_label) builder.append(row);
      num_left_out += has_label ? 0 : 1;
    }
  });
  tell_cut_rows(num_cut, words.options);
  data::TokenDataset dataset = builder.build();
  if (num_left_out > 0) {
    log::info("{}: {} of {} rows have no labelled token: left out", file, num_left_out, num_left_out + dataset.size());
  }
  return dataset;
}

}  // namespace strake::rows
