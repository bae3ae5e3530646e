#include "train/heads/formats/published_config.h"

#include <algorithm>

#include "data/files/error.h"

namespace clover::train {
namespace {

using data::InputError;
using nlohmann::json;

constexpr size_t max_excerpt = 80;  // bytes of a value that messages show

/// Keys of Hugging Face configurations that do not change what heads compute: about files, tokens and
/// training.
constexpr const char* harmless_keys[] = {"architectures",
                                         "attention_dropout",
                                         "auto_map",
                                         "base_model",
                                         "base_model_name_or_path",
                                         "bos_token_id",
                                         "dtype",
                                         "eos_token_id",
                                         "initializer_range",
                                         "max_position_embeddings",
                                         "model_type",
                                         "name_or_path",
                                         "_name_or_path",
                                         "pad_token_id",
                                         "tie_word_embeddings",
                                         "tokenizer_class",
                                         "torch_dtype",
                                         "transformers_version",
                                         "use_cache",
                                         "version"};

}  // namespace

PublishedConfig::PublishedConfig(const json& config, std::filesystem::path file)
    : config_(config), file_(std::move(file)) {
  if (!config.is_object())
    throw InputError(file_.string() + ": found " + config.dump().substr(0, max_excerpt) +
                     ", expected a JSON object.");
}

json PublishedConfig::value(const std::string& key) {
  read_keys_.insert(key);
  return config_.value(key, json());
}

int64_t PublishedConfig::count(const std::string& key, int64_t fallback) {
  const json json_value = value(key);
  if (json_value.is_null() && fallback > 0) return fallback;
  constexpr int64_t max_count = 1'000'000;
  if (!json_value.is_number_integer() || json_value < 1 || json_value > max_count)
    throw InputError(file_.string() + ": \"" + key + "\" is " + json_value.dump().substr(0, max_excerpt) +
                     ", expected an integer from 1 to " + std::to_string(max_count) + ".");
  return json_value.get<int64_t>();
}

bool PublishedConfig::flag(const std::string& key, bool fallback) {
  const json json_value = value(key);
  if (json_value.is_null()) return fallback;
  if (!json_value.is_boolean())
    throw InputError(file_.string() + ": \"" + key + "\" is " + json_value.dump().substr(0, max_excerpt) +
                     ", expected true or false.");
  return json_value.get<bool>();
}

void PublishedConfig::expect(const std::string& key, std::initializer_list<json> allowed,
                             const std::string& why) {
  const json json_value = value(key);
  if (!config_.contains(key) || std::ranges::count(allowed, json_value) > 0) return;
  std::string list;
  for (const json& choice : allowed) list += (list.empty() ? "" : " or ") + choice.dump();
  throw InputError(file_.string() + ": \"" + key + "\" is " + json_value.dump().substr(0, max_excerpt) +
                   ", expected " + list + ": " + why + ".");
}

void PublishedConfig::ignore(std::initializer_list<const char*> keys) {
  read_keys_.insert(keys.begin(), keys.end());
}

void PublishedConfig::finish() const {
  for (const auto& [key, value] : config_.items()) {
    if (read_keys_.contains(key) || std::ranges::count(harmless_keys, key) > 0) continue;
    throw InputError(file_.string() + ": key \"" + key +
                     "\" is not understood, and could change what these heads compute (it is " +
                     value.dump().substr(0, max_excerpt) + "); take it out if it does not.");
  }
}

void PublishedConfig::refuse(const std::string& what) const {
  throw InputError(file_.string() + ": these heads " + what + ".");
}

}  // namespace clover::train
