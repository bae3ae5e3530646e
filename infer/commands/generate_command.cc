#include <unistd.h>

#include <cstdio>
#include <iostream>
#include <optional>
#include <string>

#include "data/files/error.h"
#include "data/text/utf8.h"
#include "infer/commands/commands.h"
#include "infer/engine/end_tokens.h"
#include "infer/program/command_line.h"
#include "infer/program/exit_code.h"
#include "infer/program/interrupt.h"
#include "infer/requests/batch_task.h"
#include "infer/requests/decode_options.h"
#include "infer/requests/request_run.h"

namespace clover::infer {
namespace {

struct GenerateOptions {
  ModelOptions model;
  DecodeOptions decode;
  std::string prompt;
  std::optional<std::string> system;
  bool raw = false;
  bool stream = ::isatty(STDOUT_FILENO) != 0;
};

BatchLine line_of(const GenerateOptions& options, const PromptEncoder& prompts) {
  BatchLine line;
  line.number = 1;
  line.sampling = options.decode.sampling;
  line.sampling.own_seed = true;  // the seed alone decides
  line.prompt = options.prompt;
  // Without a template a system message is an error, which rendering it tells.
  if (options.raw || (!prompts.has_template() && !options.system)) return line;
  line.shape = LineShape::messages;
  if (options.system) line.messages.push_back({"system", *options.system});
  line.messages.push_back({"user", options.prompt});
  return line;
}

void say_timing(const EngineStats& stats, const Completion& answer) {
  const double decoded = static_cast<double>(stats.tokens - stats.first_tokens);
  std::fprintf(stderr,
               "%lld tokens (%s), prompt %lld tokens in %.2f s, decoding %.1f tokens/s, %.2f tokens/step\n",
               static_cast<long long>(answer.token_ids.size()), answer.finish_reason.c_str(),
               static_cast<long long>(answer.prompt_tokens), stats.prefill_seconds,
               stats.decode_seconds > 0 ? decoded / stats.decode_seconds : 0, stats.tokens_per_step());
}

int generate(const GenerateOptions& options) {
  if (options.raw && options.system)
    throw data::InputError("--system: a prompt that is continued as it is (--raw) has no system message.");
  for (const auto& [name, text] :
       {std::pair{"--prompt", options.prompt}, {"--system", options.system.value_or("")}})
    if (!data::is_utf8(text)) throw data::InputError(std::string(name) + ": expected UTF-8.");
  EngineOptions engine_settings = engine_options(options.decode, !options.model.heads.empty());
  watch_for_interrupts();
  const LoadedModel model = load_model(options.model);
  engine_settings.end_ids = chosen_end_ids(options.decode.end_tokens, options.model.target, model);
  stop_if_interrupted();
  BatchTask task(line_of(options, *model.prompts));
  Request request = std::move(task.start(*model.prompts, model.target->config().context).front());
  model::Drafter* drafter = engine_settings.growth.policy == Policy::off ? nullptr : model.drafter.get();
  engine_settings.max_batch = 1;
  if (engine_settings.kv_memory == 0) {
    const int64_t context = model.target->config().context;
    const int64_t tokens =
        static_cast<int64_t>(request.prompt.size()) + std::min(request.max_tokens, context);
    engine_settings.kv_memory =
        kv_memory_for(*model.target, drafter, 1, std::min(tokens, context), engine_settings.page_size);
  }
  engine_settings.costs = CostFile::of(*model.target, engine_settings.graphs, engine_settings.typical);
  Engine engine(*model.target, drafter, model.prompts->tokenizer(), engine_settings);
  if (options.stream) {
    engine.on_text([](int64_t, const std::string& text) { std::cout << text << std::flush; });
  }
  engine.submit(std::move(request));
  while (!engine.idle()) {
    for (const Completion& answer : engine.step()) {
      if (!options.stream) std::cout << answer.text;
      std::cout << std::endl;
      if (!answer.error.empty()) throw data::InputError(answer.error + ".");
      say_timing(engine.stats(), answer);
      if (engine_settings.typical)
        std::fputs("--verify typical: lossy, not exactly the target's answer\n", stderr);
    }
    stop_if_interrupted();
  }
  engine.keep_costs();
  return exit_done;
}

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
  app.footer(
      "\nThe answer goes to stdout, one line of timing to stderr.\n\nExamples:\n"
      "  clover-infer generate --target models/SmolLM2-135M-Instruct --prompt 'Name three rivers.'\n"
      "  clover-infer generate --target models/SmolLM2-135M-Instruct --heads heads-clover --stream \\\n"
      "      --prompt 'A short story about a lighthouse.' --temperature 0.7 --seed 7 --max-tokens 300\n");
  return [options] { return generate(*options); };
}

}  // namespace clover::infer
