#pragma once

namespace clover::kernels {

/// Whether GPU kernels may start while the last one ends, which changes no result.  At first they may, but
/// for CLOVER_NO_OVERLAP=1 in the environment, where somebody looks for a fault.
bool kernels_overlap();
void let_kernels_overlap(bool may);

}  // namespace clover::kernels
