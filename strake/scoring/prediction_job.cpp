#include "strake/scoring/prediction_job.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include "strake/core/error.h"
#include "strake/core/file.h"
#include "strake/core/log.h"
#include "strake/scoring/job_identity.h"

namespace strake::scoring {
namespace fs = std::filesystem;
namespace {

constexpr const char* kLockName = "lock";
constexpr const char* kStateName = "state.json";
constexpr const char* kJournalName = "logits.journal";

// True if `file` is what `path` names: not an earlier holder's, who has removed it meanwhile.
bool is_file_of(int file, const fs::path& path) {
  struct stat opened{};
  struct stat named{};
  return ::fstat(file, &opened) == 0 && ::stat(path.c_str(), &named) == 0 && opened.st_ino == named.st_ino &&
         opened.st_dev == named.st_dev;
}

template <typename Predicate>
void remove_files(const fs::path& folder, const Predicate& is_removed) {
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    if (is_removed(entry->path().filename().string())) ::unlink(entry->path().c_str());
  }
}

// Also what a crash left of AtomicFiles.
void remove_files_of_job(const fs::path& folder) {
  remove_files(folder, [](const std::string& name) {
    return name == kStateName || name == kJournalName || is_atomic_leftover(name);
  });
}

struct JobState {
  Json job;
  int64_t starts = 0;
};

JobState read_state(const fs::path& file) {
  try {
    const Json state = read_json(file, kMaxIndexBytes);
    JobState found{.job = get_required<Json>(state, "job", file.string()),
                   .starts = get_required<int64_t>(state, "starts", file.string())};
    require(found.job.is_object(), ErrorKind::kConfig, "'job' is not an object");
    return found;
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kConfig) throw;
    fail(ErrorKind::kData,
         "{} is damaged, so that nobody knows what the interrupted run was about; pass --overwrite_output to delete "
         "what it scored and start over",
         file.string());
  }
}

}  // namespace

PredictionJob::PredictionJob(fs::path folder, std::string output)
    : folder_(std::move(folder)), output_(std::move(output)) {
  lock();
  is_unfinished_ = look_for(folder_ / kStateName);
}

PredictionJob::~PredictionJob() {
  const bool is_worth_keeping = journal_ ? journal_->rows() > 0 : is_unfinished_;
  journal_.reset();
  if (!is_worth_keeping && lock_ >= 0) remove();
  if (lock_ >= 0) ::close(lock_);
}

void PredictionJob::lock() {
  const fs::path path = folder_ / kLockName;
  while (true) {
    const bool is_made = ::mkdir(folder_.c_str(), 0777) == 0 || errno == EEXIST;
    require(is_made, ErrorKind::kIo, "cannot write {}: {}", output_, std::strerror(errno));
    lock_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    const int obstacle = lock_ < 0 ? errno : 0;
    std::error_code unknown;
    const bool is_link = fs::is_symlink(folder_, unknown);  // which leads to nothing
    if (obstacle == ENOENT && !is_link) continue;           // another process has just removed the folder
    require(lock_ >= 0, ErrorKind::kIo, "cannot open {}: {}", path.string(), std::strerror(obstacle));
    if (::flock(lock_, LOCK_EX | LOCK_NB) == 0) {
      if (is_file_of(lock_, path)) return;
      ::close(std::exchange(lock_, -1));
      continue;
    }
    const int error = errno;
    ::close(std::exchange(lock_, -1));
    require(error == EWOULDBLOCK, ErrorKind::kIo, "cannot lock {}: {}", path.string(), std::strerror(error));
    fail(
        ErrorKind::kUsage,
        "--output {}: another process is writing it (it holds {}); processes that share the work take --shard i/n each",
        output_, path.string());
  }
}

void PredictionJob::open(const Json& identity, int64_t num_labels, Leftover leftover) {
  const fs::path state = folder_ / kStateName;
  is_unfinished_ = leftover == Leftover::kContinue && is_unfinished_;
  if (!is_unfinished_) remove_files_of_job(folder_);
  remove_files(folder_, is_atomic_leftover);
  int64_t starts = 0;
  if (is_unfinished_) {
    const auto [before, count] = read_state(state);
    require_same(before, identity);
    starts = count;
  }
  journal_ = std::make_unique<PredictionJournal>(folder_ / kJournalName, num_labels);
  write_file_atomically(state, json_text(Json{{"job", identity}, {"starts", starts + 1}}, 2) + "\n");
  sync_directory(folder_.parent_path());
  resumes_ = starts;
  if (starts > 0) {
    log::info("{}: going on after {} rows that were scored before ({} start{} so far)", output_, journal_->rows_found(),
              starts, starts == 1 ? "" : "s");
  }
}

void PredictionJob::require_same(const Json& before, const Json& now) const {
  const IdentityDifference found = difference_of(before, now);
  require(found.key.empty(), ErrorKind::kUsage,
          "--output {}: the interrupted run that {} would continue had {} = {}, now it is {}; pass "
          "--overwrite_output to delete what it scored and start over",
          output_, folder_.string(), found.key, found.before, found.now);
}

void PredictionJob::finish() {
  journal_.reset();
  remove();
  ::close(std::exchange(lock_, -1));
}

void PredictionJob::remove() {
  remove_files_of_job(folder_);
  ::unlink((folder_ / kLockName).c_str());  // last: whoever opens it afterwards sees that it is not the one in place
  ::rmdir(folder_.c_str());                 // fails, rightly, if something else is in it
}

}  // namespace strake::scoring
