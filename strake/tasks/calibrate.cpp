#include "strake/tasks/calibrate.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <span>
#include <utility>

#include "strake/checkpoint/checkpoint_folder.h"
#include "strake/core/clock.h"
#include "strake/core/error.h"
#include "strake/core/file.h"
#include "strake/core/log.h"
#include "strake/inference/engine.h"
#include "strake/scoring/task_results.h"

namespace strake::tasks {
namespace {

using inference::LinearName;
using inference::Precision;
using inference::PrecisionPlan;

constexpr int64_t kProbeSequences = 256;  // by which linear layers are compared
using Numbers = std::vector<float>;

// Sum and largest of the differences between some numbers.
struct Differences {
  double sum = 0;
  double max = 0;
  int64_t count = 0;

  void add(std::span<const float> a, std::span<const float> b) {
    for (size_t i = 0; i < a.size(); ++i) {
      const double difference = std::abs(double{a[i]} - double{b[i]});
      sum += difference;
      max = std::max(max, difference);
    }
    count += std::ssize(a);
  }
  double mean() const { return sum / static_cast<double>(count); }
};

// Some sequences, evenly spread over all rows.
struct Probe {
  std::vector<int32_t> ids;
  std::vector<int64_t> offsets{0};
  std::vector<int32_t> second_begin;

  explicit Probe(const std::vector<rows::EncodedRows>& data) {
    int64_t sequences = 0;
    for (const rows::EncodedRows& rows : data) sequences += std::ssize(rows.second_begin);
    const int64_t count = std::min(kProbeSequences, sequences);
    int64_t before = 0;  // sequences of the tables before
    for (const rows::EncodedRows& rows : data) {
      const int64_t end = before + std::ssize(rows.second_begin);
      while (std::ssize(second_begin) < count && sequences * std::ssize(second_begin) / count < end) {
        add(rows, sequences * std::ssize(second_begin) / count - before);
      }
      before = end;
    }
  }

  Numbers score(inference::Engine& engine) const {
    const inference::PackedTokens tokens{ids, offsets, second_begin};
    Numbers outputs(static_cast<size_t>(engine.num_outputs(tokens)));
    engine.score(tokens, outputs);
    return outputs;
  }

 private:
  void add(const rows::EncodedRows& rows, int64_t sequence) {
    ids.insert(ids.end(), rows.ids.begin() + rows.offsets[sequence], rows.ids.begin() + rows.offsets[sequence + 1]);
    offsets.push_back(std::ssize(ids));
    second_begin.push_back(rows.second_begin[sequence]);
  }
};

// What is measured, which takes a while, is kept in this file.
void require_writable(const std::filesystem::path& file) {
  const std::filesystem::path probe = file.string() + ".probe";
  try {
    write_file_atomically(probe, "{}\n");
  } catch (Error& error) {
    error.add_context("--calibrate writes what it finds into the model's folder, or where --precision_file says");
    throw;
  }
  std::error_code ignored;
  std::filesystem::remove(probe, ignored);
}

class Calibrator {
 public:
  Calibrator(const scoring::ScoreConfig& config, const scoring::ScoringPlan& plan, EvaluationRows& input)
      : config_(config), plan_(plan), input_(input) {
    config_.packed_weights = "off";  // three precisions, two of which may never be used
  }

