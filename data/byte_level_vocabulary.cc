#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "data/byte_level_bpe.h"
#include "data/error.h"
#include "data/hash.h"

namespace clover::data {
namespace {

using nlohmann::json;

std::string shown(const json& value) {
  return value.dump().substr(0, 200);
}

// The byte of each character that stands for one: printable Latin-1 for itself, the other 68 bytes in order
// from U+0100.
std::array<int16_t, 324> make_byte_of_character() {
  std::array<int16_t, 324> bytes;
  bytes.fill(-1);
  int16_t stand_in = 256;
  for (int16_t byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
    bytes[printable ? byte : stand_in++] = byte;
  }
  return bytes;
}

// The bytes a vocabulary entry stands for; nothing when a character of it stands for no byte.
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
    throw InputError(where + ".vocab: expected an object of tokens and ids, found " + shown(vocab));
  }
  result.id_of_bytes.reserve(vocab.size());
  result.bytes_of_id.reserve(vocab.size());
  for (const auto& [entry, value] : vocab.items()) {
    const int64_t id = read_token_id(value, where + ".vocab: \"" + entry + "\"");
    const std::optional<std::string> bytes = bytes_of_entry(entry);
    bytes ? result.id_of_bytes.emplace(*bytes, static_cast<int32_t>(id))
          : result.other_entries.emplace(entry, static_cast<int32_t>(id));
    put_bytes(result.bytes_of_id, id, bytes.value_or(entry));
  }
}

// A merge is written "left right" or ["left", "right"].
std::pair<std::string, std::string> read_merge(const json& merge, const std::string& where) {
  if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
    return {merge[0].get<std::string>(), merge[1].get<std::string>()};
  }
  if (merge.is_string()) {
    const std::string& text = merge.get_ref<const std::string&>();
    const size_t space = text.find(' ');
    if (space != std::string::npos && text.find(' ', space + 1) == std::string::npos) {
      return {text.substr(0, space), text.substr(space + 1)};
    }
  }
  throw InputError(where + ": expected \"left right\" or [\"left\", \"right\"], found " + shown(merge));
}

int32_t id_of_entry(const json& vocab, const std::string& entry, const std::string& where) {
  const auto found = vocab.find(entry);
  if (found == vocab.end()) {
    throw InputError(where + ": expected its tokens and their union in the vocabulary, found no \"" + entry +
                     "\"");
  }
  return found->get<int32_t>();
}

void read_merges(const json& model, const std::string& where, ByteLevelVocabulary& result) {
  const json empty = json::array();
  const json& merges = model.contains("merges") ? model["merges"] : empty;
  if (!merges.is_array()) throw InputError(where + ".merges: expected a list, found " + shown(merges));
  result.merges = BpeMerges(merges.size());
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    const std::string place = where + ".merges[" + std::to_string(rank) + "]";
    const auto [left, right] = read_merge(merges[rank], place);
    const int32_t left_id = id_of_entry(model["vocab"], left, place);
    const int32_t right_id = id_of_entry(model["vocab"], right, place);
    const int32_t merged_id = id_of_entry(model["vocab"], left + right, place);
    result.merges.add(left_id, right_id, static_cast<uint32_t>(rank), merged_id);
    for (int32_t id : {left_id, right_id, merged_id}) {
      result.hash = fnv1a({reinterpret_cast<const char*>(&id), sizeof id}, result.hash);
    }
  }
}

void check_model_options(const json& model, const std::string& where) {
  const auto refuse = [&](const char* option, const char* expected) {
    throw InputError(where + "." + option + ": expected " + expected + ", found " + shown(model[option]));
  };
  const auto is_unset = [&](const char* option) {
    const json value = model.value(option, json());
    return value.is_null() || value == "" || value == false || value == 0;
  };
  if (!is_unset("dropout")) refuse("dropout", "none");
  if (!is_unset("continuing_subword_prefix")) refuse("continuing_subword_prefix", "none");
  if (!is_unset("end_of_word_suffix")) refuse("end_of_word_suffix", "none");
  if (!is_unset("byte_fallback")) refuse("byte_fallback", "a byte-level vocabulary without it");
}

void read_added_tokens(const json& tokenizer, const std::string& where, ByteLevelVocabulary& result) {
  const json entries = tokenizer.value("added_tokens", json::array());
  if (!entries.is_array())
    throw InputError(where + ": added_tokens: expected a list, found " + shown(entries));
  for (size_t i = 0; i < entries.size(); ++i) {
    const std::string place = where + ": added_tokens[" + std::to_string(i) + "]";
    AddedToken token = read_added_token(entries[i], place);
    const std::optional<int64_t> known = result.id_of_entry(token.content);
    const json id = entries[i].value("id", json());
    token.id = known && !id.is_number_integer() ? *known : read_token_id(id, place);
    result.added_tokens.push_back(std::move(token));
  }
}

