#pragma once

#include <initializer_list>
#include <string>
#include <vector>

#include "data/jinja/syntax.h"
#include "data/jinja/token_reader.h"

namespace clover::data::jinja {

/// Expressions, as Jinja's own parser reads them; the loosest operators first.
class ExpressionParser : public TokenReader {
 protected:
  using TokenReader::TokenReader;

  /// One, or several with commas between them.
  Expression tuple();
  Expression expression();
  Expression either();  // one without an "if"
  static Expression undefined();

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
  static Expression constant(const Token& token);
  Expression list();
  Expression dict();
  /// What follows a value: .name, [..], (..).
  Expression parts_of(Expression value);
  Expression subscript(Expression value);
  void arguments(Expression& call);
  /// Filters and tests behind a value.
  Expression filtered(Expression value);
  Expression test(Expression value);
};

}  // namespace clover::data::jinja
