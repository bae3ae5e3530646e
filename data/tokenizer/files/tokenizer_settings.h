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

/// Larger than any id of a real vocabulary.  The limit keeps tables that are indexed by id from exhausting
/// the memory.
constexpr int64_t max_token_id = (int64_t{1} << 24) - 1;

/// Settings of a tokenizer from the other files of a model's folder: tokenizer_config.json, the files of
/// added tokens, and for the id of BOS generation_config.json and config.json.  Each file may be absent.
struct TokenizerSettings {
  std::string folder;             // for error messages
  std::optional<int64_t> bos_id;  // bos_token_id of generation_config.json or config.json
  std::optional<bool> add_bos;    // add_bos_token of tokenizer_config.json
  bool legacy = false;            // SentencePiece puts a space also before the text after each special token
  bool prefix_space = true;       // SentencePiece puts a space before the text
  bool llama_class = false;  // transformers loads its Llama class, which ignores tokenizer.json's normalizer
  AddedTokenSources sources;

  std::optional<std::string> bos_token() const { return sources.text_of("bos_token"); }

  /// InputError naming file and field.
  static TokenizerSettings load(const std::filesystem::path& folder);
};

/// Reads an entry of `added_tokens` or of `added_tokens_decoder`, except its id.  InputErrors begin with
/// `where`.
AddedToken read_added_token(const nlohmann::json& entry, const std::string& where);

/// An id within [0, max_token_id]; InputError beginning with `where` for anything else.
int64_t read_token_id(const nlohmann::json& value, const std::string& where);

/// The text of a token, given as a string or as an object with `content`; nothing for anything else.
std::optional<std::string> read_token_text(const nlohmann::json& value);

}  // namespace clover::data
