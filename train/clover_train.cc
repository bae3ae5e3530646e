#include "infer/command_line.h"
#include "train/commands.h"

int main(int argc, char** argv) {
  using namespace clover::train;
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
