#pragma once

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "data/tokenizer/files/added_token_sources.h"
#include "data/tokenizer/files/added_tokens.h"

namespace clover::data {

/// No real vocabulary comes near; a larger id would only make tables exhaust the memory.
constexpr int64_t largest_token_id = (int64_t{1} << 24) - 1;

/// What the files beside the vocabulary say: those of added tokens, and, for the id of BOS,
/// `generation_config.json` and `config.json`.  Files that are absent say nothing.
struct TokenizerSettings {
  std::string folder;  // for messages
  std::optional<int64_t> bos_id;
  std::optional<bool> add_bos;
  bool legacy = false;       // SentencePiece: a space before the text behind every special token too
  bool prefix_space = true;  // SentencePiece: a space before the text at all
  bool llama_class = false;  // transformers makes its Llama class of it, whatever tokenizer.json does to text
  AddedTokenSources sources;

  std::optional<std::string> bos_token() const { return sources.text_of("bos_token"); }

  /// InputError naming file and field.
  static TokenizerSettings load(const std::filesystem::path& folder);
};

/// One entry of `added_tokens` or `added_tokens_decoder` (the latter without its id).  InputError begins with
/// `where`.
AddedToken read_added_token(const nlohmann::json& entry, const std::string& where);

/// An id within [0, largest_token_id], or InputError beginning with `where`.
int64_t read_token_id(const nlohmann::json& value, const std::string& where);

/// The text of a token given as a string or as an object with `content`; nothing for null.
std::optional<std::string> read_token_text(const nlohmann::json& value);

}  // namespace clover::data
