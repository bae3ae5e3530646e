#include "data/tokenizer/files/added_token_sources.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>

#include "data/files/error.h"
#include "data/files/files.h"
#include "data/tokenizer/files/tokenizer_settings.h"

namespace clover::data {
namespace {

using nlohmann::ordered_json;  // new ids follow the order of the tokens in the file

constexpr std::array<const char*, 7> standard_roles = {"bos_token", "eos_token", "unk_token", "sep_token",
                                                       "pad_token", "cls_token", "mask_token"};

bool is_standard(const std::string& role) {
  return std::find(standard_roles.begin(), standard_roles.end(), role) != standard_roles.end();
}

ordered_json read_object(const std::filesystem::path& file) {
  if (!std::filesystem::exists(file)) return ordered_json::object();
  const nlohmann::json checked = read_json(file);
  if (!checked.is_object())
    throw InputError(file.string() + ": expected a JSON object, found " + checked.type_name());
  return ordered_json::parse(read_file(file));
}

int64_t parse_id(const std::string& digits, const std::string& where) {
  int64_t id = -1;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), id);
  if (error != std::errc() || end != digits.data() + digits.size()) {
    throw InputError(where + ": expected a token id as key, found \"" + digits.substr(0, 100) + "\"");
  }
  return read_token_id(id, where);
}

bool has_type_tag(const ordered_json& value) {
  return value.is_object() && value.contains("__type");
}

// A token given as its text, which makes it special, or as an object; nothing for other types.
std::optional<AddedToken> read_token(const ordered_json& value, const std::string& where) {
  AddedToken token;
  if (value.is_string()) {
    token.content = value.get<std::string>();
    token.special = true;
    return token;
  }
  if (!value.is_object() || !value.contains("content")) return std::nullopt;
  token = read_added_token(value, where);
  // Objects with "__type" state all of their flags; objects without it are special tokens.
  if (!has_type_tag(value)) token.special = true;
  if (!value.contains("normalized")) token.normalized = !token.special;
  return token;
}

bool is_nonempty(const ordered_json& object, const char* key) {
  return object.contains(key) && !object[key].empty();
}

std::string shown(const std::vector<std::string>& texts) {
  std::string text = nlohmann::json(texts[0]).dump();
  if (texts.size() > 1) text += " and " + std::to_string(texts.size() - 1) + " more";
  return text;
}

// The special tokens of tokenizer_config.json and special_tokens_map.json, before they are put in order.
struct SpecialTokens {
  std::map<std::string, AddedToken> roles;
  std::vector<std::string> nonstandard_roles;  // in the order of the files
  std::set<std::string> type_tagged;           // roles and extra texts whose object has a "__type"
  std::vector<AddedToken> extra, additional;
  bool extra_stated = false;

  void add_role(const std::string& role, const ordered_json& value, const std::string& where) {
    std::optional<AddedToken> token = read_token(value, where + ": " + role);
    if (!token) return;
    token->special = true;
    has_type_tag(value) ? void(type_tagged.insert(role)) : void(type_tagged.erase(role));
    if (!is_standard(role) && !roles.contains(role)) nonstandard_roles.push_back(role);
    roles[role] = *token;
  }

  // additional_special_tokens is the older name of extra_special_tokens; it is used where the newer is no
  // list.
  void add_additional(const ordered_json& value, const std::string& where) {
    SpecialTokens read;
    read.add_extra(value, where + ": additional_special_tokens");
    additional = std::move(read.extra);
  }

  // A list of tokens, or an object of roles and tokens.
  void add_extra(const ordered_json& value, const std::string& where) {
    if (value.is_object()) {
      for (const auto& [role, token] : value.items()) add_role(role, token, where);
    } else if (value.is_array()) {
      extra_stated = true;
      for (const ordered_json& entry : value) {
        const std::optional<AddedToken> token = read_token(entry, where);
        const auto same = [&](const AddedToken& known) { return known.content == token->content; };
        if (!token || std::any_of(extra.begin(), extra.end(), same)) continue;
        extra.push_back(*token);
        if (has_type_tag(entry)) type_tagged.insert(token->content);
      }
    }
  }

