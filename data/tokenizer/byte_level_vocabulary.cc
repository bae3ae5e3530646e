#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "data/files/error.h"
#include "data/files/hash.h"
#include "data/tokenizer/byte_level_bpe.h"
#include "data/tokenizer/files/tokenizer_json.h"

namespace clover::data {
namespace {

using nlohmann::json;

std::string excerpt(const json& value) {
  return value.dump().substr(0, 200);
}

// GPT-2's byte-level alphabet: the byte that each character stands for, -1 for none.  A printable Latin-1
// character stands for its own byte; U+0100 and the 67 characters after it stand for the other 68 bytes.
std::array<int16_t, 324> make_byte_of_character() {
  std::array<int16_t, 324> bytes;
  bytes.fill(-1);
  int16_t replacement_character = 256;
  for (int16_t byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
    bytes[printable ? byte : replacement_character++] = byte;
  }
  return bytes;
}

// The bytes of a vocabulary entry; nothing when one of its characters is outside the byte-level alphabet.
std::optional<std::string> bytes_of_entry(std::string_view entry) {
  static const std::array<int16_t, 324> byte_of_character = make_byte_of_character();
  std::string bytes;
  for (size_t i = 0; i < entry.size();) {
    const Utf8Step step = decode_utf8(entry, i);
    if (step.code_point >= byte_of_character.size() || byte_of_character[step.code_point] < 0)
      return std::nullopt;
    bytes += static_cast<char>(byte_of_character[step.code_point]);
    i += step.length;
  }
  return bytes;
}

void put_bytes(std::vector<std::string>& bytes_of_id, int64_t id, std::string bytes) {
  if (static_cast<size_t>(id) >= bytes_of_id.size()) bytes_of_id.resize(static_cast<size_t>(id) + 1);
  bytes_of_id[static_cast<size_t>(id)] = std::move(bytes);
}

void read_vocab(const json& vocab, const std::string& where, ByteLevelVocabulary& result) {
  if (!vocab.is_object() || vocab.empty()) {
    throw InputError(where + ".vocab: expected an object of tokens and ids, found " + excerpt(vocab));
  }
  result.id_of_bytes.reserve(vocab.size());
  result.bytes_of_id.reserve(vocab.size());
  for (const auto& [entry, value] : vocab.items()) {
    const int64_t id = read_token_id(value, where + ".vocab: \"" + entry + "\"");
    const std::optional<std::string> bytes = bytes_of_entry(entry);
    bytes ? result.id_of_bytes.emplace(*bytes, static_cast<int32_t>(id))
          : result.byteless_entries.emplace(entry, static_cast<int32_t>(id));
    put_bytes(result.bytes_of_id, id, bytes.value_or(entry));
  }
}

void read_merges(const json& model, const std::string& where, ByteLevelVocabulary& result) {
  const std::vector<NamedMerge> merges = read_named_merges(model, where);
  result.merges = BpeMerges(merges.size());
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    const NamedMerge& merge = merges[rank];
    result.merges.add(merge.left_id, merge.right_id, static_cast<uint32_t>(rank), merge.result_id);
    for (int32_t id : {merge.left_id, merge.right_id, merge.result_id}) {
      result.hash = fnv1a({reinterpret_cast<const char*>(&id), sizeof id}, result.hash);
    }
  }
}

// Extends vocabulary.hash, which covers the merges, by all other contents.  Heads and token stores record
// this hash, so it must stay the same for files that mean the same.
uint64_t hash_of_vocabulary(const ByteLevelVocabulary& vocabulary) {
  uint64_t hash = vocabulary.hash;
  const auto add_number = [&](int64_t value) { hash = fnv1a(std::to_string(value) + ",", hash); };
  std::map<int64_t, std::string_view> added_by_id;
  for (const AddedToken& token : vocabulary.added_tokens)
    added_by_id[vocabulary.id_of_entry(token.content).value_or(token.id)] = token.content;
  const auto entry_count = static_cast<int64_t>(vocabulary.bytes_of_id.size());
  const int64_t ids =
      added_by_id.empty() ? entry_count : std::max(entry_count, added_by_id.rbegin()->first + 1);
  add_number(ids);
  for (int64_t id = 0; id < ids; ++id) {
    const auto token = added_by_id.find(id);
    const std::string_view bytes = token != added_by_id.end() ? token->second
                                   : id < entry_count
                                       ? std::string_view(vocabulary.bytes_of_id[static_cast<size_t>(id)])
                                       : std::string_view();
    add_number(static_cast<int64_t>(bytes.size()));
    hash = fnv1a(bytes, hash);
  }
  for (PreTokenizer::Rule rule : vocabulary.pre_tokenizer.rules()) add_number(static_cast<int64_t>(rule));
  for (const AddedToken& token : vocabulary.added_tokens) {
    add_number(vocabulary.id_of_entry(token.content).value_or(token.id));
    add_number(token.special + 2 * token.single_word + 4 * token.lstrip + 8 * token.rstrip +
               16 * token.normalized);
  }
  add_number(!vocabulary.normalizer.changes_nothing());
  for (const Normalizer::Step& step : vocabulary.normalizer.steps()) {
    if (step.kind == Normalizer::Step::Kind::compose) continue;
    hash = fnv1a(step.pattern + "\n" + step.content + "\n", hash);
  }
  add_number(vocabulary.ignore_merges);
  add_number(vocabulary.unknown_id);
  add_number(vocabulary.fuse_unk);
  return hash;
}

}  // namespace

