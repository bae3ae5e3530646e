#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "data/chat/jinja/values/values.h"

namespace clover::data::jinja {

/// A scope of variables, by symbol, the number of an interned name (Program::names).  `find` also searches
/// the parents.
struct Scope {
  explicit Scope(std::shared_ptr<Scope> parent) : parent(std::move(parent)) {}

  const Value* find(int symbol) const {
    for (const Scope* scope = this; scope != nullptr; scope = scope->parent.get())
      for (const auto& [key, value] : scope->values)
        if (key == symbol) return &value;
    return nullptr;
  }
  void set(int symbol, Value value) {
    for (auto& [key, old] : values)
      if (key == symbol) return void(old = std::move(value));
    values.emplace_back(symbol, std::move(value));
  }

  std::shared_ptr<Scope> parent;
  std::vector<std::pair<int, Value>> values;  // symbol and value
};

}  // namespace clover::data::jinja
