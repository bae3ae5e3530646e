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

// One outside the vocabulary is never answered.
void add(std::vector<int64_t>& ids, int64_t id, int64_t vocab) {
  if (id >= 0 && id < vocab && std::find(ids.begin(), ids.end(), id) == ids.end()) ids.push_back(id);
}

int64_t id_of(const std::string& name, const model::TargetConfig& config, const data::Tokenizer& tokenizer) {
  int64_t id = -1;
  if (const auto known = tokenizer.token_id(name)) {
    id = *known;
  } else if (std::from_chars(name.data(), name.data() + name.size(), id).ptr != name.data() + name.size()) {
    id = -1;
  }
  if (id < 0 || id >= config.vocab)
    throw data::InputError("--end-tokens " + name +
                           ": expected \"model\", \"tokenizer\", \"none\", or the text or id of one of the " +
                           std::to_string(config.vocab) + " tokens, found none of them");
  return id;
}

constexpr const char* no_end = "; it ends no answer";

void note_value(const json& value, const std::string& where, int64_t vocab, std::vector<std::string>& notes) {
  const double number = value.is_number() ? value.get<double>() : 0;
  if (!value.is_number() || number != std::floor(number)) {
    notes.push_back(where + " is " + data::excerpt(value, 60) + ", expected an integer" + no_end);
  } else if (number < 0 || number >= static_cast<double>(vocab)) {
    notes.push_back(where + " is " + data::excerpt(value, 60) + ", outside the vocabulary of " +
                    std::to_string(vocab) + " tokens" + no_end);
  }
}

void note_file(const std::filesystem::path& file, int64_t vocab, std::vector<std::string>& notes) {
  if (!std::filesystem::exists(file)) return;
  const json read = data::read_json(file);
  const json value = read.is_object() ? read.value("eos_token_id", json()) : json();
  const std::string where = file.string() + ": eos_token_id";
  for (const json& one : value.is_array() ? value : json::array({value})) {
    if (one.is_structured())
      throw data::InputError(where + ": expected a token's id or a list of ids, found " +
                             data::excerpt(value, 60));
    if (!value.is_null()) note_value(one, where, vocab, notes);
  }
}

void note_tokenizer(const std::string& folder, int64_t vocab, const data::Tokenizer& tokenizer,
                    std::vector<std::string>& notes) {
  if (!tokenizer.eos_text()) return;
  const std::string where =
      folder + ": the tokenizer's eos_token " + data::excerpt(*tokenizer.eos_text(), 60);
  if (!tokenizer.eos()) {
    notes.push_back(where + " is no token of its vocabulary" + no_end);
  } else if (*tokenizer.eos() >= vocab) {
    notes.push_back(where + " has the id " + std::to_string(*tokenizer.eos()) +
                    ", outside the model's vocabulary of " + std::to_string(vocab) + " tokens" + no_end);
  }
}

}  // namespace

std::vector<int64_t> default_end_ids(const model::TargetConfig& config, const data::Tokenizer& tokenizer) {
  return end_ids({}, config, tokenizer);
}

std::vector<int64_t> end_ids(const std::vector<std::string>& named, const model::TargetConfig& config,
                             const data::Tokenizer& tokenizer) {
  std::vector<int64_t> ids;
  if (named.empty()) return end_ids({"model", "tokenizer"}, config, tokenizer);
  for (const std::string& name : named) {
    if (name == "model") {
      for (const int64_t id : config.end_ids) add(ids, id, config.vocab);
    } else if (name == "tokenizer") {
      if (tokenizer.eos()) add(ids, *tokenizer.eos(), config.vocab);
    } else if (name == "none") {
      if (named.size() > 1)
        throw data::InputError("--end-tokens none: expected no other token beside it, found " +
                               std::to_string(named.size() - 1));
    } else {
      add(ids, id_of(name, config, tokenizer), config.vocab);
    }
  }
  return ids;
}

std::vector<std::string> end_token_notes(const std::string& folder, const model::TargetConfig& config,
                                         const data::Tokenizer& tokenizer) {
  std::vector<std::string> notes;
  for (const char* name : {"config.json", "generation_config.json"})
    note_file(std::filesystem::path(folder) / name, config.vocab, notes);
  note_tokenizer(folder, config.vocab, tokenizer, notes);
  const std::vector<int64_t> ids = default_end_ids(config, tokenizer);
  if (ids.empty())
    notes.push_back(
        folder +
        ": neither the model nor its tokenizer names an end token; answers end at --max-tokens, a "
        "--stop text or what --end-tokens names");
  return notes;
}

void say_end_tokens(const std::string& folder, const model::TargetConfig& config,
                    const data::Tokenizer& tokenizer) {
  const std::vector<std::string> notes = end_token_notes(folder, config, tokenizer);
  if (Rank::from_environment().number != 0) return;
  for (const std::string& note : notes) std::fprintf(stderr, "%s\n", note.c_str());
}

}  // namespace clover::infer
