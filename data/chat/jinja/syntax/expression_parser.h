#pragma once

#include <initializer_list>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "data/chat/jinja/syntax/syntax.h"
#include "data/chat/jinja/syntax/token_reader.h"

namespace clover::data::jinja {

/// Expressions, as Jinja's own parser reads them; the loosest operators first.
class ExpressionParser : public TokenReader {
 protected:
  explicit ExpressionParser(std::vector<Token> tokens) : TokenReader(std::move(tokens)) {
    for (const char* name : {"loop", "caller", "varargs", "kwargs", "{% written %}"}) symbol_of(name);
  }

  /// One, or several with commas between them.
  Expression tuple(bool with_choice = true);
  Expression expression();
  Expression either();  // one without an "if"
  /// What gets a value: a name, several in brackets or with commas, parts of namespaces.
  Expression target(bool with_parts);
  Expression named(const std::string& name, int line);
  Expression filter_of(Expression value);
  static Expression undefined();
  static bool is_constant(const std::string& name);  // true, None ..
  int symbol_of(const std::string& name);

  /// InputError where something was asked for that we lack, and that is asked for whenever the template is
  /// rendered.
  void check_known() const;

  std::vector<std::string> names_;   // by their symbols
  std::vector<Parameters*> macros_;  // that are being read, within each other
  /// Jinja looks for what a choice asks for only once it comes there, but for what stands in a loop or the
  /// like within the choice.
  void forget_unknown(size_t since);
  void keep_unknown(size_t since);
  struct Unknown {
    std::string sentence;
    bool always = false;
  };
  std::vector<Unknown> unknown_;  // what was asked for and we lack

 private:
  Expression made(Expression::Kind kind, const std::string& text, std::vector<Expression> parts) const;
  Expression operation(const std::string& text, Expression one, Expression other) const;
  Expression measured(Expression whole) const;  // its depth, which is limited
  Expression both();
  Expression negation();
  Expression comparison();
  std::string comparing();
  /// Of one level of precedence, from left to right.
  template <class Skip, class Next>
  Expression from_left(const Skip& skip, const Next& next);
  const char* skip_one(std::initializer_list<const char*> symbols);
  Expression sum();
  Expression joined();
  Expression product();
  Expression power();
  Expression signed_value(bool with_filters);
  Expression primary();
  Expression list();
  Expression dict();
  /// What follows a value: .name, [..], (..).
  Expression parts_of(Expression value);
  Expression subscript(Expression value);
  Expression call_of(Expression value);
  void arguments(Expression& call);
  std::string dotted_name();
  /// Filters and tests behind a value.
  Expression filtered(Expression value);
  Expression test(Expression value);
  template <class One>
  Expression several(const One& one);
  void miss(const std::string& what, int line);

  std::map<std::string, int> symbols_;
};

}  // namespace clover::data::jinja
