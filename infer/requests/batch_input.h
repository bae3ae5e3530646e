#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <unordered_set>
#include <variant>
#include <vector>

#include "data/chat/chat_template.h"
#include "infer/requests/request_fields.h"
#include "infer/tree/verify.h"

namespace clover::infer {

/// The kinds of lines that a batch file may mix.
enum class LineShape {
  prompt,      // {"prompt"}: text as it is
  messages,    // {"messages"}: through the chat template
  turns,       // {"turns"}: user messages answered one after the other
  text,        // {"text"}: only for `tokenize`
  chat,        // OpenAI batch request to /v1/chat/completions
  completion,  // OpenAI batch request to /v1/completions
};

/// Members of a line that parsing would change, numbers in them as they are written.
using AsWritten = std::map<std::string, std::string>;

/// One of several prompts, or one that is a list: a text, or else the ids of its tokens.
struct ListedPrompt {
  std::string text;
  std::vector<int64_t> ids;
};

/// One request of a batch file, checked but not tokenised.
struct BatchLine {
  int64_t number = 0;  // 1-based
  LineShape shape = LineShape::prompt;
  nlohmann::json record;  // the whole line
  nlohmann::json id;      // "id" or "custom_id": a string, a number or null
  AsWritten written;      // of the record
  std::string category;
  std::string prompt;                   // prompt, text, completion
  std::vector<data::Message> messages;  // messages, chat; grows as turns are answered
  data::TemplateArguments arguments;    // of a conversation
  std::vector<std::string> turns;
  std::vector<ListedPrompt> prompts;  // of a list of several, or of ids; each is answered
  SamplingFields sampling;

  bool openai() const { return shape == LineShape::chat || shape == LineShape::completion; }
  bool conversation() const {
    return shape != LineShape::prompt && shape != LineShape::text && shape != LineShape::completion;
  }

  size_t choices() const { return std::max<size_t>(1, prompts.size()); }  // answers, those of turns being one

  /// Keyed by the request alone: a stable hash of the id's text (of the line number without an id) and of
  /// which choice it is, or 0 when the request brings its own seed.
  RandomKey random_key(size_t choice = 0) const;
};

/// A line that cannot be answered, and what is known of it.
struct BadLine {
  int64_t number = 0;
  nlohmann::json id;
  bool openai = false;
  std::string message;
  AsWritten written = {};  // its id

  /// The error record of the output: {"line", "id", "error": {"message"}}, or the OpenAI batch form.
  nlohmann::json record() const;
};

/// Of `line.written`, the id.
AsWritten id_as_written(const BatchLine& line);

/// A record of the output as text, with the members that `written` names.
std::string text_of_record(const nlohmann::json& record, const AsWritten& written);

/// Parses one line.  Never throws for what the line holds.  `tokenize` also accepts {"text"}, and empty
/// texts.
std::variant<BatchLine, BadLine> parse_batch_line(int64_t number, std::string_view text,
                                                  const SamplingFields& defaults, bool tokenize = false);

/// Parses the lines of one file in order, which also makes a repeated id the later line's error.
class BatchParser {
 public:
  explicit BatchParser(SamplingFields defaults, bool tokenize = false)
      : defaults_(std::move(defaults)), tokenize_(tokenize) {}

  std::variant<BatchLine, BadLine> parse(int64_t number, std::string_view text);

 private:
  SamplingFields defaults_;
  bool tokenize_;
  std::unordered_set<std::string> seen_;
};

/// InputError for a file that is one JSON array, every line of which would be bad: a request stands on a
/// line.
void refuse_json_array(const std::string& file);

/// Error record of a line that was never parsed because it is longer than `limit` bytes.
BadLine overlong_line(int64_t number, size_t limit);

/// Every request of a file.  InputError for the first bad line and for a file without requests: commands that
/// measure or compare begin with sound input only.
std::vector<BatchLine> read_batch_file(const std::string& file, const SamplingFields& defaults);

}  // namespace clover::infer