std::optional<int64_t> ByteLevelVocabulary::id_of_entry(const std::string& entry) const {
  const std::optional<std::string> bytes = bytes_of_entry(entry);
  const auto& ids = bytes ? id_of_bytes : byteless_entries;
  const auto id = ids.find(bytes.value_or(entry));
  return id == ids.end() ? std::nullopt : std::optional<int64_t>(id->second);
}

bool ByteLevelVocabulary::is_byte_level(const json& tokenizer) {
  if (!tokenizer.is_object() || !tokenizer.contains("model") || !tokenizer["model"].is_object()) return false;
  const bool byte_level = tokenizer.contains("pre_tokenizer") &&
                          tokenizer["pre_tokenizer"].dump().find("\"ByteLevel\"") != std::string::npos;
  return tokenizer["model"].value("type", json("BPE")) == "BPE" && byte_level;
}

ByteLevelVocabulary ByteLevelVocabulary::from_json(const json& tokenizer, const std::string& where) {
  if (!tokenizer.is_object() || !tokenizer.contains("model") || !tokenizer["model"].is_object()) {
    throw InputError(where + ": expected an object with a model, found none");
  }
  const json& model = tokenizer["model"];
  const json type = model.value("type", json("BPE"));
  if (type != "BPE") throw InputError(where + ": model.type: expected \"BPE\", found " + excerpt(type));
  ByteLevelVocabulary result;
  result.normalizer = Normalizer::from_json(tokenizer.value("normalizer", json()), where + ": normalizer");
  result.pre_tokenizer =
      PreTokenizer::from_json(tokenizer.value("pre_tokenizer", json()), where + ": pre_tokenizer");
  check_bpe_options(model, where + ": model");
  if (const json fallback = model.value("byte_fallback", json(false));
      fallback != false && !fallback.is_null()) {
    throw InputError(where + ": model.byte_fallback: expected a byte-level vocabulary without it, found " +
                     excerpt(fallback));
  }
  read_vocab(model.value("vocab", json()), where + ": model", result);
  result.hash = fnv1a_offset_basis;
  read_merges(model, where + ": model", result);
  result.added_tokens = read_listed_tokens(
      tokenizer, where, [&](const std::string& content) { return result.id_of_entry(content); });
  result.ignore_merges = model.value("ignore_merges", json(false)) == true;
  result.fuse_unk = model.value("fuse_unk", json(false)) == true;
  const json unknown = model.value("unk_token", json());
  if (unknown.is_string() && model["vocab"].contains(unknown)) {
    result.unknown_id = model["vocab"][unknown.get<std::string>()].get<int32_t>();
  }
  result.bos_of_post_processor = read_leading_token(tokenizer.value("post_processor", json()), where);
  result.hash = hash_of_vocabulary(result);
  return result;
}

}  // namespace clover::data
