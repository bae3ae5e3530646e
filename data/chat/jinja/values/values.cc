#include "data/chat/jinja/values/values.h"

#include <algorithm>

#include "data/chat/jinja/values/operators.h"
#include "data/chat/jinja/values/printing.h"

namespace clover::data::jinja {
namespace {

struct HeldText {
  explicit HeldText(std::string text) : held_bytes(text.size()), value(std::move(text)) {}
  HeldBytes held_bytes;
  std::string value;
};

/// Value::depth of a container of these items.
int container_depth(const std::vector<Value>& items) {
  int deepest = 0;
  for (const Value& item : items) deepest = std::max(deepest, item.depth());
  if (deepest >= max_value_depth) throw_error("lists or dicts lie more than 100 deep within each other");
  return deepest + 1;
}

struct HeldItems {
  explicit HeldItems(std::vector<Value> items)
      : held_bytes(items.size() * sizeof(Value)), value(std::move(items)), depth(container_depth(value)) {
    charge_template_work(static_cast<int64_t>(value.size() / 4));
  }
  HeldBytes held_bytes;
  std::vector<Value> value;
  int depth;
};

struct HeldDict {
  explicit HeldDict(Dict dict)
      : held_bytes(2 * dict.items.size() * sizeof(Value)), value(std::move(dict)), depth(1) {
    for (const auto& [key, item] : value.items) depth = std::max({depth, key.depth() + 1, item.depth() + 1});
    if (depth > max_value_depth) throw_error("lists or dicts lie more than 100 deep within each other");
  }
  HeldBytes held_bytes;
  Dict value;
  int depth;
};

}  // namespace

Value Value::none() {
  Value value;
  value.kind_ = Kind::none;
  return value;
}

Value Value::of(bool boolean) {
  Value value;
  value.kind_ = Kind::boolean;
  value.integer_ = boolean;
  return value;
}

Value Value::of(Integer number) {
  Value value;
  value.kind_ = Kind::integer;
  value.integer_ = number;
  return value;
}

Value Value::of(double number) {
  Value value;
  value.kind_ = Kind::real;
  value.real_ = number;
  return value;
}

Value Value::of(std::string text) {
  check_size(text);
  charge_template_work(static_cast<int64_t>(text.size() >> 7));
  Value value;
  value.kind_ = Kind::text;
  value.data_ = std::make_shared<const HeldText>(std::move(text));
  return value;
}

Value Value::markup(std::string text) {
  Value value = of(std::move(text));
  value.markup_ = true;
  return value;
}

Value Value::list(std::vector<Value> items) {
  Value value;
  value.kind_ = Kind::list;
  value.data_ = std::make_shared<const HeldItems>(std::move(items));
  return value;
}

Value Value::tuple(std::vector<Value> items) {
  Value value = list(std::move(items));
  value.kind_ = Kind::tuple;
  return value;
}

Value Value::group(Value grouper, Value list) {
  Value value = tuple({std::move(grouper), std::move(list)});
  value.markup_ = true;
  return value;
}

Value Value::of(Dict dict) {
  Value value;
  value.kind_ = Kind::dict;
  value.data_ = std::make_shared<const HeldDict>(std::move(dict));
  return value;
}

Value Value::of(std::shared_ptr<Object> object) {
  Value value;
  value.kind_ = Kind::object;
  value.object_ = std::move(object);
  return value;
}

Value Value::of_json(const json& value) {
  switch (value.type()) {
    case json::value_t::null:
      return none();
    case json::value_t::boolean:
      return of(value.get<bool>());
    case json::value_t::number_integer:
      return of(Integer{value.get<int64_t>()});
    case json::value_t::number_unsigned:
      return of(Integer{value.get<uint64_t>()});
    case json::value_t::number_float:
      return of(value.get<double>());
    case json::value_t::string:
      return of(value.get<std::string>());
    case json::value_t::array: {
      std::vector<Value> items;
      for (const json& item : value) items.push_back(of_json(item));
      return list(std::move(items));
    }
    case json::value_t::object: {
      Dict dict;
      for (const auto& item : value.items())
        dict.items.emplace_back(of(item.key()), of_json(item.value()));  // JSON keys are unique
      return of(std::move(dict));
    }
    default:
      return {};
  }
}

const std::string& Value::text() const {
  return static_cast<const HeldText*>(data_.get())->value;
}
const std::vector<Value>& Value::items() const {
  return static_cast<const HeldItems*>(data_.get())->value;
}
const Dict& Value::dict() const {
  return static_cast<const HeldDict*>(data_.get())->value;
}

int Value::depth() const {
  if (is_sequence()) return static_cast<const HeldItems*>(data_.get())->depth;
  if (is_dict()) return static_cast<const HeldDict*>(data_.get())->depth;
  return object_ ? object_->depth : 0;
}

const Value* Dict::find(std::string_view key) const {
  charge_template_work(static_cast<int64_t>(items.size() >> 3));
  for (const auto& [own_key, value] : items)
    if (own_key.is_text() && own_key.text() == key) return &value;
  return nullptr;
}

const Value* Dict::find(const Value& key) const {
  if (key.is_text()) return find(key.text());
  check_hashable(key);
  charge_template_work(static_cast<int64_t>(items.size() >> 3));
  for (const auto& [own_key, value] : items)
    if (equal(own_key, key)) return &value;
  return nullptr;
}

void Dict::set(const Value& key, Value value) {
  const Value* found = find(key);
  if (found == nullptr) return void(items.emplace_back(key, std::move(value)));
  for (auto& item : items)
    if (&item.second == found) item.second = std::move(value);
}

std::optional<Value> Object::attribute(const std::string&) const {
  return std::nullopt;
}
std::string Object::repr() const {
  throw_unsupported("the text of a " + type());
}

std::string View::repr() const {
  return name + "(" + jinja::repr(Value::list(items)) + ")";
}
std::string Range::repr() const {
  return "range(" + integer_digits(begin) + ", " + integer_digits(end) +
         (step == 1 ? "" : ", " + integer_digits(step)) + ")";
}

View::View(std::string type_name, std::vector<Value> parts)
    : name(std::move(type_name)), items(std::move(parts)) {
  depth = container_depth(items);
}

Generator::Generator(std::string type_name, int source_depth, std::function<std::optional<Value>()> next_item)
    : name(std::move(type_name)), next(std::move(next_item)) {
  depth = source_depth + 1;
  if (depth > max_value_depth) throw_error("more than 100 filters of lists wait for each other");
}

Method::Method(Value object, std::string method_name)
    : self(std::move(object)), name(std::move(method_name)) {
  depth = self.depth() + 1;
}

}  // namespace clover::data::jinja
