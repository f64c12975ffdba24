#pragma once

namespace strake::kernels {

// What becomes of what is in the result's place.
enum class Store { kOverwrite, kAdd };

}  // namespace strake::kernels
