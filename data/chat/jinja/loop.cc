#include "data/chat/jinja/loop.h"

#include "data/chat/jinja/values/printing.h"

namespace clover::data::jinja {

std::optional<Value> Loop::fetched() const {
  if (rest_) return rest_at_ < rest_->size() ? std::optional((*rest_)[rest_at_++]) : std::nullopt;
  while (std::optional<Value> item = items_.next())
    if (!keep_ || keep_(*item)) return item;
  return std::nullopt;
}

const std::optional<Value>& Loop::following() const {
  if (!after_) after_ = fetched();
  return *after_;
}

int64_t Loop::length() const {
  if (length_) return *length_;
  std::vector<Value> rest;
  while (std::optional<Value> item = fetched()) rest.push_back(std::move(*item));
  length_ = std::ssize(rest) + at_ + 1 + (after_ && *after_ ? 1 : 0);
  rest_ = std::move(rest);
  return *length_;
}

std::optional<Value> Loop::advance() {
  std::optional<Value> item = after_ ? *after_ : fetched();
  after_.reset();
  if (!item) return std::nullopt;
  ++at_;
  before_ = now_;
  now_ = *item;
  return item;
}

std::optional<Value> Loop::attribute(const std::string& name) const {
  const auto number = [](int64_t value) { return Value::of(Integer{value}); };
  if (name == "index") return number(at_ + 1);
  if (name == "index0") return number(at_);
  if (name == "first") return Value::of(at_ == 0);
  if (name == "last") return Value::of(!following());
  if (name == "length") return number(length());
  if (name == "revindex") return number(length() - at_);
  if (name == "revindex0") return number(length() - at_ - 1);
  if (name == "previtem") return at_ == 0 ? Value() : before_;
  if (name == "nextitem") return following().value_or(Value());
  if (name == "depth") return number(depth0_ + 1);
  if (name == "depth0") return number(depth0_);
  return std::nullopt;
}

std::string Loop::shown() const {
  return "<LoopContext " + std::to_string(at_ + 1) + "/" + std::to_string(length()) + ">";
}

Value Loop::call(const std::string& name, const Arguments& arguments) {
  const Bound bound("*", "loop." + name + "()", arguments);
  if (name == "cycle") {
    if (bound.rest().empty()) refuse("a cycle of nothing");
    return bound.rest()[static_cast<size_t>(at_) % bound.rest().size()];
  }
  const Value given = Value::tuple(bound.rest());
  if (changed_ && equal(*changed_, given)) return Value::of(false);
  changed_ = given;
  return Value::of(true);
}

}  // namespace clover::data::jinja
