#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "strake/rows/text_rows.h"

namespace strake::tasks {

// Text to token Parquet, streaming.
struct PrepareConfig {
  std::vector<std::string> input;
  std::string output;
  std::string tokenizer;
  rows::TextOptions text;
  std::string problem_type;
  bool summary_json = false;

  template <typename Self, typename Visitor>
  static void visit_fields(Self& self, Visitor&& visit) {
    visit("input", self.input,
          "Parquet, CSV, TSV, JSONL or text files, all but Parquet also as .gz, .bz2 or .zst; or folders of them");
    visit("output", self.output, "token Parquet file to write");
    visit("tokenizer", self.tokenizer, "model folder, tokenizer.json or vocab.txt");
    visit("text_column", self.text.text_column, "column with the text");
    visit("text_pair_column", self.text.text_pair_column, "column with the second text of a pair");
    visit("label_column", self.text.label_column, "column with the labels; empty: none are kept");
    visit(
        "encoding", self.text.encoding,
        "of CSV, JSONL and text files, and of strings in Parquet files but for dictionaries: utf-8, cp1252 or latin-1");
    visit("max_seq_length", self.text.max_seq_length, "tokens after which a text is cut, special ones included");
    visit("problem_type", self.problem_type,
          "single_label_classification, multi_label_classification or regression; by default from the labels");
    visit("summary_json", self.summary_json, "print the summary as one line of JSON");
  }
  void validate() const;
};

struct PrepareReport {
  int64_t rows = 0;
  int64_t tokens = 0;
  int64_t rows_cut = 0;  // with more tokens than --max_seq_length
  int64_t text_bytes = 0;
  double load_seconds = 0;  // tokenizer, and the pass over the labels
  double seconds = 0;       // everything else
};

PrepareReport prepare(const PrepareConfig& config);

}  // namespace strake::tasks
