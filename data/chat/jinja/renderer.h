#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/chat/jinja/functions/global_functions.h"
#include "data/chat/jinja/jinja_template.h"
#include "data/chat/jinja/loop.h"
#include "data/chat/jinja/scope.h"
#include "data/chat/jinja/syntax/syntax.h"
#include "data/chat/jinja/values/signature.h"

namespace clover::data::jinja {

constexpr int max_run_depth = 1500;  // nesting of statements and expressions, those of called macros included

/// A macro: the value that {% macro %} defines, or the `caller` that {% call %} passes.
struct Macro : Object {
  Macro(const Statement& statement, std::shared_ptr<Scope> scope)
      : statement(statement), scope(std::move(scope)) {}
  std::string type() const override { return "Macro"; }
  std::optional<Value> attribute(const std::string& name) const override;
  std::string repr() const override;
  const Statement& statement;
  std::shared_ptr<Scope> scope;  // the scope in which it was defined
};

/// Renders a template once.  Expressions are in expressions.cc, statements in statements.cc, calls in
/// calls.cc.
class Renderer {
 public:
  Renderer(const Program& program, const json& variables);
  ~Renderer();
  JinjaTemplate::Rendered render();

 private:
  /// How a statement ended.
  enum class Flow { normal, break_loop, continue_loop };

  /// Gives the renderer a new scope inside `parent` as long as the guard lives.
  class ScopeGuard {
   public:
    ScopeGuard(Renderer& renderer, std::shared_ptr<Scope> parent);
    explicit ScopeGuard(Renderer& renderer) : ScopeGuard(renderer, renderer.scope_) {}
    ~ScopeGuard() { renderer_.scope_ = std::move(previous_); }
    ScopeGuard(const ScopeGuard&) = delete;
    ScopeGuard& operator=(const ScopeGuard&) = delete;

   private:
    Renderer& renderer_;
    std::shared_ptr<Scope> previous_;
  };

  // Statements.
  Flow run(const std::vector<Statement>& statements);
  Flow run(const Statement& statement);
  Flow run_condition(const Statement& statement);
  Flow run_loop(const Statement& statement);
  Flow run_iterations(const Statement& statement, const std::shared_ptr<Loop>& loop);
  Flow run_with(const Statement& statement);
  Flow run_generation(const Statement& statement);
  std::shared_ptr<Loop> new_loop(const Statement& statement, const Value& items, int depth0);
  void run_call_block(const Statement& statement);
  void write(const std::string& text);
  std::string capture_output(const std::vector<Statement>& body);
  Value evaluate_filter_block(const Statement& statement);
  void assign(const Expression& target, const Value& value);
  Value new_macro(const Statement& statement);

  // Expressions.  Errors name the line.
  Value evaluate(const Expression& expression);
  Value evaluate_by_kind(const Expression& expression);
  Value evaluate_name(const Expression& expression);
  std::vector<Value> evaluate_all(const std::vector<Expression>& expressions, size_t first);
  Arguments evaluate_arguments(const Expression& expression);
  /// Adds the items of an argument "*value" or "**value"; `stars` is "*" or "**".
  void unpack(const std::string& stars, const Value& value, Arguments& arguments);
  Value evaluate_dict(const Expression& expression);
  Value evaluate_attribute(const Expression& expression);
  Value evaluate_operation(const Expression& expression);
  Value evaluate_comparison(const Expression& expression);
  Value evaluate_concat(const Expression& expression);
  Value evaluate_call(const Expression& expression, const Value* caller = nullptr);
  Value evaluate_call(const Value& callee, const Arguments& arguments);
  Value call_builtin(const std::string& name, const Arguments& arguments);
  Value call_macro(const Macro& macro, Arguments arguments);
  Value call_recursive_loop(Loop& loop, const Arguments& arguments);

  const Program& program_;
  std::shared_ptr<Scope> scope_;
  std::vector<Value> functions_;  // global functions, by symbol; each is created when it is first used
  /// All namespaces.  They can contain themselves, so the destructor empties them.
  std::vector<std::shared_ptr<Namespace>> namespaces_;
  /// Scopes of macros and recursive loops, for the same reason.
  std::vector<std::shared_ptr<Scope>> captured_scopes_;
  JinjaTemplate::Rendered out_;
  int captures_ = 0;  // captures of output that are under way: capture_output and recursive loops
  int calls_ = 0;     // calls of macros and recursive loops that are under way
  int depth_ = 0;     // nesting of statements and expressions that are under way
};

}  // namespace clover::data::jinja
