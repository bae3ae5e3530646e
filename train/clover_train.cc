#include <unistd.h>

#include <cstdlib>
#include <string_view>

#include "infer/command_line.h"
#include "train/commands.h"

namespace {

/// LibTorch's threads wait for each other spinning, for milliseconds before they give up their cores: beside
/// one busy program a training step takes thirty times as long.  How long, its OpenMP library reads once,
/// when the program is loaded; so the program starts itself again, unless whoever started it has chosen.
void start_again_with_short_spins(char** argv) {
  if (std::getenv("GOMP_SPINCOUNT") != nullptr || std::getenv("OMP_WAIT_POLICY") != nullptr) return;
  ::setenv("GOMP_SPINCOUNT", "10000", 0);  // about a tenth of a millisecond
  ::execv("/proc/self/exe", argv);         // returns where that cannot be done
}

}  // namespace

int main(int argc, char** argv) {
  using namespace clover::train;
  if (argc > 1 && std::string_view(argv[1]) == "fit") start_again_with_short_spins(argv);
  return clover::infer::run_program(
      "clover-train", "Trains light speculative heads on the hidden states of a frozen language model.",
      {{"prepare", "Turns JSONL records into a token store, with a mask of what is learned.",
        declare_prepare},
       {"fit", "Trains heads on a token store; may be stopped and continued.", declare_fit},
       {"eval", "Measures heads: accuracy by head and tokens per step of the real decoder.", declare_eval},
       {"export", "Writes heads, or a checkpoint of a run, in a format of your choice.", declare_export},
       {"init", "Writes heads without training.", declare_init}},
      argc, argv);
}
