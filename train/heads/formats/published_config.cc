#include "train/heads/formats/published_config.h"

#include <algorithm>

#include "data/files/error.h"

namespace clover::train {
namespace {

using data::InputError;
using nlohmann::json;

constexpr size_t longest_excerpt = 80;

/// Keys of Hugging Face configurations about files, tokens and training.
constexpr const char* harmless[] = {"architectures",
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
    throw InputError(file_.string() + ": found " + config.dump().substr(0, longest_excerpt) +
                     ", expected a JSON object.");
}

json PublishedConfig::value(const std::string& key) {
  read_.insert(key);
  return config_.value(key, json());
}

int64_t PublishedConfig::count(const std::string& key, int64_t fallback) {
  const json found = value(key);
  if (found.is_null() && fallback > 0) return fallback;
  constexpr int64_t most = 1'000'000;
  if (!found.is_number_integer() || found < 1 || found > most)
    throw InputError(file_.string() + ": \"" + key + "\" is " + found.dump().substr(0, longest_excerpt) +
                     ", expected an integer from 1 to " + std::to_string(most) + ".");
  return found.get<int64_t>();
}

bool PublishedConfig::flag(const std::string& key, bool fallback) {
  const json found = value(key);
  if (found.is_null()) return fallback;
  if (!found.is_boolean())
    throw InputError(file_.string() + ": \"" + key + "\" is " + found.dump().substr(0, longest_excerpt) +
                     ", expected true or false.");
  return found.get<bool>();
}

void PublishedConfig::expect(const std::string& key, std::initializer_list<json> allowed,
                             const std::string& why) {
  const json found = value(key);
  if (!config_.contains(key) || std::ranges::count(allowed, found) > 0) return;
  std::string list;
  for (const json& one : allowed) list += (list.empty() ? "" : " or ") + one.dump();
  throw InputError(file_.string() + ": \"" + key + "\" is " + found.dump().substr(0, longest_excerpt) +
                   ", expected " + list + ": " + why + ".");
}

void PublishedConfig::ignore(std::initializer_list<const char*> keys) {
  read_.insert(keys.begin(), keys.end());
}

void PublishedConfig::finish() const {
  for (const auto& [key, value] : config_.items()) {
    if (read_.contains(key) || std::ranges::count(harmless, key) > 0) continue;
    throw InputError(file_.string() + ": key \"" + key +
                     "\" is not understood, and could change what these heads compute (it is " +
                     value.dump().substr(0, longest_excerpt) + "); take it out if it does not.");
  }
}

void PublishedConfig::refuse(const std::string& what) const {
  throw InputError(file_.string() + ": these heads " + what + ".");
}

}  // namespace clover::train
