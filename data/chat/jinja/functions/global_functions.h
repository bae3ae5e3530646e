#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "data/chat/jinja/values/operators.h"
#include "data/chat/jinja/values/signature.h"

// The global functions of templates, and the objects that they create.
namespace clover::data::jinja {

/// The result of namespace(): {% set name.attribute = .. %} changes it.
struct Namespace : Object {
  std::string type() const override { return "Namespace"; }
  std::optional<Value> attribute(const std::string& name) const override;
  std::string repr() const override;
  std::vector<std::pair<std::string, Value>> values;

  const Value* find(const std::string& name) const;
  void set(const std::string& name, Value value);
};

/// The result of cycler(): next() returns its items in turn, without end.
struct Cycler : Object {
  explicit Cycler(std::vector<Value> new_items);
  std::string type() const override { return "Cycler"; }
  std::optional<Value> attribute(const std::string& name) const override;
  /// next() or, `to_begin`, reset().
  Value advance_or_reset(bool to_begin);
  std::vector<Value> items;
  size_t position = 0;  // of the next item
};

/// The result of joiner(): "" at its first call, `separator` at later ones.
struct Joiner : Object {
  explicit Joiner(Value separator) : separator(std::move(separator)) { depth = this->separator.depth() + 1; }
  std::string type() const override { return "Joiner"; }
  std::optional<Value> attribute(const std::string& name) const override;
  Value call();
  Value separator;
  bool called_before = false;
};

/// Whether there is a global function of that name.
bool is_function(const std::string& name);
/// Calls range, dict, cycler, joiner or strftime_now.  The renderer calls new_namespace itself, to keep track
/// of all namespaces.
Value call_function(const std::string& name, const Arguments& arguments);
std::shared_ptr<Namespace> new_namespace(const Arguments& arguments);
Value new_dict(const Arguments& arguments);          // dict()
Value new_dict_of_keys(const Arguments& arguments);  // dict.fromkeys()
/// Python's getattr: nothing when the value has no such attribute, undefined when the sandbox hides it.
std::optional<Value> get_attribute(const Value& value, const std::string& name);

}  // namespace clover::data::jinja
