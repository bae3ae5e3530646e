#include "infer/requests/loaded_model.h"

#include <cstdio>

#include "data/files/error.h"
#include "infer/controls/generation_config.h"
#include "infer/engine/end_tokens.h"
#include "infer/program/rank.h"
#include "model/checkpoint/heads_checkpoint.h"

namespace clover::infer {

namespace {

/// Makes the controls of the model's generation_config.json the defaults of requests, and prints the notice.
void use_generation_config(const std::string& folder, LoadedModel& loaded) {
  GenerationSettings settings = read_generation_settings(folder, loaded.target->config().vocab);
  if (!settings.notice.empty() && Rank::from_environment().number == 0)
    std::fprintf(stderr, "%s\n", settings.notice.c_str());
  loaded.prompt_encoder->set_default_controls(std::move(settings.controls));
}

}  // namespace

LoadedModel load_model(const ModelOptions& options) {
  const at::Device device = open_device(options);
  LoadedModel loaded;
  // Small files first, so that a wrong folder or name is refused before gigabytes are read.
  chosen_dtype(options);  // InputError when there is no such dtype
  if (!options.heads.empty()) model::read_heads_info(options.heads);
  loaded.prompt_encoder = std::make_unique<PromptEncoder>(options.target, options.chat_template);
  loaded.target = load_target(options, device);
  use_generation_config(options.target, loaded);
  if (!options.heads.empty()) {
    loaded.drafter = load_drafter(options.heads, *loaded.target, loaded.prompt_encoder->tokenizer());
  }
  return loaded;
}

std::unique_ptr<model::Target> load_target(const ModelOptions& options, at::Device device) {
  auto target = model::Target::load(options.target, chosen_dtype(options), device);
  if (options.max_context > 0) target->set_context(options.max_context);
  return target;
}

std::shared_ptr<model::Drafter> load_drafter(const std::string& folder, const model::Target& target,
                                             const data::Tokenizer& tokenizer) {
  check_tokenizer(folder, tokenizer);
  std::shared_ptr<model::Drafter> drafter = model::load_heads(folder, target, false);
  if (!drafter->frozen()) drafter->freeze(target.dtype());
  return drafter;
}

void check_tokenizer(const std::string& folder, const data::Tokenizer& tokenizer) {
  const nlohmann::json config = model::read_heads_info(folder).config;
  // An object with the field "hash", or the hash itself.
  const auto tokenizer_field = config.find("tokenizer");
  const nlohmann::json trained_with = tokenizer_field == config.end() ? nlohmann::json()
                                      : tokenizer_field->is_object()
                                          ? tokenizer_field->value("hash", nlohmann::json())
                                          : *tokenizer_field;
  if (trained_with.is_string() && !trained_with.get_ref<const std::string&>().empty() &&
      trained_with != tokenizer.hash()) {
    throw data::InputError(folder + ": these heads were trained with the tokenizer " +
                           trained_with.get<std::string>() + ", but the target's is " + tokenizer.hash() +
                           "; use the target folder they were trained on");
  }
}

std::vector<int64_t> chosen_end_ids(const std::vector<std::string>& named, const std::string& folder,
                                    const LoadedModel& model) {
  const data::Tokenizer& tokenizer = model.prompt_encoder->tokenizer();
  if (named.empty()) print_end_token_warnings(folder, model.target->config(), tokenizer);
  return end_ids(named, model.target->config(), tokenizer);
}

}  // namespace clover::infer
