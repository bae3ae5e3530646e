#pragma once

#include <initializer_list>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "data/chat/jinja/syntax/syntax.h"
#include "data/chat/jinja/syntax/token_reader.h"

namespace clover::data::jinja {

/// Recursive-descent parser of expressions, with the grammar of jinja2's parser.  The functions below
/// `expression` are in order of precedence, the weakest operators first.
class ExpressionParser : public TokenReader {
 protected:
  explicit ExpressionParser(std::vector<Token> tokens) : TokenReader(std::move(tokens)) {
    for (const char* name : {"loop", "caller", "varargs", "kwargs", "{% written %}"}) symbol_of(name);
  }

  /// An expression, or several separated by commas, which make a tuple.  `with_choice`: "a if b else c" is
  /// allowed.
  Expression tuple(bool with_choice = true);
  Expression expression();
  Expression or_expression();  // without "if"
  /// The target of an assignment: a name, a tuple of names, or with `with_parts` an attribute of a namespace.
  Expression target(bool with_parts);
  Expression name_expression(const std::string& name, int line);
  Expression filter_of(Expression value);
  static Expression undefined();
  static bool is_constant(const std::string& name);  // true, false, none and their capitalised forms
  /// The number of an interned name.
  int symbol_of(const std::string& name);

  /// InputError when the template uses something unsupported whenever it is rendered.
  void check_supported() const;

  std::vector<std::string> names_;   // by symbol
  std::vector<Parameters*> macros_;  // the macros that are being parsed, outermost first
  /// jinja2 looks up filters and tests in a branch of an "if" when it is taken, except for those in a block
  /// with its own scope, such as a loop, inside the branch.  These two are called at the end of an "if" and
  /// of such a block, with the number of entries in `unsupported_` before it.
  void drop_conditional_unsupported(size_t since);
  void keep_unsupported(size_t since);
  struct UnsupportedUse {
    std::string sentence;
    bool always = false;
  };
  std::vector<UnsupportedUse> unsupported_;  // filters, tests and functions that we do not support

 private:
  Expression new_expression(Expression::Kind kind, const std::string& text,
                            std::vector<Expression> parts) const;
  Expression operation(const std::string& text, Expression one, Expression other) const;
  Expression with_checked_depth(Expression whole) const;  // sets its depth, which is limited
  Expression and_expression();
  Expression not_expression();
  Expression comparison();
  std::string comparison_operator();
  /// The left-associative operators of one level of precedence: `skip` reads one, `next` an operand.
  template <class Skip, class Next>
  Expression left_associative(const Skip& skip, const Next& next);
  const char* skip_any(std::initializer_list<const char*> symbols);
  Expression sum();
  Expression concatenation();
  Expression product();
  Expression power();
  Expression unary(bool with_filters);
  Expression primary();
  Expression list();
  Expression dict();
  /// Postfix operators of a value: .name, [..], (..).
  Expression postfix(Expression value);
  Expression subscript(Expression value);
  Expression call_of(Expression value);
  void arguments(Expression& call);
  std::string dotted_name();
  /// Filters, tests and calls after a value.
  Expression filtered(Expression value);
  Expression test(Expression value);
  template <class One>
  Expression comma_separated(const One& one);
  void note_unsupported(const std::string& what, int line);

  std::map<std::string, int> symbols_;
};

}  // namespace clover::data::jinja
