#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/chat/jinja/functions/objects.h"
#include "data/chat/jinja/jinja_template.h"
#include "data/chat/jinja/loop.h"
#include "data/chat/jinja/scope.h"
#include "data/chat/jinja/syntax/syntax.h"
#include "data/chat/jinja/values/signature.h"

namespace clover::data::jinja {

constexpr int deepest_run = 1500;  // statements and expressions within each other, those of macros included

/// What {% macro %} makes, and what {% call %} passes on.
struct Macro : Object {
  Macro(const Statement& statement, std::shared_ptr<Scope> scope)
      : statement(statement), scope(std::move(scope)) {}
  std::string type() const override { return "Macro"; }
  std::optional<Value> attribute(const std::string& name) const override;
  std::string shown() const override;
  const Statement& statement;
  std::shared_ptr<Scope> scope;  // where it was written
};

/// Renders a template once.
class Renderer {
 public:
  Renderer(const Program& program, const json& variables);
  ~Renderer();
  JinjaTemplate::Rendered render();

 private:
  enum class Flow { on, stop, next };  // the innermost loop: goes on, ends, goes to its next item

  /// A part of a template with names of its own.
  class Part {
   public:
    Part(Renderer& renderer, std::shared_ptr<Scope> around);
    explicit Part(Renderer& renderer) : Part(renderer, renderer.scope_) {}
    ~Part() { renderer_.scope_ = std::move(before_); }
    Part(const Part&) = delete;
    Part& operator=(const Part&) = delete;

   private:
    Renderer& renderer_;
    std::shared_ptr<Scope> before_;
  };

  // Statements.
  Flow run(const std::vector<Statement>& statements);
  Flow run(const Statement& statement);
  Flow choose(const Statement& statement);
  Flow loop(const Statement& statement);
  Flow loop_over(const Statement& statement, const std::shared_ptr<Loop>& loop);
  Flow scope(const Statement& statement);
  Flow generation(const Statement& statement);
  std::shared_ptr<Loop> new_loop(const Statement& statement, const Value& items, int depth0);
  void call(const Statement& statement);
  void write(const std::string& text);
  std::string written_by(const std::vector<Statement>& body);
  Value filtered(const Statement& statement);
  void bind(const Expression& target, const Value& value);
  Value new_macro(const Statement& statement);

  // Expressions.  Errors name the line.
  Value value_of(const Expression& expression);
  Value evaluated(const Expression& expression);
  Value named(const Expression& expression);
  std::vector<Value> values_of(const std::vector<Expression>& expressions, size_t first);
  Arguments arguments_of(const Expression& expression);
  void spread(const std::string& how, const Value& value, Arguments& arguments);
  Value dict_of(const Expression& expression);
  Value attribute(const Expression& expression);
  Value operated(const Expression& expression);
  Value compared(const Expression& expression);
  Value joined(const Expression& expression);
  Value called(const Expression& expression, const Value* caller = nullptr);
  Value called(const Value& what, const Arguments& arguments);
  Value function(const std::string& name, const Arguments& arguments);
  Value expanded(const Macro& macro, Arguments arguments);
  Value repeated(Loop& loop, const Arguments& arguments);

  const Program& program_;
  std::shared_ptr<Scope> scope_;
  std::vector<Value> functions_;                  // by their symbols, once they were asked for
  std::vector<std::shared_ptr<Space>> spaces_;    // which may hold themselves
  std::vector<std::shared_ptr<Scope>> captured_;  // by macros that they hold
  JinjaTemplate::Rendered out_;
  int captures_ = 0, calls_ = 0, depth_ = 0;
};

}  // namespace clover::data::jinja
