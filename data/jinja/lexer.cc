#include "data/jinja/lexer.h"

#include <algorithm>
#include <cctype>

#include "data/error.h"
#include "data/utf8.h"

namespace clover::data::jinja {
namespace {

bool is_space(char c) {
  return c == ' ' || (c >= '\t' && c <= '\r');
}
bool begins_name(char c) {
  return std::isalpha(static_cast<unsigned char>(c)) != 0 || c == '_';
}
bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

class Lexer {
 public:
  explicit Lexer(std::string_view text) {
    for (size_t i = 0; i < text.size(); ++i) {
      if (text[i] == '\r') {
        if (i + 1 == text.size() || text[i + 1] != '\n') text_ += '\n';
      } else {
        text_ += text[i];
      }
    }
    if (text_.ends_with('\n')) text_.pop_back();
  }

  std::vector<Token> cut() {
    while (at_ < text_.size()) {
      take_text();
      if (at_ == text_.size()) break;
      const char kind = text_[at_ + 1];
      advance(2);
      if (at_ < text_.size() && (text_[at_] == '-' || text_[at_] == '+')) advance(1);
      if (kind == '#') {
        skip_comment();
      } else {
        take_tag(kind);
      }
    }
    add(Token::Kind::end, "");
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw InputError("line " + std::to_string(line_) + ": " + what);
  }
  bool starts(std::string_view what) const { return std::string_view(text_).substr(at_).starts_with(what); }
  void advance(size_t count) {
    line_ += static_cast<int>(std::count(text_.begin() + at_, text_.begin() + at_ + count, '\n'));
    at_ += count;
  }
  void add(Token::Kind kind, std::string text) { tokens_.push_back({kind, std::move(text), line_}); }

  /// Up to the next tag, less the whitespace that the tag takes with it.
  void take_text() {
    size_t end = at_;
    const auto is_tag = [&](char c) { return c == '{' || c == '%' || c == '#'; };
    while (end < text_.size() && !(text_[end] == '{' && end + 1 < text_.size() && is_tag(text_[end + 1])))
      ++end;
    std::string_view text = std::string_view(text_).substr(at_, end - at_);
    const char sign = end + 2 < text_.size() ? text_[end + 2] : ' ';
    if (end < text_.size() && sign == '-') {
      while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
    } else if (end < text_.size() && sign != '+' && text_[end + 1] != '{') {
      text = without_indent(text);
    }
    if (!text.empty()) add(Token::Kind::text, std::string(text));
    advance(end - at_);
  }

  /// Without the blanks before a tag that is the first of its line.
  std::string_view without_indent(std::string_view text) const {
    size_t begin = text.size();
    while (begin > 0 && (text[begin - 1] == ' ' || text[begin - 1] == '\t')) --begin;
    const bool at_start = begin > 0 ? text[begin - 1] == '\n' : at_ == 0 || text_[at_ - 1] == '\n';
    return at_start ? text.substr(0, begin) : text;
  }

  /// What follows the end of a tag and goes with it.
  void skip_after(bool minus, bool plus, bool takes_newline) {
    if (minus) {
      size_t count = 0;
      while (at_ + count < text_.size() && is_space(text_[at_ + count])) ++count;
      advance(count);
    } else if (!plus && takes_newline && starts("\n")) {
      advance(1);
    }
  }

  void skip_comment() {
    const size_t end = text_.find("#}", at_);
    if (end == std::string::npos) fail("a comment begins here that has no end");
    const char sign = text_[end - 1];
    advance(end + 2 - at_);
    skip_after(sign == '-', sign == '+', true);
  }

  void take_tag(char kind) {
    const bool block = kind == '%';
    add(block ? Token::Kind::begin_block : Token::Kind::begin_output, "");
    const std::string end = block ? "%}" : "}}";
    std::string open;  // brackets
    for (;;) {
      while (at_ < text_.size() && is_space(text_[at_])) advance(1);
      if (at_ == text_.size()) fail("a tag begins before here that has no end");
      const bool minus = starts("-" + end), plus = starts("+" + end);
      if (open.empty() && (minus || plus || starts(end))) {
        advance(minus || plus ? 3 : 2);
        add(block ? Token::Kind::end_block : Token::Kind::end_output, "");
        return skip_after(minus, plus, block);
      }
      take_token(open);
    }
  }

