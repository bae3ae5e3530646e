#pragma once

#include <initializer_list>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "data/chat/jinja/syntax/syntax.h"
#include "data/chat/jinja/syntax/token_reader.h"

namespace clover::data::jinja {

/// Recursive-descent parser of expressions, with the grammar of jinja2's parser.  Its functions have the
/// names of what they parse; those of operators are in order of precedence, the weakest first.
/// expression_parser.cc has the operators, value_parser.cc the values and what follows them.
class ExpressionParser : public TokenReader {
 protected:
  explicit ExpressionParser(std::vector<Token> tokens) : TokenReader(std::move(tokens)) {
    // In the order of loop_symbol, .., captured_symbol (syntax.h).  The last is no name that a template can
    // use.
    for (const char* name : {"loop", "caller", "varargs", "kwargs", "{% written %}"}) symbol_of(name);
  }

  /// An expression, or several with commas between them, which are a tuple.  `with_conditional`: whether
  /// "a if b else c" is allowed.
  Expression tuple(bool with_conditional = true);
  Expression expression();
  Expression or_expression();  // without "if"
  /// The target of an assignment: a name, a tuple of names, or (`with_attributes`) an attribute of a
  /// namespace.
  Expression target(bool with_attributes);
  Expression name_expression(const std::string& name, int line);
  Expression filter_of(Expression value);  // the name and arguments of a filter, which is applied to `value`
  static Expression undefined();           // the literal of an undefined value
  static bool is_constant(const std::string& name);  // true, false, none and their capitalised forms
  /// The number of an interned name.
  int symbol_of(const std::string& name);

  /// InputError when the template uses something unsupported whenever it is rendered.
  void check_supported() const;

  std::vector<std::string> names_;   // by symbol
  std::vector<Parameters*> macros_;  // the macros that are being parsed, outermost first
  /// A use of a filter, test or function that we do not support.
  struct UnsupportedUse {
    std::string message;
    bool in_scoped_block = false;  // inside a block with its own scope, such as a loop
  };
  std::vector<UnsupportedUse> unsupported_;
  /// jinja2 looks up the filters and tests of a branch of an "if" only when the branch is taken, except for
  /// those in a block with its own scope inside the branch.  drop_conditional_unsupported is called at the
  /// end of an "if" and forgets the former, keep_unsupported at the end of such a block.  `since`: the number
  /// of entries in `unsupported_` at the beginning of the "if" or the block.
  void drop_conditional_unsupported(size_t since);
  void keep_unsupported(size_t since);

 private:
  Expression new_expression(Expression::Kind kind, const std::string& text,
                            std::vector<Expression> parts) const;
  Expression operation(const std::string& text, Expression left, Expression right) const;
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
  template <class Item>
  Expression comma_separated(const Item& item);
  void note_unsupported(const std::string& what, int line);  // adds to unsupported_

  std::map<std::string, int> symbols_;
};

}  // namespace clover::data::jinja
