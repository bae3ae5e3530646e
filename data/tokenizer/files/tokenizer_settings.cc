#include "data/tokenizer/files/tokenizer_settings.h"

#include <nlohmann/json.hpp>

#include "data/files/error.h"
#include "data/files/files.h"

namespace clover::data {
namespace {

using nlohmann::json;

bool read_flag(const json& entry, const char* name, const std::string& where) {
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

}  // namespace

int64_t read_token_id(const json& value, const std::string& where) {
  const bool in_range = value.is_number_integer() && value >= 0 && value <= max_token_id;
  if (!in_range) {
    throw InputError(where + ": expected a token id from 0 to " + std::to_string(max_token_id) + ", found " +
                     value.dump().substr(0, 100));
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

AddedToken read_added_token(const json& entry, const std::string& where) {
  if (!entry.is_object() || !entry.contains("content") || !entry["content"].is_string()) {
    throw InputError(where + ": expected an added token with its content, found " +
                     entry.dump().substr(0, 200));
  }
  AddedToken token;
  token.content = entry["content"].get<std::string>();
  token.special = read_flag(entry, "special", where);
  token.single_word = read_flag(entry, "single_word", where);
  token.lstrip = read_flag(entry, "lstrip", where);
  token.rstrip = read_flag(entry, "rstrip", where);
  token.normalized = read_flag(entry, "normalized", where);
  return token;
}

TokenizerSettings TokenizerSettings::load(const std::filesystem::path& folder) {
  TokenizerSettings settings;
  settings.folder = folder.string();
  settings.sources = AddedTokenSources::load(folder);
  const json config = read_object(folder / "tokenizer_config.json");
  if (const json add_bos = config.value("add_bos_token", json()); add_bos.is_boolean()) {
    settings.add_bos = add_bos.get<bool>();
  }
  settings.legacy = config.value("legacy", json(false)) == true;
  const json tokenizer_class = config.value("tokenizer_class", json());
  settings.llama_class = tokenizer_class == "LlamaTokenizer" || tokenizer_class == "LlamaTokenizerFast";
  // For some model_types transformers ignores the class that the file names and takes its own.  Of those that
  // Clover loads and whose files may name the Llama class, these are mistral and qwen2.
  const json model_type = read_object(folder / "config.json").value("model_type", json());
  settings.llama_class = settings.llama_class && model_type != "mistral" && model_type != "qwen2";
  // transformers reads add_prefix_space only in its Llama class.
  if (settings.llama_class) settings.prefix_space = config.value("add_prefix_space", json()) != false;
  for (const char* name : {"generation_config.json", "config.json"}) {
    const json object = read_object(folder / name);
    const json id = object.value("bos_token_id", json());
    if (settings.bos_id || id.is_null()) continue;
    settings.bos_id = read_token_id(id, (folder / name).string() + ": bos_token_id");
  }
  return settings;
}

}  // namespace clover::data