// The special token that a post-processor puts in front of a text.
std::optional<std::string> leading_token(const json& processor, const std::string& where) {
  if (processor.is_null()) return std::nullopt;
  const json type = processor.is_object() ? processor.value("type", json()) : json();
  if (type == "ByteLevel") return std::nullopt;
  if (type == "Sequence" && processor.contains("processors") && processor["processors"].is_array()) {
    std::optional<std::string> leading;
    for (const json& part : processor["processors"]) {
      const std::optional<std::string> token = leading_token(part, where);
      if (token) leading = token;
    }
    return leading;
  }
  if (type == "TemplateProcessing" && processor.contains("single") && processor["single"].is_array()) {
    const json& single = processor["single"];
    const auto holds = [&](size_t i, const char* kind) {
      return single[i].is_object() && single[i].contains(kind);
    };
    if (single.size() == 1 && holds(0, "Sequence")) return std::nullopt;
    if (single.size() == 2 && holds(0, "SpecialToken") && holds(1, "Sequence")) {
      const json& token = single[0]["SpecialToken"];
      if (token.is_object() && token.contains("id") && token["id"].is_string())
        return token["id"].get<std::string>();
    }
  }
  throw InputError(where +
                   ": post_processor: expected ByteLevel or TemplateProcessing with at most one token in " +
                   "front and none behind, found " + shown(processor));
}

// Heads and stores carry this hash: it must not change for files whose meaning has not.
uint64_t hash_rest(const ByteLevelVocabulary& vocabulary) {
  uint64_t hash = vocabulary.hash;
  const auto number = [&](int64_t value) { hash = fnv1a(std::to_string(value) + ",", hash); };
  std::map<int64_t, std::string_view> listed;
  for (const AddedToken& token : vocabulary.added_tokens)
    listed[vocabulary.id_of_entry(token.content).value_or(token.id)] = token.content;
  const auto own = static_cast<int64_t>(vocabulary.bytes_of_id.size());
  const int64_t ids = listed.empty() ? own : std::max(own, listed.rbegin()->first + 1);
  number(ids);
  for (int64_t id = 0; id < ids; ++id) {
    const auto token = listed.find(id);
    const std::string_view bytes = token != listed.end() ? token->second
                                   : id < own
                                       ? std::string_view(vocabulary.bytes_of_id[static_cast<size_t>(id)])
                                       : std::string_view();
    number(static_cast<int64_t>(bytes.size()));
    hash = fnv1a(bytes, hash);
  }
  for (PreTokenizer::Rule rule : vocabulary.pre_tokenizer.rules()) number(static_cast<int64_t>(rule));
  for (const AddedToken& token : vocabulary.added_tokens) {
    number(vocabulary.id_of_entry(token.content).value_or(token.id));
    number(token.special + 2 * token.single_word + 4 * token.lstrip + 8 * token.rstrip +
           16 * token.normalized);
  }
  number(!vocabulary.normalizer.changes_nothing());
  number(vocabulary.whole_pieces_first);
  number(vocabulary.unknown);
  number(vocabulary.fuses_unknown);
  return hash;
}

}  // namespace

std::optional<int64_t> ByteLevelVocabulary::id_of_entry(const std::string& entry) const {
  const std::optional<std::string> bytes = bytes_of_entry(entry);
  const auto& ids = bytes ? id_of_bytes : other_entries;
  const auto id = ids.find(bytes.value_or(entry));
  return id == ids.end() ? std::nullopt : std::optional<int64_t>(id->second);
}

bool ByteLevelVocabulary::describes(const json& tokenizer) {
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
  if (type != "BPE") throw InputError(where + ": model.type: expected \"BPE\", found " + shown(type));
  ByteLevelVocabulary result;
  result.normalizer = Normalizer::from_json(tokenizer.value("normalizer", json()), where + ": normalizer");
  result.pre_tokenizer =
      PreTokenizer::from_json(tokenizer.value("pre_tokenizer", json()), where + ": pre_tokenizer");
  check_model_options(model, where + ": model");
  read_vocab(model.value("vocab", json()), where + ": model", result);
  result.hash = fnv_start;
  read_merges(model, where + ": model", result);
  read_added_tokens(tokenizer, where, result);
  result.whole_pieces_first = model.value("ignore_merges", json(false)) == true;
  result.fuses_unknown = model.value("fuse_unk", json(false)) == true;
  const json unknown = model.value("unk_token", json());
  if (unknown.is_string() && model["vocab"].contains(unknown)) {
    result.unknown = model["vocab"][unknown.get<std::string>()].get<int32_t>();
  }
  result.bos_of_post_processor = leading_token(tokenizer.value("post_processor", json()), where);
  result.hash = hash_rest(result);
  return result;
}

}  // namespace clover::data
