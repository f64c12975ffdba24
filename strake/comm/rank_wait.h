#pragma once

#include <chrono>
#include <set>
#include <string>
#include <vector>

#include "strake/comm/rank_lines.h"

namespace strake::comm {

class RankWatch;

// Of the time that nobody has looked at, as it counts for the patience.
inline constexpr std::chrono::seconds kLongestCounted{1};

// One wait of this rank for others, in a collective. A rank that hangs, or that somebody stopped, is not dead: nobody
// hears of it but by the patience of those that wait. So that they can name it, ranks say when they wait.
class RankWait {
 public:
  // `watch` may be null: then nobody is named.
  RankWait(RankWatch* watch, const char* operation, std::chrono::seconds patience);
  ~RankWait();
  RankWait(const RankWait&) = delete;
  RankWait& operator=(const RankWait&) = delete;

  // To be called over and over. Error (kComm) when the patience is at its end. A long time between two calls counts as
  // a second: this process was paused, as Ctrl-Z and `docker pause` do to a whole job, and no rank is late for that.
  void check();

 private:
  using Clock = std::chrono::steady_clock;
  RankWatch* watch_;
  const char* operation_;
  std::chrono::seconds patience_;
  Clock::time_point checked_ = Clock::now();
  Clock::duration waited_{};
  bool is_told_ = false;
};

// The ranks that wait, as they say it to the server of the news.
class WaitingRanks {
 public:
  // What the rank that said `watch` says; true if it was about waiting.
  bool hear(const Fields& watch, const Fields& said);

  // What is wrong when the rank that said `watch` says `late`. `watches`: of all ranks that the server knows.
  RankNews overdue_news(const Fields& watch, const Fields& late, const std::vector<Fields>& watches) const;

 private:
  std::set<int> waiting_;
};

// "rank 1 and rank 3 have not come to reduce_scatter for 1800 s (--ddp_timeout)"
std::string overdue_text(const std::vector<int>& ranks, const std::string& operation, int64_t seconds);

}  // namespace strake::comm
