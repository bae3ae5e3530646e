#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "data/chat/jinja/values/values.h"

namespace clover::data::jinja {

/// Names of a part of a template and their values, found by the numbers of the names; what is not here may be
/// in the part around it.
struct Scope {
  explicit Scope(std::shared_ptr<Scope> around) : around(std::move(around)) {}

  const Value* find(int symbol) const {
    for (const Scope* scope = this; scope != nullptr; scope = scope->around.get())
      for (const auto& [own, value] : scope->values)
        if (own == symbol) return &value;
    return nullptr;
  }
  void set(int symbol, Value value) {
    for (auto& [own, old] : values)
      if (own == symbol) return void(old = std::move(value));
    values.emplace_back(symbol, std::move(value));
  }

  std::shared_ptr<Scope> around;
  std::vector<std::pair<int, Value>> values;
};

}  // namespace clover::data::jinja
