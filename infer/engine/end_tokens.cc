#include "infer/engine/end_tokens.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <filesystem>

#include "data/files/error.h"
#include "data/files/files.h"
#include "data/files/json_fields.h"
#include "infer/program/rank.h"

namespace clover::infer {
namespace {

using nlohmann::json;

/// Adds `id` unless it is there already, or outside the vocabulary so that no token has it.
void add_id(std::vector<int64_t>& ids, int64_t id, int64_t vocab) {
  if (id >= 0 && id < vocab && std::find(ids.begin(), ids.end(), id) == ids.end()) ids.push_back(id);
}

/// The id of the token whose text or id is `name`.  InputError where there is none.
int64_t id_of(const std::string& name, const model::TargetConfig& config, const data::Tokenizer& tokenizer) {
  int64_t id = -1;
  if (const auto token = tokenizer.token_id(name)) {
    id = *token;
  } else if (std::from_chars(name.data(), name.data() + name.size(), id).ptr != name.data() + name.size()) {
    id = -1;
  }
  if (id < 0 || id >= config.vocab)
    throw data::InputError("--end-tokens " + name +
                           ": expected \"model\", \"tokenizer\", \"none\", or the text or id of one of the " +
                           std::to_string(config.vocab) + " tokens, found none of them");
  return id;
}

constexpr const char* ends_nothing = "; it ends no answer";

/// Adds a warning if `value` is not the id of a token.
void check_value(const json& value, const std::string& where, int64_t vocab,
                 std::vector<std::string>& warnings) {
  const double number = value.is_number() ? value.get<double>() : 0;
  if (!value.is_number() || number != std::floor(number)) {
    warnings.push_back(where + " is " + data::excerpt(value, 60) + ", expected an integer" + ends_nothing);
  } else if (number < 0 || number >= static_cast<double>(vocab)) {
    warnings.push_back(where + " is " + data::excerpt(value, 60) + ", outside the vocabulary of " +
                       std::to_string(vocab) + " tokens" + ends_nothing);
  }
}

/// Adds warnings about the eos_token_id of config.json or generation_config.json.
void check_file(const std::filesystem::path& file, int64_t vocab, std::vector<std::string>& warnings) {
  if (!std::filesystem::exists(file)) return;
  const json config = data::read_json(file);
  const json value = config.is_object() ? config.value("eos_token_id", json()) : json();
  const std::string where = file.string() + ": eos_token_id";
  for (const json& id : value.is_array() ? value : json::array({value})) {
    if (id.is_structured())
      throw data::InputError(where + ": expected a token's id or a list of ids, found " +
                             data::excerpt(value, 60));
    if (!value.is_null()) check_value(id, where, vocab, warnings);
  }
}

/// Adds a warning if the model has no token for the tokenizer's eos_token.
void check_tokenizer(const std::string& folder, int64_t vocab, const data::Tokenizer& tokenizer,
                     std::vector<std::string>& warnings) {
  if (!tokenizer.eos_text()) return;
  const std::string where =
      folder + ": the tokenizer's eos_token " + data::excerpt(*tokenizer.eos_text(), 60);
  if (!tokenizer.eos()) {
    warnings.push_back(where + " is no token of its vocabulary" + ends_nothing);
  } else if (*tokenizer.eos() >= vocab) {
    warnings.push_back(where + " has the id " + std::to_string(*tokenizer.eos()) +
                       ", outside the model's vocabulary of " + std::to_string(vocab) + " tokens" +
                       ends_nothing);
  }
}

}  // namespace

std::vector<int64_t> default_end_ids(const model::TargetConfig& config, const data::Tokenizer& tokenizer) {
  return end_ids({}, config, tokenizer);
}

std::vector<int64_t> end_ids(const std::vector<std::string>& names, const model::TargetConfig& config,
                             const data::Tokenizer& tokenizer) {
  std::vector<int64_t> ids;
  if (names.empty()) return end_ids({"model", "tokenizer"}, config, tokenizer);
  for (const std::string& name : names) {
    if (name == "model") {
      for (const int64_t id : config.end_ids) add_id(ids, id, config.vocab);
    } else if (name == "tokenizer") {
      if (tokenizer.eos()) add_id(ids, *tokenizer.eos(), config.vocab);
    } else if (name == "none") {
      if (names.size() > 1)
        throw data::InputError("--end-tokens none: expected no other token beside it, found " +
                               std::to_string(names.size() - 1));
    } else {
      add_id(ids, id_of(name, config, tokenizer), config.vocab);
    }
  }
  return ids;
}

std::vector<std::string> end_token_warnings(const std::string& folder, const model::TargetConfig& config,
                                            const data::Tokenizer& tokenizer) {
  std::vector<std::string> warnings;
  for (const char* name : {"config.json", "generation_config.json"})
    check_file(std::filesystem::path(folder) / name, config.vocab, warnings);
  check_tokenizer(folder, config.vocab, tokenizer, warnings);
  const std::vector<int64_t> ids = default_end_ids(config, tokenizer);
  if (ids.empty())
    warnings.push_back(
        folder +
        ": neither the model nor its tokenizer names an end token; answers end at --max-tokens, a "
        "--stop text or what --end-tokens names");
  return warnings;
}

void print_end_token_warnings(const std::string& folder, const model::TargetConfig& config,
                              const data::Tokenizer& tokenizer) {
  const std::vector<std::string> warnings = end_token_warnings(folder, config, tokenizer);
  if (Rank::from_environment().number != 0) return;
  for (const std::string& warning : warnings) std::fprintf(stderr, "%s\n", warning.c_str());
}

}  // namespace clover::infer
