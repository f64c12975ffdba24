#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "strake/core/json.h"
#include "strake/scoring/prediction_journal.h"

namespace strake::scoring {

// What an interrupted `strake predict` leaves beside its output, so that the same command goes on: a hidden folder with
// lock, state.json (what the result depends on, and how often it was started) and a journal of logits. Gone when the
// job is complete, and after a failure before the first rows were scored.
class PredictionJob {
 public:
  // Makes the folder, whose parent must exist, and locks it for this process. `output` is for messages. Errors: kIo;
  // kUsage if another process has the lock.
  PredictionJob(std::filesystem::path folder, std::string output);
  ~PredictionJob();
  PredictionJob(const PredictionJob&) = delete;
  PredictionJob& operator=(const PredictionJob&) = delete;

  // An interrupted run has left something to go on with.
  bool is_unfinished() const { return is_unfinished_; }
  enum class Leftover { kContinue, kDelete };
  // An unfinished job with another identity (job_identity.h) is an error (kUsage) that names the first difference,
  // unless it is to be deleted.
  void open(const Json& identity, int64_t num_labels, Leftover leftover);

  PredictionJournal& journal() { return *journal_; }
  int64_t resumes() const { return resumes_; }
  // The output is complete and durable: removes the folder.
  void finish();

 private:
  void lock();
  void require_same(const Json& before, const Json& now) const;
  void remove();

  std::filesystem::path folder_;
  std::string output_;
  int lock_ = -1;
  bool is_unfinished_ = false;
  int64_t resumes_ = 0;
  std::unique_ptr<PredictionJournal> journal_;
};

}  // namespace strake::scoring