  // Whether a token of added_tokens.json with this text is special.  As in transformers, objects with a
  // "__type" do not count.
  bool known_as_special(const std::string& content) const {
    for (const char* role : standard_roles) {
      const auto entry = roles.find(role);
      if (entry != roles.end() && entry->second.content == content && !type_tagged.contains(role))
        return true;
    }
    const auto same = [&](const AddedToken& token) { return token.content == content; };
    return !type_tagged.contains(content) && std::any_of(extra.begin(), extra.end(), same);
  }

  void add_roles(const ordered_json& object, const std::string& where) {
    for (const auto& [key, value] : object.items()) {
      if (key.ends_with("_token")) add_role(key, value, where);
    }
  }
};

SpecialTokens read_config_names(const ordered_json& config, const std::string& where) {
  SpecialTokens names;
  names.add_roles(config, where);
  const bool has_extra = is_nonempty(config, "extra_special_tokens");
  if (config.contains("extra_special_tokens"))
    names.add_extra(config["extra_special_tokens"], where + ": extra_special_tokens");
  if (config.contains("additional_special_tokens")) {
    const ordered_json& additional = config["additional_special_tokens"];
    has_extra ? names.add_additional(additional, where) : names.add_extra(additional, where);
  }
  return names;
}

// Roles that have another text in the other file.
std::vector<std::string> differing_roles(const SpecialTokens& one, const SpecialTokens& other) {
  std::vector<std::string> roles;
  for (const auto& [role, token] : one.roles) {
    const auto same = other.roles.find(role);
    if (same != other.roles.end() && same->second.content != token.content) roles.push_back(role);
  }
  return roles;
}

void read_decoder(const ordered_json& entries, const std::string& where, AddedTokenSources& sources) {
  if (!entries.is_object()) throw InputError(where + ": expected an object, found " + entries.type_name());
  sources.has_added_tokens_decoder = true;
  for (const auto& [id, entry] : entries.items()) {
    AddedToken token = read_added_token(entry, where + " " + id);
    if (!entry.contains("normalized")) token.normalized = !token.special;
    token.id = parse_id(id, where);
    sources.by_id[token.id] = std::move(token);
  }
}

// Reads `added_tokens.json`, which states texts and ids only: a text that has a role is special.  Where there
// is an added_tokens_decoder, transformers does not read this file; here it adds the tokens that the decoder
// lacks.
void read_numbers(const ordered_json& entries, const std::string& file, const SpecialTokens& names,
                  AddedTokenSources& sources) {
  std::set<std::string> known;
  for (const auto& [id, token] : sources.by_id) known.insert(token.content);
  for (const auto& [content, id] : entries.items()) {
    AddedToken token;
    token.id = read_token_id(id, file + ": \"" + content + "\"");
    token.content = content;
    token.special = names.known_as_special(content);
    token.normalized = !token.special;
    if (known.contains(content) || !sources.by_id.emplace(token.id, token).second) {
      sources.conflicting.push_back(token);
    } else {
      sources.only_in_added_tokens_json.insert(token.id);
    }
  }
}

}  // namespace

AddedTokenSources AddedTokenSources::load(const std::filesystem::path& folder) {
  AddedTokenSources sources;
  const std::string config_file = (folder / "tokenizer_config.json").string();
  const std::string map_file = (folder / "special_tokens_map.json").string();
  const std::string number_file = (folder / "added_tokens.json").string();
  const ordered_json config = read_object(config_file);
  const ordered_json map = read_object(map_file);
  std::vector<std::pair<std::string, int64_t>> numbers;
  SpecialTokens names = read_config_names(config, config_file);
  SpecialTokens map_names;
  map_names.add_roles(map, map_file);
  const bool has_decoder =
      config.contains("added_tokens_decoder") && !config["added_tokens_decoder"].is_null();
  for (const std::string& role : differing_roles(map_names, names)) {
    sources.disagreements.push_back(
        "tokenizer_config.json and special_tokens_map.json name another " + role + "; " +
        nlohmann::json((has_decoder ? names : map_names).roles[role].content).dump() +
        (has_decoder ? " of the first" : " of the second") + " is taken, as transformers does");
  }
  if (has_decoder) {
    read_decoder(config["added_tokens_decoder"], config_file + ": added_tokens_decoder", sources);
  } else {
    names.add_roles(map, map_file);
    if (map.contains("extra_special_tokens"))
      names.add_extra(map["extra_special_tokens"], map_file + ": extra_special_tokens");
    if (map.contains("additional_special_tokens"))
      names.add_additional(map["additional_special_tokens"], map_file);
  }
  read_numbers(read_object(number_file), number_file, names, sources);
  for (const char* role : standard_roles) {
    if (names.roles.contains(role)) sources.special_in_order.push_back(names.roles[role]);
  }
  for (const std::string& role : names.nonstandard_roles)
    sources.special_in_order.push_back(names.roles[role]);
  sources.roles = std::move(names.roles);
  sources.extra = std::move(names.extra);
  if (!names.extra_stated) sources.additional = std::move(names.additional);
  return sources;
}

