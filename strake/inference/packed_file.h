#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "strake/tensors/safetensors.h"

namespace strake::inference {

// Packed weights in a file beside the model, MODEL/strake_packed/NAME.packed, which a start maps instead of packing
// again and whose pages the processes of a host share. It is a safetensors file whose metadata say what it is made of;
// anything else than what is expected there, and any damage, makes it a file that is not there:
//
// - format, release and `arrays` (precision, layout of the kernels, tensors of the model), so that the file of another
//   processor, release or head is not read;
// - the weights it was made from. Size and time of change do not tell them apart: images and archives give every file
//   the same time, and weights that were trained again have the same size. What does is the time of the last change of
//   the inode, which no program can set. So device, inode, size and both times of each file are compared first; where
//   all are as they were, the weights are. Where they are not (a copy of the folder, another host) the weights are
//   read and their CRC-32C decides. They are read once when the file is written, and a file is not written if they
//   changed meanwhile;
// - the CRC-32C of the arrays, which each start computes on all its threads: a tenth of the time that packing takes,
//   and most of it is spent on pages that scoring reads anyway; and that of the notes, one line of text about them.
//
// None of this defends against somebody who may write into the model's folder: he can replace the model.
class PackedFile {
 public:
  struct Identity {
    std::string name;    // of the file
    std::string arrays;  // all that they depend on, but for the weights
  };
  // `weights`: the files they are in.
  PackedFile(const std::filesystem::path& model, Identity identity, std::vector<std::filesystem::path> weights);

  const std::filesystem::path& path() const { return path_; }

  // The file, if it is there and to be trusted; says why it is not.
  std::unique_ptr<tensors::SafetensorsFile> open() const;
  static std::string notes_of(const tensors::SafetensorsFile& file);

  // The right to write the file, while it lives. Processes that start at once take turns, so that one of them packs.
  class Turn {
   public:
    Turn(Turn&& other) noexcept;
    Turn& operator=(Turn&&) = delete;
    ~Turn();

    bool waited() const { return waited_; }

   private:
    friend class PackedFile;
    explicit Turn(int descriptor) : descriptor_(descriptor) {}
    int descriptor_;
    bool waited_ = false;
    std::string weights_before_;
  };
  // Waits for other processes, up to half a minute. None, and a line that says why, where nothing can be written. To be
  // taken before the weights' files are opened to be packed.
  std::optional<Turn> take_turn() const;
  // True if the file is there now. Removes what killed processes left. Says why not: nobody depends on it.
  bool write(const Turn& turn, std::vector<tensors::NamedTensor> arrays, const std::string& notes) const;

 private:
  std::filesystem::path path_;
  Identity identity_;
  std::vector<std::filesystem::path> weights_;
};

}  // namespace strake::inference
