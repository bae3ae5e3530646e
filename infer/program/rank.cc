#include "infer/program/rank.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <string>
#include <utility>

#include "data/files/error.h"

namespace clover::infer {
namespace {

/// The number in the environment variable `name`, which is set.
int64_t number_in(const char* name) {
  const std::string text = std::getenv(name);
  int64_t number = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < 0)
    throw data::InputError(std::string(name) + ": expected a number from the launcher, found \"" + text +
                           "\"");
  return number;
}

}  // namespace

Rank Rank::from_environment() {
  const std::pair<const char*, const char*> launchers[] = {{"RANK", "WORLD_SIZE"},
                                                           {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS"}};
  for (const auto& [number, count] : launchers) {
    if (!std::getenv(number) || !std::getenv(count)) continue;
    const Rank rank{number_in(number), number_in(count)};
    if (rank.number >= rank.count) {
      throw data::InputError(std::string(number) + ": expected a rank below " + count + ", found " +
                             std::to_string(rank.number) + " of " + std::to_string(rank.count));
    }
    return rank;
  }
  return {};
}

int64_t local_ranks() {
  const char* count = std::getenv("LOCAL_WORLD_SIZE");
  return count ? std::max<int64_t>(1, std::atoll(count)) : 1;
}

}  // namespace clover::infer
