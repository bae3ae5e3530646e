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
#include "infer/requests/sampling_params.h"
#include "infer/tree/verify.h"

namespace clover::infer {

/// The forms of a line.  A batch file may mix them.
enum class LineShape {
  prompt,      // {"prompt"}: the text is continued as it is
  messages,    // {"messages"}: rendered by the chat template
  turns,       // {"turns"}: user messages, each answered before the next is sent
  text,        // {"text"}: only for `tokenize`
  chat,        // OpenAI batch request to /v1/chat/completions
  completion,  // OpenAI batch request to /v1/completions
};

/// Top-level fields of a line as the JSON text that stands there, by name: those that would not survive being
/// parsed and written again, because of large numbers or of the order of keys.
using VerbatimFields = std::map<std::string, std::string>;

/// One prompt of a "prompt" list (OpenAI's completions): a text, or token ids.
struct ListedPrompt {
  std::string text;          // empty when ids are given
  std::vector<int64_t> ids;  // empty when a text is given
};

/// One request of a batch file, checked but not yet tokenised.
struct BatchLine {
  int64_t number = 0;  // in the file, from 1
  LineShape shape = LineShape::prompt;
  nlohmann::json record;                // the whole line
  nlohmann::json id;                    // "id" or "custom_id": a string, a number or null
  VerbatimFields verbatim;              // fields of `record` to write out as they were read
  std::string category;                 // statistics are also summed by category; may be empty
  std::string prompt;                   // of the shapes prompt, text and completion
  std::vector<data::Message> messages;  // of messages, chat and turns; grows as turns are answered
  data::TemplateArguments arguments;    // tools, documents and so on for the chat template
  std::vector<std::string> turns;       // the user's messages
  std::vector<ListedPrompt> prompts;    // of a "prompt" that is a list; each is answered
  SamplingParams sampling;

  /// Whether the line is an OpenAI batch request, which is answered in OpenAI's form.
  bool openai() const { return shape == LineShape::chat || shape == LineShape::completion; }
  /// Whether the chat template renders it.
  bool conversation() const {
    return shape != LineShape::prompt && shape != LineShape::text && shape != LineShape::completion;
  }

  /// The number of prompts that are answered independently; a conversation is one.
  size_t prompt_count() const { return std::max<size_t>(1, prompts.size()); }

  /// The key of the request's random numbers, which depends on the request alone: a stable hash of its id (of
  /// the line number without an id) and of the prompt's index, or 0 when the request gives its own seed.
  RandomKey random_key(size_t prompt_index = 0) const;
};

/// A line that cannot be answered.
struct BadLine {
  int64_t number = 0;
  nlohmann::json id;  // as in BatchLine; null where it could not be read
  bool openai = false;
  std::string message;           // why, in one sentence
  VerbatimFields verbatim = {};  // the id as it was written

  /// The error record of the output: {"line", "id", "error": {"message"}}, or the OpenAI batch form.
  nlohmann::json record() const;
};

/// The id in `line.verbatim`, when it is there; otherwise nothing.
VerbatimFields verbatim_id(const BatchLine& line);

/// A record of the output as one line of JSON, in which the fields of `verbatim` replace those of the record.
std::string record_to_text(const nlohmann::json& record, const VerbatimFields& verbatim);

/// Parses one line; whatever it holds, this does not throw.  With `tokenize` (the command of that name),
/// {"text"} and empty texts are accepted too.
std::variant<BatchLine, BadLine> parse_batch_line(int64_t number, std::string_view text,
                                                  const SamplingParams& defaults, bool tokenize = false);

/// Parses the lines of one file in order.  A line with the id of an earlier line is a BadLine.
class BatchParser {
 public:
  explicit BatchParser(SamplingParams defaults, bool tokenize = false)
      : defaults_(std::move(defaults)), tokenize_(tokenize) {}

  std::variant<BatchLine, BadLine> parse(int64_t number, std::string_view text);

 private:
  SamplingParams defaults_;
  bool tokenize_;
  std::unordered_set<std::string> seen_ids_;
};

/// InputError when the file is one JSON array instead of one JSON object a line.
void refuse_json_array(const std::string& file);

/// The error of a line that was not parsed because it is longer than `limit` bytes.
BadLine overlong_line(int64_t number, size_t limit);

/// Reads every request of a file, for commands that measure or compare.  InputError for the first bad line,
/// and for a file without requests.
std::vector<BatchLine> read_batch_file(const std::string& file, const SamplingParams& defaults);

}  // namespace clover::infer
