#pragma once

namespace clover::infer {

/// What every program of the project returns.
enum ExitCode : int {
  exit_done = 0,
  exit_failed = 1,       // anything else; the message says what is safe on disk
  exit_bad_input = 2,    // bad input or configuration, found before work began
  exit_some_failed = 3,  // done, but some lines or records failed
  exit_interrupted = 75  // SIGTERM or SIGINT; batch and fit can be continued
};

}  // namespace clover::infer
