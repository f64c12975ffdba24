#include "strake/comm/pmi_store.h"

#include <fmt/format.h>

namespace strake::comm {

bool PmiStore::answer(int socket, const Fields& fields) {
  const std::string command = field(fields, "cmd");
  if (command == "initack") {
    return send_line(socket, "cmd=initack rc=0") && send_line(socket, fmt::format("cmd=set size={}", num_ranks_)) &&
           send_line(socket, "cmd=set rank=" + field(fields, "pmiid")) && send_line(socket, "cmd=set debug=0");
  }
  if (command == "init") return send_line(socket, "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0");
  if (command == "get_maxes") return send_line(socket, "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024 rc=0");
  if (command == "get_appnum") return send_line(socket, "cmd=appnum appnum=0 rc=0");
  if (command == "get_my_kvsname") return send_line(socket, "cmd=my_kvsname kvsname=strake rc=0");
  if (command == "get_universe_size") {
    return send_line(socket, fmt::format("cmd=universe_size size={} rc=0", num_ranks_));
  }
  if (command == "put") return send_line(socket, put(fields));
  if (command == "get") return send_line(socket, get(fields));
  if (command == "barrier_in") return enter_barrier(socket);
  if (command == "finalize") return send_line(socket, "cmd=finalize_ack rc=0");
  return send_line(socket, fmt::format("cmd={}_result rc=-1 msg=unknown", command));
}

void PmiStore::forget(int socket) {
  const std::lock_guard lock(mutex_);
  std::erase(waiting_, socket);
}

std::string PmiStore::put(const Fields& fields) {
  const std::lock_guard lock(mutex_);
  values_[field(fields, "key")] = field(fields, "value");
  return "cmd=put_result rc=0 msg=success";
}

std::string PmiStore::get(const Fields& fields) const {
  const std::lock_guard lock(mutex_);
  const auto found = values_.find(field(fields, "key"));
  if (found == values_.end()) return "cmd=get_result rc=-1 msg=key_not_found";
  return "cmd=get_result rc=0 msg=success value=" + found->second;
}

bool PmiStore::enter_barrier(int socket) {
  const std::lock_guard lock(mutex_);
  waiting_.push_back(socket);
  if (static_cast<int>(waiting_.size()) < num_ranks_) return true;
  for (const int rank : waiting_) send_line(rank, "cmd=barrier_out rc=0");
  waiting_.clear();
  return true;
}

}  // namespace strake::comm
