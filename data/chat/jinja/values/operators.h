#pragma once

#include <string>

#include "data/chat/jinja/values/values.h"

// Python's operators.  InputError where Python raises an error.
namespace clover::data::jinja {

std::string type_of(const Value& value);  // for error messages: "a text"
bool is_true(const Value& value);         // Python's bool()
bool equal(const Value& left, const Value& right);
bool less(const Value& left, const Value& right);  // left < right
/// left op right; `op` is one of == != < <= > >= in "not in".
bool compare(const std::string& op, const Value& left, const Value& right);
/// left op right; `op` is one of + - * / // % **.
Value calculate(const std::string& op, const Value& left, const Value& right);
Value negated(const Value& value);
void check_hashable(const Value& value);  // InputError for a value that cannot be a key of a dict
/// str(value) with &, <, > and quotes escaped; markup stays as it is.
std::string escaped(const Value& value);

int64_t length_of(const Value& value);  // Python's len()
/// An integer as an index; InputError for other types.
int64_t index_of(const Value& value);

/// Iterates over the items of a value.
class Items {
 public:
  explicit Items(Value value);
  std::optional<Value> next();  // nothing at the end

 private:
  Value value_;
  std::shared_ptr<View> view_;
  std::shared_ptr<Range> range_;
  std::shared_ptr<Generator> generator_;
  size_t position_ = 0;
};
bool has_items(const Value& value);  // whether it can be iterated over
std::vector<Value> items_of(const Value& value);

/// value[key] and value.name as in jinja2's sandbox: undefined when there is no such item or attribute.
Value item_of(const Value& value, const Value& key);
Value attribute_of(const Value& value, const std::string& name);
/// value[begin : end : step]; an absent part is none.
Value slice_of(const Value& value, const Value& begin, const Value& end, const Value& step);

}  // namespace clover::data::jinja
