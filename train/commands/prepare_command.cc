#include "infer/program/command_line.h"
#include "train/store/prepare.h"

#include <CLI/CLI.hpp>
#include <memory>

#include "train/commands/commands.h"

namespace clover::train {

Action declare_prepare(CLI::App& app) {
  const auto options = std::make_shared<PrepareOptions>();
  infer::add_model_options(app, options->model, infer::HeadsOption::none);
  app.add_option("--input", options->input, "Files of records, JSON lines or one array")
      ->required()
      ->type_name("FILE");
  app.add_option("--output", options->output, "Folder of the token store")->type_name("DIR");
  app.add_option(
      "--holdout", options->holdout,
      "Share of samples kept out of training, for evaluation; all of one prompt, or of one conversation, "
      "are on one side");
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
      "A line of --input, or an element of a file that is one JSON array, holds messages or conversations\n"
      "(role and content, or ShareGPT's from and value), prompt and completion (texts, or lists of\n"
      "messages), question and answer (SQuAD's context before it), instruction, input or context, and\n"
      "output or response, text, token_ids and loss_mask, or is one that clover-infer batch wrote (of an\n"
      "OpenAI request it does not hold the prompt: give the request in a short form).  A null is no field.\n"
      "Beside a conversation may stand system, tools, documents and chat_template_kwargs, which go to the\n"
      "chat template, and history, earlier pairs of Alpaca's form, which are learned too; what the template\n"
      "does not use makes the record bad.  Answers with weight 0, train false or loss_mask 0 are not\n"
      "learned.\n"
      "A sample is what the decoder reads and writes.  Where a template writes earlier turns otherwise once\n"
      "more follow (without thoughts, say), a later turn is a sample of its own.\n"
      "A completion is taken to end with the template's end token; --template none has no such token, and\n"
      "the heads then do not learn where answers end.\n\n"
      "Example:\n"
      "  clover-train prepare --target models/SmolLM2-135M-Instruct --input answers.jsonl \\\n"
      "      --output store --preview 3");
  return [options] { return prepare(*options); };
}

}  // namespace clover::train
