#include "infer/program/interrupt.h"

#include <csignal>

namespace clover::infer {
namespace {

volatile std::sig_atomic_t signal_came = 0;

void remember_signal(int signal) {
  signal_came = 1;
  std::signal(signal, SIG_DFL);  // a second one does not wait for us
}

}  // namespace

void watch_for_interrupts() {
  struct sigaction action {};
  action.sa_handler = remember_signal;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  for (const int signal : {SIGINT, SIGTERM}) {
    struct sigaction inherited {};
    // A shell starts background jobs with SIGINT ignored: the user's Ctrl-C is meant for another program.
    if (::sigaction(signal, nullptr, &inherited) == 0 && inherited.sa_handler == SIG_IGN) continue;
    ::sigaction(signal, &action, nullptr);
  }
}

bool interrupted() {
  return signal_came != 0;
}

void stop_if_interrupted() {
  if (interrupted()) throw Interrupted();
}

}  // namespace clover::infer