  void take_token(std::string& open) {
    const char c = text_[at_];
    if (c == '\'' || c == '"') return take_string(c);
    if (is_digit(c)) return take_number();
    if (begins_name(c)) {
      size_t count = 1;
      while (at_ + count < text_.size() && (begins_name(text_[at_ + count]) || is_digit(text_[at_ + count])))
        ++count;
      add(Token::Kind::name, text_.substr(at_, count));
      return advance(count);
    }
    take_symbol(open);
  }

  void take_symbol(std::string& open) {
    for (const char* symbol : {"**", "//", "==", "!=", "<=", ">="}) {
      if (!starts(symbol)) continue;
      add(Token::Kind::symbol, symbol);
      return advance(2);
    }
    const char c = text_[at_];
    if (std::string_view("()[]{}.,:|~+-*/%<>=").find(c) == std::string_view::npos)
      fail("found the character '" + repair_utf8(std::string(1, c)) + "' within a tag");
    if (c == '(' || c == '[' || c == '{') {
      open += c;
    } else if (c == ')' || c == ']' || c == '}') {
      if (open.empty()) fail(std::string("found '") + c + "' that nothing opened");
      open.pop_back();
    }
    add(Token::Kind::symbol, std::string(1, c));
    advance(1);
  }

  void take_number() {
    size_t count = 0;
    const auto digits = [&] {
      while (at_ + count < text_.size() && is_digit(text_[at_ + count])) ++count;
    };
    digits();
    if (at_ + count + 1 < text_.size() && text_[at_ + count] == '.' && is_digit(text_[at_ + count + 1])) {
      ++count;
      digits();
    }
    if (at_ + count + 1 < text_.size() && (text_[at_ + count] | 32) == 'e') {
      const bool sign = text_[at_ + count + 1] == '-' || text_[at_ + count + 1] == '+';
      if (at_ + count + 1 + sign < text_.size() && is_digit(text_[at_ + count + 1 + sign])) {
        count += 1 + sign;
        digits();
      }
    }
    if (count > 18) fail("found a number of more than 18 digits");
    add(Token::Kind::number, text_.substr(at_, count));
    advance(count);
  }

  void take_string(char quote) {
    std::string text;
    const int line = line_;
    size_t i = at_ + 1;
    for (; i < text_.size() && text_[i] != quote; ++i) {
      if (text_[i] == '\\' && i + 1 < text_.size()) {
        i = take_escape(i + 1, text);
      } else {
        text += text_[i];
      }
    }
    if (i >= text_.size()) fail("a string begins here that has no end");
    advance(i + 1 - at_);
    tokens_.push_back({Token::Kind::string, std::move(text), line});
  }

  /// The escape whose letter is at `i`; returns where its last character is.
  size_t take_escape(size_t i, std::string& text) const {
    static constexpr std::string_view letters = "ntrbfav0\\'\"\n", meant("\n\t\r\b\f\a\v\0\\'\"", 11);
    const char c = text_[i];
    const size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    if (digits > 0 && i + digits < text_.size()) {
      const std::string hex = text_.substr(i + 1, digits);
      if (hex.find_first_not_of("0123456789abcdefABCDEF") != std::string::npos) fail("found a broken escape");
      append_utf8(text, static_cast<char32_t>(std::stoul(hex, nullptr, 16)));
      return i + digits;
    }
    const size_t letter = letters.find(c);
    if (letter == std::string_view::npos) {
      text += '\\';
      text += c;
    } else if (c != '\n') {
      text += meant[letter];
    }
    return i;
  }

  std::string text_;
  size_t at_ = 0;
  int line_ = 1;
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> cut(std::string_view text) {
  return Lexer(text).cut();
}

}  // namespace clover::data::jinja
