#include "infer/requests/loaded_model.h"

#include <cstdio>

#include "data/files/error.h"
#include "infer/controls/generation_config.h"
#include "infer/engine/end_tokens.h"
#include "infer/program/machine.h"
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

std::unique_ptr<model::Target> random_target(const std::string& config_file, const std::string& dtype,
                                             at::Device device) {
  const model::TargetConfig config = model::TargetConfig::read_file(config_file);
  const c10::ScalarType type = dtype.empty() ? config.stored_dtype : model::parse_dtype(dtype);
  const double gigabyte = 1e9, available = static_cast<double>(free_memory(device)),
               bytes = config.parameter_count() * static_cast<double>(c10::elementSize(type));
  if (bytes > available) {
    char sentence[160];
    std::snprintf(
        sentence, sizeof sentence,
        ": its weights take %.1f GB in %s, %.1f GB are free on %s; choose a smaller shape or a device with "
        "more memory",
        bytes / gigabyte, model::dtype_name(type).c_str(), available / gigabyte, device.str().c_str());
    throw data::InputError(config_file + sentence);
  }
  return model::Target::random(config, type, device);
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
