#include "data/files/lossless_json.h"

#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>

namespace clover::data {
namespace {

using nlohmann::json;

/// The end of the JSON token (string, number, word, blanks or punctuation) that begins at `begin`.
size_t end_of_part(std::string_view text, size_t begin) {
  size_t end = begin + 1;
  const char first = text[begin];
  if (first == '"') {
    while (end < text.size() && text[end] != '"') end += text[end] == '\\' ? 2 : 1;
    return std::min(end + 1, text.size());
  }
  constexpr std::string_view blanks = " \t\r\n", signs = "{}[]:,";
  if (signs.find(first) != signs.npos) return end;
  const bool blank = blanks.find(first) != blanks.npos;
  while (end < text.size() && signs.find(text[end]) == signs.npos && text[end] != '"' &&
         (blanks.find(text[end]) != blanks.npos) == blank)
    ++end;
  return end;
}

bool is_blank(std::string_view part) {
  return part[0] == ' ' || part[0] == '\t' || part[0] == '\r' || part[0] == '\n';
}

size_t digits_from(std::string_view part, size_t begin) {
  while (begin < part.size() && part[begin] >= '0' && part[begin] <= '9') ++begin;
  return begin;
}

/// Whether `part` is a number by JSON's grammar.
bool is_number(std::string_view part) {
  const size_t begin = part.starts_with('-');
  size_t end = digits_from(part, begin);
  if (end == begin || (part[begin] == '0' && end > begin + 1)) return false;
  if (end < part.size() && part[end] == '.') {
    const size_t fraction = end + 1;
    end = digits_from(part, fraction);
    if (end == fraction) return false;
  }
  if (end < part.size() && (part[end] == 'e' || part[end] == 'E')) {
    size_t exponent = end + 1;
    exponent += exponent < part.size() && (part[exponent] == '+' || part[exponent] == '-');
    end = digits_from(part, exponent);
    if (end == exponent) return false;
  }
  return end == part.size();
}

enum class Number { none, same, changed, huge };

Number number_of(std::string_view part) {
  if (part[0] != '-' && (part[0] < '0' || part[0] > '9')) return Number::none;
  constexpr size_t always_exact = 18;  // an integer of up to so many digits fits in 64 bits
  if (part.size() <= always_exact && digits_from(part, 0) == part.size() &&
      (part[0] != '0' || part.size() == 1))
    return Number::same;
  if (!is_number(part)) return Number::none;
  const std::string number(part);
  if (!std::isfinite(std::strtod(number.c_str(), nullptr))) return Number::huge;
  return json::parse(number).dump() == number ? Number::same : Number::changed;
}

}  // namespace

LosslessJson::LosslessJson(std::string_view text) : text_(text) {
  size_t copied = 0;  // bytes of text_ copied to parseable_
  for (size_t begin = 0, end; begin < text.size(); begin = end) {
    end = end_of_part(text, begin);
    const std::string_view part = text.substr(begin, end - begin);
    const Number number = number_of(part);
    all_round_trip_ = all_round_trip_ && (number == Number::none || number == Number::same);
    if (number != Number::huge) continue;
    has_huge_ = true;
    parseable_ += std::string(text.substr(copied, begin - copied)) + "\"" + std::string(part) + "\"";
    copied = end;
  }
  if (has_huge_) parseable_ += text.substr(copied);
}

std::map<std::string, std::string> LosslessJson::verbatim_members() const {
  std::map<std::string, std::string> members;
  if (all_round_trip_) return members;
  std::string key, value;
  bool in_value = false, changed = false;
  int depth = 0;  // 1: inside the outermost object
  const auto keep = [&] {
    if (changed) members[json::parse(key).get<std::string>()] = value;
    key.clear(), value.clear();
    in_value = changed = false;
  };
  for (size_t begin = 0, end; begin < text_.size(); begin = end) {
    end = end_of_part(text_, begin);
    const std::string_view part = text_.substr(begin, end - begin);
    if (is_blank(part)) continue;
    if (depth == 0 && part != "{") return {};  // the text is no object
    depth -= part == "}" || part == "]";
    if (depth == 0 || (depth == 1 && part == ",")) {
      keep();
      if (depth == 0 && part != "{") break;
    } else if (depth == 1 && part == ":" && !in_value) {
      in_value = true;
    } else {
      (in_value ? value : key) += part;
      const Number number = number_of(part);
      changed = changed || number == Number::changed || number == Number::huge;
    }
    depth += part == "{" || part == "[";
  }
  return members;
}

}  // namespace clover::data
