#include "infer/commands/commands.h"
#include "infer/program/command_line.h"

int main(int argc, char** argv) {
  using namespace clover::infer;
  return run_program(
      "clover-infer", "Generates text in bulk with a language model and light speculative heads.",
      {{"generate", "Answers one prompt.", declare_generate},
       {"batch", "Answers every line of a JSONL file; may be stopped and continued.", declare_batch},
       {"bench", "Measures speed by draft policy, budget and batch size.", declare_bench},
       {"tokenize", "Shows the text and token ids of every line of a JSONL file.", declare_tokenize},
       {"verify-equal", "Checks that drafting and batching leave every answer as it is.",
        declare_verify_equal},
       {"inspect", "Shows and checks what a model or heads folder holds.", declare_inspect}},
      argc, argv);
}
