#pragma once

namespace strake {

// Tells malloc to keep freed memory for the next request instead of returning it to the system. Batches differ in size,
// so that otherwise every step maps, clears and unmaps its activations again (a tenth of a training step). For
// jobs that compute; call it before they start.
void keep_freed_memory();

}  // namespace strake
