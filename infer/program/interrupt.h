#pragma once

#include <stdexcept>

namespace clover::infer {

/// Thrown by work that has nothing to keep when the user stops it; a program then ends with exit code 75.
class Interrupted : public std::runtime_error {
 public:
  Interrupted() : std::runtime_error("interrupted") {}
};

/// From now on SIGINT and SIGTERM only set a flag, so that a job ends between two steps; a second signal of
/// the same kind ends the process at once.  One that the process was started to ignore stays ignored.
void watch_for_interrupts();

/// Whether one of them came.
bool interrupted();

/// Throws Interrupted when one of them came.
void stop_if_interrupted();

}  // namespace clover::infer
