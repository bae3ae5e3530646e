#include "infer/program/interrupt.h"

#include <csignal>

namespace clover::infer {
namespace {

volatile std::sig_atomic_t signal_arrived = 0;

void on_signal(int signal) {
  signal_arrived = 1;
  std::signal(signal, SIG_DFL);  // so that a second signal ends the process at once
}

}  // namespace

void watch_for_interrupts() {
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  for (const int signal : {SIGINT, SIGTERM}) {
    struct sigaction inherited {};
    // A shell starts background jobs with SIGINT ignored, because Ctrl-C is meant for the job in front.
    if (::sigaction(signal, nullptr, &inherited) == 0 && inherited.sa_handler == SIG_IGN) continue;
    ::sigaction(signal, &action, nullptr);
  }
}

bool interrupted() {
  return signal_arrived != 0;
}

void stop_if_interrupted() {
  if (interrupted()) throw Interrupted();
}

}  // namespace clover::infer
