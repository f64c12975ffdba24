#pragma once

#include <cstddef>
#include <vector>

#include "strake/kernels/cuda/call.h"
#include "strake/kernels/cuda/table.h"

// For tests: the same comparisons run on emulated devices everywhere, and on a real one where there is one.
namespace strake::kernels::cuda {

// Defined by each test program. Null: no GPU, and tests skip.
const CudaTable* table_under_test();

// An array in memory of the device.
template <typename T>
class OnDevice {
 public:
  OnDevice(const CudaTable& table, const std::vector<T>& values) : table_(table), count_(values.size()) {
    void* memory = nullptr;
    check(table_, table_.allocate(&memory, bytes()), "allocation");
    data_ = static_cast<T*>(memory);
    check(table_, table_.to_device(data_, values.data(), bytes(), nullptr), "copy");
  }
  OnDevice(const CudaTable& table, int64_t count, T value)
      : OnDevice(table, std::vector<T>(static_cast<size_t>(count), value)) {}
  ~OnDevice() { table_.release(data_); }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

  T* data() const { return data_; }
  std::vector<T> values() const {
    std::vector<T> result(count_);
    check(table_, table_.to_host(result.data(), data_, bytes(), nullptr), "copy");
    return result;
  }

 private:
  size_t bytes() const { return count_ * sizeof(T); }

  const CudaTable& table_;
  size_t count_;
  T* data_ = nullptr;
};

}  // namespace strake::kernels::cuda
