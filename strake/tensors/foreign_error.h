#pragma once

#include <exception>

#include "strake/core/error.h"

namespace strake::tensors {

// What an exception in flight means to the user, whoever threw it: an Error is itself; memory that the system, libtorch
// or a GPU did not give is kUsage with advice, as the settings asked for it; the file system library's are kIo; all
// others kInternal.
Error as_error(const std::exception_ptr& error);

}  // namespace strake::tensors
