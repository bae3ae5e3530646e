#pragma once

#include <nlohmann/json_fwd.hpp>

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "data/text/normalizer.h"
#include "data/text/pre_tokenizer.h"
#include "data/tokenizer/bpe_merges.h"
#include "data/tokenizer/files/added_tokens.h"
#include "data/tokenizer/files/tokenizer_settings.h"
#include "data/tokenizer/tokenizer.h"

namespace clover::data {

/// What a byte-level `tokenizer.json` holds, checked.
struct ByteLevelVocabulary {
  Normalizer normalizer;
  PreTokenizer pre_tokenizer{{}};
  // The model's own tokens; added tokens have their own table.
  std::unordered_map<std::string, int32_t> id_of_bytes;
  std::unordered_map<std::string, int32_t> other_entries;  // of the vocabulary, that stand for no bytes
  std::vector<std::string> bytes_of_id;                    // "" for an unused id
  BpeMerges merges;
  std::vector<AddedToken> added_tokens;  // with the ids that the file states
  bool whole_pieces_first = false;       // `ignore_merges`: a piece that is a token is not merged up to
  int32_t unknown = -1;                  // token of a byte the vocabulary lacks; -1: such a byte is dropped
  bool fuses_unknown = false;
  std::optional<std::string> bos_of_post_processor;
  uint64_t hash = 0;  // with the added tokens as tokenizer.json lists them

  /// Id of a token by its text in the file's vocabulary.
  std::optional<int64_t> id_of_entry(const std::string& entry) const;
  int64_t size() const { return static_cast<int64_t>(id_of_bytes.size() + other_entries.size()); }

  /// Whether the parsed `tokenizer.json` is of this kind at all.
  static bool describes(const nlohmann::json& tokenizer);
  /// InputError (beginning with `where`) for anything malformed or not supported.
  static ByteLevelVocabulary from_json(const nlohmann::json& tokenizer, const std::string& where);
};

class ByteLevelBpe final : public Tokenizer {
 public:
  ByteLevelBpe(ByteLevelVocabulary vocabulary, const TokenizerSettings& settings);

  Encoding encode_with_spans(std::string_view text, const EncodeOptions& options) const override;
  std::string token_bytes(int64_t id, bool first) const override;
  bool is_special(int64_t id) const override;
  std::optional<int64_t> token_id(std::string_view token) const override;
  int64_t vocab_size() const override { return static_cast<int64_t>(vocabulary_.bytes_of_id.size()); }
  std::optional<int64_t> bos() const override { return bos_; }
  bool adds_bos() const override { return adds_bos_; }
  std::string hash() const override;

 private:
  // Tokens of `segment`, which begins at `offset` of the whole text `repaired`.
  void encode_segment(std::string_view segment, size_t offset, const MappedText& repaired, bool parse_special,
                      Encoding& encoding) const;
  void take_added_tokens(const AddedTokenSources& sources, const std::string& folder);
  void encode_piece(std::string_view text, std::pair<size_t, size_t> piece,
                    std::vector<BpeSymbol>& symbols) const;

  ByteLevelVocabulary vocabulary_;
  AddedTokens raw_tokens_;         // found in the text as it is
  AddedTokens normalized_tokens_;  // found after normalisation
  std::unordered_map<std::string, int64_t> added_ids_;
  std::vector<bool> special_;          // by id
  std::array<int32_t, 256> byte_ids_;  // token of each single byte, -1 if there is none
  std::optional<int64_t> bos_;
  bool adds_bos_ = false;
};

}  // namespace clover::data
