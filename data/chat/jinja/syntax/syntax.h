#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "data/chat/jinja/values/values.h"

// The syntax tree of a template.
namespace clover::data::jinja {

struct Expression {
  enum class Kind {
    literal,    // value
    name,       // symbol
    list,       // parts
    tuple,      // parts
    dict,       // parts: key, value, key, value ..
    attribute,  // parts[0].text
    item,       // parts[0][parts[1]]
    slice,      // parts[0][parts[1] : parts[2] : parts[3]], absent ones the literal none
    call,       // parts[0](parts[1] .., keywords)
    filter,     // parts[0] | text(parts[1] .., keywords)
    test,       // parts[0] is text(parts[1] .., keywords)
    operation,  // the operator `text` applied to parts: not, and, or, minus, plus, -, +, *, /, //, %, **, if
                // (value, condition, otherwise)
    concatenation,  // parts[0] ~ parts[1] ~ ..
    compare         // parts[0] operators[0] parts[1] operators[1] parts[2] ..
  };
  Kind kind = Kind::literal;
  int line = 0;     // from 1
  int depth = 1;    // nesting of expressions
  int symbol = -1;  // of a name: its number in Program::names
  std::string text = {};
  Value value = {};
  std::vector<Expression> parts = {};
  std::vector<std::pair<std::string, Expression>> keywords =
      {};  // keyword arguments; those named "*" and "**" are unpacked
  std::vector<std::string> operators = {};
};

struct Statement;

/// The parameters of a macro or of a {% call %} block.
struct Parameters {
  std::vector<std::string> names = {};
  std::vector<int> symbols = {};
  std::vector<Expression> defaults = {};  // of the last defaults.size() parameters
  bool uses_caller = false, uses_varargs = false, uses_kwargs = false;
};

struct Statement {
  enum class Kind {
    text,           // text
    output,         // expressions
    condition,      // if expressions[i]: bodies[i]; one more body is the else
    loop,           // for targets[0] in expressions[0] [if expressions[1]]: bodies[0], else bodies[1]
    set,            // targets[0] = expressions[0]
    set_block,      // targets[0] = the text of bodies[0] after the filters of expressions[0]
    macro,          // symbol and text are its name, bodies[0] its body
    call,           // expressions[0], a call, with bodies[0] as its caller
    filter,         // writes the text of bodies[0] after the filters of expressions[0]
    scope,          // with: targets = expressions inside bodies[0]
    break_loop,     // {% break %}
    continue_loop,  // {% continue %}
    generation,     // bodies[0] is an assistant's answer
  };
  Kind kind = Kind::text;
  int line = 0;            // from 1
  int symbol = -1;         // of a macro's name
  bool recursive = false;  // of a loop
  std::string text = {};
  std::vector<Expression> targets = {};  // names, tuples of them, attributes of namespaces
  std::vector<Expression> expressions = {};
  Parameters parameters = {};
  std::vector<std::vector<Statement>> bodies = {};
};

/// A parsed template.
struct Program {
  std::vector<Statement> statements;
  std::vector<std::string> names;  // by symbol, the number of an interned name
};

// Symbols of predefined names.  captured_symbol is the hidden variable with the text of a {% filter %} or
// {% set %} block.
constexpr int loop_symbol = 0, caller_symbol = 1, varargs_symbol = 2, kwargs_symbol = 3, captured_symbol = 4;

/// Parses a template with Hugging Face's settings (trim_blocks, lstrip_blocks).  InputError naming the line
/// of a syntax error or of an unsupported feature.
Program parse(std::string_view text);

}  // namespace clover::data::jinja
