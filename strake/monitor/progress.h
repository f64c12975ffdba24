#pragma once

#include <unistd.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "strake/monitor/throughput.h"

namespace strake::monitor {

struct ProgressNumbers {
  int64_t done = 0;    // steps, including those before a resumed run began
  int64_t total = 0;   // at least 1
  int64_t tokens = 0;  // real tokens (packed, no padding) of all ranks since the Progress was made; 0: not shown
  std::optional<double> epoch;
  std::optional<double> loss;
  std::optional<double> learning_rate;
};

struct ProgressOptions {
  int64_t done_at_start = 0;  // of a resumed run, so that rates count only this one
  int descriptor = STDERR_FILENO;
  double seconds_between_lines = 10;  // when redirected
  std::function<double()> clock;      // seconds, never going back; empty: the machine's steady clock
};

// How far a training run is: a bar redrawn in place on a terminal, else a plain line now and then without control
// characters. Rank 0 makes one. update() is cheap enough for every step. What cannot be written is lost silently: a
// closed terminal must not end a run. Not thread-safe.
class Progress {
 public:
  explicit Progress(ProgressOptions options);
  ~Progress();  // leaves the terminal at the start of a line
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void update(const ProgressNumbers& numbers);

  // Ends the bar's line so that other output to the terminal starts on its own; the next update draws the bar again.
  void make_room();

  // Shows the last numbers with the time they took. Once; does nothing if there was no update.
  void finish();

 private:
  // "12/100 steps, epoch 0.36, loss 0.4321, ..."
  std::string details(double now) const;
  std::string terminal_line(double now) const;
  std::string plain_line(double now) const;
  void show(double now);

  ProgressOptions options_;
  bool on_terminal_;
  double started_;
  double shown_at_;  // of a plain line also the start, so that short runs write only the last one
  bool bar_is_open_ = false;
  bool finished_ = false;
  std::optional<ProgressNumbers> numbers_;
  RateMeter step_rate_;
  RateMeter token_rate_;
};

}  // namespace strake::monitor
