#include "data/tokenizer/files/token_decoder.h"

#include <charconv>
#include <nlohmann/json.hpp>
#include <optional>

#include "data/files/error.h"

namespace clover::data {
namespace {

using nlohmann::json;

[[noreturn]] void refuse_decoder(const std::string& where, const json& found) {
  throw InputError(where +
                   ": expected Metaspace or Replace, ByteFallback, Fuse and Strip of one character in front, "
                   "found " +
                   found.dump().substr(0, 300));
}

std::string with_replaced(const std::string& text, std::string_view pattern, std::string_view content) {
  std::string replaced;
  size_t position = 0;
  for (size_t at = text.find(pattern); at != text.npos; at = text.find(pattern, position)) {
    replaced.append(text, position, at - position).append(content);
    position = at + pattern.size();
  }
  return replaced.append(text, position);
}

// The byte of a token "<0x0A>"; nothing for other tokens.
std::optional<char> byte_of(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token.back() != '>') return std::nullopt;
  uint8_t byte = 0;
  const auto [end, error] = std::from_chars(token.data() + 3, token.data() + 5, byte, 16);
  if (error != std::errc() || end != token.data() + 5) return std::nullopt;
  return static_cast<char>(byte);
}

}  // namespace

void TokenDecoder::add_strip(const json& config, const std::string& where) {
  const json content = config.value("content", json());
  const json start = config.value("start", json(0)), stop = config.value("stop", json(0));
  const bool is_supported = content.is_string() && content.get_ref<const std::string&>().size() == 1 &&
                            start.is_number_unsigned() && stop.is_number_unsigned();
  if (!is_supported) refuse_decoder(where, config);
  if (!has_fuse_) {
    strips_.push_back({content.get<std::string>()[0], start.get<size_t>(), stop.get<size_t>()});
  } else if (content == " " && start <= 1 && stop == 0) {
    leading_spaces_to_strip_ += start.get<size_t>();
  } else {
    refuse_decoder(where, config);
  }
}

void TokenDecoder::add(const json& config, const std::string& where) {
  const json type = config.is_object() ? config.value("type", json()) : json();
  if (type == "Sequence" && config.contains("decoders") && config["decoders"].is_array()) {
    for (const json& part : config["decoders"]) add(part, where);
  } else if (type == "Replace" && !byte_fallback_ && !has_fuse_) {
    const json pattern = config.value("pattern", json()), content = config.value("content", json());
    const json text = pattern.is_object() ? pattern.value("String", json()) : json();
    if (!text.is_string() || text == "" || !content.is_string()) refuse_decoder(where, config);
    replacements_.emplace_back(text.get<std::string>(), content.get<std::string>());
  } else if (type == "ByteFallback" && !has_fuse_ && strips_.empty()) {
    byte_fallback_ = true;
  } else if (type == "Fuse") {
    has_fuse_ = true;
  } else if (type == "Strip") {
    add_strip(config, where);
  } else if (type == "Metaspace" && !has_fuse_ && replacements_.empty() && config.contains("replacement") &&
             config["replacement"].is_string() && config["replacement"] != "") {
    const auto mark = config["replacement"].get<std::string>();
    const bool keeps_first_mark =
        config.value("prepend_scheme", json()) == "never" ||
        (!config.contains("prepend_scheme") && config.value("add_prefix_space", json()) == false);
    if (!keeps_first_mark) first_token_mark_ = mark;
    replacements_.emplace_back(mark, " ");
  } else {
    refuse_decoder(where, config);
  }
}

TokenDecoder TokenDecoder::from_json(const json& config, const std::string& where) {
  TokenDecoder decoder;
  if (config.is_null()) {
    decoder.joins_with_spaces_ = true;
  } else {
    decoder.add(config, where);
  }
  return decoder;
}

std::string TokenDecoder::bytes_of(std::string_view token, bool first) const {
  std::string text(token);
  if (first && !first_token_mark_.empty()) text = with_replaced(text, first_token_mark_, "");
  for (const auto& [pattern, content] : replacements_) text = with_replaced(text, pattern, content);
  if (const auto byte = byte_fallback_ ? byte_of(text) : std::nullopt) text.assign(1, *byte);
  for (const Strip& strip : strips_) {
    size_t front = 0, back = 0;
    while (front < strip.start && front < text.size() && text[front] == strip.content) ++front;
    text.erase(0, front);
    while (back < strip.stop && back < text.size() && text[text.size() - 1 - back] == strip.content) ++back;
    text.resize(text.size() - back);
  }
  for (size_t i = 0; first && i < leading_spaces_to_strip_ && text.starts_with(' '); ++i) text.erase(0, 1);
  return joins_with_spaces_ && !first ? " " + text : text;
}

}  // namespace clover::data
