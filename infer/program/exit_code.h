#pragma once

namespace clover::infer {

/// The exit codes of clover-infer and clover-train.
enum ExitCode : int {
  exit_done = 0,
  exit_failed = 1,       // a failure that no other code names; the message says which files are complete
  exit_bad_input = 2,    // bad input or configuration, found before the work began
  exit_some_failed = 3,  // finished, but some lines or records failed
  exit_interrupted =
      75  // stopped by SIGTERM or SIGINT; `batch` continues when run again, `fit` with --resume auto
};

}  // namespace clover::infer
