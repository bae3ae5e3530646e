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

/// The contents of a byte-level `tokenizer.json` (GPT-2, Llama 3, Qwen), checked.
struct ByteLevelVocabulary {
  Normalizer normalizer;
  PreTokenizer pre_tokenizer{{}};
  // The vocabulary of the BPE model, without added tokens.
  std::unordered_map<std::string, int32_t> id_of_bytes;
  /// Id by text, for entries with characters outside the byte-level alphabet, which stand for no bytes.
  std::unordered_map<std::string, int32_t> byteless_entries;
  std::vector<std::string> bytes_of_id;  // "" for an unused id
  BpeMerges merges;
  std::vector<AddedToken> added_tokens;  // with the ids stated in the file
  bool ignore_merges = false;            // a piece that is a token by itself is taken without merging
  int32_t unknown_id = -1;  // id of unk_token, for bytes that the vocabulary lacks; -1: they are dropped
  bool fuse_unk = false;    // a run of unknown bytes is one unknown token
  std::optional<std::string> bos_of_post_processor;  // the token that it puts before a text
  uint64_t hash = 0;                                 // of everything above except bos_of_post_processor

  /// Id of a vocabulary entry, by its text in the file.
  std::optional<int64_t> id_of_entry(const std::string& entry) const;
  int64_t size() const { return static_cast<int64_t>(id_of_bytes.size() + byteless_entries.size()); }

  /// Whether a parsed `tokenizer.json` is byte-level BPE.
  static bool is_byte_level(const nlohmann::json& tokenizer);
  /// InputError (beginning with `where`) for anything malformed or not supported.
  static ByteLevelVocabulary from_json(const nlohmann::json& tokenizer, const std::string& where);
};

/// The tokenizer of a byte-level `tokenizer.json`.
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
  // Appends the tokens of `segment`, a part of the text between added tokens.  It begins at byte `offset` of
  // `repaired`, the whole text with valid UTF-8 (encode_segments.h).
  void encode_segment(std::string_view segment, size_t offset, const AlignedText& repaired,
                      bool parse_special, Encoding& encoding) const;
  void add_added_tokens(const AddedTokenSources& sources, const std::string& folder);
  // Replaces `symbols` by the tokens of a piece of the pre-tokenizer, bytes [first, second) of `text`.
  void encode_piece(std::string_view text, std::pair<size_t, size_t> piece,
                    std::vector<BpeSymbol>& symbols) const;

  ByteLevelVocabulary vocabulary_;
  AddedTokenTrie tokens_in_raw_text_;                   // searched before normalisation
  AddedTokenTrie tokens_in_normalized_text_;            // searched after normalisation
  std::unordered_map<std::string, int64_t> added_ids_;  // of the added tokens, by text
  std::vector<bool> special_;                           // by id
  std::array<int32_t, 256> byte_ids_;  // id of the token of each single byte, or vocabulary_.unknown_id
  std::optional<int64_t> bos_;
  bool adds_bos_ = false;
};

}  // namespace clover::data
