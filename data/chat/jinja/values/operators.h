#pragma once

#include <string>

#include "data/chat/jinja/values/values.h"

// What Python's operators do.  InputError where Python refuses.
namespace clover::data::jinja {

std::string type_of(const Value& value);  // as Python names it
bool is_true(const Value& value);
bool equal(const Value& one, const Value& other);
/// Whether one is less than the other.
bool less(const Value& one, const Value& other);
/// One of == != < <= > >= in "not in".
bool compare(const std::string& by, const Value& one, const Value& other);
/// One of + - * / // % **.
Value calculate(const std::string& by, const Value& one, const Value& other);
Value negated(const Value& value);
void check_hashable(const Value& value);
/// With &, <, > and quotes escaped; what is markup stays.
std::string escaped(const Value& value);

int64_t length_of(const Value& value);
/// A number in the range of indices; InputError where it is none.
int64_t index_of(const Value& value);

/// The items of a value, one after another.
class Items {
 public:
  explicit Items(Value value);
  std::optional<Value> next();

 private:
  Value value_;
  std::shared_ptr<View> view_;
  std::shared_ptr<Range> range_;
  std::shared_ptr<Generator> generator_;
  size_t at_ = 0;
};
bool has_items(const Value& value);
std::vector<Value> items_of(const Value& value);

/// value[key] and value.name as Hugging Face's sandbox finds them; undefined where there is none.
Value item_of(const Value& value, const Value& key);
Value attribute_of(const Value& value, const std::string& name);
/// value[begin : end : step], none where nothing is said.
Value slice_of(const Value& value, const Value& begin, const Value& end, const Value& step);

}  // namespace clover::data::jinja
