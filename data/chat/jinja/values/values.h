#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "data/chat/jinja/values/limits.h"
#include "data/files/error.h"

// Values of a template, as Python has them: nothing of one changes but namespaces and cyclers.
namespace clover::data::jinja {

/// Keeps the order of keys, as Python does.
using json = nlohmann::ordered_json;
/// Python's have no bound; beyond this one they are refused.
__extension__ typedef __int128 Integer;

/// What a template asks for and we lack.
class Unsupported : public InputError {
 public:
  using InputError::InputError;
};
/// What a template itself refuses, in its own words.
class Raised : public InputError {
 public:
  using InputError::InputError;
};
[[noreturn]] inline void lack(const std::string& what) {
  throw Unsupported(what + " is not supported");
}
[[noreturn]] inline void refuse(const std::string& what) {
  throw InputError(what);
}

class Value;
struct Dict;

/// What is none of the plain types: a function, a generator, a namespace.
struct Object {
  virtual ~Object() = default;
  virtual std::string type() const = 0;  // as Python names it
  /// What it has under that name; nothing where it has none.
  virtual std::optional<Value> attribute(const std::string& name) const;
  /// repr(); Unsupported where Python writes an address.
  virtual std::string shown() const;
  int depth = 0;  // of values within each other
};

/// Parts are shared, so that looking into a conversation copies none of it.
class Value {
 public:
  enum class Kind : uint8_t { undefined, none, boolean, integer, real, text, list, tuple, dict, object };

  Value() = default;  // undefined
  static Value none();
  static Value of(bool value);
  static Value of(Integer value);
  static Value of(double value);
  static Value of(std::string value);
  /// A text whose special characters were escaped: those of texts that it meets are escaped then.
  static Value markup(std::string value);
  static Value list(std::vector<Value> items);
  static Value tuple(std::vector<Value> items);
  /// Of the filter groupby: a tuple whose items have names.
  static Value group(Value grouper, Value list);
  static Value of(Dict dict);
  static Value of(std::shared_ptr<Object> object);
  static Value of_json(const json& value);

  Kind kind() const { return kind_; }
  bool is_undefined() const { return kind_ == Kind::undefined; }
  bool is_none() const { return kind_ == Kind::none; }
  bool is_text() const { return kind_ == Kind::text; }
  bool is_markup() const { return is_text() && markup_; }
  bool is_dict() const { return kind_ == Kind::dict; }
  bool is_group() const { return kind_ == Kind::tuple && markup_; }
  bool is_sequence() const { return kind_ == Kind::list || kind_ == Kind::tuple; }
  bool is_whole() const { return kind_ == Kind::boolean || kind_ == Kind::integer; }
  bool is_number() const { return is_whole() || kind_ == Kind::real; }

  // Of the kinds that are asked for.
  Integer whole() const { return integer_; }
  double real() const { return kind_ == Kind::real ? real_ : static_cast<double>(integer_); }
  const std::string& text() const;
  const std::vector<Value>& items() const;  // of a list or a tuple
  const Dict& dict() const;
  const std::shared_ptr<Object>& object() const { return object_; }
  /// The object of that class, or null.
  template <class Type>
  std::shared_ptr<Type> as() const {
    return std::dynamic_pointer_cast<Type>(object_);
  }
  bool shares(const Value& other) const {
    return kind_ == other.kind_ && data_ == other.data_ && object_ == other.object_;
  }
  int depth() const;

 private:
  Kind kind_ = Kind::undefined;
  bool markup_ = false;  // of a tuple: its items have names
  union {
    Integer integer_ = 0;
    double real_;
  };
  std::shared_ptr<const void> data_;  // a text, items or a dict
  std::shared_ptr<Object> object_;
};

/// In the order in which keys came.
struct Dict {
  std::vector<std::pair<Value, Value>> items;

  const Value* find(const Value& key) const;
  const Value* find(std::string_view key) const;
  /// Takes the place of what the key had.  InputError where Python could not hash the key.
  void set(const Value& key, Value value);
};

/// dict.keys() and its like.
struct View : Object {
  View(std::string name, std::vector<Value> parts);
  std::string type() const override { return name; }
  std::string shown() const override;
  std::string name;
  std::vector<Value> items;
};

struct Range : Object {
  Range(int64_t begin, int64_t end, int64_t step, int64_t count)
      : begin(begin), end(end), step(step), count(count) {}
  std::string type() const override { return "range"; }
  std::string shown() const override;
  Value at(int64_t index) const { return Value::of(Integer{begin} + Integer{index} * step); }
  int64_t begin, end, step, count;
};

/// Items that are made when they are asked for, once.
struct Generator : Object {
  Generator(std::string name, int of_depth, std::function<std::optional<Value>()> next);
  std::string type() const override { return name; }
  std::string name;
  std::function<std::optional<Value>()> next;
};

/// A method of a value, not called yet.
struct Method : Object {
  Method(Value self, std::string name);
  std::string type() const override { return "builtin_function_or_method"; }
  Value self;
  std::string name;
};

/// range, dict and other functions that every template has.
struct Function : Object {
  explicit Function(std::string name) : name(std::move(name)) {}
  std::string type() const override { return "function"; }
  std::string name;
};

}  // namespace clover::data::jinja
