#pragma once

namespace clover::kernels {

/// Whether a GPU kernel may start while the one before it in the stream still runs (Programmatic Dependent
/// Launch).  It changes no result.  On by default; the environment variable CLOVER_NO_OVERLAP turns it off,
/// for debugging.
bool kernels_overlap();
void let_kernels_overlap(bool allowed);

}  // namespace clover::kernels
