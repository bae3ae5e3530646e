#pragma once

#include <filesystem>

#include "infer/cost/pass_cost.h"
#include "model/target/target.h"

namespace clover::infer {

/// A file in which a run keeps what passes cost, so that the next run need not measure it again; measuring
/// takes as long as a dozen passes.  Only speed depends on the file, never tokens.  A file that is missing,
/// damaged, older than a week or dated in the future is ignored.  A file that cannot be written is no error.
class CostFile {
 public:
  /// No file: reads nothing, writes nothing.
  CostFile() = default;
  explicit CostFile(std::filesystem::path file) : file_(std::move(file)) {}

  /// The file for this model, dtype, type of machine, number of threads, device, build of the program, use of
  /// CUDA graphs (`graphs`) and of typical verification (`typical`).  It is in
  /// $XDG_CACHE_HOME/clover/costs or ~/.cache/clover/costs.  No file where both variables are unset or the
  /// model's weights are random.
  static CostFile for_target(const model::Target& target, bool graphs, bool typical);

  /// What the file says; an empty PassCost where it is ignored.
  PassCost read() const;
  /// Replaces the file, unless `costs` are empty.
  void write(const PassCost& costs) const;

 private:
  std::filesystem::path file_;  // empty: no file
};

}  // namespace clover::infer
