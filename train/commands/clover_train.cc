#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>

#include "infer/program/command_line.h"
#include "train/commands/commands.h"

namespace {

constexpr std::string_view name = "clover-train";

/// LibTorch's OpenMP threads spin for milliseconds before they yield their cores, so that a training step
/// takes thirty times as long beside another busy program.  The OpenMP library reads GOMP_SPINCOUNT once,
/// when it is loaded.  So the program sets it and executes itself again, unless it is set already.
void start_again_with_short_spins(char** argv) {
  if (std::getenv("GOMP_SPINCOUNT") != nullptr || std::getenv("OMP_WAIT_POLICY") != nullptr) return;
  std::error_code none;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", none);
  if (program.filename() != name) return;  // run by a loader or an emulator, which takes other arguments
  if (::setenv("GOMP_SPINCOUNT", "10000", 0) != 0) return;  // about a tenth of a millisecond
  ::execv(program.c_str(), argv);                           // returns only on failure
}

bool computes(std::string_view command) {
  return command == "fit" || command == "eval";
}

}  // namespace

int main(int argc, char** argv) {
  using namespace clover::train;
  if (argc > 1 && computes(argv[1])) start_again_with_short_spins(argv);
  return clover::infer::run_program(
      std::string(name), "Trains light speculative heads on the hidden states of a frozen language model.",
      {{"prepare", "Turns JSONL records into a token store, with a mask of what is learned.",
        declare_prepare},
       {"fit", "Trains heads on a token store; may be stopped and continued.", declare_fit},
       {"eval", "Measures heads: accuracy by head and tokens per step of the real decoder.", declare_eval},
       {"export", "Writes heads, or a checkpoint of a run, in a format of your choice.", declare_export},
       {"init", "Writes heads without training.", declare_init}},
      argc, argv);
}
