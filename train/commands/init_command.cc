#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <numeric>
#include <optional>

#include "data/chat/chat_template.h"
#include "data/files/error.h"
#include "data/files/unfinished_folder.h"
#include "data/text/utf8.h"
#include "data/tokenizer/tokenizer.h"
#include "data/training/token_store.h"
#include "infer/program/command_line.h"
#include "infer/program/exit_code.h"
#include "infer/requests/loaded_model.h"
#include "model/checkpoint/heads_checkpoint.h"
#include "train/commands/commands.h"
#include "train/commands/drafter_arguments.h"
#include "train/heads/heads_folder.h"
#include "train/heads/published_heads.h"
#include "train/objective/token_map.h"
#include "train/run/settings.h"
#include "train/store/store_tokenization.h"

namespace clover::train {
namespace {

struct InitOptions {
  infer::ModelOptions model;
  std::string kind;                                      // "": that of `published`
  nlohmann::json kind_options = default_kind_options();  // options of the kind, by name; null: default
  uint64_t seed = FitSettings().seed;
  std::string published;  // folder of published heads; "": initial weights drawn from the seed
  std::string data;       // token store, for draft_vocab
  std::string output;
  int64_t draft_vocab = 0;  // 0: the whole vocabulary
  bool random = false;      // whether to draw every weight at random
};

/// Fills matrices with random numbers of standard deviation 1 / sqrt(inputs) and adds random numbers to
/// vectors. Initial weights are partly zero; heads with random weights guess various tokens, which
/// measurements of speed need.
void randomise(model::Drafter& drafter, uint64_t seed) {
  const at::NoGradGuard no_grad;
  at::Generator generator = at::detail::createCPUGenerator(seed);
  for (auto& [name, value] : drafter.named_parameters()) {
    const double deviation = value.dim() >= 2 ? 1 / std::sqrt(static_cast<double>(value.size(1))) : 0.1;
    const at::Tensor noise = at::empty_like(value).normal_(0, deviation, generator);
    value.dim() >= 2 ? value.copy_(noise) : value.add_(noise);
  }
}

/// What write_heads records beside the weights.
struct Provenance {
  nlohmann::json metadata = nlohmann::json::object();  // for config.json
  std::vector<int64_t> golden_ids;
};

/// The token ids 0 .. 15, for a golden prompt without a tokenizer.
std::vector<int64_t> first_ids(int64_t vocab) {
  std::vector<int64_t> ids(std::min<int64_t>(16, vocab));
  std::iota(ids.begin(), ids.end(), 0);
  return ids;
}

/// The hashes of tokenizer and chat template, and a golden prompt.  Test models have neither tokenizer nor
/// template.
Provenance provenance_of(const InitOptions& options, int64_t vocab) {
  Provenance provenance;
  try {
    const infer::PromptEncoder encoder(options.model.target, options.model.chat_template);
    provenance.metadata["tokenizer"] = {{"hash", encoder.tokenizer().hash()}};
    if (encoder.has_template()) {
      provenance.metadata["chat_template"] = {{"name", encoder.template_name()},
                                              {"hash", encoder.template_hash()}};
    }
    provenance.golden_ids =
        encoder.tokenizer().encode("The quick brown fox jumps over the lazy dog, and then it sleeps.");
    // A tokenizer may have more ids than the model's vocabulary.
    if (std::ranges::any_of(provenance.golden_ids, [vocab](int64_t id) { return id >= vocab; }))
      provenance.golden_ids = first_ids(vocab);
  } catch (const data::InputError&) {
    provenance.golden_ids = first_ids(vocab);
  }
  return provenance;
}

/// The draft vocabulary: the most frequent tokens of --data; undefined for the whole vocabulary.
at::Tensor chosen_tokens(const InitOptions& options, const model::Target& target) {
  if (options.draft_vocab <= 0) return {};
  const auto store = data::TokenStore::open(options.data);
  const StoreUse use{store, options.data, options.model.target};
  check_prepared_for(use, target);
  check_same_tokenizer(use);
  return frequent_tokens(store, options.draft_vocab, target.config().vocab);
}

/// The heads of --published; nullopt with --kind.
std::optional<PublishedHeads> published_heads(const InitOptions& options) {
  if (options.published.empty() && options.kind.empty())
    throw data::InputError("expected --kind NAME, or --published DIR with heads to take over, found neither");
  if (options.published.empty()) return std::nullopt;
  const bool has_defaults = std::ranges::all_of(model::drafter_options(), [&](const auto& option) {
    const nlohmann::json& value = options.kind_options.at(option.name);
    return value.is_null() || value == option.default_value;
  });
  if (!options.kind.empty() || !has_defaults || options.random)
    throw data::InputError("--published " + options.published +
                           ": expected neither --kind and its settings, which these heads have, nor --random "
                           "beside it");
  if (!data::is_utf8(options.published)) throw data::InputError("--published: expected UTF-8.");
  return PublishedHeads::open(options.published, model::TargetConfig::read(options.model.target));
}

/// Reads the written heads back, guesses on the golden prompt again, and prints what was loaded and checked.
void report(const PublishedHeads& published, const std::filesystem::path& output,
            const model::Target& target) {
  const nlohmann::json golden = model::read_heads_info(output).config.value("golden", nlohmann::json());
  const auto heads = model::load_heads(output, target, /*trainable=*/false);
  const double agreement = model::golden_agreement(*heads, target, golden);
  std::printf("%s: heads of kind %s, published as %s\n", output.c_str(), published.kind().c_str(),
              published.format().c_str());
  for (const std::string& line : published.report()) std::printf("  %s\n", line.c_str());
  if (agreement < 0) return;
  const auto ids = golden.at("ids").get<std::vector<int64_t>>(),
             guesses = golden.at("first_guesses").get<std::vector<int64_t>>();
  int64_t correct = 0;
  for (size_t i = 0; i + 1 < guesses.size(); ++i) correct += guesses[i] == ids[i + 2];
  std::printf(
      "  read back, the heads make %.1f%% of the recorded guesses; the first head guesses the next token "
      "right "
      "at %lld of %zu positions of the recorded prompt\n"
      "  how many tokens a step they yield: clover-infer inspect %s --verify --target DIR --prompts FILE\n",
      100 * agreement, static_cast<long long>(correct), guesses.empty() ? 0 : guesses.size() - 1,
      output.c_str());
}

int init(const InitOptions& options) {
  const std::filesystem::path output = data::resolved_new_folder_name(options.output);
  infer::require_cpu(options.model);
  if (options.draft_vocab > 0 && options.data.empty()) {
    throw data::InputError(
        "--draft-vocab needs --data DIR, a token store that says which tokens are frequent.");
  }
  auto published = published_heads(options);
  const std::string kind = published ? published->kind() : options.kind;
  const nlohmann::json settings =
      published ? published->settings() : model::settings_from_options(kind, options.kind_options);
  const auto target = model::Target::load(options.model.target, infer::chosen_dtype(options.model));
  at::Tensor tokens = chosen_tokens(options, *target);
  if (published) {
    const at::Tensor published_tokens = published->token_map(target->config());
    if (published_tokens.defined() && tokens.defined())
      throw data::InputError("--draft-vocab: the heads of " + options.published +
                             " have a draft vocabulary of their own; leave it out.");
    if (published_tokens.defined()) tokens = published_tokens;
  }
  const auto drafter =
      model::make_drafter(kind, settings, target->view(), tokens, /*trainable=*/true, options.seed);
  if (published) published->read_into(*drafter, *target);
  if (options.random) randomise(*drafter, options.seed);
  Provenance provenance = provenance_of(options, target->config().vocab);
  provenance.metadata["training"] = {{"steps", 0}, {"random", options.random}, {"seed", options.seed}};
  if (published) {
    provenance.metadata["training"]["published"] = data::resolved_folder_name(options.published).filename();
    provenance.metadata["training"]["published_format"] = published->format();
  }
  write_heads(output, *drafter, *target, provenance.metadata, provenance.golden_ids, target->dtype());
  if (published) report(*published, output, *target);
  return infer::exit_done;
}

}  // namespace

Action declare_init(CLI::App& app) {
  const auto options = std::make_shared<InitOptions>();
  infer::add_model_options(app, options->model, infer::HeadsOption::none);
  app.get_option("--device")->description("cpu, where alone this command works");
  app.add_option("--kind", options->kind, "Kind of heads: " + list_drafter_kinds());
  app.add_option("--published", options->published,
                 "Folder of published heads to take over, instead of --kind and its settings: " +
                     list_published_formats())
      ->type_name("DIR");
  for (const model::DrafterOption& option : model::drafter_options())
    declare_drafter_option(app, option, options->kind_options.at(option.name));
  app.add_option("--draft-vocab", options->draft_vocab, "Most frequent tokens of --data to keep; 0: all")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 24));
  app.add_option("--data", options->data, "Token store for --draft-vocab")->type_name("DIR");
  app.add_option("--seed", options->seed, "Seed of the weights")->check(infer::whole_number<uint64_t>());
  app.add_flag("--random", options->random, "Draw every weight, so that the guesses are bad");
  app.add_option("--output", options->output, "Folder of the heads")->required()->type_name("DIR");
  app.footer(
      "Examples:\n  clover-train init --target models/SmolLM2-135M-Instruct --kind clover --output heads\n"
      "  clover-train init --target vicuna-7b --published clover2-vicuna-7b --output heads-clover2 \\\n"
      "      --draft-vocab 8192 --data store");
  return [options] { return init(*options); };
}

}  // namespace clover::train