  Calibration run() {
    require_writable(config_.precision.file_of(config_.model_name_or_path));
    checkpoint::verify_model_files(config_.model_name_or_path);  // once, not for each precision
    const scoring::MeasuredWith with = read_and_score_in_fp32();
    Calibration result{.record = {.task = scoring::MeasuredTask::of(plan_.task),
                                  .model = scoring::fingerprint_of(config_.model_name_or_path),
                                  .with = with,
                                  .rows = num_rows(),
                                  .metric = exact_->main_metric()},
                       .metrics = exact_->metrics()};
    scoring::PrecisionRecord& record = result.record;
    record.fp32_metric = metric_of(*exact_);
    record.bf16 = measure({.precision = Precision::kBf16});
    log::info("bf16: {}", scoring::describe(record, record.bf16));
    if (!record.holds(Precision::kBf16, record.bf16)) log::warning("bf16 is not near enough to fp32");
    find_bf16_linears(record);
    const PrecisionPlan plan{.precision = Precision::kInt8, .bf16_linears = record.bf16_linears};
    log::info("{}: {}", scoring::describe(plan, plan_.encoder().num_hidden_layers),
              scoring::describe(record, record.int8));
    if (!record.holds(Precision::kInt8, record.int8))
      log::warning("no choice of linear layers brings int8 near enough to fp32");
    add_metrics("bf16", record.bf16, record, result.metrics);
    add_metrics("int8", record.int8, record, result.metrics);
    result.metrics.emplace_back("int8_linears_in_bf16", static_cast<double>(record.bf16_linears.size()));
    result.score.rows = num_rows();
    for (const rows::EncodedRows& rows : data_) {
      result.score.tokens += std::ssize(rows.ids);
      result.score.rows_cut += std::ssize(rows.cut_rows);
    }
    rows::tell_cut_rows(result.score.rows_cut, text_);
    return result;
  }

 private:
  scoring::ScoringModel load(const PrecisionPlan& precision) const {
    return scoring::load_verified_model(config_, plan_, precision);
  }

  scoring::MeasuredWith read_and_score_in_fp32() {
    scoring::ScoringModel model = load({.precision = Precision::kFp32});
    text_ = model.text;
    read_data(model);
    exact_ = score(model, [this](size_t, at::Tensor outputs) { exact_outputs_.push_back(std::move(outputs)); });
    return scoring::MeasuredWith::of(*model.tokenizer, text_.max_seq_length, model.kernels);
  }

  void read_data(const scoring::ScoringModel& model) {
    input_.read(model, 1, [&](rows::EncodedRows rows) { data_.push_back(std::move(rows)); });
    require(num_rows() > 0, ErrorKind::kData, "{} has no rows", config_.input.front());
    if (num_rows() < scoring::kFewestRows) {
      log::warning(
          "{} rows are too few to promise anything of others: --precision auto relies on a calibration of {} or "
          "more",
          num_rows(), scoring::kFewestRows);
    }
  }

  int64_t num_rows() const {
    return std::transform_reduce(data_.begin(), data_.end(), int64_t{0}, std::plus<>(),
                                 [](const rows::EncodedRows& rows) { return rows.num_rows(); });
  }

  // `use` gets the head's numbers for each table of rows.
  template <typename Use>
  std::unique_ptr<scoring::TaskResults> score(scoring::ScoringModel& model, const Use& use) const {
    std::unique_ptr<scoring::TaskResults> results = input_.new_results();
    for (size_t i = 0; i < data_.size(); ++i) {
      at::Tensor outputs = scoring::score_encoded(config_, model, data_[i], 0, data_[i].num_rows());
      results->add(data_[i], outputs);
      use(i, std::move(outputs));
    }
    return results;
  }

  static double metric_of(const scoring::TaskResults& results) {
    const monitor::NamedValues metrics = results.metrics();
    const auto found = std::ranges::find(metrics, results.main_metric(), &monitor::NamedValues::value_type::first);
    return found == metrics.end() ? 0 : found->second;
  }

  scoring::Closeness measure(scoring::ScoringModel& model) const {
    Differences differences;
    const auto results = score(model, [&](size_t i, const at::Tensor& outputs) {
      differences.add(scoring::numbers_of(outputs), scoring::numbers_of(exact_outputs_[i]));
    });
    return {.agreement = results->agreement(*exact_),
            .max_difference = differences.max,
            .mean_difference = differences.mean(),
            .metric = metric_of(*results)};
  }
  scoring::Closeness measure(const PrecisionPlan& plan) const {
    scoring::ScoringModel model = load(plan);
    return measure(model);
  }

