#include "data/chat/jinja/functions/global_functions.h"

#include <algorithm>
#include <ctime>

#include "data/chat/jinja/functions/functions.h"
#include "data/chat/jinja/values/printing.h"

namespace clover::data::jinja {
namespace {

Value new_range(const Arguments& arguments) {
  constexpr int64_t max_count = 100'000;  // the limit of jinja2's sandbox
  if (!arguments.keywords.empty() || arguments.values.empty() || arguments.values.size() > 3)
    throw_error("range() takes one to three numbers");
  int64_t bounds[3] = {0, 0, 1};
  for (size_t i = 0; i < arguments.values.size(); ++i) bounds[i] = index_of(arguments.values[i]);
  if (arguments.values.size() == 1) std::swap(bounds[0], bounds[1]);
  const auto& [begin, end, step] = bounds;
  if (step == 0) throw_error("a range with a step of 0");
  const int64_t distance = step > 0 ? end - begin : begin - end;
  const int64_t count = distance > 0 ? (distance - 1) / std::abs(step) + 1 : 0;
  if (count > max_count) throw_error("a range of more than 100000 numbers");
  return Value::of(std::make_shared<Range>(begin, end, step, count));
}

/// strftime_now(), always on 26 July 2024, the default date of Llama 3.1's templates, so that a job can be
/// repeated.
Value strftime_now(const Arguments& arguments) {
  const BoundArguments bound("format", "strftime_now()", arguments);
  std::tm day{};
  day.tm_year = 2024 - 1900, day.tm_mon = 6, day.tm_mday = 26, day.tm_wday = 5, day.tm_yday = 207;
  char text[1024];
  if (bound.text(0).size() > 64) throw_error("a date of more than 64 letters");
  return Value::of(std::string(text, std::strftime(text, sizeof text, bound.text(0).c_str(), &day)));
}

}  // namespace

const Value* Namespace::find(const std::string& name) const {
  for (const auto& [key, value] : values)
    if (key == name) return &value;
  return nullptr;
}

void Namespace::set(const std::string& name, Value value) {
  if (name.starts_with('_')) throw_error("a namespace keeps nothing whose name begins with an underscore");
  charge_template_work(static_cast<int64_t>(values.size() >> 4));
  for (auto& [key, old] : values)
    if (key == name) return void(old = std::move(value));
  values.emplace_back(name, std::move(value));
}

std::optional<Value> Namespace::attribute(const std::string& name) const {
  const Value* found = find(name);
  return found != nullptr ? std::optional(*found) : std::nullopt;
}

std::string Namespace::repr() const {
  thread_local int nesting = 0;
  struct Level {
    Level() { ++nesting; }
    ~Level() { --nesting; }
  } const level;
  if (nesting > 20) throw_error("a namespace lies within itself");
  Dict dict;
  for (const auto& [name, value] : values) dict.items.emplace_back(Value::of(name), value);
  return "<Namespace " + jinja::repr(Value::of(std::move(dict))) + ">";
}

Cycler::Cycler(std::vector<Value> new_items) : items(std::move(new_items)) {
  if (items.empty()) throw_error("a cycler of nothing");
  depth = Value::list(items).depth();
}

std::optional<Value> Cycler::attribute(const std::string& name) const {
  if (name == "current") return items[position];
  if (name == "pos") return Value::of(static_cast<Integer>(position));
  if (name == "items") return Value::tuple(items);
  return std::nullopt;
}

Value Cycler::advance_or_reset(bool to_begin) {
  if (to_begin) {
    position = 0;
    return Value::none();
  }
  const Value item = items[position];
  position = (position + 1) % items.size();
  return item;
}

std::optional<Value> Joiner::attribute(const std::string& name) const {
  if (name == "sep") return separator;
  return name == "used" ? std::optional(Value::of(called_before)) : std::nullopt;
}

Value Joiner::call() {
  return std::exchange(called_before, true) ? separator : Value::of(std::string());
}

bool is_function(const std::string& name) {
  for (const char* function :
       {"range", "dict", "namespace", "cycler", "joiner", "lipsum", "raise_exception", "strftime_now"})
    if (name == function) return true;
  return false;
}

Value new_dict(const Arguments& arguments) {
  const BoundArguments bound("/ items= **", "dict()", arguments);
  Dict dict;
  if (bound.is_given(0) && bound.at(0).is_dict()) {
    dict = bound.at(0).dict();
  } else if (bound.is_given(0)) {
    Items items(bound.at(0));
    while (const std::optional<Value> item = items.next()) {
      const std::vector<Value> pair = items_of(*item);
      if (pair.size() != 2) throw_error("a dict is made of pairs");
      dict.set(pair[0], pair[1]);
    }
  }
  for (const auto& [name, value] : bound.kwargs()) dict.set(Value::of(name), value);
  return Value::of(std::move(dict));
}

Value new_dict_of_keys(const Arguments& arguments) {
  const BoundArguments bound("/ keys value=", "fromkeys()", arguments);
  Dict dict;
  Items items(bound.at(0));
  while (const std::optional<Value> key = items.next())
    dict.set(*key, bound.is_given(1) ? bound.at(1) : Value::none());
  return Value::of(std::move(dict));
}

std::shared_ptr<Namespace> new_namespace(const Arguments& arguments) {
  auto new_space = std::make_shared<Namespace>();
  const Value dict = new_dict(arguments);
  for (const auto& [key, value] : dict.dict().items)
    if (key.is_text()) new_space->set(key.text(), value);
  return new_space;
}

Value call_function(const std::string& name, const Arguments& arguments) {
  if (name == "range") return new_range(arguments);
  if (name == "dict") return new_dict(arguments);
  if (name == "strftime_now") return strftime_now(arguments);
  if (name == "joiner") {
    const BoundArguments bound("sep=", "joiner()", arguments);
    return Value::of(
        std::make_shared<Joiner>(bound.is_given(0) ? bound.at(0) : Value::of(std::string(", "))));
  }
  if (name == "cycler") {
    const BoundArguments bound("*", "cycler()", arguments);
    return Value::of(std::make_shared<Cycler>(bound.varargs()));
  }
  throw_unsupported("a text by chance, " + name + "(),");
}

}  // namespace clover::data::jinja
