#pragma once

namespace strake::cli {

// From now on a file that is cut short while it is mapped into memory, or whose disk fails, ends the program with a
// message that names the file and the exit code of kIo, and not with a signal.
void name_files_that_are_cut();

}  // namespace strake::cli
