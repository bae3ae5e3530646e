#include <algorithm>

#include "data/chat/jinja/functions/filters.h"
#include "data/chat/jinja/functions/functions.h"
#include "data/chat/jinja/values/printing.h"
#include "data/chat/jinja/values/texts.h"

// The methods of str.  Methods of markup escape the texts that they insert.
namespace clover::data::jinja {
namespace {

std::string argument(const Value& self, const Value& given) {
  text_in(given);
  return self.is_markup() ? escaped(given) : given.text();
}

Value texts(const Value& self, std::vector<std::string> parts, bool tuple = false) {
  std::vector<Value> all;
  for (std::string& part : parts) all.push_back(text_or_markup(std::move(part), self.is_markup()));
  return tuple ? Value::tuple(std::move(all)) : Value::list(std::move(all));
}

template <std::string (*Make)(const std::string&)>
Value made_by(const Value& self, const BoundArguments&) {
  return text_or_markup(Make(self.text()), self.is_markup());
}

Value split(const Value& self, const BoundArguments& bound, bool from_right) {
  const int64_t most = bound.integer(1, -1);
  if (bound.is_absent(0))
    return texts(self, from_right ? split_at_whitespace_from_right(self.text(), most)
                                  : split_at_whitespace(self.text(), most));
  const std::string& by = bound.text(0);
  return texts(self, from_right ? split_from_right(self.text(), by, most) : split_at(self.text(), by, most));
}

Value parted(const Value& self, const BoundArguments& bound, bool from_right) {
  const std::string by = argument(self, bound.at(0));
  const std::vector<std::string> parts =
      from_right ? split_from_right(self.text(), by, 1) : split_at(self.text(), by, 1);
  if (parts.size() == 2) return texts(self, {parts[0], by, parts[1]}, true);
  return from_right ? texts(self, {"", "", self.text()}, true) : texts(self, {self.text(), "", ""}, true);
}

Value stripped_of(const Value& self, const BoundArguments& bound, bool left, bool right) {
  std::string these;
  if (!bound.is_absent(0)) these = argument(self, bound.at(0));
  if (these.size() > 4096) throw_error("a text is stripped of more than 4096 letters");
  return text_or_markup(
      std::string(stripped(self.text(), left, right, bound.is_absent(0) ? nullptr : &these)),
      self.is_markup());
}

/// The part of a text between two optional indices, and how many characters come before it.
struct Part {
  std::string text;
  int64_t before = 0;
  bool beyond = false;  // it begins after the end of the text
};
Part part_of(const Value& self, const BoundArguments& bound, size_t first) {
  if (bound.is_absent(first) && bound.is_absent(first + 1)) return {self.text()};
  const Value begin = bound.is_absent(first) ? Value::none() : bound.at(first),
              end = bound.is_absent(first + 1) ? Value::none() : bound.at(first + 1);
  const int64_t length = count_characters(self.text());
  int64_t at = begin.is_none() ? 0 : index_of(begin);
  if (at < 0) at = std::max<int64_t>(at + length, 0);
  return {slice_of(Value::of(self.text()), begin, end, Value::none()).text(), at, at > length};
}

bool is_at_edge(const std::string& text, const Value& edge, bool front) {
  if (edge.kind() == Value::Kind::tuple)
    return std::any_of(edge.items().begin(), edge.items().end(),
                       [&](const Value& one) { return is_at_edge(text, one, front); });
  return front ? text.starts_with(text_in(edge)) : text.ends_with(text_in(edge));
}

Value at_edge(const Value& self, const BoundArguments& bound, bool front) {
  const Part part = part_of(self, bound, 1);
  return Value::of(is_at_edge(part.text, bound.at(0), front) && !part.beyond);
}

Value found_in(const Value& self, const BoundArguments& bound, bool from_right, bool needed) {
  const Part part = part_of(self, bound, 1);
  const std::string& wanted = bound.text(0);
  const size_t at = part.beyond  ? std::string::npos
                    : from_right ? rfind_linear(part.text, wanted)
                                 : find_linear(part.text, wanted);
  if (at == std::string::npos && needed) throw_error("a text is not found in another");
  if (at == std::string::npos) return Value::of(Integer{-1});
  return Value::of(Integer{part.before + count_characters(std::string_view(part.text).substr(0, at))});
}

Value counted(const Value& self, const BoundArguments& bound) {
  const Part part = part_of(self, bound, 1);
  const std::string& wanted = bound.text(0);
  if (part.beyond) return Value::of(Integer{0});
  if (wanted.empty()) return Value::of(Integer{count_characters(part.text) + 1});
  return Value::of(Integer{std::ssize(split_at(part.text, wanted, -1)) - 1});
}

Value filled(const Value& self, const BoundArguments& bound, int side) {
  return text_or_markup(
      padded(self.text(), bound.integer(0, 0), bound.given(1) ? argument(self, bound.at(1)) : " ", side),
      self.is_markup());
}

Value filled_with_zeros(const Value& self, const BoundArguments& bound) {
  const std::string& text = self.text();
  const bool sign = text.starts_with('-') || text.starts_with('+');
  return text_or_markup(text.substr(0, sign) + padded(text.substr(sign), bound.integer(0, 0) - sign, "0", 1),
                        self.is_markup());
}

Value without_edge(const Value& self, const BoundArguments& bound, bool front) {
  const std::string part = argument(self, bound.at(0));
  const std::string& text = self.text();
  if (!(front ? text.starts_with(part) : text.ends_with(part))) return self;
  return text_or_markup(front ? text.substr(part.size()) : text.substr(0, text.size() - part.size()),
                        self.is_markup());
}

Value joined(const Value& self, const BoundArguments& bound) {
  std::string all;
  bool first = true;
  Items items(bound.at(0));
  while (const std::optional<Value> item = items.next()) {
    if (!first) all += self.text();
    first = false;
    all += self.is_markup() ? escaped(*item) : text_in(*item);
    check_size(all);
  }
  return text_or_markup(std::move(all), self.is_markup());
}

Value with_tabs_expanded(const Value& self, const BoundArguments& bound) {
  const int64_t size = bound.integer(0, 8);
  std::string all;
  int64_t column = 0;
  for (const char c : self.text()) {
    if (c == '\t') {
      const int64_t count = size > 0 ? size - column % size : 0;
      check_size(all.size() + static_cast<size_t>(count));
      all.append(static_cast<size_t>(count), ' ');
      column += count;
    } else {
      all += c;
      if ((static_cast<unsigned char>(c) & 0xC0) != 0x80) ++column;
      if (c == '\n' || c == '\r') column = 0;
    }
  }
  return text_or_markup(std::move(all), self.is_markup());
}

Value replaced_in(const Value& self, const BoundArguments& bound) {
  return text_or_markup(
      replaced(self.text(), argument(self, bound.at(0)), argument(self, bound.at(1)), bound.integer(2, -1)),
      self.is_markup());
}

}  // namespace

const Callables& text_methods() {
  static const Callables all{
      {"upper", {"", made_by<upper>}},
      {"lower", {"", made_by<lower>}},
      {"title", {"", made_by<title>}},
      {"capitalize", {"", made_by<capitalized>}},
      {"swapcase", {"", made_by<swapcase>}},
      {"casefold", {"", made_by<casefold>}},
      {"strip",
       {"/ chars=", [](const Value& v, const BoundArguments& b) { return stripped_of(v, b, true, true); }}},
      {"lstrip",
       {"/ chars=", [](const Value& v, const BoundArguments& b) { return stripped_of(v, b, true, false); }}},
      {"rstrip",
       {"/ chars=", [](const Value& v, const BoundArguments& b) { return stripped_of(v, b, false, true); }}},
      {"split",
       {"sep= maxsplit=", [](const Value& v, const BoundArguments& b) { return split(v, b, false); }}},
      {"rsplit",
       {"sep= maxsplit=", [](const Value& v, const BoundArguments& b) { return split(v, b, true); }}},
      {"splitlines",
       {"keepends=",
        [](const Value& v, const BoundArguments& b) { return texts(v, splitlines(v.text(), b.truth(0))); }}},
      {"partition", {"/ sep", [](const Value& v, const BoundArguments& b) { return parted(v, b, false); }}},
      {"rpartition", {"/ sep", [](const Value& v, const BoundArguments& b) { return parted(v, b, true); }}},
      {"startswith",
       {"/ prefix start= end=", [](const Value& v, const BoundArguments& b) { return at_edge(v, b, true); }}},
      {"endswith",
       {"/ suffix start= end=",
        [](const Value& v, const BoundArguments& b) { return at_edge(v, b, false); }}},
      {"find",
       {"/ sub start= end=",
        [](const Value& v, const BoundArguments& b) { return found_in(v, b, false, false); }}},
      {"rfind",
       {"/ sub start= end=",
        [](const Value& v, const BoundArguments& b) { return found_in(v, b, true, false); }}},
      {"index",
       {"/ sub start= end=",
        [](const Value& v, const BoundArguments& b) { return found_in(v, b, false, true); }}},
      {"rindex",
       {"/ sub start= end=",
        [](const Value& v, const BoundArguments& b) { return found_in(v, b, true, true); }}},
      {"count", {"/ sub start= end=", counted}},
      {"center", {"/ width fill=", [](const Value& v, const BoundArguments& b) { return filled(v, b, 0); }}},
      {"ljust", {"/ width fill=", [](const Value& v, const BoundArguments& b) { return filled(v, b, -1); }}},
      {"rjust", {"/ width fill=", [](const Value& v, const BoundArguments& b) { return filled(v, b, 1); }}},
      {"zfill", {"/ width", filled_with_zeros}},
      {"removeprefix",
       {"/ prefix", [](const Value& v, const BoundArguments& b) { return without_edge(v, b, true); }}},
      {"removesuffix",
       {"/ suffix", [](const Value& v, const BoundArguments& b) { return without_edge(v, b, false); }}},
      {"join", {"/ items", joined}},
      {"expandtabs", {"tabsize=", with_tabs_expanded}},
      {"replace", {"/ old new count=", replaced_in}},
  };
  return all;
}

}  // namespace clover::data::jinja
