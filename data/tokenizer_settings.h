#pragma once

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "data/added_tokens.h"

namespace clover::data {

/// No real vocabulary comes near; a larger id would only make tables exhaust the memory.
constexpr int64_t largest_token_id = (int64_t{1} << 24) - 1;

/// What the files beside the vocabulary say: `tokenizer_config.json`, `added_tokens.json`, and, for the id of
/// BOS, `generation_config.json` and `config.json`.  Files that are absent say nothing.
struct TokenizerSettings {
  std::optional<std::string> bos_token;
  std::optional<int64_t> bos_id;
  std::optional<bool> add_bos;
  bool legacy = false;  // SentencePiece: a space before the text behind every special token too
  std::vector<AddedToken> added_tokens;

  /// InputError naming file and field.
  static TokenizerSettings load(const std::filesystem::path& folder);
};

/// One entry of `added_tokens` or `added_tokens_decoder` (the latter without its id).  InputError begins with
/// `where`.
AddedToken read_added_token(const nlohmann::json& entry, const std::string& where);

/// An id within [0, largest_token_id], or InputError beginning with `where`.
int64_t read_token_id(const nlohmann::json& value, const std::string& where);

/// The text of the folder's own end token: `eos_token` of `tokenizer_config.json` or of
/// `special_tokens_map.json`, the latter first where the former knows no `added_tokens_decoder`, as
/// transformers has it.
std::optional<std::string> read_eos_text(const std::filesystem::path& folder);

/// The text of a token given as a string or as an object with `content`; nothing for null.
std::optional<std::string> read_token_text(const nlohmann::json& value);

}  // namespace clover::data
