#include <cstdlib>
#include <string_view>

#include "strake/kernels/cuda/emulation/emulation.h"
#include "strake/kernels/cuda/table_under_test.h"

extern "C" const strake::kernels::cuda::CudaTable* strake_cuda_table();

namespace strake::kernels::cuda {

// With STRAKE_EMULATION_ORDER=down threads of a block go on in descending order.
const CudaTable* table_under_test() {
  const char* order = std::getenv("STRAKE_EMULATION_ORDER");
  emulation::set_order(order != nullptr && std::string_view(order) == "down" ? emulation::Order::kDown
                                                                             : emulation::Order::kUp);
  return strake_cuda_table();
}

}  // namespace strake::kernels::cuda
