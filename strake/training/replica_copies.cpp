#include "strake/training/replica_copies.h"

#include <span>
#include <utility>

namespace strake::training {
namespace {

// Calls start(offset in the file, memory) for each piece, which returns a ticket, and waits for all.
template <typename Pieces, typename Start>
void transfer(const Pieces& pieces, const at::Tensor& kept, ScratchFile& file, const Start& start) {
  std::vector<uint64_t> tickets;
  for (const auto& piece : pieces) {
    auto* const memory = static_cast<std::byte*>(kept.mutable_data_ptr()) +
                         static_cast<size_t>(piece.begin) * static_cast<size_t>(kept.element_size());
    tickets.push_back(start(piece.offset, std::span(memory, piece.bytes)));
  }
  file.wait_all(tickets);
}

}  // namespace

// Pieces that are not empty begin where a chunk does (ShardLayout), so on a whole page.
ReplicaCopies::Pieces ReplicaCopies::pieces_of(const std::vector<UnitPlacement>& placements, size_t element_size) {
  Pieces pieces;
  uint64_t offset = 0;
  for (const UnitPlacement& unit : placements) {
    pieces.emplace_back();
    if (unit.keeps_parameters) continue;
    const int64_t end = unit.begin + unit.count;
    for (const auto& [from, to] : {std::pair{unit.kept_begin, unit.begin}, {end, unit.kept_begin + unit.kept_count}}) {
      if (from == to) continue;
      const uint64_t bytes = ScratchFile::whole_pages(static_cast<uint64_t>(to - from) * element_size);
      pieces.back().push_back({.offset = offset, .bytes = bytes, .begin = from - unit.kept_begin});
      offset += bytes;
    }
  }
  return pieces;
}

uint64_t ReplicaCopies::size_of(const Pieces& pieces) {
  uint64_t bytes = 0;
  for (const auto& of_unit : pieces) {
    for (const Piece& piece : of_unit) bytes += piece.bytes;
  }
  return bytes;
}

ReplicaCopies::ReplicaCopies(const std::vector<UnitPlacement>& placements, at::ScalarType type,
                             const OffloadOptions& offload)
    : pieces_(pieces_of(placements, c10::elementSize(type))), file_(offload.folder, size_of(pieces_), offload.file) {}

void ReplicaCopies::read(size_t u, const at::Tensor& kept) {
  transfer(pieces_[u], kept, file_,
           [&](uint64_t offset, std::span<std::byte> memory) { return file_.read(offset, memory); });
}

void ReplicaCopies::write(size_t u, const at::Tensor& kept) {
  transfer(pieces_[u], kept, file_,
           [&](uint64_t offset, std::span<std::byte> memory) { return file_.write(offset, memory); });
}

}  // namespace strake::training
