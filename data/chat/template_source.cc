#include "data/chat/template_source.h"

#include "data/files/error.h"
#include "data/files/files.h"
#include "data/tokenizer/files/added_token_sources.h"

namespace clover::data {
namespace {

using nlohmann::json;

/// The template in the `chat_template` entry of tokenizer_config.json, if it has one.
std::optional<std::string> template_of_entry(const json& entry) {
  if (entry.is_string()) return entry.get<std::string>();
  if (!entry.is_array()) return std::nullopt;
  for (const json& item : entry) {
    if (item.is_object() && item.value("name", json()) == "default" && item.contains("template") &&
        item["template"].is_string()) {
      return item["template"].get<std::string>();
    }
  }
  return std::nullopt;
}

}  // namespace

TemplateSource read_template_source(const std::filesystem::path& folder) {
  const std::filesystem::path config = folder / "tokenizer_config.json",
                              file = folder / "chat_template.jinja";
  TemplateSource source;
  source.tokenizer_config = std::filesystem::exists(config) ? read_json(config) : json::object();
  if (!source.tokenizer_config.is_object()) throw InputError(config.string() + ": expected a JSON object");
  if (std::filesystem::exists(file)) {
    source.jinja = read_file(file);
    source.recorded = *source.jinja;
  } else {
    const json entry = source.tokenizer_config.value("chat_template", json());
    source.jinja = template_of_entry(entry);
    source.recorded = entry.is_string() ? *source.jinja : entry.dump();
  }
  for (const auto& [role, token] : AddedTokenSources::load(folder).roles)
    source.special_tokens[role] = token.content;
  return source;
}

}  // namespace clover::data
