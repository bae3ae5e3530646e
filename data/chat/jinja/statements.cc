#include <utility>

#include "data/chat/jinja/renderer.h"
#include "data/chat/jinja/values/printing.h"

// Execution of statements.
namespace clover::data::jinja {

Renderer::ScopeGuard::ScopeGuard(Renderer& renderer, std::shared_ptr<Scope> parent)
    : renderer_(renderer),
      previous_(std::exchange(renderer.scope_, std::make_shared<Scope>(std::move(parent)))) {}

Renderer::Flow Renderer::run(const std::vector<Statement>& statements) {
  for (const Statement& statement : statements)
    if (const Flow flow = run(statement); flow != Flow::normal) return flow;
  return Flow::normal;
}

Renderer::Flow Renderer::run(const Statement& statement) {
  charge_template_work(1);
  if (++depth_ > max_run_depth) throw_error("macros or values lie too deep within each other");
  Flow flow = Flow::normal;
  switch (statement.kind) {
    case Statement::Kind::text:
      write(statement.text);
      break;
    case Statement::Kind::output:
      for (const Expression& expression : statement.expressions) write(to_str(evaluate(expression)));
      break;
    case Statement::Kind::condition:
      flow = run_condition(statement);
      break;
    case Statement::Kind::loop:
      flow = run_loop(statement);
      break;
    case Statement::Kind::set:
      assign(statement.targets[0], evaluate(statement.expressions[0]));
      break;
    case Statement::Kind::set_block:
      assign(statement.targets[0], evaluate_filter_block(statement));
      break;
    case Statement::Kind::macro:
      scope_->set(statement.symbol, new_macro(statement));
      break;
    case Statement::Kind::call:
      run_call_block(statement);
      break;
    case Statement::Kind::filter:
      write(to_str(evaluate_filter_block(statement)));
      break;
    case Statement::Kind::scope:
      flow = run_with(statement);
      break;
    case Statement::Kind::break_loop:
      flow = Flow::break_loop;
      break;
    case Statement::Kind::continue_loop:
      flow = Flow::continue_loop;
      break;
    case Statement::Kind::generation:
      flow = run_generation(statement);
      break;
  }
  --depth_;
  return flow;
}

void Renderer::write(const std::string& text) {
  charge_template_work(static_cast<int64_t>(text.size() >> 8));
  if (out_.text.size() + text.size() > max_text_bytes) throw InputError("it writes more than 64 MiB");
  out_.text += text;
}

std::string Renderer::capture_output(const std::vector<Statement>& body) {
  std::string outer_text = std::exchange(out_.text, "");
  ++captures_;
  run(body);
  --captures_;
  return std::exchange(out_.text, std::move(outer_text));
}

/// The text of the statement's body, after the statement's filters were applied to it.
Value Renderer::evaluate_filter_block(const Statement& statement) {
  Value captured;
  {
    const ScopeGuard guard(*this);
    captured = Value::of(capture_output(statement.bodies[0]));
  }
  const ScopeGuard guard(*this);
  scope_->set(captured_symbol, std::move(captured));
  return evaluate(statement.expressions[0]);
}

Renderer::Flow Renderer::run_condition(const Statement& statement) {
  for (size_t i = 0; i < statement.expressions.size(); ++i)
    if (is_true(evaluate(statement.expressions[i]))) return run(statement.bodies[i]);
  const bool has_else = statement.bodies.size() > statement.expressions.size();
  return has_else ? run(statement.bodies.back()) : Flow::normal;
}

std::shared_ptr<Loop> Renderer::new_loop(const Statement& statement, const Value& items, int depth0) {
  Loop::Condition condition;
  if (statement.expressions.size() > 1) {
    condition = [this, &statement, parent = scope_](const Value& item) {
      const ScopeGuard guard(*this, parent);
      assign(statement.targets[0], item);
      return is_true(evaluate(statement.expressions[1]));
    };
  }
  auto loop = std::make_shared<Loop>(items, std::move(condition), depth0);
  if (!statement.recursive) return loop;
  loop->statement = &statement;
  loop->scope = scope_;
  captured_scopes_.push_back(scope_);
  charge_template_work(100);
  return loop;
}

Renderer::Flow Renderer::run_loop(const Statement& statement) {
  return run_iterations(statement, new_loop(statement, evaluate(statement.expressions[0]), 0));
}

Renderer::Flow Renderer::run_iterations(const Statement& statement, const std::shared_ptr<Loop>& loop) {
  bool any_completed = false;  // as in jinja2, iterations that end with break or continue do not count
  const Value loop_value = Value::of(std::static_pointer_cast<Object>(loop));
  while (const std::optional<Value> item = loop->advance()) {
    const ScopeGuard guard(*this);
    scope_->set(loop_symbol, loop_value);
    assign(statement.targets[0], *item);
    const Flow flow = run(statement.bodies[0]);
    any_completed |= flow == Flow::normal;
    if (flow == Flow::break_loop) break;
  }
  if (any_completed || statement.bodies.size() < 2) return Flow::normal;
  const ScopeGuard guard(*this);
  return run(statement.bodies[1]);
}

Renderer::Flow Renderer::run_with(const Statement& statement) {
  const std::vector<Value> values = evaluate_all(statement.expressions, 0);
  const ScopeGuard guard(*this);
  for (size_t i = 0; i < values.size(); ++i) assign(statement.targets[i], values[i]);
  return run(statement.bodies[0]);
}

Renderer::Flow Renderer::run_generation(const Statement& statement) {
  const size_t begin = out_.text.size();
  const ScopeGuard guard(*this);
  if (statement.parameters.uses_caller)
    scope_->set(caller_symbol, Value());  // the block is not called, so it has no caller
  if (statement.parameters.uses_varargs) scope_->set(varargs_symbol, Value::tuple({}));
  if (statement.parameters.uses_kwargs) scope_->set(kwargs_symbol, Value::of(Dict()));
  const Flow flow = run(statement.bodies[0]);
  if (captures_ == 0) out_.generations.emplace_back(begin, out_.text.size());
  return flow;
}

void Renderer::assign(const Expression& target, const Value& value) {
  const auto fail = [&](const std::string& what) {
    throw_error("line " + std::to_string(target.line) + ": " + what);
  };
  if (target.kind == Expression::Kind::name) {
    scope_->set(target.symbol, value);
  } else if (target.kind == Expression::Kind::attribute) {
    const Value* variable = scope_->find(target.parts[0].symbol);
    const auto found = variable != nullptr ? variable->as<Namespace>() : nullptr;
    if (!found) fail("\"" + target.parts[0].text + "\" is no namespace");
    found->set(target.text, value);
  } else {
    const std::vector<Value> parts = items_of(value);
    if (parts.size() != target.parts.size())
      fail(std::to_string(parts.size()) + " values for " + std::to_string(target.parts.size()) + " names");
    for (size_t i = 0; i < parts.size(); ++i) assign(target.parts[i], parts[i]);
  }
}

Value Renderer::new_macro(const Statement& statement) {
  charge_template_work(100);
  captured_scopes_.push_back(scope_);
  return Value::of(std::make_shared<Macro>(statement, scope_));
}

void Renderer::run_call_block(const Statement& statement) {
  const Value caller = new_macro(statement);
  write(to_str(evaluate_call(statement.expressions[0], &caller)));
}

}  // namespace clover::data::jinja
