#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <mutex>
#include <ostream>
#include <string>

#include "strake/comm/observed_comm.h"
#include "strake/integrations/ds_config.h"

namespace strake::tasks {

// DeepSpeed's comms_logger: the collectives of a rank, by name and size of the message. Thread-safe.
class CommsLog {
 public:
  explicit CommsLog(integrations::DsCommsLogger options) : options_(std::move(options)) {}

  // Logs it if the options say so.
  void add(const comm::CommOperation& operation);
  // The table of all that was added, as log_summary() of DeepSpeed prints it.
  void print(std::ostream& out) const;

 private:
  struct Kind {
    std::string name;
    int64_t bytes;
    int num_ranks;
    auto operator<=>(const Kind&) const = default;
  };
  struct Total {
    int64_t count = 0;
    double seconds = 0;
  };
  bool is_wanted(const std::string& name) const;

  integrations::DsCommsLogger options_;
  mutable std::mutex mutex_;
  std::map<Kind, Total> totals_;
};

}  // namespace strake::tasks
