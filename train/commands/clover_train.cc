#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>

#include "infer/program/command_line.h"
#include "train/commands/commands.h"

namespace {

constexpr std::string_view name = "clover-train";

/// Makes idle OpenMP threads give up their cores early.  LibTorch's threads spin for milliseconds before they
/// do, so a training step takes thirty times as long beside another busy program.  The OpenMP library reads
/// GOMP_SPINCOUNT only when it is loaded.  So the program sets it and executes itself again, unless the user
/// has set it.
void restart_with_short_spins(char** argv) {
  if (std::getenv("GOMP_SPINCOUNT") != nullptr || std::getenv("OMP_WAIT_POLICY") != nullptr) return;
  std::error_code ignored;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", ignored);
  if (program.filename() != name) return;  // run by a loader or an emulator, which takes other arguments
  if (::setenv("GOMP_SPINCOUNT", "10000", 0) != 0) return;  // spins: about 0.1 ms
  ::execv(program.c_str(), argv);                           // returns only on failure
}

/// Whether the command runs forward passes.
bool runs_passes(std::string_view command) {
  return command == "fit" || command == "eval" || command == "synthesize";
}

}  // namespace

int main(int argc, char** argv) {
  using namespace clover::train;
  if (argc > 1 && runs_passes(argv[1])) restart_with_short_spins(argv);
  return clover::infer::run_program(
      std::string(name), "Trains light speculative heads on the hidden states of a frozen language model.",
      {{"synthesize", "Lets the model make its own training conversations; may be stopped and continued.",
        declare_synthesize},
       {"prepare", "Turns JSONL records into a token store, with a mask of what is learned.",
        declare_prepare},
       {"fit", "Trains heads on a token store; may be stopped and continued.", declare_fit},
       {"eval", "Measures heads: accuracy by head and tokens per step of the real decoder.", declare_eval},
       {"export", "Writes heads, or a checkpoint of a run, in a format of your choice.", declare_export},
       {"init", "Writes heads without training.", declare_init}},
      argc, argv);
}
