#include <utility>

#include "data/chat/jinja/renderer.h"
#include "data/chat/jinja/values/printing.h"

// What the statements of a template do.
namespace clover::data::jinja {

Renderer::Part::Part(Renderer& renderer, std::shared_ptr<Scope> around)
    : renderer_(renderer),
      before_(std::exchange(renderer.scope_, std::make_shared<Scope>(std::move(around)))) {}

Renderer::Flow Renderer::run(const std::vector<Statement>& statements) {
  for (const Statement& statement : statements)
    if (const Flow flow = run(statement); flow != Flow::on) return flow;
  return Flow::on;
}

Renderer::Flow Renderer::run(const Statement& statement) {
  spend(1);
  if (++depth_ > deepest_run) refuse("macros or values lie too deep within each other");
  Flow flow = Flow::on;
  switch (statement.kind) {
    case Statement::Kind::text:
      write(statement.text);
      break;
    case Statement::Kind::output:
      for (const Expression& expression : statement.expressions) write(printed(value_of(expression)));
      break;
    case Statement::Kind::condition:
      flow = choose(statement);
      break;
    case Statement::Kind::loop:
      flow = loop(statement);
      break;
    case Statement::Kind::set:
      bind(statement.targets[0], value_of(statement.expressions[0]));
      break;
    case Statement::Kind::set_block:
      bind(statement.targets[0], filtered(statement));
      break;
    case Statement::Kind::macro:
      scope_->set(statement.symbol, new_macro(statement));
      break;
    case Statement::Kind::call:
      call(statement);
      break;
    case Statement::Kind::filter:
      write(printed(filtered(statement)));
      break;
    case Statement::Kind::scope:
      flow = scope(statement);
      break;
    case Statement::Kind::stop:
      flow = Flow::stop;
      break;
    case Statement::Kind::next:
      flow = Flow::next;
      break;
    case Statement::Kind::generation:
      flow = generation(statement);
      break;
  }
  --depth_;
  return flow;
}

void Renderer::write(const std::string& text) {
  spend(static_cast<int64_t>(text.size() >> 8));
  if (out_.text.size() + text.size() > most_of_a_value) throw InputError("it writes more than 64 MiB");
  out_.text += text;
}

std::string Renderer::written_by(const std::vector<Statement>& body) {
  std::string before = std::exchange(out_.text, "");
  ++captures_;
  run(body);
  --captures_;
  return std::exchange(out_.text, std::move(before));
}

/// What a body writes, through filters.
Value Renderer::filtered(const Statement& statement) {
  Value written;
  {
    const Part part(*this);
    written = Value::of(written_by(statement.bodies[0]));
  }
  const Part part(*this);
  scope_->set(written_symbol, std::move(written));
  return value_of(statement.expressions[0]);
}

Renderer::Flow Renderer::choose(const Statement& statement) {
  for (size_t i = 0; i < statement.expressions.size(); ++i)
    if (is_true(value_of(statement.expressions[i]))) return run(statement.bodies[i]);
  const bool otherwise = statement.bodies.size() > statement.expressions.size();
  return otherwise ? run(statement.bodies.back()) : Flow::on;
}

std::shared_ptr<Loop> Renderer::new_loop(const Statement& statement, const Value& items, int depth0) {
  Loop::Keep keep;
  if (statement.expressions.size() > 1) {
    keep = [this, &statement, around = scope_](const Value& item) {
      const Part part(*this, around);
      bind(statement.targets[0], item);
      return is_true(value_of(statement.expressions[1]));
    };
  }
  auto loop = std::make_shared<Loop>(items, std::move(keep), depth0);
  if (!statement.recursive) return loop;
  loop->statement = &statement;
  loop->scope = scope_;
  captured_.push_back(scope_);
  spend(100);
  return loop;
}

Renderer::Flow Renderer::loop(const Statement& statement) {
  return loop_over(statement, new_loop(statement, value_of(statement.expressions[0]), 0));
}

Renderer::Flow Renderer::loop_over(const Statement& statement, const std::shared_ptr<Loop>& loop) {
  bool any = false;  // that came to its end, as jinja2 has it: a break or continue does not count
  const Value itself = Value::of(std::static_pointer_cast<Object>(loop));
  while (const std::optional<Value> item = loop->advance()) {
    const Part part(*this);
    scope_->set(loop_symbol, itself);
    bind(statement.targets[0], *item);
    const Flow flow = run(statement.bodies[0]);
    any |= flow == Flow::on;
    if (flow == Flow::stop) break;
  }
  if (any || statement.bodies.size() < 2) return Flow::on;
  const Part part(*this);
  return run(statement.bodies[1]);
}

Renderer::Flow Renderer::scope(const Statement& statement) {
  const std::vector<Value> values = values_of(statement.expressions, 0);
  const Part part(*this);
  for (size_t i = 0; i < values.size(); ++i) bind(statement.targets[i], values[i]);
  return run(statement.bodies[0]);
}

Renderer::Flow Renderer::generation(const Statement& statement) {
  const size_t begin = out_.text.size();
  const Part part(*this);
  if (statement.parameters.wants_caller) scope_->set(caller_symbol, Value());  // it is called without any
  if (statement.parameters.wants_rest) scope_->set(rest_symbol, Value::tuple({}));
  if (statement.parameters.wants_named) scope_->set(named_symbol, Value::of(Dict()));
  const Flow flow = run(statement.bodies[0]);
  if (captures_ == 0) out_.generations.emplace_back(begin, out_.text.size());
  return flow;
}

void Renderer::bind(const Expression& target, const Value& value) {
  const auto fail = [&](const std::string& what) {
    refuse("line " + std::to_string(target.line) + ": " + what);
  };
  if (target.kind == Expression::Kind::name) {
    scope_->set(target.symbol, value);
  } else if (target.kind == Expression::Kind::attribute) {
    const Value* space = scope_->find(target.parts[0].symbol);
    const auto found = space != nullptr ? space->as<Space>() : nullptr;
    if (!found) fail("\"" + target.parts[0].text + "\" is no namespace");
    found->set(target.text, value);
  } else {
    const std::vector<Value> parts = items_of(value);
    if (parts.size() != target.parts.size())
      fail(std::to_string(parts.size()) + " values for " + std::to_string(target.parts.size()) + " names");
    for (size_t i = 0; i < parts.size(); ++i) bind(target.parts[i], parts[i]);
  }
}

Value Renderer::new_macro(const Statement& statement) {
  spend(100);
  captured_.push_back(scope_);
  return Value::of(std::make_shared<Macro>(statement, scope_));
}

void Renderer::call(const Statement& statement) {
  const Value caller = new_macro(statement);
  write(printed(called(statement.expressions[0], &caller)));
}

}  // namespace clover::data::jinja
