#pragma once

namespace clover::kernels {

/// Whether GPU kernels may start before the kernel ahead of them has ended (Programmatic Dependent Launch),
/// which changes no result.  They may, unless CLOVER_NO_OVERLAP is set in the environment, which helps to
/// look for a fault.
bool kernels_overlap();
void let_kernels_overlap(bool may);

}  // namespace clover::kernels
