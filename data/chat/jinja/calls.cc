#include <algorithm>

#include "data/chat/jinja/functions/functions.h"
#include "data/chat/jinja/functions/objects.h"
#include "data/chat/jinja/renderer.h"
#include "data/chat/jinja/values/printing.h"

// What functions, macros and loops do that are called.
namespace clover::data::jinja {
namespace {

constexpr int deepest_call = 100;

std::string name_of(const Macro& macro) {
  return "the macro \"" + macro.statement.text + "\"";
}

std::optional<Value> taken(std::vector<std::pair<std::string, Value>>& named, const std::string& name) {
  for (auto at = named.begin(); at != named.end(); ++at) {
    if (at->first != name) continue;
    Value value = at->second;
    named.erase(at);
    return value;
  }
  return std::nullopt;
}

}  // namespace

std::optional<Value> Macro::attribute(const std::string& name) const {
  const Parameters& all = statement.parameters;
  if (name == "name") return statement.symbol >= 0 ? Value::of(statement.text) : Value::none();
  if (name == "catch_kwargs") return Value::of(all.wants_named);
  if (name == "catch_varargs") return Value::of(all.wants_rest);
  if (name == "caller") return Value::of(all.wants_caller);
  if (name != "arguments") return std::nullopt;
  std::vector<Value> names;
  for (const std::string& parameter : all.names) names.push_back(Value::of(parameter));
  return Value::tuple(std::move(names));
}

std::string Macro::shown() const {
  return "<Macro " + (statement.symbol >= 0 ? jinja::shown(Value::of(statement.text)) : "anonymous") + ">";
}

Renderer::Renderer(const Program& program, const json& variables)
    : program_(program), scope_(std::make_shared<Scope>(nullptr)) {
  begin_spending();
  functions_.resize(program.names.size());
  for (size_t symbol = 0; symbol < program.names.size(); ++symbol) {
    const auto found = variables.find(program.names[symbol]);
    if (found != variables.end()) scope_->set(static_cast<int>(symbol), Value::of_json(*found));
  }
}

Renderer::~Renderer() {
  // What holds itself would live on; one by one, since chains of them may be long.
  for (const auto& scope : captured_) scope->values.clear();
  for (const auto& space : spaces_) space->values.clear();
}

JinjaTemplate::Rendered Renderer::render() {
  run(program_.statements);
  return std::move(out_);
}

Value Renderer::called(const Value& what, const Arguments& arguments) {
  if (const auto method = what.as<Method>()) return call_method(method->self, method->name, arguments);
  if (const auto named = what.as<Function>()) return function(named->name, arguments);
  if (const auto macro = what.as<Macro>()) return expanded(*macro, arguments);
  if (const auto loop = what.as<Loop>()) return repeated(*loop, arguments);
  if (const auto joiner = what.as<Joiner>()) {
    const Bound bound("", "a joiner", arguments);
    return joiner->called();
  }
  refuse(type_of(what) + " is called");
}

Value Renderer::function(const std::string& name, const Arguments& arguments) {
  if (name == "raise_exception") {
    const Bound bound("message", "raise_exception()", arguments);
    throw Raised(printed(bound.at(0)));
  }
  if (name != "namespace") return call_function(name, arguments);
  spaces_.push_back(new_space(arguments));
  spend(20);
  return Value::of(std::static_pointer_cast<Object>(spaces_.back()));
}

/// A macro sees what is around the place where it was written, and its parameters.
Value Renderer::expanded(const Macro& macro, Arguments arguments) {
  if (++calls_ > deepest_call) refuse("macros call each other without end");
  const Parameters& all = macro.statement.parameters;
  const Part part(*this, macro.scope);
  const size_t count = all.names.size(), given = std::min(count, arguments.values.size());
  std::vector<size_t> missing;
  for (size_t i = 0; i < count; ++i) {
    std::optional<Value> value =
        i < given ? std::optional(arguments.values[i]) : taken(arguments.named, all.names[i]);
    if (!value) missing.push_back(i);
    scope_->set(all.symbols[i], value.value_or(Value()));
  }
  if (all.wants_caller) scope_->set(caller_symbol, taken(arguments.named, "caller").value_or(Value()));
  if (!all.wants_named && !arguments.named.empty())
    refuse(name_of(macro) + " takes no value named \"" + arguments.named[0].first + "\"");
  if (!all.wants_rest && arguments.values.size() > count)
    refuse(name_of(macro) + " takes at most " + std::to_string(count) + " values");
  if (all.wants_named) {
    Dict named;
    for (const auto& [name, value] : arguments.named) named.set(Value::of(name), value);
    scope_->set(named_symbol, Value::of(std::move(named)));
  }
  if (all.wants_rest)
    scope_->set(rest_symbol, Value::tuple({arguments.values.begin() + static_cast<ptrdiff_t>(given),
                                           arguments.values.end()}));
  const size_t without = count - all.defaults.size();
  for (const size_t i : missing)
    if (i >= without) scope_->set(all.symbols[i], value_of(all.defaults[i - without]));
  std::string text = written_by(macro.statement.bodies[0]);
  --calls_;
  return Value::of(std::move(text));
}

/// loop(items) of a recursive loop: what it writes for these.
Value Renderer::repeated(Loop& loop, const Arguments& arguments) {
  if (loop.statement == nullptr) refuse("a loop is called that is not recursive");
  if (++calls_ > deepest_call) refuse("loops call each other without end");
  const Bound bound("iterable", "loop()", arguments);
  const Part part(*this, loop.scope);
  const Statement& statement = *loop.statement;
  std::string before = std::exchange(out_.text, "");
  ++captures_;
  loop_over(statement, new_loop(statement, bound.at(0), loop.depth0() + 1));
  --captures_;
  --calls_;
  return Value::of(std::exchange(out_.text, std::move(before)));
}

}  // namespace clover::data::jinja
