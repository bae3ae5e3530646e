#pragma once

#include <filesystem>

#include "infer/cost/pass_cost.h"
#include "model/target/target.h"

namespace clover::infer {

/// Where one run leaves what passes cost for the next: `auto` then need not measure it again, which takes as
/// long as a dozen passes, and knows it from more than one run.  Only speed depends on it, never tokens.  A
/// file that is missing, damaged, a week old or of another future counts as none; what cannot be written is
/// not.
class CostFile {
 public:
  /// None: nothing is known, nothing is kept.
  CostFile() = default;
  explicit CostFile(std::filesystem::path file) : file_(std::move(file)) {}

  /// In $XDG_CACHE_HOME/clover/costs, or ~/.cache/clover/costs, one for each model, dtype, kind of machine,
  /// number of threads, device, build of this program, way to start kernels (`graphs`) and to verify
  /// (`typical`: a GPU's logits come to the CPU).  None where there is no such folder or the model is a
  /// random one.
  static CostFile of(const model::Target& target, bool graphs, bool typical);

  PassCost read() const;
  void write(const PassCost& costs) const;

 private:
  std::filesystem::path file_;  // empty: none
};

}  // namespace clover::infer
