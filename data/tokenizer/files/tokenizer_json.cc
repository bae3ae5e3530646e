#include "data/tokenizer/files/tokenizer_json.h"

#include <nlohmann/json.hpp>

#include "data/files/error.h"
#include "data/tokenizer/files/tokenizer_settings.h"

namespace clover::data {
namespace {

using nlohmann::json;

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
  throw InputError(where + ": expected \"left right\" or [\"left\", \"right\"], found " +
                   json_excerpt(merge));
}

int32_t id_of_entry(const json& vocab, const std::string& entry, const std::string& where) {
  const auto found = vocab.find(entry);
  if (found == vocab.end()) {
    throw InputError(where + ": expected its tokens and their union in the vocabulary, found no \"" + entry +
                     "\"");
  }
  return found->get<int32_t>();
}

}  // namespace

std::string json_excerpt(const json& value) {
  return value.dump().substr(0, 200);
}

std::vector<NamedMerge> read_named_merges(const json& model, const std::string& where) {
  const json empty = json::array();
  const json& merges = model.contains("merges") ? model["merges"] : empty;
  if (!merges.is_array()) throw InputError(where + ".merges: expected a list, found " + json_excerpt(merges));
  std::vector<NamedMerge> named_merges;
  named_merges.reserve(merges.size());
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    const std::string place = where + ".merges[" + std::to_string(rank) + "]";
    auto [left, right] = read_merge(merges[rank], place);
    const int32_t left_id = id_of_entry(model["vocab"], left, place);
    const int32_t right_id = id_of_entry(model["vocab"], right, place);
    const int32_t result_id = id_of_entry(model["vocab"], left + right, place);
    named_merges.push_back({std::move(left), std::move(right), left_id, right_id, result_id});
  }
  return named_merges;
}

void check_bpe_options(const json& model, const std::string& where) {
  const auto refuse = [&](const char* option) {
    throw InputError(where + "." + option + ": expected none, found " + json_excerpt(model[option]));
  };
  for (const char* option : {"dropout", "continuing_subword_prefix", "end_of_word_suffix"}) {
    const json value = model.value(option, json());
    if (!value.is_null() && value != "" && value != false && value != 0) refuse(option);
  }
}

std::vector<AddedToken> read_listed_tokens(
    const json& tokenizer, const std::string& where,
    const std::function<std::optional<int64_t>(const std::string&)>& model_id) {
  const json entries = tokenizer.value("added_tokens", json::array());
  if (!entries.is_array())
    throw InputError(where + ": added_tokens: expected a list, found " + json_excerpt(entries));
  std::vector<AddedToken> tokens;
  for (size_t i = 0; i < entries.size(); ++i) {
    const std::string place = where + ": added_tokens[" + std::to_string(i) + "]";
    AddedToken token = read_added_token(entries[i], place);
    const std::optional<int64_t> model_token_id = model_id(token.content);
    const json id = entries[i].value("id", json());
    token.id = model_token_id && !id.is_number_integer() ? *model_token_id : read_token_id(id, place);
    tokens.push_back(std::move(token));
  }
  return tokens;
}

std::optional<std::string> read_leading_token(const json& processor, const std::string& where) {
  if (processor.is_null()) return std::nullopt;
  const json type = processor.is_object() ? processor.value("type", json()) : json();
  if (type == "ByteLevel") return std::nullopt;
  if (type == "Sequence" && processor.contains("processors") && processor["processors"].is_array()) {
    std::optional<std::string> leading;
    for (const json& part : processor["processors"]) {
      const std::optional<std::string> token = read_leading_token(part, where);
      if (token) leading = token;
    }
    return leading;
  }
  if (type == "TemplateProcessing" && processor.contains("single") && processor["single"].is_array()) {
    const json& single = processor["single"];
    const auto is_kind = [&](size_t i, const char* kind) {
      return single[i].is_object() && single[i].contains(kind);
    };
    if (single.size() == 1 && is_kind(0, "Sequence")) return std::nullopt;
    if (single.size() == 2 && is_kind(0, "SpecialToken") && is_kind(1, "Sequence")) {
      const json& token = single[0]["SpecialToken"];
      if (token.is_object() && token.contains("id") && token["id"].is_string())
        return token["id"].get<std::string>();
    }
  }
  throw InputError(where +
                   ": post_processor: expected ByteLevel or TemplateProcessing with at most one token in " +
                   "front and none behind, found " + json_excerpt(processor));
}

}  // namespace clover::data