  static void add_metrics(const std::string& precision, const scoring::Closeness& closeness,
                          const scoring::PrecisionRecord& record, monitor::NamedValues& metrics) {
    const auto add = [&](const std::string& name, double value) {
      metrics.emplace_back(precision + "_" + name, value);
    };
    const std::string difference = record.task.difference_name();
    if (closeness.agreement) add(record.task.agreement_name(), *closeness.agreement);
    if (!record.metric.empty()) add(record.metric, closeness.metric);
    add("max_" + difference, closeness.max_difference);
    add("mean_" + difference, closeness.mean_difference);
  }

  // All linear layers, the one whose quantization changes the head's numbers most first.
  std::vector<LinearName> by_harm(inference::Engine& engine) const {
    std::vector<LinearName> all;
    for (int64_t layer = 0; layer < plan_.encoder().num_hidden_layers; ++layer) {
      for (int linear = 0; linear < inference::kLinears; ++linear) {
        all.push_back({layer, static_cast<inference::Linear>(linear)});
      }
    }
    const Probe probe(data_);
    engine.keep_in_bf16(all);
    const Numbers in_bf16 = probe.score(engine);
    std::vector<std::pair<double, LinearName>> harm;
    for (const LinearName& name : all) {
      std::vector<LinearName> others = all;
      std::erase(others, name);
      engine.keep_in_bf16(others);
      Differences differences;
      differences.add(probe.score(engine), in_bf16);
      harm.emplace_back(differences.mean(), name);
    }
    std::ranges::sort(harm, [](const auto& a, const auto& b) { return a.first > b.first; });
    std::ranges::transform(harm, all.begin(), [](const auto& entry) { return entry.second; });
    log::info("most harmful in int8: {} (mean difference {:.2g}), least: {} ({:.2g})", all.front().text(),
              harm.front().first, all.back().text(), harm.back().first);
    return all;
  }

  // The shortest beginning of by_harm that keeps the promise, found by bisection.
  void find_bf16_linears(scoring::PrecisionRecord& record) const {
    scoring::ScoringModel both = load({.precision = Precision::kInt8, .forms = PrecisionPlan::Forms::kBoth});
    record.int8 = measure(both);
    if (record.holds(Precision::kInt8, record.int8)) return;
    log::info("int8: {}; looking for linear layers to keep in bf16", scoring::describe(record, record.int8));
    const std::vector<LinearName> order = by_harm(both.engine());
    const auto with = [&](int64_t count) {
      both.engine().keep_in_bf16(std::span(order).first(static_cast<size_t>(count)));
      return measure(both);
    };
    int64_t too_few = 0;
    int64_t enough = std::ssize(order);
    scoring::Closeness found = with(enough);
    if (record.holds(Precision::kInt8, found)) {
      while (enough - too_few > 1) {
        const int64_t middle = (too_few + enough) / 2;
        const scoring::Closeness closeness = with(middle);
        if (record.holds(Precision::kInt8, closeness)) {
          enough = middle;
          found = closeness;
        } else {
          too_few = middle;
        }
      }
    }
    record.int8 = found;
    record.bf16_linears.assign(order.begin(), order.begin() + enough);
    std::ranges::sort(record.bf16_linears);
  }

  scoring::ScoreConfig config_;
  const scoring::ScoringPlan& plan_;
  EvaluationRows& input_;
  rows::TextOptions text_;
  std::vector<rows::EncodedRows> data_;
  std::unique_ptr<scoring::TaskResults> exact_;  // in fp32
  std::vector<at::Tensor> exact_outputs_;        // for each table of rows
};

}  // namespace

Calibration calibrate(const scoring::ScoreConfig& config, const scoring::ScoringPlan& plan, EvaluationRows& input) {
  const auto start = Clock::now();
  Calibration result = Calibrator(config, plan, input).run();
  const std::filesystem::path path = config.precision.file_of(config.model_name_or_path);
  write_file_atomically(path, json_text(to_json(result.record), 2) + "\n");
  log::info("wrote {}", path.string());
  result.score.precision = "fp32, bf16, int8";
  result.score.seconds = seconds_since(start);
  return result;
}

}  // namespace strake::tasks
