#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace clover::data::jinja {

/// The lines of Python's textwrap.wrap(line, width), with expand_tabs and replace_whitespace off.
/// `break_long`: break_long_words; `at_hyphens`: break_on_hyphens.
std::vector<std::string> wrapped(const std::string& line, int64_t width, bool break_long, bool at_hyphens);

}  // namespace clover::data::jinja
