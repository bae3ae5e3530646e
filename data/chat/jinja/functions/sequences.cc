#include <algorithm>

#include "data/chat/jinja/functions/functions.h"
#include "data/chat/jinja/functions/objects.h"
#include "data/chat/jinja/values/operators.h"
#include "data/chat/jinja/values/texts.h"
#include "data/text/utf8.h"

// Subscripts, slices and iteration of lists, texts and other containers.
namespace clover::data::jinja {
namespace {

using Kind = Value::Kind;

/// The items that a slice selects: the first index, their number, and the step.
struct SliceRange {
  int64_t begin, end, step, count;
};

SliceRange taken(const Value& begin, const Value& end, const Value& step, int64_t length) {
  const int64_t by = step.is_none() ? 1 : index_of(step);
  if (by == 0) throw_error("a slice with a step of 0");
  const int64_t least = by > 0 ? 0 : -1, most = by > 0 ? length : length - 1;
  const auto bound = [&](const Value& at, int64_t fallback) {
    if (at.is_none()) return fallback;
    const int64_t index = index_of(at);
    return std::clamp(index < 0 ? index + length : index, least, most);
  };
  const int64_t first = bound(begin, by > 0 ? least : most), last = bound(end, by > 0 ? most : least);
  const int64_t span = by > 0 ? last - first : first - last;
  return {first, last, by, span > 0 ? (span - 1) / std::abs(by) + 1 : 0};
}

std::vector<Value> picked(const std::vector<Value>& items, const SliceRange& take) {
  std::vector<Value> kept;
  for (int64_t i = 0; i < take.count; ++i)
    kept.push_back(items[static_cast<size_t>(take.begin + i * take.step)]);
  return kept;
}

std::string picked(const std::string& text, const Value& begin, const Value& end, const Value& step) {
  const std::vector<size_t> starts = character_starts(text);
  const SliceRange take = taken(begin, end, step, std::ssize(starts) - 1);
  if (take.count == 0) return "";
  const auto at = [&](int64_t i) { return starts[static_cast<size_t>(i)]; };
  if (take.step == 1) return text.substr(at(take.begin), at(take.begin + take.count) - at(take.begin));
  std::string kept;
  for (int64_t i = 0, from = take.begin; i < take.count; ++i, from += take.step)
    kept += text.substr(at(from), at(from + 1) - at(from));
  return kept;
}

std::optional<Value> at_index(const std::vector<Value>& items, Integer index) {
  const Integer length = std::ssize(items), at = index < 0 ? index + length : index;
  if (at < 0 || at >= length) return std::nullopt;
  return items[static_cast<size_t>(at)];
}

/// value[key]; nothing when Python raises.
std::optional<Value> subscript(const Value& value, const Value& key) {
  if (value.is_dict()) {
    const Value* found = value.dict().find(key);
    return found != nullptr ? std::optional(*found) : std::nullopt;
  }
  if (!key.is_integral()) return std::nullopt;
  if (value.is_sequence()) return at_index(value.items(), key.integer());
  if (value.is_text()) {
    const Value next = Value::of(key.integer() + 1);
    if (key.integer() < -std::ssize(value.text()) || key.integer() >= std::ssize(value.text()))
      return std::nullopt;
    std::string character =
        picked(value.text(), key, key.integer() == -1 ? Value::none() : next, Value::none());
    if (character.empty()) return std::nullopt;
    return value.is_markup() ? Value::markup(std::move(character)) : Value::of(std::move(character));
  }
  if (const auto range = value.as<Range>()) {
    const Integer at = key.integer() < 0 ? key.integer() + range->count : key.integer();
    if (at >= 0 && at < range->count) return range->at(static_cast<int64_t>(at));
  }
  return std::nullopt;
}

}  // namespace

Items::Items(Value value)
    : value_(std::move(value)),
      view_(value_.as<View>()),
      range_(value_.as<Range>()),
      generator_(value_.as<Generator>()) {
  if (!has_items(value_)) throw_error(type_of(value_) + " has no items");
}

std::optional<Value> Items::next() {
  charge_work(1);
  if (generator_) return generator_->next();
  if (value_.is_text()) {
    const std::string& text = value_.text();
    if (at_ == text.size()) return std::nullopt;
    const size_t length = decode_utf8(text, at_).length;
    return Value::of(text.substr(std::exchange(at_, at_ + length), length));
  }
  if (value_.is_sequence() || view_) {
    const std::vector<Value>& items = view_ ? view_->items : value_.items();
    return at_ < items.size() ? std::optional(items[at_++]) : std::nullopt;
  }
  if (value_.is_dict()) {
    const auto& items = value_.dict().items;
    return at_ < items.size() ? std::optional(items[at_++].first) : std::nullopt;
  }
  if (range_ && static_cast<int64_t>(at_) < range_->count) return range_->at(static_cast<int64_t>(at_++));
  return std::nullopt;
}

bool has_items(const Value& value) {
  return value.is_undefined() || value.is_text() || value.is_sequence() || value.is_dict() ||
         value.as<View>() || value.as<Range>() || value.as<Generator>();
}

std::vector<Value> items_of(const Value& value) {
  constexpr size_t longest_text = 1 << 20;
  if (value.is_text() && value.text().size() > longest_text)
    throw_error("the characters of a text of more than a megabyte");
  std::vector<Value> all;
  Items items(value);
  while (std::optional<Value> item = items.next()) all.push_back(std::move(*item));
  return all;
}

int64_t length_of(const Value& value) {
  if (value.is_undefined()) return 0;
  if (value.is_text()) {
    return count_characters(value.text());
  }
  if (value.is_sequence()) return std::ssize(value.items());
  if (value.is_dict()) return std::ssize(value.dict().items);
  if (const auto view = value.as<View>()) return std::ssize(view->items);
  if (const auto range = value.as<Range>()) return range->count;
  throw_error("the length of " + type_of(value));
}

Value item_of(const Value& value, const Value& key) {
  if (value.is_undefined()) throw_error("a part of something undefined");
  if (std::optional<Value> found = subscript(value, key)) return *found;
  return key.is_text() ? get_attribute(value, key.text()).value_or(Value()) : Value();
}

Value attribute_of(const Value& value, const std::string& name) {
  if (value.is_undefined()) throw_error("a part of something undefined");
  if (std::optional<Value> found = get_attribute(value, name)) return *found;
  if (!value.is_dict()) return {};
  const Value* found = value.dict().find(name);
  return found != nullptr ? *found : Value();
}

Value slice_of(const Value& value, const Value& begin, const Value& end, const Value& step) {
  if (value.is_undefined()) throw_error("a part of something undefined");
  if (value.is_text()) {
    std::string text = picked(value.text(), begin, end, step);
    return value.is_markup() ? Value::markup(std::move(text)) : Value::of(std::move(text));
  }
  if (value.is_sequence()) {
    std::vector<Value> kept = picked(value.items(), taken(begin, end, step, std::ssize(value.items())));
    return value.kind() == Kind::list ? Value::list(std::move(kept)) : Value::tuple(std::move(kept));
  }
  if (const auto range = value.as<Range>()) {
    const SliceRange take = taken(begin, end, step, range->count);
    const auto at = [&](int64_t index) { return range->begin + index * range->step; };
    return Value::of(
        std::make_shared<Range>(at(take.begin), at(take.end), range->step * take.step, take.count));
  }
  throw_error("a slice of " + type_of(value));
}

}  // namespace clover::data::jinja
