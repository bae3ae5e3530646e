#pragma once

#include <filesystem>

#include "infer/cost/pass_cost.h"
#include "model/target/target.h"

namespace clover::infer {

/// A file in which one run leaves what passes cost for the next, so that `auto` need not measure it again,
/// which takes as long as a dozen passes.  Only speed depends on it, never tokens.  A file that is missing,
/// damaged, older than a week or dated in the future is ignored; that it cannot be written is no error.
class CostFile {
 public:
  /// No file: reads nothing, writes nothing.
  CostFile() = default;
  explicit CostFile(std::filesystem::path file) : file_(std::move(file)) {}

  /// The file in $XDG_CACHE_HOME/clover/costs or ~/.cache/clover/costs for this model, dtype, kind of
  /// machine, number of threads, device, build of the program, `graphs` (CUDA graphs) and `typical` (lossy
  /// verification). None where there is no such folder or the model's weights are random.
  static CostFile of(const model::Target& target, bool graphs, bool typical);

  PassCost read() const;
  void write(const PassCost& costs) const;

 private:
  std::filesystem::path file_;  // empty: none
};

}  // namespace clover::infer
