#include "strake/tasks/calibrate.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <span>

#include "strake/core/clock.h"
#include "strake/core/error.h"
#include "strake/core/file.h"
#include "strake/core/log.h"
#include "strake/core/threads.h"
#include "strake/tensors/compute_threads.h"

namespace strake::tasks {
namespace {

using inference::Engine;
using inference::LinearName;
using inference::Precision;
using inference::PrecisionPlan;

constexpr int64_t kProbeRows = 256;  // by which linear layers are compared
constexpr int64_t kFewRows = 200;    // fewer say little of a share of 1 %
using Logits = std::vector<float>;

// All rows' tokens and labels.
struct LabelledTokens {
  std::vector<int32_t> ids;
  std::vector<int64_t> offsets{0};
  std::vector<int32_t> second_begin;
  std::vector<Label> labels;

  void add(const EncodedRows& rows) {
    ids.insert(ids.end(), rows.ids.begin(), rows.ids.end());
    for (int64_t i = 0; i < rows.num_rows(); ++i) {
      offsets.push_back(offsets.back() + rows.offsets[i + 1] - rows.offsets[i]);
    }
    second_begin.insert(second_begin.end(), rows.second_begin.begin(), rows.second_begin.end());
    labels.insert(labels.end(), rows.labels.begin(), rows.labels.end());
  }
  int64_t num_rows() const { return std::ssize(offsets) - 1; }
  inference::PackedTokens tokens() const { return {ids, offsets, second_begin}; }

  // At most `most` rows, evenly spread.
  LabelledTokens sample(int64_t most) const {
    const int64_t count = std::min(most, num_rows());
    LabelledTokens some;
    for (int64_t i = 0; i < count; ++i) {
      const int64_t row = num_rows() * i / count;
      some.ids.insert(some.ids.end(), ids.begin() + offsets[row], ids.begin() + offsets[row + 1]);
      some.offsets.push_back(std::ssize(some.ids));
      some.second_begin.push_back(second_begin[row]);
      some.labels.push_back(labels[row]);
    }
    return some;
  }
};

class Calibrator {
 public:
  explicit Calibrator(const ScoreConfig& config)
      : config_(config),
        encoder_(models::read_encoder_config(config.model_name_or_path)),
        text_(text_options(config, ScoringTask::kTextClassification, encoder_)),
        labels_(LabelMap::of(encoder_)),
        regression_(labels_.problem() == models::ProblemType::kRegression) {}

  void read_data() {
    const auto tokenizer = tokenizers::Tokenizer::load(config_.model_name_or_path);
    const data::TableSource source = make_source(config_.input, config_.text.encoding);
    for_each_encoded(source, {tokenizer, text_, &labels_}, 1, [&](const EncodedRows& rows) {
      check_tokens(config_, encoder_, rows, 0, rows.num_rows());
      data_.add(rows);
    });
    require(data_.num_rows() > 0, ErrorKind::kData, "{} has no rows", config_.input.front());
    if (data_.num_rows() < kFewRows) {
      log::warning("{} rows say little about a share of 1 % of them: calibrate on some hundred", data_.num_rows());
    }
  }

  Calibration run() {
    exact_ = score({.precision = Precision::kFp32});
    Calibration result{.record = {.model = fingerprint_of(config_.model_name_or_path),
                                  .rows = data_.num_rows(),
                                  .metric = regression_ ? "pearson" : "accuracy",
                                  .bf16 = {},
                                  .int8 = {}},
                       .metrics = metrics_of(exact_)};
    PrecisionRecord& record = result.record;
    record.fp32_metric = metric_of(exact_);
    record.bf16 = compare(score({.precision = Precision::kBf16}));
    log::info("bf16: {}", describe(record, record.bf16));
    find_bf16_linears(record);
    log::info("{}: {}", describe(plan_of(record), encoder_.num_hidden_layers), describe(record, record.int8));
    if (!record.holds(record.int8)) log::warning("no choice of linear layers brings int8 near enough to fp32");
    add_metrics("bf16", record.bf16, result.metrics);
    add_metrics("int8", record.int8, result.metrics);
    result.metrics.emplace_back("int8_linears_in_bf16", static_cast<double>(record.bf16_linears.size()));
    result.score.rows = data_.num_rows();
    result.score.tokens = std::ssize(data_.ids);
    return result;
  }

 private:
  static PrecisionPlan plan_of(const PrecisionRecord& record) {
    return {.precision = Precision::kInt8, .bf16_linears = record.bf16_linears};
  }

  Engine engine(const PrecisionPlan& plan) const {
    return {config_.model_name_or_path,
            plan,
            {.threads = threads_per_rank(1),
             .tokens_at_a_time = config_.max_tokens_per_batch,
             .longest_sequence = text_.max_seq_length}};
  }

  Logits score(Engine& engine, const LabelledTokens& data) const {
    Logits logits(static_cast<size_t>(data.num_rows() * encoder_.num_labels()));
    engine.score(data.tokens(), logits);
    const auto bad = std::ranges::find_if(logits, [](float value) { return !std::isfinite(value); });
    require(bad == logits.end(), ErrorKind::kNumeric,
            "row {}: the model's output is not a finite number: are its weights sound?",
            (bad - logits.begin()) / encoder_.num_labels());
    return logits;
  }
  Logits score(const PrecisionPlan& plan) const {
    Engine made = engine(plan);
    return score(made, data_);
  }

  std::vector<int64_t> classes_of(const Logits& logits) const {
    std::vector<int64_t> classes;
    const int64_t labels = encoder_.num_labels();
    for (auto row = logits.begin(); row != logits.end(); row += labels) {
      classes.push_back(std::max_element(row, row + labels) - row);
    }
    return classes;
  }

