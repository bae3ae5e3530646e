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

/// The variable "loop" inside a {% for %}.  As in jinja2, items are computed when they are needed.
class Loop : public Object {
 public:
  using Condition = std::function<bool(const Value&)>;

  /// `condition`: the loop's "if", which selects items; empty: all items.  `depth0`: its recursion depth,
  /// from 0.
  Loop(const Value& items, Condition condition, int depth0)
      : items_(items), condition_(std::move(condition)), depth0_(depth0) {
    if (!condition_ && !items.as<Generator>() && !items.is_text()) length_ = length_of(items);
  }

  std::string type() const override { return "LoopContext"; }
  std::optional<Value> attribute(const std::string& name) const override;
  std::string repr() const override;

  /// Moves to the next item and returns it; nothing at the end.
  std::optional<Value> advance();
  /// Calls loop.cycle() or loop.changed().
  Value call(const std::string& name, const Arguments& arguments);
  int depth0() const { return depth0_; }

  // Set for a recursive loop: its statement, and the scope in which it runs again.
  const Statement* statement = nullptr;
  std::shared_ptr<Scope> scope;

 private:
  std::optional<Value> fetch_item() const;
  const std::optional<Value>& peek_next() const;
  int64_t length() const;

  mutable Items items_;
  Condition condition_;
  const int depth0_;
  int64_t index0_ = -1;  // of the current item, from 0
  Value current_, previous_;
  mutable std::optional<int64_t> length_;
  mutable std::optional<std::optional<Value>>
      next_item_;  // the item after the current one, once it was fetched
  mutable std::optional<std::vector<Value>> remaining_;  // all items after it, once they were counted
  mutable size_t remaining_position_ = 0;
  std::optional<Value> last_changed_values_;  // arguments of the last loop.changed()
};

}  // namespace clover::data::jinja
