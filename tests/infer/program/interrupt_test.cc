#include "infer/program/interrupt.h"

#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>

namespace clover::infer {
namespace {

// Ends the process: 0 where both hold.
[[noreturn]] void watch_and_raise(int ignored, int watched) {
  std::signal(ignored, SIG_IGN);
  std::signal(watched, SIG_DFL);  // the tests themselves may have been started to ignore it
  watch_for_interrupts();
  std::raise(ignored);
  const bool stayed_ignored = !interrupted();
  std::raise(watched);
  std::_Exit(stayed_ignored && interrupted() ? 0 : 1);
}

TEST(Interrupts, KeepASignalIgnoredThatWasInheritedAsIgnored) {
  EXPECT_EXIT(watch_and_raise(SIGINT, SIGTERM), testing::ExitedWithCode(0), "");
  EXPECT_EXIT(watch_and_raise(SIGTERM, SIGINT), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace clover::infer
