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

// Python's values in templates.  All are immutable, except namespaces, cyclers and joiners.
namespace clover::data::jinja {

/// JSON that keeps the order of keys, as Python's dict does.
using json = nlohmann::ordered_json;
/// Python's integers are unbounded; here those beyond 128 bits are an error.
__extension__ typedef __int128 Integer;

/// The template uses a feature of jinja2 or Python that we do not support.
class Unsupported : public InputError {
 public:
  using InputError::InputError;
};
/// The template called raise_exception(), with this message.
class TemplateRaised : public InputError {
 public:
  using InputError::InputError;
};
[[noreturn]] inline void throw_unsupported(const std::string& what) {
  throw Unsupported(what + " is not supported");
}
[[noreturn]] inline void throw_error(const std::string& what) {
  throw InputError(what);
}

class Value;
struct Dict;

/// Base of all other values, of Kind::object: functions, generators, namespaces, ..
struct Object {
  virtual ~Object() = default;
  virtual std::string type() const = 0;  // Python's name of the type
  /// An attribute; nothing when there is none of that name.
  virtual std::optional<Value> attribute(const std::string& name) const;
  /// repr(); Unsupported where Python would print an address.
  virtual std::string repr() const;
  int depth = 0;  // as Value::depth
};

/// A value.  Texts, items and dicts are shared, so that reading a conversation does not copy it.
class Value {
 public:
  enum class Kind : uint8_t { undefined, none, boolean, integer, real, text, list, tuple, dict, object };

  Value() = default;  // undefined
  static Value none();
  static Value of(bool value);
  static Value of(Integer value);
  static Value of(double value);
  static Value of(std::string value);
  /// A text that is safe HTML (markupsafe's Markup): texts that are joined with it are escaped.
  static Value markup(std::string value);
  static Value list(std::vector<Value> items);
  static Value tuple(std::vector<Value> items);
  /// A result of the filter groupby: a tuple (grouper, list) with named items.
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
  bool is_integral() const { return kind_ == Kind::boolean || kind_ == Kind::integer; }
  bool is_number() const { return is_integral() || kind_ == Kind::real; }

  // Each only for values of that kind.
  Integer integer() const { return integer_; }
  double real() const { return kind_ == Kind::real ? real_ : static_cast<double>(integer_); }
  const std::string& text() const;
  const std::vector<Value>& items() const;  // of a list or a tuple
  const Dict& dict() const;
  const std::shared_ptr<Object>& object() const { return object_; }
  /// The object if it is of class Type, or null.
  template <class Type>
  std::shared_ptr<Type> as() const {
    return std::dynamic_pointer_cast<Type>(object_);
  }
  /// Python's "is" for values with shared contents: texts, lists, tuples, dicts and objects.
  bool is_same_object(const Value& other) const {
    return kind_ == other.kind_ && data_ == other.data_ && object_ == other.object_;
  }
  int depth() const;  // nesting of lists, dicts and objects; 0: contains no values

 private:
  Kind kind_ = Kind::undefined;
  bool markup_ = false;  // a text is markup; a tuple is a group
  union {
    Integer integer_ = 0;
    double real_;
  };
  std::shared_ptr<const void> data_;  // of kind text, list, tuple or dict: its contents
  std::shared_ptr<Object> object_;
};

/// A dict; items are in order of insertion.
struct Dict {
  std::vector<std::pair<Value, Value>> items;

  const Value* find(const Value& key) const;
  const Value* find(std::string_view key) const;
  /// Inserts or replaces.  InputError for a key that Python cannot hash.
  void set(const Value& key, Value value);
};

/// dict.keys(), values() and items().
struct View : Object {
  View(std::string name, std::vector<Value> parts);
  std::string type() const override { return name; }
  std::string repr() const override;
  std::string name;
  std::vector<Value> items;
};

struct Range : Object {
  Range(int64_t begin, int64_t end, int64_t step, int64_t count)
      : begin(begin), end(end), step(step), count(count) {}
  std::string type() const override { return "range"; }
  std::string repr() const override;
  Value at(int64_t index) const { return Value::of(Integer{begin} + Integer{index} * step); }
  int64_t begin, end, step, count;
};

/// A generator: items are computed when they are needed, and only once.
struct Generator : Object {
  Generator(std::string name, int source_depth, std::function<std::optional<Value>()> next);
  std::string type() const override { return name; }
  std::string name;
  std::function<std::optional<Value>()> next;
};

/// A bound method.
struct Method : Object {
  Method(Value self, std::string name);
  std::string type() const override { return "builtin_function_or_method"; }
  Value self;
  std::string name;
};

/// A global function of templates: range, dict, ..
struct Function : Object {
  explicit Function(std::string name) : name(std::move(name)) {}
  std::string type() const override { return "function"; }
  std::string name;
};

}  // namespace clover::data::jinja