  monitor::NamedValues metrics_of(const Logits& logits) const {
    if (regression_) {
      const std::vector<double> predicted(logits.begin(), logits.end());
      std::vector<double> actual;
      for (const Label& label : data_.labels) actual.push_back(std::get<float>(label));
      return monitor::regression_metrics(predicted, actual).named_values();
    }
    std::vector<int64_t> actual;
    for (const Label& label : data_.labels) actual.push_back(std::get<int32_t>(label));
    return monitor::classification_metrics(classes_of(logits), actual, encoder_.num_labels()).named_values();
  }
  double metric_of(const Logits& logits) const {
    const auto metrics = metrics_of(logits);
    return std::ranges::find(metrics, regression_ ? "pearson" : "accuracy", &monitor::NamedValues::value_type::first)
        ->second;
  }

  static double mean_difference(const Logits& a, const Logits& b) {
    return std::transform_reduce(a.begin(), a.end(), b.begin(), 0.0, std::plus<>(),
                                 [](float x, float y) { return std::abs(double{x} - double{y}); }) /
           static_cast<double>(a.size());
  }

  Closeness compare(const Logits& logits) const {
    Closeness closeness{.mean_logit_difference = mean_difference(logits, exact_), .metric = metric_of(logits)};
    for (size_t i = 0; i < logits.size(); ++i) {
      closeness.max_logit_difference =
          std::max(closeness.max_logit_difference, std::abs(double{logits[i]} - double{exact_[i]}));
    }
    if (regression_) return closeness;
    const auto classes = classes_of(logits);
    const auto exact = classes_of(exact_);
    const auto same = std::inner_product(classes.begin(), classes.end(), exact.begin(), int64_t{0}, std::plus<>(),
                                         [](int64_t a, int64_t b) { return a == b ? 1 : 0; });
    closeness.agreement = static_cast<double>(same) / static_cast<double>(data_.num_rows());
    return closeness;
  }

  void add_metrics(const std::string& name, const Closeness& closeness, monitor::NamedValues& metrics) const {
    if (closeness.agreement) metrics.emplace_back(name + "_agreement", *closeness.agreement);
    metrics.emplace_back(name + (regression_ ? "_pearson" : "_accuracy"), closeness.metric);
    metrics.emplace_back(name + "_max_logit_difference", closeness.max_logit_difference);
    metrics.emplace_back(name + "_mean_logit_difference", closeness.mean_logit_difference);
  }

  // All linear layers, the one whose quantization changes the logits most first.
  std::vector<LinearName> by_harm(Engine& engine) const {
    std::vector<LinearName> all;
    for (int64_t layer = 0; layer < encoder_.num_hidden_layers; ++layer) {
      for (int linear = 0; linear < inference::kLinears; ++linear) {
        all.push_back({layer, static_cast<inference::Linear>(linear)});
      }
    }
    const LabelledTokens probe = data_.sample(kProbeRows);
    engine.keep_in_bf16(all);
    const Logits in_bf16 = score(engine, probe);
    std::vector<std::pair<double, LinearName>> harm;
    for (const LinearName& name : all) {
      std::vector<LinearName> others = all;
      std::erase(others, name);
      engine.keep_in_bf16(others);
      harm.emplace_back(mean_difference(score(engine, probe), in_bf16), name);
    }
    std::ranges::sort(harm, [](const auto& a, const auto& b) { return a.first > b.first; });
    std::ranges::transform(harm, all.begin(), [](const auto& entry) { return entry.second; });
    log::info("most harmful in int8: {} (mean logit difference {:.2g}), least: {} ({:.2g})", all.front().text(),
              harm.front().first, all.back().text(), harm.back().first);
    return all;
  }

  // The shortest beginning of by_harm that keeps the promise, found by bisection.
  void find_bf16_linears(PrecisionRecord& record) const {
    Engine both = engine({.precision = Precision::kInt8, .forms = PrecisionPlan::Forms::kBoth});
    record.int8 = compare(score(both, data_));
    if (record.holds(record.int8)) return;
    log::info("int8: {}; looking for linear layers to keep in bf16", describe(record, record.int8));
    const std::vector<LinearName> order = by_harm(both);
    const auto with = [&](int64_t count) {
      both.keep_in_bf16(std::span(order).first(count));
      return compare(score(both, data_));
    };
    int64_t too_few = 0;
    int64_t enough = std::ssize(order);
    Closeness found = with(enough);
    if (record.holds(found)) {
      while (enough - too_few > 1) {
        const int64_t middle = (too_few + enough) / 2;
        const Closeness closeness = with(middle);
        if (record.holds(closeness)) {
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

  const ScoreConfig& config_;
  models::EncoderConfig encoder_;
  TextOptions text_;
  LabelMap labels_;
  bool regression_;
  LabelledTokens data_;
  Logits exact_;
};

}  // namespace

Calibration calibrate(const ScoreConfig& config) {
  const auto start = Clock::now();
  tensors::set_compute_threads(threads_per_rank(1));
  Calibrator calibrator(config);
  calibrator.read_data();
  Calibration result = calibrator.run();
  const std::filesystem::path path = std::filesystem::path(config.model_name_or_path) / kPrecisionFile;
  write_file_atomically(path, to_json(result.record).dump(2) + "\n");
  log::info("wrote {}", path.string());
  result.score.precision = "fp32, bf16, int8";
  result.score.seconds = seconds_since(start);
  return result;
}

}  // namespace strake::tasks
