#include <algorithm>

#include "data/chat/jinja/functions/functions.h"
#include "data/chat/jinja/functions/global_functions.h"
#include "data/chat/jinja/renderer.h"
#include "data/chat/jinja/values/printing.h"

// Calls of functions, macros and recursive loops.
namespace clover::data::jinja {
namespace {

constexpr int max_call_depth = 100;

std::string name_of(const Macro& macro) {
  return "the macro \"" + macro.statement.text + "\"";
}

/// Removes the keyword argument `name` and returns its value; nothing without such an argument.
std::optional<Value> take_keyword(std::vector<std::pair<std::string, Value>>& keywords,
                                  const std::string& name) {
  for (auto at = keywords.begin(); at != keywords.end(); ++at) {
    if (at->first != name) continue;
    Value value = at->second;
    keywords.erase(at);
    return value;
  }
  return std::nullopt;
}

}  // namespace

std::optional<Value> Macro::attribute(const std::string& name) const {
  const Parameters& parameters = statement.parameters;
  if (name == "name") return statement.symbol >= 0 ? Value::of(statement.text) : Value::none();
  if (name == "catch_kwargs") return Value::of(parameters.uses_kwargs);
  if (name == "catch_varargs") return Value::of(parameters.uses_varargs);
  if (name == "caller") return Value::of(parameters.uses_caller);
  if (name != "arguments") return std::nullopt;
  std::vector<Value> names;
  for (const std::string& parameter : parameters.names) names.push_back(Value::of(parameter));
  return Value::tuple(std::move(names));
}

std::string Macro::repr() const {
  return "<Macro " + (statement.symbol >= 0 ? jinja::repr(Value::of(statement.text)) : "anonymous") + ">";
}

Renderer::Renderer(const Program& program, const json& variables)
    : program_(program), scope_(std::make_shared<Scope>(nullptr)) {
  reset_template_work();
  functions_.resize(program.names.size());
  for (size_t symbol = 0; symbol < program.names.size(); ++symbol) {
    const auto found = variables.find(program.names[symbol]);
    if (found != variables.end()) scope_->set(static_cast<int>(symbol), Value::of_json(*found));
  }
}

Renderer::~Renderer() {
  // Breaks reference cycles.  Clearing them one by one avoids deep recursion of destructors.
  for (const auto& scope : captured_scopes_) scope->values.clear();
  for (const auto& name_space : namespaces_) name_space->values.clear();
}

JinjaTemplate::Rendered Renderer::render() {
  run(program_.statements);
  return std::move(out_);
}

Value Renderer::evaluate_call(const Value& callee, const Arguments& arguments) {
  if (const auto method = callee.as<Method>()) return call_method(method->self, method->name, arguments);
  if (const auto function = callee.as<Function>()) return call_builtin(function->name, arguments);
  if (const auto macro = callee.as<Macro>()) return call_macro(*macro, arguments);
  if (const auto loop = callee.as<Loop>()) return call_recursive_loop(*loop, arguments);
  if (const auto joiner = callee.as<Joiner>()) {
    const BoundArguments bound("", "a joiner", arguments);
    return joiner->call();
  }
  throw_error(type_of(callee) + " is called");
}

Value Renderer::call_builtin(const std::string& name, const Arguments& arguments) {
  if (name == "raise_exception") {
    const BoundArguments bound("message", "raise_exception()", arguments);
    throw TemplateRaised(to_str(bound.at(0)));
  }
  if (name != "namespace") return call_function(name, arguments);
  namespaces_.push_back(new_namespace(arguments));
  charge_template_work(20);  // units (values/limits.h): as much as twenty expressions
  return Value::of(std::static_pointer_cast<Object>(namespaces_.back()));
}

/// Runs a macro's body with its parameters, in the scope of its definition.
Value Renderer::call_macro(const Macro& macro, Arguments arguments) {
  if (++calls_ > max_call_depth) throw_error("macros call each other without end");
  const Parameters& parameters = macro.statement.parameters;
  const ScopeGuard guard(*this, macro.scope);
  const size_t count = parameters.names.size(), positional_count = std::min(count, arguments.values.size());
  std::vector<size_t> missing;
  for (size_t i = 0; i < count; ++i) {
    std::optional<Value> value = i < positional_count ? std::optional(arguments.values[i])
                                                      : take_keyword(arguments.keywords, parameters.names[i]);
    if (!value) missing.push_back(i);
    scope_->set(parameters.symbols[i], value.value_or(Value()));
  }
  if (parameters.uses_caller)
    scope_->set(caller_symbol, take_keyword(arguments.keywords, "caller").value_or(Value()));
  if (!parameters.uses_kwargs && !arguments.keywords.empty())
    throw_error(name_of(macro) + " takes no value named \"" + arguments.keywords[0].first + "\"");
  if (!parameters.uses_varargs && arguments.values.size() > count)
    throw_error(name_of(macro) + " takes at most " + std::to_string(count) + " values");
  if (parameters.uses_kwargs) {
    Dict keywords;
    for (const auto& [name, value] : arguments.keywords) keywords.set(Value::of(name), value);
    scope_->set(kwargs_symbol, Value::of(std::move(keywords)));
  }
  if (parameters.uses_varargs)
    scope_->set(varargs_symbol,
                Value::tuple({arguments.values.begin() + static_cast<ptrdiff_t>(positional_count),
                              arguments.values.end()}));
  const size_t required_count = count - parameters.defaults.size();
  for (const size_t i : missing)
    if (i >= required_count)
      scope_->set(parameters.symbols[i], evaluate(parameters.defaults[i - required_count]));
  std::string text = capture_output(macro.statement.bodies[0]);
  --calls_;
  return Value::of(std::move(text));
}

/// loop(items) of a recursive loop: runs its body for these items and returns the text.
Value Renderer::call_recursive_loop(Loop& loop, const Arguments& arguments) {
  if (loop.statement == nullptr) throw_error("a loop is called that is not recursive");
  if (++calls_ > max_call_depth) throw_error("loops call each other without end");
  const BoundArguments bound("iterable", "loop()", arguments);
  const ScopeGuard guard(*this, loop.scope);
  const Statement& statement = *loop.statement;
  std::string outer_text = std::exchange(out_.text, "");
  ++captures_;
  run_iterations(statement, new_loop(statement, bound.at(0), loop.depth0() + 1));
  --captures_;
  --calls_;
  return Value::of(std::exchange(out_.text, std::move(outer_text)));
}

}  // namespace clover::data::jinja
