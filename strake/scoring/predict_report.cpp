#include "strake/scoring/predict_report.h"

namespace strake::scoring {

Json to_json(const PredictReport& report) {
  const double seconds = report.score.seconds;
  const auto rate = [&](int64_t count) { return seconds > 0 ? static_cast<double>(count) / seconds : 0.0; };
  return {{"output", report.output},
          {"precision", report.score.precision},
          {"accuracy", report.score.accuracy},
          {"rows", report.score.rows},
          {"tokens", report.score.tokens},
          {"rows_scored", report.rows_scored},
          {"tokens_scored", report.tokens_scored},
          {"load_seconds", report.score.load_seconds},
          {"seconds", seconds},
          {"rows_per_second", rate(report.rows_scored)},
          {"tokens_per_second", rate(report.tokens_scored)},
          {"seconds_waiting_for_input", report.seconds_waiting_for_input},
          {"seconds_waiting_for_output", report.seconds_waiting_for_output},
          {"peak_resident_bytes", report.peak_resident_bytes},
          {"rows_cut", report.score.rows_cut},
          {"resumes", report.resumes}};
}

}  // namespace strake::scoring
