// `clover-infer generate`: answers one prompt.  It goes on in infer/requests/in_flight_line.h (the request)
// and infer/engine/engine.h (decoding).

#include <unistd.h>

#include <cstdio>
#include <iostream>
#include <optional>
#include <string>

#include "data/files/error.h"
#include "data/text/utf8.h"
#include "infer/commands/commands.h"
#include "infer/program/command_line.h"
#include "infer/program/exit_code.h"
#include "infer/program/interrupt.h"
#include "infer/requests/decode_flags.h"
#include "infer/requests/in_flight_line.h"
#include "infer/requests/run_requests.h"

namespace clover::infer {
namespace {

struct GenerateOptions {
  ModelOptions model;
  DecodeFlags decode;
  std::string prompt;
  std::optional<std::string> system;
  bool raw = false;
  bool stream = ::isatty(STDOUT_FILENO) != 0;
};

/// The prompt as a line of a batch file would give it.
BatchLine line_of(const GenerateOptions& options, const PromptEncoder& encoder) {
  BatchLine line;
  line.number = 1;
  line.sampling = options.decode.sampling;
  line.sampling.has_own_seed = true;  // so that random numbers depend on --seed alone
  line.prompt = options.prompt;
  // With --system but no chat template, rendering the messages is an InputError.
  if (options.raw || (!encoder.has_template() && !options.system)) return line;
  line.shape = LineShape::messages;
  if (options.system) line.messages.push_back({"system", *options.system});
  line.messages.push_back({"user", options.prompt});
  return line;
}

void print_timing(const EngineStats& stats, const Completion& answer) {
  const double decoded = static_cast<double>(stats.tokens - stats.first_tokens);
  std::fprintf(stderr,
               "%lld tokens (%s), prompt %lld tokens in %.2f s, decoding %.1f tokens/s, %.2f tokens/step\n",
               static_cast<long long>(answer.token_ids.size()), answer.finish_reason.c_str(),
               static_cast<long long>(answer.prompt_tokens), stats.prefill_seconds,
               stats.decode_seconds > 0 ? decoded / stats.decode_seconds : 0, stats.tokens_per_step());
}

/// InputError for options that do not go together, and for texts that are not UTF-8.
void check_options(const GenerateOptions& options) {
  if (options.raw && options.system)
    throw data::InputError("--system: a prompt that is continued as it is (--raw) has no system message.");
  for (const auto& [name, text] :
       {std::pair{"--prompt", options.prompt}, {"--system", options.system.value_or("")}})
    if (!data::is_utf8(text)) throw data::InputError(std::string(name) + ": expected UTF-8.");
}

/// Decodes the only request and prints its answer.
void answer(Engine& engine, Request request, const GenerateOptions& options, bool typical) {
  if (options.stream) {
    engine.on_text([](int64_t, const std::string& text) { std::cout << text << std::flush; });
  }
  engine.submit(std::move(request));
  while (!engine.idle()) {
    for (const Completion& answer : engine.step()) {
      if (!options.stream) std::cout << answer.text;
      std::cout << std::endl;
      if (!answer.error.empty()) throw data::InputError(answer.error + ".");
      print_timing(engine.stats(), answer);
      if (typical) std::fputs("--verify typical: lossy, not exactly the target's answer\n", stderr);
    }
    stop_if_interrupted();
  }
  engine.save_costs();
}

/// Checks options, loads the model, makes the request, creates an engine for it and answers it.
int generate(const GenerateOptions& options) {
  check_options(options);
  EngineOptions engine_options = to_engine_options(options.decode, !options.model.heads.empty());
  watch_for_interrupts();
  const LoadedModel model = load_model(options.model);
  engine_options.end_ids = chosen_end_ids(options.decode.end_tokens, options.model.target, model);
  stop_if_interrupted();
  InFlightLine line(line_of(options, *model.prompt_encoder));
  const int64_t context = model.target->config().context;
  Request request = std::move(line.start(*model.prompt_encoder, context).front());
  model::Drafter* drafter =
      growth_policy(engine_options.growth.policy).drafts ? model.drafter.get() : nullptr;
  engine_options.max_batch = 1;
  if (engine_options.kv_memory == 0) {
    const int64_t tokens = std::ssize(request.prompt) + std::min(request.max_tokens, context);
    engine_options.kv_memory =
        kv_memory_for(*model.target, drafter, 1, std::min(tokens, context), engine_options.page_size);
  }
  engine_options.costs = CostFile::for_target(*model.target, engine_options.graphs, engine_options.typical);
  Engine engine(*model.target, drafter, model.prompt_encoder->tokenizer(), engine_options);
  answer(engine, std::move(request), options, engine_options.typical);
  return exit_done;
}

/// What --help prints after the options.
constexpr const char* generate_help_footer = R"(
The answer goes to stdout, one line of timing to stderr.

Examples:
  clover-infer generate --target models/SmolLM2-135M-Instruct --prompt 'Name three rivers.'
  clover-infer generate --target models/SmolLM2-135M-Instruct --heads heads-clover --stream \
      --prompt 'A short story about a lighthouse.' --temperature 0.7 --seed 7 --max-tokens 300
)";

}  // namespace

Action declare_generate(CLI::App& app) {
  auto options = std::make_shared<GenerateOptions>();
  add_model_options(app, options->model, HeadsOption::one);
  add_context_option(app, options->model);
  app.add_option("--prompt", options->prompt,
                 "What to answer; as a user message when the model has a chat template")
      ->required()
      ->type_name("TEXT");
  app.add_option("--system", options->system,
                 "System message before the prompt (default: the chat template's own; '' is an empty one)")
      ->type_name("TEXT");
  app.add_flag("--raw", options->raw, "Continue the prompt as it is, without the chat template");
  app.add_flag("--stream,!--no-stream", options->stream,
               "Print text as it comes (default: when stdout is a terminal)");
  add_sampling_options(app, options->decode.sampling);
  add_end_option(app, options->decode);
  add_graphs_option(app, options->decode);
  add_draft_options(app, options->decode);
  app.add_option("--kv-memory", options->decode.kv_memory,
                 "Memory for keys and values; 0: what the answer needs")
      ->type_name("BYTES")
      ->transform(byte_count());
  app.footer(generate_help_footer);
  return [options] { return generate(*options); };
}

}  // namespace clover::infer
