#include "data/tokenizer_settings.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "data/error.h"
#include "data/files.h"

namespace clover::data {
namespace {

using nlohmann::json;

bool flag(const json& entry, const char* name, const std::string& where) {
  const json value = entry.value(name, json(false));
  if (!value.is_boolean()) {
    throw InputError(where + ": expected true or false for " + name + ", found " +
                     value.dump().substr(0, 100));
  }
  return value.get<bool>();
}

json read_object(const std::filesystem::path& file) {
  if (!std::filesystem::exists(file)) return json::object();
  json object = read_json(file);
  if (!object.is_object())
    throw InputError(file.string() + ": expected a JSON object, found " + object.type_name());
  return object;
}

int64_t parse_id(const std::string& digits, const std::string& where) {
  int64_t id = -1;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), id);
  if (error != std::errc() || end != digits.data() + digits.size()) {
    throw InputError(where + ": expected a token id as key, found \"" + digits.substr(0, 100) + "\"");
  }
  return read_token_id(id, where);
}

void read_decoder(const json& config, const std::string& where, std::vector<AddedToken>& tokens) {
  const json entries = config.value("added_tokens_decoder", json::object());
  if (!entries.is_object()) throw InputError(where + ": expected an object, found " + entries.type_name());
  for (const auto& [id, entry] : entries.items()) {
    AddedToken token = read_added_token(entry, where + " " + id);
    token.id = parse_id(id, where);
    tokens.push_back(std::move(token));
  }
}

void read_added_tokens_file(const std::filesystem::path& file, std::vector<AddedToken>& tokens) {
  const json entries = read_object(file);
  for (const auto& [content, id] : entries.items()) {
    const int64_t known = read_token_id(id, file.string() + ": \"" + content + "\"");
    const auto same = [&](const AddedToken& token) { return token.id == known || token.content == content; };
    if (std::any_of(tokens.begin(), tokens.end(), same))
      continue;  // tokenizer_config.json says more about it
    AddedToken token;
    token.id = known;
    token.content = content;
    tokens.push_back(std::move(token));
  }
}

}  // namespace

int64_t read_token_id(const json& value, const std::string& where) {
  const bool in_range = value.is_number_integer() && value >= 0 && value <= largest_token_id;
  if (!in_range) {
    throw InputError(where + ": expected a token id from 0 to " + std::to_string(largest_token_id) +
                     ", found " + value.dump().substr(0, 100));
  }
  return value.get<int64_t>();
}

std::optional<std::string> read_token_text(const json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_object() && value.contains("content") && value["content"].is_string()) {
    return value["content"].get<std::string>();
  }
  return std::nullopt;
}

std::optional<std::string> read_eos_text(const std::filesystem::path& folder) {
  const json config = read_object(folder / "tokenizer_config.json");
  const json map = read_object(folder / "special_tokens_map.json");
  const auto of_config = read_token_text(config.value("eos_token", json()));
  const auto of_map = read_token_text(map.value("eos_token", json()));
  const bool config_first = config.contains("added_tokens_decoder") || !of_map;
  return config_first && of_config ? of_config : of_map;
}

AddedToken read_added_token(const json& entry, const std::string& where) {
  if (!entry.is_object() || !entry.contains("content") || !entry["content"].is_string()) {
    throw InputError(where + ": expected an added token with its content, found " +
                     entry.dump().substr(0, 200));
  }
  AddedToken token;
  token.content = entry["content"].get<std::string>();
  token.special = flag(entry, "special", where);
  token.single_word = flag(entry, "single_word", where);
  token.lstrip = flag(entry, "lstrip", where);
  token.rstrip = flag(entry, "rstrip", where);
  token.normalized = flag(entry, "normalized", where);
  return token;
}

TokenizerSettings TokenizerSettings::load(const std::filesystem::path& folder) {
  TokenizerSettings settings;
  const std::filesystem::path config_file = folder / "tokenizer_config.json";
  const json config = read_object(config_file);
  settings.bos_token = read_token_text(config.value("bos_token", json()));
  if (const json add_bos = config.value("add_bos_token", json()); add_bos.is_boolean()) {
    settings.add_bos = add_bos.get<bool>();
  }
  settings.legacy = config.value("legacy", json(false)) == true;
  read_decoder(config, config_file.string() + ": added_tokens_decoder", settings.added_tokens);
  read_added_tokens_file(folder / "added_tokens.json", settings.added_tokens);
  for (const char* name : {"generation_config.json", "config.json"}) {
    const json model = read_object(folder / name);
    const json id = model.value("bos_token_id", json());
    if (settings.bos_id || id.is_null()) continue;
    settings.bos_id = read_token_id(id, (folder / name).string() + ": bos_token_id");
  }
  return settings;
}

}  // namespace clover::data
