#include <CLI/CLI.hpp>
#include <memory>

#include "infer/program/command_line.h"
#include "train/commands/commands.h"
#include "train/synthesize/synthesize.h"

namespace clover::train {

Action declare_synthesize(CLI::App& app) {
  const auto options = std::make_shared<SynthesizeOptions>();
  options->decode.sampling.max_tokens = 512;
  infer::add_model_options(app, options->model, infer::HeadsOption::one);
  infer::add_context_option(app, options->model);
  app.add_option("--output", options->output, "Conversations, JSON lines for `prepare`")
      ->required()
      ->type_name("FILE");
  app.add_option("--count", options->count, "Conversations to make")
      ->required()
      ->type_name("N")
      ->check(infer::whole_number<int64_t>());
  app.add_option("--turns", options->turns, "Turns of the user in a conversation")
      ->type_name("N")
      ->check(infer::whole_number<int64_t>());
  app.add_option("--topics", options->topics, "A topic on each line; conversations are about them in turn")
      ->type_name("FILE");
  app.add_option("--first-questions", options->first_questions,
                 "Requests as for clover-infer batch; each one's first user message begins a conversation")
      ->type_name("FILE");
  app.add_option("--holdout", options->holdout,
                 "Share of the conversations that goes to a file of its own, NAME.held-out, for evaluation");
  app.add_option("--user-temperature", options->user_temperature, "Temperature of the user's turns");
  app.add_option("--user-top-p", options->user_top_p, "Top-p of the user's turns");
  app.add_option("--user-max-tokens", options->user_max_tokens, "Longer turns of the user are dropped")
      ->type_name("N")
      ->check(infer::whole_number<int64_t>());
  infer::add_sampling_options(app, options->decode.sampling);
  infer::add_end_option(app, options->decode);
  infer::add_draft_options(app, options->decode);
  infer::add_scheduling_options(app, options->decode);
  app.footer(R"(
Training data needs nothing but the model.  What a user says is sampled behind the beginning of the model's
chat template, where a user speaks; the answers are the model's own (--temperature and the options beside it
are for them, and --max-tokens drops longer ones).  Dropped and counted are empty, cut and looping turns,
turns with control tokens in them, and turns of the user like earlier ones.  The same options give the same
conversations.  When interrupted, the same command continues.  When too few conversations are good, it stops
with those that it has (exit code 3).

Examples:
  clover-train synthesize --target models/SmolLM2-135M-Instruct --count 2000 --output talk.jsonl
  clover-train synthesize ... --turns 3 --topics topics.txt
  clover-train synthesize ... --first-questions questions.jsonl --heads heads-clover
  clover-train prepare --target models/SmolLM2-135M-Instruct --input talk.jsonl --output store)");
  return [options, &app] { return synthesize(*options, infer::resolved_settings(app)); };
}

}  // namespace clover::train
