#include "data/tokenizer/character_bpe.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "data/files/error.h"
#include "data/text/metaspace.h"
#include "data/text/utf8.h"
#include "data/tokenizer/files/tokenizer_json.h"
#include "data/tokenizer/files/tokenizer_settings.h"

namespace clover::data {
namespace {

using nlohmann::json;

bool bool_option(const json& model, const char* name) {
  return model.value(name, json(false)) == true;
}

}  // namespace

CharacterBpe::CharacterBpe(const json& model, const std::string& where) {
  check_bpe_options(model, where);
  ignore_merges_ = bool_option(model, "ignore_merges");
  byte_fallback_ = bool_option(model, "byte_fallback");
  fuse_unk_ = bool_option(model, "fuse_unk");
  read_vocab(model.value("vocab", json()), where);
  read_merges(model, where);
  read_unknown(model, where);
}

void CharacterBpe::read_vocab(const json& vocab, const std::string& where) {
  if (!vocab.is_object() || vocab.empty()) {
    throw InputError(where + ".vocab: expected an object of tokens and ids, found " + json_excerpt(vocab));
  }
  ids_.reserve(vocab.size());
  for (const auto& [token, value] : vocab.items()) {
    const int64_t id = read_token_id(value, where + ".vocab: \"" + token + "\"");
    ids_.emplace(token, static_cast<int32_t>(id));
    if (static_cast<size_t>(id) >= token_strings_.size()) token_strings_.resize(static_cast<size_t>(id) + 1);
    token_strings_[static_cast<size_t>(id)] = token;
    max_token_bytes_ = std::max(max_token_bytes_, token.size());
  }
  ascii_ids_.fill(-1);
  for (const auto& [token, id] : ids_) {
    if (token.empty() || decode_utf8(token, 0).length != token.size()) continue;
    if (token.size() == 1) {
      ascii_ids_[static_cast<uint8_t>(token[0])] = id;
    } else {
      character_ids_.emplace(token, id);
    }
  }
  for (size_t byte = 0; byte < byte_ids_.size(); ++byte) {
    char token[8];
    std::snprintf(token, sizeof token, "<0x%02zX>", byte);
    const auto id = ids_.find(token);
    byte_ids_[byte] = id == ids_.end() ? -1 : id->second;
  }
}

void CharacterBpe::read_merges(const json& model, const std::string& where) {
  const std::vector<NamedMerge> merges = read_named_merges(model, where);
  merges_ = BpeMerges(merges.size());
  merges_stay_in_words_ = ids_.contains(std::string(space_mark));
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    const NamedMerge& merge = merges[rank];
    merges_.add(merge.left_id, merge.right_id, static_cast<uint32_t>(rank), merge.result_id);
    if (merge.right.starts_with(space_mark) && !merge.left.ends_with(space_mark))
      merges_stay_in_words_ = false;
  }
}

void CharacterBpe::read_unknown(const json& model, const std::string& where) {
  const json unknown = model.value("unk_token", json());
  if (unknown.is_null()) {
    // Without an unknown token characters may be dropped, so that their neighbours can merge across words.
    const bool covers_all =
        byte_fallback_ && std::none_of(byte_ids_.begin(), byte_ids_.end(), [](int32_t id) { return id < 0; });
    merges_stay_in_words_ = merges_stay_in_words_ && covers_all;
    return;
  }
  const auto id = unknown.is_string() ? ids_.find(unknown.get<std::string>()) : ids_.end();
  if (id == ids_.end()) {
    throw InputError(where + ".unk_token: expected null or a token of the vocabulary, found " +
                     json_excerpt(unknown));
  }
  unknown_id_ = id->second;
}

std::optional<int64_t> CharacterBpe::id_of(const std::string& token) const {
  const auto id = ids_.find(token);
  return id == ids_.end() ? std::nullopt : std::optional<int64_t>(id->second);
}

int32_t CharacterBpe::id_of_character(std::string_view character) const {
  if (character.size() == 1) return ascii_ids_[static_cast<uint8_t>(character[0])];
  const auto id = character_ids_.find(character);
  return id == character_ids_.end() ? -1 : id->second;
}

void CharacterBpe::encode(std::string_view text, std::vector<BpeSymbol>& tokens) const {
  tokens.clear();
  if (ignore_merges_ && text.size() <= max_token_bytes_) {
    if (const auto text_token = ids_.find(std::string(text)); text_token != ids_.end()) {
      tokens.push_back({text_token->second, 0, static_cast<uint32_t>(text.size())});
      return;
    }
  }
  if (!merges_stay_in_words_) return encode_word(text, 0, text.size(), tokens);
  // Where no merge crosses words, each word is encoded by itself, which is faster than one long text.
  std::vector<BpeSymbol> word;
  for (size_t begin = 0; begin < text.size();) {
    size_t end = begin;
    while (text.substr(end).starts_with(space_mark)) end += space_mark.size();
    end = std::min(text.find(space_mark, end), text.size());
    word.clear();
    encode_word(text, begin, end, word);
    tokens.insert(tokens.end(), word.begin(), word.end());
    begin = end;
  }
}

void CharacterBpe::encode_word(std::string_view text, size_t begin, size_t end,
                               std::vector<BpeSymbol>& symbols) const {
  BpeSymbol unknown{-1, 0, 0};  // not appended yet, since fuse_unk may extend it
  const auto flush = [&] {
    if (unknown.id >= 0) symbols.push_back(unknown);
    unknown.id = -1;
  };
  for (size_t i = begin; i < end;) {
    const size_t length = decode_utf8(text, i).length;
    const auto from = static_cast<uint32_t>(i), to = static_cast<uint32_t>(i + length);
    const std::string_view character = text.substr(i, length);
    i += length;
    if (const int32_t id = id_of_character(character); id >= 0) {
      flush();
      symbols.push_back({id, from, to});
      continue;
    }
    const auto has_token = [&](char byte) { return byte_ids_[static_cast<uint8_t>(byte)] >= 0; };
    if (byte_fallback_ && std::all_of(character.begin(), character.end(), has_token)) {
      // As in the tokenizers library, a pending unknown token is appended after these byte tokens.
      for (uint32_t at = from; at < to; ++at)
        symbols.push_back({byte_ids_[static_cast<uint8_t>(text[at])], at, at + 1});
      continue;
    }
    if (unknown_id_ < 0) continue;
    if (unknown.id >= 0 && fuse_unk_) {
      unknown.end = to;
    } else {
      flush();
      unknown = {unknown_id_, from, to};
    }
  }
  flush();
  merges_.apply(symbols);
}

}  // namespace clover::data
