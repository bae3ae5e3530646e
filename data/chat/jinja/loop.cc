#include "data/chat/jinja/loop.h"

#include "data/chat/jinja/values/printing.h"

namespace clover::data::jinja {

std::optional<Value> Loop::fetch_item() const {
  if (remaining_)
    return remaining_position_ < remaining_->size() ? std::optional((*remaining_)[remaining_position_++])
                                                    : std::nullopt;
  while (std::optional<Value> item = items_.next())
    if (!condition_ || condition_(*item)) return item;
  return std::nullopt;
}

const std::optional<Value>& Loop::peek_next() const {
  if (!next_item_) next_item_ = fetch_item();
  return *next_item_;
}

int64_t Loop::length() const {
  if (length_) return *length_;
  std::vector<Value> remaining;
  while (std::optional<Value> item = fetch_item()) remaining.push_back(std::move(*item));
  length_ = std::ssize(remaining) + index0_ + 1 + (next_item_ && *next_item_ ? 1 : 0);
  remaining_ = std::move(remaining);
  return *length_;
}

std::optional<Value> Loop::advance() {
  std::optional<Value> item = next_item_ ? *next_item_ : fetch_item();
  next_item_.reset();
  if (!item) return std::nullopt;
  ++index0_;
  previous_ = current_;
  current_ = *item;
  return item;
}

std::optional<Value> Loop::attribute(const std::string& name) const {
  const auto number = [](int64_t value) { return Value::of(Integer{value}); };
  if (name == "index") return number(index0_ + 1);
  if (name == "index0") return number(index0_);
  if (name == "first") return Value::of(index0_ == 0);
  if (name == "last") return Value::of(!peek_next());
  if (name == "length") return number(length());
  if (name == "revindex") return number(length() - index0_);
  if (name == "revindex0") return number(length() - index0_ - 1);
  if (name == "previtem") return index0_ == 0 ? Value() : previous_;
  if (name == "nextitem") return peek_next().value_or(Value());
  if (name == "depth") return number(depth0_ + 1);
  if (name == "depth0") return number(depth0_);
  return std::nullopt;
}

std::string Loop::repr() const {
  return "<LoopContext " + std::to_string(index0_ + 1) + "/" + std::to_string(length()) + ">";
}

Value Loop::call(const std::string& name, const Arguments& arguments) {
  const BoundArguments bound("*", "loop." + name + "()", arguments);
  if (name == "cycle") {
    if (bound.varargs().empty()) throw_error("a cycle of nothing");
    return bound.varargs()[static_cast<size_t>(index0_) % bound.varargs().size()];
  }
  const Value values = Value::tuple(bound.varargs());
  if (last_changed_values_ && equal(*last_changed_values_, values)) return Value::of(false);
  last_changed_values_ = values;
  return Value::of(true);
}

}  // namespace clover::data::jinja
