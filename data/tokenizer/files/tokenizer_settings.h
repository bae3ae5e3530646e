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

/// Larger than any real vocabulary; it keeps tables indexed by id from exhausting the memory.
constexpr int64_t max_token_id = (int64_t{1} << 24) - 1;

/// Settings from the other files of a model's folder: tokenizer_config.json, the files of added tokens, and
/// for the id of BOS generation_config.json and config.json.  Each file may be absent.
struct TokenizerSettings {
  std::string folder;  // for messages
  std::optional<int64_t> bos_id;
  std::optional<bool> add_bos;
  bool legacy = false;       // SentencePiece: a space also before the text after each special token
  bool prefix_space = true;  // SentencePiece: a space before the text
  bool llama_class =
      false;  // transformers loads its Llama class, which ignores the normalizer of tokenizer.json
  AddedTokenSources sources;

  std::optional<std::string> bos_token() const { return sources.text_of("bos_token"); }

  /// InputError naming file and field.
  static TokenizerSettings load(const std::filesystem::path& folder);
};

/// An entry of `added_tokens` or of `added_tokens_decoder`, whose entries have no id.  InputErrors begin with
/// `where`.
AddedToken read_added_token(const nlohmann::json& entry, const std::string& where);

/// An id within [0, largest_token_id], or InputError beginning with `where`.
int64_t read_token_id(const nlohmann::json& value, const std::string& where);

/// The text of a token given as a string or as an object with `content`; nothing for null.
std::optional<std::string> read_token_text(const nlohmann::json& value);

}  // namespace clover::data
