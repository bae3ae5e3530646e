#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

namespace clover::data {

/// The chat template of a model's folder and the special tokens that templates use, as the files state them.
struct TemplateSource {
  /// The Jinja text of chat_template.jinja or of the `chat_template` in tokenizer_config.json; of a list of
  /// named templates the one named "default".  None when the folder has no template.
  std::optional<std::string> jinja;
  /// The text that token stores hash: `jinja`, but for a list of templates the JSON text of the list.
  std::string recorded;
  nlohmann::json tokenizer_config;  // an object, {} without the file
  /// Role ("bos_token") to text, from all files that state special tokens.
  nlohmann::ordered_json special_tokens = nlohmann::ordered_json::object();
};

/// InputError when a file is malformed.
TemplateSource read_template_source(const std::filesystem::path& folder);

}  // namespace clover::data