std::optional<std::string> AddedTokenSources::text_of(const char* role) const {
  const auto token = roles.find(role);
  return token == roles.end() ? std::nullopt : std::optional<std::string>(token->second.content);
}

namespace {

// The tokens that are added after those that tokenizer.json lists.
std::vector<AddedToken> tokens_after_listed(const AddedTokenSources& sources,
                                            const std::vector<AddedToken>& listed) {
  std::map<int64_t, AddedToken> by_id = sources.by_id;
  if (!sources.has_added_tokens_decoder) {
    for (const AddedToken& token : listed) by_id[token.id] = token;
  }
  std::set<std::string> names, known;
  for (const AddedToken& token : sources.special_in_order) names.insert(token.content);
  for (const AddedToken& token : listed) known.insert(token.content);
  std::vector<AddedToken> later;
  for (auto& [id, token] : by_id) {
    known.insert(token.content);
    token.special = token.special || names.contains(token.content);
    later.push_back(token);
  }
  for (const auto* tokens : {&sources.special_in_order, &sources.extra, &sources.additional}) {
    for (const AddedToken& token : *tokens) {
      const auto same = [&](const AddedToken& other) {
        return other.content == token.content && match_alike(other, token);
      };
      const bool again = known.contains(token.content) || std::any_of(later.begin(), later.end(), same);
      if (!again) later.push_back(token);
    }
  }
  return later;
}

}  // namespace

std::vector<std::string> AddedTokenSources::merge(const std::vector<AddedToken>& listed,
                                                  AddedVocabulary& vocabulary) const {
  for (const AddedToken& token : listed) vocabulary.add(token);
  std::vector<std::string> other_flags, other_ids, unread;
  std::string first_other;
  for (const AddedToken& token : tokens_after_listed(*this, listed)) {
    const AddedToken* before = vocabulary.find(token.content);
    if (before != nullptr && !match_alike(*before, token)) other_flags.push_back(token.content);
    vocabulary.add(token);
  }
  const auto check_id = [&](const AddedToken& token, const char* file) {
    const std::optional<int64_t> id = vocabulary.id_of(token.content);
    if (token.content.empty()) return;
    if (!id) {
      unread.push_back(token.content);
    } else if (*id != token.id) {
      other_ids.push_back(token.content);
      if (other_ids.size() == 1)
        first_other = std::string(file) + " states id " + std::to_string(token.id) + ", but " +
                      std::to_string(*id) + " is taken";
    }
  };
  for (const AddedToken& token : listed) check_id(token, "tokenizer.json");
  for (const auto& [id, token] : by_id)
    check_id(token, only_in_added_tokens_json.contains(id) ? "added_tokens.json" : "tokenizer_config.json");
  for (const AddedToken& token : conflicting) check_id(token, "added_tokens.json");

  std::vector<std::string> sentences = disagreements;
  if (!other_flags.empty()) {
    sentences.push_back("tokenizer.json and tokenizer_config.json state other flags of the added token " +
                        shown(other_flags) + "; the latter's are taken, as transformers does");
  }
  if (!other_ids.empty()) {
    sentences.push_back("of the added token " + shown(other_ids) + " " + first_other +
                        ", as transformers does: ids come from the vocabulary and the order of the tokens");
  }
  if (!unread.empty()) {
    sentences.push_back("added_tokens.json gives " + shown(unread) +
                        " an id that tokenizer_config.json gives to another token; the latter is taken, as "
                        "transformers does");
  }
  return sentences;
}

void warn_once(const std::string& where, const std::vector<std::string>& sentences) {
  static std::mutex mutex;
  static std::set<std::string> printed;
  const std::lock_guard lock(mutex);
  for (const std::string& sentence : sentences) {
    const std::string line = where + ": " + sentence;
    if (printed.insert(line).second) std::fprintf(stderr, "%s\n", line.c_str());
  }
}

}  // namespace clover::data
