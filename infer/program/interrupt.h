#pragma once

#include <stdexcept>

namespace clover::infer {

/// Thrown when the user interrupts work that has nothing to save.  run_program turns it into
/// exit_interrupted.
class Interrupted : public std::runtime_error {
 public:
  Interrupted() : std::runtime_error("interrupted") {}
};

/// Installs handlers for SIGINT and SIGTERM.  The first signal sets a flag, so that a job can stop between
/// two steps; a second signal of the same kind ends the process at once.  A signal that the process inherited
/// as ignored stays ignored.
void watch_for_interrupts();

/// Whether SIGINT or SIGTERM has arrived since watch_for_interrupts.
bool interrupted();

/// Throws Interrupted when interrupted() is true.
void stop_if_interrupted();

}  // namespace clover::infer
