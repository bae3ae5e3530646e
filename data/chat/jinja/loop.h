#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/chat/jinja/syntax/syntax.h"
#include "data/chat/jinja/values/operators.h"
#include "data/chat/jinja/values/signature.h"

namespace clover::data::jinja {

struct Scope;

/// What "loop" is within a loop.  Items are asked for when they are needed, as Jinja does.
class Loop : public Object {
 public:
  using Keep = std::function<bool(const Value&)>;

  /// `keep`: which items there are at all; empty: all.
  Loop(const Value& items, Keep keep, int depth0) : items_(items), keep_(std::move(keep)), depth0_(depth0) {
    if (!keep_ && !items.as<Generator>() && !items.is_text()) length_ = length_of(items);
  }

  std::string type() const override { return "LoopContext"; }
  std::optional<Value> attribute(const std::string& name) const override;
  std::string shown() const override;

  /// The next item, which is then the current one.
  std::optional<Value> advance();
  /// loop.cycle() and loop.changed().
  Value call(const std::string& name, const Arguments& arguments);
  int depth0() const { return depth0_; }

  // Of a recursive one: what it writes for other items, and where its names are.
  const Statement* statement = nullptr;
  std::shared_ptr<Scope> scope;

 private:
  std::optional<Value> fetched() const;
  const std::optional<Value>& following() const;
  int64_t length() const;

  mutable Items items_;
  Keep keep_;
  const int depth0_;
  int64_t at_ = -1;
  Value now_, before_;
  mutable std::optional<int64_t> length_;
  mutable std::optional<std::optional<Value>> after_;  // once it was looked at
  mutable std::optional<std::vector<Value>> rest_;     // once all were counted
  mutable size_t rest_at_ = 0;
  std::optional<Value> changed_;
};

}  // namespace clover::data::jinja
