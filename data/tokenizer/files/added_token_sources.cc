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

ordered_json read_object_in_order(const std::filesystem::path& file) {
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

// The first text, and how many others there are.
std::string first_and_count(const std::vector<std::string>& texts) {
  std::string text = nlohmann::json(texts[0]).dump();
  if (texts.size() > 1) text += " and " + std::to_string(texts.size() - 1) + " more";
  return text;
}

// The special tokens of tokenizer_config.json and special_tokens_map.json, before they are put in order.
struct SpecialTokens {
  std::map<std::string, AddedToken> roles;
  std::vector<std::string> nonstandard_roles;  // in the order of the files
  std::set<std::string> type_tagged;           // roles and extra texts whose object has a "__type"
  std::vector<AddedToken> extra_special_tokens, additional_special_tokens;
  bool has_extra_list = false;

  void add_role(const std::string& role, const ordered_json& value, const std::string& where) {
    std::optional<AddedToken> token = read_token(value, where + ": " + role);
    if (!token) return;
    token->special = true;
    has_type_tag(value) ? void(type_tagged.insert(role)) : void(type_tagged.erase(role));
    if (!is_standard(role) && !roles.contains(role)) nonstandard_roles.push_back(role);
    roles[role] = *token;
  }

  // Reads additional_special_tokens, the older name of extra_special_tokens.  It is used where the newer
  // field is no list.
  void add_additional(const ordered_json& value, const std::string& where) {
    SpecialTokens additional;
    additional.add_extra(value, where + ": additional_special_tokens");
    additional_special_tokens = std::move(additional.extra_special_tokens);
  }

  // Reads extra_special_tokens: a list of tokens, or an object of roles and tokens.
  void add_extra(const ordered_json& value, const std::string& where) {
    if (value.is_object()) {
      for (const auto& [role, token] : value.items()) add_role(role, token, where);
    } else if (value.is_array()) {
      has_extra_list = true;
      for (const ordered_json& entry : value) {
        const std::optional<AddedToken> token = read_token(entry, where);
        const auto same = [&](const AddedToken& other) { return other.content == token->content; };
        if (!token || std::any_of(extra_special_tokens.begin(), extra_special_tokens.end(), same)) continue;
        extra_special_tokens.push_back(*token);
        if (has_type_tag(entry)) type_tagged.insert(token->content);
      }
    }
  }

  // Whether a token of added_tokens.json with this text is special.  As in transformers, objects with a
  // "__type" do not count.
  bool is_special_text(const std::string& content) const {
    for (const char* role : standard_roles) {
      const auto entry = roles.find(role);
      if (entry != roles.end() && entry->second.content == content && !type_tagged.contains(role))
        return true;
    }
    const auto same = [&](const AddedToken& token) { return token.content == content; };
    return !type_tagged.contains(content) &&
           std::any_of(extra_special_tokens.begin(), extra_special_tokens.end(), same);
  }

  void add_roles(const ordered_json& object, const std::string& where) {
    for (const auto& [key, value] : object.items()) {
      if (key.ends_with("_token")) add_role(key, value, where);
    }
  }
};

SpecialTokens read_config_tokens(const ordered_json& config, const std::string& where) {
  SpecialTokens tokens;
  tokens.add_roles(config, where);
  const bool has_extra = is_nonempty(config, "extra_special_tokens");
  if (config.contains("extra_special_tokens"))
    tokens.add_extra(config["extra_special_tokens"], where + ": extra_special_tokens");
  if (config.contains("additional_special_tokens")) {
    const ordered_json& additional_special_tokens = config["additional_special_tokens"];
    has_extra ? tokens.add_additional(additional_special_tokens, where)
              : tokens.add_extra(additional_special_tokens, where);
  }
  return tokens;
}

// The roles that have different texts in `a` and `b`.
std::vector<std::string> differing_roles(const SpecialTokens& a, const SpecialTokens& b) {
  std::vector<std::string> roles;
  for (const auto& [role, token] : a.roles) {
    const auto entry = b.roles.find(role);
    if (entry != b.roles.end() && entry->second.content != token.content) roles.push_back(role);
  }
  return roles;
}

void read_added_tokens_decoder(const ordered_json& entries, const std::string& where,
                               AddedTokenSources& sources) {
  if (!entries.is_object()) throw InputError(where + ": expected an object, found " + entries.type_name());
  sources.has_added_tokens_decoder = true;
  for (const auto& [id, entry] : entries.items()) {
    AddedToken token = read_added_token(entry, where + " " + id);
    if (!entry.contains("normalized")) token.normalized = !token.special;
    token.id = parse_id(id, where);
    sources.by_id[token.id] = std::move(token);
  }
}

// Reads `added_tokens.json`, which states texts and ids only.  A text that has a role is special.  Where
// there is an added_tokens_decoder, transformers does not read this file; here its tokens that the decoder
// lacks are added.
void read_added_tokens_json(const ordered_json& entries, const std::string& file,
                            const SpecialTokens& special_tokens, AddedTokenSources& sources) {
  std::set<std::string> decoder_texts;
  for (const auto& [id, token] : sources.by_id) decoder_texts.insert(token.content);
  for (const auto& [content, id] : entries.items()) {
    AddedToken token;
    token.id = read_token_id(id, file + ": \"" + content + "\"");
    token.content = content;
    token.special = special_tokens.is_special_text(content);
    token.normalized = !token.special;
    if (decoder_texts.contains(content) || !sources.by_id.emplace(token.id, token).second) {
      sources.conflicting_tokens.push_back(token);
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
  const std::string added_tokens_file = (folder / "added_tokens.json").string();
  const ordered_json config = read_object_in_order(config_file);
  const ordered_json token_map = read_object_in_order(map_file);
  SpecialTokens config_tokens = read_config_tokens(config, config_file);
  SpecialTokens map_tokens;
  map_tokens.add_roles(token_map, map_file);
  const bool has_decoder =
      config.contains("added_tokens_decoder") && !config["added_tokens_decoder"].is_null();
  for (const std::string& role : differing_roles(map_tokens, config_tokens)) {
    sources.disagreements.push_back(
        "tokenizer_config.json and special_tokens_map.json name another " + role + "; " +
        nlohmann::json((has_decoder ? config_tokens : map_tokens).roles[role].content).dump() +
        (has_decoder ? " of the first" : " of the second") + " is taken, as transformers does");
  }
  if (has_decoder) {
    read_added_tokens_decoder(config["added_tokens_decoder"], config_file + ": added_tokens_decoder",
                              sources);
  } else {
    config_tokens.add_roles(token_map, map_file);
    if (token_map.contains("extra_special_tokens"))
      config_tokens.add_extra(token_map["extra_special_tokens"], map_file + ": extra_special_tokens");
    if (token_map.contains("additional_special_tokens"))
      config_tokens.add_additional(token_map["additional_special_tokens"], map_file);
  }
  read_added_tokens_json(read_object_in_order(added_tokens_file), added_tokens_file, config_tokens, sources);
  for (const char* role : standard_roles) {
    if (config_tokens.roles.contains(role)) sources.special_in_order.push_back(config_tokens.roles[role]);
  }
  for (const std::string& role : config_tokens.nonstandard_roles)
    sources.special_in_order.push_back(config_tokens.roles[role]);
  sources.roles = std::move(config_tokens.roles);
  sources.extra_special_tokens = std::move(config_tokens.extra_special_tokens);
  if (!config_tokens.has_extra_list)
    sources.additional_special_tokens = std::move(config_tokens.additional_special_tokens);
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
  std::set<std::string> special_texts, added_texts;
  for (const AddedToken& token : sources.special_in_order) special_texts.insert(token.content);
  for (const AddedToken& token : listed) added_texts.insert(token.content);
  std::vector<AddedToken> tokens_to_add;
  for (auto& [id, token] : by_id) {
    added_texts.insert(token.content);
    token.special = token.special || special_texts.contains(token.content);
    tokens_to_add.push_back(token);
  }
  for (const auto* tokens :
       {&sources.special_in_order, &sources.extra_special_tokens, &sources.additional_special_tokens}) {
    for (const AddedToken& token : *tokens) {
      const auto same = [&](const AddedToken& other) {
        return other.content == token.content && have_same_match_flags(other, token);
      };
      const bool is_known = added_texts.contains(token.content) ||
                            std::any_of(tokens_to_add.begin(), tokens_to_add.end(), same);
      if (!is_known) tokens_to_add.push_back(token);
    }
  }
  return tokens_to_add;
}

}  // namespace

std::vector<std::string> AddedTokenSources::add_all_to(AddedVocabulary& vocabulary,
                                                       const std::vector<AddedToken>& listed) const {
  for (const AddedToken& token : listed) vocabulary.add(token);
  std::vector<std::string> changed_flags, changed_ids, ignored_texts;
  std::string first_changed_id;
  for (const AddedToken& token : tokens_after_listed(*this, listed)) {
    const AddedToken* previous = vocabulary.find(token.content);
    if (previous != nullptr && !have_same_match_flags(*previous, token))
      changed_flags.push_back(token.content);
    vocabulary.add(token);
  }
  const auto check_id = [&](const AddedToken& token, const char* file) {
    const std::optional<int64_t> id = vocabulary.id_of(token.content);
    if (token.content.empty()) return;
    if (!id) {
      ignored_texts.push_back(token.content);
    } else if (*id != token.id) {
      changed_ids.push_back(token.content);
      if (changed_ids.size() == 1)
        first_changed_id = std::string(file) + " states id " + std::to_string(token.id) + ", but " +
                           std::to_string(*id) + " is taken";
    }
  };
  for (const AddedToken& token : listed) check_id(token, "tokenizer.json");
  for (const auto& [id, token] : by_id)
    check_id(token, only_in_added_tokens_json.contains(id) ? "added_tokens.json" : "tokenizer_config.json");
  for (const AddedToken& token : conflicting_tokens) check_id(token, "added_tokens.json");

  std::vector<std::string> sentences = disagreements;
  if (!changed_flags.empty()) {
    sentences.push_back("tokenizer.json and tokenizer_config.json state other flags of the added token " +
                        first_and_count(changed_flags) + "; the latter's are taken, as transformers does");
  }
  if (!changed_ids.empty()) {
    sentences.push_back("of the added token " + first_and_count(changed_ids) + " " + first_changed_id +
                        ", as transformers does: ids come from the vocabulary and the order of the tokens");
  }
  if (!ignored_texts.empty()) {
    sentences.push_back("added_tokens.json gives " + first_and_count(ignored_texts) +
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
