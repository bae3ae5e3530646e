#include "data/text/metaspace.h"

#include <nlohmann/json.hpp>

#include "data/files/error.h"

namespace clover::data {
namespace {

using nlohmann::json;

[[noreturn]] void refuse_metaspace(const std::string& where, const json& found) {
  throw InputError(where + ": expected none, ByteLevel or Metaspace, found " + found.dump().substr(0, 300));
}

bool is_one_character(const json& value) {
  if (!value.is_string() || value.get_ref<const std::string&>().empty()) return false;
  const std::string& text = value.get_ref<const std::string&>();
  return decode_utf8(text, 0).length == text.size();
}

// Replaces every space by `mark`, and prepends one more when `prepends`.
AlignedText with_marks(std::string_view text, std::string_view mark, bool prepends) {
  AlignedText marked;
  if (prepends) marked.append_replacement(mark, 0, 0);
  for (size_t position = 0; position < text.size();) {
    const size_t space = std::min(text.find(' ', position), text.size());
    marked.append_copy(text.substr(position, space - position), position);
    if (space < text.size()) marked.append_replacement(mark, space, space + 1);
    position = space + 1;
  }
  return marked;
}

}  // namespace

void Metaspace::add(const json& config, const std::string& where) {
  const json type = config.is_object() ? config.value("type", json()) : json();
  if (type == "Sequence" && config.contains("pretokenizers") && config["pretokenizers"].is_array()) {
    for (const json& part : config["pretokenizers"]) add(part, where);
    return;
  }
  if (type != "Metaspace" || !is_one_character(config.value("replacement", json())))
    refuse_metaspace(where, config);
  Stage stage{config["replacement"].get<std::string>(), Prepend::always,
              config.value("split", json(true)) != false};
  const json scheme = config.value("prepend_scheme", json("always"));
  // Older files say add_prefix_space instead of prepend_scheme.
  const bool never = scheme == "never" || (!config.contains("prepend_scheme") &&
                                           config.value("add_prefix_space", json()) == false);
  if (never) {
    stage.prepend = Prepend::never;
  } else if (scheme == "first") {
    stage.prepend = Prepend::first;
  } else if (scheme != "always") {
    refuse_metaspace(where, config);
  }
  stages_.push_back(std::move(stage));
}

Metaspace Metaspace::from_json(const json& config, const std::string& where) {
  Metaspace metaspace;
  if (!config.is_null()) metaspace.add(config, where);
  return metaspace;
}

AlignedText Metaspace::apply(std::string_view text, bool begins_text) const {
  AlignedText result(text);
  for (const Stage& stage : stages_) {
    const std::string_view before = result.text();
    const bool may_prepend =
        stage.prepend == Prepend::always || (stage.prepend == Prepend::first && begins_text);
    const bool starts_with_mark = before.starts_with(' ') || before.starts_with(stage.mark);
    const bool prepends = may_prepend && !starts_with_mark && !before.empty();
    if (!prepends && before.find(' ') == before.npos) continue;
    AlignedText next = with_marks(before, stage.mark, prepends);
    result = std::move(next).composed_with(result);
  }
  return result;
}

std::vector<std::pair<size_t, size_t>> Metaspace::split(std::string_view text) const {
  std::vector<std::pair<size_t, size_t>> pieces;
  size_t begin = 0;
  for (size_t i = 1; i < text.size(); ++i) {
    for (const Stage& stage : stages_) {
      if (!stage.splits || text[i] != stage.mark[0] || !text.substr(i).starts_with(stage.mark)) continue;
      pieces.emplace_back(begin, i);
      begin = i;
      break;
    }
  }
  if (begin < text.size()) pieces.emplace_back(begin, text.size());
  return pieces;
}

}  // namespace clover::data
