#include "data/tokenizer/unigram.h"

#include <algorithm>
#include <cstdio>
#include <limits>
#include <nlohmann/json.hpp>

#include "data/files/error.h"
#include "data/text/utf8.h"
#include "data/tokenizer/files/tokenizer_json.h"

namespace clover::data {
namespace {

using nlohmann::json;

constexpr double unknown_penalty = 10;    // an unknown character scores this much below the worst token
constexpr size_t max_token_bytes = 4096;  // bytes; longer tokens would make the search quadratic

}  // namespace

Unigram::Unigram(const json& model, const std::string& where) {
  const json vocab = model.value("vocab", json());
  if (!vocab.is_array() || vocab.empty()) {
    throw InputError(where + ".vocab: expected a list of tokens and scores, found " + json_excerpt(vocab));
  }
  double lowest = std::numeric_limits<double>::infinity();
  size_t bytes = 0;
  for (size_t id = 0; id < vocab.size(); ++id) {
    const json& entry = vocab[id];
    const bool is_valid = entry.is_array() && entry.size() == 2 && entry[0].is_string() &&
                          entry[1].is_number() &&
                          entry[0].get_ref<const std::string&>().size() <= max_token_bytes;
    if (!is_valid) {
      throw InputError(where + ".vocab[" + std::to_string(id) + "]: expected a token of at most " +
                       std::to_string(max_token_bytes) + " bytes and its score, found " +
                       json_excerpt(entry));
    }
    token_strings_.push_back(entry[0].get<std::string>());
    scores_.push_back(entry[1].get<double>());
    ids_[token_strings_.back()] = static_cast<int32_t>(id);
    lowest = std::min(lowest, scores_.back());
    bytes += token_strings_.back().size();
  }
  trie_ = BpeMerges(bytes);
  token_of_node_.assign(1, -1);
  for (const auto& [token, id] : ids_) add_to_trie(token, id);
  unknown_score_ = lowest - unknown_penalty;
  byte_fallback_ = model.value("byte_fallback", json(false)) == true;
  for (size_t byte = 0; byte < byte_ids_.size(); ++byte) {
    char token[8];
    std::snprintf(token, sizeof token, "<0x%02zX>", byte);
    const auto id = ids_.find(token);
    byte_ids_[byte] = id == ids_.end() ? -1 : id->second;
  }
  const json unknown = model.value("unk_id", json());
  const bool is_token_id = unknown.is_number_integer() && unknown >= 0 && unknown < token_strings_.size();
  if (!is_token_id) {
    throw InputError(where + ".unk_id: expected the id of a token of the vocabulary, found " +
                     json_excerpt(unknown));
  }
  unknown_id_ = unknown.get<int32_t>();
}

void Unigram::add_to_trie(const std::string& token, int32_t id) {
  if (token.empty()) return;
  int32_t node = 0;
  for (char byte : token) {
    const int32_t label = static_cast<uint8_t>(byte);
    const BpeMerges::Merge next = trie_.find(node, label);
    if (next.rank != BpeMerges::no_rank) {
      node = next.result;
      continue;
    }
    const auto new_node = static_cast<int32_t>(token_of_node_.size());
    token_of_node_.push_back(-1);
    trie_.add(node, label, 0, new_node);
    node = new_node;
  }
  token_of_node_[static_cast<size_t>(node)] = id;
}

std::optional<int64_t> Unigram::id_of(const std::string& token) const {
  const auto id = ids_.find(token);
  return id == ids_.end() ? std::nullopt : std::optional<int64_t>(id->second);
}

void Unigram::encode(std::string_view text, std::vector<BpeSymbol>& tokens) const {
  struct Path {  // the best segmentation up to a position of the text
    double score = 0;
    uint32_t begin = 0;  // where its last token begins
    int32_t id = -1;     // its last token; -1: no token ends here
  };
  std::vector<Path> paths(text.size() + 1);
  const auto add_candidate = [&](size_t begin, size_t end, int32_t id, double score) {
    Path& path = paths[end];
    if (path.id < 0 || score > path.score) path = {score, static_cast<uint32_t>(begin), id};
  };
  for (size_t at = 0; at < text.size();) {
    const size_t character = decode_utf8(text, at).length;
    bool has_character_token = false;  // as in SentencePiece, this decides whether unknown is a candidate
    int32_t node = 0;
    for (size_t end = at; end < text.size();) {
      const BpeMerges::Merge next = trie_.find(node, static_cast<uint8_t>(text[end]));
      if (next.rank == BpeMerges::no_rank) break;
      node = next.result;
      ++end;
      const int32_t id = token_of_node_[static_cast<size_t>(node)];
      if (id < 0) continue;
      add_candidate(at, end, id, paths[at].score + scores_[static_cast<size_t>(id)]);
      has_character_token = has_character_token || end - at == character;
    }
    if (!has_character_token)
      add_candidate(at, at + character, unknown_id_, paths[at].score + unknown_score_);
    at += character;
  }
  std::vector<BpeSymbol> backwards;
  for (auto end = static_cast<uint32_t>(text.size()); end > 0; end = paths[end].begin) {
    const Path& path = paths[end];
    if (path.id == unknown_id_ && !backwards.empty() && backwards.back().id == unknown_id_) {
      backwards.back().begin = path.begin;
    } else {
      backwards.push_back({path.id, path.begin, end});
    }
  }
  tokens.clear();
  for (size_t i = backwards.size(); i-- > 0;) emit_token(text, backwards[i], tokens);
}

// A run of unknown characters may itself be a token, or is written as byte tokens.
void Unigram::emit_token(std::string_view text, BpeSymbol token, std::vector<BpeSymbol>& tokens) const {
  if (token.id != unknown_id_) return tokens.push_back(token);
  const std::string_view unknown = text.substr(token.begin, token.end - token.begin);
  const auto fused_token = unknown.size() <= max_token_bytes ? ids_.find(std::string(unknown)) : ids_.end();
  const auto has_token = [&](char byte) { return byte_ids_[static_cast<uint8_t>(byte)] >= 0; };
  if (fused_token != ids_.end()) {
    tokens.push_back({fused_token->second, token.begin, token.end});
  } else if (byte_fallback_ && std::all_of(unknown.begin(), unknown.end(), has_token)) {
    for (uint32_t at = token.begin; at < token.end; ++at)
      tokens.push_back({byte_ids_[static_cast<uint8_t>(text[at])], at, at + 1});
  } else {
    tokens.push_back(token);
  }
}

}  // namespace clover::data
