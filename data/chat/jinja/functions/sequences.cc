#include <algorithm>

#include "data/chat/jinja/functions/functions.h"
#include "data/chat/jinja/functions/global_functions.h"
#include "data/chat/jinja/values/operators.h"
#include "data/chat/jinja/values/texts.h"
#include "data/text/utf8.h"

// Subscripts, slices and iteration of lists, texts and other containers.
namespace clover::data::jinja {
namespace {

using Kind = Value::Kind;

/// The indices that a slice selects: begin, begin + step, .., `count` of them, before `end`.
struct SliceRange {
  int64_t begin, end, step, count;
};

/// The slice [begin : end : step] of a sequence of `length` items.
SliceRange resolve_slice(const Value& begin, const Value& end, const Value& step, int64_t length) {
  const int64_t stride = step.is_none() ? 1 : index_of(step);
  if (stride == 0) throw_error("a slice with a step of 0");
  const int64_t min_index = stride > 0 ? 0 : -1, max_index = stride > 0 ? length : length - 1;
  const auto bound = [&](const Value& at, int64_t fallback) {
    if (at.is_none()) return fallback;
    const int64_t index = index_of(at);
    return std::clamp(index < 0 ? index + length : index, min_index, max_index);
  };
  const int64_t first = bound(begin, stride > 0 ? min_index : max_index),
                last = bound(end, stride > 0 ? max_index : min_index);
  const int64_t span = stride > 0 ? last - first : first - last;
  return {first, last, stride, span > 0 ? (span - 1) / std::abs(stride) + 1 : 0};
}

std::vector<Value> select_slice(const std::vector<Value>& items, const SliceRange& slice) {
  std::vector<Value> selected;
  for (int64_t i = 0; i < slice.count; ++i)
    selected.push_back(items[static_cast<size_t>(slice.begin + i * slice.step)]);
  return selected;
}

std::string select_slice(const std::string& text, const Value& begin, const Value& end, const Value& step) {
  const std::vector<size_t> starts = character_starts(text);
  const SliceRange slice = resolve_slice(begin, end, step, std::ssize(starts) - 1);
  if (slice.count == 0) return "";
  const auto at = [&](int64_t i) { return starts[static_cast<size_t>(i)]; };
  if (slice.step == 1) return text.substr(at(slice.begin), at(slice.begin + slice.count) - at(slice.begin));
  std::string selected;
  for (int64_t i = 0, from = slice.begin; i < slice.count; ++i, from += slice.step)
    selected += text.substr(at(from), at(from + 1) - at(from));
  return selected;
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
        select_slice(value.text(), key, key.integer() == -1 ? Value::none() : next, Value::none());
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
  charge_template_work(1);
  if (generator_) return generator_->next();
  if (value_.is_text()) {
    const std::string& text = value_.text();
    if (position_ == text.size()) return std::nullopt;
    const size_t length = decode_utf8(text, position_).length;
    return Value::of(text.substr(std::exchange(position_, position_ + length), length));
  }
  if (value_.is_sequence() || view_) {
    const std::vector<Value>& items = view_ ? view_->items : value_.items();
    return position_ < items.size() ? std::optional(items[position_++]) : std::nullopt;
  }
  if (value_.is_dict()) {
    const auto& items = value_.dict().items;
    return position_ < items.size() ? std::optional(items[position_++].first) : std::nullopt;
  }
  if (range_ && static_cast<int64_t>(position_) < range_->count)
    return range_->at(static_cast<int64_t>(position_++));
  return std::nullopt;
}

bool has_items(const Value& value) {
  return value.is_undefined() || value.is_text() || value.is_sequence() || value.is_dict() ||
         value.as<View>() || value.as<Range>() || value.as<Generator>();
}

std::vector<Value> items_of(const Value& value) {
  constexpr size_t max_text_size = 1 << 20;  // bytes
  if (value.is_text() && value.text().size() > max_text_size)
    throw_error("the characters of a text of more than a megabyte");
  std::vector<Value> result;
  Items items(value);
  while (std::optional<Value> item = items.next()) result.push_back(std::move(*item));
  return result;
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
    std::string text = select_slice(value.text(), begin, end, step);
    return value.is_markup() ? Value::markup(std::move(text)) : Value::of(std::move(text));
  }
  if (value.is_sequence()) {
    std::vector<Value> selected =
        select_slice(value.items(), resolve_slice(begin, end, step, std::ssize(value.items())));
    return value.kind() == Kind::list ? Value::list(std::move(selected)) : Value::tuple(std::move(selected));
  }
  if (const auto range = value.as<Range>()) {
    const SliceRange slice = resolve_slice(begin, end, step, range->count);
    const auto at = [&](int64_t index) { return range->begin + index * range->step; };
    return Value::of(
        std::make_shared<Range>(at(slice.begin), at(slice.end), range->step * slice.step, slice.count));
  }
  throw_error("a slice of " + type_of(value));
}

}  // namespace clover::data::jinja
