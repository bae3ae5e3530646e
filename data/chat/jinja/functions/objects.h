#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "data/chat/jinja/values/operators.h"
#include "data/chat/jinja/values/signature.h"

// Functions that every template has, and what they make.
namespace clover::data::jinja {

/// Of namespace(): what {% set name.part = .. %} changes.
struct Space : Object {
  std::string type() const override { return "Namespace"; }
  std::optional<Value> attribute(const std::string& name) const override;
  std::string shown() const override;
  std::vector<std::pair<std::string, Value>> values;

  const Value* find(const std::string& name) const;
  void set(const std::string& name, Value value);
};

struct Cycler : Object {
  explicit Cycler(std::vector<Value> of_items);
  std::string type() const override { return "Cycler"; }
  std::optional<Value> attribute(const std::string& name) const override;
  Value moved(bool to_begin);
  std::vector<Value> items;
  size_t at = 0;
};

struct Joiner : Object {
  explicit Joiner(Value separator) : separator(std::move(separator)) { depth = this->separator.depth() + 1; }
  std::string type() const override { return "Joiner"; }
  std::optional<Value> attribute(const std::string& name) const override;
  Value called();
  Value separator;
  bool used = false;
};

/// Whether every template has a function of that name.
bool is_function(const std::string& name);
/// Of range, dict, cycler, joiner and strftime_now; namespaces are made by whoever keeps them.
Value call_function(const std::string& name, const Arguments& arguments);
std::shared_ptr<Space> new_space(const Arguments& arguments);
Value new_dict(const Arguments& arguments);
Value new_dict_of_keys(const Arguments& arguments);
/// What an object has under that name, as Python's getattr; nothing where it has none, undefined where the
/// sandbox keeps it away.
std::optional<Value> own_attribute(const Value& value, const std::string& name);

}  // namespace clover::data::jinja
