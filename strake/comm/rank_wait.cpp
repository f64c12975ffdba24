#include "strake/comm/rank_wait.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <span>
#include <utility>

#include "strake/comm/rank_processes.h"
#include "strake/comm/rank_watch.h"
#include "strake/core/error.h"
#include "strake/core/host_name.h"

namespace strake::comm {
namespace {

using namespace std::chrono_literals;

constexpr size_t kMostNamed = 10;  // of many ranks; a line has an end

// Shorter waits are nothing to talk about.
std::chrono::milliseconds worth_telling(std::chrono::seconds patience) {
  return std::min<std::chrono::milliseconds>(1s, std::chrono::milliseconds(patience) / 4);
}

// "" of a process of another host.
std::string process_state(const Fields& watch) {
  constexpr int kState = 3;
  return field(watch, "host") == host_name() ? process_stat(parse_number(field(watch, "pid")), kState) : "";
}

bool is_frozen(const Fields& watch) {
  const std::string state = process_state(watch);
  return state == "T" || state == "t" || state == "D";
}

// "process 123 on alpha, which is stopped"
std::string process_text(const Fields& watch) {
  std::string text = process_of(watch);
  const std::string state = process_state(watch);
  if (state == "T" || state == "t") text += ", which is stopped";
  if (state == "D") text += ", which waits for a disk";
  if (state == "R") text += ", which is computing";
  if (state == "S") text += ", which is asleep";
  return text;
}

}  // namespace

RankWait::RankWait(RankWatch* watch, const char* operation, std::chrono::seconds patience)
    : watch_(watch), operation_(operation), patience_(patience) {}

RankWait::~RankWait() {
  if (is_told_ && watch_ != nullptr) watch_->say("cmd=work");
}

void RankWait::check() {
  const Clock::time_point now = Clock::now();
  waited_ += std::min<Clock::duration>(now - std::exchange(checked_, now), kLongestCounted);
  if (!is_told_ && waited_ >= worth_telling(patience_)) {
    is_told_ = true;
    if (watch_ != nullptr) watch_->say("cmd=wait");
  }
  if (waited_ < patience_) return;
  if (watch_ != nullptr) {
    watch_->say(fmt::format("cmd=late seconds={} text={}", patience_.count(), operation_));
    watch_->wait_for_news();
    watch_->require_all();
    require(!watch_->hears_from_rank_zero(), ErrorKind::kComm, "{}, and its process does not answer",
            overdue_text({0}, operation_, patience_.count()));
  }
  fail(ErrorKind::kComm, "another rank has not come to {} for {} s (--ddp_timeout), and nobody knows which", operation_,
       patience_.count());
}

bool WaitingRanks::hear(const Fields& watch, const Fields& said) {
  const std::string command = field(said, "cmd");
  if (command == "wait") waiting_.insert(rank_of(watch));
  if (command == "work") waiting_.erase(rank_of(watch));
  return command == "wait" || command == "work";
}

RankNews WaitingRanks::overdue_news(const Fields& watch, const Fields& late, const std::vector<Fields>& watches) const {
  std::vector<int> missing;
  std::vector<std::string> processes;
  for (const Fields& other : watches) {
    if (waiting_.contains(rank_of(other)) || rank_of(other) == rank_of(watch)) continue;
    missing.push_back(rank_of(other));
    processes.push_back(process_text(other));
  }
  const std::string operation = printable(field(late, "text"));
  const int seconds = parse_number(field(late, "seconds"));
  const auto frozen = std::ranges::find_if(
      watches, [&](const Fields& other) { return waiting_.contains(rank_of(other)) && is_frozen(other); });
  if (missing.empty() && frozen != watches.end()) {  // it froze after it had said so
    return {
        .rank = rank_of(*frozen),
        .kind = ErrorKind::kComm,
        .text = fmt::format("rank {} has waited for {} s (--ddp_timeout) in {}, and rank {}, which waited too, does "
                            "not go on ({})",
                            rank_of(watch), seconds, operation, rank_of(*frozen), process_text(*frozen))};
  }
  if (missing.empty()) {
    return {
        .rank = rank_of(watch),
        .kind = ErrorKind::kComm,
        .text = fmt::format("rank {} waited {} s (--ddp_timeout) in {}, and all other ranks that are known here wait, "
                            "too",
                            rank_of(watch), seconds, operation)};
  }
  const size_t named = std::min(processes.size(), kMostNamed);
  const size_t more = processes.size() - named;
  return {.rank = missing.front(),
          .kind = ErrorKind::kComm,
          .text = fmt::format("{} ({}{})", overdue_text(missing, operation, seconds),
                              fmt::join(std::span(processes).first(named), "; "),
                              more > 0 ? fmt::format("; and {} more", more) : "")};
}

std::string overdue_text(const std::vector<int>& ranks, const std::string& operation, int64_t seconds) {
  const size_t named = std::min(ranks.size(), kMostNamed);
  std::string names;
  for (size_t i = 0; i < named; ++i) {
    const char* const between = i == 0 ? "" : i + 1 < ranks.size() ? ", " : " and ";
    names += fmt::format("{}rank {}", between, ranks[i]);
  }
  const size_t more = ranks.size() - named;
  if (more > 0) names += fmt::format(" and {} more rank{}", more, more == 1 ? "" : "s");
  return fmt::format("{} {} not come to {} for {} s (--ddp_timeout)", names, ranks.size() == 1 ? "has" : "have",
                     operation, seconds);
}

}  // namespace strake::comm
