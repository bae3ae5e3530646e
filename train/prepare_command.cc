#include "infer/command_line.h"
#include "train/prepare.h"

#include <CLI/CLI.hpp>
#include <memory>

#include "train/commands.h"

namespace clover::train {

Action declare_prepare(CLI::App& app) {
  const auto options = std::make_shared<PrepareOptions>();
  infer::add_model_options(app, options->model, infer::HeadsOption::none);
  app.add_option("--input", options->input, "JSONL files of records")->required()->type_name("FILE");
  app.add_option("--output", options->output, "Folder of the token store")->type_name("DIR");
  app.add_option("--holdout", options->holdout, "Share of samples kept out of training, for evaluation");
  app.add_option("--preview", options->preview, "Show the first N samples with what is learned marked")
      ->type_name("N")
      ->check(infer::whole_number<int64_t>());
  app.add_option("--max-length", options->max_length, "Longer samples are cut to this many tokens")
      ->type_name("N")
      ->check(infer::whole_number<int64_t>());
  app.add_option("--max-bad-records", options->max_bad_records,
                 "Bad records to skip before giving up; -1: 100, or one in a hundred if that is more")
      ->type_name("N")
      ->check(infer::whole_number<int64_t>());
  app.get_option("--device")->description("cpu, where alone this command works");
  app.footer(
      "A line of --input holds messages, conversations (ShareGPT), prompt and completion, question and\n"
      "answer, instruction, input and output, text, token_ids and loss_mask, or is one that clover-infer\n"
      "batch wrote (of an OpenAI request it does not hold the prompt: give the request in a short form).\n"
      "A completion is taken to end with the template's end token; --template none has no such token, and\n"
      "the heads then do not learn where answers end.\n\n"
      "Example:\n"
      "  clover-train prepare --target models/SmolLM2-135M-Instruct --input answers.jsonl \\\n"
      "      --output store --preview 3");
  return [options] { return prepare(*options); };
}

}  // namespace clover::train
