#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "strake/core/scratch_file.h"
#include "strake/training/placement.h"

namespace strake::training {

// What a rank keeps on disk of parameters that others update. Under hybrid sharding every group of ranks has all
// parameters, but a rank updates only a part of those that it keeps; the rest are copies of what the ranks with its
// place in other groups have. The own part is in OffloadedStates.
class ReplicaCopies {
 public:
  // By unit; only those with parameters on disk have copies. Reserves the disk space; Error (kIo) without room.
  ReplicaCopies(const std::vector<UnitPlacement>& placements, at::ScalarType type, const OffloadOptions& offload);

  // Between the disk and what the rank keeps of a unit's parameters, in memory of the host that begins on a page and
  // has room for whole pages (GatherBuffers). Thread-safe for different units.
  void read(size_t u, const at::Tensor& kept);
  void write(size_t u, const at::Tensor& kept);

  uint64_t disk_bytes() const { return file_.bytes(); }
  // Of such copies, without making them.
  static uint64_t disk_bytes(const std::vector<UnitPlacement>& placements, at::ScalarType type) {
    return size_of(pieces_of(placements, c10::elementSize(type)));
  }

 private:
  struct Piece {
    uint64_t offset = 0;  // in the file
    uint64_t bytes = 0;   // whole pages
    int64_t begin = 0;    // in what is kept
  };
  using Pieces = std::vector<std::vector<Piece>>;  // by unit
  static Pieces pieces_of(const std::vector<UnitPlacement>& placements, size_t element_size);
  static uint64_t size_of(const Pieces& pieces);

  Pieces pieces_;
  ScratchFile file_;
};

}  // namespace strake::training
