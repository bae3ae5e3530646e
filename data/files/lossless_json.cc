#include "data/files/lossless_json.h"

#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>

namespace clover::data {
namespace {

using nlohmann::json;

/// The end of the JSON token that begins at `begin`: a string, a number, a word (true), a run of whitespace,
/// or one character of punctuation.
size_t end_of_json_token(std::string_view text, size_t begin) {
  size_t end = begin + 1;
  const char first = text[begin];
  if (first == '"') {
    while (end < text.size() && text[end] != '"') end += text[end] == '\\' ? 2 : 1;
    return std::min(end + 1, text.size());
  }
  constexpr std::string_view blanks = " \t\r\n", punctuation = "{}[]:,";
  if (punctuation.find(first) != punctuation.npos) return end;
  const bool blank = blanks.find(first) != blanks.npos;
  while (end < text.size() && punctuation.find(text[end]) == punctuation.npos && text[end] != '"' &&
         (blanks.find(text[end]) != blanks.npos) == blank)
    ++end;
  return end;
}

bool is_blank(std::string_view token) {
  return token[0] == ' ' || token[0] == '\t' || token[0] == '\r' || token[0] == '\n';
}

/// The end of the run of digits that begins at `begin`.
size_t end_of_digits(std::string_view token, size_t begin) {
  while (begin < token.size() && token[begin] >= '0' && token[begin] <= '9') ++begin;
  return begin;
}

/// Whether `token` is a number by JSON's grammar.
bool is_number(std::string_view token) {
  const size_t begin = token.starts_with('-');
  size_t end = end_of_digits(token, begin);
  if (end == begin || (token[begin] == '0' && end > begin + 1)) return false;
  if (end < token.size() && token[end] == '.') {
    const size_t fraction = end + 1;
    end = end_of_digits(token, fraction);
    if (end == fraction) return false;
  }
  if (end < token.size() && (token[end] == 'e' || token[end] == 'E')) {
    size_t exponent = end + 1;
    exponent += exponent < token.size() && (token[exponent] == '+' || token[exponent] == '-');
    end = end_of_digits(token, exponent);
    if (end == exponent) return false;
  }
  return end == token.size();
}

/// What parsing and printing does to a token.
enum class RoundTrip {
  none,       // the token is no number
  unchanged,  // it is printed as it was written
  changed,    // it is printed in another way: 0.10, 1E5
  huge,       // it is beyond the range of double, so that it cannot be parsed
};

RoundTrip round_trip_of(std::string_view token) {
  if (token[0] != '-' && (token[0] < '0' || token[0] > '9')) return RoundTrip::none;
  constexpr size_t max_exact_digits = 18;  // an integer with up to this many digits fits in 64 bits
  if (token.size() <= max_exact_digits && end_of_digits(token, 0) == token.size() &&
      (token[0] != '0' || token.size() == 1))
    return RoundTrip::unchanged;
  if (!is_number(token)) return RoundTrip::none;
  const std::string number(token);
  if (!std::isfinite(std::strtod(number.c_str(), nullptr))) return RoundTrip::huge;
  return json::parse(number).dump() == number ? RoundTrip::unchanged : RoundTrip::changed;
}

}  // namespace

LosslessJson::LosslessJson(std::string_view text) : text_(text) {
  size_t copied = 0;  // bytes of text_ copied to parseable_
  for (size_t begin = 0, end; begin < text.size(); begin = end) {
    end = end_of_json_token(text, begin);
    const std::string_view token = text.substr(begin, end - begin);
    const RoundTrip round_trip = round_trip_of(token);
    all_round_trip_ =
        all_round_trip_ && (round_trip == RoundTrip::none || round_trip == RoundTrip::unchanged);
    if (round_trip != RoundTrip::huge) continue;
    has_huge_ = true;
    parseable_ += std::string(text.substr(copied, begin - copied)) + "\"" + std::string(token) + "\"";
    copied = end;
  }
  if (has_huge_) parseable_ += text.substr(copied);
}

std::map<std::string, std::string> LosslessJson::verbatim_members() const {
  std::map<std::string, std::string> members;
  if (all_round_trip_) return members;
  std::string key, value;
  bool in_value = false;            // after the member's ":"
  bool changed = false;             // the value contains a number that parsing would change
  int depth = 0;                    // open brackets; 1: in the outermost object itself
  const auto finish_member = [&] {  // at the "," or "}" after a member
    if (changed) members[json::parse(key).get<std::string>()] = value;
    key.clear(), value.clear();
    in_value = changed = false;
  };
  for (size_t begin = 0, end; begin < text_.size(); begin = end) {
    end = end_of_json_token(text_, begin);
    const std::string_view token = text_.substr(begin, end - begin);
    if (is_blank(token)) continue;
    if (depth == 0 && token != "{") return {};  // the text is no object
    depth -= token == "}" || token == "]";
    if (depth == 0 || (depth == 1 && token == ",")) {
      finish_member();
      if (depth == 0 && token != "{") break;
    } else if (depth == 1 && token == ":" && !in_value) {
      in_value = true;
    } else {
      (in_value ? value : key) += token;
      const RoundTrip round_trip = round_trip_of(token);
      changed = changed || round_trip == RoundTrip::changed || round_trip == RoundTrip::huge;
    }
    depth += token == "{" || token == "[";
  }
  return members;
}

}  // namespace clover::data
