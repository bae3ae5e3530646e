#include "data/chat/jinja/values/wrapping.h"

#include "data/chat/jinja/values/texts.h"
#include "data/chat/jinja/values/values.h"

namespace clover::data::jinja {
namespace {

constexpr std::string_view blanks = "\t\n\v\f\r ";

/// The words and the whitespace between them, in reverse order.
std::vector<std::string> chunks_of(const std::string& line) {
  std::vector<std::string> chunks;
  for (size_t at = 0; at < line.size();) {
    const bool blank = blanks.find(line[at]) != std::string_view::npos;
    const size_t end =
        std::min(blank ? line.find_first_not_of(blanks, at) : line.find_first_of(blanks, at), line.size());
    chunks.push_back(line.substr(at, end - at));
    at = end;
  }
  charge_template_work(std::ssize(chunks));
  return {chunks.rbegin(), chunks.rend()};
}

}  // namespace

std::vector<std::string> wrapped(const std::string& line, int64_t width, bool break_long, bool at_hyphens) {
  if (width <= 0) throw_error("lines of no width");
  if (at_hyphens && line.find('-') != std::string::npos) throw_unsupported("wordwrap of words with hyphens");
  std::vector<std::string> chunks = chunks_of(line), lines;
  const auto is_blank = [](const std::string& chunk) { return stripped(chunk, true, false).empty(); };
  while (!chunks.empty()) {
    if (!lines.empty() && is_blank(chunks.back())) chunks.pop_back();
    std::vector<std::string> line_chunks;
    int64_t length = 0;
    for (; !chunks.empty(); chunks.pop_back()) {
      const int64_t chunk_length = count_characters(chunks.back());
      if (length + chunk_length > width) break;
      length += chunk_length;
      line_chunks.push_back(chunks.back());
    }
    if (!chunks.empty() && count_characters(chunks.back()) > width) {
      if (break_long) {
        charge_template_work(static_cast<int64_t>(chunks.back().size() >> 3));
        const size_t cut = character_starts(chunks.back())[static_cast<size_t>(width - length)];
        line_chunks.push_back(chunks.back().substr(0, cut));
        chunks.back().erase(0, cut);
      } else if (line_chunks.empty()) {
        line_chunks.push_back(chunks.back());
        chunks.pop_back();
      }
    }
    if (!line_chunks.empty() && is_blank(line_chunks.back())) line_chunks.pop_back();
    if (line_chunks.empty()) continue;
    std::string text;
    for (const std::string& chunk : line_chunks) text += chunk;
    lines.push_back(std::move(text));
    charge_template_work(4);
  }
  return lines;
}

}  // namespace clover::data::jinja
