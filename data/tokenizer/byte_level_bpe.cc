#include "data/tokenizer/byte_level_bpe.h"

#include "data/files/error.h"
#include "data/files/hash.h"
#include "data/tokenizer/encode_segments.h"

namespace clover::data {

ByteLevelBpe::ByteLevelBpe(ByteLevelVocabulary vocabulary, const TokenizerSettings& settings)
    : vocabulary_(std::move(vocabulary)) {
  add_added_tokens(settings.sources, settings.folder);
  for (size_t byte = 0; byte < byte_ids_.size(); ++byte) {
    const auto entry = vocabulary_.id_of_bytes.find(std::string(1, static_cast<char>(byte)));
    byte_ids_[byte] = entry == vocabulary_.id_of_bytes.end() ? vocabulary_.unknown_id : entry->second;
  }
  if (vocabulary_.bos_of_post_processor) {
    bos_ = token_id(*vocabulary_.bos_of_post_processor);
  } else if (settings.bos_token()) {
    bos_ = token_id(*settings.bos_token());
  } else {
    bos_ = settings.bos_id;
  }
  adds_bos_ = bos_.has_value() && settings.add_bos.value_or(vocabulary_.bos_of_post_processor.has_value());
}

void ByteLevelBpe::add_added_tokens(const AddedTokenSources& sources, const std::string& folder) {
  AddedVocabulary added(vocabulary_.size(),
                        [&](const std::string& content) { return vocabulary_.id_of_entry(content); });
  warn_once(folder, sources.add_all_to(added, vocabulary_.added_tokens));
  if (const auto tokens = added.tokens(); !tokens.empty()) {
    const auto ids = static_cast<size_t>(tokens.back().id) + 1;
    if (ids > vocabulary_.bytes_of_id.size()) vocabulary_.bytes_of_id.resize(ids);
  }
  special_.resize(vocabulary_.bytes_of_id.size());
  for (AddedToken token : added.tokens()) {
    vocabulary_.bytes_of_id[static_cast<size_t>(token.id)] = token.content;
    special_[static_cast<size_t>(token.id)] = token.special;
    added_ids_.emplace(token.content, token.id);
    if (token.normalized) token.content = std::string(vocabulary_.normalizer.apply(token.content).text());
    (token.normalized ? tokens_in_normalized_text_ : tokens_in_raw_text_).add(token);
  }
  vocabulary_.hash = extend_hash(vocabulary_.hash, vocabulary_.added_tokens, added);
}

Encoding ByteLevelBpe::encode_with_spans(std::string_view text, const EncodeOptions& options) const {
  return encode_segments(
      text, options.parse_special, options.add_bos && adds_bos_ ? bos_ : std::nullopt, /*max_gib=*/2,
      tokens_in_raw_text_,
      [&](std::string_view segment, size_t begin, const AlignedText& repaired, Encoding& encoding) {
        encode_segment(segment, begin, repaired, options.parse_special, encoding);
      });
}

void ByteLevelBpe::encode_segment(std::string_view segment, size_t offset, const AlignedText& repaired,
                                  bool parse_special, Encoding& encoding) const {
  const AlignedText normalized = vocabulary_.normalizer.apply(segment);
  const auto push = [&](int64_t id, size_t begin, size_t end) {
    const auto [from, to] = normalized.source_range(begin, end);
    encoding.ids.push_back(id);
    encoding.spans.push_back(repaired.source_range(offset + from, offset + to));
  };
  std::vector<BpeSymbol> symbols;
  for (const AddedTokenTrie::Part& part :
       tokens_in_normalized_text_.split(normalized.text(), parse_special)) {
    if (part.token != nullptr) {
      push(part.token->id, part.begin, part.end);
      continue;
    }
    const std::string_view untokenized = normalized.text().substr(part.begin, part.end - part.begin);
    for (const auto& piece : vocabulary_.pre_tokenizer.split(untokenized)) {
      encode_piece(untokenized, piece, symbols);
      for (const BpeSymbol& symbol : symbols)
        push(symbol.id, part.begin + symbol.begin, part.begin + symbol.end);
    }
  }
}

void ByteLevelBpe::encode_piece(std::string_view text, std::pair<size_t, size_t> piece,
                                std::vector<BpeSymbol>& symbols) const {
  symbols.clear();
  const auto begin = static_cast<uint32_t>(piece.first);
  const auto end = static_cast<uint32_t>(piece.second);
  if (vocabulary_.ignore_merges) {
    const auto piece_token = vocabulary_.id_of_bytes.find(std::string(text.substr(begin, end - begin)));
    if (piece_token != vocabulary_.id_of_bytes.end()) {
      symbols.push_back({piece_token->second, begin, end});
      return;
    }
  }
  bool after_unknown = false;
  for (uint32_t i = begin; i < end; ++i) {
    const int32_t id = byte_ids_[static_cast<uint8_t>(text[i])];
    if (id < 0) continue;
    const bool unknown = id == vocabulary_.unknown_id;
    if (unknown && after_unknown && vocabulary_.fuse_unk) {
      symbols.back().end = i + 1;
    } else {
      symbols.push_back({id, i, i + 1});
    }
    after_unknown = unknown;
  }
  vocabulary_.merges.apply(symbols);
}

std::string ByteLevelBpe::token_bytes(int64_t id, bool /*first*/) const {
  return id >= 0 && id < vocab_size() ? vocabulary_.bytes_of_id[static_cast<size_t>(id)] : std::string();
}

bool ByteLevelBpe::is_special(int64_t id) const {
  return id >= 0 && id < vocab_size() && special_[static_cast<size_t>(id)];
}

std::optional<int64_t> ByteLevelBpe::token_id(std::string_view token) const {
  const std::string key(token);
  if (const auto added = added_ids_.find(key); added != added_ids_.end()) return added->second;
  if (const auto entry = vocabulary_.id_of_bytes.find(key); entry != vocabulary_.id_of_bytes.end())
    return entry->second;
  return std::nullopt;
}

std::string ByteLevelBpe::hash() const {
  return hex(fnv1a(std::to_string(bos_.value_or(-1)) + (adds_bos_ ? "+" : "-"), vocabulary_.hash));
}

}  // namespace clover::data
