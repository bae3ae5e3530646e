#include "data/chat/jinja/syntax/lexer.h"

#include <algorithm>

#include "data/chat/jinja/values/texts.h"
#include "data/files/error.h"
#include "data/text/utf8.h"

namespace clover::data::jinja {
namespace {

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_name_start(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
         static_cast<unsigned char>(c) >= 0x80;
}
/// The number of whitespace bytes at the end of a text.
size_t blanks_at_end(std::string_view text) {
  return text.size() - stripped(text, false, true).size();
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

  std::vector<Token> tokenize() {
    while (position_ < text_.size()) {
      take_text("{", "%{#");
      if (position_ == text_.size()) break;
      if (skip_raw_begin()) {
        take_raw();
        continue;
      }
      const char kind = text_[position_ + 1];
      advance(2);
      if (position_ < text_.size() && (text_[position_] == '-' || text_[position_] == '+')) advance(1);
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
  bool next_is(std::string_view what) const {
    return std::string_view(text_).substr(position_).starts_with(what);
  }
  void advance(size_t count) {
    line_ += static_cast<int>(std::count(text_.begin() + position_, text_.begin() + position_ + count, '\n'));
    position_ += count;
  }
  void add(Token::Kind kind, std::string text) { tokens_.push_back({kind, std::move(text), line_}); }
  size_t blanks_at(size_t at) const {
    const std::string_view remaining = std::string_view(text_).substr(at);
    return remaining.size() - stripped(remaining, true, false).size();
  }

  /// Takes the text up to the next tag.
  void take_text(const char* opening, std::string_view kinds) {
    size_t end = text_.find(opening, position_);
    while (end < text_.size() &&
           (end + 1 == text_.size() || kinds.find(text_[end + 1]) == std::string_view::npos))
      end = text_.find(opening, end + 1);
    take_text(std::min(end, text_.size()));
  }

  /// Takes the text up to the tag at `end`, without the whitespace that the tag removes.
  void take_text(size_t end) {
    std::string_view text = std::string_view(text_).substr(position_, end - position_);
    const char sign = end + 2 < text_.size() ? text_[end + 2] : ' ';
    if (end < text_.size() && sign == '-') {
      text.remove_suffix(blanks_at_end(text));
    } else if (end < text_.size() && sign != '+' && text_[end + 1] != '{') {
      text = without_indent(text);
    }
    if (!text.empty()) add(Token::Kind::text, std::string(text));
    advance(end - position_);
  }

  /// lstrip_blocks: the text without the blanks before a tag that is the first on its line.
  std::string_view without_indent(std::string_view text) const {
    const size_t line_begin = text.rfind('\n') + 1;
    const bool at_start = line_begin > 0 || position_ == 0 || text_[position_ - 1] == '\n';
    return at_start && blanks_at_end(text) >= text.size() - line_begin ? text.substr(0, line_begin) : text;
  }

  /// Skips the whitespace that a tag removes after its end.
  void skip_after(bool minus, bool plus, bool takes_newline) {
    if (minus) {
      advance(blanks_at(position_));
    } else if (!plus && takes_newline && next_is("\n")) {
      advance(1);
    }
  }

  /// The end of a tag that consists of `word` and begins at `at`; 0 when there is no such tag.  `sign`: the
  /// minus or plus sign before its closing "%}", or a blank.
  size_t end_of_word(size_t at, std::string_view word, char& sign) const {
    at += 2;
    if (at < text_.size() && (text_[at] == '-' || text_[at] == '+')) ++at;
    at += blanks_at(at);
    if (text_.compare(at, word.size(), word) != 0) return 0;
    at += word.size();
    at += blanks_at(at);
    sign = at < text_.size() && (text_[at] == '-' || text_[at] == '+') ? text_[at++] : ' ';
    return text_.compare(at, 2, "%}") == 0 ? at + 2 : 0;
  }

  bool skip_raw_begin() {
    char sign = ' ';
    const size_t end = text_[position_ + 1] == '%' ? end_of_word(position_, "raw", sign) : 0;
    if (end == 0 || sign == '+') return false;
    advance(end - position_);
    skip_after(sign == '-', false, false);
    return true;
  }

  void take_raw() {
    for (size_t at = text_.find("{%", position_); at < text_.size(); at = text_.find("{%", at + 1)) {
      char sign = ' ';
      const size_t end = end_of_word(at, "endraw", sign);
      if (end == 0) continue;
      take_text(at);
      advance(end - position_);
      return skip_after(sign == '-', sign == '+', true);
    }
    if (position_ < text_.size()) fail("{% raw %} begins here that has no end");
  }

  void skip_comment() {
    const size_t end = text_.find("#}", position_);
    if (end == std::string::npos) fail("a comment begins here that has no end");
    const char sign = end > position_ ? text_[end - 1] : ' ';
    advance(end + 2 - position_);
    skip_after(sign == '-', sign == '+', true);
  }

  void take_tag(char kind) {
    const bool block = kind == '%';
    add(block ? Token::Kind::begin_block : Token::Kind::begin_output, "");
    const std::string end = block ? "%}" : "}}";
    std::string open_brackets;  // brackets that are not closed yet
    for (;;) {
      advance(blanks_at(position_));
      if (position_ == text_.size()) fail("a tag begins before here that has no end");
      const bool minus = next_is("-" + end), plus = block && next_is("+" + end);
      if (open_brackets.empty() && (minus || plus || next_is(end))) {
        advance(minus || plus ? 3 : 2);
        add(block ? Token::Kind::end_block : Token::Kind::end_output, "");
        return skip_after(minus, plus, block);
      }
      take_token(open_brackets);
    }
  }

  void take_token(std::string& open_brackets) {
    const char c = text_[position_];
    if (c == '\'' || c == '"') return take_string(c);
    if (is_digit(c)) return take_number();
    if (!is_name_start(c)) return take_symbol(open_brackets);
    size_t count = 1;
    while (position_ + count < text_.size() &&
           (is_name_start(text_[position_ + count]) || is_digit(text_[position_ + count])))
      ++count;
    const std::string name = text_.substr(position_, count);
    if (!is_of_kind("isidentifier", name))
      fail("found \"" + repair_utf8(name.substr(0, 40)) + "\" within a tag, which is no name");
    add(Token::Kind::name, name);
    advance(count);
  }

  void take_symbol(std::string& open_brackets) {
    for (const char* symbol : {"**", "//", "==", "!=", "<=", ">="}) {
      if (!next_is(symbol)) continue;
      add(Token::Kind::symbol, symbol);
      return advance(2);
    }
    const char c = text_[position_];
    if (std::string_view("()[]{}.,:|~+-*/%<>=").find(c) == std::string_view::npos)
      fail("found the character '" + repair_utf8(std::string(1, c)) + "' within a tag");
    if (c == '(' || c == '[' || c == '{') {
      open_brackets += c;
    } else if (c == ')' || c == ']' || c == '}') {
      const char opening = c == ')' ? '(' : c == ']' ? '[' : '{';
      if (open_brackets.empty() || open_brackets.back() != opening)
        fail(std::string("found '") + c + "' that nothing opened");
      open_brackets.pop_back();
    }
    add(Token::Kind::symbol, std::string(1, c));
    advance(1);
  }

  /// The end of the run of `digits` that begins at `at`.  One underscore may stand between two digits; before
  /// the first digit only if `must_begin_with_digit` is false.
  size_t end_of_digits(size_t at, std::string_view digits, bool must_begin_with_digit = true) const {
    const auto is_digit_at = [&](size_t i) {
      return i < text_.size() &&
             digits.find(static_cast<char>(text_[i] | (text_[i] > '9' ? 32 : 0))) != std::string_view::npos;
    };
    if (must_begin_with_digit && !is_digit_at(at)) return at;
    for (at += must_begin_with_digit;
         is_digit_at(at) || (at < text_.size() && text_[at] == '_' && is_digit_at(at + 1));)
      at += text_[at] == '_' ? 2 : 1;
    return at;
  }

  void take_number() {
    constexpr std::string_view decimal_digits = "0123456789";
    size_t end = end_of_digits(position_, decimal_digits);
    bool real = false;
    const auto take = [&](size_t from) {
      const size_t next = end_of_digits(from, decimal_digits);
      if (next > from) end = next, real = true;
    };
    if (end < text_.size() && text_[end] == '.') take(end + 1);
    if (end < text_.size() && (text_[end] | 32) == 'e') {
      const bool sign = end + 1 < text_.size() && (text_[end + 1] == '-' || text_[end + 1] == '+');
      take(end + 1 + sign);
    }
    if (!real && text_[position_] == '0') {
      const char base = position_ + 1 < text_.size() ? static_cast<char>(text_[position_ + 1] | 32) : ' ';
      const std::string_view digits = base == 'x'   ? "0123456789abcdef"
                                      : base == 'o' ? "01234567"
                                      : base == 'b' ? "01"
                                                    : "";
      const size_t next = digits.empty()
                              ? position_
                              : end_of_digits(position_ + 2, digits,
                                              position_ + 2 < text_.size() && text_[position_ + 2] != '_');
      end = next > position_ + 2 ? next : end_of_digits(position_, "0");
    }
    std::string text = text_.substr(position_, end - position_);
    std::erase(text, '_');
    add(real ? Token::Kind::real : Token::Kind::integer, text);
    advance(end - position_);
  }

  void take_string(char quote) {
    std::string text;
    const int line = line_;
    size_t i = position_ + 1;
    for (; i < text_.size() && text_[i] != quote; ++i) {
      if (text_[i] == '\\' && i + 1 < text_.size()) {
        i = take_escape(i + 1, text);
      } else {
        text += text_[i];
      }
    }
    if (i >= text_.size()) fail("a string begins here that has no end");
    advance(i + 1 - position_);
    tokens_.push_back({Token::Kind::string, std::move(text), line});
  }

  /// Appends the character of the escape whose letter is at `i`; returns the position of the escape's last
  /// character.
  size_t take_escape(size_t i, std::string& text) const {
    static constexpr std::string_view escape_letters = "ntrbfav\\'\"\n",
                                      escaped_characters("\n\t\r\b\f\a\v\\'\"");
    const char c = text_[i];
    const size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    if (digits > 0) {
      const std::string hex = text_.substr(i + 1, digits);
      if (hex.size() < digits || hex.find_first_not_of("0123456789abcdefABCDEF") != std::string::npos)
        fail("found a broken escape");
      append(static_cast<char32_t>(std::stoul(hex, nullptr, 16)), text);
      return i + digits;
    }
    if (c >= '0' && c <= '7') {
      size_t count = 1;
      while (count < 3 && i + count < text_.size() && text_[i + count] >= '0' && text_[i + count] <= '7')
        ++count;
      append(static_cast<char32_t>(std::stoul(text_.substr(i, count), nullptr, 8)), text);
      return i + count - 1;
    }
    if (c == 'N') fail("\\N in a string is not supported");
    if (static_cast<unsigned char>(c) >= 0x80) fail("found a \"\\\" before a letter beyond ASCII");
    const size_t letter = escape_letters.find(c);
    if (letter == std::string_view::npos) {
      text += '\\';
      text += c;
    } else if (c != '\n') {
      text += escaped_characters[letter];
    }
    return i;
  }
  void append(char32_t c, std::string& text) const {
    if (c > 0x10FFFF || (c >= 0xD800 && c < 0xE000)) fail("found an escape that is no character");
    append_utf8(text, c);
  }

  std::string text_;
  size_t position_ = 0;
  int line_ = 1;
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokenize(std::string_view text) {
  return Lexer(text).tokenize();
}

}  // namespace clover::data::jinja
