#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

namespace clover::data {

/// The chat template of a model's folder and the special tokens that it may use, as the files state them.
struct TemplateSource {
  /// The Jinja text of chat_template.jinja or of the `chat_template` in tokenizer_config.json.  Where that is
  /// a list of named templates, the one named "default".  Nothing when the folder has no template.
  std::optional<std::string> jinja;
  /// What token stores hash: as `jinja`, but for a list of templates the JSON text of the list.
  std::string recorded;
  nlohmann::json tokenizer_config;  // an object, {} without the file
  /// Role ("bos_token") to text, from all files that state special tokens.
  nlohmann::ordered_json special_tokens = nlohmann::ordered_json::object();
};

/// InputError when a file is malformed.
TemplateSource read_template_source(const std::filesystem::path& folder);

}  // namespace clover::data
