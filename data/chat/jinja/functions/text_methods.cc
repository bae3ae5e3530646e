#include <algorithm>

#include "data/chat/jinja/functions/filters.h"
#include "data/chat/jinja/functions/functions.h"
#include "data/chat/jinja/values/printing.h"
#include "data/chat/jinja/values/texts.h"

// The methods of str.  Methods of markup escape the texts that they insert.
namespace clover::data::jinja {
namespace {

/// An argument that is inserted into `self`: a text, escaped if `self` is markup.
std::string argument(const Value& self, const Value& given) {
  text_in(given);
  return self.is_markup() ? escaped(given) : given.text();
}

/// A list or (`tuple`) a tuple of texts, which are markup if `self` is.
Value texts(const Value& self, std::vector<std::string> parts, bool tuple = false) {
  std::vector<Value> values;
  for (std::string& part : parts) values.push_back(text_or_markup(std::move(part), self.is_markup()));
  return tuple ? Value::tuple(std::move(values)) : Value::list(std::move(values));
}

template <std::string (*Function)(const std::string&)>
Value apply_to_text(const Value& self, const BoundArguments&) {
  return text_or_markup(Function(self.text()), self.is_markup());
}

Value split(const Value& self, const BoundArguments& bound, bool from_right) {
  const int64_t max_splits = bound.integer(1, -1);
  if (bound.is_absent(0))
    return texts(self, from_right ? split_at_whitespace_from_right(self.text(), max_splits)
                                  : split_at_whitespace(self.text(), max_splits));
  const std::string& separator = bound.text(0);
  return texts(self, from_right ? split_from_right(self.text(), separator, max_splits)
                                : split_at(self.text(), separator, max_splits));
}

Value partition(const Value& self, const BoundArguments& bound, bool from_right) {
  const std::string separator = argument(self, bound.at(0));
  const std::vector<std::string> parts =
      from_right ? split_from_right(self.text(), separator, 1) : split_at(self.text(), separator, 1);
  if (parts.size() == 2) return texts(self, {parts[0], separator, parts[1]}, true);
  return from_right ? texts(self, {"", "", self.text()}, true) : texts(self, {self.text(), "", ""}, true);
}

Value strip_text(const Value& self, const BoundArguments& bound, bool left, bool right) {
  std::string characters;
  if (!bound.is_absent(0)) characters = argument(self, bound.at(0));
  if (characters.size() > 4096) throw_error("a text is stripped of more than 4096 letters");
  return text_or_markup(
      std::string(stripped(self.text(), left, right, bound.is_absent(0) ? nullptr : &characters)),
      self.is_markup());
}

/// The part of a text between two optional indices, parameters number `first` and first + 1.
struct SubText {
  std::string text;
  int64_t characters_before = 0;  // in the whole text
  bool begins_after_end = false;  // its first index is after the end of the text
};
SubText sub_text(const Value& self, const BoundArguments& bound, size_t first) {
  if (bound.is_absent(first) && bound.is_absent(first + 1)) return {self.text()};
  const Value begin = bound.is_absent(first) ? Value::none() : bound.at(first),
              end = bound.is_absent(first + 1) ? Value::none() : bound.at(first + 1);
  const int64_t length = count_characters(self.text());
  int64_t at = begin.is_none() ? 0 : index_of(begin);
  if (at < 0) at = std::max<int64_t>(at + length, 0);
  return {slice_of(Value::of(self.text()), begin, end, Value::none()).text(), at, at > length};
}

/// Whether the text begins or ends with `affix`, or with one of a tuple of affixes.
bool has_prefix_or_suffix(const std::string& text, const Value& affix, bool at_front) {
  if (affix.kind() == Value::Kind::tuple)
    return std::any_of(affix.items().begin(), affix.items().end(), [&](const Value& candidate) {
      return has_prefix_or_suffix(text, candidate, at_front);
    });
  return at_front ? text.starts_with(text_in(affix)) : text.ends_with(text_in(affix));
}

Value starts_or_ends_with(const Value& self, const BoundArguments& bound, bool at_front) {
  const SubText part = sub_text(self, bound, 1);
  return Value::of(has_prefix_or_suffix(part.text, bound.at(0), at_front) && !part.begins_after_end);
}

Value find_in(const Value& self, const BoundArguments& bound, bool from_right, bool must_exist) {
  const SubText part = sub_text(self, bound, 1);
  const std::string& needle = bound.text(0);
  const size_t at = part.begins_after_end ? std::string::npos
                    : from_right          ? rfind_linear(part.text, needle)
                                          : find_linear(part.text, needle);
  if (at == std::string::npos && must_exist) throw_error("a text is not found in another");
  if (at == std::string::npos) return Value::of(Integer{-1});
  return Value::of(
      Integer{part.characters_before + count_characters(std::string_view(part.text).substr(0, at))});
}

Value count_in(const Value& self, const BoundArguments& bound) {
  const SubText part = sub_text(self, bound, 1);
  const std::string& needle = bound.text(0);
  if (part.begins_after_end) return Value::of(Integer{0});
  if (needle.empty()) return Value::of(Integer{count_characters(part.text) + 1});
  return Value::of(Integer{std::ssize(split_at(part.text, needle, -1)) - 1});
}

Value pad(const Value& self, const BoundArguments& bound, int side) {
  return text_or_markup(
      padded(self.text(), bound.integer(0, 0), bound.is_given(1) ? argument(self, bound.at(1)) : " ", side),
      self.is_markup());
}

Value pad_with_zeros(const Value& self, const BoundArguments& bound) {
  const std::string& text = self.text();
  const bool sign = text.starts_with('-') || text.starts_with('+');
  return text_or_markup(text.substr(0, sign) + padded(text.substr(sign), bound.integer(0, 0) - sign, "0", 1),
                        self.is_markup());
}

Value remove_prefix_or_suffix(const Value& self, const BoundArguments& bound, bool at_front) {
  const std::string part = argument(self, bound.at(0));
  const std::string& text = self.text();
  if (!(at_front ? text.starts_with(part) : text.ends_with(part))) return self;
  return text_or_markup(at_front ? text.substr(part.size()) : text.substr(0, text.size() - part.size()),
                        self.is_markup());
}

Value join(const Value& self, const BoundArguments& bound) {
  std::string result;
  bool first = true;
  Items items(bound.at(0));
  while (const std::optional<Value> item = items.next()) {
    if (!first) result += self.text();
    first = false;
    result += self.is_markup() ? escaped(*item) : text_in(*item);
    check_size(result);
  }
  return text_or_markup(std::move(result), self.is_markup());
}

Value expand_tabs(const Value& self, const BoundArguments& bound) {
  const int64_t size = bound.integer(0, 8);
  std::string result;
  int64_t column = 0;
  for (const char c : self.text()) {
    if (c == '\t') {
      const int64_t count = size > 0 ? size - column % size : 0;
      check_size(result.size() + static_cast<size_t>(count));
      result.append(static_cast<size_t>(count), ' ');
      column += count;
    } else {
      result += c;
      if ((static_cast<unsigned char>(c) & 0xC0) != 0x80) ++column;
      if (c == '\n' || c == '\r') column = 0;
    }
  }
  return text_or_markup(std::move(result), self.is_markup());
}

Value replace_in(const Value& self, const BoundArguments& bound) {
  return text_or_markup(
      replaced(self.text(), argument(self, bound.at(0)), argument(self, bound.at(1)), bound.integer(2, -1)),
      self.is_markup());
}

}  // namespace

const Callables& text_methods() {
  static const Callables methods{
      {"upper", {"", apply_to_text<upper>}},
      {"lower", {"", apply_to_text<lower>}},
      {"title", {"", apply_to_text<title>}},
      {"capitalize", {"", apply_to_text<capitalized>}},
      {"swapcase", {"", apply_to_text<swapcase>}},
      {"casefold", {"", apply_to_text<casefold>}},
      {"strip",
       {"/ chars=", [](const Value& v, const BoundArguments& b) { return strip_text(v, b, true, true); }}},
      {"lstrip",
       {"/ chars=", [](const Value& v, const BoundArguments& b) { return strip_text(v, b, true, false); }}},
      {"rstrip",
       {"/ chars=", [](const Value& v, const BoundArguments& b) { return strip_text(v, b, false, true); }}},
      {"split",
       {"sep= maxsplit=", [](const Value& v, const BoundArguments& b) { return split(v, b, false); }}},
      {"rsplit",
       {"sep= maxsplit=", [](const Value& v, const BoundArguments& b) { return split(v, b, true); }}},
      {"splitlines",
       {"keepends=", [](const Value& v,
                        const BoundArguments& b) { return texts(v, splitlines(v.text(), b.boolean(0))); }}},
      {"partition",
       {"/ sep", [](const Value& v, const BoundArguments& b) { return partition(v, b, false); }}},
      {"rpartition",
       {"/ sep", [](const Value& v, const BoundArguments& b) { return partition(v, b, true); }}},
      {"startswith",
       {"/ prefix start= end=",
        [](const Value& v, const BoundArguments& b) { return starts_or_ends_with(v, b, true); }}},
      {"endswith",
       {"/ suffix start= end=",
        [](const Value& v, const BoundArguments& b) { return starts_or_ends_with(v, b, false); }}},
      {"find",
       {"/ sub start= end=",
        [](const Value& v, const BoundArguments& b) { return find_in(v, b, false, false); }}},
      {"rfind",
       {"/ sub start= end=",
        [](const Value& v, const BoundArguments& b) { return find_in(v, b, true, false); }}},
      {"index",
       {"/ sub start= end=",
        [](const Value& v, const BoundArguments& b) { return find_in(v, b, false, true); }}},
      {"rindex",
       {"/ sub start= end=",
        [](const Value& v, const BoundArguments& b) { return find_in(v, b, true, true); }}},
      {"count", {"/ sub start= end=", count_in}},
      {"center", {"/ width fill=", [](const Value& v, const BoundArguments& b) { return pad(v, b, 0); }}},
      {"ljust", {"/ width fill=", [](const Value& v, const BoundArguments& b) { return pad(v, b, -1); }}},
      {"rjust", {"/ width fill=", [](const Value& v, const BoundArguments& b) { return pad(v, b, 1); }}},
      {"zfill", {"/ width", pad_with_zeros}},
      {"removeprefix",
       {"/ prefix",
        [](const Value& v, const BoundArguments& b) { return remove_prefix_or_suffix(v, b, true); }}},
      {"removesuffix",
       {"/ suffix",
        [](const Value& v, const BoundArguments& b) { return remove_prefix_or_suffix(v, b, false); }}},
      {"join", {"/ items", join}},
      {"expandtabs", {"tabsize=", expand_tabs}},
      {"replace", {"/ old new count=", replace_in}},
  };
  return methods;
}

}  // namespace clover::data::jinja
